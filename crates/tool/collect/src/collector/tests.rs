//! Tests of the collector with producers in this process: real rings in real memfds, with stamps
//! chosen by the test.

use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use heapledger_core::allocator::{AllocatorKind, AllocatorVersion};
use heapledger_core::sample::Random;
use heapledger_core::{Api, Bytes, NodeKind, StackId};
use heapledger_recording::{
    Event as FileEvent, EventKind, EventsBuffer, ExitStatus, Extras, FreedBlock, ImageOrigin, NodeCache, Recording,
    Thread as ThreadRecord,
};
use heapledger_wire::event::{self, Extended, Packed, ReallocOutcome, WORDS_MAX};
use heapledger_wire::publish::Producer;
use heapledger_wire::ring::Ring;

use super::end::{Finished, SessionEnd};
use super::slot::Stage;
use super::*;
use crate::clock::Reading;
use crate::destination::Destination;
use crate::external_counters::ExternalCounters;
use crate::inbox::{NewFork, NewImage, NewRing};
use crate::shared::SharedRing;

mod calls;
mod file;
mod images;
mod marks;
mod merge;
mod order;
mod stacks;
mod watchers;

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
        let connections = Connections { page, inbox: Arc::default(), pool: Arc::default(), writer };
        let mut collector = Collector::new(100, clock, record, connections);
        collector.merge.timeout = Duration::from_millis(20);
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
        let id = ImageId(self.collector.images.slots.len() as u32 + self.posted_images());
        let new = NewImage {
            identity: None,
            regions: None,
            age: Duration::ZERO,
            image: id,
            stamp: units(self.start),
            pid,
            parent_pid: 1,
            parent_image: fork.map(|fork| fork.parent),
            how: if fork.is_some() { ImageOrigin::Fork } else { ImageOrigin::Exec },
            fork,
            executable: b"/bin/test".to_vec(),
            argv: vec![b"test".to_vec()],
            allocator: AllocatorKind::Glibc,
            allocator_version: AllocatorVersion::new(2, 36, 0),
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
