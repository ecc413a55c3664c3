//! Reports about a recorded program: `fixtures/programs/marks.c` knows the reports of each block.

use std::collections::BTreeMap;
use std::path::Path;

use heapledger_analysis::{Moment, Names, Selection, dark_matter};
use heapledger_collect as collect;
use heapledger_dmd::{Log, Mode};
use heapledger_recording::Recording as File;
use heapledger_symbols::{Symbolizer, SymbolizerOptions};
use serde_json::Value;

use crate::c::libheapledger;
use crate::harness::{Job, Scratch, heapledger, number, program, wait_until};

pub(crate) fn log(path: &Path, mode: Mode, moment: Moment) -> Log {
    let bytes = std::fs::read(path).unwrap();
    let file = File::open(&bytes).unwrap();
    let mut names = Names::new(&file, Symbolizer::new(SymbolizerOptions::default()));
    let found = dark_matter(&mut names, mode, &Selection::at(moment), &mut |_, _| ()).unwrap();
    assert!(found.damage.is_empty(), "{:?}", found.damage);
    assert_eq!(found.is_complete, mode == Mode::DarkMatter && moment == Moment::Total);
    found.log
}

/// Returns the blocks by the program's sizes: unreported, once-reported, twice-reported.
pub(crate) fn marks(log: &Log) -> BTreeMap<String, [i64; 3]> {
    let mut marks: BTreeMap<String, [i64; 3]> = BTreeMap::new();
    for group in &log.groups {
        let reports = group.reports.iter().flatten().count();
        for size in group.sizes.iter().filter(|size| (1000..=1011).contains(&size.requested) || size.requested == 2000)
        {
            marks.entry(size.requested.to_string()).or_default()[reports] += size.count as i64;
        }
    }
    marks
}

fn defects(log: &Log) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for defect in &log.about.defects {
        *sums.entry(format!("{:?}", defect.kind)).or_default() += defect.count as i64;
    }
    assert_eq!(sums.values().sum::<i64>(), log.about.defects_count as i64);
    sums
}

pub(crate) fn sums_of(truth: &Value) -> (BTreeMap<String, [i64; 3]>, BTreeMap<String, i64>) {
    let figures = |figures: &Value| [0, 1, 2].map(|at| figures[at].as_i64().unwrap());
    let marks = truth["marks"].as_object().unwrap();
    let defects = truth["defects"].as_object().unwrap();
    (
        marks.iter().map(|(size, sums)| (size.clone(), figures(sums))).collect(),
        defects.keys().map(|kind| (kind.clone(), number(&truth["defects"], kind))).collect(),
    )
}

#[test]
fn reports_are_what_the_program_says() {
    let scratch = Scratch::new();
    let (outcome, recording) = Job::fixture("marks", "100").both(&scratch);
    recording.assert_whole().assert_adds_up();
    let expected = sums_of(&outcome.printed_objects().pop().unwrap());
    let of = |path: &Path| {
        let log = log(path, Mode::DarkMatter, Moment::Total);
        (marks(&log), defects(&log))
    };
    assert_eq!(of(&recording.path), expected);

    // The reporters, and the stacks of their calls.
    let log_of_all = log(&recording.path, Mode::DarkMatter, Moment::Total);
    let name = |name: Option<heapledger_dmd::NameId>| name.map_or("", |name| &log_of_all.names[name.0 as usize]);
    let reported = |size: u64| {
        let is_of_size = |group: &&heapledger_dmd::Group| group.sizes.iter().any(|other| other.requested == size);
        let group = log_of_all.groups.iter().find(is_of_size).unwrap();
        group.reports.map(|report| report.map_or("", |report| name(report.reporter)))
    };
    assert_eq!((reported(1001), reported(1003), reported(1004)), (["one", ""], ["one", "two"], ["sticky", ""]));
    let partly = log_of_all.about.defects.iter().find(|defect| name(defect.reporter) == "part").unwrap();
    assert_eq!((partly.measured, partly.usable, partly.alloc.is_some()), (10, 1009, true));
    let frames = |trace: heapledger_dmd::TraceId| {
        let trace = &log_of_all.traces[trace.0 as usize];
        trace.iter().map(|frame| log_of_all.frames[frame.0 as usize].clone()).collect::<Vec<_>>()
    };
    let innermost = &frames(partly.trace.unwrap())[0];
    assert!(innermost.starts_with("???[/") && innermost.contains("marks +0x"), "{innermost}");

    // Recordings made from it.
    let made = |verb: &str, options: &[&str], files: &[&Path]| {
        let output = scratch.file(&format!("{verb}.hl"));
        let line = [verb.as_ref(), "-o".as_ref(), output.as_os_str()].into_iter();
        let line = line.chain(options.iter().map(std::ffi::OsStr::new));
        let done = heapledger(line.chain(files.iter().map(|file| file.as_os_str())));
        assert!(done.status.success(), "{done:?}");
        of(&output)
    };
    let path = &*recording.path;
    let (marks_once, defects_once) = expected.clone();
    let twice = (
        marks_once.into_iter().map(|(size, sums)| (size, sums.map(|sum| 2 * sum))).collect(),
        defects_once.into_iter().map(|(kind, sum)| (kind, 2 * sum)).collect(),
    );
    assert_eq!(made("merge", &[], &[path, path]), twice);
    assert_eq!(made("trim", &[], &[path]), expected);
    assert_eq!(made("anonymize", &[], &[path]), expected);

    // Freed blocks are all unreported.
    let all = log(path, Mode::Cumulative, Moment::Total);
    let sums = marks(&all);
    assert_eq!((sums["1005"], sums["1007"], sums["2000"]), ([200, 0, 0], [200, 0, 0], [200, 0, 0]));
}

/// A recording can be read while it is made, as of the last time that reporters were asked.
#[test]
fn a_recorder_brings_its_file_up_to_date() {
    let scratch = Scratch::new();
    let (file, flag) = (scratch.file("running.hl"), scratch.file("flag"));
    let job = Job::fixture("marks", "50").argument("wait").argument(&flag);
    let running = job.start(Some(&file));
    wait_until("the reporters have been asked", || flag.exists());
    let is_ours = |it: &collect::RunningSession| it.status.recorder == running.pid().as_raw_nonzero().get() as u32;
    let recorder = collect::RunningSession::all().unwrap().into_iter().find(is_ours).unwrap();
    let asked = recorder.ask(collect::ControlRequest::Save).unwrap();
    assert_eq!(asked.output, file);
    let so_far = log(&file, Mode::DarkMatter, Moment::Total);
    std::fs::remove_file(&flag).unwrap();
    let outcome = running.outcome();
    let expected = sums_of(&outcome.printed_objects().pop().unwrap());
    assert_eq!((marks(&so_far), defects(&so_far)), expected);
    let whole = log(&file, Mode::DarkMatter, Moment::Total);
    assert_eq!((marks(&whole), defects(&whole)), expected);
}

/// Each file of a session repeats the marks; in the merged recording each block is marked once.
#[test]
fn marks_of_segments_count_once() {
    let scratch = Scratch::new();
    let flag = scratch.file("flag");
    let job = Job::fixture("marks", "50").argument("wait").argument(&flag).option("--rotate=100ms");
    let running = job.start(Some(&scratch.file("app.hl")));
    wait_until("the reporters have been asked", || flag.exists());
    let before = scratch.recordings().len();
    wait_until("there are more files", || scratch.recordings().len() >= before + 3);
    std::fs::remove_file(&flag).unwrap();
    let outcome = running.outcome();
    let expected = sums_of(&outcome.printed_objects().pop().unwrap());
    let said = |path: &Path| -> u32 {
        let bytes = std::fs::read(path).unwrap();
        let file = File::open(&bytes).unwrap();
        file.event_chunks(file.images()[0].image).map(|chunk| chunk.head().marks).sum()
    };
    let files = scratch.recordings();
    assert!(files.iter().filter(|file| said(file) > 0).count() >= 3, "{files:?}");
    let joined = scratch.file("joined.hl");
    let line = ["merge".as_ref(), "-o".as_ref(), joined.as_os_str()].into_iter();
    let done = heapledger(line.chain(files.iter().map(|file| file.as_os_str())));
    assert!(done.status.success(), "{done:?}");
    let plain = Scratch::new();
    let (_, whole) = Job::fixture("marks", "50").recorded(&plain);
    assert_eq!(said(&joined), said(&whole.path));
    let log = log(&joined, Mode::DarkMatter, Moment::Total);
    assert_eq!((marks(&log), defects(&log)), expected);
}

/// Returns the blocks of a log: requested size, stack, reporter and its stack; and the number of
/// each.
fn by_blocks(log: &Log) -> BTreeMap<String, u64> {
    let stack = |trace: heapledger_dmd::TraceId| {
        let frames = &log.traces[trace.0 as usize];
        frames.iter().map(|frame| log.frames[frame.0 as usize].as_str()).collect::<Vec<_>>().join(" < ")
    };
    let reporter = |name: Option<heapledger_dmd::NameId>| name.map_or("?", |name| &log.names[name.0 as usize]);
    let mut blocks = BTreeMap::new();
    for group in &log.groups {
        let reports: Vec<String> = group
            .reports
            .iter()
            .flatten()
            .map(|report| format!("{} from {}", reporter(report.reporter), stack(report.trace)))
            .collect();
        for size in group.sizes.iter().filter(|size| (1000..=1011).contains(&size.requested) || size.requested == 2000)
        {
            let line = format!("{} from {} by {reports:?}", size.requested, group.alloc.map_or(String::new(), stack));
            *blocks.entry(line).or_default() += size.count;
        }
    }
    let mut defect = |defect: &heapledger_dmd::Defect| {
        // A ledger knows the usable size of a block.
        let alloc = defect.alloc.map_or(String::new(), stack);
        let by = (reporter(defect.reporter), defect.trace.map(stack));
        let line = format!("{:?} by {by:?} of {} bytes from {alloc}", defect.kind, defect.measured);
        *blocks.entry(line).or_default() += defect.count;
    };
    log.about.defects.iter().for_each(&mut defect);
    blocks
}

/// A program's own ledger and its recording agree about every block.
#[test]
#[ignore = "it builds libheapledger; `.ci/run` runs it"]
fn a_ledger_and_a_recording_agree() {
    let scratch = Scratch::new();
    let library = libheapledger(&scratch).join("lib/libheapledger.so");
    let saved = scratch.file("marks.json.gz");
    let job = Job::fixture("marks", "100").argument("save").argument(&saved);
    let outcome = job.variable("LD_PRELOAD", library).bare();
    assert!(outcome.status.success(), "{outcome:?}");
    let ledger = Log::read(std::fs::File::open(&saved).unwrap()).unwrap();
    let (_, recording) = Job::fixture("marks", "100").argument("save").argument(&saved).recorded(&scratch);
    let recorded = log(&recording.path, Mode::DarkMatter, Moment::Total);
    let (ledger, recorded) = (by_blocks(&ledger), by_blocks(&recorded));
    assert!(ledger.len() > 20);
    assert_eq!(ledger, recorded);
}

/// A recorded process asks its reporters when it is asked for its dark matter, which is then in the
/// recording.
#[test]
#[ignore = "it builds libheapledger; `.ci/run` runs it"]
fn a_recorded_process_is_asked() {
    let scratch = Scratch::new();
    let library = libheapledger(&scratch).join("lib/libheapledger.so");
    let (file, flag, saved) = (scratch.file("listens.hl"), scratch.file("flag"), scratch.file("log.json"));
    // The recorder itself must have no ledger.
    let preload = format!("LD_PRELOAD={}", library.display());
    let line = ["env".into(), preload, "HEAPLEDGER_LISTEN=1".into(), program("listens").display().to_string()];
    let running = Job::new(line).argument(&flag).start(Some(&file));
    wait_until("the program is ready", || flag.exists());
    let is_ours = |it: &collect::RunningSession| it.status.recorder == running.pid().as_raw_nonzero().get() as u32;
    let mut pid = None;
    // A recorder that does not answer within two seconds is not in the list.
    wait_until("the recorder answers", || {
        pid = collect::RunningSession::all().unwrap().into_iter().find(is_ours).map(|it| it.status.command);
        pid.is_some()
    });
    let pid = pid.unwrap();
    let asked = heapledger(["dmd", "--save", saved.to_str().unwrap(), &pid.to_string()]);
    std::fs::remove_file(&flag).unwrap();
    assert!(running.outcome().status.success());
    assert!(asked.status.success(), "{asked:?}");
    let text = asked.text();
    assert!(text.contains("\nUnreported {\n") && text.contains("50 blocks in heap block record"), "{text}");
    assert!(text.contains("main") && text.contains("listens.c:"), "{text}");
    let log = Log::read(std::fs::File::open(&saved).unwrap()).unwrap();
    let blocks = by_blocks(&log);
    let of = |size: &str, by: &str| {
        blocks
            .iter()
            .filter(|(line, _)| line.starts_with(size) && line.contains(by))
            .map(|(_, count)| count)
            .sum::<u64>()
    };
    assert_eq!((of("1000 ", "by [\"explicit/cache from "), of("1001 ", "by []")), (100, 50), "{blocks:?}");

    // The same for the whole recording.
    let whole = heapledger(["dmd", "--details", file.to_str().unwrap()]);
    assert!(whole.status.success() && whole.text().contains("explicit/cache"), "{whole:?}");
}
