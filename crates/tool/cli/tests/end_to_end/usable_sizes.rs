//! Usable sizes and slop of recordings: recorded by `record --usable`, or computed.

use serde_json::Value;

use crate::harness::{Build, Job, Outcome, Recording, Scratch, build, exited, heapledger, number, shared_library};

/// The allocators of the distribution that a program can run with, by the names of `--allocator`;
/// and those that are always there.
fn allocators() -> Vec<&'static str> {
    let installed =
        [("jemalloc", "libjemalloc.so.2"), ("tcmalloc", "libtcmalloc_minimal.so.4"), ("mimalloc", "libmimalloc.so.2")];
    let installed = installed.into_iter().filter(|(_, library)| shared_library(library).is_some());
    ["system", "heapledger"].into_iter().chain(installed.map(|(name, _)| name)).collect()
}

/// The bytes and the usable bytes that the fixture prints.
fn printed(outcome: &Outcome) -> (i64, i64) {
    let text = outcome.text();
    let mut numbers = text.split_whitespace().map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// Runs the fixture with an allocator. Returns the recording, the program's own figures and the
/// recording's slop of the function's blocks.
fn slop_of(scratch: &Scratch, allocator: &str, function: &str, is_asked: bool) -> ((i64, i64), Value, Recording) {
    let job = Job::fixture("slop", function).option(&format!("--allocator={allocator}")).with_names("all");
    let job = if is_asked { job.option("--usable") } else { job };
    let (outcome, recording) = job.recorded(scratch);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    let only = format!("/^{function}$/");
    let top = recording.ask("top", &["--metric", "slop", "--at", "end", "--function", &only]);
    (printed(&outcome), top, recording)
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn recorded_slop_is_what_the_allocator_says() {
    let scratch = Scratch::new();
    for allocator in allocators() {
        let ((requested, usable), top, recording) = slop_of(&scratch, allocator, "all", true);
        let total = &top["total"];
        assert_eq!(number(total, "bytes"), requested, "{allocator}");
        assert_eq!(number(total, "slop"), usable - requested, "{allocator}");
        assert_eq!((&top["metric"], &top["usable_sizes"]), (&"slop".into(), &"asked".into()), "{allocator}");

        // Every other answer has the same.
        let only = ["--at", "end", "--function", "/^all$/"];
        let blocks = recording.ask("blocks", &[&only[..], &["-n", "0"]].concat());
        let slop = |block: &Value| number(block, "usable_bytes") - number(block, "bytes");
        assert_eq!(blocks["rows"].as_array().unwrap().iter().map(slop).sum::<i64>(), usable - requested);
        let whole = recording.ask("top", &["--metric", "slop", "--at", "end"]);
        assert_eq!(number(&recording.summary["slop"], "bytes_live_end"), number(&whole["total"], "slop"));
        let tree = recording.ask("tree", &[&["--metric", "slop"][..], &only].concat());
        assert_eq!(number(&tree["total"], "slop"), usable - requested);
        let leaks = recording.ask("leaks", &[&["--metric", "slop"][..], &only[2..]].concat());
        assert_eq!(number(&leaks["total"], "slop"), usable - requested);
        // Each block is kept to the end, beside at most two that are not.
        let timeline = recording.ask("timeline", &["--slop", only[2], only[3]]);
        assert_eq!(timeline["usable_sizes"], "asked");
        let slop = timeline["slop"].as_array().unwrap().iter().map(|sample| number(sample, "bytes"));
        let most = slop.max().unwrap();
        assert!((usable - requested..usable - requested + 8192).contains(&most), "{allocator}: {most} {top}");
        let timeline = recording.ask("timeline", &["--slop"]);
        let slop = timeline["slop"].as_array().unwrap().iter().map(|sample| number(sample, "bytes"));
        assert!(slop.max().unwrap() >= number(&whole["total"], "slop"), "{allocator}: {timeline}");
        let log = scratch.file(&format!("{allocator}.json"));
        let made = heapledger([
            "dmd".as_ref(),
            recording.path.as_os_str(),
            "--at=end".as_ref(),
            "-o".as_ref(),
            log.as_os_str(),
        ]);
        assert!(made.status.success(), "{made:?}");
        let told = String::from_utf8_lossy(&made.stderr).into_owned();
        assert!(told.contains("the slop of these blocks is asked"), "{told}");

        // A part of the recording that begins in the middle has them too.
        let part = scratch.file(&format!("{allocator}.hl"));
        let words = ["trim", "--from", "1ms", "-o"].map(AsRef::as_ref);
        let words = words.into_iter().chain([part.as_os_str(), recording.path.as_os_str()]);
        let trimmed = heapledger(words);
        assert!(trimmed.status.success(), "{trimmed:?}");
        let top = Recording::open(part).ask("top", &["--metric", "slop", "--at", "end"]);
        assert_eq!(number(&top["total"], "slop"), number(&whole["total"], "slop"), "{allocator}");
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn computed_slop_is_what_the_allocator_says() {
    let scratch = Scratch::new();
    for allocator in allocators() {
        let ((requested, usable), top, recording) = slop_of(&scratch, allocator, "fresh", false);
        let total = &top["total"];
        assert_eq!((number(total, "bytes"), number(total, "blocks")), (requested, 4000), "{allocator}");
        let (slop, truth) = (number(total, "slop"), usable - requested);
        let source = top["usable_sizes"].as_str().unwrap();
        if allocator == "system" {
            // glibc gives a few blocks 16 bytes more than they need.
            assert!(source.starts_with("computed for glibc 2."), "{source}");
            assert!((slop..slop + 16 * 100).contains(&truth), "{slop}, not {truth}");
        } else {
            assert!(source.to_lowercase().contains(allocator), "{source}");
            assert_eq!(slop, truth, "{allocator}");
        }
        assert_eq!(recording.summary["slop"]["usable_sizes"], source);
    }
}

#[test]
fn what_cannot_be_known_is_said() {
    let scratch = Scratch::new();
    let wrapper = build("interposer", Build::Module);
    let job = Job::fixture("slop", "fresh").variable("LD_PRELOAD", &wrapper);
    let ask =
        |recording: &Recording| heapledger(["top".as_ref(), recording.path.as_os_str(), "--metric=slop".as_ref()]);
    // The malloc of another library, which might do anything.
    let (_, recording) = job.recorded(&scratch);
    let refused = ask(&recording);
    assert_eq!(refused.status, exited(2), "{refused:?}");
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains("HL0059") && told.contains("hint: `heapledger record --usable`"), "{told}");
    assert!(recording.summary["slop"].is_null());
    // It can be asked.
    let (outcome, recording) = job.option("--usable").recorded(&scratch);
    let (requested, usable) = printed(&outcome);
    let top = recording.ask("top", &["--metric", "slop", "--at", "end", "--size", "..4999"]);
    assert!(number(&top["total"], "slop") >= usable - requested, "{top:#}");

    // Totals have no sizes.
    let (_, recording) = Job::fixture("slop", "fresh").option("--aggregate").recorded(&scratch);
    let refused = ask(&recording);
    assert_eq!(refused.status, exited(2), "{refused:?}");
    let both = Job::fixture("slop", "fresh").option("--aggregate").option("--usable").start(None).outcome();
    assert_ne!(both.status, exited(0), "{both:?}");
}

#[test]
fn a_sample_has_estimates_of_slop() {
    let scratch = Scratch::new();
    let job = Job::fixture("slop", "all").option("--sample=512").option("--usable");
    let (outcome, recording) = job.recorded(&scratch);
    let (requested, usable) = printed(&outcome);
    let top = recording.ask("top", &["--metric", "slop", "--at", "end"]);
    let total = &top["total"];
    let (slop, error) = (number(total, "slop"), number(total, "slop_standard_error"));
    // Six standard errors: one run in 500 million is farther from the truth.
    assert!((slop - (usable - requested)).abs() <= 6 * error + 4096, "{slop} ± {error}, not {}", usable - requested);
    assert_eq!(top["usable_sizes"], "asked");
}
