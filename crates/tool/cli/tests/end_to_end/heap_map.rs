//! `heapledger heap-map`: the heap of a running program.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::harness::*;

/// Returns the preload library of the allocator, which is built once.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("allocator");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--offline", "--profile", "preload", "--package", "heapledger-heap-preload"]);
        cargo.arg("--target-dir").arg(&target).env_remove("CARGO_BUILD_BUILD_DIR");
        let output = cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR"))).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        target.join("preload/libheapledger_allocator.so")
    })
}

/// A program that waits until its stdin is closed, and the line that it printed.
struct Waiting {
    child: Child,
    line: String,
}

impl Waiting {
    fn begin() -> Waiting {
        let scratch = Scratch::new();
        let program = scratch.file("program");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/programs/allocator_inspection.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-fno-builtin", "-w", "-pthread", "-o"]).arg(&program).arg(source).arg(library());
        assert!(compiler.status().unwrap().success());
        let mut command = Command::new(&program);
        command.arg("wait").stdin(Stdio::piped()).stdout(Stdio::piped()).env("LD_PRELOAD", library());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Waiting { child, line }
    }

    fn number(&self, word: usize) -> u64 {
        self.line.split_whitespace().nth(word).unwrap().parse().unwrap()
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_running_program_is_shown_as_it_counts_itself() {
    let waiting = Waiting::begin();
    let pid = waiting.child.id().to_string();
    let outcome = heapledger(["heap-map", &pid, "--json"]);
    assert_eq!(String::from_utf8_lossy(&outcome.stderr), "");
    let document: Value = serde_json::from_slice(&outcome.stdout).unwrap();
    assert_eq!(document["schema"], "heapledger/heap-map");
    assert_eq!(document["bytes_used"], waiting.number(1));
    let chunks = document["chunks"].as_array().unwrap();
    assert_eq!(chunks.len() as u64, waiting.number(3));
    assert_eq!(document["huge"].as_array().unwrap().len(), 1);
    let rows = document["rows"].as_array().unwrap();
    let bin = rows.iter().find(|row| row["block_size"] == waiting.number(5)).unwrap();
    assert_eq!(bin["used"], waiting.number(7));
    // The rows are the sums of the runs.
    let runs = || chunks.iter().flat_map(|chunk| chunk["runs"].as_array().unwrap());
    for row in rows {
        let of_size = || runs().filter(|run| run["block_size"] == row["block_size"]);
        let used: u64 = of_size().map(|run| run["used"].as_u64().unwrap()).sum();
        assert_eq!((row["used"].as_u64(), row["runs"].as_u64()), (Some(used), Some(of_size().count() as u64)));
    }
    assert!(document["heaps"].as_u64().unwrap() >= 1);

    let text = heapledger(["heap-map", &pid]).text();
    assert!(text.starts_with(&format!("process {pid}: ")), "{text}");
    assert!(text.contains("\n0x") && text.contains('▆') && text.contains(" and 1 huge block, "), "{text}");
    let is_chunk = |line: &&str| line.starts_with("0x");
    assert!(text.lines().filter(is_chunk).all(|line| line.chars().count() == 16 + 63), "{text}");

    let svg = heapledger(["heap-map", &pid, "--svg"]).text();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    assert_eq!(svg.matches("<title>blocks of 112 B: ").count() as u64, bin["runs"].as_u64().unwrap());
    waiting.end();
}

#[test]
fn other_processes_have_no_map() {
    let refused = |process: &str| {
        let outcome = heapledger(["heap-map", process]);
        assert_eq!(outcome.status, exited(102));
        String::from_utf8_lossy(&outcome.stderr).into_owned()
    };
    let other = refused(&std::process::id().to_string());
    assert!(other.starts_with("error[HL0083]: process "), "{other}");
    assert!(
        other.contains("hint: start it with the allocator: heapledger run --allocator heapledger -- COMMAND\n"),
        "{other}"
    );
    let none = refused("4294967295");
    assert!(none.contains("there is no process 4294967295\n\nhint: `pgrep NAME`"), "{none}");
}
