//! Tests the calls of one process: allocations, reallocations, frees, pools.

use super::*;

#[test]
fn one_thread_from_start_to_end() {
    let mut bench = Bench::new();
    let FakeImage { id, mut own, .. } = bench.image(100, None);
    write_one_of_each(&mut own);
    bench.iterate();
    bench.end(id, ImageEndReason::Exit);
    bench.collector.inbox.post([Message::Exit { image: id, exit: Some(ExitStatus::Code(3)) }]);
    let (finished, bytes) = bench.finish();
    let recording = open(&bytes);
    assert!(recording.complete());

    let events = events_of(&recording, id);
    let kinds: Vec<_> = events.iter().map(|(event, _)| event.kind).collect();
    let unknown = EventKind::Free { block: FreedBlock::Unknown };
    let failed = EventKind::Failed { size: Bytes(u64::MAX), stack: StackId(2) };
    let expected =
        [alloc(0, 100, 3), alloc(1, 50, 2), freed(0), alloc(2, 21, 4), alloc(3, 8, 2), freed(3), failed, unknown];
    assert_eq!(kinds, expected);
    assert_eq!(events[3].1.count, Some(3));
    assert_eq!((events[4].1.alignment, events[4].1.usable), (Some(64), Some(Bytes(24))));
    assert_eq!(events[4].0.call.api(), Some(Api::PosixMemalign));
    assert_eq!(events[5].1.declared_size, Some(Bytes(9)));

    let counts = recording.image_counts(id).unwrap();
    assert_eq!((counts.allocations.0, counts.frees.0, counts.failed.0, counts.frees_unknown.0), (4, 2, 1, 1));
    assert_eq!((counts.bytes_live_max.0, counts.bytes_live_end.0, counts.blocks_live_end.0), (150, 71, 2));
    // The first block was followed by another allocation before its free; the last one was not.
    assert_eq!((counts.temporary_allocations.0, counts.threads, counts.events_lost, counts.events_late), (1, 1, 0, 0));
    assert_eq!(counts, &finished.footer.counts);
    assert_eq!(recording.image_end(id).unwrap().exit, Some(ExitStatus::Code(3)));
    assert_eq!(recording.image(id).unwrap().how, ImageOrigin::Launched);

    let tree = recording.stack_tree(id, &mut NodeCache::default());
    let stack: Vec<_> = tree.frames(StackId(4)).map(|node| (node.module.0, node.offset)).collect();
    assert_eq!(stack, [(0, 0xffff_0000), (2, 0x10), (1, 0x234)]);
    let modules: Vec<_> = recording.modules().iter().map(|module| module.path.as_slice()).collect();
    assert_eq!(modules, [b"/bin/test".as_slice(), LIBC]);
    assert_eq!(recording.modules()[0].build_id, [1, 2, 3, 4, 5]);
    assert_eq!(recording.mappings(id).len(), 2);
    let [ThreadRecord { tid: TID, name, .. }] = recording.threads(id) else { panic!("one thread") };
    assert_eq!(name, b"main");
    let annotations: Vec<_> = recording.annotations(id).map(Result::unwrap).collect();
    assert_eq!(annotations.len(), 1);
    assert_eq!(annotations[0].payload, [0x68, 0x69, 0, 0, 0, 0, 0, 0]);

    let at_peak: u64 = recording.sites(id).rows.iter().map(|site| site.live_at_image_peak.bytes.0).sum();
    assert_eq!(at_peak, 150);
    assert_eq!(recording.timeline().rows.iter().map(|sample| sample.live.bytes.0).max(), Some(150));
    assert_eq!(finished.processes[0].exit, Some(ExitStatus::Code(3)));
    assert_eq!(finished.processes[0].images[0].counts, *counts);
}

const LIBC: &[u8] = b"/lib/libc.so.6";

/// Writes events of many kinds.
fn write_one_of_each(own: &mut TestRing) {
    own.thread(1, TID, "main");
    let (mut build, mut words) = ([0; 4], [0; 4]);
    event::pack(&[1, 2, 3, 4, 5], &mut build).unwrap();
    event::pack(LIBC, &mut words).unwrap();
    let packed = |words, length| Packed { words, length };
    for (start, path) in [(0x1000, packed(&[][..], 0)), (0x8000, packed(&words[..2], LIBC.len()))] {
        let build_id = packed(&build[..1], 5);
        own.extended(2, &Extended::Module { start, end: start + 0x1000, bias: start, epoch: 1, build_id, path });
    }
    own.node(1, 0, NodeKind::Epoch, 1);
    own.node(2, 1, NodeKind::Frame, 0x1234);
    own.node(3, 2, NodeKind::Frame, 0x8010);
    own.malloc(3, 0x10000, 100, 3);
    own.malloc(4, 0x20000, 50, 2);
    own.free(5, 0x10000);
    own.node(4, 3, NodeKind::Frame, 0xffff_0000);
    let step = own.step(6);
    own.put(&event::calloc(step, 0x30000, 3, 7, StackId(4)));
    own.extended(
        7,
        &Extended::Alloc {
            api: Api::PosixMemalign,
            address: 0x40001,
            size: 8,
            stack: StackId(2),
            alignment: 64,
            count: 0,
            usable: 24,
            rate: Rate::EXACT,
        },
    );
    own.extended(8, &Extended::Free { api: Api::FreeSized, address: 0x40001, size: 9, alignment: 0 });
    own.extended(9, &Extended::Failed { api: Api::Malloc, size: u64::MAX, stack: StackId(2), alignment: 0, count: 0 });
    own.free(10, 0xdead0);
    own.extended(11, &Extended::Annotation { code: event::code::MARKER, payload: &[0x6968] });
}

#[test]
fn reallocations_are_put_together() {
    let mut bench = Bench::new();
    let FakeImage { id, mut own, mut common } = bench.image(100, None);
    let mut other = bench.ring(id, false, TID + 1, 64 << 10);
    own.thread(0, TID, "one");
    other.thread(1, TID + 1, "two");
    let (a, b, c) = (0x1000, 0x2000, 0x3000);
    own.malloc(10, a, 10, 1);
    // While the first thread's block moves to `b`, the second is given `a`.
    own.realloc(11, a);
    other.malloc(12, a, 20, 2);
    own.realloc_returns(13, b, 30, 3);
    // The reallocation fails, so the block stays.
    own.realloc(14, b);
    let failed = |outcome| Extended::ReallocEnd {
        rate: Rate::EXACT,
        api: Api::Realloc,
        outcome,
        address: 0,
        size: 1 << 60,
        stack: StackId(4),
        count: 0,
        usable: 0,
    };
    own.extended(15, &failed(ReallocOutcome::Failed));
    // A reallocation of the null pointer.
    own.realloc_returns(16, c, 40, 5);
    // A reallocation to size 0.
    own.realloc(17, c);
    own.extended(18, &failed(ReallocOutcome::Freed));
    // A reallocation of an unknown block, through the common ring, for a third thread.
    common.extended(19, &Extended::OnBehalf { thread: TID + 2 });
    common.extended(20, &Extended::ReallocBegin { api: Api::Reallocarray, address: 0xbad });
    common.extended(21, &Extended::OnBehalf { thread: TID + 3 });
    common.extended(22, &Extended::Free { api: Api::Free, address: a, size: 0, alignment: 0 });
    common.extended(23, &Extended::OnBehalf { thread: TID + 2 });
    common.extended(
        24,
        &Extended::ReallocEnd {
            rate: Rate::EXACT,
            api: Api::Reallocarray,
            outcome: ReallocOutcome::Returned,
            address: 0x5001,
            size: 60,
            stack: StackId::ROOT,
            count: 6,
            usable: 0,
        },
    );
    // The thread ends before the call returns, so the block stays.
    own.realloc(25, b);
    own.extended(26, &Extended::ThreadEnd);
    // Here the process ends before the call returns.
    other.malloc(27, a, 70, 6);
    other.realloc(28, a);
    bench.iterate();
    bench.end(id, ImageEndReason::Exit);
    let (finished, bytes) = bench.finish();
    let recording = open(&bytes);
    let expected = [
        alloc(0, 10, 1),
        alloc(1, 20, 2),
        realloc(known(0), 2, 30, 3),
        EventKind::Failed { size: Bytes(1 << 60), stack: StackId(4) },
        realloc(FreedBlock::None, 3, 40, 5),
        freed(3),
        freed(1),
        realloc(FreedBlock::Unknown, 4, 60, 0),
        alloc(5, 70, 6),
    ];
    let kinds = kinds_of(&recording, id);
    // A reallocation of the null pointer in the short form is recorded as `realloc` without an old
    // block.
    assert_eq!(kinds, expected);
    let counts = finished.footer.counts;
    assert_eq!((counts.allocations.0, counts.reallocations.0, counts.frees.0, counts.failed.0), (6, 2, 3, 1));
    assert_eq!((counts.bytes_live_end.0, counts.blocks_live_end.0), (30 + 60 + 70, 3));
    assert_eq!((counts.frees_unknown.0, counts.events_late, counts.threads), (1, 0, 4));
}

#[test]
fn pools_stand_for_the_memory_they_have() {
    let mut bench = Bench::new();
    let FakeImage { id, mut own, .. } = bench.image(100, None);
    let key = |address: u64| 3 << 47 | address;
    let free = |api, address| Extended::Free { api, address, size: 0, alignment: 0 };
    let pool_alloc = |address, size| {
        let (api, stack) = (Api::PoolAlloc, StackId(1));
        Extended::Alloc {
            api,
            address: key(address),
            size,
            stack,
            alignment: 0,
            count: 0,
            usable: 0,
            rate: Rate::EXACT,
        }
    };
    own.thread(0, TID, "main");
    own.malloc(1, 0x1000, 4096, 1);
    own.extended(2, &free(Api::PoolBack, 0x1000));
    own.extended(3, &pool_alloc(0x1000, 10));
    own.extended(4, &pool_alloc(0x1010, 20));
    own.extended(5, &pool_alloc(0x1030, 30));
    own.extended(6, &free(Api::PoolFree, key(0x1010)));
    own.extended(7, &free(Api::PoolReset, key(0)));
    own.free(8, 0x1000);
    bench.iterate();
    bench.end(id, ImageEndReason::Exit);
    let (finished, bytes) = bench.finish();
    let counts = finished.footer.counts;
    assert_eq!((counts.allocations.0, counts.frees.0, counts.frees_unknown.0), (4, 4, 0));
    assert_eq!((counts.bytes_live_max.0, counts.bytes_live_end.0, counts.temporary_allocations.0), (4096, 0, 0));
    let recording = open(&bytes);
    let events = events_of(&recording, id);
    let calls: Vec<_> = events.iter().map(|(event, _)| (event.call.api().unwrap(), event.kind)).collect();
    let expected = [
        (Api::Malloc, alloc(0, 4096, 1)),
        (Api::PoolBack, freed(0)),
        (Api::PoolAlloc, alloc(1, 10, 1)),
        (Api::PoolAlloc, alloc(2, 20, 1)),
        (Api::PoolAlloc, alloc(3, 30, 1)),
        (Api::PoolFree, freed(2)),
        (Api::PoolReset, freed(3)),
        (Api::PoolReset, freed(1)),
    ];
    assert_eq!(calls, expected);
}

#[test]
fn an_address_is_live_only_once() {
    let mut bench = Bench::new();
    let FakeImage { id, mut own, .. } = bench.image(100, None);
    // The free of the first block was lost: it was in a signal handler, while the common ring was
    // locked.
    own.malloc(1, 0x1000, 10, 1);
    own.malloc(2, 0x1000, 20, 2);
    own.malloc(3, 0x2000, 30, 2);
    own.realloc(4, 0x2000);
    own.realloc_returns(5, 0x1000, 40, 2);
    bench.iterate();
    bench.end(id, ImageEndReason::Exit);
    let (finished, bytes) = bench.finish();
    let recording = open(&bytes);
    let expected = [alloc(0, 10, 1), freed(0), alloc(1, 20, 2), alloc(2, 30, 2), freed(1), realloc(known(2), 3, 40, 2)];
    assert_eq!(kinds_of(&recording, id), expected);
    let counts = finished.footer.counts;
    assert_eq!((counts.bytes_live_end.0, counts.frees.0, counts.reallocations.0), (40, 3, 1));
    assert_eq!((counts.frees_missed.0, counts.frees_unknown.0), (2, 0));
}
