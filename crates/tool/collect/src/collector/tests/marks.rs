//! Tests the order of marks of reporters and events.

use heapledger_recording::{Mark, Reported};

use super::*;

/// Tests reports of blocks, of addresses in them, and of no block; marks that are taken back,
/// cleared and complete. A second file repeats the marks that still hold. Marks of inherited and of
/// ignored blocks are not recorded.
#[test]
fn reports_name_blocks_by_serial() {
    let mut bench = Bench::of(SessionRecord { segment: 1, ..SessionRecord::default() });
    let FakeImage { id, own: mut ring, .. } = bench.image(100, None);
    let marked = |address, reporter, is_kept| {
        let (stack, measured, is_on_stack, is_around) = (StackId(2), 5, address == 0x7_0000, false);
        Extended::Marked { address, reporter, stack, is_kept, is_on_stack, is_around, measured }
    };
    ring.thread(0, TID, "main");
    ring.node(1, 0, NodeKind::Epoch, 0);
    ring.node(2, 1, NodeKind::Frame, 0x1010);
    ring.text(1, 0x7000, 0, 0, "cache");
    ring.text(1, 0x7100, 0, 0, "index");
    ring.malloc(2, 0x1000, 100, 2);
    ring.malloc(3, 0x2000, 10_000, 2);
    ring.malloc(4, 0x3000, 30, 2);
    ring.extended(5, &Extended::Ignored { address: 0x5000 });
    ring.extended(6, &Extended::MarksCleared);
    ring.extended(7, &marked(0x1000, 0x7000, true));
    ring.extended(8, &marked(0x2000 + 9_999, 0x7100, false));
    ring.extended(9, &marked(0x2000 + 10_000, 0x7100, false));
    ring.extended(10, &marked(0x7_0000, 0x7100, false));
    ring.extended(10, &marked(0x5000, 0x7000, false));
    ring.extended(11, &marked(0x1000, 0x7777, false));
    ring.extended(12, &marked(0x3000, 0x7000, true));
    ring.extended(13, &marked(0x3000, 0x7100, true));
    let around = |address| match marked(address, 0x7100, false) {
        Extended::Marked { address, reporter, stack, is_kept, is_on_stack, measured, .. } => {
            Extended::Marked { address, reporter, stack, is_kept, is_on_stack, is_around: true, measured }
        }
        other => other,
    };
    ring.extended(13, &around(0x2000 + 9_999));
    ring.extended(13, &around(0x2000 + 10_000));
    ring.extended(14, &Extended::Unmarked { address: 0x3000, reporter: 0x7000 });
    ring.free(15, 0x1000);
    ring.extended(16, &Extended::MarksComplete);
    bench.iterate();
    let next = bench.file.with_extension("next");
    bench.collector.rotate(std::fs::File::options().read(true).write(true).create_new(true).open(&next).unwrap());
    ring.free(60_000, 0x3000);
    bench.iterate();
    bench.end(id, ImageEndReason::Exit);
    let file = bench.file.clone();
    bench.iterate();
    bench.collector.end_session();
    let end = SessionEnd { exit: None, program_cpu_ns: None, program_wall_ns: 2, collector_cpu_ns: 3 };
    bench.collector.finish(&end);

    let block = |serial| format!("{:?}", Reported::Block(heapledger_core::Serial(serial)));
    let inside = Reported::Inside { block: heapledger_core::Serial(1), address: 0x2000 + 9_999 };
    let expected = [
        "3 cleared".to_owned(),
        format!("3 {} cache under 2 true", block(0)),
        format!("3 {inside:?} index under 2 false"),
        format!("3 {:?} index under 2 false", Reported::Nothing { address: 0x2000 + 10_000 }),
        format!("3 {:?} index under 2 false", Reported::NotHeap { address: 0x7_0000 }),
        format!("3 {} cache under 2 true", block(2)),
        format!("3 {} index under 2 true", block(2)),
        format!("3 {} index under 2 false", block(1)),
        format!("3 {:?} not cache under 0", heapledger_core::Serial(2)),
        "4 complete".to_owned(),
    ];
    assert_eq!(marks_of(&file, id), expected);
    let still = [format!("0 {} index under 2 false", block(1)), format!("0 {} index under 2 true", block(2))];
    assert_eq!(marks_of(&next, id), still);
}

/// Returns the marks of an image in a file, each with the number of events before it.
fn marks_of(path: &std::path::Path, id: ImageId) -> Vec<String> {
    let bytes = std::fs::read(path).unwrap();
    let recording = open(&bytes);
    let tree = recording.stack_tree(id, &mut NodeCache::default());
    let name = |by: StackId| {
        let node = tree.get(by).unwrap();
        let name = recording.text(node.text().unwrap()).unwrap();
        format!("{} under {}", String::from_utf8_lossy(&name.bytes), node.parent.0)
    };
    let mut buffer = EventsBuffer::default();
    let mut all = Vec::new();
    for chunk in recording.event_chunks(id) {
        let events = chunk.decode(&mut buffer).unwrap();
        assert_eq!(chunk.head().marks as usize, events.marks().len());
        all.extend(events.marks().iter().map(|&(at, mark)| match mark {
            Mark::Reported { what, by, is_kept, measured } => {
                assert_eq!(measured, Bytes(5));
                format!("{at} {what:?} {} {is_kept}", name(by))
            }
            Mark::Removed { block, by } => format!("{at} {block:?} not {}", name(by)),
            Mark::Cleared => format!("{at} cleared"),
            Mark::Complete { .. } => format!("{at} complete"),
        }));
    }
    all
}
