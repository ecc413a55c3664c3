//! The heaps of other allocators, compared with what these say of themselves, to the byte.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::{Waiting, resident_of};
use crate::harness::*;

/// A program with threads that has left blocks in use, in caches and freed.
struct Example {
    waiting: Waiting,
    answer: Value,
}

impl Example {
    /// Runs the program with a preloaded library, and reads its heap.
    fn with(library: &str, arguments: &[&str]) -> Option<Example> {
        let library = shared_library(library)?;
        let mut command = Command::new(program("other_heap"));
        command.args(arguments).env("LD_PRELOAD", library);
        Some(Example::of(&mut command))
    }

    fn of(command: &mut Command) -> Example {
        let waiting = Waiting::begin(command);
        let answer = waiting.ask();
        resident_of(&answer, "allocator-used");
        assert!(number(&answer, "bytes_difference") == 0 || answer["knows_zeroes"] == false, "{answer:#}");
        assert_eq!(answer["allocators"].as_array().unwrap().len(), 1, "{answer:#}");
        // Nothing of size is left that has no name.
        assert!(resident_of(&answer, "anonymous") < 256 << 10, "{answer:#}");
        Example { waiting, answer }
    }

    fn heap(&self) -> &Value {
        &self.answer["allocators"][0]
    }

    /// Returns the sum of the bytes of some pieces of the heap.
    fn bytes<const N: usize>(&self, pieces: [&str; N]) -> i64 {
        pieces.iter().map(|piece| number(&self.heap()[piece], "bytes")).sum()
    }

    /// Returns a figure that the program has printed.
    fn figure(&self, name: &str) -> i64 {
        self.waiting.numbers(&format!("{name} "))[0] as i64
    }
}

#[test]
fn jemalloc_is_as_it_counts_itself() {
    let Some(example) = Example::with("libjemalloc.so.2", &["8"]) else { return };
    let heap = example.heap();
    assert_eq!(heap["allocator"], "jemalloc", "{heap:#}");
    assert_eq!(example.bytes(["used", "cached"]), example.figure("stats.allocated"), "{heap:#}");
    assert_eq!(example.bytes(["cached"]), example.figure("stats.arenas.4096.tcache_bytes"), "{heap:#}");
    assert_eq!(example.bytes(["used", "cached", "free"]), example.figure("stats.active"), "{heap:#}");
    assert_eq!(example.bytes(["dirty"]), 4096 * example.figure("stats.arenas.4096.pdirty"), "{heap:#}");
    assert_eq!(example.bytes(["lazy"]), 4096 * example.figure("stats.arenas.4096.pmuzzy"), "{heap:#}");
    assert_eq!(example.bytes(["returned"]), example.figure("stats.retained"), "{heap:#}");
    let mapped = example.bytes(["used", "cached", "free", "dirty", "lazy", "bookkeeping"]);
    assert_eq!(mapped, example.figure("stats.mapped"), "{heap:#}");
    assert_eq!(number(heap, "caches"), 5, "the main thread's and those of four others: {heap:#}");
    let text = heapledger(["rss", &example.waiting.child.id().to_string()]).text();
    assert!(text.contains("heap of jemalloc, in ") && text.contains("free, in caches"), "{text}");
    example.waiting.end();
}

#[test]
fn mimalloc_is_as_it_counts_itself() {
    let Some(example) = Example::with("libmimalloc.so.2", &["8", "stay"]) else { return };
    let heap = example.heap();
    assert_eq!(heap["allocator"], "mimalloc", "{heap:#}");
    assert_eq!(number(&heap["used"], "chunks"), example.figure("mi.blocks"), "{heap:#}");
    assert_eq!(example.bytes(["used"]), example.figure("mi.bytes"), "{heap:#}");
    // Blocks that another thread has freed, which wait for their own.
    assert_eq!(number(&heap["cached"], "chunks"), 20, "{heap:#}");
    assert_eq!(number(heap, "arenas"), 9, "one for each thread: {heap:#}");
    example.waiting.end();
}

/// The segments of threads that have ended have no owner.
#[test]
fn mimalloc_after_threads_have_ended() {
    let Some(example) = Example::with("libmimalloc.so.2", &["8"]) else { return };
    let (blocks, used) = (example.figure("blocks"), number(&example.heap()["used"], "chunks"));
    assert!((blocks..blocks + 32).contains(&used), "{used} {blocks}");
    example.waiting.end();
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn tcmalloc_is_as_it_counts_itself() {
    for library in ["libtcmalloc.so.4", "libtcmalloc_minimal.so.4"] {
        let Some(example) = Example::with(library, &["8"]) else { return };
        let heap = example.heap();
        assert_eq!(heap["allocator"], "tcmalloc", "{heap:#}");
        assert_eq!(example.bytes(["used"]), example.figure("generic.current_allocated_bytes"), "{heap:#}");
        let caches = ["transfer", "thread"].map(|kind| example.figure(&format!("tcmalloc.{kind}_cache_free_bytes")));
        assert_eq!(example.bytes(["cached"]), caches.iter().sum::<i64>(), "{heap:#}");
        assert_eq!(example.bytes(["free"]), example.figure("tcmalloc.central_cache_free_bytes"), "{heap:#}");
        assert_eq!(example.bytes(["dirty"]), example.figure("tcmalloc.pageheap_free_bytes"), "{heap:#}");
        assert_eq!(example.bytes(["returned"]), example.figure("tcmalloc.pageheap_unmapped_bytes"), "{heap:#}");
        let all = example.bytes(["used", "cached", "free", "dirty", "returned"]);
        assert_eq!(all, example.figure("generic.heap_size"), "{heap:#}");
        example.waiting.end();
    }
}

/// musl has no figures of itself: the program counts its blocks. One more is of the C library.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn musl_is_as_the_program_counts() {
    let Some(compiler) = installed("musl-gcc") else { return };
    let scratch = Scratch::new();
    let linked: PathBuf = scratch.path().join("other_heap");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures/programs/other_heap.c");
    let built = Command::new(compiler).args(["-static", "-O1", source, "-pthread", "-o"]).arg(&linked).status();
    assert!(built.unwrap().success());
    let example = Example::of(Command::new(linked).args(["8", "stay"]));
    let heap = example.heap();
    assert_eq!(heap["allocator"], "musl's malloc", "{heap:#}");
    assert_eq!(number(&heap["used"], "chunks"), example.figure("blocks") + 1, "{heap:#}");
    example.waiting.end();
    // A shared musl gives the ends of its own data to the allocator, where small blocks are.
    let example = Example::of(Command::new(build("other_heap", Build::Musl)).args(["8", "stay"]));
    let (blocks, used) = (example.figure("blocks"), number(&example.heap()["used"], "chunks"));
    assert!((blocks - 128..=blocks + 1).contains(&used), "{used} {blocks}");
    example.waiting.end();
}

/// A program that has functions of an allocator, but no heap of it.
#[test]
fn a_layout_that_is_not_known_is_told() {
    let waiting = Waiting::begin(&mut Command::new(program("unknown_heap")));
    let outcome = heapledger(["rss", &waiting.child.id().to_string()]);
    let said = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(
        said.contains("the heap of mimalloc was not found or has another layout") && said.contains("HL0126"),
        "{said}"
    );
    let answer = waiting.ask();
    assert_eq!(answer["allocators_unread"], serde_json::json!(["mimalloc"]), "{answer:#}");
    assert_eq!(answer["allocators"], serde_json::json!([]), "{answer:#}");
    assert!(resident_of(&answer, "anonymous") >= 2 << 20, "{answer:#}");
    waiting.end();
}
