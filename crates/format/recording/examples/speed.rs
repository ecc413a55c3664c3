//! Measures how fast events are written and read:
//! `cargo run --release -p heapledger-recording --example speed`.
//!
//! The events are made up: allocations from some thousand stacks, of which three in four are freed
//! again, an event every 50 ns. Real programs are between the two that are measured: no processor
//! and no compressor can predict what the random one does next. Run it on a quiet machine.

use std::hint::black_box;
use std::time::Duration;

use heapledger_core::{Api, Blocks, Bytes, Serial, StackId, ThreadId};
use heapledger_recording::*;

const CHUNKS: usize = 40;

fn main() {
    for (name, threads, period) in [("regular, 1 thread", 1, 40), ("random, 4 threads", 4, u64::MAX)] {
        let mut compressor = Compressor::new();
        let mut encoder = EventsEncoder::new(ImageId(0));
        let mut writer = RecordingWriter::new();
        let mut program = Program::new(threads, period);
        let mut writing = Duration::ZERO;
        for _ in 0..CHUNKS {
            let events: Vec<Event> = (0..CHUNK_ROWS_MAX).map(|_| program.event()).collect();
            let start = cpu_time();
            for event in &events {
                encoder.push(event, &Extras::NONE, Live { bytes: Bytes(1), blocks: Blocks(1) }).unwrap();
            }
            let chunk = encoder.finish(&mut compressor).unwrap();
            writing += cpu_time() - start;
            writer.push(&chunk);
        }
        writer.finish(&Footer::default(), &mut compressor);
        let file = writer.pending();

        let recording = Recording::open(file).unwrap();
        let mut buffer = EventsBuffer::default();
        let mut reading = Duration::MAX;
        for _ in 0..5 {
            let start = cpu_time();
            let mut bytes = 0;
            for chunk in recording.event_chunks(ImageId(0)) {
                for event in chunk.decode(&mut buffer).unwrap().as_slice() {
                    if let EventKind::Alloc { size, .. } = event.kind {
                        bytes += size.0;
                    }
                }
            }
            black_box(bytes);
            reading = reading.min(cpu_time() - start);
        }
        let events = CHUNKS * CHUNK_ROWS_MAX;
        let each = |time: Duration| time.as_secs_f64() * 1e9 / events as f64;
        println!(
            "{name}: {:.2} bytes, write {:.1} ns, read {:.1} ns per event ({:.0} M/s)",
            file.len() as f64 / events as f64,
            each(writing),
            each(reading),
            1e3 / each(reading),
        );
    }
}

/// Returns the CPU time of this thread, so that other work on the machine does not count.
fn cpu_time() -> Duration {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(schedstat.split(' ').next().unwrap().parse().unwrap())
}

const SEED: u64 = 88_172_645_463_325_252;

/// A program that allocates and frees at random, and repeats itself after each period of `period`
/// events.
struct Program {
    random: u64,
    threads: u64,
    period: u64,
    thread: u64,
    time: u64,
    live: Vec<u64>,
    serial: u64,
}

impl Program {
    fn new(threads: u64, period: u64) -> Program {
        Program { random: SEED, threads, period, thread: 0, time: 0, live: Vec::new(), serial: 0 }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn event(&mut self) -> Event {
        self.time += 50;
        if (self.time / 50).is_multiple_of(self.period) {
            self.random = SEED;
        }
        if self.random(20) == 0 {
            self.thread = self.random(self.threads);
        }
        let (api, kind) = if self.live.len() > 100 && self.random(7) < 3 {
            let young = self.random(100).min(self.random(100)) as usize;
            let block = FreedBlock::Known(Serial(self.live.remove(self.live.len() - 1 - young)));
            (Api::Free, EventKind::Free { block })
        } else {
            let serial = Serial(self.serial);
            self.live.push(self.serial);
            self.serial += 1;
            let stack = StackId((1 + self.random(300) * self.random(20)) as u32);
            let size = Bytes(16 << self.random(8) | (self.random(4) * 8));
            (Api::Malloc, EventKind::Alloc { serial, size, stack })
        };
        Event {
            time: Time(self.time),
            thread: ThreadId(self.thread as u32),
            call: api.into(),
            sampled: Sampled::NOT,
            kind,
        }
    }
}
