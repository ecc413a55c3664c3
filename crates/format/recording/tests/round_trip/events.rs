//! Chunks of events.

use heapledger_core::sample::Rate;
use heapledger_core::{Api, Blocks, Bytes, Serial, StackId, ThreadId};
use heapledger_recording::*;
use proptest::prelude::*;

use crate::generate::{live, number, stack};
use crate::{FOOTER, file};

proptest! {
    #[test]
    fn event_chunks(drafts in prop::collection::vec(draft(), 1..200), tick_ns in prop_oneof![Just(1u32), Just(100_000), any::<u32>()], cut in 1usize..200) {
        let events = events(&drafts);
        let image = ImageId(7);
        let mut encoder = EventsEncoder::new(image).with_tick_ns(tick_ns);
        let mut compressor = Compressor::new();
        let mut chunks = Vec::new();
        for part in events.chunks(cut) {
            for (event, extras, live) in part {
                encoder.push(event, extras, *live).unwrap();
            }
            prop_assert_eq!(encoder.len(), part.iter().filter(|event| is_row(event)).count());
            chunks.extend(encoder.finish_raw().map(|chunk| chunk.compress(&mut compressor)));
        }
        let file = file(&chunks, &FOOTER);
        let recording = Recording::open(&file).unwrap();
        prop_assert_eq!(recording.verify(), []);
        let mut buffer = EventsBuffer::default();
        let mut live_before = Live::default();
        let mut serial = 0;
        prop_assert_eq!(recording.event_chunks(image).count(), events.chunks(cut).len());
        for (chunk, part) in recording.event_chunks(image).zip(events.chunks(cut)) {
            let head = *chunk.head();
            let rows = part.iter().filter(|event| is_row(event));
            prop_assert_eq!((head.rows as usize, (head.rows + head.moves) as usize), (rows.clone().count(), part.len()));
            let last = rows.clone().next_back().map_or(part[0].0.time, |(event, ..)| event.time);
            prop_assert_eq!((head.time_first, head.time_last), (part[0].0.time, last));
            prop_assert_eq!((head.live_before, head.live_after), (live_before, part[part.len() - 1].2));
            prop_assert_eq!(head.bytes_live_max, rows.map(|(_, _, live)| live.bytes).max().unwrap_or_default());
            prop_assert_eq!(head.serial_first, Serial(serial));
            let decoded = chunk.decode(&mut buffer).unwrap();
            prop_assert_eq!(decoded.as_slice().len(), part.len());
            for (index, (event, extras, _)) in part.iter().enumerate() {
                let read = decoded.as_slice()[index];
                if !is_row(&part[index]) {
                    prop_assert_eq!(read.kind, event.kind);
                    prop_assert_eq!(decoded.extras(index), Extras::NONE);
                    continue;
                }
                prop_assert_eq!((read.thread, read.call, read.kind), (event.thread, event.call, event.kind));
                let tick = u64::from(tick_ns.max(1));
                prop_assert!(read.time <= event.time && event.time.0 - read.time.0 < tick);
                prop_assert_eq!((read.time.0 - head.time_first.0) % tick, 0);
                prop_assert_eq!(decoded.extras(index), *extras);
            }
            live_before = head.live_after;
            serial += u64::from(head.serials);
        }
        prop_assert_eq!(encoder.next_serial(), Serial(serial));
    }
}

#[test]
fn a_full_chunk_of_events_takes_no_more() {
    let mut encoder = EventsEncoder::new(ImageId(0));
    let kind = EventKind::Failed { size: Bytes(u64::MAX), stack: StackId(0) };
    let event = |thread| Event {
        time: Time(thread << 32),
        thread: ThreadId(thread as u32),
        call: Api::Malloc.into(),
        sampled: Sampled::NOT,
        kind,
    };
    let most = Some(u64::MAX);
    let extras =
        Extras { alignment: most, count: most, usable: Some(Bytes(u64::MAX)), weight: Some(Blocks(0)), ..Extras::NONE };
    for extras in [Extras::NONE, extras] {
        let mut pushed = 0;
        while !encoder.is_full() {
            // Every field is as long as it can be, and still fits.
            encoder.push(&event(pushed % 2 + 0xffff_0000), &extras, Live::default()).unwrap();
            pushed += 1;
        }
        assert!(encoder.push(&event(0), &Extras::NONE, Live::default()).is_err());
        let chunk = encoder.finish(&mut Compressor::new()).expect("the contents fit a chunk");
        assert_eq!(chunk.head().rows as u64, pushed);
        let file = file(&[chunk], &FOOTER);
        assert_eq!(Recording::open(&file).unwrap().verify(), []);
    }
}

/// Allocators round sizes up the same way nearly always, which must cost next to nothing.
#[test]
fn usable_sizes_that_follow_from_sizes_take_little_room() {
    let length = |usable: &dyn Fn(u64, u64) -> Option<u64>| {
        let mut encoder = EventsEncoder::new(ImageId(0));
        for serial in 0..100_000 {
            let size = serial * serial % 1000;
            let kind = EventKind::Alloc { serial: Serial(serial), size: Bytes(size), stack: StackId(1) };
            let (call, sampled) = (Api::Malloc.into(), Sampled::NOT);
            let event = Event { time: Time(serial), thread: ThreadId(0), call, sampled, kind };
            let extras = Extras { usable: usable(serial, size).map(Bytes), ..Extras::NONE };
            encoder.push(&event, &extras, Live::default()).unwrap();
        }
        let raw = encoder.finish_raw().unwrap();
        let chunk = raw.compress(&mut Compressor::new());
        let file = file(&[chunk], &FOOTER);
        let recording = Recording::open(&file).unwrap();
        let mut buffer = EventsBuffer::default();
        let decoded = recording.event_chunks(ImageId(0)).next().unwrap().decode(&mut buffer).unwrap();
        for serial in 0..100_000 {
            let read = decoded.extras(serial as usize).usable;
            assert_eq!(read, usable(serial, serial * serial % 1000).map(Bytes), "{serial}");
        }
        file.len()
    };
    let without = length(&|_, _| None);
    let rounded = |size: u64| (size + 8).next_multiple_of(16).max(32) - 8;
    let regular = length(&|_, size| Some(rounded(size)));
    assert!(regular < without + 3000, "{regular} and {without} bytes");
    // One in a hundred blocks is larger: an exception each.
    let irregular = length(&|serial, size| Some(rounded(size) + u64::from(serial % 100 == 0) * 16));
    assert!(irregular < regular + 6000, "{irregular} and {regular} bytes");
}

fn extras() -> impl Strategy<Value = Extras> {
    let option = || prop::option::weighted(0.2, number());
    let bytes = || option().prop_map(|bytes| bytes.map(Bytes));
    let errno = prop::option::weighted(0.2, any::<u32>());
    let blocks = || option().prop_map(|blocks| blocks.map(Blocks));
    let some = (option(), option(), bytes(), blocks(), errno, bytes(), bytes()).prop_map(
        |(alignment, count, usable, weight, errno, freed_size, declared_size)| Extras {
            alignment,
            count,
            usable,
            weight,
            errno,
            freed_size,
            declared_size,
        },
    );
    prop_oneof![3 => Just(Extras::NONE), 1 => some]
}

/// Returns a relation to the sample that the event can have, for every other event.
fn sampled(kind: &EventKind, number: u64) -> Sampled {
    let rate = Rate::from_logarithm(number % 82);
    match kind {
        _ if number.is_multiple_of(2) => Sampled::NOT,
        EventKind::Alloc { .. } => Sampled { rate, after_unsampled: false },
        EventKind::Free { .. } => Sampled { rate: Rate::EXACT, after_unsampled: true },
        EventKind::Realloc { .. } => Sampled { rate, after_unsampled: number.is_multiple_of(3) },
        EventKind::Failed { .. } | EventKind::Reattributed { .. } => Sampled::NOT,
    }
}

/// An event whose serials are not yet right: released blocks count back from the next serial.
pub(crate) type Draft = (u64, u32, u8, u64, u64, StackId, Extras, Live);

pub(crate) fn draft() -> impl Strategy<Value = Draft> {
    (number(), 0u32..4, any::<u8>(), number(), number(), stack(), extras(), live())
}

pub(crate) fn events(drafts: &[Draft]) -> Vec<(Event, Extras, Live)> {
    let mut time = 0u64;
    let mut next = 0;
    let mut last = Live::default();
    let make = |&(step, thread, choice, size, back, stack, extras, live): &Draft| {
        // Steps of all sizes, but never near the end of time.
        time += step >> 10;
        let serial = Serial(next);
        let size = Bytes(size);
        let freed = match (choice >> 4) % 4 {
            0 => FreedBlock::Unknown,
            1 => FreedBlock::Inherited,
            _ if next == 0 => FreedBlock::None,
            _ => FreedBlock::Known(Serial(next - 1 - back % next)),
        };
        let (call, kind) = match choice % 4 {
            0 => (Api::Malloc.into(), EventKind::Alloc { serial, size, stack }),
            // Now and then between the others, on an existing block.
            2 if choice >= 0xe0 && next > 0 => {
                (Api::Malloc.into(), EventKind::Reattributed { block: Serial(next - 1 - back % next), stack })
            }
            1 => (Call::from_number(63).unwrap(), EventKind::Free { block: freed }),
            2 => (Api::Realloc.into(), EventKind::Realloc { old: freed, serial, size, stack }),
            _ => (Api::Calloc.into(), EventKind::Failed { size, stack }),
        };
        if matches!(kind, EventKind::Alloc { .. } | EventKind::Realloc { .. }) {
            next += 1;
        }
        // Mostly sizes as allocators give them, and now and then any number.
        let usable = match extras.usable {
            _ if choice % 8 < 3 => Some(Bytes(size.0.saturating_add(8 - size.0 % 8))),
            usable if choice % 16 == 4 => usable.map(|usable| Bytes(size.0.saturating_add(usable.0 % 3))),
            usable => usable,
        };
        let usable = if matches!(kind, EventKind::Free { .. }) { extras.usable } else { usable };
        let extras = Extras { usable, ..extras };
        let is_row = !matches!(kind, EventKind::Reattributed { .. });
        let (extras, live) = if is_row { (extras, live) } else { (Extras::NONE, last) };
        last = live;
        (Event { time: Time(time), thread: ThreadId(thread), call, sampled: sampled(&kind, time), kind }, extras, live)
    };
    drafts.iter().map(make).collect()
}

/// True if it is a call.
pub(crate) fn is_row((event, ..): &(Event, Extras, Live)) -> bool {
    !matches!(event.kind, EventKind::Reattributed { .. })
}
