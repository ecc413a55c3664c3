//! Everything that is written is read again: each kind of chunk, and whole files.

use heapledger_core::{Api, Blocks, Bytes, Serial, StackId, ThreadId};
use heapledger_recording::*;

mod checkpoints;
mod events;
mod generate;
mod marks;
mod nodes;
mod records;
mod tables;

/// Returns a file of these chunks.
fn file(chunks: &[EncodedChunk], footer: &Footer) -> Vec<u8> {
    let mut writer = RecordingWriter::new();
    let mut file = Vec::new();
    for chunk in chunks {
        writer.push(chunk);
        file.extend_from_slice(writer.pending());
        writer.clear_pending();
        assert_eq!(writer.length(), file.len() as u64);
    }
    writer.finish(footer, &mut Compressor::new());
    file.extend_from_slice(writer.pending());
    file
}

const FOOTER: Footer = Footer {
    time: Time(1),
    complete: true,
    counts: Counts {
        allocations: Blocks(1),
        reallocations: Blocks(2),
        frees: Blocks(3),
        failed: Blocks(4),
        bytes_allocated: Bytes(5),
        bytes_live_max: Bytes(6),
        bytes_live_max_time: Time(7),
        blocks_at_bytes_max: Blocks(8),
        blocks_live_max: Blocks(9),
        bytes_live_end: Bytes(10),
        blocks_live_end: Blocks(11),
        temporary_allocations: Blocks(12),
        frees_unknown: Blocks(13),
        frees_inherited: Blocks(14),
        bytes_inherited_live_end: Bytes(15),
        blocks_inherited_live_end: Blocks(16),
        events_lost: 17,
        events_late: 18,
        threads: 19,
        events_lost_full: 20,
        events_lost_nested: 21,
        events_lost_no_ring: 22,
        events_lost_unreadable: 23,
        events_lost_pools: 31,
        stamps_unknown: 32,
        frees_missed: Blocks(34),
        events_reordered: 35,
        frees_paused: Blocks(24),
        stacks: StackCounts {
            truncated: 25,
            dropped: 26,
            verified: 27,
            mismatched: 28,
            unasked: 29,
            outlasting: 30,
            missing: 33,
            folded: 36,
            unproven: 37,
        },
        errors: None,
    },
    exit: Some(ExitStatus::Code(-1)),
    costs: RunCosts {
        collector_cpu_ns: Some(1),
        collector_rss_max: Some(Bytes(2)),
        ring_bytes: None,
        target_private_bytes: Some(Bytes(0)),
        hook_ns: Some(5),
        program_cpu_ns: Some(6),
        program_wall_ns: Some(7),
    },
    peak_least: Some(Live { bytes: Bytes(5), blocks: Blocks(0) }),
};

#[test]
fn many_chunks_need_several_index_chunks() {
    let mut compressor = Compressor::new();
    let chunk = encode_records(&[Record::Module(Module::default())], &mut compressor).unwrap().remove(0);
    let chunks = vec![chunk; CHUNK_ROWS_MAX + 10];
    let file = file(&chunks, &FOOTER);
    let recording = Recording::open(&file).unwrap();
    assert!(recording.complete());
    assert_eq!(recording.chunks().len(), chunks.len());
    let indexes = file.windows(10).filter(|window| window == b"\x89HLC\r\n\x1a\n\x08\0").count();
    assert!(indexes > 1, "{indexes}");
}

#[test]
fn encoders_refuse_what_cannot_be_recorded() {
    let mut encoder = EventsEncoder::new(ImageId(0));
    let mut push = |kind| {
        let event = Event { time: Time(0), thread: ThreadId(0), call: Api::Malloc.into(), sampled: Sampled::NOT, kind };
        encoder.push(&event, &Extras::NONE, Live::default()).is_ok()
    };
    let alloc = |serial, stack| EventKind::Alloc { serial: Serial(serial), size: Bytes(1), stack: StackId(stack) };
    let free = |serial| EventKind::Free { block: FreedBlock::Known(Serial(serial)) };
    assert!(!push(alloc(1, 0)));
    assert!(!push(alloc(0, StackId::MAX.0 + 1)));
    assert!(!push(free(0)));
    assert!(push(alloc(0, StackId::MAX.0)));
    assert!(!push(alloc(0, 0)));
    assert!(!push(free(1)));
    assert!(push(free(0)));
    assert_eq!(encoder.len(), 2);
    assert_eq!(encoder.finish(&mut Compressor::new()).unwrap().head().rows, 2);
    assert!(encoder.finish(&mut Compressor::new()).is_none());

    let node = Node {
        id: StackId::ROOT,
        parent: StackId::ROOT,
        kind: NodeKind::Frame,
        module: ModuleId(0),
        offset: 0,
        is_unproven: false,
    };
    assert!(NodesEncoder::new(ImageId(0)).push(&node).is_err());
    let backwards = [Time(2), Time(1)].map(|time| Sample { time, ..Sample::default() });
    assert!(TimelineEncoder::encode(None, &backwards, &mut Compressor::new()).is_err());
    let backwards = [Time(2), Time(1)].map(|time| MemorySample { time, ..MemorySample::default() });
    assert!(MemoryEncoder::encode(ImageId(0), &backwards, &mut Compressor::new()).is_err());
    let site = |stack| SnapshotSite { stack: StackId(stack), ..SnapshotSite::default() };
    for sites in [vec![site(1), site(1)], vec![site(StackId::MAX.0 + 1)]] {
        let snapshot = ResidentSnapshot { sites, ..ResidentSnapshot::default() };
        assert!(ResidentEncoder::encode(ImageId(0), &snapshot, &mut Compressor::new()).is_err());
    }
    let parts = vec![SnapshotPart::default(); SNAPSHOT_PARTS_MAX + 1];
    let snapshot = ResidentSnapshot { parts, ..ResidentSnapshot::default() };
    assert!(ResidentEncoder::encode(ImageId(0), &snapshot, &mut Compressor::new()).is_err());
    let huge = Module { path: vec![b'x'; CHUNK_RAW_MAX], ..Module::default() };
    assert!(encode_records(&[Record::Module(huge)], &mut Compressor::new()).is_err());
}
