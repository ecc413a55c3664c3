//! Logs of a small session with two processes, of which the first asks its reporters twice.

use heapledger_core::{Api, Blocks, Serial, ThreadId};
use heapledger_dmd::DefectKind;
use heapledger_recording::{
    Compressor, Event, EventKind, EventsEncoder, Extras, FreedBlock, ImageStart, Live, Mark, Node, NodesEncoder,
    Record, Recording, RecordingWriter, Reported, Sampled, Session, Text, TextId, Time, encode_records,
};
use heapledger_symbols::{Symbolizer, SymbolizerOptions};

use super::*;
use crate::rewrite::{Draft, trim};

const FRAME: StackId = StackId(1);
const CACHE: StackId = StackId(2);
const INDEX: StackId = StackId(3);

enum What {
    Call(Api, EventKind),
    Mark(Mark),
}

fn alloc(serial: u64, size: u64) -> What {
    What::Call(Api::Malloc, EventKind::Alloc { serial: Serial(serial), size: Bytes(size), stack: FRAME })
}

fn free(serial: u64) -> What {
    What::Call(Api::Free, EventKind::Free { block: FreedBlock::Known(Serial(serial)) })
}

fn report(serial: u64, by: StackId, is_kept: bool, measured: u64) -> What {
    let what = Reported::Block(Serial(serial));
    What::Mark(Mark::Reported { what, by, is_kept, measured: Bytes(measured) })
}

/// Writes a recording with these happenings in each image, one per microsecond.
fn session(images: &[Vec<What>]) -> Vec<u8> {
    let mut compressor = Compressor::new();
    let mut records = vec![Record::Session(Session::default())];
    for (text, name) in [(1, "cache"), (2, "index")] {
        let bytes = name.as_bytes().to_vec();
        records.push(Record::Text(Text { text: TextId(text), bytes, is_task: false, category: Vec::new() }));
    }
    let mut chunks = Vec::new();
    for (image, happenings) in (0..).map(ImageId).zip(images) {
        let (pid, executable) = (100 + image.0, b"/bin/model".to_vec());
        records.push(Record::ImageStart(ImageStart { image, pid, executable, ..ImageStart::default() }));
        let mut nodes = NodesEncoder::new(image);
        for (id, parent, kind, offset) in [
            (FRAME, StackId::ROOT, NodeKind::Frame, 0x1fff),
            (CACHE, FRAME, NodeKind::Stamp, 1),
            (INDEX, FRAME, NodeKind::Stamp, 2),
        ] {
            nodes.push(&Node { id, parent, kind, module: ModuleId::UNKNOWN, offset, is_unproven: false }).unwrap();
        }
        chunks.extend(nodes.finish(&mut compressor));
        let mut events = EventsEncoder::new(image).with_tick_ns(1);
        for (at, what) in (1..).zip(happenings) {
            let (time, live) = (Time(at * 1000), Live { bytes: Bytes(1), blocks: Blocks(1) });
            match what {
                What::Call(api, kind) => {
                    let event =
                        Event { time, thread: ThreadId(0), call: (*api).into(), sampled: Sampled::NOT, kind: *kind };
                    let usable = matches!(kind, EventKind::Alloc { size: Bytes(100), .. }).then_some(Bytes(104));
                    events.push(&event, &Extras { usable, ..Extras::NONE }, live).unwrap();
                }
                What::Mark(Mark::Complete { .. }) => events.push_mark(time, &Mark::Complete { time }).unwrap(),
                What::Mark(mark) => events.push_mark(time, mark).unwrap(),
            }
        }
        chunks.extend(events.finish(&mut compressor));
    }
    let mut writer = RecordingWriter::new();
    let records = encode_records(&records, &mut compressor).unwrap();
    records.iter().chain(&chunks).for_each(|chunk| writer.push(chunk));
    writer.pending().to_vec()
}

fn two_images() -> Vec<u8> {
    let complete = || What::Mark(Mark::Complete { time: Time(0) });
    let cleared = || What::Mark(Mark::Cleared);
    session(&[
        vec![
            alloc(0, 100),
            alloc(1, 20),
            cleared(),
            report(0, CACHE, false, 0),
            complete(),
            // From here on, the reporters are asked for the second time.
            alloc(2, 30),
            cleared(),
            report(1, CACHE, true, 0),
            report(1, INDEX, false, 0),
            report(2, INDEX, false, 29),
            free(2),
            alloc(3, 40),
            complete(),
            free(1),
            alloc(4, 50),
        ],
        vec![alloc(0, 1000), report(0, CACHE, true, 0)],
    ])
}

/// Groups as `REQUESTED+SLOP xCOUNT by REPORTER, …`, and defects as `KIND by REPORTER xCOUNT`.
fn shown(log: &Log) -> (Vec<String>, Vec<String>) {
    let name = |name: Option<NameId>| name.map_or("?", |name| &log.names[name.0 as usize]);
    let mut groups = Vec::new();
    for group in &log.groups {
        let reporters: Vec<&str> = group.reports.iter().flatten().map(|report| name(report.reporter)).collect();
        assert_eq!(log.traces[group.alloc.unwrap().0 as usize].len(), 1);
        for size in &group.sizes {
            groups.push(format!("{}+{} x{} by {reporters:?}", size.requested, size.slop, size.count));
        }
    }
    groups.sort();
    let defect = |defect: &Defect| format!("{:?} by {} x{}", defect.kind, name(defect.reporter), defect.count);
    (groups, log.about.defects.iter().map(defect).collect())
}

fn of(bytes: &[u8], mode: Mode, moment: Moment) -> (DarkMatter, (Vec<String>, Vec<String>)) {
    let recording = Recording::open(bytes).unwrap();
    let mut names = Names::new(&recording, Symbolizer::new(SymbolizerOptions::default()));
    let found = dark_matter(&mut names, mode, &Selection::at(moment), &mut |_, _| ()).unwrap();
    assert!(found.damage.is_empty());
    let shown = shown(&found.log);
    (found, shown)
}

#[test]
fn the_last_time_that_reporters_were_asked_counts() {
    let bytes = two_images();
    let (found, (groups, defects)) = of(&bytes, Mode::DarkMatter, Moment::Total);
    assert_eq!((found.is_complete, &found.images[..], found.log.about.pid), (true, &[ImageId(0)][..], 100));
    assert_eq!(groups, ["100+4 x1 by []", "20+0 x1 by [\"cache\", \"index\"]", "40+0 x1 by []"]);
    assert_eq!(defects, ["Partly by index x1", "FreedWhileReported by index x1"]);
    assert_eq!(found.log.about.defects[1].kind, DefectKind::FreedWhileReported);
    assert_eq!((found.log.about.defects[0].measured, found.log.about.defects[0].usable), (29, 30));
    // Frames have the addresses that calls return to.
    assert_eq!(found.log.frames, ["???[??? +0x2000]"]);
    let (_, (groups, _)) = of(&bytes, Mode::Live, Moment::Total);
    assert_eq!(groups, ["100+4 x1 by []", "20+0 x1 by []", "40+0 x1 by []"]);
}

#[test]
fn any_moment_can_be_asked_for() {
    let bytes = two_images();
    // A log at a given time covers all processes.
    let (found, (groups, defects)) = of(&bytes, Mode::DarkMatter, Moment::At(Time(5500)));
    assert!(!found.is_complete);
    assert_eq!(groups, ["100+4 x1 by [\"cache\"]", "1000+0 x1 by [\"cache\"]", "20+0 x1 by []"]);
    assert!(defects.is_empty());
    let (_, (_, defects)) = of(&bytes, Mode::DarkMatter, Moment::At(Time(14_000)));
    assert_eq!(defects.last().unwrap(), "FreedWhileReported by cache x1");
}

#[test]
fn cumulative_logs_have_what_was_freed() {
    let (_, (groups, defects)) = of(&two_images(), Mode::Cumulative, Moment::Total);
    let expected = ["100+4", "1000+0", "20+0", "30+0", "40+0", "50+0"].map(|size| format!("{size} x1 by []"));
    assert_eq!((groups, defects), (expected.to_vec(), Vec::new()));
}

/// Marks made before a part begins are still there in the part.
#[test]
fn parts_know_what_was_marked_before() {
    let bytes = two_images();
    let recording = Recording::open(&bytes).unwrap();
    for (from, defects_left) in [(1, 2), (9000, 2), (10_500, 2), (12_500, 0)] {
        let part = Time(from)..=Time(16_000);
        let mut so_far = Vec::new();
        let mut draft = Draft::new(&mut so_far);
        trim(&recording, part.clone(), &mut draft, &mut |_, _| ()).unwrap();
        draft.flush().unwrap();
        let (found, (groups, defects)) = of(&so_far, Mode::DarkMatter, Moment::Total);
        assert!(found.is_complete);
        // The checkpoint with which the part begins has usable sizes, too.
        let expected = ["100+4 x1 by []", "20+0 x1 by [\"cache\", \"index\"]", "40+0 x1 by []"];
        assert_eq!((groups, defects.len()), (expected.map(str::to_owned).to_vec(), defects_left), "{from}");
    }
}
