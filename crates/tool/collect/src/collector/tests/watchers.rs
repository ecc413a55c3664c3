//! Tests the figures for those who watch a recording.

use std::sync::mpsc::{Receiver, sync_channel};

use super::*;
use crate::live_figures::AnsweredFigures;

/// Asks for the figures of this moment.
fn ask(bench: &mut Bench) -> Receiver<AnsweredFigures> {
    ask_from(bench, units(arch::ticks()))
}

/// Asks for figures after a stamp.
fn ask_from(bench: &mut Bench, stamp: u64) -> Receiver<AnsweredFigures> {
    let (done, answer) = sync_channel(1);
    bench.collector.inbox.post([Message::Figures { stamp, done }]);
    answer
}

/// Iterates until there is an answer.
fn wait(bench: &mut Bench, answer: &Receiver<AnsweredFigures>) -> AnsweredFigures {
    loop {
        bench.iterate();
        let now = bench.collector.now();
        bench.collector.answer_watchers(now);
        if let Ok(answered) = answer.try_recv() {
            return answered;
        }
    }
}

#[test]
fn figures_are_those_of_the_moment_and_their_stacks_are_in_the_file() {
    let mut bench = Bench::new();
    let FakeImage { id, own: mut ring, .. } = bench.image(100, None);
    ring.thread(0, TID, "watched");
    ring.node(1, 0, NodeKind::Epoch, 0);
    ring.node(2, 1, NodeKind::Context, 0);
    ring.malloc(10, 0x1000, 10, 2);
    ring.malloc(11, 0x2000, 20, 2);
    ring.free(12, 0x1000);
    let answer = ask(&mut bench);
    let answered = wait(&mut bench, &answer);
    let [(image, counts, sites)] = &answered.copy.images[..] else { panic!("{answered:?}") };
    assert_eq!((*image, counts.allocations.0, sites.len()), (id, 2, 1));
    assert_eq!((sites[0].live_end.bytes, sites[0].bytes_allocated), (Bytes(20), Bytes(30)));
    assert_eq!(answered.copy.footer.counts.allocations.0, 2);
    answered.written.recv().unwrap();
    let bytes = std::fs::read(&bench.file).unwrap();
    let recording = Recording::open(&bytes).unwrap();
    let nodes = recording.chunks().iter().filter(|chunk| chunk.kind == heapledger_recording::ChunkKind::Nodes);
    assert_eq!((recording.images().len(), nodes.map(|chunk| chunk.head.rows).sum::<u32>()), (1, 2));
    // Nothing else was brought forward.
    assert_eq!(recording.event_chunks(id).count(), 0);

    // The end of an image: its sites are copied until they are in the file.
    bench.end(id, ImageEndReason::Exit);
    let answered = loop {
        let answer = ask(&mut bench);
        let answered = wait(&mut bench, &answer);
        if answered.is_new {
            break answered;
        }
        std::thread::sleep(answered.next_copy);
    };
    assert!(answered.copy.images.is_empty());
    assert_eq!(answered.copy.open.iter().map(|(_, sites)| sites.len()).sum::<usize>(), 1);
    let (_, bytes) = bench.finish();
    assert_eq!(open(&bytes).sites(id).rows.len(), 1);
}

#[test]
fn copies_are_made_at_most_four_times_a_second() {
    let mut bench = Bench::new();
    let FakeImage { own: mut ring, .. } = bench.image(100, None);
    ring.thread(0, TID, "watched");
    let stamp = units(arch::ticks());
    let (first, second) = (ask_from(&mut bench, stamp), ask_from(&mut bench, stamp));
    let begun = bench.collector.now();
    let answered = wait(&mut bench, &first);
    // Both wait for the same copy.
    assert!(Arc::ptr_eq(&answered.copy, &second.try_recv().unwrap().copy));
    assert!(answered.is_new && answered.next_copy > Duration::ZERO, "{answered:?}");
    // Nobody waits for the next copy: other requests would wait, too.
    let mut before = answered.copy;
    loop {
        let third = ask(&mut bench);
        let answered = wait(&mut bench, &third);
        if answered.is_new {
            assert!(answered.copy.footer.time.0 - begun.0 >= 250_000_000, "{begun:?} {answered:?}");
            break;
        }
        assert!(Arc::ptr_eq(&answered.copy, &before), "{answered:?}");
        before = answered.copy;
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The stacks of an aggregate are in its snapshots: without one, there is no new copy.
#[test]
fn a_snapshot_that_is_being_written_keeps_the_next_copy_waiting() {
    let mut bench = Bench::new();
    let FakeImage { own: mut ring, .. } = bench.image(100, None);
    ring.thread(0, TID, "watched");
    bench.collector.shared.keeps_events = false;
    bench.collector.shared.writer.pretend_snapshot(true);
    let first = ask(&mut bench);
    for _ in 0..100 {
        bench.iterate();
        let now = bench.collector.now();
        bench.collector.answer_watchers(now);
        assert!(first.try_recv().is_err());
    }
    bench.collector.shared.writer.pretend_snapshot(false);
    let answered = wait(&mut bench, &first);
    assert!(answered.is_new);
    answered.written.recv().unwrap();
    // Long after that copy, the next snapshot takes its time.
    bench.collector.shared.writer.pretend_snapshot(true);
    let second = ask(&mut bench);
    bench.iterate();
    let now = Time(bench.collector.now().0 + 60_000_000_000);
    bench.collector.answer_watchers(now);
    let old = second.try_recv().unwrap();
    assert!(!old.is_new && Arc::ptr_eq(&old.copy, &answered.copy), "{old:?}");
}
