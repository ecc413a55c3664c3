//! Stacks through code that compilers generate at run time: Python's, JavaScript's and Java's
//! functions, by the names that the programs write for profilers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::harness::{Job, Recording, Scratch, heapledger, installed, number};

/// Returns the stacks of a recording, outermost function first, with the blocks at the peak.
fn stacks(recording: &Recording, scratch: &Scratch) -> Vec<Vec<String>> {
    let file = scratch.file("stacks.txt");
    let words = ["export", "--to", "collapsed", "--metric", "blocks", "--force", "-o"].map(Path::new);
    let outcome = heapledger(words.into_iter().chain([file.as_path(), &recording.path]));
    assert!(outcome.status.success(), "{outcome:?}");
    let text = std::fs::read_to_string(file).unwrap();
    let stack = |line: &str| line.rsplit_once(' ').unwrap().0.split(';').map(str::to_owned).collect();
    text.lines().map(stack).collect()
}

/// Asserts that a stack has functions with these texts in their names, in this order.
#[track_caller]
fn assert_some_leads_through(stacks: &[Vec<String>], texts: &[&str]) {
    let leads = |stack: &&Vec<String>| {
        let mut functions = stack.iter();
        texts.iter().all(|text| functions.any(|function| function.contains(text)))
    };
    let near: Vec<_> = stacks.iter().filter(|stack| stack.iter().any(|name| name.contains(texts[1]))).take(3).collect();
    assert!(stacks.iter().any(|stack| leads(&stack)), "no stack through {texts:?}: {near:#?}");
}

/// Removes the perf maps of a recording's processes, which their compilers leave behind.
fn clean_up(recording: &Recording) {
    for process in recording.processes() {
        let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", number(process, "pid")));
    }
}

/// Returns a CPython that has trampolines for profilers.
fn python() -> Option<PathBuf> {
    let has_trampolines = |python: &PathBuf| {
        let line = "import sys; sys.exit(not sys.is_stack_trampoline_active())";
        let job = Job::new([python.as_os_str(), "-X".as_ref(), "perf".as_ref(), "-c".as_ref(), line.as_ref()]);
        job.bare().status.success()
    };
    let versions = std::fs::read_dir(format!("{}/.pyenv/versions", std::env::var("HOME").unwrap_or_default()));
    let of_pyenv = versions.into_iter().flatten().flatten().map(|version| version.path().join("bin/python3"));
    let named = ["python3.12", "python3.13", "python3.14", "python3"];
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = std::env::split_paths(&paths).collect();
    let in_path = named.iter().flat_map(|name| directories.iter().map(move |directory| directory.join(name)));
    let found = in_path.chain(of_pyenv).filter(|python| python.is_file()).find(has_trampolines);
    if found.is_none() {
        // Not every distribution has one, so it is not demanded.
        println!("skipped: no CPython with `-X perf` (3.12 or newer) is installed");
    }
    found
}

const PYTHON: &str = "\
def innermost():
    return bytearray(300_000)
def between():
    return [innermost() for _ in range(10)]
def outermost():
    kept = between()
    print(len(kept))
outermost()
";

/// Trampolines have an exact rule: nothing is unproven, and glibc finds the same frames as far as
/// it comes.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn of_python() {
    let Some(python) = python() else { return };
    let scratch = Scratch::new();
    let script = scratch.write("program.py", PYTHON);
    let job = Job::new([python.as_os_str(), "-X".as_ref(), "perf".as_ref(), script.as_os_str()]);
    let (_, recording) = job.option("--verify-stacks").timeout(Duration::from_secs(600)).both(&scratch);
    let stacks = stacks(&recording, &scratch);
    assert_some_leads_through(
        &stacks,
        &["_start", "py::outermost:", "py::between:", "py::innermost:", "bytearray___init__"],
    );
    assert_eq!(recording.total("stacks_unproven"), 0);
    assert_eq!(recording.total("stacks_mismatched"), 0, "{:#}", recording.ask("info", &[])["stack_mismatches"]);
    assert!(recording.total("stacks_incomparable_outlasting") > 0, "{recording:?}");
    // Functions of generated code are found by their names.
    let blocks = |options: &[&str]| {
        let rows = recording.ask("top", options);
        rows["rows"].as_array().unwrap().iter().map(|row| number(row, "blocks")).sum::<i64>()
    };
    assert!(blocks(&["--function", "py::innermost*", "--size", "300000.."]) >= 10);
    let modules = recording.ask("info", &[])["modules"].to_string();
    assert!(modules.contains("[jit]"), "{modules}");
    clean_up(&recording);
}

const SCRIPT: &str = "\
function innermost(count) { const kept = []; for (let at = 0; at < count; at++) kept.push(Buffer.alloc(100000)); return kept; }
function between(count) { let all = []; for (let at = 0; at < 20; at++) all = all.concat(innermost(count)); return all; }
function outermost() { return between(5); }
console.log(outermost().length);
";

/// Frame pointers lead from the first builtin to C++, and unwind information from there to the
/// start of the program.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn of_node() {
    let Some(node) = installed("node") else { return };
    let scratch = Scratch::new();
    let script = scratch.write("program.js", SCRIPT);
    for names in ["--perf-basic-prof", "--perf-prof"] {
        let job = Job::new([node.as_os_str(), names.as_ref(), "--interpreted-frames-native-stack".as_ref()]);
        let job = job.argument(&script).directory(scratch.path()).timeout(Duration::from_secs(600));
        let (_, recording) = job.recorded(&scratch);
        let stacks = stacks(&recording, &scratch);
        let texts = ["_start", "node::Start", "outermost", "between", "innermost", "BackingStore::Allocate"];
        assert_some_leads_through(&stacks, &texts);
        assert!(recording.total("stacks_unproven") >= 100, "{recording:?}");
        clean_up(&recording);
    }
}

const JAVA: &str = "\
import java.util.zip.Deflater;
public class Program {
    static Deflater innermost() { return new Deflater(); }
    static Deflater[] between() { Deflater[] all = new Deflater[10]; for (int at = 0; at < 10; at++) all[at] = innermost(); return all; }
    public static void main(String[] words) throws Exception {
        Object last = null;
        for (int at = 0; at < 3000; at++) { Deflater[] all = between(); for (Deflater one : all) one.end(); last = all; }
        System.out.println(((Deflater[]) last).length);
    }
}
";

/// Compiled methods have names; the interpreter's frames are all `Interpreter`.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn of_java() {
    let (Some(java), Some(javac)) = (installed("java"), installed("javac")) else { return };
    let scratch = Scratch::new();
    let source = scratch.write("Program.java", JAVA);
    let compiled = Job::new([javac.as_os_str(), source.as_os_str()]).bare();
    assert!(compiled.status.success(), "{compiled:?}");
    let options = ["-XX:+PreserveFramePointer", "-XX:+UnlockDiagnosticVMOptions", "-XX:+DumpPerfMapAtExit", "-Xcomp"];
    let job = Job::new([java.as_os_str()].into_iter().chain(options.map(AsRef::as_ref)));
    let job = job.argument("-cp").argument(scratch.path()).argument("Program").timeout(Duration::from_secs(600));
    let (outcome, recording) = job.recorded(&scratch);
    assert_eq!(outcome.text(), "10\n");
    let rows = recording.ask("tree", &["--total", "--frames", "all", "--function", "*Program.innermost*"]).to_string();
    for name in ["Program.main", "Program.between", "Program.innermost", "JavaMain"] {
        assert!(rows.contains(name), "{name}: {rows:.2000}");
    }
    assert!(recording.total("stacks_unproven") > 0, "{recording:?}");
    clean_up(&recording);
}

/// Programs without generated code have no frames in it.
#[test]
fn is_in_no_other_program() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "100").both(&scratch);
    assert_eq!(recording.total("stacks_unproven"), 0);
    let info = recording.ask("info", &[]);
    assert!(!info["modules"].to_string().contains("[jit]"), "{info}");
}
