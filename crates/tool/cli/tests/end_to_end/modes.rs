//! The ways of recording: what they keep, what they leave out, and their messages about it.

use std::fs;
use std::path::{Path, PathBuf};

use heapledger_recording::{MemorySample, Recording as Contents};
use rustix::process::{Signal, kill_process};

use serde_json::Value;

use crate::documents;
use crate::harness::{Job, Recording, Running, Scratch, exited, heapledger, number, program, wait_until};

/// The recorder is stopped while the program makes 800,000 events: the program does not wait, and
/// each event is either in the recording or counted as lost.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn full_rings_drop() {
    let scratch = Scratch::new();
    let (go, done) = (scratch.file("go"), scratch.file("done"));
    let line = |blocks| format!("{blocks} {} {}", go.display(), done.display());
    fs::write(&go, "").unwrap();
    let (_, idle) = Job::fixture("flood", &line(0)).recorded(&scratch);
    let ready = scratch.file("go.ready");
    for file in [&go, &done, &ready] {
        fs::remove_file(file).unwrap();
    }

    let job = Job::fixture("flood", &line(200_000)).option("--on-full=drop").with_report();
    let file = scratch.file("recording.hl");
    let running = job.start(Some(&file));
    wait_until("the program is ready", || ready.exists());
    kill_process(running.pid(), Signal::STOP).unwrap();
    fs::write(&go, "").unwrap();
    wait_until("the program is done, without its recorder", || done.exists());
    kill_process(running.pid(), Signal::CONT).unwrap();
    let outcome = running.outcome();
    let told = &outcome.printed_objects()[0];
    let recording = Recording::open(file);

    let lost = recording.total("events_lost");
    assert_eq!(number(&recording.summary["events_lost_by_cause"], "ring_full"), lost, "{recording:?}");
    assert!(lost > 500_000, "the rings are too small for that many: {recording:?}");
    let events = |of: &dyn Fn(&str) -> i64| of("allocations") + of("frees");
    let recorded = events(&|name| recording.total(name) - idle.total(name)) + recording.total("frees_unknown");
    assert_eq!(recorded + lost, events(&|name| number(told, name)), "{recording:?}");
    // The recorded events are consistent: nothing is freed twice, and what is live at the end was
    // allocated.
    assert_eq!(
        recording.total("allocations") - recording.total("frees"),
        recording.total("blocks_live_end"),
        "{recording:?}"
    );
    assert_eq!(recording.summary["complete"], true, "{recording:?}");
    let sites = recording.ask("top", &["--by", "stack", "--total", "-n", "0"]);
    assert!(sites.to_string().contains("\"work\""), "stacks are whole: {sites:#}");

    let report = String::from_utf8_lossy(&outcome.stderr).into_owned();
    let shown = heapledger(["summary".as_ref(), recording.path.as_os_str()]);
    let info = heapledger(["info".as_ref(), recording.path.as_os_str()]);
    for (text, what) in [
        (&report, "lost because a ring was full: numbers of allocations and frees are lower bounds"),
        (&report, "≥ "),
        (&shown.text(), "≥ "),
        (&info.text(), "because a ring was full"),
        (&info.text(), "--on-full drop"),
    ] {
        assert!(text.contains(what), "no {what:?} in {text}");
    }
}

/// If there is room, nothing is dropped: the mode alone changes nothing.
#[test]
fn rings_with_room_drop_nothing() {
    let scratch = Scratch::new();
    let job = |work: &str| Job::fixture("mix", work).option("--on-full=drop");
    let ((_, without), (busy, with)) = (job("0000").recorded(&scratch), job("1000").recorded(&scratch));
    let told = &busy.printed_objects()[0];
    for name in ["allocations", "frees", "reallocations", "bytes_allocated", "blocks_live_end"] {
        assert_eq!(with.total(name) - without.total(name), number(told, name), "{name}: {with:?}");
    }
    with.assert_whole();
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn memory_is_sampled() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("resident", "").recorded(&scratch);
    let bytes = fs::read(&recording.path).unwrap();
    let contents = Contents::open(&bytes).unwrap();
    let [image] = contents.images() else { panic!("one image: {recording:?}") };
    let samples = contents.memory(image.image);
    assert!(samples.damage.is_empty() && samples.rows.len() >= 5, "{samples:?}");
    let most = |figure: fn(&MemorySample) -> u64| samples.rows.iter().map(figure).max().unwrap() >> 20;
    let within = |figure, low, high| assert!((low..=high).contains(&most(figure)), "{figure:?}: {samples:?}");
    within(|sample| sample.resident_anonymous.0, 48, 80);
    within(|sample| sample.mappings.0, 64, 100);
    within(|sample| sample.heap.0, 16, 24);
    let adds_up = |it: &MemorySample| it.resident.0.abs_diff(it.resident_anonymous.0 + it.resident_file.0) < 4 << 20;
    assert!(samples.rows.iter().all(adds_up), "{samples:?}");
    let times = samples.rows.iter().map(|sample| sample.time);
    assert!(times.clone().is_sorted() && times.clone().all(|time| time >= image.time), "{samples:?}");
    assert_eq!(recording.ask("info", &[])["chunks"]["memory"]["rows"], samples.rows.len());
}

/// Totals only: the same answers as with events, from a file that does not grow with them.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn totals_without_events() {
    let scratch = Scratch::new();
    let job = |work| Job::fixture("mix", work);
    let (_, full) = job("100000").recorded(&scratch);
    let (_, short) = job("10000").option("--aggregate").recorded(&scratch);
    let (_, totals) = job("100000").option("--aggregate").recorded(&scratch);
    totals.assert_whole().assert_adds_up();
    // Slop is counted from events.
    assert!(totals.summary["slop"].is_null() && !full.summary["slop"].is_null());
    let unsteady = |name: &str| name == "slop" || UNSTEADY.contains(&name);
    for name in full.summary.as_object().unwrap().keys().filter(|name| !unsteady(name)) {
        assert_eq!(totals.summary[name], full.summary[name], "{name}");
    }
    for (verb, options) in [
        ("top", &["--by", "stack", "-n", "0"][..]),
        ("top", &["--by", "module", "--at", "end"]),
        ("top", &["--total", "--metric", "blocks"]),
        ("tree", &[]),
        ("leaks", &[]),
        ("temporary", &[]),
    ] {
        assert_eq!(totals.ask(verb, options), full.ask(verb, options), "{verb} {options:?}");
    }
    let length = |recording: &Recording| fs::metadata(&recording.path).unwrap().len();
    let growth = length(&totals).saturating_sub(length(&short));
    assert!(growth < 4096, "ten times the events, {growth} bytes more");
    assert!(length(&full) > 10 * length(&totals));
    assert_eq!(totals.ask("info", &[])["totals_only"], true);
    assert_eq!(totals.ask("info", &[])["events"], 0);

    for options in [&["--by", "thread"][..], &["--by", "size"], &["--at", "1ms"]] {
        let line = ["top".as_ref(), totals.path.as_os_str()].into_iter().chain(options.iter().map(AsRef::as_ref));
        let refused = heapledger(line);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{options:?}: {refused:?}");
        assert!(told.contains("no events that could answer this") && told.contains("hint: it was made by"), "{told}");
    }
}

/// Fields that differ from run to run, or that depend on the way of recording.
const UNSTEADY: [&str; 5] = ["costs", "duration_seconds", "bytes_live_max_time_seconds", "resident_max", "processes"];

/// Every process and image of a session has its totals, which remain after its end.
#[test]
fn totals_of_every_process() {
    let scratch = Scratch::new();
    for (fixture, how) in [("forks", ""), ("execs", "execv")] {
        let (_, full) = Job::fixture(fixture, how).recorded(&scratch);
        let (_, totals) = Job::fixture(fixture, how).option("--aggregate").recorded(&scratch);
        totals.assert_whole().assert_adds_up();
        assert_eq!(totals.processes().len(), full.processes().len(), "{fixture}: {totals:?}");
        for name in ["allocations", "frees", "bytes_allocated", "frees_inherited", "blocks_live_end"] {
            assert_eq!(totals.total(name), full.total(name), "{fixture}: {name}: {totals:?}\n{full:?}");
        }
    }
}

/// The recorder is killed in the middle: the file has the complete state of some seconds before.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn totals_outlive_their_recorder() {
    let scratch = Scratch::new();
    let (ready, end, file) = (scratch.file("ready"), scratch.file("end"), scratch.file("recording.hl"));
    let line = format!("{} 600000 {}", ready.display(), end.display());
    let running = Job::fixture("persists", &line).option("--aggregate").start(Some(&file));
    wait_until("the file has been replaced", || summary(&file)["allocations"].as_i64() > Some(1000));
    kill_process(running.pid(), Signal::KILL).unwrap();
    let recording = Recording::open(file);
    assert_eq!(recording.summary["complete"], false, "{recording:?}");
    assert!(recording.total("allocations") > 1000, "{recording:?}");
    recording.assert_adds_up();
    let sites = recording.ask("top", &["--by", "stack", "--total", "-n", "0"]);
    assert!(sites.to_string().contains("\"work\""), "{sites:#}");
    fs::write(&end, "").unwrap();
    wait_until("the program goes on to its end", || fs::read(&ready).is_ok_and(|text| text.ends_with(b"fine\n")));
}

/// Returns the summary of a file; null if the file does not exist yet, or is half written.
fn summary(file: &Path) -> Value {
    let outcome = heapledger(["summary".as_ref(), file.as_os_str(), "--json".as_ref()]);
    serde_json::from_slice(&outcome.stdout).unwrap_or_default()
}

/// Threads begin and end without leaving anything in the file.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn totals_of_very_many_threads() {
    let scratch = Scratch::new();
    let (_, few) = Job::fixture("short_threads", "100").option("--aggregate").recorded(&scratch);
    let (_, many) = Job::fixture("short_threads", "5000").option("--aggregate").both(&scratch);
    assert_eq!(many.total("threads"), 5001, "{many:?}");
    let metadata = |recording: &Recording, what| number(&recording.ask("info", &[])["chunks"]["metadata"], what);
    assert_eq!(metadata(&many, "rows"), metadata(&few, "rows"));
    // A longer run may have them in more chunks, of about a hundred bytes each besides their
    // contents.
    let more = metadata(&many, "chunks") - metadata(&few, "chunks");
    let growth = metadata(&many, "bytes") - metadata(&few, "bytes");
    assert!(growth < 100 * (1 + more), "{growth} bytes in {more} chunks more");
}

/// A recorded program with three phases, between which recording is switched.
struct Phases {
    scratch: Scratch,
    running: Running,
    file: PathBuf,
}

impl Phases {
    fn start(options: &[&str]) -> Phases {
        let scratch = Scratch::new();
        let file = scratch.file("recording.hl");
        let job = Job::fixture("phases", scratch.path().to_str().unwrap());
        let running = options.iter().fold(job, |job, option| job.option(option)).start(Some(&file));
        let phases = Phases { scratch, running, file };
        wait_until("it answers", || phases.ask("status").is_some());
        phases
    }

    fn run(&self, phase: u32) {
        fs::write(self.scratch.file(&format!("go.{phase}")), "").unwrap();
        wait_until("the phase is over", || self.scratch.file(&format!("done.{phase}")).exists());
    }

    fn recorder(&self) -> String {
        self.running.pid().as_raw_nonzero().to_string()
    }

    /// Returns the recorder's answer; `None` if there is no recorder.
    fn ask(&self, verb: &str) -> Option<Value> {
        let outcome = heapledger([verb, &self.recorder(), "--json"]);
        assert_eq!(outcome.status.success(), !outcome.stdout.is_empty(), "{outcome:?}");
        let answer = outcome.status.success().then(|| documents::read(&outcome.stdout));
        answer.map(|answer| answer["rows"][0].clone())
    }

    fn wait_for(&self, state: &str) {
        wait_until(state, || self.ask("status").is_some_and(|status| status["recording"] == state));
    }

    fn finish(self) -> (Scratch, Recording) {
        let outcome = self.running.outcome();
        assert_eq!(outcome.status, exited(0), "{outcome:?}");
        (self.scratch, Recording::open(self.file))
    }
}

/// Checks the totals of a recording of phases 1 and 3, without 2.
#[track_caller]
fn assert_second_phase_left_out(recording: &Recording) {
    let parent = |name: &str| number(&recording.processes()[0], name);
    assert_eq!(parent("allocations"), 2000, "{recording:?}");
    assert_eq!(parent("bytes_allocated"), 1000 * 100 + 1000 * 300, "{recording:?}");
    assert_eq!(parent("reallocations"), 0, "{recording:?}");
    // Half of the first phase, and the blocks that were reallocated while nothing was recorded.
    assert_eq!(parent("frees"), 510, "{recording:?}");
    assert_eq!(parent("bytes_live_end"), 490 * 100 + 1000 * 300, "{recording:?}");
    assert_eq!((parent("frees_paused"), parent("frees_unknown")), (500, 0), "{recording:?}");
    // Recorded blocks are inherited, whether recording is on at the fork or not.
    let child = |name: &str| number(&recording.processes()[1], name);
    assert_eq!((child("allocations"), child("frees_inherited")), (0, 100), "{recording:?}");
    assert_eq!(child("blocks_inherited_live_end"), 390, "{recording:?}");
    let last = &recording.processes()[2];
    assert_eq!(number(last, "bytes_allocated"), 9 * 90, "{recording:?}");
    recording.assert_whole().assert_adds_up();
    let sites = recording.ask("top", &["--by", "stack", "--total", "-n", "0"]).to_string();
    assert!(sites.contains("phase_1") && sites.contains("phase_3") && !sites.contains("phase_2"), "{sites}");
    let pauses = recording.ask("info", &[])["pauses"].clone();
    let [pause] = pauses.as_array().unwrap().as_slice() else { panic!("one pause: {pauses}") };
    assert!(pause["from_seconds"].as_f64() < pause["until_seconds"].as_f64(), "{pause}");
    // The times of the pause are recorded: counting the events again gives the same.
    let replayed = recording.ask("top", &["--by", "size", "--at", "end"]);
    assert_eq!(number(&replayed["total"], "bytes"), recording.total("bytes_live_end"), "{replayed:#}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn paused_by_command() {
    let phases = Phases::start(&[]);
    assert_eq!(phases.ask("status").unwrap()["recording"], "on");
    phases.run(1);
    assert_eq!(phases.ask("stop").unwrap()["recording"], "paused");
    phases.run(2);
    assert_eq!(phases.ask("start").unwrap()["recording"], "on");
    phases.run(3);
    assert_second_phase_left_out(&phases.finish().1);
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn paused_by_signal() {
    let phases = Phases::start(&[]);
    phases.run(1);
    kill_process(phases.running.pid(), Signal::USR2).unwrap();
    phases.wait_for("paused");
    phases.run(2);
    kill_process(phases.running.pid(), Signal::USR1).unwrap();
    phases.wait_for("on");
    phases.run(3);
    assert_second_phase_left_out(&phases.finish().1);
}

#[test]
fn started_by_command() {
    let phases = Phases::start(&["--start-paused"]);
    let status = || phases.ask("status").unwrap();
    assert_eq!(status()["recording"], "not begun");
    wait_until("its process is listed", || status()["processes"][0] == status()["program"]);
    phases.run(1);
    phases.run(2);
    // This time the recorder is named by its file.
    let started = heapledger(["start".as_ref(), phases.file.as_os_str(), "--json".as_ref()]);
    assert!(started.status.success(), "{started:?}");
    phases.run(3);
    let (_scratch, recording) = phases.finish();
    assert_eq!(recording.total("bytes_allocated"), 1000 * 300 + 9 * 90, "{recording:?}");
    assert_eq!((recording.total("frees"), recording.total("frees_paused")), (0, 500), "{recording:?}");
    recording.assert_whole().assert_adds_up();
}

/// A recording that is never started is empty, and says why; also with totals only.
#[test]
fn never_started() {
    let scratch = Scratch::new();
    for option in ["--start-paused", "--start-after=1h"] {
        let job = Job::fixture("mix", "1000").with_report().option(option);
        let bare = Job::fixture("mix", "1000").bare();
        let (outcome, recording) = job.recorded(&scratch);
        assert_eq!((outcome.status, &outcome.stdout), (bare.status, &bare.stdout));
        assert!(String::from_utf8_lossy(&outcome.stderr).contains("nobody started it"), "{outcome:?}");
        for name in ["allocations", "frees", "frees_paused", "frees_unknown", "failed", "bytes_live_max"] {
            assert_eq!(recording.total(name), 0, "{option}: {name}: {recording:?}");
        }
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_stretch_of_time() {
    let scratch = Scratch::new();
    let ready = scratch.file("ready");
    let (end, file) = (scratch.file("end"), scratch.file("recording.hl"));
    let job = Job::fixture("persists", &format!("{} 600000 {}", ready.display(), end.display()));
    let running = job.option("--start-after=300ms").option("--duration=400ms").start(Some(&file));
    wait_until("the recording is complete, before the program", || summary(&file)["complete"] == true);
    fs::write(&end, "").unwrap();
    let outcome = running.outcome();
    assert_eq!(outcome.status, exited(42), "{outcome:?}");
    assert!(fs::read(&ready).unwrap().ends_with(b"fine\n"));
    let recording = Recording::open(file);
    // A busy machine may be later.
    let ended = recording.summary["duration_seconds"].as_f64().unwrap();
    assert!(ended >= 0.7, "{recording:?}");
    assert!(recording.total("allocations") > 1000, "{recording:?}");
    assert_eq!(recording.summary["complete"], true, "{recording:?}");
    assert_eq!(recording.processes()[0]["running"], true, "{recording:?}");
    let first = fs::read(&recording.path).unwrap();
    let contents = Contents::open(&first).unwrap();
    let times = contents.images().iter().flat_map(|image| contents.event_chunks(image.image));
    let earliest = times.map(|chunk| chunk.head().time_first.0).min().unwrap();
    assert!(earliest >= 299_000_000, "events from {earliest} ns on");
}

/// A program that signals its whole process group, including the recorder, does not switch
/// recording.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn signals_of_the_program_are_not_for_the_recorder() {
    let scratch = Scratch::new();
    let job = Job::shell("trap : USR2; kill -USR2 0; sleep 0.2; exec \"$PROGRAMS/mix\" 1000");
    program("mix");
    let (_, recording) = job.recorded(&scratch);
    assert_eq!(recording.ask("info", &[])["pauses"], serde_json::json!([]), "{recording:?}");
    recording.assert_whole();
}

#[test]
fn nobody_to_start() {
    let refused = heapledger(["stop", "999999999"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("`999999999` is not being recorded"), "{refused:?}");
    assert!(told.contains("hint: `heapledger status`"), "{told}");
}

/// Returns all files of a session, in order.
fn parts(scratch: &Scratch) -> Vec<Recording> {
    scratch.recordings().into_iter().map(Recording::open).collect()
}

/// Asserts that each file is a recording of its own time: its totals are those of its events, and
/// it begins with the blocks that were live at the end of the one before.
#[track_caller]
fn assert_parts_fit(parts: &[Recording]) {
    let mut before = (0, 0);
    for (index, part) in parts.iter().enumerate() {
        part.assert_whole().assert_adds_up();
        let info = part.ask("info", &[]);
        assert_eq!(info["part"], index as u64 + 1, "{part:?}");
        assert_eq!(info["damage"], serde_json::json!([]), "{part:?}");
        if part.total("blocks_live_max") == 0 {
            continue;
        }
        let counted = |options: &[&str], name| number(&part.ask("top", options)["total"], name);
        assert_eq!(counted(&["--by", "size", "--at", "end"], "bytes"), part.total("bytes_live_end"), "{part:?}");
        assert_eq!(counted(&["--by", "size", "--total"], "bytes"), part.total("bytes_allocated"), "{part:?}");
        let allocations = counted(&["--by", "thread", "--total", "--metric", "blocks"], "blocks");
        assert_eq!(allocations, part.total("allocations"), "{part:?}");
        if part.processes().len() == 1 {
            // Events do not give the exact order of calls in different processes.
            assert_eq!(counted(&["--by", "size"], "bytes"), part.total("bytes_live_max"), "{part:?}");
        }
        assert_eq!(counted(&["--by", "stack"], "bytes"), part.total("bytes_live_max"), "{part:?}");
        assert!(part.total("bytes_live_max") >= before.0, "{part:?}");
        let live = part.total("blocks_live_end");
        assert_eq!(before.1 + part.total("allocations") - part.total("frees"), live, "{part:?}");
        // Processes that have ended have nothing left.
        let goes_on = || part.processes().iter().filter(|process| process["running"] == true);
        let sum = |name: &str| goes_on().map(|process| number(process, name)).sum();
        before = (sum("bytes_live_end"), sum("blocks_live_end"));
    }
}

/// The sum over all files is that of a single file, and that of the program.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn rotated_files_are_one_recording() {
    let whole = Scratch::new();
    for (fixture, idle_work, work) in [("mix", "000000", "600000"), ("mix_threads", "000000", "150000")] {
        let scratch = Scratch::new();
        let (_, idle) = Job::fixture(fixture, idle_work).recorded(&whole);
        let (_, one) = Job::fixture(fixture, work).recorded(&whole);
        let job = Job::fixture(fixture, work).option("--rotate=64KiB");
        let outcome = job.start(Some(&scratch.file("app.hl"))).outcome();
        let told = &outcome.printed_objects()[0];
        let parts = parts(&scratch);
        assert!(parts.len() >= 3, "{parts:?}");
        assert!(parts[0].path.ends_with("app.0001.hl") && parts[2].path.ends_with("app.0003.hl"), "{parts:?}");
        assert_parts_fit(&parts);
        for name in ["allocations", "reallocations", "frees", "failed", "bytes_allocated"] {
            let sum: i64 = parts.iter().map(|part| part.total(name)).sum();
            assert_eq!(sum - idle.total(name), number(told, name), "{fixture}: {name}: {parts:?}");
        }
        let last = parts.last().unwrap();
        assert_eq!(last.total("bytes_live_end") - idle.total("bytes_live_end"), number(told, "bytes_live_end"));
        let peak = parts.iter().map(|part| part.total("bytes_live_max")).max().unwrap();
        if fixture == "mix" {
            assert_eq!(peak, one.total("bytes_live_max"), "{parts:?}");
            // Blocks from before have the same stacks as in a single recording.
            assert_eq!(last.ask("leaks", &["-n", "0"]), one.ask("leaks", &["-n", "0"]));
        }
        assert_eq!(last.summary["exit"], one.summary["exit"]);
    }
}

/// Processes start, end, fork and call exec while files change.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn rotated_files_of_many_processes() {
    let scratch = Scratch::new();
    let (ready, end) = (scratch.file("ready"), scratch.file("end"));
    let line = format!("{} 600000 {}", ready.display(), end.display());
    let job = Job::fixture("persists", &line).option("--rotate=200ms").with_report();
    let running = job.start(Some(&scratch.file("app.hl")));
    wait_until("there are five files", || scratch.recordings().len() >= 5);
    fs::write(&end, "").unwrap();
    let outcome = running.outcome();
    assert_eq!(outcome.status, exited(42), "{outcome:?}");
    let parts = parts(&scratch);
    assert!(parts.len() >= 5, "{parts:?}");
    assert_parts_fit(&parts);
    // The parent and some children, each with the stacks that it needs; the number in a file
    // depends on the speed.
    assert!(parts.iter().any(|part| part.processes().len() > 1), "{parts:?}");
    assert!(parts.iter().map(|part| part.total("allocations")).sum::<i64>() > 2000, "{parts:?}");
    for part in &parts {
        let sites = part.ask("top", &["--by", "stack", "--total", "-n", "0"]).to_string();
        assert!(part.total("allocations") == 0 || sites.contains("\"work\""), "{sites}");
        assert!(!sites.contains("unknown"), "{sites}");
    }
    let report = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(report.contains(&format!("wrote {} files, the last of them", parts.len())), "{report}");
}

/// A child whose parent has ended in an earlier file, and that allocates only then, still has its
/// stacks; and a file without events has the live blocks.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn rotated_files_in_which_little_happens() {
    let phases = Phases::start(&["--rotate=200ms"]);
    // The first new file may contain the end of the phase, and the last is not complete.
    let wait_for_files = |more| {
        let before = phases.scratch.recordings().len();
        wait_until("there are new files", || phases.scratch.recordings().len() >= before + more);
    };
    phases.run(1);
    wait_for_files(3);
    phases.run(2);
    wait_for_files(1);
    phases.run(3);
    let outcome = phases.running.outcome();
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    let parts = parts(&phases.scratch);
    assert_parts_fit(&parts);
    let quiet = parts.iter().find(|part| part.total("allocations") == 0 && part.total("blocks_live_end") > 0);
    let quiet = quiet.expect("a part in which nothing happens");
    assert_eq!(quiet.total("bytes_live_max"), 100_000, "{quiet:?}");
    let sites = quiet.ask("leaks", &[]).to_string();
    assert!(sites.contains("phase_1"), "{sites}");
    // A moment before a file is in the file before it.
    let refused = heapledger(["top", "--at", "0s", quiet.path.to_str().unwrap()]);
    assert_eq!(refused.status, exited(2), "{refused:?}");
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(why.contains("the recording begins after that moment") && why.contains("hint: it begins at "), "{why}");
    // The child of the last phase is in the file in which it ended; on a busy machine another file
    // may follow.
    let (own, child) = (490 * 100 + 10 * 5000 + 500 * 200 + 1000 * 300, 9 * 90);
    let last = parts.last().unwrap().total("bytes_live_end");
    let has_child = |part: &Recording| part.processes().iter().any(|one| number(one, "bytes_live_end") == child);
    assert!(last == own + child || last == own && parts.iter().any(has_child), "{last}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_oldest_files_are_removed() {
    let scratch = Scratch::new();
    let (ready, end) = (scratch.file("ready"), scratch.file("end"));
    let line = format!("{} 600000 {}", ready.display(), end.display());
    let job = Job::fixture("persists", &line).option("--rotate=100ms").option("--keep=2").directory(scratch.path());
    // Names are added to files while other files are removed.
    let job = job.with_names("auto");
    let running = job.start(None);
    // Without an end, so there are as many files as needed, however fast they come.
    let is_fourth = |file: &PathBuf| file.to_str().is_some_and(|path| path.contains(".0004."));
    wait_until("there is a fourth file", || scratch.recordings().iter().any(is_fourth));
    // All of them have the name that they are numbered after, which without `-o` contains the
    // process id.
    let first = scratch.recordings()[0].to_str().unwrap().to_owned();
    let name = format!("{}.hl", first.rsplitn(3, '.').last().unwrap());
    let status = heapledger(["status", "--json", &name]);
    assert_eq!(documents::read(&status.stdout)["rows"].as_array().unwrap().len(), 1, "{name}: {status:?}");
    fs::write(&end, "").unwrap();
    let outcome = running.outcome();
    assert_eq!(outcome.status, exited(42), "{outcome:?}");
    let kept = scratch.recordings();
    assert_eq!(kept.len(), 2, "{kept:?}");
    let last = Recording::open(kept[1].clone());
    assert!(last.ask("info", &[])["part"].as_u64() > Some(2), "{last:?}");
    let name = kept[1].file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("heapledger.persists.") && name.ends_with(".hl"), "{name}");
}
