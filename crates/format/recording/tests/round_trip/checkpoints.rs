//! Checkpoints, and the events that follow them.

use heapledger_core::sample::Rate;
use heapledger_core::{Api, Blocks, Bytes, Serial, StackId, ThreadId};
use heapledger_recording::*;
use proptest::prelude::*;

use crate::generate::{counts, number, stack};
use crate::{FOOTER, file};

proptest! {
    #[test]
    fn checkpoints(checkpoints in prop::collection::vec((number(), counts(), prop::collection::vec((number(), number(), stack()), 0..40)), 0..4)) {
        let image = ImageId(1);
        let mut compressor = Compressor::new();
        let next = Serial(u64::MAX);
        let mut chunks = Vec::new();
        for (time, counts, blocks) in &checkpoints {
            let encoder = CheckpointEncoder::new(image, Time(*time), next, *counts);
            chunks.extend(encoder.encode(&live_blocks(blocks), &mut compressor).unwrap());
        }
        let file = file(&chunks, &FOOTER);
        let recording = Recording::open(&file).unwrap();
        prop_assert_eq!(recording.verify(), []);
        prop_assert_eq!(recording.checkpoints(image).len(), checkpoints.len());
        for (read, (time, counts, blocks)) in recording.checkpoints(image).iter().zip(&checkpoints) {
            prop_assert_eq!((read.time(), read.next_serial(), read.counts(), read.len()), (Time(*time), next, *counts, blocks.len()));
            let mut all = Vec::new();
            read.for_each_part(|part| all.extend_from_slice(part)).unwrap();
            prop_assert_eq!(all, live_blocks(blocks));
        }
        if let Some((_, counts, _)) = checkpoints.last() {
            prop_assert_eq!(recording.image_counts(image), Some(counts));
        }
    }
}

#[test]
fn large_checkpoints_come_in_parts() {
    let mut compressor = Compressor::new();
    let block = |serial| LiveBlock {
        serial: Serial(serial),
        size: Bytes(serial * 7 % 1000),
        stack: StackId(1),
        rate: Rate::EXACT,
        usable: serial.is_multiple_of(3).then_some(Bytes(1000 + serial % 5)),
    };
    let blocks: Vec<LiveBlock> = (0..2 * CHUNK_ROWS_MAX as u64 + 1).map(block).collect();
    let encode = |time, compressor: &mut Compressor| {
        let encoder = CheckpointEncoder::new(ImageId(0), Time(time), Serial(blocks.len() as u64), Counts::default());
        encoder.encode(&blocks, compressor).unwrap()
    };
    let (first, second) = (encode(10, &mut compressor), encode(20, &mut compressor));
    assert_eq!(first.len(), 3);
    let whole = file(&[&first[..], &second[..]].concat(), &FOOTER);
    let recording = Recording::open(&whole).unwrap();
    let found = recording.checkpoint_before(ImageId(0), Time(19)).unwrap();
    assert_eq!((found.time(), found.len()), (Time(10), blocks.len()));
    assert!(recording.checkpoint_before(ImageId(0), Time(9)).is_none());
    let mut all = Vec::new();
    found.for_each_part(|part| all.extend_from_slice(part)).unwrap();
    assert_eq!(all, blocks);
    // A checkpoint without one of its parts is not a checkpoint.
    for missing in 0..3 {
        let mut chunks = first.clone();
        chunks.remove(missing);
        chunks.extend_from_slice(&second);
        let file = file(&chunks, &FOOTER);
        let recording = Recording::open(&file).unwrap();
        let times: Vec<Time> = recording.checkpoints(ImageId(0)).iter().map(Checkpoint::time).collect();
        assert_eq!(times, [Time(20)]);
    }
}

#[test]
fn replay_goes_on_with_the_chunks_after_a_checkpoint() {
    let mut compressor = Compressor::new();
    let mut encoder = EventsEncoder::new(ImageId(0));
    let mut chunks = Vec::new();
    for serial in 0..5 {
        let kind = EventKind::Alloc { serial: Serial(serial), size: Bytes(1), stack: StackId(1) };
        let event =
            Event { time: Time(serial), thread: ThreadId(0), call: Api::Malloc.into(), sampled: Sampled::NOT, kind };
        encoder.push(&event, &Extras::NONE, Live::default()).unwrap();
        chunks.extend(encoder.finish(&mut compressor));
        if serial == 2 {
            let checkpoint = CheckpointEncoder::new(ImageId(0), Time(2), Serial(3), Counts::default());
            chunks.extend(checkpoint.encode(&[], &mut compressor).unwrap());
        }
    }
    let file = file(&chunks, &FOOTER);
    let recording = Recording::open(&file).unwrap();
    let checkpoint = recording.checkpoint_before(ImageId(0), Time(4)).unwrap();
    assert!(checkpoint.is_empty());
    let serials: Vec<Serial> = checkpoint.event_chunks_after().map(|chunk| chunk.head().serial_first).collect();
    assert_eq!(serials, [Serial(3), Serial(4)]);
}

/// A recording that begins in mid-run: see "Recordings that begin in mid-run" in FORMAT.md.
#[test]
fn carried_blocks_are_those_before_the_first_events() {
    let compressor = &mut Compressor::new();
    let carried = Some(Live { bytes: Bytes(30), blocks: Blocks(2) });
    let start =
        |image, carried| Record::ImageStart(ImageStart { image: ImageId(image), carried, ..Default::default() });
    let (size, stack, rate) = (Bytes(15), StackId(1), Rate::EXACT);
    let block = |serial| LiveBlock { serial: Serial(serial), size, stack, rate, usable: None };
    let checkpoint = |image, compressor: &mut Compressor| {
        let counts = Counts { bytes_live_max: Bytes(30), ..Counts::default() };
        let checkpoint = CheckpointEncoder::new(ImageId(image), Time(500), Serial(1000), counts);
        checkpoint.encode(&[block(7), block(999)], compressor).unwrap()
    };
    let events = |image, compressor: &mut Compressor| {
        let live = Live { bytes: Bytes(30), blocks: Blocks(2) };
        let mut events = EventsEncoder::new(ImageId(image)).starting_at(Serial(1000), live);
        let freed = EventKind::Free { block: FreedBlock::Known(Serial(7)) };
        let event =
            Event { time: Time(600), thread: ThreadId(0), call: Api::Free.into(), sampled: Sampled::NOT, kind: freed };
        events.push(&event, &Extras::NONE, Live { bytes: Bytes(15), blocks: Blocks(1) }).unwrap();
        events.finish(compressor).unwrap()
    };
    let mut chunks = encode_records(&[start(0, carried), start(1, None), start(2, carried)], compressor).unwrap();
    chunks.extend(checkpoint(0, compressor));
    chunks.push(events(0, compressor));
    chunks.extend(checkpoint(1, compressor));
    chunks.push(events(2, compressor));
    chunks.extend(checkpoint(2, compressor));
    let file = file(&chunks, &FOOTER);
    let recording = Recording::open(&file).unwrap();
    let carried = recording.carried(ImageId(0)).unwrap();
    assert_eq!((carried.len(), carried.time(), carried.next_serial()), (2, Time(500), Serial(1000)));
    assert!(recording.carried(ImageId(1)).is_none(), "the image does not say that it carries blocks");
    assert!(recording.carried(ImageId(2)).is_none(), "a checkpoint behind the events is another one");
    let mut buffer = EventsBuffer::default();
    let first = recording.event_chunks(ImageId(0)).next().unwrap();
    assert_eq!((first.head().serial_first, first.head().live_before.bytes), (Serial(1000), Bytes(30)));
    let first = first.decode(&mut buffer).unwrap().as_slice()[0];
    assert_eq!(first.kind, EventKind::Free { block: FreedBlock::Known(Serial(7)) });
}

fn live_blocks(blocks: &[(u64, u64, StackId)]) -> Vec<LiveBlock> {
    let below_max = |serial: u64| Serial(serial & (u64::MAX >> 1));
    blocks
        .iter()
        .map(|&(serial, size, stack)| LiveBlock {
            serial: below_max(serial),
            size: Bytes(size),
            stack,
            rate: Rate::from_logarithm(size % 41),
            usable: size.checked_add(serial % 7).filter(|_| serial.is_multiple_of(2)).map(Bytes),
        })
        .collect()
}
