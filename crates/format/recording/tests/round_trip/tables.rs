//! The other chunks that are tables: sites, timelines, samples of memory, mappings, annotations.

use heapledger_core::{Blocks, Bytes, StackId, ThreadId};
use heapledger_recording::*;
use proptest::prelude::*;

use crate::generate::{bytes, live, number, stack};
use crate::{FOOTER, file};

proptest! {
    #[test]
    fn site_chunks(sites in prop::collection::vec((stack(), number(), number(), number(), live(), live(), live()), 0..50)) {
        let site = |(stack, allocations, bytes_allocated, temporaries, live_end, live_at_image_peak, live_at_session_peak)| Site {
            stack,
            allocations: Blocks(allocations),
            bytes_allocated: Bytes(bytes_allocated),
            temporaries: Blocks(temporaries),
            live_end,
            live_at_image_peak,
            live_at_session_peak,
            errors: match allocations.is_multiple_of(4) {
                true => SiteErrors { allocated: live_end, live_at_session_peak: live_at_image_peak, ..SiteErrors::default() },
                false => SiteErrors::default(),
            },
        };
        let sites: Vec<Site> = sites.into_iter().map(site).collect();
        let file = file(&SitesEncoder::encode(ImageId(3), &sites, &mut Compressor::new()).unwrap(), &FOOTER);
        let recording = Recording::open(&file).unwrap();
        prop_assert_eq!(recording.sites(ImageId(3)), Rows { rows: sites, damage: vec![] });
        prop_assert_eq!(recording.sites(ImageId(2)), Rows { rows: vec![], damage: vec![] });
    }

    #[test]
    fn timelines(samples in prop::collection::vec((number(), live()), 0..50), image in prop::option::of(Just(ImageId(4)))) {
        let mut samples: Vec<Sample> = samples.into_iter().map(|(time, live)| Sample { time: Time(time), live }).collect();
        samples.sort_by_key(|sample| sample.time);
        let file = file(&TimelineEncoder::encode(image, &samples, &mut Compressor::new()).unwrap(), &FOOTER);
        let recording = Recording::open(&file).unwrap();
        let (of_session, of_image) = (recording.timeline().rows, recording.image_timeline(ImageId(4)).rows);
        prop_assert_eq!(if image.is_some() { of_image } else { of_session }, samples);
    }

    #[test]
    fn memory_samples(samples in prop::collection::vec(prop::collection::vec(number(), 7), 0..50)) {
        let mut samples: Vec<MemorySample> = samples.into_iter().map(|n| MemorySample {
            time: Time(n[0]),
            resident: Bytes(n[1]),
            resident_anonymous: Bytes(n[2]),
            resident_file: Bytes(n[3]),
            heap: Bytes(n[4]),
            mappings: Bytes(n[5]),
            swapped: Bytes(n[6]),
        }).collect();
        samples.sort_by_key(|sample| sample.time);
        let file = file(&MemoryEncoder::encode(ImageId(4), &samples, &mut Compressor::new()).unwrap(), &FOOTER);
        let recording = Recording::open(&file).unwrap();
        prop_assert_eq!(recording.memory(ImageId(4)), Rows { rows: samples, damage: vec![] });
        prop_assert_eq!(recording.memory(ImageId(3)).rows, vec![]);
    }

    #[test]
    fn mapping_chunks(
        events in prop::collection::vec((prop::collection::vec(number(), 8), stack(), any::<[u8; 4]>(), any::<[u32; 3]>()), 0..50),
        cut in 1usize..50,
    ) {
        let image = ImageId(2);
        let mut events: Vec<MappingEvent> = events.into_iter().map(|(n, stack, small, words)| mapping_event(&n, stack, small, words)).collect();
        events.sort_by_key(|event| event.time);
        let mut encoder = MappingsEncoder::new(image);
        let mut chunks = Vec::new();
        for part in events.chunks(cut) {
            part.iter().for_each(|event| encoder.push(event).unwrap());
            chunks.extend(encoder.finish(&mut Compressor::new()));
        }
        let file = file(&chunks, &FOOTER);
        let recording = Recording::open(&file).unwrap();
        let read: Result<Vec<MappingEvent>, RecordingError> = recording.mapping_events(image).collect();
        prop_assert_eq!(recording.has_mapping_events(), !events.is_empty());
        prop_assert_eq!(read.unwrap(), events);
        prop_assert_eq!(recording.mapping_events(ImageId(1)).count(), 0);
    }

    #[test]
    fn annotation_chunks(annotations in prop::collection::vec((any::<u32>(), number(), any::<u32>(), bytes()), 0..50), cut in 1usize..50) {
        let image = ImageId(2);
        let annotation = |(thread, time, code, payload)| Annotation { image, thread: ThreadId(thread), time: Time(time), code, payload };
        let annotations: Vec<Annotation> = annotations.into_iter().map(annotation).collect();
        let mut encoder = AnnotationsEncoder::new(image);
        let mut chunks = Vec::new();
        for part in annotations.chunks(cut) {
            part.iter().for_each(|annotation| encoder.push(annotation).unwrap());
            chunks.extend(encoder.finish(&mut Compressor::new()));
        }
        let file = file(&chunks, &FOOTER);
        let recording = Recording::open(&file).unwrap();
        let read: Result<Vec<Annotation>, RecordingError> = recording.annotations(image).collect();
        prop_assert_eq!(read.unwrap(), annotations);
    }

    #[test]
    fn resident_snapshots(
        figures in prop::collection::vec(number(), 20),
        parts in prop::collection::vec(("[a-z-]{0,9}", "\\PC{0,12}", prop::collection::vec(number(), 6)), 0..20),
        sites in prop::collection::btree_map(0..1_u32 << 26, prop::collection::vec(number(), 7), 0..50),
    ) {
        let parts = parts.into_iter().map(|(kind, name, n)| SnapshotPart {
            kind,
            name,
            count: n[0],
            mapped: Bytes(n[1]),
            resident: Bytes(n[2]),
            private_dirty: Bytes(n[3]),
            shared: Bytes(n[4]),
            live: Bytes(n[5]),
        });
        let sites = sites.into_iter().map(|(stack, n)| SnapshotSite {
            stack: StackId(stack),
            blocks: Blocks(n[0]),
            bytes: Bytes(n[1]),
            resident: Bytes(n[2]),
            slop: Bytes(n[3]),
            kept: Bytes(n[4]),
            pages_alone: n[5],
            pages_sparse: n[6],
        });
        let f = |at: usize| Bytes(figures[at]);
        let snapshot = ResidentSnapshot {
            time: Time(figures[0]),
            figures: ResidentFigures {
                cause: SnapshotCause::Fall,
                read_ns: figures[1],
                copy_ns: figures[2],
                resident: f(3),
                anonymous: f(4),
                huge: f(5),
                resident_max: f(6),
                swapped: f(7),
                huge_tlb: f(8),
                page_tables: f(9),
                mapped: f(10),
                reserved: f(11),
                trimmable: f(12),
                threads: figures[13],
                knows_zeroes: figures[14] % 2 == 0,
                has_sites: figures[15] % 2 == 0,
                live: Live { bytes: f(16), blocks: Blocks(figures[17]) },
                page_size: Bytes(4096),
                heap_pages: figures[18],
                pages_by_fill: [1, 2, figures[19], 4],
                pages_alone: figures[0],
                arenas: 3,
                caches: figures[1],
            },
            parts: parts.collect(),
            sites: sites.collect(),
        };
        let file = file(&ResidentEncoder::encode(ImageId(4), &snapshot, &mut Compressor::new()).unwrap(), &FOOTER);
        let recording = Recording::open(&file).unwrap();
        prop_assert_eq!(recording.verify(), vec![]);
        prop_assert_eq!(recording.resident_snapshots(ImageId(4)), Rows { rows: vec![snapshot], damage: vec![] });
        prop_assert_eq!(recording.resident_snapshots(ImageId(3)).rows, vec![]);
    }
}

/// A snapshot with more sites than a chunk has rows is read as one.
#[test]
fn a_snapshot_of_several_chunks() {
    let site = |stack| SnapshotSite { stack: StackId(stack), blocks: Blocks(1), ..SnapshotSite::default() };
    let sites: Vec<SnapshotSite> = (0..CHUNK_ROWS_MAX as u32 + 3).map(site).collect();
    let snapshot = |time| ResidentSnapshot { time: Time(time), sites: Vec::clone(&sites), ..Default::default() };
    let snapshots = [5, 9].map(snapshot);
    let encode = |snapshot| ResidentEncoder::encode(ImageId(0), snapshot, &mut Compressor::new()).unwrap();
    let chunks: Vec<EncodedChunk> = snapshots.iter().flat_map(encode).collect();
    assert_eq!(chunks.len(), 4);
    let written = file(&chunks, &FOOTER);
    let recording = Recording::open(&written).unwrap();
    assert_eq!(recording.verify(), []);
    let read = recording.resident_snapshots(ImageId(0));
    assert!(read.rows == snapshots && read.damage.is_empty());
    // Without its first chunk, a snapshot is not taken for a part of the one before.
    let written = file(&[&chunks[..2], &chunks[3..]].concat(), &FOOTER);
    let read = Recording::open(&written).unwrap().resident_snapshots(ImageId(0));
    assert!(read.rows == snapshots[..1] && read.damage.len() == 1);
}

/// Returns an event whose fields are made from numbers: any that the format can hold.
fn mapping_event(n: &[u64], stack: StackId, small: [u8; 4], words: [u32; 3]) -> MappingEvent {
    let bytes = n[1].max(1);
    let within = |address: u64| address % (u64::MAX - bytes + 1);
    let protection = Protection::from_bits(small[1]);
    let change = match small[0] % 5 {
        0 => MappingChange::Mapped {
            kind: MappingKind::from_number(small[2]),
            protection,
            flags: MappingFlags::from_bits(words[0]),
            file: TextId(words[1]),
            offset: n[2],
        },
        1 => MappingChange::Unmapped,
        2 => MappingChange::Moved { to: within(n[3]) },
        3 => MappingChange::Protected { protection },
        _ => MappingChange::Advised { advice: words[0] },
    };
    MappingEvent {
        time: Time(n[4]),
        thread: words[2].is_multiple_of(2).then_some(ThreadId(words[2])),
        stack,
        call: MappingCall::from_number(small[3]),
        serial: MappingSerial(n[5]),
        start: within(n[6]),
        bytes: Bytes(bytes),
        change,
    }
}
