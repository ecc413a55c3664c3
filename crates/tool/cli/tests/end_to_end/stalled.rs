//! A recorder that is stopped, and one that is only slow.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::harness::{HEAPLEDGER, Job, Recording, Running, Scratch, exited, heapledger, number, program, wait_until};

/// A program that waits for a signal to allocate much more than rings hold, and reports when it has
/// done so.
struct Flood {
    scratch: Scratch,
    go: PathBuf,
    done: PathBuf,
}

impl Flood {
    fn new() -> Flood {
        let scratch = Scratch::new();
        let (go, done) = (scratch.file("go"), scratch.file("done"));
        Flood { scratch, go, done }
    }

    fn job(&self, blocks: u32) -> Job {
        Job::fixture("flood", &format!("{blocks} {} {}", self.go.display(), self.done.display()))
    }

    /// Stops the recorder when the program is ready, and lets the program continue.
    fn stop(&self, running: &Running) {
        wait_until("the program is ready", || self.scratch.file("go.ready").exists());
        kill_process(running.pid(), Signal::STOP).unwrap();
        fs::write(&self.go, "").unwrap();
    }
}

fn pauses(recording: &Recording) -> Vec<Value> {
    recording.ask("info", &[])["pauses"].as_array().unwrap().clone()
}

/// The program continues alone, and is recorded again when the recorder is back: a second flood is
/// recorded completely.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_stopped_recorder_is_not_waited_for_for_ever() {
    let flood = Flood::new();
    let again = Flood::new();
    program("flood");
    let line = |flood: &Flood, blocks: u32| {
        format!("\"$PROGRAMS/flood\" {blocks} {} {}", flood.go.display(), flood.done.display())
    };
    let job = Job::shell(&format!("{}; {}; exit 6", line(&flood, 200_000), line(&again, 100_000)));
    let file = flood.scratch.file("recording.hl");
    // Long enough that on a busy machine no second stall is detected.
    let running = job.option("--stall-timeout=4s").with_report().start(Some(&file));
    flood.stop(&running);
    wait_until("the program has gone on without its recorder", || flood.done.exists());
    kill_process(running.pid(), Signal::CONT).unwrap();
    wait_until("the second program is ready", || again.scratch.file("go.ready").exists());
    fs::write(&again.go, "").unwrap();
    let outcome = running.outcome();
    assert_eq!(outcome.status, exited(6), "{outcome:?}");

    let recording = Recording::open(file);
    assert_eq!(recording.summary["complete"], true, "{recording:?}");
    let flood_program = program("flood");
    let flood_program = flood_program.to_str().unwrap();
    let of_floods: Vec<&Value> = recording
        .processes()
        .iter()
        .filter(|process| process["command"].as_str().is_some_and(|command| command.starts_with(flood_program)))
        .collect();
    let told = outcome.printed_objects();
    let [first, second] = of_floods[..] else { panic!("{recording:?}") };
    // The first flood lost most of its events, and each is counted. The ends of reallocations are
    // not among them.
    let lost = number(first, "events_lost");
    assert!(lost > 300_000, "{recording:?}");
    let events = |of: &Value| number(of, "allocations") + number(of, "frees");
    let own = events(second) - events(&told[1]);
    let recorded = events(first) + number(first, "frees_unknown") + lost;
    assert!((recorded - own - events(&told[0])).abs() <= 2, "{own} of its own: {recording:?} {told:?}");
    assert_eq!(
        number(first, "allocations") - number(first, "frees"),
        number(first, "blocks_live_end"),
        "{recording:?}"
    );
    // The second flood is exact.
    assert_eq!((number(second, "events_lost"), number(second, "frees_unknown")), (0, 0), "{recording:?}");
    assert_eq!(
        number(second, "allocations") - number(&told[1], "allocations"),
        number(second, "frees") - number(&told[1], "frees") + number(second, "blocks_live_end"),
        "{recording:?}"
    );
    let sites = recording.ask("top", &["--by", "stack", "--total", "-n", "0"]);
    assert!(sites.to_string().contains("\"work\""), "stacks are whole: {sites:#}");

    let stalls = pauses(&recording);
    let [stall] = &stalls[..] else { panic!("{stalls:?}") };
    assert_eq!(stall["stalled"], true);
    assert!(stall["until_seconds"].as_f64() > stall["from_seconds"].as_f64(), "{stall}");
    let report = String::from_utf8_lossy(&outcome.stderr).into_owned();
    let shown = heapledger(["summary".as_ref(), recording.path.as_os_str()]);
    for text in [report, String::from_utf8_lossy(&shown.stderr).into_owned()] {
        assert!(text.contains("HL0076") && text.contains("the recorder stood still from "), "{text}");
        assert!(text.contains("because a ring was full"), "{text}");
    }
}

/// New threads and new programs do not wait for the broker's answer either.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn who_comes_while_the_recorder_stands_still_goes_on() {
    let scratch = Scratch::new();
    for name in ["short_threads", "mix"] {
        program(name);
    }
    let (ready, go) = (scratch.file("ready"), scratch.file("go"));
    let line = format!(
        ": > '{}'; until [ -e '{}' ]; do sleep 0.01; done; \"$PROGRAMS/mix\" 100 > /dev/null; \
         \"$PROGRAMS/short_threads\" > /dev/null; echo on: $?; exit 5",
        ready.display(),
        go.display()
    );
    let bare = {
        fs::write(&go, "").unwrap();
        let outcome = Job::shell(&line).bare();
        fs::remove_file(&go).unwrap();
        fs::remove_file(&ready).unwrap();
        outcome
    };
    let file = scratch.file("recording.hl");
    let running = Job::shell(&line).option("--stall-timeout=500ms").start(Some(&file));
    wait_until("the shell runs", || ready.exists());
    kill_process(running.pid(), Signal::STOP).unwrap();
    fs::write(&go, "").unwrap();
    // The shell's end is visible as a zombie, until its parent continues.
    let pid = running.pid().as_raw_nonzero();
    let children = format!("/proc/{pid}/task/{pid}/children");
    let is_zombie =
        |child: &str| fs::read_to_string(format!("/proc/{child}/stat")).is_ok_and(|stat| stat.contains(") Z "));
    wait_until("the shell has ended without its recorder", || {
        fs::read_to_string(&children).is_ok_and(|children| children.split_whitespace().all(is_zombie))
    });
    kill_process(running.pid(), Signal::CONT).unwrap();
    let outcome = running.outcome();
    assert_eq!((outcome.status, &outcome.stdout), (bare.status, &bare.stdout), "{outcome:?}");
    Recording::open(file);
}

/// A program that starts after another one has noticed that the recorder is stopped does not wait
/// for it.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_that_start_in_a_known_stall_do_not_wait() {
    let flood = Flood::new();
    let end = flood.scratch.file("end");
    for name in ["flood", "mix"] {
        program(name);
    }
    let line = format!(
        "\"$PROGRAMS/flood\" 200000 {} {}; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do \
         \"$PROGRAMS/mix\" 100 > /dev/null; done; : > '{}'; exit 6",
        flood.go.display(),
        flood.done.display(),
        end.display()
    );
    let running = Job::shell(&line).option("--stall-timeout=500ms").start(Some(&flood.scratch.file("recording.hl")));
    flood.stop(&running);
    wait_until("the program has gone on without its recorder", || flood.done.exists());
    let began = Instant::now();
    wait_until("all others have ended", || end.exists());
    // Each of them would wait for five seconds by itself.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    kill_process(running.pid(), Signal::CONT).unwrap();
    assert_eq!(running.outcome().status, exited(6));
}

/// Without a timeout the program waits for the recorder.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_stopped_recorder_is_waited_for_if_that_is_wanted() {
    let flood = Flood::new();
    let file = flood.scratch.file("recording.hl");
    let running = flood.job(200_000).option("--stall-timeout=never").start(Some(&file));
    flood.stop(&running);
    // It cannot have continued, however long this is; two seconds are longer than any wait between
    // checks of the timeout.
    std::thread::sleep(Duration::from_secs(2));
    assert!(!flood.done.exists());
    kill_process(running.pid(), Signal::CONT).unwrap();
    let outcome = running.outcome();
    assert!(outcome.status.success(), "{outcome:?}");
    let recording = Recording::open(file);
    recording.assert_whole();
    assert!(pauses(&recording).is_empty() && recording.total("allocations") >= 400_000, "{recording:?}");
}

/// The program waits for a recorder that waits for a slow reader, as long as there is progress; a
/// stopped reader is noticed.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_slow_file_is_waited_for() {
    let scratch = Scratch::new();
    let mix = program("mix");
    // First as much as a pipe holds, then one page after the other with a pause: far longer than
    // the timeout in total, far shorter for each page.
    let line = format!(
        "'{HEAPLEDGER}' record --quiet --force --stall-timeout 10s -o /dev/fd/3 -- '{}' 800000 3>&1 >&2",
        mix.display()
    );
    let slowly = format!(
        "{{ {line}; echo code $? >&2; }} | python3 -c 'import sys, time\n\
         out = open(\"{}\", \"wb\")\n\
         while data := sys.stdin.buffer.raw.read(16384):\n    time.sleep(0.1); out.write(data)'",
        scratch.file("recording.hl").display()
    );
    if crate::harness::installed("python3").is_none() {
        return;
    }
    let outcome = Job::shell(&slowly).bare();
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("code 0"), "{outcome:?}");
    let recording = Recording::open(scratch.file("recording.hl"));
    recording.assert_whole();
    assert!(pauses(&recording).is_empty(), "{recording:?}");
}

/// A pipe that is not read for a while, like a disk that hangs.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_file_that_stands_still_is_not_waited_for() {
    let flood = Flood::new();
    let pipe = flood.scratch.file("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let job = flood.job(1_500_000).option("--force").option("--stall-timeout=500ms");
    // Reading and writing, so that opening does not wait.
    let mut reader = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    // One of its 16 pages is left.
    const FILLED: usize = 15 * 4096;
    reader.write_all(&[0; FILLED]).unwrap();
    let running = job.start(Some(&pipe));
    wait_until("the program is ready", || flood.scratch.file("go.ready").exists());
    fs::write(&flood.go, "").unwrap();
    wait_until("the program has gone on while nobody reads", || flood.done.exists());
    let copy = flood.scratch.file("recording.hl");
    let copied = copy.clone();
    let writer = std::thread::spawn(move || {
        let mut file = File::create(copied).unwrap();
        let mut bytes = vec![0; 1 << 16];
        loop {
            let count = reader.read(&mut bytes).unwrap();
            file.write_all(&bytes[..count]).unwrap();
            if bytes[..count].ends_with(b"done") {
                return;
            }
        }
    });
    let outcome = running.outcome();
    // The reader has the pipe open for writing, too, so it must be told about the end.
    fs::write(&pipe, "done").unwrap();
    writer.join().unwrap();
    assert!(outcome.status.success(), "{outcome:?}");
    let mut bytes = fs::read(&copy).unwrap();
    bytes.truncate(bytes.len() - 4);
    fs::write(&copy, &bytes[FILLED..]).unwrap();
    let recording = Recording::open(copy);
    assert!(recording.total("events_lost") > 0 && recording.summary["complete"] == true, "{recording:?}");
    assert!(pauses(&recording).iter().all(|stall| stall["stalled"] == true) && !pauses(&recording).is_empty());
}
