//! Tests of the collector with producers in this process: real rings in real memfds, with stamps
//! chosen by the test.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use heapledger_core::sample::Rate;
use heapledger_core::{Api, NodeKind};
use heapledger_recording::{
    Event as FileEvent, EventKind, EventsBuffer, Extras, FreedBlock, NodeCache, Recording, Thread as ThreadRecord,
};
use heapledger_wire::event::{self, Extended, Packed, ReallocOutcome, WORDS_MAX};
use heapledger_wire::publish::Producer;
use heapledger_wire::ring::Ring;

use super::*;
use crate::destination::Destination;

mod marks;
mod order;

/// A session without broker and command: the test posts their messages.
struct Bench {
    collector: Collector,
    file: std::path::PathBuf,
    _directory: tempfile::TempDir,
    /// A time in the past, in ticks; the stamps of events count from it.
    start: u64,
}

/// A producer's end of a ring, mapped as a program would map it.
struct TestRing {
    producer: Producer,
    page: Arc<Page>,
    start: u64,
}

struct FakeImage {
    id: ImageId,
    common: TestRing,
    own: TestRing,
}

const TID: u32 = 700;

impl Bench {
    fn new() -> Bench {
        Bench::of(SessionRecord::default())
    }

    fn of(record: SessionRecord) -> Bench {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("test.hl");
        let writer = Writer::start(Destination::appended(std::fs::File::create(&file).unwrap(), false), None).unwrap();
        let page = Arc::new(crate::session::page(0, Rate::EXACT, None).unwrap());
        let first = Reading::now();
        std::thread::sleep(Duration::from_millis(2));
        let clock = Clock::new(first, Reading::now());
        let mut collector = Collector::new(page, Arc::default(), Arc::default(), writer, clock, record, 100);
        collector.timeout = Duration::from_millis(20);
        // Room for the stamps that tests make up, before the time that is not settled yet.
        std::thread::sleep(Duration::from_millis(1));
        let start = arch::ticks() - 1_000_000;
        Bench { collector, file, _directory: directory, start }
    }

    fn ring(&mut self, image: ImageId, is_common: bool, thread: u32, capacity: usize) -> TestRing {
        let (ring, fd) = SharedRing::new(capacity).unwrap();
        let length = ring.length();
        let mapping = NonNull::new(sys::map_shared(fd.as_raw_fd(), length).unwrap()).unwrap();
        // SAFETY: the mapping is fresh and shared, has this length, and is never unmapped.
        let view = unsafe { Ring::new(mapping, length) }.unwrap();
        self.collector.inbox.post([Message::Ring(NewRing { image, ring, is_common, thread })]);
        TestRing { producer: Producer::new(view), page: Arc::clone(&self.collector.page), start: self.start }
    }

    fn image(&mut self, pid: u32, fork: Option<NewFork>) -> FakeImage {
        let id = ImageId(self.collector.slots.len() as u32 + self.posted_images());
        let new = NewImage {
            image: id,
            stamp: units(self.start),
            pid,
            parent_pid: 1,
            parent_image: fork.map(|fork| fork.parent),
            how: if fork.is_some() { ImageOrigin::Fork } else { ImageOrigin::Exec },
            fork,
            executable: b"/bin/test".to_vec(),
            argv: vec![b"test".to_vec()],
        };
        self.collector.inbox.post([Message::Image(new)]);
        FakeImage { id, common: self.ring(id, true, TID, 32 << 10), own: self.ring(id, false, TID, 64 << 10) }
    }

    fn posted_images(&self) -> u32 {
        let mut messages = Vec::new();
        self.collector.inbox.take(&mut messages);
        let count = messages.iter().filter(|message| matches!(message, Message::Image(_))).count();
        self.collector.inbox.post(messages);
        count as u32
    }

    fn end(&mut self, image: ImageId, reason: ImageEndReason) {
        self.collector.inbox.post([Message::Ended { image, reason, stamp: units(arch::ticks()) }]);
    }

    /// Ends an image at a time given as for events.
    fn end_at(&mut self, at: u64, image: ImageId) {
        let stamp = units(self.start + at * 16);
        self.collector.inbox.post([Message::Ended { image, reason: ImageEndReason::Exit, stamp }]);
    }

    fn iterate(&mut self) {
        self.collector.iterate();
    }

    /// Ends the session and reads the file.
    fn finish(mut self) -> (Finished, Vec<u8>) {
        self.collector.end_session();
        let end = SessionEnd {
            exit: Some(ExitStatus::Code(0)),
            program_cpu_ns: Some(1),
            program_wall_ns: 2,
            collector_cpu_ns: 3,
        };
        let finished = self.collector.finish(&end);
        let bytes = std::fs::read(&self.file).unwrap();
        assert_eq!(bytes.len() as u64, finished.bytes_written);
        (finished, bytes)
    }
}

impl TestRing {
    fn put(&mut self, words: &[u64]) {
        self.producer.write(&self.page, || false, words).unwrap();
    }

    /// Returns the stamp step to a time, after a sync event if needed. `at` counts units from the
    /// start.
    fn step(&mut self, at: u64) -> u64 {
        let ticks = self.start + at * 16;
        self.producer.step(ticks).unwrap_or_else(|| {
            self.producer.last = units(ticks);
            self.put(&event::sync(units(ticks)));
            0
        })
    }

    fn text(&mut self, at: u64, address: u64, flags: u32, category: u64, text: &str) {
        let mut words = [0; 8];
        let count = event::pack(text.as_bytes(), &mut words).unwrap();
        let text = Packed { words: &words[..count], length: text.len() };
        self.extended(at, &Extended::Text { address, flags, category, text });
    }

    fn malloc(&mut self, at: u64, address: u64, size: u64, stack: u32) {
        let step = self.step(at);
        self.put(&event::malloc(step, address, size, StackId(stack)));
    }

    fn free(&mut self, at: u64, address: u64) {
        let step = self.step(at);
        self.put(&event::free(step, address));
    }

    fn realloc(&mut self, at: u64, address: u64) {
        let step = self.step(at);
        self.put(&event::realloc_begin(step, address));
    }

    fn realloc_returns(&mut self, at: u64, address: u64, size: u64, stack: u32) {
        let step = self.step(at);
        self.put(&event::realloc_end(step, address, size, StackId(stack)));
    }

    fn extended(&mut self, at: u64, extended: &Extended<'_>) {
        let mut buffer = [0; WORDS_MAX];
        self.producer.last = units(self.start + at * 16);
        let words = event::extended(self.producer.last, extended, &mut buffer).unwrap().to_vec();
        self.put(&words);
    }

    fn node(&mut self, id: u32, parent: u32, kind: NodeKind, address: u64) {
        self.put(&event::node(StackId(id), StackId(parent), kind, address));
    }

    fn thread(&mut self, at: u64, thread: u32, name: &str) {
        let mut padded = [0; 16];
        padded[..name.len()].copy_from_slice(name.as_bytes());
        self.extended(at, &Extended::ThreadStart { thread, name: padded });
    }
}

/// Returns all events of an image with their extras.
fn events_of(recording: &Recording<'_>, image: ImageId) -> Vec<(FileEvent, Extras)> {
    let mut buffer = EventsBuffer::default();
    let mut all = Vec::new();
    for chunk in recording.event_chunks(image) {
        let events = chunk.decode(&mut buffer).unwrap();
        all.extend(events.as_slice().iter().enumerate().map(|(index, event)| (*event, events.extras(index))));
    }
    all
}

fn kinds_of(recording: &Recording<'_>, image: ImageId) -> Vec<EventKind> {
    events_of(recording, image).into_iter().map(|(event, _)| event.kind).collect()
}

fn open(bytes: &[u8]) -> Recording<'_> {
    let recording = Recording::open(bytes).unwrap();
    assert_eq!(recording.verify(), []);
    recording
}

fn alloc(serial: u64, size: u64, stack: u32) -> EventKind {
    EventKind::Alloc { serial: heapledger_core::Serial(serial), size: Bytes(size), stack: StackId(stack) }
}

fn freed(serial: u64) -> EventKind {
    EventKind::Free { block: FreedBlock::Known(heapledger_core::Serial(serial)) }
}

fn realloc(old: FreedBlock, serial: u64, size: u64, stack: u32) -> EventKind {
    EventKind::Realloc { old, serial: heapledger_core::Serial(serial), size: Bytes(size), stack: StackId(stack) }
}

fn known(serial: u64) -> FreedBlock {
    FreedBlock::Known(heapledger_core::Serial(serial))
}

#[test]
fn one_thread_from_start_to_end() {
    let mut bench = Bench::new();
    let FakeImage { id, mut own, .. } = bench.image(100, None);
    own.thread(1, TID, "main");
    let path = b"/lib/libc.so.6";
    let (mut build, mut words) = ([0; 4], [0; 4]);
    event::pack(&[1, 2, 3, 4, 5], &mut build).unwrap();
    event::pack(path, &mut words).unwrap();
    let packed = |words, length| Packed { words, length };
    for (start, path) in [(0x1000, packed(&[][..], 0)), (0x8000, packed(&words[..2], path.len()))] {
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
    assert_eq!(modules, [b"/bin/test".as_slice(), path]);
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

/// A Splitmix64 generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }
}

/// Deals the events of one true history out to several rings at random; the file must have them in
/// the true order.
#[test]
fn rings_are_merged_into_the_one_true_history() {
    for seed in 0..8 {
        let mut random = Random(seed);
        let mut bench = Bench::new();
        let FakeImage { id, own, .. } = bench.image(100, None);
        let mut rings = vec![own];
        for thread in 1..5 {
            rings.push(bench.ring(id, false, TID + thread, 64 << 10));
        }
        for (number, ring) in rings.iter_mut().enumerate() {
            ring.thread(0, TID + number as u32, "worker");
        }
        let mut live: Vec<(u64, u64, u64)> = Vec::new();
        let mut released: Vec<u64> = Vec::new();
        let mut expected = Vec::new();
        let (mut at, mut serial, mut bytes, mut bytes_max) = (10, 0, 0, 0);
        for _ in 0..20_000 {
            let ring = random.below(5) as usize;
            // An allocation may follow a release within the same unit; other orders could not be
            // told apart.
            at += random.below(3) + u64::from(matches!(expected.last(), Some((_, EventKind::Alloc { .. }))));
            if at > 50_000 {
                break;
            }
            if random.below(2) == 0 && !live.is_empty() {
                at += 1;
                let (address, block, size) = live.swap_remove(random.below(live.len() as u64) as usize);
                rings[ring].free(at, address);
                expected.push((ring, freed(block)));
                released.push(address);
                bytes -= size;
            } else {
                let address = released.pop().unwrap_or(0x10_0000 + serial * 16);
                let size = random.below(500);
                rings[ring].malloc(at, address, size, 1 + random.below(30) as u32);
                live.push((address, serial, size));
                expected.push((
                    ring,
                    EventKind::Alloc { serial: heapledger_core::Serial(serial), size: Bytes(size), stack: StackId(0) },
                ));
                serial += 1;
                bytes += size;
                bytes_max = bytes_max.max(bytes);
            }
            if random.below(1_000) == 0 {
                bench.iterate();
            }
        }
        bench.iterate();
        bench.end(id, ImageEndReason::Exit);
        let (finished, file) = bench.finish();
        let recording = open(&file);
        let threads: HashMap<u32, u32> =
            recording.threads(id).iter().map(|thread| (thread.thread.0, thread.tid - TID)).collect();
        let events = events_of(&recording, id);
        assert_eq!(events.len(), expected.len());
        for ((event, _), (ring, kind)) in events.iter().zip(&expected) {
            assert_eq!(threads[&event.thread.0], *ring as u32);
            match (event.kind, kind) {
                (EventKind::Alloc { serial, size, .. }, EventKind::Alloc { serial: s, size: z, .. }) => {
                    assert_eq!((serial, size), (*s, *z));
                }
                (found, expected) => assert_eq!(found, *expected),
            }
        }
        let counts = finished.footer.counts;
        assert_eq!(
            (counts.allocations.0, counts.bytes_live_max.0, counts.bytes_live_end.0),
            (serial, bytes_max, bytes)
        );
        assert_eq!((counts.frees_unknown.0, counts.events_late, counts.threads), (0, 0, 5));
    }
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
fn a_corrupt_producer_harms_only_itself() {
    for kind in 0..4 {
        let mut bench = Bench::new();
        let FakeImage { id: good, own: mut good_ring, .. } = bench.image(100, None);
        let FakeImage { id: corrupt, own: mut corrupt_ring, .. } = bench.image(101, None);
        good_ring.malloc(1, 0x1000, 10, 1);
        corrupt_ring.malloc(2, 0x1000, 10, 1);
        bench.iterate();
        match kind {
            // A position that is impossible.
            0 => corrupt_ring.producer.ring().publish(1 << 40),
            // A word that is not an event.
            1 => corrupt_ring.put(&[0]),
            // Only a part of an event.
            2 => corrupt_ring.put(&event::malloc(0, 0x2000, 1, StackId(1))[..1]),
            // A stamp that is far in the future.
            _ => corrupt_ring.put(event::extended(u64::MAX, &Extended::ThreadEnd, &mut [0; 8]).unwrap()),
        }
        bench.iterate();
        // Its producer is not left waiting, however much it writes.
        for _ in 0..20 {
            if kind > 0 {
                for _ in 0..1_000 {
                    corrupt_ring.put(&[7, 7]);
                }
            }
            bench.iterate();
            assert_eq!(corrupt_ring.producer.ring().readable(), 0);
        }
        good_ring.free(50, 0x1000);
        bench.iterate();
        bench.end(corrupt, ImageEndReason::Exit);
        bench.end(good, ImageEndReason::Exit);
        let (finished, bytes) = bench.finish();
        let recording = open(&bytes);
        assert_eq!(kinds_of(&recording, good), [alloc(0, 10, 1), freed(0)]);
        assert_eq!(kinds_of(&recording, corrupt), [alloc(0, 10, 1)]);
        assert_eq!(recording.image_counts(good).unwrap().events_lost, 0);
        let lost = recording.image_counts(corrupt).unwrap().events_lost;
        assert!(lost >= if kind > 0 { 20_000 } else { 1 }, "{kind}: {lost}");
        assert_eq!(finished.footer.counts.events_lost, lost);
    }
}

#[test]
fn a_thread_that_is_stopped_between_stamp_and_publication_holds_up_nobody_for_long() {
    let mut bench = Bench::new();
    let FakeImage { id, mut own, .. } = bench.image(100, None);
    let mut stopped = bench.ring(id, false, TID + 1, 64 << 10);
    own.thread(0, TID, "runs");
    stopped.thread(1, TID + 1, "stopped");
    stopped.malloc(2, 0x1000, 1, 1);
    stopped.producer.begin();
    let stamp = 10;
    for number in 0..100 {
        own.malloc(20 + number, 0x10_0000 + number * 16, 1, 1);
    }
    bench.iterate();
    assert_eq!(bench.collector.shared.events, 1, "the stopped thread's last stamp is the horizon");
    std::thread::sleep(bench.collector.timeout * 2);
    bench.iterate();
    assert_eq!(bench.collector.shared.events, 101, "it is passed");
    stopped.malloc(stamp, 0x2000, 1, 1);
    stopped.producer.end();
    bench.iterate();
    bench.iterate();
    bench.end(id, ImageEndReason::Exit);
    let (finished, bytes) = bench.finish();
    let recording = open(&bytes);
    assert_eq!(finished.footer.counts.events_late, 1);
    let events = events_of(&recording, id);
    assert_eq!(events.len(), 102);
    assert!(events.is_sorted_by_key(|(event, _)| event.time));
    assert_eq!(events[101].0.thread.0, 1);
}

#[test]
fn what_waits_to_be_merged_is_bounded() {
    let mut bench = Bench::new();
    bench.collector.backlog_max = 10_000;
    bench.collector.timeout = Duration::from_secs(60);
    let FakeImage { id, mut own, .. } = bench.image(100, None);
    let mut stopped = bench.ring(id, false, TID + 1, 64 << 10);
    stopped.malloc(1, 0x1000, 1, 1);
    stopped.producer.begin();
    let (mut written, capacity) = (0, own.producer.ring().capacity());
    let fill = |own: &mut TestRing, written: &mut u64| {
        while own.producer.ring().readable() + 8 < capacity {
            *written += 1;
            own.malloc(1 + *written, *written << 4, 1, 1);
        }
    };
    for _ in 0..10 {
        fill(&mut own, &mut written);
        bench.iterate();
    }
    // The ring was emptied until the limit was exceeded; from then on the producer would wait.
    assert!(own.producer.ring().readable() > 0);
    assert!(bench.collector.sources.iter().map(Source::backlog).sum::<usize>() < 10_000 + 2 * capacity as usize);
    assert_eq!(bench.collector.shared.events, 1);
    stopped.producer.end();
    while own.producer.ring().readable() > 0 {
        bench.iterate();
        std::thread::sleep(Duration::from_millis(1));
    }
    bench.end(id, ImageEndReason::Exit);
    let (finished, _) = bench.finish();
    let counts = finished.footer.counts;
    assert_eq!((counts.allocations.0, counts.events_late, counts.events_lost), (written + 1, 0, 0));
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
    bench.collector.order.clock = Clock::new(Reading::now(), Reading::now());
    let now = bench.collector.now();
    let Stage::Running(image) = &mut bench.collector.slots[0].stage else { panic!() };
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
