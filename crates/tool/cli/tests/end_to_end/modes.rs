//! The ways of recording: what they keep, what they leave out, and what they say of it.

use std::fs;

use heapledger_recording::{MemorySample, Recording as Contents};
use rustix::process::{Signal, kill_process};

use crate::harness::{Job, Recording, Scratch, heapledger, number, wait_until};

/// The recorder stands still while the program makes 800,000 events: the program does not wait, and each event is either
/// in the recording or counted as lost.
#[test]
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
    let told = &outcome.told()[0];
    let recording = Recording::open(file);

    let lost = recording.total("events_lost");
    assert_eq!(number(&recording.summary["events_lost_by_cause"], "ring_full"), lost, "{recording:?}");
    assert!(lost > 500_000, "the rings are too small for that many: {recording:?}");
    let events = |of: &dyn Fn(&str) -> i64| of("allocations") + of("frees");
    let recorded = events(&|name| recording.total(name) - idle.total(name)) + recording.total("frees_unknown");
    assert_eq!(recorded + lost, events(&|name| number(told, name)), "{recording:?}");
    // What is recorded makes sense: nothing is freed twice, and what is live at the end was allocated.
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

/// Where there is room, nothing is dropped: the mode alone changes nothing.
#[test]
fn rings_with_room_drop_nothing() {
    let scratch = Scratch::new();
    let job = |work: &str| Job::fixture("mix", work).option("--on-full=drop");
    let ((_, without), (busy, with)) = (job("0000").recorded(&scratch), job("1000").recorded(&scratch));
    let told = &busy.told()[0];
    for name in ["allocations", "frees", "reallocations", "bytes_allocated", "blocks_live_end"] {
        assert_eq!(with.total(name) - without.total(name), number(told, name), "{name}: {with:?}");
    }
    with.assert_whole();
}

#[test]
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
fn totals_without_events() {
    let scratch = Scratch::new();
    let job = |work| Job::fixture("mix", work);
    let (_, full) = job("100000").recorded(&scratch);
    let (_, short) = job("10000").option("--aggregate").recorded(&scratch);
    let (_, totals) = job("100000").option("--aggregate").recorded(&scratch);
    totals.assert_whole().assert_adds_up();
    for name in full.summary.as_object().unwrap().keys().filter(|name| !UNSTEADY.contains(&name.as_str())) {
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

/// What differs from run to run, or says how it was recorded.
const UNSTEADY: [&str; 4] = ["costs", "duration_seconds", "bytes_live_max_time_seconds", "processes"];

/// Every process and image of a session has its totals, and they outlive it.
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

/// The recorder is killed in the middle: the file has the state of some seconds before, whole.
#[test]
fn totals_outlive_their_recorder() {
    let scratch = Scratch::new();
    let (ready, file) = (scratch.file("ready"), scratch.file("recording.hl"));
    let job = Job::fixture("persists", &format!("{} 3000", ready.display())).option("--aggregate");
    let running = job.start(Some(&file));
    wait_until("the file has been replaced", || fs::metadata(&file).is_ok_and(|data| data.len() > 0));
    kill_process(running.pid(), Signal::KILL).unwrap();
    let recording = Recording::open(file);
    assert_eq!(recording.summary["complete"], false, "{recording:?}");
    assert!(recording.total("allocations") > 1000, "{recording:?}");
    recording.assert_adds_up();
    let sites = recording.ask("top", &["--by", "stack", "--total", "-n", "0"]);
    assert!(sites.to_string().contains("\"work\""), "{sites:#}");
    wait_until("the program goes on to its end", || fs::read(&ready).is_ok_and(|text| text.ends_with(b"fine\n")));
}

/// Threads come and go without leaving anything behind in the file.
#[test]
fn totals_of_very_many_threads() {
    let scratch = Scratch::new();
    let (_, few) = Job::fixture("short_threads", "100").option("--aggregate").recorded(&scratch);
    let (_, many) = Job::fixture("short_threads", "5000").option("--aggregate").both(&scratch);
    assert_eq!(many.total("threads"), 5001, "{many:?}");
    let length = |recording: &Recording| number(&recording.ask("info", &[])["chunks"]["metadata"], "bytes");
    assert!(length(&many) - length(&few) < 100, "{} and {}", length(&few), length(&many));
}
