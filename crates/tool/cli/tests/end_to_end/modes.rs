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
