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
