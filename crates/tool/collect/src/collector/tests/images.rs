//! Tests how images and threads begin, inherit, and end.

use super::*;

#[test]
fn children_inherit_what_was_live_at_the_fork() {
    let mut bench = Bench::new();
    let FakeImage { id: parent, own: mut ring, .. } = bench.image(100, None);
    ring.thread(0, TID, "parent");
    ring.extended(
        1,
        &Extended::Module {
            start: 0x1000,
            end: 0x2000,
            bias: 0x1000,
            epoch: 0,
            build_id: Packed { words: &[], length: 0 },
            path: Packed { words: &[], length: 0 },
        },
    );
    ring.node(1, 0, NodeKind::Epoch, 0);
    ring.node(2, 1, NodeKind::Frame, 0x1010);
    ring.malloc(10, 0x1000, 10, 2);
    ring.malloc(11, 0x2000, 20, 2);
    ring.extended(12, &Extended::Fork { sequence: 1 });
    // From here on, the parent's events do not concern the child.
    ring.free(13, 0x1000);
    ring.malloc(14, 0x3000, 40, 2);
    let fork = NewFork { parent, sequence: 1, node_base: 3 };
    let FakeImage { id: child, own: mut child_ring, .. } = bench.image(101, Some(fork));
    child_ring.thread(20, TID + 1, "child");
    child_ring.node(3, 2, NodeKind::Frame, 0x1020);
    child_ring.free(21, 0x1000);
    child_ring.malloc(22, 0x1000, 80, 3);
    child_ring.free(23, 0x3000);
    bench.iterate();
    // A fork that was not announced: the child inherits what the parent has now.
    let FakeImage { id: raw, own: mut raw_ring, .. } = bench.image(102, Some(NewFork { sequence: 1, ..fork }));
    raw_ring.thread(30, TID + 2, "raw");
    raw_ring.free(31, 0x3000);
    bench.iterate();
    // A child that ends before it does anything.
    ring.extended(40, &Extended::Fork { sequence: 2 });
    let FakeImage { id: idle, own: mut idle_ring, .. } = bench.image(103, Some(NewFork { sequence: 2, ..fork }));
    idle_ring.thread(41, TID + 3, "idle");
    bench.iterate();
    for (image, reason) in [(idle, ImageEndReason::Exec), (child, ImageEndReason::Exit), (raw, ImageEndReason::Exit)] {
        bench.end(image, reason);
    }
    bench.iterate();
    ring.free(50, 0x3000);
    bench.end(parent, ImageEndReason::Exit);
    let (finished, bytes) = bench.finish();
    let recording = open(&bytes);
    let inherited = |image| {
        let start = recording.image(image).unwrap();
        (start.inherited_blocks.0, start.inherited_bytes.0, start.inherited_exact)
    };
    assert_eq!(inherited(parent), (0, 0, true));
    assert_eq!(inherited(child), (2, 30, true));
    assert_eq!(inherited(raw), (2, 60, false));
    assert_eq!(inherited(idle), (2, 60, true));
    let expected = [
        EventKind::Free { block: FreedBlock::Inherited },
        alloc(0, 80, 3),
        EventKind::Free { block: FreedBlock::Unknown },
    ];
    assert_eq!(kinds_of(&recording, child), expected);
    assert_eq!(events_of(&recording, child)[0].1.freed_size, Some(Bytes(10)));
    assert_eq!(kinds_of(&recording, raw), [EventKind::Free { block: FreedBlock::Inherited }]);
    let counts = recording.image_counts(child).unwrap();
    assert_eq!((counts.frees_inherited.0, counts.frees_unknown.0, counts.bytes_live_end.0), (1, 1, 80));
    assert_eq!((counts.blocks_inherited_live_end.0, counts.bytes_inherited_live_end.0), (1, 20));
    let tree = recording.stack_tree(child, &mut NodeCache::default());
    let frames: Vec<_> = tree.frames(StackId(3)).map(|node| (node.module.0, node.offset)).collect();
    assert_eq!(frames, [(1, 0x20), (1, 0x10)]);
    // At the peak the parent had two blocks, and the child had one. Their sites have them, although
    // the child ended before.
    assert_eq!(finished.footer.counts.bytes_live_max.0, 20 + 40 + 80);
    let at_peak =
        |image| -> u64 { recording.sites(image).rows.iter().map(|site| site.live_at_session_peak.bytes.0).sum() };
    assert_eq!((at_peak(parent), at_peak(child), at_peak(raw)), (60, 80, 0));
    assert_eq!(finished.processes.len(), 4);
}

/// Tests three images, one after the other, two of them at the same time for a while: the collector
/// may hear of all in one iteration, or of each in its own.
#[test]
fn a_later_peak_takes_the_shares_of_those_that_have_gone() {
    for is_at_once in [true, false] {
        let mut bench = Bench::new();
        let images: Vec<FakeImage> = (0..3).map(|number| bench.image(100 + number, None)).collect();
        let ids: Vec<ImageId> = images.iter().map(|image| image.id).collect();
        for (mut image, [at, end, size]) in images.into_iter().zip([[10, 19, 1_000], [20, 40, 500], [30, 50, 5_000]]) {
            image.own.malloc(at, 0x1000, size, 1);
            bench.end_at(end, image.id);
            if !is_at_once {
                bench.iterate();
            }
        }
        bench.iterate();
        let (finished, bytes) = bench.finish();
        let recording = open(&bytes);
        let shares: Vec<u64> = ids.iter().map(|&id| recording.sites(id).rows[0].live_at_session_peak.bytes.0).collect();
        let peak = finished.footer.counts.bytes_live_max.0;
        assert_eq!((shares, peak), if is_at_once { (vec![0, 500, 5_000], 5_500) } else { (vec![0, 0, 5_000], 5_000) });
    }
}

#[test]
fn exec_ends_one_image_and_begins_the_next_of_the_same_process() {
    let mut bench = Bench::new();
    let FakeImage { id: first, mut own, .. } = bench.image(100, None);
    own.malloc(10, 0x1000, 10, 1);
    // Both at once, as the broker reports it: the old rings still have events.
    bench.end(first, ImageEndReason::Exec);
    let FakeImage { id: second, own: mut next, .. } = bench.image(100, None);
    next.free(30, 0x1000);
    next.malloc(31, 0x1000, 20, 1);
    bench.iterate();
    bench.iterate();
    assert_eq!(bench.collector.running(), 1);
    bench.end(second, ImageEndReason::Exit);
    bench.collector.inbox.post([Message::Exit { image: second, exit: Some(ExitStatus::Signal(9)) }]);
    let (finished, bytes) = bench.finish();
    let recording = open(&bytes);
    assert_eq!(recording.image_end(first).unwrap().reason, ImageEndReason::Exec);
    assert_eq!(recording.image_end(second).unwrap().exit, Some(ExitStatus::Signal(9)));
    assert_eq!(recording.image(second).unwrap().how, ImageOrigin::Exec);
    assert_eq!(recording.image_counts(second).unwrap().frees_unknown.0, 1, "the old image's blocks are gone");
    let [process] = finished.processes.as_slice() else { panic!("one process") };
    assert_eq!(process.images.len(), 2);
    assert!(!process.running);
    // The blocks that were live at the exec are gone.
    let counts = finished.footer.counts;
    assert_eq!((counts.allocations.0, counts.bytes_live_end.0), (2, 20));
}

#[test]
fn who_cannot_take_its_rings_comes_again() {
    for declines in [0, 3] {
        let mut bench = Bench::new();
        // There is no room: it tries again, which looks like an exec. The broker reports those that
        // decline.
        for round in 0..3 {
            let FakeImage { id, .. } = bench.image(100, None);
            if round < declines {
                bench.collector.inbox.post([Message::Refused]);
            }
            bench.iterate();
            bench.end(id, ImageEndReason::Exec);
        }
        let FakeImage { id, mut own, .. } = bench.image(100, None);
        own.thread(1, TID, "at last");
        own.malloc(2, 0x1000, 10, 1);
        // This image is killed before it has written anything, so nothing of it is missing.
        let FakeImage { id: never, .. } = bench.image(101, None);
        bench.iterate();
        bench.end(never, ImageEndReason::Exit);
        bench.end(id, ImageEndReason::Exit);
        let (finished, bytes) = bench.finish();
        let recording = open(&bytes);
        let [image] = recording.images() else { panic!("one image") };
        assert_eq!((image.image, image.how, image.parent_image), (id, ImageOrigin::Launched, None));
        let [process] = finished.processes.as_slice() else { panic!("one process") };
        assert_eq!((process.pid, process.images.len()), (100, 1));
        assert_eq!((recording.complete(), finished.footer.complete), (declines == 0, declines == 0));
    }
}

#[test]
fn a_ring_passes_from_thread_to_thread() {
    let mut bench = Bench::new();
    let FakeImage { id, mut own, mut common } = bench.image(100, None);
    // Before the first thread has a ring, it uses the common one.
    common.extended(1, &Extended::OnBehalf { thread: TID });
    common.extended(
        2,
        &Extended::Alloc {
            api: Api::Malloc,
            address: 0x1000,
            size: 1,
            stack: StackId::ROOT,
            alignment: 0,
            count: 0,
            usable: 0,
            rate: Rate::EXACT,
        },
    );
    own.thread(3, TID, "first");
    own.malloc(4, 0x2000, 1, 1);
    own.extended(5, &Extended::ThreadName { name: *b"renamed\0\0\0\0\0\0\0\0\0" });
    own.extended(6, &Extended::ThreadEnd);
    own.free(7, 0x2000);
    for number in 0..3 {
        // The kernel reuses the thread id.
        own.thread(10 + number * 10, TID + 1, "later");
        own.malloc(11 + number * 10, 0x3000 + number * 0x1000, 1, 1);
    }
    bench.iterate();
    bench.end(id, ImageEndReason::Exit);
    let (finished, bytes) = bench.finish();
    let recording = open(&bytes);
    let threads = recording.threads(id);
    let names: Vec<_> = threads.iter().map(|thread| (thread.tid, String::from_utf8_lossy(&thread.name))).collect();
    let later = || (TID + 1, "later".into());
    assert_eq!(names, [(TID, "renamed".into()), later(), later(), later()]);
    let ended: Vec<_> = threads.iter().map(|thread| thread.end.is_some()).collect();
    assert_eq!(ended, [true, true, true, false]);
    let who: Vec<u32> = events_of(&recording, id).iter().map(|(event, _)| event.thread.0).collect();
    assert_eq!(who, [0, 0, 0, 1, 2, 3]);
    assert_eq!(finished.footer.counts.threads, 4);
}

#[test]
fn descendants_that_go_on_are_let_go_of() {
    let mut bench = Bench::new();
    let FakeImage { id, mut own, common } = bench.image(100, None);
    own.malloc(1, 0x1000, 10, 1);
    // The producer is even in the middle of an event.
    common.producer.begin();
    own.producer.begin();
    bench.iterate();
    let (finished, bytes) = bench.finish();
    let recording = open(&bytes);
    assert_eq!(recording.image_end(id).unwrap().reason, ImageEndReason::Detached);
    assert_eq!(kinds_of(&recording, id), [alloc(0, 10, 1)]);
    assert!(finished.processes[0].running);
    // A producer that writes to the ring of an ended session is not kept waiting.
    common.producer.ring().add_measured(1);
}

/// After an exec of a program that is not recorded, nothing says that the process has another one.
#[test]
fn the_memory_of_another_program_is_not_the_images() {
    let pid = std::process::id();
    for (identity, is_own) in [(crate::process::image_identity(pid), true), (Some(1), false)] {
        let mut bench = Bench::new();
        bench.collector.shared.keeps_mappings = true;
        let FakeImage { id, own: mut ring, .. } = bench.image(pid, None);
        ring.thread(0, TID, "main");
        ring.malloc(1, 0x1000, 10, 0);
        bench.iterate();
        bench.collector.images.slots[0].identity = identity;
        let (done, _requester) = std::sync::mpsc::sync_channel(1);
        bench.collector.inbox.post([Message::Resident { pid, stamp: 0, done }]);
        bench.iterate();
        bench.collector.keep_up();
        let (_, bytes) = bench.finish();
        let recording = open(&bytes);
        assert_eq!(recording.resident_snapshots(id).rows.len(), usize::from(is_own));
        assert_eq!(recording.mapping_events(id).next().is_some(), is_own);
    }
}
