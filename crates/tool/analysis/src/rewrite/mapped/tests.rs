//! Checks recordings of mappings against an interval map of the same events.

use heapledger_core::{Bytes, StackId, ThreadId};
use heapledger_recording::{
    AddressSpace, Compressor, EncodedChunk, Footer, ImageEnd, ImageEndReason, ImageId, ImageStart, MappingCall,
    MappingChange, MappingEvent, MappingFlags, MappingKind, MappingSerial, MappingsEncoder, Node, NodeKind,
    NodesEncoder, Protection, Record, RecordingWriter, Session, Text, TextId, Thread, Time, encode_records,
};
use heapledger_symbols::{Symbolizer, SymbolizerOptions};
use proptest::prelude::*;

use super::*;
use crate::{Filter, Moment, Names, Part, PartBy, Pattern, Profile, Selection, parts};

const PAGE: u64 = 4096;
const READ_WRITE: Protection = Protection::from_bits(3);
const IMAGE: ImageId = ImageId(0);

fn mapped(kind: MappingKind, protection: Protection, flags: MappingFlags) -> MappingChange {
    MappingChange::Mapped { kind, protection, flags, file: TextId::UNKNOWN, offset: 0 }
}

/// The time between two events.
const STEP: u64 = 10_000_000;

/// Returns an event about pages of an address space.
fn event(number: u64, serial: u64, pages: (u64, u64), stack: u32, change: MappingChange) -> MappingEvent {
    MappingEvent {
        time: Time(number * STEP),
        thread: (stack > 0).then_some(ThreadId(stack % 2)),
        stack: StackId(stack),
        call: MappingCall::Mmap,
        serial: MappingSerial(serial),
        start: pages.0 * PAGE,
        bytes: Bytes(pages.1 * PAGE),
        change,
    }
}

/// Returns a recording of one image with these events and three stacks, and no blocks.
fn recorded(events: &[MappingEvent]) -> Vec<u8> {
    let (mut writer, mut compressor) = (RecordingWriter::new(), Compressor::new());
    let mut file = Vec::new();
    let end = Time(events.last().map_or(0, |event| event.time.0) + 1);
    let mut records = vec![
        Record::Session(Session::default()),
        Record::ImageStart(ImageStart { image: IMAGE, pid: 7, ..ImageStart::default() }),
        Record::ImageEnd(ImageEnd { image: IMAGE, time: end, reason: ImageEndReason::Exit, exit: None }),
        Record::Text(Text { text: TextId(1), bytes: b"/lib/a.so".to_vec(), ..Text::default() }),
    ];
    records.extend((0..2).map(|thread| {
        let name = format!("worker {thread}").into_bytes();
        Record::Thread(Thread { image: IMAGE, thread: ThreadId(thread), tid: 7 + thread, name, ..Thread::default() })
    }));
    let mut chunks: Vec<EncodedChunk> = encode_records(&records, &mut compressor).unwrap();
    let mut nodes = NodesEncoder::new(IMAGE);
    for id in 1..=3 {
        let (parent, module, offset) = (StackId(id - 1), ModuleId::UNKNOWN, u64::from(id) * 16);
        nodes
            .push(&Node { id: StackId(id), parent, kind: NodeKind::Frame, module, offset, is_unproven: false })
            .unwrap();
    }
    chunks.extend(nodes.finish(&mut compressor));
    let mut encoder = MappingsEncoder::new(IMAGE);
    events.iter().for_each(|event| encoder.push(event).unwrap());
    chunks.extend(encoder.finish(&mut compressor));
    for chunk in &chunks {
        writer.push(chunk);
        file.extend_from_slice(writer.pending());
        writer.clear_pending();
    }
    writer.finish(&Footer { time: end, complete: true, ..Footer::default() }, &mut compressor);
    file.extend_from_slice(writer.pending());
    file
}

/// Returns the recording of the mappings of a recording.
fn converted(file: &[u8]) -> Vec<u8> {
    let recording = Recording::open(file).unwrap();
    let mut so_far = Vec::new();
    let mut draft = Draft::new(&mut so_far);
    mappings(&recording, &mut draft).unwrap();
    draft.flush().unwrap();
    let mut bytes = Vec::new();
    let mut draft = Draft::new(&mut bytes);
    let (footer, damage) = mappings(&recording, &mut draft).unwrap();
    assert_eq!(damage, []);
    let so_far = Recording::open(&so_far).unwrap();
    draft.count_and_finish(&so_far, footer, &mut |_, _| ()).unwrap();
    bytes
}

/// Returns the bytes and blocks of each use at a moment.
fn uses(file: &[u8], moment: Moment) -> Vec<(String, u64, u64)> {
    let recording = Recording::open(file).unwrap();
    let mut names = Names::new(&recording, Symbolizer::new(SymbolizerOptions::default()));
    let profile = Profile::load(&mut names, &Selection::at(moment), &mut |_, _| ()).unwrap();
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for site in &profile.sites {
        let name = names.text(profile.stacks.heap(site.stack).unwrap());
        let sum = sums.entry(name).or_default();
        *sum = (sum.0 + site.amount.bytes.0, sum.1 + site.amount.blocks.0);
    }
    sums.into_iter().map(|(name, (bytes, blocks))| (name, bytes / PAGE, blocks)).collect()
}

fn shown(uses: &[(String, u64, u64)]) -> Vec<(&str, u64, u64)> {
    uses.iter().map(|(name, pages, blocks)| (name.as_str(), *pages, *blocks)).collect()
}

#[test]
fn a_mapping_is_cut_and_protected() {
    let none = MappingFlags::NONE;
    let original = recorded(&[
        event(0, 0, (100, 20), 0, mapped(MappingKind::File, READ_WRITE, MappingFlags::FOUND)),
        event(1, 1, (1000, 16), 1, mapped(MappingKind::Anonymous, READ_WRITE, none)),
        event(2, 2, (2000, 64), 2, mapped(MappingKind::Anonymous, Protection::NONE, MappingFlags::ALLOCATOR)),
        event(3, 2, (2000, 8), 2, MappingChange::Protected { protection: READ_WRITE }),
        event(4, 1, (1004, 4), 2, MappingChange::Unmapped),
        event(5, 1, (1008, 8), 2, MappingChange::Moved { to: 5000 * PAGE }),
        event(6, 1, (5000, 2), 1, MappingChange::Protected { protection: Protection::from_bits(5) }),
        event(7, 1, (5000, 2), 1, MappingChange::Protected { protection: READ_WRITE }),
        event(8, 1, (5002, 6), 1, MappingChange::Unmapped),
    ]);
    let file = converted(&original);
    let at = |time| uses(&file, Moment::At(Time(time * STEP)));
    assert_eq!(shown(&at(1)), [("anonymous", 16, 4), ("program and libraries", 20, 1)]);
    let reserved = [("allocator", 8, 1), ("allocator, reserved", 56, 1)];
    assert_eq!(shown(&at(3))[..2], reserved);
    assert_eq!(shown(&at(4))[2..], [("anonymous", 12, 3), ("program and libraries", 20, 1)]);
    // Moved memory is the same mapping. Code that is written to stays code.
    assert_eq!(shown(&at(6))[2..], [("anonymous", 10, 2), ("code", 2, 1), ("program and libraries", 20, 1)]);
    assert_eq!(at(6), at(7));
    let end = uses(&file, Moment::End);
    let totals = mapped_totals(&Recording::open(&original).unwrap()).unwrap().unwrap();
    let named = |(it, live): &(MappedUse, Live)| (it.name().to_owned(), live.bytes.0 / PAGE, live.blocks.0);
    let mut by_use: Vec<(String, u64, u64)> = totals.end.iter().map(named).collect();
    by_use.sort();
    assert_eq!(by_use, end);
    assert_eq!((totals.bytes_max.0 / PAGE, totals.bytes_max_time), (100, Time(2 * STEP)));
    assert_eq!(shown(&end)[2..], [("anonymous", 4, 1), ("code", 2, 1), ("program and libraries", 20, 1)]);
    // In all, only memory whose use changes later counts twice.
    let all: u64 = uses(&file, Moment::Total).iter().map(|(_, pages, _)| pages).sum();
    assert_eq!(all, 20 + 16 + 64 + 8 + 2);
}

/// The stack of a thread is mapped without access, which it gets at once.
#[test]
fn a_use_that_changes_at_once_is_no_other_mapping() {
    let none = MappingFlags::NONE;
    let mut allowed = event(1, 0, (101, 19), 1, MappingChange::Protected { protection: READ_WRITE });
    allowed.time = Time(STEP + 5_000);
    let file =
        converted(&recorded(&[event(1, 0, (100, 20), 1, mapped(MappingKind::Stack, Protection::NONE, none)), allowed]));
    let expected = [("reserved", 1, 1), ("stack", 19, 1)];
    [Moment::At(Time(STEP)), Moment::Total, Moment::End]
        .into_iter()
        .for_each(|moment| assert_eq!(shown(&uses(&file, moment)), expected, "{moment:?}"));
}

#[test]
fn mappings_have_threads_files_and_kinds() {
    let file_of = |change| match change {
        MappingChange::Mapped { kind, protection, flags, offset, .. } => {
            MappingChange::Mapped { kind, protection, flags, file: TextId(1), offset }
        }
        other => other,
    };
    let none = MappingFlags::NONE;
    let file = converted(&recorded(&[
        event(0, 0, (100, 20), 0, file_of(mapped(MappingKind::File, READ_WRITE, MappingFlags::FOUND))),
        event(1, 1, (1000, 16), 1, mapped(MappingKind::Anonymous, READ_WRITE, none)),
        event(2, 2, (2000, 5), 2, file_of(mapped(MappingKind::File, READ_WRITE, none))),
    ]));
    let recording = Recording::open(&file).unwrap();
    assert!(recording.complete() && recording.verify().is_empty());
    let mut names = Names::new(&recording, Symbolizer::new(SymbolizerOptions::default()));
    let found = parts(&mut names, PartBy::Thread, &Selection::at(Moment::End), &mut |_, _| ()).unwrap();
    let mut threads: Vec<(Part, u64)> =
        found.parts.iter().map(|(part, amounts)| (*part, amounts.live.bytes.0 / PAGE)).collect();
    threads.sort();
    let thread = |number| Part::Thread(IMAGE, ThreadId(number));
    assert_eq!(threads, [(thread(0), 5), (thread(1), 16), (thread(2), 20)]);
    assert_eq!(recording.thread(IMAGE, ThreadId(2)).unwrap().name, b"(not seen)");
    let only = |filter: Filter| {
        let selection = Selection { filter, ..Selection::at(Moment::End) };
        let mut names = Names::new(&recording, Symbolizer::new(SymbolizerOptions::default()));
        Profile::load(&mut names, &selection, &mut |_, _| ()).unwrap().whole.bytes.0 / PAGE
    };
    let pattern = |text: &str| vec![Pattern::new(text).unwrap()];
    assert_eq!(only(Filter { heaps: pattern("file"), ..Filter::default() }), 5);
    assert_eq!(only(Filter { types: pattern("a.so"), ..Filter::default() }), 25);
}

#[test]
fn a_recording_without_mappings_has_none() {
    let file = crate::testing::write(&[]).0;
    let refused = mappings(&Recording::open(&file).unwrap(), &mut Draft::new(Vec::new()));
    assert!(matches!(refused, Err(Error::Analysis(AnalysisError::NoMappings))), "{refused:?}");
}

#[test]
fn too_many_changes_are_refused() {
    // Each change of the protection of all of it concerns every part.
    let mut fragments = Fragments::default();
    let kind = mapped(MappingKind::Anonymous, READ_WRITE, MappingFlags::NONE);
    fragments.add(&event(0, 0, (0, 2000), 1, kind)).unwrap();
    let protect = |at, pages, protection| event(1, 0, (at, pages), 1, MappingChange::Protected { protection });
    let parts = (0..1000).try_for_each(|at| fragments.add(&protect(2 * at, 1, Protection::NONE)));
    parts.unwrap();
    let mut all = [READ_WRITE, Protection::NONE].into_iter().cycle().take(1000);
    assert!(all.any(|protection| fragments.add(&protect(0, 2000, protection)).is_err()));
}

/// Memory whose protection has changed often, and which is then unmapped page by page.
#[test]
fn many_changes_of_many_parts_are_refused() {
    let kind = mapped(MappingKind::Anonymous, READ_WRITE, MappingFlags::NONE);
    let protections = [Protection::NONE, READ_WRITE].into_iter().cycle();
    let flips = (1..)
        .zip(protections)
        .map(|(at, protection)| event(at, 0, (0, 600), 1, MappingChange::Protected { protection }));
    let unmapped = (0..300).map(|page| event(1000 + page, 0, (2 * page, 1), 1, MappingChange::Unmapped));
    let first = event(0, 0, (0, 600), 1, kind);
    let file = recorded(&std::iter::once(first).chain(flips.take(300)).chain(unmapped).collect::<Vec<_>>());
    let recording = Recording::open(&file).unwrap();
    let refused = mappings(&recording, &mut Draft::new(Vec::new()));
    assert!(matches!(refused, Err(Error::Analysis(AnalysisError::MappingsLimit))), "{refused:?}");
    let totals = mapped_totals(&recording).unwrap().unwrap();
    assert_eq!((totals.bytes_max.0, totals.end[0].1.bytes.0), (600 * PAGE, 300 * PAGE));
}

fn changes() -> impl Strategy<Value = Vec<(u64, u64, u32, MappingChange)>> {
    let protection = prop_oneof![Just(READ_WRITE), Just(Protection::NONE), Just(Protection::from_bits(7))];
    let change = prop_oneof![
        4 => (prop::sample::select(&MappingKind::ALL[..]), protection.clone(), 0_u32..8)
            .prop_map(|(kind, protection, flags)| mapped(kind, protection, MappingFlags::from_bits(flags))),
        3 => Just(MappingChange::Unmapped),
        1 => (0_u64..60).prop_map(|to| MappingChange::Moved { to: to * PAGE }),
        3 => protection.prop_map(|protection| MappingChange::Protected { protection }),
        1 => Just(MappingChange::Advised { advice: 4 }),
    ];
    prop::collection::vec((0_u64..60, 1_u64..20, 0_u32..4, change), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// At every moment, what is live is what is mapped.
    #[test]
    fn what_is_live_is_what_is_mapped(changes in changes()) {
        let events: Vec<MappingEvent> = (0..)
            .zip(changes)
            .map(|(number, (at, pages, stack, change))| event(number, number, (at, pages), stack, change))
            .collect();
        let file = converted(&recorded(&events));
        let recording = Recording::open(&file).unwrap();
        prop_assert!(recording.complete() && recording.verify().is_empty());
        let mut names = Names::new(&recording, Symbolizer::new(SymbolizerOptions::default()));
        let mut space = AddressSpace::default();
        let (mut most, mut mapped) = (0, 0);
        for event in &events {
            let before = space.bytes().0;
            space.apply(event);
            if let MappingChange::Mapped { .. } = event.change {
                mapped += event.bytes.0;
            }
            let selection = Selection::at(Moment::At(event.time));
            let profile = Profile::load(&mut names, &selection, &mut |_, _| ()).unwrap();
            prop_assert_eq!(profile.whole.bytes, space.bytes());
            most = most.max(space.bytes().0).max(before);
        }
        let whole = |moment| Profile::load(&mut names, &Selection::at(moment), &mut |_, _| ()).unwrap().whole.bytes.0;
        let totals = mapped_totals(&Recording::open(&recorded(&events)).unwrap()).unwrap().unwrap();
        prop_assert_eq!(totals.bytes_max.0, most);
        prop_assert_eq!(totals.end.iter().map(|(_, live)| live.bytes.0).sum::<u64>(), space.bytes().0);
        let [peak, end, total] = [Moment::Peak, Moment::End, Moment::Total].map(whole);
        prop_assert_eq!((peak, end), (most, space.bytes().0));
        prop_assert!(total >= mapped);
    }
}
