//! How fast events are written and read: `cargo run --release -p heapledger-recording --example speed`.
//!
//! Events are made up beforehand: three allocations of four are freed again, mostly the younger ones, from stacks that
//! repeat; times advance by 50 ns.

use std::hint::black_box;
use std::time::{Duration, Instant};

use heapledger_core::{Api, Blocks, Bytes, Serial, StackId, ThreadId};
use heapledger_recording::*;

const EVENTS: usize = 40 * CHUNK_ROWS_MAX;

fn main() {
    for threads in [1, 4] {
        let events = made_up(threads);
        let mut compressor = Compressor::new();
        let mut chunks = Vec::new();
        let (mut pushing, mut finishing) = (Duration::MAX, Duration::MAX);
        for _ in 0..5 {
            chunks.clear();
            let mut encoder = EventsEncoder::new(ImageId(0));
            let (mut push, mut finish) = (Duration::ZERO, Duration::ZERO);
            for batch in events.chunks(CHUNK_ROWS_MAX) {
                let start = Instant::now();
                for event in batch {
                    encoder.push(event, &Extras::NONE, Live { bytes: Bytes(1), blocks: Blocks(1) }).unwrap();
                }
                let pushed = Instant::now();
                chunks.extend(encoder.finish(&mut compressor));
                push += pushed - start;
                finish += pushed.elapsed();
            }
            pushing = pushing.min(push);
            finishing = finishing.min(finish);
        }

        let mut writer = RecordingWriter::new();
        chunks.iter().for_each(|chunk| writer.push(chunk));
        writer.finish(&Footer::default(), &mut compressor);
        let file = writer.pending();

        let mut reading = Duration::MAX;
        for _ in 0..5 {
            let start = Instant::now();
            let recording = Recording::open(file).unwrap();
            let mut buffer = EventsBuffer::default();
            let mut bytes = 0;
            for chunk in recording.event_chunks(ImageId(0)) {
                for event in chunk.decode(&mut buffer).unwrap().as_slice() {
                    if let EventKind::Alloc { size, .. } = event.kind {
                        bytes += size.0;
                    }
                }
            }
            black_box(bytes);
            reading = reading.min(start.elapsed());
        }
        let each = |time: Duration| time.as_secs_f64() * 1e9 / EVENTS as f64;
        println!(
            "{threads} threads: {:.2} bytes per event; write {:.1} + {:.1} ns per event (columns + finish); read {:.1} ns \
             per event = {:.0} M/s; an event is {} bytes",
            file.len() as f64 / EVENTS as f64,
            each(pushing),
            each(finishing),
            each(reading),
            1e3 / each(reading),
            size_of::<Event>(),
        );
    }
}

fn made_up(threads: u64) -> Vec<Event> {
    let mut state = 88_172_645_463_325_252u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut live: Vec<u64> = Vec::new();
    let mut serial = 0;
    let mut thread = 0;
    (0..EVENTS as u64)
        .map(|index| {
            if random(20) == 0 {
                thread = random(threads);
            }
            let (call, kind) = if live.len() > 100 && random(7) < 3 {
                let young = random(100).min(random(100)) as usize;
                let block = FreedBlock::Known(Serial(live.remove(live.len() - 1 - young)));
                (Api::Free, EventKind::Free { block })
            } else {
                live.push(serial);
                serial += 1;
                let stack = StackId(1 + random(300) as u32 * random(20) as u32);
                let size = Bytes(16 << random(8) | (random(4) * 8));
                (Api::Malloc, EventKind::Alloc { serial: Serial(serial - 1), size, stack })
            };
            Event { time: Time(index * 50), thread: ThreadId(thread as u32), call: call.into(), kind }
        })
        .collect()
}
