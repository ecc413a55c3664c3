//! Programs with reporters, in every form of linking and with every allocator; and the reports of
//! running programs.

use std::path::Path;

use heapledger_report_format::Reports;
use heapledger_reporters::{Collector, listen, private, register};

use crate::harness::{Job, Scratch, exited, heapledger};
use crate::variants::{JEMALLOC, MIMALLOC, STATIC, SYSTEM, Variant, build, build_for_musl};

/// The known size of the program's blocks, and the reports of one run.
struct Run {
    known: i64,
    reports: Reports,
}

impl Run {
    fn of(program: &Path, how: &str) -> Run {
        let outcome = Job::new([program.to_str().unwrap(), how]).bare();
        assert!(outcome.status.success(), "{outcome:?}");
        let text = outcome.text();
        let (known, file) = text.split_once('\n').unwrap();
        Run { known: known.parse().unwrap(), reports: Reports::parse(file.as_bytes()).unwrap() }
    }

    fn sum(&self, is_wanted: impl Fn(&str) -> bool) -> Option<i64> {
        let amounts: Vec<i64> =
            self.reports.reports.iter().filter(|report| is_wanted(&report.path)).map(|report| report.amount).collect();
        (!amounts.is_empty()).then(|| amounts.iter().sum())
    }

    fn amount(&self, path: &str) -> Option<i64> {
        self.sum(|other| other == path)
    }

    /// Asserts that the reporters of the program, and of a library that it does not call, are
    /// there, and that none has failed.
    fn has_reporters(self) -> Run {
        assert_eq!(self.amount("explicit/library/mapped"), Some(12_345));
        assert_eq!(self.amount("store-values"), Some(10_000));
        assert_eq!(self.amount("store-session/1"), Some(5));
        assert!(self.amount("resident").unwrap() > 1 << 20);
        assert!(self.sum(|path| path.starts_with("explicit/threads/stacks/reporters (tid=")).unwrap() >= 4096);
        assert_eq!(self.sum(|path| path.starts_with("heapledger-failed/")), None);
        self
    }

    /// Asserts that the allocators count these bytes: nothing is missing, and their overhead is
    /// less than 64 bytes for each of ten thousand blocks.
    fn allocators_agree(self) {
        let allocated = self.amount("heap-allocated").unwrap();
        assert!(
            (self.known..self.known + (10_000 * 64) + (256 << 10)).contains(&allocated),
            "{allocated} {}",
            self.known
        );
        let stored = self.amount("explicit/store/values").unwrap();
        assert!((self.known - (64 << 10)..=self.known).contains(&stored), "{stored} {}", self.known);
    }

    /// Asserts that the ledger knows the allocated bytes, except for those of the collection
    /// itself, and that all but a few KiB are reported.
    fn ledger_agrees(self) {
        let allocated = self.amount("heap-allocated").unwrap();
        assert!((self.known..self.known + (64 << 10)).contains(&allocated), "{allocated} {}", self.known);
        let stored = self.amount("explicit/store/values").unwrap();
        assert!((0..64 << 10).contains(&(allocated - stored)), "{stored} of {allocated}");
        assert!(self.amount("explicit/heapledger/ledger/register").unwrap() > 1 << 16);
        assert_eq!(self.sum(|path| path.starts_with("heapledger-computed/")), None);
    }
}

/// This process answers.
#[test]
fn a_running_process_is_asked() {
    let pid = std::process::id().to_string();
    let _reporter = register("of-the-tests", |collector: &mut Collector| {
        collector.count(format_args!("open/{}", private("secret")), 3, "What is open.");
    });
    let deaf = heapledger(["reports", "show", "1"]);
    assert_eq!(deaf.status, exited(102), "{deaf:?}");
    let said = String::from_utf8_lossy(&deaf.stderr).into_owned();
    assert!(said.contains("process 1 does not answer") && said.contains("hint: a program answers once"), "{said}");
    let none = heapledger(["reports", "show", "4194305"]);
    assert!(String::from_utf8_lossy(&none.stderr).contains("there is no process 4194305"), "{none:?}");

    let _listener = listen().unwrap();
    let outcome = heapledger(["reports", "show", "--filter", "of-the-tests", &pid]);
    assert!(outcome.status.success() && outcome.stderr.is_empty(), "{outcome:?}");
    let text = outcome.text();
    assert!(text.contains("Main Process (end_to_end-") && text.contains("3 (100.0%) ── open/secret"), "{text}");

    let scratch = Scratch::new();
    let file = scratch.file("saved.json.gz");
    let outcome = heapledger(["reports", "save", "--anonymize", "-o", file.to_str().unwrap(), &pid]);
    assert!(outcome.status.success(), "{outcome:?}");
    let saved = Reports::parse(&std::fs::read(&file).unwrap()).unwrap();
    assert!(saved.reports.iter().any(|report| &*report.path == "of-the-tests/open/<anonymized>"));
    let outcome = heapledger(["reports", "diff", "--filter", "of-the-tests", file.to_str().unwrap(), &pid]);
    assert!(outcome.text().contains("of-the-tests"), "{outcome:?}");
}

#[test]
#[ignore = "compiles the library anew for each allocator: `.ci/run` runs it"]
fn whatever_the_allocator() {
    let program = build("reporters", &SYSTEM);
    Run::of(&program, "").has_reporters().allocators_agree();
    let run = Run::of(&program, "ledger").has_reporters();
    assert!(run.reports.has_usable_size);
    run.ledger_agrees();
    for path in ["allocated/arenas", "free/top"] {
        assert!(Run::of(&program, "").amount(&format!("heap/glibc/{path}")).unwrap() > 0, "{path}");
    }

    let program = build("reporters", &MIMALLOC);
    let run = Run::of(&program, "").has_reporters();
    // This allocator does not count it.
    assert_eq!(run.amount("heap-allocated"), None);
    assert!(run.amount("heap/mimalloc/committed").unwrap() > run.known);
    Run::of(&program, "ledger").has_reporters().ledger_agrees();
}

#[test]
#[ignore = "compiles jemalloc: `.ci/run full` runs it"]
fn with_jemalloc() {
    let program = build("reporters", &JEMALLOC);
    let run = Run::of(&program, "").has_reporters();
    let [committed, allocated] = ["", "allocated"].map(|part| {
        let start = format!("heap/jemalloc/committed/{part}");
        run.sum(|path| path.starts_with(&start)).unwrap()
    });
    assert!(allocated >= run.known && committed > allocated, "{allocated} of {committed}");
    run.allocators_agree();
    // The ledger does not know the allocator's overhead.
    Run::of(&program, "ledger").has_reporters().allocators_agree();
}

#[test]
#[ignore = "compiles the library anew for each way of linking: `.ci/run full` runs it"]
fn however_it_is_linked() {
    let program = build("reporters", &STATIC);
    Run::of(&program, "").has_reporters().allocators_agree();
    Run::of(&program, "ledger").has_reporters().ledger_agrees();

    // With the linker of binutils; and with all unreferenced sections discarded.
    for (name, flags) in [("bfd", "-Clinker-features=-lld"), ("lto", "")] {
        let program = build("reporters", &Variant { name, flags, is_release: true, ..SYSTEM });
        Run::of(&program, "").has_reporters().allocators_agree();
    }

    if let Some(program) = build_for_musl("reporters") {
        // musl's allocator counts nothing.
        assert_eq!(Run::of(&program, "").has_reporters().amount("heap-allocated"), None);
        Run::of(&program, "ledger").has_reporters().ledger_agrees();
    }
}

#[test]
#[ignore = "compiles OpenTelemetry's SDK: `.ci/run` runs it"]
fn metrics_of_opentelemetry() {
    let program = build("reporters", &Variant { name: "telemetry", feature: "telemetry", ..SYSTEM });
    let outcome = Job::new([program.to_str().unwrap(), "telemetry"]).bare();
    assert!(outcome.status.success(), "{outcome:?}");
    let text = outcome.text();
    let has = |line: &str| assert!(text.lines().any(|other| other == line), "no `{line}` in {text}");
    has("memory.report By explicit/library/mapped 12345");
    has("memory.report.items {item} store-values 10000");
    // Two sessions, merged by their numbers.
    has("memory.report.items {item} store-session/NNN 10");
    has("memory.report.events {event} store-hits 7 true");
    has("memory.report.ratio 1 store-load 0.125");
    let stored = text.lines().find_map(|line| line.strip_prefix("memory.report By explicit/store/values ")).unwrap();
    let known: i64 = text.lines().next().unwrap().parse().unwrap();
    assert_eq!(stored.parse::<i64>().unwrap(), known);
}
