//! `heapledger live`: the figures of a program that runs, as JSON and in a terminal.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::documents;
use crate::harness::{
    HEAPLEDGER, Job, Recording, Running, Scratch, exited, heapledger, installed, number, program, wait_until,
};

/// A recorded program that waits for its next step.
struct Watched {
    scratch: Scratch,
    running: Running,
    file: PathBuf,
}

impl Watched {
    fn start(option: &str) -> Watched {
        let scratch = Scratch::new();
        let file = scratch.file("watched.hl");
        let job = Job::fixture("watched", scratch.file("go").to_str().unwrap());
        let job = if option.is_empty() { job } else { job.option(option) };
        let running = job.start(Some(&file));
        wait_until("the first step is done", || scratch.file("go.1").exists());
        Watched { scratch, running, file }
    }

    fn recorder(&self) -> String {
        self.running.pid().as_raw_nonzero().to_string()
    }

    fn ask(&self, options: &[&str]) -> Value {
        let recorder = self.recorder();
        let outcome = heapledger(["live", &recorder, "--json", "--once"].iter().chain(options));
        assert!(outcome.status == exited(0), "{outcome:?}");
        // One line.
        assert_eq!(outcome.text().trim_end().lines().count(), 1);
        documents::read(&outcome.stdout)
    }

    fn step(&self) {
        fs::write(self.scratch.file("go"), "").unwrap();
        wait_until("the second step is done", || self.scratch.file("go.2").exists());
    }

    fn end(self) -> (Recording, Scratch) {
        fs::write(self.scratch.file("go.end"), "").unwrap();
        assert_eq!(self.running.outcome().status, exited(7));
        (Recording::open(self.file), self.scratch)
    }
}

/// Returns the row of a function.
fn row<'a>(answer: &'a Value, function: &str) -> &'a Value {
    let rows = answer["rows"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == function).unwrap_or_else(|| panic!("no {function}: {answer:#}"))
}

fn check_figures(option: &str) {
    let watched = Watched::start(option);
    let first = watched.ask(&["-n", "0"]);
    assert_eq!(
        (number(row(&first, "keep_large"), "bytes_live"), number(row(&first, "keep_large"), "blocks_live")),
        (500_000, 50)
    );
    assert_eq!(number(row(&first, "keep_small"), "bytes_live"), 1200);
    let short = row(&first, "use_shortly");
    assert_eq!([number(short, "bytes_live"), number(short, "allocations"), number(short, "temporary")], [0, 50, 50]);
    // Callers hold what goes through them.
    assert_eq!(
        (number(row(&first, "serve"), "bytes_live"), number(row(&first, "serve"), "bytes_through")),
        (0, 501_200)
    );

    watched.step();
    let second = watched.ask(&["-n", "0"]);
    assert_eq!(number(row(&second, "keep_large"), "bytes_live"), 1_000_000);
    assert!(number(&second, "bytes_resident") > 1_000_000, "{second:#}");
    let modules = watched.ask(&["--by", "module", "-n", "1"]);
    assert_eq!(
        (number(&modules, "bytes_live"), modules["rows"].as_array().unwrap().len()),
        (number(&second, "bytes_live"), 1)
    );
    assert_eq!(modules["rows"][0]["name"], "watched");

    // The program frees nothing more: the figures are those of the end.
    let (recording, _scratch) = watched.end();
    assert_eq!(number(&second, "bytes_live"), recording.total("bytes_live_end"));
    assert_eq!(number(&second, "blocks_live"), recording.total("blocks_live_end"));
    let top = recording.ask("top", &["--by", "function", "--at", "end", "-n", "0"]);
    let of_end: Vec<(i64, i64)> =
        top["rows"].as_array().unwrap().iter().map(|row| (number(row, "bytes"), number(row, "blocks"))).collect();
    let live = second["rows"].as_array().unwrap().iter().filter(|row| number(row, "blocks_live") > 0);
    let live: Vec<(i64, i64)> = live.map(|row| (number(row, "bytes_live"), number(row, "blocks_live"))).collect();
    assert_eq!(live, of_end, "{second:#}\n{top:#}");
}

#[test]
fn figures_are_those_of_the_recording() {
    check_figures("");
}

/// A recording without events is written as a whole from time to time; so are the stacks.
#[test]
fn an_aggregate_can_be_watched() {
    check_figures("--aggregate");
}

/// The stacks are in the file before; each file of a rotated recording has all of them.
#[test]
fn a_rotated_recording_can_be_watched() {
    let scratch = Scratch::new();
    let job = Job::fixture("watched", scratch.file("go").to_str().unwrap()).option("--rotate=100ms");
    let running = job.start(Some(&scratch.file("watched.hl")));
    wait_until("the first step is done", || scratch.file("go.1").exists());
    let recorder = running.pid().as_raw_nonzero().to_string();
    wait_until("there are two files", || scratch.recordings().len() > 1);
    let answer = documents::read(&heapledger(["live", &recorder, "--json", "--once", "-n", "0"]).stdout);
    assert_eq!(number(row(&answer, "keep_large"), "bytes_live"), 500_000);
    for file in ["go", "go.end"] {
        fs::write(scratch.file(file), "").unwrap();
    }
    assert_eq!(running.outcome().status, exited(7));
}

/// The program is recorded for the time that it is watched: its output and exit status are its own,
/// and nothing is left.
#[test]
fn a_command_is_watched_to_its_end() {
    let scratch = Scratch::new();
    let temporary = scratch.file("tmp");
    fs::create_dir(&temporary).unwrap();
    for file in ["go", "go.end"] {
        fs::write(scratch.file(file), "").unwrap();
    }
    let job = Job::fixture("watched", scratch.file("go").to_str().unwrap()).variable("TMPDIR", &temporary);
    let outcome = job.through(["live", "--json", "-n", "0"].map(AsRef::as_ref)).outcome();
    assert_eq!(
        (outcome.status, String::from_utf8_lossy(&outcome.stderr).as_ref()),
        (exited(7), "served\n"),
        "{outcome:?}"
    );
    let lines: Vec<Value> = outcome.text().lines().map(|line| documents::read(line.as_bytes())).collect();
    let last = lines.last().unwrap();
    assert_eq!((&last["ended"], number(row(last, "keep_large"), "bytes_live")), (&Value::Bool(true), 1_000_000));
    assert!(lines[..lines.len() - 1].iter().all(|line| line["ended"] == false), "{lines:#?}");
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "nothing is left");

    // A file that is named is kept.
    let kept = scratch.file("kept.hl");
    let words = ["live", "--json", "--once", "-o", kept.to_str().unwrap()];
    let outcome = job.through(words.map(AsRef::as_ref)).outcome();
    assert_eq!(outcome.text().lines().count(), 1);
    let answer = documents::read(&outcome.stdout);
    assert_eq!(number(&answer, "bytes_live"), Recording::open(kept).total("bytes_live_end"));
}

/// A process that begins between the answer of the recorder and the reading of its file has no
/// figures yet.
#[test]
fn processes_that_begin_do_not_end_the_view() {
    let line = "i=0; while [ $i -lt 60 ]; do /bin/ls / >&2; i=$((i + 1)); done; exit 5";
    let outcome = heapledger(["live", "--json", "--", "/bin/sh", "-c", line]);
    assert_eq!(outcome.status, exited(5), "{outcome:?}");
    let lines: Vec<Value> = outcome.text().lines().map(|line| documents::read(line.as_bytes())).collect();
    let last = lines.last().unwrap();
    assert_eq!(last["ended"], true);
    assert!(number(last, "allocations") > 60, "{last:#}");
}

#[test]
fn what_cannot_be_watched_is_said() {
    let said = |arguments: &[&str]| {
        let outcome = heapledger(["live"].iter().chain(arguments));
        (outcome.status, String::from_utf8_lossy(&outcome.stderr).into_owned())
    };
    let own = std::process::id().to_string();
    let (status, text) = said(&[&own, "--json"]);
    assert!(
        status == exited(103) && text.contains("error[HL0128]") && text.contains(&format!("heapledger attach {own}")),
        "{text}"
    );
    let (status, text) = said(&[&own]);
    assert!(status == exited(2) && text.contains("no terminal") && text.contains("--json"), "{text}");
    let (status, text) = said(&["--json", "--by", "thread", &own]);
    assert!(status == exited(2) && text.contains("takes the events of a recording"), "{text}");
    let (status, text) = said(&["--json", "--", "/nonexistent/program"]);
    assert!(status == exited(127), "{text}");
}

/// A terminal of its own size, by tmux.
struct TestTerminal {
    tmux: PathBuf,
    name: String,
}

impl TestTerminal {
    fn open(line: &str) -> Option<TestTerminal> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let tmux = installed("tmux")?;
        let name = format!("heapledger-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let terminal = TestTerminal { tmux, name };
        // The shell stays, so that the picture after the end can be read.
        let line = format!("{line}; echo \"left with $?\"; exec cat");
        let words = ["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "/bin/sh", "-c", &line];
        let done = terminal.run(&words);
        assert!(done.status.success(), "{done:?}");
        Some(terminal)
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(&self.tmux);
        command.env_remove("TMUX").env("LC_ALL", "C.UTF-8").args(["-u", "-L", &self.name]).args(words).output().unwrap()
    }

    fn press(&self, keys: &[&str]) {
        let done = self.run(&[&["send-keys"], keys].concat());
        assert!(done.status.success(), "{done:?}");
    }

    fn picture(&self) -> String {
        String::from_utf8(self.run(&["capture-pane", "-p"]).stdout).unwrap()
    }

    /// Waits until the picture has this text.
    fn wait(&self, text: &str) -> String {
        let mut picture = String::new();
        wait_until(&format!("`{text}` is shown"), || {
            picture = self.picture();
            picture.contains(text)
        });
        picture
    }
}

impl Drop for TestTerminal {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_str().unwrap().replace('\'', r"'\''"))
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_terminal_shows_a_command_that_obeys_keys() {
    let scratch = Scratch::new();
    let go = scratch.file("go");
    let line = format!("{HEAPLEDGER} live -- {} {}", quoted(&program("watched")), quoted(&go));
    let Some(terminal) = TestTerminal::open(&line) else { return };
    let first = terminal.wait("keep_large");
    assert!(first.contains("488.3 KiB") && first.contains("watched (") && first.contains("through"), "{first}");
    assert!(first.lines().all(|line| line.chars().count() <= 80), "{first}");
    // Growth since a mark.
    terminal.press(&["m"]);
    terminal.wait("since mark");
    fs::write(&go, "").unwrap();
    terminal.wait("+488.3 KiB");
    // The callers of the first row, from the inside out, and back.
    terminal.press(&["Enter"]);
    terminal.wait("callers of keep_large");
    terminal.wait(" serve");
    terminal.press(&["Enter"]);
    terminal.wait("callers of serve");
    terminal.wait(" main");
    terminal.press(&["BSpace", "BSpace"]);
    terminal.wait("keep_small");
    // Filter, help, another size.
    terminal.press(&["/", "s", "m", "a", "l", "l", "Enter"]);
    terminal.wait("only `small`");
    assert!(!terminal.picture().contains("keep_large"));
    terminal.press(&["?"]);
    terminal.wait("select a row");
    terminal.press(&["x", "Escape"]);
    terminal.run(&["resize-window", "-x", "130", "-y", "30"]);
    terminal.wait("watched.c:");
    terminal.press(&["p"]);
    terminal.wait("PAUSED");
    terminal.press(&["p", "q"]);
    terminal.wait("the program still runs");
    terminal.press(&["x"]);
    fs::write(scratch.file("go.end"), "").unwrap();
    terminal.wait("has ended: these are its last figures");
    terminal.press(&["q"]);
    // The terminal is as before, with what the program has written.
    let after = terminal.wait("left with 7");
    assert!(after.contains("served") && !after.contains("keep_large"), "{after}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_terminal_survives_its_recorder_and_leaves_the_recording_alone() {
    let watched = Watched::start("");
    let recorder = watched.recorder();
    let line = format!("{HEAPLEDGER} live {recorder}");
    // The recording stays as it is when the view ends.
    let Some(terminal) = TestTerminal::open(&line) else { return };
    terminal.wait("keep_large");
    terminal.press(&["C-c"]);
    terminal.wait("left with 0");
    assert_eq!(number(row(&watched.ask(&[]), "keep_large"), "bytes_live"), 500_000);
    drop(terminal);
    // A signal ends the view, but the terminal is put back before.
    let pid_file = watched.scratch.file("pid");
    let line_of_signal =
        format!("sh -c 'echo $$ > {}; exec {line}'; stty -a | grep -o -e '-\\?icanon'", quoted(&pid_file));
    let Some(terminal) = TestTerminal::open(&line_of_signal) else { return };
    terminal.wait("keep_large");
    let pid = fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    let after = terminal.wait("left with 0");
    assert!(after.lines().any(|line| line == "icanon") && !after.contains("keep_large"), "{after}");
    drop(terminal);
    let Some(terminal) = TestTerminal::open(&line) else { return };
    terminal.wait("keep_large");
    kill_process(watched.running.pid(), Signal::KILL).unwrap();
    let last = terminal.wait("has ended");
    assert!(last.contains("keep_large"), "{last}");
    // The last figures can still be asked.
    terminal.press(&["Enter"]);
    terminal.wait("callers of");
    terminal.press(&["q"]);
    let after = terminal.wait("left with 0");
    assert!(!after.contains("keep_large"), "{after}");
}
