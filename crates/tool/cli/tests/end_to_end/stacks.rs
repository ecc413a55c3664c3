//! The stacks in a recording: correct after jumps, throws, fibers and unloaded libraries, and
//! adding up.

use serde_json::Value;

use crate::harness::{Build, Job, Recording, Scratch, build, installed, number};

/// A stack of a recording, with all allocations ever made there.
#[derive(Debug)]
pub(crate) struct Stack {
    pub(crate) blocks: i64,
    bytes: i64,
    /// Function names, the innermost first; inlined ones, too.
    pub(crate) functions: Vec<String>,
    /// The module of the innermost function.
    module: String,
}

impl Stack {
    fn calls(&self, name: &str) -> bool {
        self.functions.iter().any(|function| function == name)
    }
}

/// Returns every stack in the recording.
pub(crate) fn stacks(recording: &Recording) -> Vec<Stack> {
    let answer = recording.ask("top", &["--by", "stack", "--total", "-n", "100000"]);
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let rows = answer["rows"].as_array().unwrap_or_else(|| panic!("no rows: {answer:#}"));
    assert_eq!(rows.len() as i64, number(&answer, "rows_all"), "not all rows");
    rows.iter()
        .map(|row| {
            let frames = row["stack"].as_array().unwrap_or_else(|| panic!("no stack: {row:#}"));
            Stack {
                blocks: number(row, "blocks"),
                bytes: number(row, "bytes"),
                functions: frames.iter().map(|frame| text(&frame["function"])).collect(),
                module: frames.first().map_or_else(String::new, |frame| text(&frame["module"])),
            }
        })
        .collect()
}

/// Returns the blocks of all stacks that begin with this function.
fn blocks_of(stacks: &[Stack], innermost: &str) -> i64 {
    stacks
        .iter()
        .filter(|stack| stack.functions.first().is_some_and(|name| name == innermost))
        .map(|stack| stack.blocks)
        .sum()
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn after_exceptions_and_longjmp() {
    if installed("c++").is_none() {
        return;
    }
    let scratch = Scratch::new();
    let (_, idle) = Job::fixture("unwinds", "0").recorded(&scratch);
    let (outcome, recording) = Job::fixture("unwinds", "2000").both(&scratch);
    let told = &outcome.printed_objects()[0];
    for name in ["allocations", "blocks_live_end"] {
        assert_eq!(recording.total(name) - idle.total(name), number(told, name), "{name}: {recording:?}");
    }
    recording.assert_whole();
    // C++ names come with their arguments.
    let mut stacks = stacks(&recording);
    for stack in &mut stacks {
        for function in &mut stack.functions {
            function.truncate(function.find('(').unwrap_or(function.len()));
        }
    }
    for (name, told_name, size) in [("from_the_left", "left", 1001), ("from_the_right", "right", 1002)] {
        assert_eq!(blocks_of(&stacks, name), number(told, told_name), "{name}: {recording:?}");
        for stack in stacks.iter().filter(|stack| stack.functions[0] == name) {
            assert_eq!(stack.bytes, stack.blocks * size, "{stack:?}");
            // from_the_…, descend up to 40 times, perhaps catcher, main, libc, _start: nothing
            // else, in this order.
            let rest = &stack.functions[1..];
            let depth = rest.iter().take_while(|function| *function == "descend").count();
            let rest = &rest[depth..];
            let rest = if rest.first().is_some_and(|function| function == "catcher") { &rest[1..] } else { rest };
            assert!(depth <= 40 && rest.first().is_some_and(|function| function == "main"), "{stack:?}");
            assert!(rest.len() <= 4 && rest.last().is_some_and(|function| function == "_start"), "{stack:?}");
        }
    }
}

/// `plugin_b.so` is mapped where `plugin_a.so` was.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn of_libraries_that_come_and_go() {
    let scratch = Scratch::new();
    let directory = build("plugin_a", Build::Module).parent().unwrap().to_owned();
    build("plugin_b", Build::Module);
    let (outcome, recording) = Job::fixture("plugins", &format!("{} 100", directory.display())).both(&scratch);
    assert_eq!(
        number(&outcome.printed_objects()[0], "mostly_same"),
        1,
        "the second library seldom took the place of the first: {outcome:?}"
    );
    recording.assert_whole();
    let stacks = stacks(&recording);
    for (name, module, size) in [
        ("made_by_plugin_a", "plugin_a.so", 1111),
        ("made_by_plugin_b", "plugin_b.so", 2222),
        ("loaded", "plugin_b.so", 4444),
    ] {
        assert_eq!(blocks_of(&stacks, name), 100, "{name}: {recording:?}");
        for stack in stacks.iter().filter(|stack| stack.functions[0] == name) {
            assert_eq!(stack.bytes, stack.blocks * size, "{stack:?}");
            assert!(stack.module.ends_with(module) && stack.calls("main"), "{stack:?}");
            assert_eq!(stack.calls("plugin"), name != "loaded", "{stack:?}");
        }
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn after_leaving_the_recorder_by_siglongjmp() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("escapes", "20000").recorded(&scratch);
    let stacks = stacks(&recording);
    let of_main = stacks.iter().filter(|stack| stack.bytes == 777 * stack.blocks && stack.functions[0] == "main");
    assert_eq!(of_main.map(|stack| stack.blocks).sum::<i64>(), 20_000, "{stacks:#?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn on_fibers_and_in_signal_handlers() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("fibers", "160").recorded(&scratch);
    let stacks_of_fibers = stacks(&recording);
    // Ten depths, each with its own stack below `run`; and the block that main allocates between.
    assert_eq!(blocks_of(&stacks_of_fibers, "in_fiber"), 1600, "{stacks_of_fibers:#?}");
    for stack in stacks_of_fibers.iter().filter(|stack| stack.functions[0] == "in_fiber") {
        let depth = stack.functions.iter().take_while(|function| *function == "in_fiber").count();
        assert!(stack.functions[depth] == "run" && stack.blocks == 160, "{stack:?}");
        assert_eq!(stack.bytes, 160 * (64 + 10 - depth as i64), "{stack:?}");
    }
    let (_, recording) = Job::fixture("signals", "500").recorded(&scratch);
    let stacks = stacks(&recording);
    assert_eq!(blocks_of(&stacks, "handler"), 500 * 8, "{stacks:#?}");
    // Through the kernel's frame, and through both stacks: main → raise → nested → raise → handler.
    for stack in stacks.iter().filter(|stack| stack.functions[0] == "handler") {
        assert!(stack.calls("main"), "{stack:?}");
    }
    let through_both = stacks.iter().filter(|stack| stack.calls("handler") && stack.calls("nested"));
    assert_eq!(through_both.map(|stack| stack.blocks).sum::<i64>(), 500 * 4, "{stacks:#?}");
}

/// More different stacks than the initial size of any table.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn very_many() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("stacks", "65536").recorded(&scratch);
    let answer = recording.ask("top", &["--by", "stack", "--at", "end", "-n", "1"]);
    assert_eq!(number(&answer, "rows_all"), 65_536, "{answer:#}");
    assert_eq!(number(&answer["rows"][0], "blocks"), 1, "{answer:#}");
    assert_eq!(number(&answer["total"], "blocks"), 65_536, "{answer:#}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn of_a_deep_recursion() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("deep", "50000").recorded(&scratch);
    let answer = recording.ask("top", &["--by", "function", "--total"]);
    let rows = answer["rows"].as_array().unwrap();
    let down = rows.iter().find(|row| row["function"] == "down").unwrap_or_else(|| panic!("{answer:#}"));
    assert_eq!(number(down, "blocks"), 2001, "{answer:#}");
    // A stack deeper than the frames that are kept is marked as cut at its outer end; the others
    // reach main.
    for stack in stacks(&recording).iter().filter(|stack| stack.functions[0] == "down") {
        let is_cut = stack.functions.last().is_some_and(|function| function == "[outer frames cut off]");
        assert!(stack.functions.len() <= 1025 && is_cut != stack.calls("main"), "{} frames", stack.functions.len());
        assert!(!is_cut || stack.functions.len() >= 256, "{} frames", stack.functions.len());
    }
}

/// The views of one recording agree with its totals.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn add_up() {
    let scratch = Scratch::new();
    let mut jobs = vec![Job::fixture("mix_threads", "20000"), Job::fixture("forks", ""), Job::fixture("growth", "50")];
    if let Some(perl) = installed("perl") {
        jobs.push(Job::new([perl.as_os_str(), "-e".as_ref(), "my %h; $h{$_} = \"x$_\" for 1..3000".as_ref()]));
    }
    for job in jobs {
        let (_, recording) = job.recorded(&scratch);
        let total = |verb: &str, options: &[&str], what: &str| {
            let answer = recording.ask(verb, &[options, &["-n", "100000"]].concat());
            let rows = answer["rows"].as_array().into_iter().flatten();
            let sum: i64 = rows.filter_map(|row| row[what].as_i64()).sum();
            assert_eq!(sum, number(&answer["total"], what), "{verb} {options:?}: rows of {what}: {recording:?}");
            sum
        };
        for by in ["function", "site", "module", "thread", "size"] {
            let by = ["--by", by, "--total"];
            assert_eq!(total("top", &by, "blocks"), recording.total("allocations"), "{by:?}: {recording:?}");
            assert_eq!(total("top", &by, "bytes"), recording.total("bytes_allocated"), "{by:?}: {recording:?}");
        }
        assert_eq!(total("top", &["--by", "site"], "bytes"), recording.total("bytes_live_max"), "{recording:?}");
        assert_eq!(total("leaks", &[], "bytes"), recording.total("bytes_live_end"), "{recording:?}");
        assert_eq!(total("leaks", &[], "blocks"), recording.total("blocks_live_end"), "{recording:?}");
        assert_eq!(total("temporary", &[], "temporary"), recording.total("temporary_allocations"), "{recording:?}");
    }
}
