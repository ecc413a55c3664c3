//! One state machine: the same events, the same answers, from the ledger of a recorder and from
//! that of a program.

use std::collections::BTreeMap;

use heapledger_core::sample::Rate;
use heapledger_core::{Bytes, Serial, StackId, ThreadId, TypeId};
use heapledger_ledger::{
    Allocation, Block, Freed, Key, Ledger, LiveBlock, OutOfMemory, Pending, Sampled, Session, SharedLedger,
    SharedPending, Site, SiteVariances, Time, Variance,
};
use proptest::prelude::*;

/// Both ledgers, side by side; the time is the number of the event.
#[derive(Default)]
struct Both {
    one: Ledger,
    session: Session,
    shared: Box<SharedLedger>,
    pending: Vec<(Pending, SharedPending)>,
    time: u64,
}

impl Both {
    fn new_block(&mut self, step: &Step) -> Allocation {
        let Step { thread, key, size, rate, stack, .. } = *step;
        self.time += 1;
        let (usable, time, stamp) = (Bytes(size.0 + size.0 % 17), Time(self.time), TypeId(stack.0 % 3));
        Allocation { key, size, rate, usable, stack, thread, time, stamp }
    }

    fn step(&mut self, step: &Step) {
        let Step { thread, key, size, rate, stack, .. } = *step;
        let sampled = Sampled { size, rate };
        match step.what {
            What::Allocate => {
                let new = self.new_block(step);
                let one = self.one.allocate(&mut self.session, new.time, thread, key, sampled, stack);
                assert_eq!(one, self.shared.allocate(&new));
            }
            What::ReallocateUnsampled => {
                let new = self.new_block(step);
                let one = self.one.reallocate_unsampled(&mut self.session, new.time, thread, key, sampled, stack);
                assert_eq!(one, self.shared.reallocate_unsampled(&new));
            }
            What::Free => {
                assert_eq!(self.one.free(&mut self.session, thread, key), self.shared.free(thread, key));
            }
            What::FreeIfKnown => {
                let freed = self.shared.free_if_known(thread, key);
                if freed != Freed::Unknown {
                    assert_eq!(self.one.free(&mut self.session, thread, key), freed);
                }
            }
            What::Begin => {
                let pair = (self.one.begin_realloc(thread, key), self.shared.begin_realloc(thread, key));
                assert_eq!(pair.0.old(), pair.1.old());
                self.pending.push(pair);
            }
            What::Finish(_) if self.pending.is_empty() => {}
            What::Finish(outcome) => {
                let which = step.which % self.pending.len();
                let (one, shared) = self.pending.swap_remove(which);
                match outcome {
                    Outcome::Moved => {
                        let new = self.new_block(step);
                        let one = self.one.finish_realloc(&mut self.session, new.time, one, key, sampled, stack);
                        // The thread is the one that began the reallocation.
                        assert_eq!(one, self.shared.finish_realloc(shared, &new));
                    }
                    Outcome::Freed => {
                        self.one.finish_as_free(&mut self.session, one);
                        self.shared.finish_as_free(shared);
                    }
                    Outcome::Failed => {
                        self.one.cancel_realloc(&mut self.session, one);
                        self.shared.cancel_realloc(shared);
                        self.one.fail();
                        self.shared.fail();
                    }
                }
            }
            What::Back => {
                assert_eq!(self.one.back(&mut self.session, thread, key), self.shared.back(thread, key, 7));
            }
            What::Ignore => assert_eq!(self.one.ignore(&mut self.session, key), self.shared.ignore(key)),
            What::Move => {
                assert_eq!(
                    self.one.reattribute_block(&self.session, key, stack),
                    self.shared.reattribute_block(key, stack)
                );
            }
            What::Reset => {
                let mut blocks = 0;
                self.one.reset_pool(&mut self.session, thread, key.pool(), |_, _| blocks += 1);
                assert_eq!(self.shared.reset_pool(thread, key.pool()).0, blocks);
            }
            What::EndThread => {
                self.one.end_thread(thread);
                self.shared.end_thread(thread);
            }
            What::Restart => {
                self.session.restart(Time(self.time));
                self.one.restart(Time(self.time));
                self.shared.restart(Time(self.time));
            }
        }
    }

    fn check(&self) {
        assert_eq!(self.shared.totals(), (self.one.counts(), self.one.live(), self.one.variances()));
        let sites =
            |sites: &mut dyn Iterator<Item = Site>| sites.map(|site| (site.stack, site)).collect::<BTreeMap<_, _>>();
        let expected = sites(&mut self.one.sites(&self.session).map(|site| Site {
            bytes_at_session_peak: Bytes(0),
            blocks_at_session_peak: heapledger_core::Blocks(0),
            variances: SiteVariances { at_session_peak: Variance::default(), ..site.variances },
            ..site
        }));
        assert_eq!(sites(&mut self.shared.sites()), expected);
        for (stack, site) in expected {
            assert_eq!(self.shared.site(stack), Some(site));
        }
        let expected: BTreeMap<Key, Block> = self.one.blocks().collect();
        let found: Vec<LiveBlock> = self.shared.blocks().collect();
        assert_eq!(found.len(), expected.len());
        // Blocks that are being reallocated are still in the totals.
        if self.pending.is_empty() {
            let weight = found.iter().map(|block| block.weight().0).sum::<u64>();
            assert_eq!(weight, self.shared.live().blocks_live.0);
        }
        for found in found {
            let Block { size, rate, stack, serial, .. } = expected[&found.key];
            assert_eq!((found.size, found.rate, found.stack, found.serial), (size, rate, stack, serial));
            assert_eq!(self.shared.get(found.key), Some(found));
        }
        assert_eq!(self.shared.dropped(), 0);
    }
}

#[derive(Clone, Copy, Debug)]
enum What {
    Allocate,
    ReallocateUnsampled,
    Free,
    FreeIfKnown,
    Begin,
    Finish(Outcome),
    Back,
    Ignore,
    Move,
    Reset,
    EndThread,
    Restart,
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Moved,
    Freed,
    Failed,
}

#[derive(Clone, Debug)]
struct Step {
    what: What,
    which: usize,
    thread: ThreadId,
    key: Key,
    size: Bytes,
    rate: Rate,
    stack: StackId,
}

fn step() -> impl Strategy<Value = Step> {
    let what = prop_oneof![
        40 => Just(What::Allocate),
        2 => Just(What::ReallocateUnsampled),
        25 => Just(What::Free),
        2 => Just(What::FreeIfKnown),
        8 => Just(What::Begin),
        5 => Just(What::Finish(Outcome::Moved)),
        1 => Just(What::Finish(Outcome::Freed)),
        2 => Just(What::Finish(Outcome::Failed)),
        1 => Just(What::Back),
        1 => Just(What::Ignore),
        3 => Just(What::Move),
        1 => Just(What::Reset),
        1 => Just(What::EndThread),
        1 => Just(What::Restart),
    ];
    // Few keys, so that addresses are reused and displaced; some are those of pools.
    let key =
        (prop_oneof![9 => Just(0_u32), 1 => 1_u32..3], 0_u64..64).prop_map(|(pool, n)| Key::in_pool(pool, n * 0x570));
    let size = prop_oneof![1 => Just(0), 8 => 0_u64..200, 2 => 3000_u64..20_000, 1 => 0_u64..1 << 40].prop_map(Bytes);
    let rate = prop_oneof![2 => Just(0_u64), 1 => 1_u64..41].prop_map(Rate::from_logarithm);
    let stack = prop_oneof![8 => 0_u32..6, 1 => 0_u32..5000].prop_map(StackId);
    (what, any::<usize>(), (0_u32..3).prop_map(ThreadId), key, size, rate, stack)
        .prop_map(|(what, which, thread, key, size, rate, stack)| Step { what, which, thread, key, size, rate, stack })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_same_events_have_the_same_outcome(
        steps in prop::collection::vec(step(), 1..if cfg!(miri) { 60 } else { 400 }),
    ) {
        let mut both = Both::default();
        for step in &steps {
            both.step(step);
            both.check();
        }
    }
}

#[test]
fn details_are_kept() {
    let shared = Box::new(SharedLedger::new());
    let new = Allocation {
        key: Key(0x1230),
        size: Bytes(100),
        rate: Rate::from_logarithm(9),
        usable: Bytes(120),
        stack: StackId(9),
        thread: ThreadId(77),
        time: Time(5 * LiveBlock::TIME_STEP + 3),
        stamp: TypeId(12),
    };
    let Ok(allocated) = shared.allocate(&new) else { panic!() };
    let block = LiveBlock {
        key: new.key,
        size: new.size,
        rate: new.rate,
        usable: new.usable,
        stack: new.stack,
        serial: allocated.serial,
        stamp: new.stamp,
        thread: new.thread,
        time: Time(5 * LiveBlock::TIME_STEP),
        backs: None,
    };
    assert_eq!(shared.get(new.key), Some(block));
    // The slop belongs to the block, too.
    assert_eq!(shared.block_at(0x1230 + 119), Some(block));
    assert_eq!(shared.block_at(0x1230 + 120), None);
    assert!(shared.stamp(new.key, TypeId(13)));
    assert_eq!(shared.reattribute_block(new.key, StackId(10)), Ok(true));
    assert_eq!(shared.get(new.key), Some(LiveBlock { stamp: TypeId(13), stack: StackId(10), ..block }));
    assert_eq!(shared.site(StackId(9)).map(|site| site.blocks_live.0), Some(0));
    assert!(!shared.stamp(Key(0x1240), TypeId(1)));
    assert_eq!(shared.reattribute_block(Key(0x1240), StackId(1)), Ok(false));
    // Backing memory of a pool has no stamp, and is not a live block.
    let Freed::Known(Block { serial: Serial(0), .. }) = shared.back(ThreadId(77), new.key, 3) else { panic!() };
    assert!(!shared.stamp(new.key, TypeId(1)));
    assert_eq!((shared.get(new.key), shared.blocks().count()), (None, 0));
    let backing = LiveBlock { stamp: TypeId::NONE, stack: StackId(10), backs: Some(3), ..block };
    assert_eq!(shared.block_at(0x1231), Some(backing));
}

#[test]
fn memory_has_a_bound() {
    let shared = Box::new(SharedLedger::new());
    shared.set_bytes_max(Bytes(2 << 20));
    let new = |n: u64| Allocation {
        key: Key(0x10_0000 + n * 64),
        size: Bytes(10),
        rate: if n.is_multiple_of(2) { Rate::EXACT } else { Rate::from_logarithm(1) },
        usable: Bytes(24),
        stack: StackId(n as u32 % 100),
        thread: ThreadId(0),
        time: Time(n),
        stamp: TypeId::NONE,
    };
    const BLOCKS: u64 = 200_000;
    let kept: Vec<u64> = (0..BLOCKS).filter(|&n| shared.allocate(&new(n)).is_ok()).collect();
    assert!(shared.bytes_mapped() <= Bytes(2 << 20), "{:?}", shared.bytes_mapped());
    assert!((20_000..60_000).contains(&kept.len()), "{}", kept.len());
    assert_eq!(shared.dropped(), BLOCKS - kept.len() as u64);
    // The totals are right, and a full ledger takes blocks in the place of others. At the rate of
    // the sampled ones nearly every block is in the sample: by far most have the weight 1.
    let (counts, live, _) = shared.totals();
    let (blocks, about) = (kept.len() as u64, kept.len() as u64 / 100);
    assert!((blocks..blocks + about).contains(&counts.allocations.0), "{counts:?}");
    assert_eq!((counts.allocations, live.bytes_live.0), (live.blocks_live, 10 * live.blocks_live.0));
    assert!(kept.iter().all(|&n| shared.free(ThreadId(0), new(n).key) != Freed::Unknown));
    assert!(kept.iter().all(|&n| shared.allocate(&new(n)).is_ok()));
    assert_eq!(shared.allocate(&Allocation { stack: StackId(1 << 25), ..new(0) }), Err(OutOfMemory));
    assert_eq!(shared.blocks().count(), kept.len());
    assert!((blocks..blocks + about).contains(&shared.live().blocks_live.0));
    shared.clear();
    assert_eq!((shared.bytes_mapped(), shared.dropped(), shared.blocks().count()), (Bytes(0), 0, 0));
    assert!(shared.allocate(&new(1)).is_ok());
}
