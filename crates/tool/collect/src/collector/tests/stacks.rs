//! Tests the stacks of blocks: contexts, heaps, stamps, and stacks that blocks get later.

use super::*;

/// Tests two threads that name the same scopes, a child that inherits them, a file that begins
/// later, and a recording of totals alone.
#[test]
fn contexts_and_heaps_have_their_texts() {
    for record in [
        SessionRecord::default(),
        SessionRecord { segment: 1, ..SessionRecord::default() },
        SessionRecord { totals_only: true, ..SessionRecord::default() },
    ] {
        let (is_rotated, totals_only) = (record.segment > 0, record.totals_only);
        let mut bench = Bench::of(record);
        let (parent, mut ring, child) = name_contexts(&mut bench);
        bench.iterate();
        let next = bench.file.with_extension("next");
        let rotated = is_rotated.then(|| {
            let file = std::fs::File::options().read(true).write(true).create_new(true).open(&next).unwrap();
            bench.collector.rotate(file);
            bench.file.clone()
        });
        ring.malloc(60_000, 0x7000, 70, 6);
        bench.iterate();
        for image in [parent, child] {
            bench.end(image, ImageEndReason::Exit);
        }
        bench.iterate();
        bench.collector.end_session();
        let end = SessionEnd { exit: None, program_cpu_ns: None, program_wall_ns: 2, collector_cpu_ns: 3 };
        bench.collector.finish(&end);
        let files = if let Some(first) = rotated { vec![first, next] } else { vec![bench.file] };
        for file in files {
            let bytes = std::fs::read(file).unwrap();
            let recording = open(&bytes);
            let texts: Vec<_> = recording.texts().iter().map(|text| (&text.bytes[..], &text.category[..])).collect();
            let expected: [(&[u8], &[u8]); 4] =
                [(b"request", b"net"), (b"route=/", b""), (b"arena", b""), (b"route=/other", b"")];
            assert_eq!(texts, expected, "the category is no text of a node");
            let expect = |image, stack, path: &[&str], heap: Option<&str>| {
                let path = path.iter().map(|text| text.to_string()).collect::<Vec<_>>();
                assert_eq!(said(&recording, image, stack), (path, heap.map(str::to_owned)), "{image:?} {stack}");
            };
            expect(parent, 5, &["route=/", "task request"], None);
            expect(parent, 6, &["route=/", "task request"], Some("arena"));
            expect(parent, 8, &["task request"], None);
            expect(parent, 10, &["route=/other", "task request"], None);
            expect(child, 5, &["route=/", "task request"], None);
            expect(child, 14, &["arena", "task request"], None);
            let tree = recording.stack_tree(parent, &mut NodeCache::default());
            assert_eq!(tree.get(StackId(11)).unwrap().text(), Some(heapledger_recording::TextId::UNKNOWN));
            assert_eq!(recording.event_chunks(parent).count() == 0, totals_only);
            let held: u64 = recording.sites(parent).rows.iter().map(|site| site.live_end.bytes.0).sum();
            assert!(held >= 100, "{held}");
        }
    }
}

/// Writes the events of a parent and a child that name scopes, values and heaps. Returns both, and
/// a ring of the parent.
fn name_contexts(bench: &mut Bench) -> (ImageId, TestRing, ImageId) {
    let FakeImage { id: parent, own: mut ring, .. } = bench.image(100, None);
    let mut other = bench.ring(parent, false, TID + 1, 32 << 10);
    ring.thread(0, TID, "main");
    ring.node(1, 0, NodeKind::Epoch, 0);
    ring.node(2, 1, NodeKind::Frame, 0x1010);
    ring.text(1, 0x7000, 0, 0, "net");
    ring.text(1, 0x7100, 1, 0x7000, "request");
    ring.node(3, 1, NodeKind::Scope, 0x7100);
    ring.text(2, 0x7200, 0, 0, "route=/");
    ring.node(4, 3, NodeKind::Value, 0x7200);
    ring.node(5, 2, NodeKind::Context, 4);
    ring.malloc(3, 0x1000, 10, 5);
    ring.text(4, 0x7300, 0, 0, "arena");
    ring.node(6, 5, NodeKind::Heap, 0x7300);
    ring.malloc(5, 0x2000, 20, 6);
    // Equal scopes at other addresses.
    other.thread(6, TID + 1, "other");
    other.text(7, 0x8000, 0, 0, "net");
    other.text(7, 0x8100, 1, 0x8000, "request");
    other.node(7, 1, NodeKind::Scope, 0x8100);
    other.node(8, 0, NodeKind::Context, 7);
    other.malloc(8, 0x3000, 30, 8);
    // The memory of a text is reused.
    ring.text(9, 0x7200, 0, 0, "route=/other");
    ring.node(9, 3, NodeKind::Value, 0x7200);
    ring.node(10, 2, NodeKind::Context, 9);
    ring.malloc(10, 0x4000, 40, 10);
    // A text that was not announced.
    ring.node(11, 1, NodeKind::Scope, 0x9999);
    ring.node(12, 2, NodeKind::Context, 11);
    ring.extended(20, &Extended::Fork { sequence: 1 });
    let fork = NewFork { parent, sequence: 1, node_base: 13 };
    let FakeImage { id: child, own: mut child_ring, .. } = bench.image(101, Some(fork));
    child_ring.thread(21, TID + 2, "child");
    child_ring.node(13, 3, NodeKind::Value, 0x7300);
    child_ring.node(14, 2, NodeKind::Context, 13);
    child_ring.malloc(22, 0x5000, 50, 14);
    child_ring.malloc(23, 0x6000, 60, 5);
    ring.text(24, 0x7300, 0, 0, "too late for the child");
    (parent, ring, child)
}

/// Returns the scopes (with values) and the heap of a stack.
fn said(recording: &Recording<'_>, image: ImageId, stack: u32) -> (Vec<String>, Option<String>) {
    let tree = recording.stack_tree(image, &mut NodeCache::default());
    let text = |node: &heapledger_recording::Node| {
        let text = recording.text(node.text().unwrap()).unwrap();
        format!("{}{}", if text.is_task { "task " } else { "" }, String::from_utf8_lossy(&text.bytes))
    };
    let kind = heapledger_recording::NodeKind::Heap;
    let heap = tree.frames(StackId(stack)).find(|node| node.kind == kind).map(text);
    let kind = heapledger_recording::NodeKind::Context;
    let context = tree.frames(StackId(stack)).find(|node| node.kind == kind).map(|node| node.id);
    (context.map_or(vec![], |context| tree.path(context).map(text).collect()), heap)
}

/// Tests that the program attributes a block to a stack later. In a second file the block is not an
/// allocation.
#[test]
fn blocks_are_reattributed_to_other_stacks() {
    let mut bench = Bench::of(SessionRecord { segment: 1, ..SessionRecord::default() });
    let FakeImage { id, own: mut ring, .. } = bench.image(100, None);
    let moved = |address, stack| Extended::Reattributed { address, stack: StackId(stack) };
    ring.thread(0, TID, "main");
    ring.malloc(1, 0x1000, 10, 1);
    ring.malloc(2, 0x2000, 20, 1);
    ring.extended(3, &moved(0x1000, 2));
    ring.extended(4, &moved(0x9000, 2));
    ring.malloc(5, 0x3000, 5, 2);
    ring.free(6, 0x3000);
    bench.iterate();
    let next = bench.file.with_extension("next");
    bench.collector.rotate(std::fs::File::options().read(true).write(true).create_new(true).open(&next).unwrap());
    ring.extended(60_000, &moved(0x1000, 3));
    ring.extended(60_001, &moved(0x2000, 3));
    bench.iterate();
    bench.end(id, ImageEndReason::Exit);
    let file = bench.file.clone();
    bench.iterate();
    bench.collector.end_session();
    let end = SessionEnd { exit: None, program_cpu_ns: None, program_wall_ns: 2, collector_cpu_ns: 3 };
    bench.collector.finish(&end);
    let (first, second) = (std::fs::read(file).unwrap(), std::fs::read(next).unwrap());
    let to =
        |block: u64, stack| EventKind::Reattributed { block: heapledger_core::Serial(block), stack: StackId(stack) };
    let (first, second) = (open(&first), open(&second));
    assert_eq!(kinds_of(&first, id), [alloc(0, 10, 1), alloc(1, 20, 1), to(0, 2), alloc(2, 5, 2), freed(2)]);
    assert_eq!(kinds_of(&second, id), [to(0, 3), to(1, 3)]);
    let sites = |recording: &Recording<'_>| {
        let mut sites: Vec<_> = recording
            .sites(id)
            .rows
            .iter()
            .map(|site| (site.stack.0, site.allocations.0, site.live_end.bytes.0, site.live_at_image_peak.bytes.0))
            .collect();
        sites.sort();
        sites
    };
    // The first file's peak was when the third block came; one block had already been reattributed.
    assert_eq!(sites(&first), [(1, 1, 20, 20), (2, 2, 10, 15)]);
    assert_eq!(sites(&second), [(1, 0, 0, 20), (2, 0, 0, 10), (3, 0, 30, 0)]);
    let counts = second.image_counts(id).unwrap();
    assert_eq!((counts.allocations.0, counts.reallocations.0, counts.bytes_live_end.0), (0, 0, 30));
}

/// Tests stamps by threads that have not announced the stamp themselves, also in a child. A stamp
/// that was not announced, or is not on a block, is counted, and no program uses ids of the
/// collector's own.
#[test]
fn stamped_blocks_are_leaves_of_their_stacks() {
    let mut bench = Bench::new();
    let FakeImage { id: parent, own: mut ring, .. } = bench.image(100, None);
    let mut other = bench.ring(parent, false, TID + 1, 32 << 10);
    ring.thread(0, TID, "main");
    ring.node(1, 0, NodeKind::Epoch, 0);
    ring.node(2, 1, NodeKind::Frame, 0x1010);
    ring.text(1, 0x7000, 0, 0, "Token\nsrc/a.rs:7");
    ring.malloc(2, 0x1000, 100, 2);
    ring.extended(3, &Extended::Stamped { address: 0x1000, stamp: 0x7000 });
    ring.malloc(4, 0x2000, 10_000, 2);
    other.thread(5, TID + 1, "other");
    other.extended(6, &Extended::Stamped { address: 0x2000 + 9_999, stamp: 0x7000 });
    other.extended(7, &Extended::Stamped { address: 0x2000 + 10_000, stamp: 0x7000 });
    other.extended(8, &Extended::Stamped { address: 0x1000, stamp: 0x7777 });
    ring.realloc(9, 0x1000);
    ring.realloc_returns(10, 0x3000, 200, 2);
    ring.extended(11, &Extended::Ignored { address: 0x5000 });
    ring.extended(12, &Extended::Stamped { address: 0x5000, stamp: 0x7000 });
    ring.extended(20, &Extended::Fork { sequence: 1 });
    let fork = NewFork { parent, sequence: 1, node_base: 3 };
    let FakeImage { id: child, own: mut child_ring, .. } = bench.image(101, Some(fork));
    child_ring.thread(21, TID + 2, "child");
    child_ring.realloc(22, 0x2000);
    child_ring.realloc_returns(23, 0x6000, 300, 2);
    bench.iterate();
    // A program that uses an id of the collector's own is corrupt.
    child_ring.node(StackId::PROGRAM_END.0, 2, NodeKind::Frame, 0x1020);
    for image in [parent, child] {
        bench.end(image, ImageEndReason::Exit);
    }
    let (finished, bytes) = bench.finish();
    assert_eq!(finished.footer.counts.stamps_unknown, 2);
    assert!(finished.footer.counts.events_lost_unreadable > 0);
    let recording = open(&bytes);
    let stamp = |stack: StackId, image| {
        let tree = recording.stack_tree(image, &mut NodeCache::default());
        let node = *tree.get(stack).unwrap();
        assert_eq!((node.kind, node.parent), (heapledger_recording::NodeKind::Stamp, StackId(2)));
        recording.text(node.text().unwrap()).unwrap().stamp().type_name.into_owned()
    };
    // The stack without stamp has no blocks left.
    let [stamped] = recording.sites(parent).rows[..] else { panic!("{:?}", recording.sites(parent).rows) };
    assert_eq!((stamped.allocations.0, stamped.live_end.bytes.0), (3, 10_200));
    assert_eq!((stamped.live_at_image_peak.bytes.0, stamp(stamped.stack, parent)), (10_200, "Token".to_owned()));
    // A reallocation by the child of an inherited block keeps the stamp, under a node of the
    // child's own.
    let own = *recording.sites(child).rows.iter().find(|site| site.allocations.0 > 0).unwrap();
    assert_eq!((own.live_end.bytes.0, stamp(own.stack, child)), (300, "Token".to_owned()));
    let moves = events_of(&recording, parent)
        .into_iter()
        .filter(|(event, _)| matches!(event.kind, EventKind::Reattributed { .. }));
    assert_eq!(moves.count(), 3);
}
