//! User pools: keys of their own, memory that is not counted twice, resets.

use std::collections::BTreeMap;

use heapledger_core::{Blocks, Bytes, Serial, StackId, ThreadId};
use heapledger_ledger::{Freed, Key, Ledger, Session, Time};
use proptest::prelude::*;

const A: ThreadId = ThreadId(0);
const STACK: StackId = StackId(7);
const MEMORY: Key = Key(0x5000);

#[derive(Default)]
struct Image {
    ledger: Ledger,
    session: Session,
}

impl Image {
    fn allocate(&mut self, key: Key, size: u64) -> Serial {
        self.ledger.allocate(&mut self.session, Time(0), A, key, Bytes(size), STACK).unwrap().serial
    }

    fn free(&mut self, key: Key) -> Freed {
        self.ledger.free(&mut self.session, A, key)
    }

    fn back(&mut self, key: Key) -> Freed {
        self.ledger.back(&mut self.session, A, key)
    }

    fn reset(&mut self, pool: u32) -> Vec<Serial> {
        let mut serials = Vec::new();
        self.ledger.reset_pool(&mut self.session, A, pool, |freed, _| match freed {
            Freed::Known(block) => serials.push(block.serial),
            other => panic!("{other:?}"),
        });
        serials
    }

    /// Checks the live bytes and blocks.
    #[track_caller]
    fn is_live(&self, bytes: u64, blocks: u64) {
        for live in [self.ledger.live(), self.session.live()] {
            assert_eq!((live.bytes_live, live.blocks_live), (Bytes(bytes), Blocks(blocks)));
        }
        assert_eq!(self.ledger.blocks().count() as u64, blocks);
        let site = self.ledger.site(&self.session, STACK).unwrap();
        assert_eq!((site.bytes_live, site.blocks_live), (Bytes(bytes), Blocks(blocks)));
    }
}

#[test]
fn the_memory_of_a_pool_is_not_counted_twice() {
    let mut image = Image::default();
    image.allocate(MEMORY, 4096);
    assert!(matches!(image.back(MEMORY), Freed::Known(_)));
    image.is_live(0, 0);
    // The first block of the pool is where its memory begins.
    image.allocate(Key::in_pool(1, MEMORY.0), 100);
    image.allocate(Key::in_pool(2, MEMORY.0), 50);
    image.is_live(150, 2);
    assert!(matches!(image.free(Key::in_pool(1, MEMORY.0)), Freed::Known(_)));
    image.is_live(50, 1);
    // The memory goes back: no event. From then on its address is like any other.
    let before = image.ledger.counts();
    assert_eq!(image.free(MEMORY), Freed::Untracked);
    assert_eq!(image.ledger.counts(), before);
    assert_eq!(before.temporaries, Blocks(0));
    assert_eq!(image.free(MEMORY), Freed::Unknown);
    image.allocate(MEMORY, 10);
    assert!(matches!(image.free(MEMORY), Freed::Known(_)));
    image.is_live(50, 1);
}

#[test]
fn memory_that_is_reallocated_is_a_new_block() {
    let mut image = Image::default();
    image.allocate(MEMORY, 4096);
    image.back(MEMORY);
    // The reallocation fails: nothing has changed.
    let pending = image.ledger.begin_realloc(A, MEMORY);
    assert_eq!(pending.old(), Freed::Untracked);
    image.ledger.cancel_realloc(&mut image.session, pending);
    // The block moves.
    let pending = image.ledger.begin_realloc(A, MEMORY);
    let _ = image.ledger.finish_realloc(&mut image.session, Time(0), pending, Key(0x9000), Bytes(8192), STACK).unwrap();
    image.is_live(8192, 1);
    assert_eq!(image.ledger.counts().reallocations, Blocks(0));
    assert_eq!(image.free(MEMORY), Freed::Unknown);
    image.back(Key(0x9000));
    image.is_live(0, 0);
}

#[test]
fn a_reset_frees_the_latest_first() {
    let mut image = Image::default();
    let first = image.allocate(Key::in_pool(3, 16), 10);
    let second = image.allocate(Key::in_pool(3, 32), 10);
    let other = image.allocate(Key::in_pool(4, 32), 10);
    let third = image.allocate(Key::in_pool(3, 48), 10);
    image.free(Key::in_pool(3, 32));
    assert_ne!(second, other);
    assert_eq!(image.reset(3), [third, first]);
    image.is_live(10, 1);
    assert_eq!(image.reset(3), []);
    assert_eq!(image.reset(60_000), []);
    assert_eq!(image.ledger.counts().frees, Blocks(3));
}

#[test]
fn an_ignored_block_is_freed_unseen() {
    let mut image = Image::default();
    assert_eq!(image.ledger.ignore(&mut image.session, MEMORY), Ok(None));
    assert_eq!(image.free(MEMORY), Freed::Untracked);
    assert_eq!(image.free(MEMORY), Freed::Unknown);
    assert_eq!(image.ledger.ignore(&mut image.session, MEMORY), Ok(None));
    let pending = image.ledger.begin_realloc(A, MEMORY);
    assert_eq!(pending.old(), Freed::Untracked);
    let _ = image.ledger.finish_realloc(&mut image.session, Time(0), pending, MEMORY, Bytes(9), STACK).unwrap();
    image.is_live(9, 1);
    assert_eq!((image.ledger.counts().frees, image.ledger.counts().frees_unknown), (Blocks(0), Blocks(1)));
}

#[test]
fn a_child_resets_what_it_inherited() {
    let mut image = Image::default();
    image.allocate(MEMORY, 100);
    image.back(MEMORY);
    image.allocate(Key::in_pool(1, 16), 10);
    let mut child = Image { ledger: image.ledger.fork().unwrap(), session: Session::new() };
    child.allocate(Key::in_pool(1, 32), 20);
    let mut freed = Vec::new();
    child.ledger.reset_pool(&mut child.session, A, 1, |block, _| freed.push(block));
    assert!(matches!(freed.as_slice(), [Freed::Known(_), Freed::Inherited(_)]));
    assert_eq!(child.ledger.counts().blocks_inherited, Blocks(0));
    assert_eq!(child.free(MEMORY), Freed::Untracked);
    image.is_live(10, 1);
}

/// Entries that frees leave behind in a pool's list do not pile up.
#[test]
fn pools_that_are_never_reset_stay_small() {
    let mut image = Image::default();
    for iteration in 0..100_000_u64 {
        image.allocate(Key::in_pool(1, iteration % 7 * 16), 8);
        image.free(Key::in_pool(1, iteration % 7 * 16));
    }
    assert!(image.ledger.bytes_mapped().0 < 64 << 10, "{:?}", image.ledger.bytes_mapped());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Allocate { pool: u32, address: u64, size: u64 },
    Free { pool: u32, address: u64 },
    Reset { pool: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (pool, address) = (0..4_u32, (1..100_u64).prop_map(|at| at * 16));
    let step = prop_oneof![
        60 => (pool.clone(), address.clone(), 0..1000_u64)
            .prop_map(|(pool, address, size)| Step::Allocate { pool, address, size }),
        40 => (pool, address).prop_map(|(pool, address)| Step::Free { pool, address }),
        1 => (1..4_u32).prop_map(|pool| Step::Reset { pool }),
    ];
    prop::collection::vec(step, 0..2000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pools_agree_with_a_map(steps in steps()) {
        let mut image = Image::default();
        let mut model: BTreeMap<(u32, u64), (u64, Serial)> = BTreeMap::new();
        image.allocate(Key(1 << 40), 1);
        for step in steps {
            match step {
                Step::Allocate { pool, address, size } => {
                    let serial = image.allocate(Key::in_pool(pool, address), size);
                    model.insert((pool, address), (size, serial));
                }
                Step::Free { pool, address } => {
                    let freed = image.free(Key::in_pool(pool, address));
                    match model.remove(&(pool, address)) {
                        Some(_) => prop_assert!(matches!(freed, Freed::Known(_))),
                        None => prop_assert_eq!(freed, Freed::Unknown),
                    }
                }
                Step::Reset { pool } => {
                    let mut gone: Vec<Serial> = model.iter().filter(|(at, _)| at.0 == pool).map(|(_, it)| it.1).collect();
                    gone.sort_by(|one, other| other.cmp(one));
                    model.retain(|at, _| at.0 != pool);
                    prop_assert_eq!(image.reset(pool), gone);
                }
            }
            let bytes: u64 = model.values().map(|it| it.0).sum();
            image.is_live(bytes + 1, model.len() as u64 + 1);
        }
    }
}
