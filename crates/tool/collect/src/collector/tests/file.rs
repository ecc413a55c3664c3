//! Tests what the file has before its end: a recorder that dies, and checkpoints.

use super::*;

#[test]
fn a_collector_that_dies_leaves_a_readable_file() {
    let mut bench = Bench::new();
    let FakeImage { id, mut own, .. } = bench.image(100, None);
    own.thread(0, TID, "main");
    for number in 0..1_000 {
        own.malloc(1 + number, 0x1000 + number * 16, 10, 1);
    }
    bench.iterate();
    // Flushes as if a second had passed.
    bench.collector.merge.order.clock = Clock::new(Reading::now(), Reading::now());
    let now = bench.collector.now();
    let Stage::Running(image) = &mut bench.collector.images.slots[0].stage else { panic!() };
    image.flush(&mut bench.collector.shared, Time(now.0 + 1_000_000_000), &ExternalCounters::default());
    bench.collector.shared.flush_records();
    own.malloc(2_000, 0x9000_0000, 10, 1);
    bench.iterate();
    let Bench { collector, file, _directory, .. } = bench;
    // The file gets what the writer has received, and no footer.
    let Collector { shared: Shared { writer, .. }, .. } = collector;
    writer.end().unwrap();
    let bytes = std::fs::read(&file).unwrap();
    let recording = Recording::open(&bytes).unwrap();
    assert!(!recording.complete());
    assert!(recording.footer().is_none());
    assert_eq!(kinds_of(&recording, id).len(), 1_000);
    assert_eq!(recording.image_counts(id).unwrap().allocations.0, 1_000);
    assert_eq!(recording.threads(id)[0].name, b"main");
}

#[test]
fn checkpoints_are_written_on_the_way() {
    let mut bench = Bench::new();
    let FakeImage { id, mut own, .. } = bench.image(100, None);
    let mut at = 0;
    for number in 0..600_000_u64 {
        at += 1;
        own.malloc(at, 0x1000, 8, 1 + number as u32 % 8);
        at += 1;
        if number % 1_000 != 0 {
            own.free(at, 0x1000);
        } else {
            own.realloc(at, 0x1000);
            own.realloc_returns(at, 0x10_0000 + number * 16, 8, 1);
        }
        if number % 1_000 == 0 {
            bench.iterate();
        }
    }
    bench.iterate();
    bench.end(id, ImageEndReason::Exit);
    let (finished, bytes) = bench.finish();
    let recording = open(&bytes);
    assert_eq!(finished.footer.counts.blocks_live_end.0, 600);
    let checkpoints = recording.checkpoints(id);
    assert_eq!(checkpoints.len(), 1);
    let [checkpoint] = checkpoints.as_slice() else { panic!() };
    let mut blocks = 0;
    checkpoint.for_each_part(|part| blocks += part.len()).unwrap();
    assert_eq!((blocks as u64, checkpoint.len() as u64), (checkpoint.counts().blocks_live_end.0, blocks as u64));
    // A replay from the checkpoint ends with the totals of the recording.
    let mut buffer = EventsBuffer::default();
    let mut live = blocks as i64;
    for chunk in recording.event_chunks(id).filter(|chunk| {
        let head = chunk.head();
        head.serial_first.0 + u64::from(head.serials) > checkpoint.next_serial().0
    }) {
        for event in chunk.decode(&mut buffer).unwrap().as_slice() {
            live += match event.kind {
                EventKind::Alloc { .. } => 1,
                EventKind::Free { .. } => -1,
                EventKind::Realloc { .. } | EventKind::Failed { .. } | EventKind::Reattributed { .. } => 0,
            };
        }
    }
    assert_eq!(live, 600);
}

#[test]
fn blocks_of_pools_have_their_requested_sizes_in_checkpoints() {
    for usable in [0, 40] {
        let mut bench = Bench::new();
        let FakeImage { id, mut own, .. } = bench.image(100, None);
        let mut alloc = |time, api, address| {
            let usable = if api == Api::Malloc { usable } else { 0 };
            let (size, stack, rate) = (33, StackId(1), Rate::EXACT);
            let event = Extended::Alloc { api, address, size, stack, alignment: 0, count: 0, usable, rate };
            own.extended(time, &event);
        };
        alloc(1, Api::Malloc, 0x1000);
        alloc(2, Api::PoolAlloc, 3 << 47 | 0x1000);
        alloc(3, Api::Malloc, 0x2000);
        bench.iterate();
        let Stage::Running(image) = &mut bench.collector.images.slots[0].stage else { panic!() };
        image.flush(&mut bench.collector.shared, Time(u64::MAX), &ExternalCounters::default());
        image.write_checkpoint(&mut bench.collector.shared, Time(4));
        bench.end(id, ImageEndReason::Exit);
        let (_, bytes) = bench.finish();
        let recording = open(&bytes);
        let checkpoints = recording.checkpoints(id);
        let [checkpoint] = checkpoints.as_slice() else { panic!() };
        let mut sizes = Vec::new();
        checkpoint.for_each_part(|part| sizes.extend(part.iter().map(|block| block.usable))).unwrap();
        let asked = (usable > 0).then_some(Bytes(usable));
        assert_eq!(sizes, [asked, Some(Bytes(33)), asked]);
    }
}
