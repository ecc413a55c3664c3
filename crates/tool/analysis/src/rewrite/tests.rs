//! Checks that recordings made from random sessions have the figures of these sessions.

use heapledger_core::allocator::{AllocatorKind, AllocatorVersion};
use heapledger_core::{Api, Blocks, Bytes, Serial, StackId, ThreadId};
use heapledger_recording::{
    Counts, Event, EventKind, EventsBuffer, EventsEncoder, Extras, FreedBlock, ImageStart, Live, Mark, ModuleId,
    NodeKind, Record, Recording, Reported, Session, Text, TextId, Time,
};
use heapledger_symbols::{Symbolizer, SymbolizerOptions};
use proptest::prelude::*;

use super::*;
use crate::testing::{steps, write};
use crate::{Amount, Moment, Names, Overview, Profile, Selection, live_blocks, overview};

fn totals(recording: &Recording<'_>) -> Overview {
    overview(recording, &mut |_, _| ()).expect("totals")
}

fn merged(parts: &[&Recording<'_>]) -> Vec<u8> {
    let mut so_far = Vec::new();
    let mut draft = Draft::new(&mut so_far);
    merge(parts, &mut draft).expect("a draft");
    draft.flush().expect("a draft");
    let mut bytes = Vec::new();
    let mut draft = Draft::new(&mut bytes);
    let Merged { footer, is_counted, damage } = merge(parts, &mut draft).expect("a draft");
    assert!(damage.iter().all(Vec::is_empty), "{damage:?}");
    let so_far = Recording::open(&so_far).expect("a draft");
    match is_counted {
        true => draft.finish(&footer).map(drop),
        false => draft.count_and_finish(&so_far, footer, &mut |_, _| ()).map(drop),
    }
    .expect("a recording");
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn merged_sessions_keep_their_images(one in steps(80), two in steps(80)) {
        let (one, _, truth_of_one) = write(&one);
        let (two, unfinished, truth_of_two) = write(&two);
        let parts = [&one, &two].map(|part| Recording::open(part).unwrap());
        let bytes = merged(&[&parts[0], &parts[1]]);
        let both = Recording::open(&bytes).unwrap();
        prop_assert!(both.complete() && both.verify().is_empty());
        let found = totals(&both);
        prop_assert!(!found.recounted);
        let images = |overview: &Overview| -> Vec<_> {
            overview.processes.iter().flat_map(|process| process.images.clone()).map(|image| image.counts).collect()
        };
        let expected = parts.iter().flat_map(|part| images(&totals(part))).collect::<Vec<_>>();
        prop_assert_eq!(images(&found), expected);
        let (a, b) = (truth_of_one.counts, truth_of_two.counts);
        prop_assert_eq!(found.counts.allocations.0, a.allocations.0 + b.allocations.0);
        prop_assert_eq!(found.counts.bytes_live_end.0, a.bytes_live_end.0 + b.bytes_live_end.0);
        let most = a.bytes_live_max.max(b.bytes_live_max);
        prop_assert!((most.0..=a.bytes_live_max.0 + b.bytes_live_max.0).contains(&found.counts.bytes_live_max.0));
        let mut names = Names::new(&both, Symbolizer::new(SymbolizerOptions::default()));
        let peak = Profile::load(&mut names, &Selection::at(Moment::Peak), &mut |_, _| ()).unwrap();
        prop_assert_eq!(peak.whole.bytes, found.counts.bytes_live_max);

        // If one recorder was killed, the merged recording is incomplete, but has the same figures.
        let unfinished = Recording::open(&unfinished).unwrap();
        let bytes = merged(&[&parts[0], &unfinished]);
        let both = Recording::open(&bytes).unwrap();
        prop_assert!(!both.complete() && both.footer().is_some());
        prop_assert_eq!(totals(&both).counts, found.counts);
    }

    #[test]
    fn totals_of_merged_sessions_add_up(one in steps(80), two in steps(80)) {
        let ((one, ..), (two, unfinished, _)) = (write(&one), write(&two));
        let (nothing, cut) = (without_events(true), without_events(false));
        let [one, two, unfinished, nothing, cut] =
            [&one, &two, &unfinished, &nothing, &cut].map(|part| Recording::open(part).unwrap());
        let exact = merged(&[&one, &two]);
        let exact = Recording::open(&exact).unwrap();
        let expected = totals(&exact);
        for last in [&two, &unfinished] {
            let bytes = merged(&[&one, &nothing, last]);
            let sum = Recording::open(&bytes).unwrap();
            prop_assert!(sum.session().unwrap().totals_only && sum.verify().is_empty());
            prop_assert_eq!(sum.complete(), last.complete());
            let found = totals(&sum);
            prop_assert_eq!(&found.processes, &expected.processes);
            // All totals are exact except the peak, which lies between the bounds.
            let upper = Counts {
                bytes_live_max: found.counts.bytes_live_max,
                bytes_live_max_time: found.counts.bytes_live_max_time,
                blocks_at_bytes_max: found.counts.blocks_at_bytes_max,
                blocks_live_max: found.counts.blocks_live_max,
                ..expected.counts
            };
            prop_assert_eq!(found.counts, upper);
            let most = Live { bytes: upper.bytes_live_max, blocks: upper.blocks_live_max };
            let least = sum.footer().unwrap().peak_least.unwrap_or(most);
            prop_assert!((least.bytes..=most.bytes).contains(&expected.counts.bytes_live_max));
            prop_assert!((least.blocks..=most.blocks).contains(&expected.counts.blocks_live_max));
            // The bounds are kept by another merge.
            let again = merged(&[&sum, &nothing]);
            let again = Recording::open(&again).unwrap();
            prop_assert_eq!(again.footer().unwrap().peak_least, sum.footer().unwrap().peak_least);
            for moment in [Moment::End, Moment::Total, Moment::Peak] {
                let [of_sum, of_exact] = [&sum, &exact].map(|recording| {
                    let mut names = Names::new(recording, Symbolizer::new(SymbolizerOptions::default()));
                    Profile::load(&mut names, &Selection::at(moment), &mut |_, _| ()).unwrap().whole
                });
                match moment {
                    Moment::Peak => prop_assert_eq!(of_sum.bytes, most.bytes),
                    _ => prop_assert_eq!(of_sum, of_exact),
                }
            }
        }
        let refused = merge(&[&one, &cut], &mut Draft::new(Vec::new()));
        prop_assert!(matches!(refused, Err(Error::TotalsMissing(1))), "{:?}", refused);
    }

    #[test]
    fn anonymous_sessions_keep_their_figures(steps in steps(80)) {
        let (finished, unfinished, _) = write(&steps);
        for bytes in [finished, unfinished] {
            let recording = Recording::open(&bytes).unwrap();
            let mut anonymous = Vec::new();
            let damage = anonymize(&recording, Kept::default(), b"key", Draft::new(&mut anonymous)).unwrap();
            prop_assert!(damage.is_empty());
            let anonymous = Recording::open(&anonymous).unwrap();
            prop_assert_eq!(anonymous.complete(), recording.complete());
            prop_assert_eq!(totals(&anonymous), totals(&recording));
            prop_assert!(anonymous.images().iter().all(|image| image.argv.len() == 1));
        }
    }
}

fn trimmed(recording: &Recording<'_>, from: u64, to: u64) -> Vec<u8> {
    segment(recording, from, to, 0)
}

/// Returns a part of the time as the segment of this number.
fn segment(recording: &Recording<'_>, from: u64, to: u64, number: u32) -> Vec<u8> {
    let part = Time(from)..=Time(to);
    let mut so_far = Vec::new();
    let mut draft = Draft::new(&mut so_far);
    trim(recording, part.clone(), &mut draft, &mut |_, _| ()).expect("a draft");
    draft.flush().expect("a draft");
    let mut bytes = Vec::new();
    let mut draft = Draft::new(&mut bytes);
    let (footer, damage) = trim(recording, part, &mut draft, &mut |_, _| ()).expect("a draft");
    assert!(damage.is_empty(), "{damage:?}");
    let session = Recording::open(&so_far).unwrap().session().cloned().expect("a session");
    // If there are several session records, the last one counts.
    draft.records(&[Record::Session(Session { segment: number, ..session })]).expect("a draft");
    draft.count_and_finish(&Recording::open(&so_far).expect("a draft"), footer, &mut |_, _| ()).expect("a recording");
    bytes
}

fn profile(recording: &Recording<'_>, moment: Moment) -> Profile {
    let mut names = Names::new(recording, Symbolizer::new(SymbolizerOptions::default()));
    Profile::load(&mut names, &Selection::at(moment), &mut |_, _| ()).expect("a profile")
}

/// Returns the amount that every stack holds at a moment, by its frames.
fn held(recording: &Recording<'_>, moment: Moment) -> Vec<(Vec<u64>, Amount)> {
    let profile = profile(recording, moment);
    let frames = |stack| profile.stacks.frames(stack).map(|frame| frame.offset).collect::<Vec<u64>>();
    let mut held: Vec<_> = profile.sites.iter().map(|site| (frames(site.stack), site.amount)).collect();
    held.sort_by(|a, b| a.0.cmp(&b.0));
    held
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn parts_of_sessions_are_as_they_were(
        steps in steps(120), cuts in prop::array::uniform2(any::<prop::sample::Index>())
    ) {
        let (whole, unfinished, truth) = write(&steps);
        if truth.history.is_empty() {
            return Ok(());
        }
        let [mut from, mut to] = cuts.map(|cut| cut.get(&truth.history).0.0);
        if from > to {
            std::mem::swap(&mut from, &mut to);
        }
        let end = Recording::open(&whole).unwrap().footer().unwrap().time.0;
        for whole in [&whole, &unfinished] {
            let whole = Recording::open(whole).unwrap();
            let bytes = trimmed(&whole, from, to);
            let part = Recording::open(&bytes).unwrap();
            prop_assert!(part.verify().is_empty(), "{:?}", part.verify());
            prop_assert_eq!(part.complete(), whole.complete());
            for (time, _) in truth.history.iter().filter(|(time, _)| (from..=to).contains(&time.0)) {
                prop_assert_eq!(held(&part, Moment::At(*time)), held(&whole, Moment::At(*time)), "{:?}", time);
            }
            // A recount gives the same: the file has everything that is needed.
            let cut = &bytes[..bytes.len() - 40];
            prop_assert_eq!(totals(&Recording::open(cut).unwrap()).counts, totals(&part).counts);
            let peak = profile(&part, Moment::Peak).whole;
            prop_assert_eq!(peak.bytes, totals(&part).counts.bytes_live_max);

            // A part of a part is the same as a part of the whole.
            let again = trimmed(&part, from, to);
            prop_assert_eq!(totals(&Recording::open(&again).unwrap()).counts, totals(&part).counts);
        }
        // If a recording is cut at a moment, nothing is lost between the two parts.
        let whole = Recording::open(&whole).unwrap();
        let (before, after) = (trimmed(&whole, 0, from), trimmed(&whole, from + 1, end));
        let parts = [&before, &after].map(|part| totals(&Recording::open(part).unwrap()).counts);
        let counts = totals(&whole).counts;
        let sum = |figure: fn(&Counts) -> u64| parts.iter().map(figure).sum::<u64>();
        prop_assert_eq!(sum(|it| it.allocations.0), counts.allocations.0);
        prop_assert_eq!(sum(|it| it.frees.0), counts.frees.0);
        prop_assert_eq!(sum(|it| it.failed.0), counts.failed.0);
        prop_assert_eq!(sum(|it| it.bytes_allocated.0), counts.bytes_allocated.0);
        prop_assert!(sum(|it| it.temporary_allocations.0) <= counts.temporary_allocations.0);
        prop_assert_eq!(parts.iter().map(|it| it.bytes_live_max).max(), Some(counts.bytes_live_max));
    }
}

/// Returns a session as consecutive segments.
fn segments(whole: &Recording<'_>, mut cuts: Vec<u64>) -> Vec<Vec<u8>> {
    let end = whole.footer().unwrap().time.0;
    cuts.extend([0, end + 1]);
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).zip(1..).map(|(cut, number)| segment(whole, cut[0], cut[1] - 1, number)).collect()
}

/// Returns the totals of a session's processes, without the ids of images.
fn by_process(recording: &Recording<'_>) -> Vec<(u32, Counts, Option<heapledger_recording::ExitStatus>, usize)> {
    let processes = totals(recording).processes.into_iter();
    processes.map(|process| (process.pid, process.counts, process.exit, process.images.len())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn segments_merge_to_what_they_were(
        steps in steps(150), cuts in prop::collection::vec(any::<prop::sample::Index>(), 1..6), backwards: bool
    ) {
        let (whole, _, truth) = write(&steps);
        if truth.history.is_empty() {
            return Ok(());
        }
        let whole = Recording::open(&whole).unwrap();
        let cuts: Vec<u64> = cuts.iter().map(|cut| cut.get(&truth.history).0.0).collect();
        let files = segments(&whole, cuts);
        let mut parts: Vec<Recording<'_>> = files.iter().map(|file| Recording::open(file).unwrap()).collect();
        if backwards {
            parts.reverse();
        }
        let bytes = merged(&parts.iter().collect::<Vec<_>>());
        let joined = Recording::open(&bytes).unwrap();
        prop_assert!(joined.complete() && joined.verify().is_empty(), "{:?}", joined.verify());
        prop_assert_eq!(joined.session().unwrap().segment, 0);
        prop_assert_eq!(totals(&joined).counts, totals(&whole).counts);
        prop_assert_eq!(by_process(&joined), by_process(&whole));
        for moment in [Moment::Peak, Moment::End, Moment::Total] {
            prop_assert_eq!(held(&joined, moment), held(&whole, moment), "{:?}", moment);
        }
        for (time, _) in &truth.history {
            prop_assert_eq!(held(&joined, Moment::At(*time)), held(&whole, Moment::At(*time)), "{:?}", time);
        }

        // If the first segments are missing, the rest begins with the blocks that were live.
        if parts.len() > 2 {
            if backwards {
                parts.reverse();
            }
            let from = parts[1].session().unwrap().begins.0;
            if let Some(before) = from.checked_sub(1) {
                let mut names = Names::new(&parts[1], Symbolizer::new(SymbolizerOptions::default()));
                let answer = Profile::load(&mut names, &Selection::at(Moment::At(Time(before))), &mut |_, _| ());
                prop_assert_eq!(answer.map(drop), Err(crate::Error::BeforeBeginning(Time(from))));
            }
            let bytes = merged(&parts[1..].iter().collect::<Vec<_>>());
            let rest = Recording::open(&bytes).unwrap();
            let end = whole.footer().unwrap().time.0;
            let expected = trimmed(&whole, from, end);
            prop_assert_eq!(totals(&rest).counts, totals(&Recording::open(&expected).unwrap()).counts);
            let mut out = Vec::new();
            let refused = merge(&[&parts[0], &parts[2]], &mut Draft::new(&mut out));
            prop_assert!(matches!(refused, Err(Error::SegmentMissing { before: 0, at: 1, number: 2 })), "{refused:?}");
            let refused = merge(&[&parts[1], &whole], &mut Draft::new(&mut out));
            prop_assert!(matches!(refused, Err(Error::BeginsInMidRun(0))), "{refused:?}");
        }
        let mut out = Vec::new();
        let refused = merge(&[&parts[0], &parts[0]], &mut Draft::new(&mut out));
        prop_assert!(matches!(refused, Err(Error::SegmentTwice { at: 1, .. })), "{refused:?}");
    }

    /// Segments that were tampered with, cut off or not, are either merged or refused.
    #[test]
    fn damaged_segments_do_no_harm(
        steps in steps(80), cut: prop::sample::Index, flips in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 1..8)
    ) {
        let (whole, _, truth) = write(&steps);
        if truth.history.is_empty() {
            return Ok(());
        }
        let whole = Recording::open(&whole).unwrap();
        let mut files = segments(&whole, vec![cut.get(&truth.history).0.0]);
        for (at, (place, bits)) in flips.iter().enumerate() {
            let count = files.len();
            let file = &mut files[at % count];
            let place = place.index(file.len() - 16) + 16;
            file[place] ^= bits;
        }
        let parts: Vec<Recording<'_>> = files.iter().filter_map(|file| Recording::open(file).ok()).collect();
        let mut bytes = Vec::new();
        let mut draft = Draft::new(&mut bytes);
        if merge(&parts.iter().collect::<Vec<_>>(), &mut draft).is_ok() {
            draft.flush().unwrap();
            let _ = overview(&Recording::open(&bytes).unwrap(), &mut |_, _| ());
        }
    }
}

/// Returns a recording with nothing but a session that has totals only. Without its end, the totals
/// are missing.
fn without_events(has_end: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut draft = Draft::new(&mut bytes);
    draft.records(&[Record::Session(Session { totals_only: true, ..Session::default() })]).unwrap();
    match has_end {
        true => draft.finish(&Footer { complete: true, ..Footer::default() }).map(drop).unwrap(),
        false => draft.flush().unwrap(),
    }
    bytes
}

/// The same address is another function in another process, even if none has a name.
#[test]
fn generated_code_is_that_of_its_image() {
    let module = |module, path: &[u8]| {
        Record::Module(heapledger_recording::Module { module: ModuleId(module), path: path.to_vec(), build_id: vec![] })
    };
    let jit = heapledger_core::GENERATED_CODE;
    let parts = [(); 2].map(|()| {
        let mut bytes = Vec::new();
        let mut draft = Draft::new(&mut bytes);
        let start = ImageStart { image: ImageId(0), pid: 7, ..ImageStart::default() };
        let modules = [module(1, b"/lib/libc.so.6"), module(2, jit), module(3, jit)];
        draft.records(&[Record::Session(Session::default()), Record::ImageStart(start)]).unwrap();
        draft.records(&modules).unwrap();
        draft.finish(&Footer { complete: true, ..Footer::default() }).unwrap();
        bytes
    });
    let parts = parts.each_ref().map(|part| Recording::open(part).unwrap());
    let bytes = merged(&[&parts[0], &parts[1]]);
    let both = Recording::open(&bytes).unwrap();
    let paths: Vec<&[u8]> = both.modules().iter().map(|module| &module.path[..]).collect();
    assert_eq!(paths, [b"/lib/libc.so.6", jit, jit, jit, jit]);
}

/// Returns a recording with marks of memory reporters on its blocks.
fn marked() -> Vec<u8> {
    let (image, main, reporters) = (ImageId(0), StackId(1), [StackId(2), StackId(3)]);
    let mut encoder = EventsEncoder::new(image).with_tick_ns(1);
    let event = |time, kind| Event {
        time: Time(time),
        thread: ThreadId(0),
        call: Api::Malloc.into(),
        sampled: heapledger_recording::Sampled::NOT,
        kind,
    };
    let mut serial = 0;
    let mut push = |encoder: &mut EventsEncoder, time: u64| {
        let kind = EventKind::Alloc { serial: Serial(serial), size: Bytes(10), stack: main };
        serial += 1;
        let live = Live { bytes: Bytes(10 * serial), blocks: Blocks(serial) };
        encoder.push(&event(time, kind), &Extras::NONE, live).unwrap();
    };
    let report = |encoder: &mut EventsEncoder, time: u64, block: u64, by: usize, is_kept: bool| {
        let (what, by) = (Reported::Block(Serial(block)), reporters[by]);
        encoder.push_mark(Time(time), &Mark::Reported { what, by, is_kept, measured: Bytes(0) }).unwrap();
    };
    (0..10).for_each(|at| push(&mut encoder, 10 * at));
    report(&mut encoder, 95, 1, 0, true);
    report(&mut encoder, 95, 2, 0, true);
    report(&mut encoder, 95, 2, 1, true);
    push(&mut encoder, 100);
    encoder.push_mark(Time(105), &Mark::Cleared).unwrap();
    report(&mut encoder, 105, 3, 0, false);
    push(&mut encoder, 110);
    let kind = EventKind::Free { block: FreedBlock::Known(Serial(2)) };
    encoder.push(&event(120, kind), &Extras::NONE, Live { bytes: Bytes(110), blocks: Blocks(11) }).unwrap();
    // Marking a block again is another report.
    report(&mut encoder, 125, 1, 0, true);
    push(&mut encoder, 130);
    encoder.push_mark(Time(140), &Mark::Removed { block: Serial(1), by: reporters[0] }).unwrap();
    encoder.push_mark(Time(150), &Mark::Complete { time: Time(150) }).unwrap();
    push(&mut encoder, 160);

    let node =
        |id, parent, kind, offset| Node { id, parent, kind, module: ModuleId::UNKNOWN, offset, is_unproven: false };
    let text = |text, name: &[u8]| Record::Text(Text { text: TextId(text), bytes: name.to_vec(), ..Text::default() });
    let mut bytes = Vec::new();
    let mut draft = Draft::new(&mut bytes);
    let start = ImageStart { image, pid: 7, ..ImageStart::default() };
    draft
        .records(&[Record::Session(Session::default()), Record::ImageStart(start), text(1, b"one"), text(2, b"two")])
        .unwrap();
    let nodes = [
        node(main, StackId::ROOT, NodeKind::Frame, 1),
        node(reporters[0], StackId::ROOT, NodeKind::Stamp, 1),
        node(reporters[1], StackId::ROOT, NodeKind::Stamp, 2),
    ];
    draft.nodes(image, nodes).unwrap();
    draft.put(|compressor| Ok(encoder.finish(compressor))).unwrap();
    draft.finish(&Footer { time: Time(200), complete: true, ..Footer::default() }).unwrap();
    bytes
}

/// Returns all marks, each with the number of events before it.
fn marks(recording: &Recording<'_>) -> Vec<(usize, Mark)> {
    let (mut marks, mut events) = (Vec::new(), 0);
    let mut buffer = EventsBuffer::default();
    for chunk in recording.event_chunks(recording.images()[0].image) {
        let decoded = chunk.decode(&mut buffer).unwrap();
        marks.extend(decoded.marks().iter().map(|&(at, mark)| (events + at as usize, mark)));
        events += decoded.as_slice().len();
    }
    marks
}

/// Each segment begins by repeating the marks that still hold, in chunks of their own or in the
/// chunk of its first events.
#[test]
fn marks_that_segments_repeat_are_left_out() {
    let bytes = marked();
    let whole = Recording::open(&bytes).unwrap();
    let cuts = [vec![97], vec![97, 107], vec![101, 115, 121], vec![125, 131, 145, 155], vec![97, 98, 99]];
    for cuts in cuts {
        let files = segments(&whole, cuts.clone());
        let parts: Vec<Recording<'_>> = files.iter().map(|file| Recording::open(file).unwrap()).collect();
        assert!(parts.iter().map(|part| marks(part).len()).sum::<usize>() > marks(&whole).len(), "{cuts:?}");
        let bytes = merged(&parts.iter().collect::<Vec<_>>());
        let joined = Recording::open(&bytes).unwrap();
        assert_eq!(marks(&joined), marks(&whole), "{cuts:?}");
        assert!(joined.verify().is_empty(), "{cuts:?}: {:?}", joined.verify());

        // A recorder writes them in one chunk with the events behind them.
        let files: Vec<Vec<u8>> = parts.iter().map(|part| in_one_chunk(part)).collect();
        let parts: Vec<Recording<'_>> = files.iter().map(|file| Recording::open(file).unwrap()).collect();
        let bytes = merged(&parts.iter().collect::<Vec<_>>());
        let joined = Recording::open(&bytes).unwrap();
        assert_eq!(marks(&joined), marks(&whole), "{cuts:?}");
        assert_eq!(totals(&joined).counts, totals(&Recording::open(&merged(&[&whole])).unwrap()).counts);
    }
}

/// Returns the same recording with all events of its image in one chunk.
fn in_one_chunk(part: &Recording<'_>) -> Vec<u8> {
    let start = &part.images()[0];
    let mut bytes = Vec::new();
    let mut draft = Draft::new(&mut bytes);
    let mut records = vec![Record::Session(part.session().unwrap().clone()), Record::ImageStart(start.clone())];
    records.extend(part.texts().iter().cloned().map(Record::Text));
    records.extend(part.image_end(start.image).copied().map(Record::ImageEnd));
    draft.records(&records).unwrap();
    draft.nodes(start.image, part.nodes(start.image).nodes().iter().copied()).unwrap();
    for chunk in part.chunks().iter().filter(|chunk| chunk.kind == heapledger_recording::ChunkKind::Checkpoint) {
        draft.chunk(&part.copy_chunk(chunk, &chunk.head).unwrap()).unwrap();
    }
    let (mut encoder, mut buffer) = (None, EventsBuffer::default());
    for chunk in part.event_chunks(start.image) {
        let head = chunk.head();
        let first = || EventsEncoder::new(start.image).with_tick_ns(1).starting_at(head.serial_first, head.live_before);
        let encoder = encoder.get_or_insert_with(first);
        let events = chunk.decode(&mut buffer).unwrap();
        let mut marks = events.marks().iter().peekable();
        for (index, event) in events.as_slice().iter().map(Some).chain([None]).enumerate() {
            while let Some((_, mark)) = marks.next_if(|(at, _)| *at as usize == index) {
                encoder.push_mark(head.time_first, mark).unwrap();
            }
            if let Some(event) = event {
                encoder.push(event, &Extras::NONE, head.live_before).unwrap();
            }
        }
    }
    draft.put(|compressor| Ok(encoder.and_then(|mut encoder| encoder.finish(compressor)))).unwrap();
    draft.finish(part.footer().unwrap()).unwrap();
    bytes
}

#[test]
fn parts_of_a_run_are_not_merged() {
    let session = heapledger_recording::Session { begins: heapledger_recording::Time(1), ..Default::default() };
    let mut bytes = Vec::new();
    let mut draft = Draft::new(&mut bytes);
    draft.records(&[Record::Session(session)]).unwrap();
    draft.finish(&Footer::default()).unwrap();
    let part = Recording::open(&bytes).unwrap();
    let mut out = Vec::new();
    let refused = merge(&[&part, &part], &mut Draft::new(&mut out));
    assert!(matches!(refused, Err(Error::BeginsInMidRun(0))), "{refused:?}");
}

#[test]
fn blocks_of_pools_have_no_slop() {
    let (image, stack) = (ImageId(0), StackId::ROOT);
    for asked in [None, Some(Bytes(40))] {
        let mut encoder = EventsEncoder::new(image).with_tick_ns(1);
        for (serial, call) in (0..).zip([Api::Malloc, Api::PoolAlloc]) {
            let kind = EventKind::Alloc { serial: Serial(serial), size: Bytes(33), stack };
            let (time, sampled) = (Time(10 * serial), heapledger_recording::Sampled::NOT);
            let event = Event { time, thread: ThreadId(0), call: call.into(), sampled, kind };
            let live = Live { bytes: Bytes(33 * (serial + 1)), blocks: Blocks(serial + 1) };
            let usable = asked.filter(|_| call == Api::Malloc);
            encoder.push(&event, &Extras { usable, ..Extras::NONE }, live).unwrap();
        }
        let mut bytes = Vec::new();
        let mut draft = Draft::new(&mut bytes);
        let (allocator, allocator_version) = (AllocatorKind::Glibc, AllocatorVersion::new(2, 36, 0));
        let start = ImageStart { image, pid: 1, allocator, allocator_version, ..ImageStart::default() };
        draft.records(&[Record::Session(Session::default()), Record::ImageStart(start)]).unwrap();
        draft.put(|compressor| Ok(encoder.finish(compressor))).unwrap();
        draft.finish(&Footer { time: Time(100), complete: true, ..Footer::default() }).unwrap();
        let part = trimmed(&Recording::open(&bytes).unwrap(), 50, 100);
        for bytes in [bytes, part] {
            let recording = Recording::open(&bytes).unwrap();
            let mut names = Names::new(&recording, Symbolizer::new(SymbolizerOptions::default()));
            let found = live_blocks(&mut names, &Selection::at(Moment::End), &mut |_, _| ()).unwrap();
            let usable: Vec<_> = found.blocks.iter().map(|block| block.usable).collect();
            assert_eq!(usable, [Some(Bytes(40)), Some(Bytes(33))]);
        }
    }
}
