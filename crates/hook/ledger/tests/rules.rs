//! The counting rules of the crate documentation, case by case.

use heapledger_core::sample::{Random, Rate};
use heapledger_core::{Blocks, Bytes, Serial, StackId, ThreadId};
use heapledger_ledger::{Block, Counts, Freed, Key, Ledger, Live, OutOfMemory, Pending, Session, Time};

const A: ThreadId = ThreadId(0);
const B: ThreadId = ThreadId(1);
const STACK: StackId = StackId(7);
const OTHER_STACK: StackId = StackId(9);
const P: Key = Key(0x5000);
const Q: Key = Key(0x6000);
const R: Key = Key(0x7000);

/// One image in a session; the time is the number of the call.
#[derive(Default)]
struct Image {
    ledger: Ledger,
    session: Session,
    time: u64,
}

impl Image {
    fn allocate(&mut self, thread: ThreadId, key: Key, size: u64) -> Option<Block> {
        self.allocate_at(thread, key, size, STACK)
    }

    fn allocate_at(&mut self, thread: ThreadId, key: Key, size: u64, stack: StackId) -> Option<Block> {
        self.time += 1;
        let serial = Serial(self.counts().allocations.0);
        let Image { ledger, session, time } = self;
        let allocated = ledger.allocate(session, Time(*time), thread, key, Bytes(size), stack).unwrap();
        assert_eq!(allocated.serial, serial);
        allocated.displaced
    }

    fn free(&mut self, thread: ThreadId, key: Key) -> Freed {
        self.time += 1;
        self.ledger.free(&mut self.session, thread, key)
    }

    fn finish(&mut self, pending: Pending, key: Key, size: u64) {
        self.time += 1;
        let Image { ledger, session, time } = self;
        let allocated = ledger.finish_realloc(session, Time(*time), pending, key, Bytes(size), STACK).unwrap();
        assert_eq!(allocated.displaced, None);
    }

    fn realloc(&mut self, thread: ThreadId, from: Key, to: Key, size: u64) {
        let pending = self.ledger.begin_realloc(thread, from);
        self.finish(pending, to, size);
    }

    fn counts(&self) -> Counts {
        self.ledger.counts()
    }

    fn live(&self) -> Live {
        self.ledger.live()
    }

    fn temporaries(&self) -> u64 {
        let sites: u64 = self.ledger.sites(&self.session).map(|site| site.temporaries.0).sum();
        assert_eq!(sites, self.counts().temporaries.0);
        sites
    }
}

fn live(bytes: u64, blocks: u64, max: (u64, u64, u64), blocks_max: u64) -> Live {
    Live {
        bytes_live: Bytes(bytes),
        blocks_live: Blocks(blocks),
        bytes_live_max: Bytes(max.0),
        bytes_live_max_time: Time(max.1),
        blocks_at_bytes_max: Blocks(max.2),
        blocks_live_max: Blocks(blocks_max),
    }
}

#[test]
fn an_allocation_and_its_free() {
    let mut image = Image::default();
    assert_eq!(image.allocate(A, P, 100), None);
    let block = Block {
        size: Bytes(100),
        stack: STACK,
        serial: Serial(0),
        inherited: false,
        untracked: false,
        rate: Rate::EXACT,
    };
    assert_eq!(image.ledger.get(P), Some(block));
    assert_eq!(image.live(), live(100, 1, (100, 1, 1), 1));
    assert_eq!(image.session.live(), image.live());
    assert_eq!(image.free(B, P), Freed::Known(block));
    let expected =
        Counts { allocations: Blocks(1), bytes_allocated: Bytes(100), frees: Blocks(1), ..Counts::default() };
    assert_eq!(image.counts(), expected);
    assert_eq!(image.live(), live(0, 0, (100, 1, 1), 1));
    assert_eq!(image.ledger.blocks().count(), 0);
}

#[test]
fn a_zero_size_request_is_an_allocation_of_no_bytes() {
    let mut image = Image::default();
    image.allocate(A, P, 0);
    assert_eq!(image.counts().allocations, Blocks(1));
    assert_eq!(image.counts().bytes_allocated, Bytes(0));
    // Without live bytes the peak has no time.
    assert_eq!(image.live(), live(0, 1, (0, 0, 0), 1));
    assert!(matches!(image.free(A, P), Freed::Known(_)));
    assert_eq!(image.temporaries(), 1);
}

#[test]
fn sizes_are_exact() {
    // 63 bits are kept, which is more than a process has addresses.
    let most = (1 << 63) - 1;
    for asked in [u64::MAX, most, 1 << 62, (1 << 38) + 1, u64::from(u32::MAX) + 2] {
        let mut image = Image::default();
        image.allocate(A, P, asked);
        let size = asked.min(most);
        assert_eq!(image.ledger.get(P).unwrap().size, Bytes(size));
        assert_eq!(image.live().bytes_live_max, Bytes(size));
        image.allocate(A, Q, 5);
        image.free(A, P);
        assert_eq!(image.live().bytes_live, Bytes(5));
    }
}

#[test]
fn failed_calls_are_counted_apart() {
    let mut image = Image::default();
    image.ledger.fail();
    assert_eq!(image.counts(), Counts { failed: Blocks(1), ..Counts::default() });
    // Failed calls are not allocator events.
    image.allocate(A, P, 1);
    image.ledger.fail();
    image.free(A, P);
    assert_eq!(image.temporaries(), 1);
}

#[test]
fn unknown_frees_are_counted_apart() {
    let mut image = Image::default();
    image.allocate(A, P, 1);
    assert_eq!(image.free(A, Q), Freed::Unknown);
    assert_eq!(image.counts().frees_unknown, Blocks(1));
    assert_eq!(image.counts().frees, Blocks(0));
    // These frees released a block, though.
    image.free(A, P);
    assert_eq!(image.temporaries(), 0);
    // A double free.
    assert_eq!(image.free(A, P), Freed::Unknown);
    assert_eq!(image.counts().frees_unknown, Blocks(2));
}

#[test]
fn temporary_is_freed_by_its_thread_next() {
    let mut image = Image::default();
    // Freed at once: temporary.
    image.allocate(A, P, 1);
    image.free(A, P);
    assert_eq!(image.temporaries(), 1);
    // After another allocation of the thread: not. The other block is freed after a free: not
    // either.
    image.allocate(A, P, 1);
    image.allocate(A, Q, 1);
    image.free(A, P);
    image.free(A, Q);
    assert_eq!(image.temporaries(), 1);
    // Last in, first out: only the last one is temporary.
    image.allocate(A, P, 1);
    image.allocate(A, Q, 1);
    image.free(A, Q);
    image.free(A, P);
    assert_eq!(image.temporaries(), 2);
    // Other threads' events in between do not count.
    image.allocate(A, P, 1);
    image.allocate(B, Q, 1);
    image.free(A, P);
    assert_eq!(image.temporaries(), 3);
    // Freed by another thread: not, whatever that thread did before.
    image.free(A, Q);
    image.allocate(A, P, 1);
    image.free(B, P);
    assert_eq!(image.temporaries(), 3);
    // And A's next free is not that of its latest block just because it has the same address.
    image.allocate(A, P, 1);
    image.free(B, P);
    image.allocate(B, P, 1);
    image.free(A, P);
    assert_eq!(image.temporaries(), 3);
}

#[test]
fn temporaries_belong_to_their_site() {
    let mut image = Image::default();
    image.allocate_at(A, P, 1, OTHER_STACK);
    image.free(A, P);
    image.allocate(A, P, 1);
    image.allocate(A, Q, 1);
    image.free(A, P);
    let temporaries = |stack| image.ledger.site(&image.session, stack).map(|site| site.temporaries);
    assert_eq!(temporaries(OTHER_STACK), Some(Blocks(1)));
    assert_eq!(temporaries(STACK), Some(Blocks(0)));
    assert_eq!(temporaries(StackId::ROOT), None);
}

#[test]
fn a_realloc_is_a_free_and_an_allocation() {
    let mut image = Image::default();
    image.allocate_at(A, P, 100, OTHER_STACK);
    image.allocate(A, Q, 1);
    image.realloc(A, P, R, 300);
    let counts = Counts {
        allocations: Blocks(3),
        bytes_allocated: Bytes(401),
        frees: Blocks(1),
        reallocations: Blocks(1),
        ..Counts::default()
    };
    assert_eq!(image.counts(), counts);
    assert_eq!(image.ledger.get(P), None);
    assert_eq!(image.ledger.get(R).map(|block| (block.serial, block.stack)), Some((Serial(2), STACK)));
    // The peak never counts both blocks, in bytes or in number.
    assert_eq!(image.live(), live(301, 2, (301, 3, 2), 2));
    let site = image.ledger.site(&image.session, OTHER_STACK).unwrap();
    assert_eq!((site.frees, site.blocks_live, site.bytes_at_peak), (Blocks(1), Blocks(0), Bytes(0)));
}

#[test]
fn a_realloc_in_place_displaces_nothing() {
    let mut image = Image::default();
    image.allocate(A, P, 100);
    image.realloc(A, P, P, 50);
    assert_eq!(image.counts().frees_missing, Blocks(0));
    assert_eq!(image.live(), live(50, 1, (100, 1, 1), 1));
}

#[test]
fn reallocs_and_temporaries() {
    let mut image = Image::default();
    // Directly after the allocation: that block is temporary. The result, freed next, is too.
    image.allocate(A, P, 1);
    image.realloc(A, P, Q, 2);
    assert_eq!(image.temporaries(), 1);
    image.free(A, Q);
    assert_eq!(image.temporaries(), 2);
    // A chain of reallocs: each result but the last is temporary.
    image.allocate(A, P, 1);
    for size in 2..6 {
        image.realloc(A, P, P, size);
    }
    assert_eq!(image.temporaries(), 6);
    // By another thread: not.
    image.realloc(B, P, Q, 9);
    image.allocate(B, R, 1);
    image.realloc(B, Q, Q, 10);
    assert_eq!(image.temporaries(), 6);
}

#[test]
fn realloc_of_null_is_an_allocation() {
    // The caller reports it as an allocation; there is nothing for a reallocation to begin.
    let mut image = Image::default();
    image.allocate(A, P, 10);
    assert_eq!((image.counts().allocations, image.counts().reallocations), (Blocks(1), Blocks(0)));
}

#[test]
fn realloc_to_nothing_is_a_free() {
    let mut image = Image::default();
    image.allocate(A, P, 10);
    let pending = image.ledger.begin_realloc(A, P);
    image.ledger.finish_as_free(&mut image.session, pending);
    let counts = Counts {
        allocations: Blocks(1),
        bytes_allocated: Bytes(10),
        frees: Blocks(1),
        temporaries: Blocks(1),
        ..Counts::default()
    };
    assert_eq!(image.counts(), counts);
    assert_eq!(image.live().bytes_live, Bytes(0));
    assert_eq!(image.free(A, P), Freed::Unknown);
}

#[test]
fn a_failed_realloc_leaves_its_block() {
    let mut image = Image::default();
    image.allocate(A, P, 10);
    let before = (image.ledger.get(P), image.live());
    let pending = image.ledger.begin_realloc(A, P);
    assert!(matches!(pending.old(), Freed::Known(Block { size: Bytes(10), .. })));
    // Until it returns the block is not at its address, but live.
    assert_eq!((image.ledger.get(P), image.live()), (None, before.1));
    image.ledger.cancel_realloc(&mut image.session, pending);
    image.ledger.fail();
    assert_eq!((image.ledger.get(P), image.live()), before);
    let counts = Counts { allocations: Blocks(1), bytes_allocated: Bytes(10), failed: Blocks(1), ..Counts::default() };
    assert_eq!(image.counts(), counts);
    // A failed reallocation is not an allocator event.
    image.free(A, P);
    assert_eq!(image.temporaries(), 1);
}

#[test]
fn the_old_address_may_be_given_away_before_realloc_returns() {
    let mut image = Image::default();
    image.allocate(A, P, 100);
    let pending = image.ledger.begin_realloc(A, P);
    assert_eq!(image.allocate(B, P, 10), None);
    image.finish(pending, Q, 200);
    assert_eq!(image.counts().frees_missing, Blocks(0));
    assert_eq!(image.live().blocks_live, Blocks(2));
    assert_eq!(image.live().bytes_live, Bytes(210));
    // While it was pending, the old block was live beside B's.
    assert_eq!(image.live(), live(210, 2, (210, 3, 2), 2));
    assert_eq!(image.ledger.get(P).unwrap().size, Bytes(10));
}

#[test]
fn a_cancelled_realloc_does_not_take_an_address_back() {
    let mut image = Image::default();
    image.allocate(A, P, 100);
    let pending = image.ledger.begin_realloc(A, P);
    image.allocate(B, P, 10);
    image.ledger.cancel_realloc(&mut image.session, pending);
    assert_eq!(image.ledger.get(P).unwrap().size, Bytes(10));
    assert_eq!((image.counts().frees, image.counts().frees_missing), (Blocks(1), Blocks(1)));
    assert_eq!(image.live().bytes_live, Bytes(10));
}

#[test]
fn realloc_of_an_unknown_block_releases_it() {
    let mut image = Image::default();
    let pending = image.ledger.begin_realloc(A, P);
    assert_eq!(pending.old(), Freed::Unknown);
    image.finish(pending, Q, 5);
    let counts = Counts {
        allocations: Blocks(1),
        bytes_allocated: Bytes(5),
        reallocations: Blocks(1),
        frees_unknown: Blocks(1),
        ..Counts::default()
    };
    assert_eq!(image.counts(), counts);
    // A failed reallocation released nothing.
    let pending = image.ledger.begin_realloc(A, P);
    image.ledger.cancel_realloc(&mut image.session, pending);
    assert_eq!(image.counts(), counts);
}

#[test]
fn an_address_is_not_live_twice() {
    let mut image = Image::default();
    image.allocate(A, P, 100);
    let displaced = image.allocate_at(A, P, 30, OTHER_STACK);
    assert_eq!(
        displaced,
        Some(Block {
            size: Bytes(100),
            stack: STACK,
            serial: Serial(0),
            inherited: false,
            untracked: false,
            rate: Rate::EXACT
        })
    );
    let counts = Counts {
        allocations: Blocks(2),
        bytes_allocated: Bytes(130),
        frees: Blocks(1),
        frees_missing: Blocks(1),
        ..Counts::default()
    };
    assert_eq!(image.counts(), counts);
    // The old block counts as freed before the allocation.
    assert_eq!(image.live(), live(30, 1, (100, 1, 1), 1));
    // The new block can be temporary.
    image.free(A, P);
    assert_eq!(image.temporaries(), 1);
}

#[test]
fn the_peak_is_the_first_moment_of_its_maximum() {
    let mut image = Image::default();
    image.allocate_at(A, P, 100, STACK); // 1
    image.free(A, P);
    image.allocate_at(A, P, 60, OTHER_STACK); // 3
    image.allocate_at(A, Q, 40, STACK); // 4: 100 again, by other blocks
    assert_eq!(image.live(), live(100, 2, (100, 1, 1), 2));
    let at_peak = |image: &Image, stack| {
        let site = image.ledger.site(&image.session, stack).unwrap();
        assert_eq!(site.bytes_at_peak, site.bytes_at_session_peak);
        assert_eq!(site.blocks_at_peak, site.blocks_at_session_peak);
        (site.bytes_at_peak.0, site.blocks_at_peak.0)
    };
    assert_eq!(at_peak(&image, STACK), (100, 1));
    assert_eq!(at_peak(&image, OTHER_STACK), (0, 0));
    // More blocks, no more bytes: the maxima are independent.
    image.allocate(A, R, 0); // 5
    assert_eq!(image.live(), live(100, 3, (100, 1, 1), 3));
    image.allocate(A, Key(0x8000), 1); // 6
    assert_eq!(image.live(), live(101, 4, (101, 6, 4), 4));
    assert_eq!(at_peak(&image, STACK), (41, 3));
    assert_eq!(at_peak(&image, OTHER_STACK), (60, 1));
    // Later events do not change it.
    image.free(A, P);
    image.allocate_at(A, P, 10, OTHER_STACK);
    assert_eq!(at_peak(&image, OTHER_STACK), (60, 1));
}

#[test]
fn a_fork_inherits() {
    let mut image = Image::default();
    image.allocate(A, P, 100);
    image.allocate_at(A, Q, 20, OTHER_STACK);
    let in_flight = image.ledger.begin_realloc(B, R);
    let session_before = image.session.live();
    let mut child = image.ledger.fork().unwrap();
    image.ledger.cancel_realloc(&mut image.session, in_flight);

    // Nothing is counted yet, nothing is live, nothing happened to the session.
    let inherited = Counts { blocks_inherited: Blocks(2), bytes_inherited: Bytes(120), ..Counts::default() };
    assert_eq!(child.counts(), inherited);
    assert_eq!(child.live(), Live::default());
    assert_eq!(child.sites(&image.session).count(), 0);
    assert_eq!(image.session.live(), session_before);
    assert_eq!(child.blocks().count(), 2);

    // The child frees one, reallocates the other, and allocates where the first was.
    let block = Block {
        size: Bytes(100),
        stack: STACK,
        serial: Serial(0),
        inherited: true,
        untracked: false,
        rate: Rate::EXACT,
    };
    assert_eq!(child.free(&mut image.session, A, P), Freed::Inherited(block));
    assert_eq!(child.counts().bytes_inherited, Bytes(20));
    let pending = child.begin_realloc(A, Q);
    assert!(matches!(pending.old(), Freed::Inherited(_)));
    let session = &mut image.session;
    let allocated = child.finish_realloc(session, Time(9), pending, Q, Bytes(30), STACK).unwrap();
    assert_eq!((allocated.serial, allocated.displaced), (Serial(0), None));
    let counts = Counts {
        allocations: Blocks(1),
        bytes_allocated: Bytes(30),
        reallocations: Blocks(1),
        frees_inherited: Blocks(2),
        ..Counts::default()
    };
    assert_eq!(child.counts(), counts);
    assert_eq!(child.live(), live(30, 1, (30, 9, 1), 1));
    // The parent has what it had; the session has both.
    assert_eq!(image.live().bytes_live, Bytes(120));
    assert_eq!(image.session.live().bytes_live, Bytes(150));

    // A grandchild inherits from both.
    image.allocate(A, R, 7);
    let grandchild = child.fork().unwrap();
    assert_eq!(grandchild.counts().bytes_inherited, Bytes(30));
    let grandchild = image.ledger.fork().unwrap().fork().unwrap();
    assert_eq!(grandchild.counts().bytes_inherited, Bytes(127));
}

#[test]
fn an_inherited_block_is_never_temporary() {
    let mut image = Image::default();
    image.allocate(A, P, 100);
    let mut child = image.ledger.fork().unwrap();
    // The child's first block has the serial that the inherited one has in the parent.
    let _ = child.allocate(&mut image.session, Time(2), A, Q, Bytes(1), STACK).unwrap();
    assert!(matches!(child.free(&mut image.session, A, P), Freed::Inherited(_)));
    assert_eq!(child.counts().temporaries, Blocks(0));
    // A displaced block is still inherited, and missing.
    let mut child = image.ledger.fork().unwrap();
    let displaced = child.allocate(&mut image.session, Time(3), A, P, Bytes(1), STACK).unwrap().displaced;
    assert!(displaced.unwrap().inherited);
    let counts = child.counts();
    assert_eq!((counts.frees, counts.frees_inherited, counts.frees_missing), (Blocks(0), Blocks(1), Blocks(1)));
}

#[test]
fn an_ended_image_leaves_the_session() {
    let mut session = Session::new();
    let (mut first, mut second) = (Ledger::new(), Ledger::new());
    let allocate = |ledger: &mut Ledger, session: &mut Session, time, key, size| {
        let _ = ledger.allocate(session, Time(time), A, key, Bytes(size), STACK).unwrap();
    };
    allocate(&mut first, &mut session, 1, P, 100);
    allocate(&mut second, &mut session, 2, P, 50);
    assert_eq!(session.live(), live(150, 2, (150, 2, 2), 2));
    let share = |ledger: &Ledger, session: &Session| ledger.site(session, STACK).unwrap().bytes_at_session_peak.0;

    first.end(&mut session);
    first.end(&mut session);
    assert_eq!(session.live(), live(50, 1, (150, 2, 2), 2));
    // Its own totals stay: a leak of 100 bytes. So does its share in the session's peak.
    assert_eq!(first.live(), live(100, 1, (100, 1, 1), 1));
    assert_eq!((share(&first, &session), share(&second, &session)), (100, 50));

    // A late event counts in the image only, and changes no share.
    first.free(&mut session, A, P);
    assert_eq!(first.live().bytes_live, Bytes(0));
    assert_eq!(session.live().bytes_live, Bytes(50));
    assert_eq!(share(&first, &session), 100);

    // The image has no part in a new peak of the session.
    allocate(&mut second, &mut session, 3, Q, 101);
    assert_eq!(session.live(), live(151, 2, (151, 3, 2), 2));
    assert_eq!((share(&first, &session), share(&second, &session)), (0, 151));
}

#[test]
fn thread_and_stack_numbers_may_be_anything() {
    let mut image = Image::default();
    image.allocate(ThreadId(100_000), P, 1);
    image.free(ThreadId(100_000), P);
    image.free(ThreadId(u32::MAX), Q);
    image.allocate_at(A, P, 3, StackId::MAX);
    assert_eq!(image.ledger.site(&image.session, StackId::MAX).unwrap().bytes_live, Bytes(3));
    image.allocate_at(A, Q, 4, StackId(u32::MAX));
    assert_eq!(image.ledger.get(Q).unwrap().stack, StackId::ROOT);
    assert_eq!(image.ledger.site(&image.session, StackId::ROOT).unwrap().bytes_live, Bytes(4));
    assert_eq!(image.temporaries(), 1);
}

#[test]
fn errors_read_well() {
    assert_eq!(OutOfMemory.to_string(), "the ledger is out of memory");
}

/// Another recording begins in mid-run: calls and peaks are counted anew, live blocks go on.
#[test]
fn a_restart_counts_anew() {
    let (mut session, mut ledger) = (Session::new(), Ledger::new());
    let thread = ThreadId(0);
    let allocate = |ledger: &mut Ledger, session: &mut Session, key, size, stack| {
        ledger.allocate(session, Time(key), thread, Key(key), Bytes(size), StackId(stack)).unwrap().serial
    };
    allocate(&mut ledger, &mut session, 1, 100, 1);
    allocate(&mut ledger, &mut session, 2, 10, 2);
    allocate(&mut ledger, &mut session, 3, 1000, 3);
    ledger.free(&mut session, thread, Key(3));
    allocate(&mut ledger, &mut session, 4, 1, 1);
    session.restart(Time(50));
    ledger.restart(Time(50));
    assert_eq!(ledger.counts(), Counts::default());
    let live = ledger.live();
    assert_eq!(live, session.live());
    assert_eq!((live.bytes_live, live.bytes_live_max, live.bytes_live_max_time), (Bytes(111), Bytes(111), Time(50)));
    assert_eq!((live.blocks_at_bytes_max, live.blocks_live_max), (Blocks(3), Blocks(3)));
    let held = |ledger: &Ledger, session: &Session| -> Vec<_> {
        let site = |site: heapledger_ledger::Site| {
            (site.stack.0, site.allocations.0, site.bytes_live.0, site.bytes_at_peak.0, site.bytes_at_session_peak.0)
        };
        ledger.sites(session).map(site).collect()
    };
    assert_eq!(held(&ledger, &session), [(1, 0, 101, 101, 101), (2, 0, 10, 10, 10)]);
    // The newest block is freed at once, but it is older than the recording.
    ledger.free(&mut session, thread, Key(4));
    ledger.free(&mut session, thread, Key(2));
    assert_eq!(allocate(&mut ledger, &mut session, 5, 5, 3), Serial(4));
    let counts = ledger.counts();
    assert_eq!((counts.allocations, counts.frees, counts.temporaries), (Blocks(1), Blocks(2), Blocks(0)));
    assert_eq!(held(&ledger, &session), [(1, 0, 100, 101, 101), (2, 0, 0, 10, 10), (3, 1, 5, 0, 0)]);
    allocate(&mut ledger, &mut session, 6, 500, 2);
    assert_eq!(held(&ledger, &session), [(1, 0, 100, 100, 100), (2, 1, 500, 500, 500), (3, 1, 5, 5, 5)]);
}

/// A block always had the site that its stamp gives it: at the peaks that it was part of, too.
#[test]
fn stamped_blocks_are_so_at_the_peaks() {
    /// A block: its image, its site, its size.
    type Known = std::collections::BTreeMap<u64, (usize, StackId, u64)>;
    let mut random = Random::new(1);
    let mut below = |end| random.below(end);
    for _ in 0..if cfg!(miri) { 2 } else { 200 } {
        let (mut session, mut ledgers) = (Session::new(), [Ledger::new(), Ledger::new()]);
        // All blocks ever, the live ones, and those that were live at the peaks of the images and
        // of the session.
        let (mut all, mut now) = (Known::new(), Vec::new());
        let mut peaks: [(u64, Vec<u64>); 3] = Default::default();
        for step in 1..80_u64 {
            match below(4) {
                0 if !now.is_empty() => {
                    let block = now.swap_remove(below(now.len() as u64) as usize);
                    let image = all[&block].0;
                    ledgers[image].free(&mut session, A, Key(block));
                }
                1 | 2 if !now.is_empty() => {
                    let block = now[below(now.len() as u64) as usize];
                    let (image, site, _) = all.get_mut(&block).unwrap();
                    *site = StackId(if below(2) == 0 { StackId::MAX.0 - below(3) as u32 } else { below(3) as u32 + 1 });
                    assert_eq!(ledgers[*image].stamp_block(&session, Key(block), *site), Ok(true));
                }
                _ => {
                    let (image, site, size) = (below(2) as usize, StackId(below(3) as u32 + 1), below(1000));
                    let ledger = &mut ledgers[image];
                    let _ = ledger.allocate(&mut session, Time(step), A, Key(step), Bytes(size), site).unwrap();
                    all.insert(step, (image, site, size));
                    now.push(step);
                }
            }
            for (number, (peak, blocks)) in peaks.iter_mut().enumerate() {
                let own: Vec<u64> = now.iter().copied().filter(|block| number == 2 || all[block].0 == number).collect();
                let bytes = own.iter().map(|block| all[block].2).sum();
                if bytes > *peak {
                    (*peak, *blocks) = (bytes, own);
                }
            }
        }
        for (number, ledger) in ledgers.iter().enumerate() {
            let share = |peak: &[u64], site| {
                let of = peak.iter().map(|block| all[block]).filter(|known| (known.0, known.1) == (number, site));
                of.fold((0, 0), |sum, known| (sum.0 + known.2, sum.1 + 1))
            };
            for site in [1, 2, 3, StackId::MAX.0, StackId::MAX.0 - 1, StackId::MAX.0 - 2].map(StackId) {
                let held = ledger.site(&session, site).map_or([(0, 0); 2], |site| {
                    [
                        (site.bytes_at_peak.0, site.blocks_at_peak.0),
                        (site.bytes_at_session_peak.0, site.blocks_at_session_peak.0),
                    ]
                });
                assert_eq!(held, [share(&peaks[number].1, site), share(&peaks[2].1, site)], "{site:?}");
            }
        }
    }
}
