//! Tests allocations whose stamps are too early, and frees that were not seen.

use super::*;

/// The most by which a stamp is early, in units of stamps.
const EARLY: u64 = 100;

/// Returns a process with this many threads, each with a ring.
fn threads(bench: &mut Bench, count: u32) -> (ImageId, Vec<TestRing>) {
    bench.collector.merge.order.early_max = EARLY;
    let FakeImage { id, own, .. } = bench.image(100, None);
    let mut rings = vec![own];
    rings.extend((1..count).map(|thread| bench.ring(id, false, TID + thread, 1 << 20)));
    for (number, ring) in rings.iter_mut().enumerate() {
        ring.thread(0, TID + number as u32, "worker");
    }
    (id, rings)
}

/// Returns the numbers of missed frees, reordered events, frees of unknown blocks, and late events.
fn figures(finished: &Finished) -> [u64; 4] {
    let counts = finished.footer.counts;
    [counts.frees_missed.0, counts.events_reordered, counts.frees_unknown.0, counts.events_late]
}

#[test]
fn the_free_of_its_address_is_pulled_before_an_allocation() {
    let mut bench = Bench::new();
    let (id, mut rings) = threads(&mut bench, 2);
    let [one, two] = &mut rings[..] else { unreachable!() };
    one.malloc(10, 0x1000, 10, 1);
    // Three allocations that are stamped before the free, through entry points of every form, and
    // the next event of each thread.
    two.malloc(20, 0x1000, 20, 1);
    two.malloc(21, 0x5000, 1, 1);
    one.free(30, 0x1000);
    two.free(40, 0x1000);
    let extended = |address| Extended::Alloc {
        api: Api::PosixMemalign,
        address,
        size: 30,
        stack: StackId(1),
        alignment: 64,
        count: 0,
        usable: 0,
        rate: Rate::EXACT,
    };
    one.malloc(200, 0x2000, 10, 1);
    two.extended(201, &extended(0x2000));
    one.free(202, 0x2000);
    one.malloc(400, 0x3000, 10, 1);
    two.malloc(401, 0x4000, 10, 1);
    two.realloc(402, 0x4000);
    two.realloc_returns(403, 0x3000, 40, 1);
    // The first half of a reallocation also releases an address.
    one.realloc(404, 0x3000);
    one.realloc_returns(405, 0x6000, 50, 1);
    bench.iterate();
    bench.end(id, ImageEndReason::Exit);
    let (finished, bytes) = bench.finish();
    assert_eq!(figures(&finished), [0, 3, 0, 0]);
    let recording = open(&bytes);
    let expected = [
        alloc(0, 10, 1),
        freed(0),
        alloc(1, 20, 1),
        alloc(2, 1, 1),
        freed(1),
        alloc(3, 10, 1),
        freed(3),
        alloc(4, 30, 1),
        alloc(5, 10, 1),
        alloc(6, 10, 1),
        realloc(known(6), 7, 40, 1),
        realloc(known(5), 8, 50, 1),
    ];
    assert_eq!(kinds_of(&recording, id), expected);
    assert!(events_of(&recording, id).is_sorted_by_key(|(event, _)| event.time));
}

/// Tests two allocations of one address that are stamped before both frees: each is matched with
/// its own free.
#[test]
fn the_frees_of_one_address_are_pulled_in_their_order() {
    let mut bench = Bench::new();
    let (id, mut rings) = threads(&mut bench, 3);
    rings[0].malloc(10, 0x1000, 10, 1);
    rings[2].malloc(20, 0x1000, 20, 1);
    rings[1].malloc(21, 0x1000, 30, 1);
    rings[0].free(30, 0x1000);
    rings[2].free(31, 0x1000);
    rings[1].free(32, 0x1000);
    bench.iterate();
    bench.end(id, ImageEndReason::Exit);
    let (finished, bytes) = bench.finish();
    assert_eq!(figures(&finished), [0, 2, 0, 0]);
    let expected = [alloc(0, 10, 1), freed(0), alloc(1, 20, 1), freed(1), alloc(2, 30, 1), freed(2)];
    assert_eq!(kinds_of(&open(&bytes), id), expected);
}

/// Tests that a free that was not seen delays nothing: the next event of the thread is known when
/// another thread frees the address. Neither the free of the new block by its own thread, nor a
/// later one of another thread, is taken for the missing free.
#[test]
fn a_missed_free_delays_nothing() {
    let mut bench = Bench::new();
    let (id, mut rings) = threads(&mut bench, 2);
    let [one, two] = &mut rings[..] else { unreachable!() };
    one.malloc(10, 0x1000, 10, 1);
    two.malloc(20, 0x1000, 20, 1);
    two.malloc(21, 0x2000, 21, 1);
    one.free(22, 0x2000);
    two.free(23, 0x1000);
    two.malloc(24, 0x1000, 24, 1);
    one.free(25, 0x1000);
    bench.iterate();
    bench.end(id, ImageEndReason::Exit);
    let (finished, bytes) = bench.finish();
    assert_eq!(figures(&finished), [1, 0, 0, 0]);
    let expected =
        [alloc(0, 10, 1), freed(0), alloc(1, 20, 1), alloc(2, 21, 1), freed(2), freed(1), alloc(3, 24, 1), freed(3)];
    assert_eq!(kinds_of(&open(&bytes), id), expected);
}

/// Tests a thread that continues with reallocations although the beginning of a later one was
/// pulled before them.
#[test]
fn the_beginning_of_a_reallocation_is_pulled_over_another() {
    let mut bench = Bench::new();
    let (id, mut rings) = threads(&mut bench, 2);
    let [one, two] = &mut rings[..] else { unreachable!() };
    one.malloc(10, 0x1000, 10, 1);
    one.malloc(11, 0x2000, 11, 1);
    two.malloc(20, 0x1000, 20, 1);
    one.realloc(30, 0x2000);
    one.realloc_returns(31, 0x3000, 31, 1);
    one.realloc(40, 0x1000);
    one.realloc_returns(41, 0x4000, 41, 1);
    bench.iterate();
    bench.end(id, ImageEndReason::Exit);
    let (finished, bytes) = bench.finish();
    assert_eq!(figures(&finished), [0, 1, 0, 0]);
    let expected =
        [alloc(0, 10, 1), alloc(1, 11, 1), alloc(2, 20, 1), realloc(known(1), 3, 31, 1), realloc(known(0), 4, 41, 1)];
    assert_eq!(kinds_of(&open(&bytes), id), expected);
    assert_eq!(finished.footer.counts.blocks_live_end.0, 3);
}

/// Tests a free that is not published yet when the allocation is merged.
#[test]
fn the_free_comes_in_a_later_round() {
    let mut bench = Bench::new();
    let (id, mut rings) = threads(&mut bench, 2);
    let [one, two] = &mut rings[..] else { unreachable!() };
    one.malloc(10, 0x1000, 10, 1);
    one.malloc(28, 0x2000, 11, 1);
    one.producer.begin();
    two.malloc(20, 0x1000, 20, 1);
    two.free(35, 0x1000);
    bench.iterate();
    assert_eq!(bench.collector.shared.events, 1);
    assert!(bench.collector.merge.sources.iter().any(|source| source.early.is_some()));
    one.free(30, 0x1000);
    one.producer.end();
    bench.iterate();
    assert_eq!(bench.collector.shared.events, 5);
    bench.end(id, ImageEndReason::Exit);
    let (finished, bytes) = bench.finish();
    assert_eq!(figures(&finished), [0, 1, 0, 0]);
    let expected = [alloc(0, 10, 1), freed(0), alloc(1, 20, 1), alloc(2, 11, 1), freed(1)];
    assert_eq!(kinds_of(&open(&bytes), id), expected);
}

/// Tests that a free that comes too late is taken for the free of the new block; the two cannot be
/// told apart.
#[test]
fn a_free_is_not_pulled_over_any_time() {
    for (late, expected) in [(EARLY, [0, 1, 0, 0]), (EARLY + 1, [1, 0, 0, 0])] {
        let mut bench = Bench::new();
        let (id, mut rings) = threads(&mut bench, 2);
        rings[0].malloc(10, 0x1000, 10, 1);
        rings[1].malloc(20, 0x1000, 20, 1);
        rings[0].free(20 + late, 0x1000);
        bench.iterate();
        bench.end(id, ImageEndReason::Exit);
        let (finished, _) = bench.finish();
        assert_eq!(figures(&finished), expected, "{late}");
    }
}

/// Tests that the image ends, or the ring of the allocation is given up, before it is known whether
/// there is a free.
#[test]
fn what_is_not_known_at_the_end_is_taken() {
    for is_corrupt in [false, true] {
        let mut bench = Bench::new();
        let (id, mut rings) = threads(&mut bench, 2);
        let [one, two] = &mut rings[..] else { unreachable!() };
        one.malloc(10, 0x1000, 10, 1);
        one.malloc(50, 0x2000, 10, 1);
        one.producer.begin();
        two.malloc(20, 0x1000, 20, 1);
        bench.iterate();
        let early = bench.collector.merge.sources.iter_mut().find(|source| source.early.is_some()).unwrap();
        if is_corrupt {
            early.give_up();
            one.free(60, 0x1000);
        }
        one.producer.end();
        bench.iterate();
        bench.end(id, ImageEndReason::Exit);
        let (finished, _) = bench.finish();
        assert!(finished.failure.is_none());
        let counts = finished.footer.counts;
        let taken = u64::from(!is_corrupt);
        assert_eq!((counts.blocks_live_end.0, counts.frees_missed.0), (1 + taken, taken));
    }
}

/// Tests a program that really hands addresses out twice: nothing piles up, and each case is
/// counted.
#[test]
fn addresses_that_are_handed_out_again_and_again() {
    let mut bench = Bench::new();
    let (id, mut rings) = threads(&mut bench, 4);
    let mut random = Random::new(1);
    let (mut allocations, mut addresses) = (0, std::collections::HashSet::new());
    for at in 0..20_000 {
        let address = 0x1000 + 16 * random.below(50);
        rings[random.index(4)].malloc(10 + at, address, 8, 1);
        addresses.insert(address);
        allocations += 1;
        if random.below(1_000) == 0 {
            bench.iterate();
            assert_eq!(bench.collector.merge.sources.iter().map(Source::backlog).sum::<usize>(), 0);
            assert!(bench.collector.merge.sources.iter().all(|source| source.early.is_none()));
        }
    }
    bench.iterate();
    bench.end(id, ImageEndReason::Exit);
    let (finished, bytes) = bench.finish();
    let live = addresses.len() as u64;
    assert_eq!(figures(&finished), [allocations - live, 0, 0, 0]);
    let counts = finished.footer.counts;
    assert_eq!(
        (counts.allocations.0, counts.frees.0, counts.blocks_live_end.0),
        (allocations, allocations - live, live)
    );
    assert!(events_of(&open(&bytes), id).is_sorted_by_key(|(event, _)| event.time));
}

/// Tests one true history in which allocations are stamped too early by up to `EARLY`, or some
/// frees are not seen: the file has each block freed at the right place, and the number of missed
/// frees.
#[test]
fn the_true_history_is_found_again() {
    for seed in 0..100 {
        let mut random = Random::new(seed);
        // If frees are missing, stamps are exact, and the next block of the address stays in its
        // thread for a while: its free by another thread could not be told from one that is late.
        // All other blocks pass from thread to thread at once.
        let (early, missed_of) = if seed % 2 == 0 { (1 + random.below(EARLY), 0) } else { (0, 50) };
        let mut bench = Bench::new();
        let (id, mut rings) = threads(&mut bench, 5);
        let mut last = [0; 5];
        // The address, the size, the thread that allocated it, and the time from which others may
        // free it.
        let mut live: Vec<(u64, u64, usize, u64)> = Vec::new();
        let (mut released, mut dropped) = (Vec::new(), std::collections::HashSet::new());
        let (mut at, mut fresh, mut allocations, mut missed, mut unseen) = (1_000, 0x10_0000, 0, 0, 0);
        let (mut sizes, mut allocated) = (HashMap::new(), HashMap::new());
        for _ in 0..3_000 {
            at += 1 + random.below(3);
            let mut ring = random.index(5);
            if random.below(2) == 0 && !live.is_empty() {
                let (address, size, owner, shared_from) = live.swap_remove(random.index(live.len()));
                if shared_from > at {
                    ring = owner;
                }
                // Frees keep their stamps.
                last[ring] = at;
                if missed_of > 0 && shared_from <= at && random.below(missed_of) == 0 {
                    dropped.insert(address);
                    unseen += 1;
                } else {
                    rings[ring].free(at, address);
                    *sizes.entry(size).or_insert(0_i64) -= 1;
                }
                released.push(address);
            } else {
                let address = released.pop().unwrap_or_else(|| {
                    fresh += 16;
                    fresh
                });
                let is_missed = dropped.remove(&address);
                missed += u64::from(is_missed);
                // The stamps of a thread never go back, and a block lives longer than the stamp of
                // the next one is early.
                let before = allocated.insert(address, at).unwrap_or(0);
                last[ring] = (at - random.below(early + 1)).max(last[ring]).max(before + 1);
                let size = 1 + random.below(500);
                rings[ring].malloc(last[ring], address, size, 1);
                *sizes.entry(size).or_insert(0) += 1;
                allocations += 1;
                live.push((address, size, ring, if is_missed { at + 2 * EARLY } else { 0 }));
            }
        }
        bench.iterate();
        bench.end(id, ImageEndReason::Exit);
        let (finished, bytes) = bench.finish();
        let [frees_missed, reordered, unknown, late] = figures(&finished);
        assert_eq!([frees_missed, unknown, late], [missed, 0, 0], "{seed}");
        assert!(missed_of > 0 || early < 10 || reordered > 0, "{seed}: nothing was out of order");
        assert!(missed_of == 0 || reordered == 0, "{seed}");
        let counts = finished.footer.counts;
        let live_end = (live.len() + dropped.len()) as u64;
        assert_eq!((counts.allocations.0, counts.blocks_live_end.0), (allocations, live_end), "{seed}");
        assert!(missed <= unseen);
        // The sizes show that the right blocks were freed.
        let recording = open(&bytes);
        subtract_live(&mut sizes, &recording, id);
        if missed_of == 0 {
            assert!(sizes.values().all(|&balance| balance == 0), "{seed}");
        }
    }
}

/// Subtracts the numbers of blocks that are live at the end of a recording, by size.
fn subtract_live(sizes: &mut HashMap<u64, i64>, recording: &Recording<'_>, image: ImageId) {
    let mut size_of = HashMap::new();
    for (event, _) in events_of(recording, image) {
        match event.kind {
            EventKind::Alloc { serial, size, .. } => {
                size_of.insert(serial, size.0);
                *sizes.entry(size.0).or_insert(0) -= 1;
            }
            EventKind::Free { block: FreedBlock::Known(serial) } => *sizes.entry(size_of[&serial]).or_insert(0) += 1,
            _ => {}
        }
    }
}
