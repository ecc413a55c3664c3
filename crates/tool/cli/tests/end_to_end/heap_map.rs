//! `heapledger heap-map`: the heap of a running program.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::documents;
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

    // The same by pages: the sums are those of the runs, and the descriptions of the chunks.
    let by_page = documents::read(&heapledger(["heap-map", &pid, "--by", "arena", "--json"]).stdout);
    assert!(by_page["allocator"].as_str().unwrap().starts_with("Heapledger's allocator"), "{by_page:#}");
    let arenas = by_page["rows"].as_array().unwrap().iter().filter(|row| {
        let name = row["name"].as_str().unwrap();
        !name.contains("own memory") && !name.contains("glibc")
    });
    let used: i64 = arenas.map(|row| number(&row["pages"]["all"], "bytes_used")).sum();
    let counted = document["bytes_used"].as_i64().unwrap();
    // Each page is rounded, and large blocks end within a page, or have pages without memory.
    assert!((counted / 4..counted + (1 << 20)).contains(&used), "{used} {counted}");

    let svg = heapledger(["heap-map", &pid, "--svg"]).text();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
    assert_eq!(svg.matches("<title>blocks of 112 B: ").count() as u64, bin["runs"].as_u64().unwrap());
    waiting.end();
}

/// A program that waits until its stdin is closed, and has printed `end` before.
fn begin_waiting(command: &mut Command) -> Child {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.take_while(|line| line != "end").all(|line| !line.is_empty()));
    child
}

#[test]
fn pages_of_glibc_are_those_of_its_arenas() {
    let mut child = begin_waiting(Command::new(program("many_arenas")).arg("5"));
    let pid = child.id().to_string();
    let map = documents::read(&heapledger(["heap-map", &pid, "--json"]).stdout);
    let rss = documents::read(&heapledger(["rss", &pid, "--json"]).stdout);
    assert_eq!((map["version"].as_u64(), map["grouping"].as_str()), (Some(2), Some("arena")));
    let arenas = rss["glibc"]["arenas"].as_array().unwrap();
    let rows = map["rows"].as_array().unwrap();
    assert_eq!((rows.len(), arenas.len()), (7, 6));
    // The last one has the blocks with mappings of their own; the others have what `rss` says.
    let (mapped, heaps) = rows.split_last().unwrap();
    assert_eq!(mapped["name"], "blocks with mappings of their own");
    let all = &mapped["pages"]["all"];
    let resident = number(&rss["glibc"]["mapped"], "bytes_resident");
    assert_eq!([4096 * number(all, "pages"), number(all, "bytes_used")], [resident; 2]);
    let sum = |what: &str| heaps.iter().map(|row| number(&row["pages"]["all"], what)).sum::<i64>();
    let all = &rss["glibc"]["pages"]["all"];
    assert_eq!(["pages", "bytes_used"].map(sum), ["pages", "bytes_used"].map(|what| number(all, what)));
    for (row, arena) in rows.iter().zip(arenas) {
        // Bookkeeping keeps pages, too. All that is in use here is resident, but for the large
        // blocks that were hardly written to.
        let used: i64 = ["used", "bookkeeping"].map(|piece| number(&arena[piece], "bytes_resident")).iter().sum();
        assert_eq!(number(&row["pages"]["all"], "bytes_used"), used, "{arena:#}");
    }
    // The regions are the rows.
    let mut sums = vec![[0, 0]; rows.len()];
    for region in map["regions"].as_array().unwrap() {
        let digits = |what: &str| region[what].as_str().unwrap().chars().map(|digit| digit.to_digit(36).unwrap());
        let (pages, used) = (number(region, "pages"), number(region, "bytes_used"));
        assert_eq!([digits("fill").count(), digits("blocks").count()], [pages as usize; 2]);
        // Each digit is rounded up to 128 bytes.
        let rounded: i64 = digits("fill").map(|digit| i64::from(digit) * 128).sum();
        assert!((rounded - 127 * pages..=rounded).contains(&used) && rounded <= 4096 * pages, "{region:#}");
        let sum = &mut sums[region["group"].as_u64().unwrap() as usize];
        sum[0] += pages;
        sum[1] += used;
    }
    for (row, sum) in rows.iter().zip(sums) {
        let all = &row["pages"]["all"];
        assert_eq!([number(all, "pages"), number(all, "bytes_used")], sum);
    }

    let text = heapledger(["heap-map", &pid]).text();
    let start = format!("process {pid} (many_arenas): ");
    assert!(text.starts_with(&start) && text.contains(" resident in the heap of glibc's malloc, "), "{text}");
    assert!(text.contains("\nthe main arena\n0x") && text.contains("\narena at 0x"), "{text}");
    let is_cells = |line: &&str| line.starts_with("0x");
    assert!(text.lines().filter(is_cells).all(|line| line.chars().count() <= 16 + 64), "{text}");
    let svg = heapledger(["heap-map", &pid, "--svg"]).text();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("the main arena"), "{svg}");
    assert!(text.contains("  blocks with mappings of their own\n"), "{text}");
    let rss = heapledger(["rss", &pid]).text();
    assert!(rss.contains("  pages of the heap\n") && rss.contains("with nothing in use  "), "{rss}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

/// The pages of an allocator's heap are those of its account, and what is in use on them are the
/// blocks that `rss` has counted, which other tests compare with the allocator's own figures.
fn compare_with_account(command: &mut Command, allocator: &str) {
    let mut child = begin_waiting(command);
    let pid = child.id().to_string();
    let map = documents::read(&heapledger(["heap-map", &pid, "--json"]).stdout);
    let rss = documents::read(&heapledger(["rss", &pid, "--json"]).stdout);
    let heap = &rss["allocators"][0];
    assert_eq!([&map["allocator"], &heap["allocator"]], [allocator; 2], "{heap:#}");
    let pieces = ["used", "cached", "free", "dirty", "lazy", "returned", "bookkeeping", "unread"];
    let resident: i64 = pieces.iter().map(|piece| number(&heap[*piece], "bytes_resident")).sum();
    assert_eq!(4096 * number(&map["pages"]["all"], "pages"), resident, "{map:#}");
    let rows = map["rows"].as_array().unwrap();
    let of_blocks = rows.iter().filter(|row| row["name"] != "the allocator's own memory");
    let used: i64 = of_blocks.clone().map(|row| number(&row["pages"]["all"], "bytes_used")).sum();
    let counted = number(&heap["used"], "bytes_resident");
    if ["jemalloc", "musl's malloc"].contains(&allocator) {
        assert_eq!(used, counted, "{map:#}");
        // Pages of which all is free.
        assert!(number(&map["pages"]["empty"], "pages") > 0, "{map:#}");
    } else {
        // The account takes the blocks in use for those that are resident.
        assert!((counted - counted / 50..=counted).contains(&used), "{used} {counted}");
    }
    // tcmalloc and musl have one heap.
    let groups = of_blocks.filter(|row| !row["name"].as_str().unwrap().starts_with("free")).count() as i64;
    assert_eq!(groups, number(heap, "arenas"), "{rows:#?}");
    let text = heapledger(["heap-map", &pid]).text();
    let heading = format!("process {pid} (other_heap): ");
    assert!(text.starts_with(&heading) && text.contains(&format!("in the heap of {allocator}, ")), "{text}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn pages_of_other_allocators_are_those_of_their_accounts() {
    let allocators =
        [("libjemalloc.so.2", "jemalloc"), ("libmimalloc.so.2", "mimalloc"), ("libtcmalloc_minimal.so.4", "tcmalloc")];
    for (library, allocator) in allocators {
        let Some(library) = shared_library(library) else { continue };
        let mut command = Command::new(program("other_heap"));
        compare_with_account(command.args(["8", "stay"]).env("LD_PRELOAD", library), allocator);
    }
    let Some(compiler) = installed("musl-gcc") else { return };
    let scratch = Scratch::new();
    let linked = scratch.path().join("other_heap");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures/programs/other_heap.c");
    let built = Command::new(compiler).args(["-static", "-O1", source, "-pthread", "-o"]).arg(&linked).status();
    assert!(built.unwrap().success());
    compare_with_account(Command::new(linked).args(["8", "stay"]), "musl's malloc");
}

/// A program without a C library.
fn no_heap(scratch: &Scratch) -> Child {
    let source = "void _start(void) { for (;;) __asm__ volatile(\"syscall\" : : \"a\"(34L) : \"rcx\", \"r11\"); }\n";
    let (source, program) = (scratch.write("pause.c", source), scratch.file("pause"));
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-nostdlib", "-static", "-o"]).arg(&program).arg(source);
    assert!(compiler.status().unwrap().success());
    Command::new(program).spawn().unwrap()
}

#[test]
fn other_processes_have_no_map() {
    let refused = |process: &str| {
        let outcome = heapledger(["heap-map", process]);
        assert_eq!(outcome.status, exited(102));
        String::from_utf8_lossy(&outcome.stderr).into_owned()
    };
    let scratch = Scratch::new();
    let mut child = no_heap(&scratch);
    let pid = child.id().to_string();
    let is_there = || std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "pause\n");
    wait_until("the program runs", is_there);
    let other = refused(&pid);
    assert!(other.starts_with("error[HL0083]: process "), "{other}");
    assert!(other.contains(&format!("hint: heapledger rss {pid} shows all of its memory\n")), "{other}");
    for by in ["owner", "age"] {
        let outcome = heapledger(["heap-map", &pid, "--by", by]);
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(said.starts_with(&format!("error[HL0125]: process {pid} is not being recorded")), "{said}");
        assert!(said.contains(&format!("hint: heapledger attach {pid}")), "{said}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let none = refused("4294967295");
    assert!(none.contains("there is no process 4294967295\n\nhint: `pgrep NAME`"), "{none}");
}
