//! Contexts and heaps that a program declares, from the program to every verb:
//! `fixtures/programs/contexts.c` and `heaps.c` print what they allocated in each.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use serde_json::Value;

use crate::c::example;
use crate::harness::{Job, Recording, Scratch, heapledger, number};

/// Allocations and bytes, by context.
type Sums = BTreeMap<String, (i64, i64)>;

const DEPTH_MAX: usize = 128;

fn job(work: &str) -> Job {
    Job::fixture("contexts", work)
}

/// Returns the program's own sums. The child prints nothing, and is in one of its parent's
/// contexts.
fn sums_of(told: &Value) -> Sums {
    let mut sums = Sums::new();
    for (context, figures) in told["contexts"].as_object().unwrap() {
        let context = context.strip_prefix("child: ").unwrap_or(context);
        let context = match context {
            "128 times render" => ["render"; DEPTH_MAX].join(" > "),
            context => context.to_owned(),
        };
        let sum = sums.entry(context).or_default();
        *sum = (sum.0 + figures[0].as_i64().unwrap(), sum.1 + figures[1].as_i64().unwrap());
    }
    sums
}

/// Returns a recording's sums, from the rows of `top`.
fn recorded(recording: &Recording, options: &[&str]) -> Sums {
    let all = [&["--by", "context", "--total", "-n", "0"], options].concat();
    let top = recording.ask("top", &all);
    let called = |scope: &Value| match scope["value"].as_str() {
        None => scope["name"].as_str().unwrap().to_owned(),
        Some(value) => format!("{}{{{value}}}", scope["name"].as_str().unwrap()),
    };
    let row = |row: &Value| {
        let scopes: Vec<String> = row["context"].as_array().unwrap().iter().map(called).collect();
        let context = if scopes.is_empty() { "(no context)".to_owned() } else { scopes.join(" > ") };
        (context, (number(row, "blocks"), number(row, "bytes")))
    };
    let rows = top["rows"].as_array().unwrap();
    let sums: Sums = rows.iter().map(row).collect();
    assert_eq!(sums.len(), rows.len(), "equal contexts are one: {top:#}");
    sums
}

/// Returns the second sums minus the first.
fn difference(idle: &Sums, busy: &Sums) -> Sums {
    let without = |context: &String| idle.get(context).copied().unwrap_or_default();
    let rest =
        busy.iter().map(|(context, sum)| (context.clone(), (sum.0 - without(context).0, sum.1 - without(context).1)));
    rest.filter(|(_, sum)| *sum != (0, 0)).collect()
}

/// The sums that the program prints at work, a recording of that, and the sums of a recording when
/// it does nothing.
struct Recorded {
    scratch: Scratch,
    told: Sums,
    recording: Recording,
    idle: Sums,
}

static RECORDED: LazyLock<Recorded> = LazyLock::new(|| {
    let scratch = Scratch::new();
    let (_, idle) = job("000").both(&scratch);
    let (outcome, recording) = job("500").both(&scratch);
    recording.assert_whole().assert_adds_up();
    let told = sums_of(&outcome.printed_objects().pop().unwrap());
    Recorded { told, recording, idle: recorded(&idle, &[]), scratch }
});

/// Checks the totals of one context in the answer of a verb.
#[track_caller]
fn expect(context: &str, verb: &str, options: &[&str], total: impl Fn(&Value) -> (i64, i64)) {
    let answer = RECORDED.recording.ask(verb, options);
    assert_eq!(total(&answer), RECORDED.told[context], "{verb} {options:?}");
}

#[test]
fn figures_are_those_of_the_program() {
    let with = recorded(&RECORDED.recording, &[]);
    assert_eq!(difference(&RECORDED.idle, &with), RECORDED.told);
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn every_verb_selects_by_context() {
    let total = |answer: &Value| (number(&answer["total"], "blocks"), number(&answer["total"], "bytes"));
    let b = "request{route=/b}";
    let of = |options: &[&'static str]| [&["--context", "request{route=/b}"], options].concat();
    for verb in ["top", "tree", "sizes"] {
        expect(b, verb, &of(&["--total"]), total);
    }
    let file = RECORDED.recording.path.to_str().unwrap();
    let callers = heapledger(["callers", "allocate", file, "--total", "--json", "--context", b]);
    assert_eq!(total(&serde_json::from_slice(&callers.stdout).unwrap()), RECORDED.told[b]);
    expect(b, "temporary", &of(&[]), total);
    expect(b, "summary", &of(&[]), |answer| {
        (number(&answer["allocated"], "blocks"), number(&answer["allocated"], "bytes"))
    });
    let reallocations = RECORDED.recording.ask("reallocations", &of(&[]));
    assert_eq!(number(&reallocations["total"], "reallocations") * 2, RECORDED.told[b].0);
    // A pattern matches a scope, with its value or without, or the whole context; several patterns
    // must all match.
    expect("request{route=/a,method=GET} > layout", "top", &["--total", "--context", "/a,method=GET} > l/"], total);
    expect("render > request", "top", &["--total", "--context", "render", "--context", "request"], total);
    let a = "request{route=/a,method=GET}";
    expect(a, "top", &["--total", "--context", "*GET}", "--not-context", "layout"], total);
    expect(
        "layout",
        "top",
        &["--total", "--context", "layout", "--not-context", "render", "--not-context", "request"],
        total,
    );
    expect("(no context)", "top", &["--total", "--context", "(no context)", "--size", "..68"], total);
    let leaks = RECORDED.recording.ask("leaks", &["--context", "request"]);
    assert_eq!(total(&leaks), (0, 0));
    let flame = ["flame", "--collapsed", "--by", "context,stack", "--total", "--metric", "blocks", "-o", "-"];
    let flame = heapledger(flame.map(Path::new).into_iter().chain([RECORDED.recording.path.as_path()]));
    let flame = String::from_utf8(flame.stdout).unwrap();
    let of_b = flame.lines().filter_map(|line| line.strip_prefix("request{route=/b};"));
    let counts = of_b.map(|line| line.rsplit(' ').next().unwrap().parse::<i64>().unwrap());
    assert_eq!(counts.sum::<i64>(), RECORDED.told[b].0, "{flame}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn trees_and_groups_add_up() {
    let total = RECORDED.recording.ask("top", &["--total"])["total"].clone();
    for by in ["context", "scope", "task", "heap", "site"] {
        let rows = RECORDED.recording.ask("top", &["--total", "--by", by, "-n", "0"]);
        let sum: i64 = rows["rows"].as_array().unwrap().iter().map(|row| number(row, "bytes")).sum();
        assert_eq!(sum, number(&total, "bytes"), "{by}");
    }
    for by in ["context", "context,stack", "stack,context", "stack,heap,context"] {
        let tree = RECORDED.recording.ask("tree", &["--total", "--by", by, "--threshold", "0"]);
        let nodes = tree["nodes"].as_array().unwrap();
        let own: i64 = nodes.iter().map(|node| number(&node["own"], "bytes")).sum();
        assert_eq!(own, number(&total, "bytes"), "{by}");
        let outermost = nodes.iter().filter(|node| node["parent"].is_null());
        assert_eq!(outermost.map(|node| number(node, "bytes")).sum::<i64>(), own, "{by}");
    }
    let tasks = RECORDED.recording.ask("top", &["--total", "--by", "task"]);
    let task = |value: &str| -> i64 {
        let rows = tasks["rows"].as_array().unwrap().iter();
        rows.filter(|row| row["task"]["value"] == value).map(|row| number(row, "blocks")).sum()
    };
    assert_eq!(task("route=/b"), RECORDED.told["request{route=/b}"].0);
    let both = ["request{route=/a,method=GET}", "request{route=/a,method=GET} > layout"];
    assert_eq!(task("route=/a,method=GET"), both.iter().map(|context| RECORDED.told[*context].0).sum::<i64>());
}

/// Totals alone, several files, and files derived from recordings have the same contexts.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn every_sort_of_recording_has_them() {
    let Recorded { told, idle, .. } = &*RECORDED;
    let scratch = Scratch::new();
    let (_, totals) = job("500").option("--aggregate").recorded(&scratch);
    assert_eq!(&difference(idle, &recorded(&totals, &[])), told);
    let (_, parts) = rotated(&scratch);
    let mut sum = Sums::new();
    // The last one may be empty.
    for part in parts.iter().filter(|part| part.total("allocations") > 0) {
        for (context, (blocks, bytes)) in recorded(part, &[]) {
            let all = sum.entry(context).or_default();
            *all = (all.0 + blocks, all.1 + bytes);
        }
    }
    let allocations: i64 = parts.iter().map(|part| part.total("allocations")).sum();
    assert_eq!(sum.values().map(|sum| sum.0).sum::<i64>(), allocations);
    assert!(parts.len() > 1 && sum.keys().eq(recorded(&RECORDED.recording, &[]).keys()), "{} {sum:?}", parts.len());

    let whole = recorded(&RECORDED.recording, &[]);
    let made = |verb: &str, options: &[&str], others: &[&Path]| {
        let file = RECORDED.scratch.file(&format!("{verb}-{}.hl", options.len()));
        let mut line = vec![Path::new(verb), &RECORDED.recording.path];
        line.extend(others);
        line.extend(options.iter().map(Path::new));
        line.extend([Path::new("-o"), &file, Path::new("-f")]);
        let outcome = heapledger(line);
        assert!(outcome.status.success(), "{outcome:?}");
        Recording::open(file)
    };
    assert_eq!(recorded(&made("trim", &["--from", "0s"], &[]), &[]), whole);
    let merged = recorded(&made("merge", &[], &[&RECORDED.recording.path]), &[]);
    let twice = |(context, sum): (&String, &(i64, i64))| (context.clone(), (sum.0 * 2, sum.1 * 2));
    assert_eq!(merged, whole.iter().map(twice).collect::<Sums>());
    // Without names, there are as many contexts with the same sizes; values are always hidden.
    let sizes = |sums: &Sums| {
        let mut sizes: Vec<(i64, i64)> = sums.values().copied().collect();
        sizes.sort();
        sizes
    };
    let hidden = recorded(&made("anonymize", &[], &[]), &[]);
    assert_eq!(sizes(&hidden), sizes(&whole));
    assert!(hidden.keys().all(|context| context == "(no context)" || context.starts_with("text-")), "{hidden:?}");
    assert!(!hidden.keys().any(|context| ["render", "request", "route"].iter().any(|text| context.contains(text))));
    let named = recorded(&made("anonymize", &["--keep-names"], &[]), &[]);
    assert!(
        named.contains_key("render > layout") && !named.keys().any(|context| context.contains("route")),
        "{named:?}"
    );
    assert!(named.keys().any(|context| context.starts_with("request{text-")), "{named:?}");
}

/// Returns a recording in several files.
fn rotated(scratch: &Scratch) -> (Value, Vec<Recording>) {
    let file = scratch.file("parts.hl");
    let running = job("20000").option("--rotate=100ms").start(Some(&file));
    let outcome = running.outcome();
    let part = |number: u32| file.with_extension(format!("{number:04}.hl"));
    let parts = (1..).map(part).take_while(|part| part.exists()).map(Recording::open).collect();
    (outcome.printed_objects().pop().unwrap(), parts)
}

/// The session's mode selects what is recorded. Futures of tokio, in tasks that move between
/// threads, and spans of `tracing`: `crates/process/annotate/examples/service.rs`.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_rust_service() {
    let scratch = Scratch::new();
    let service = example("service");
    for mode in ["mixed", "pseudo"] {
        let job = Job::new([service.as_os_str(), "60".as_ref()]).option("--stacks").option(mode);
        let (outcome, recording) = job.recorded(&scratch);
        recording.assert_whole().assert_adds_up();
        let told = sums_of(&outcome.printed_objects().pop().unwrap());
        assert_eq!(recorded(&recording, &["--size", "70000.."]), told, "{mode}");
        // Ignored allocations have sizes in that range, too, and are freed outside of the ignored
        // scope.
        assert_eq!(recording.total("frees_unknown"), 0, "{mode}");
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn modes() {
    let scratch = Scratch::new();
    for (mode, has_contexts, has_stacks) in
        [("mixed", true, true), ("native", false, true), ("pseudo", true, false), ("none", false, false)]
    {
        let (_, recording) = job("50").option("--stacks").option(mode).recorded(&scratch);
        recording.assert_whole();
        let contexts = recorded(&recording, &[]);
        assert_eq!(contexts.len() > 1, has_contexts, "{mode}: {contexts:?}");
        let functions = recording.ask("top", &["--total", "-n", "0"]);
        let is_there = functions["rows"].as_array().unwrap().iter().any(|row| row["function"] == "allocate");
        assert_eq!(is_there, has_stacks, "{mode}: {functions:#}");
    }
}

/// Returns the memory of each heap in each context, as rows of a tree.
fn by_context_and_heap(recording: &Recording, options: &[&str]) -> Sums {
    let tree = recording.ask("tree", &[&["--by", "context,heap", "--threshold", "0"], options].concat());
    let nodes = tree["nodes"].as_array().unwrap();
    let own = nodes.iter().filter(|node| number(&node["own"], "blocks") > 0);
    let row = |heap: &Value| {
        let context = &nodes[heap["parent"].as_u64().unwrap() as usize];
        let name = format!("{}|{}", context["function"].as_str().unwrap(), heap["function"].as_str().unwrap());
        (name, (number(heap, "blocks"), number(heap, "bytes")))
    };
    own.map(row).collect()
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn heaps_in_contexts() {
    let scratch = Scratch::new();
    let sums = |told: &Value| -> Sums {
        let figure = |figures: &Value, at: usize| figures[at].as_i64().unwrap();
        let all = told.as_object().unwrap().iter();
        all.map(|(name, figures)| (name.clone(), (figure(figures, 0), figure(figures, 1)))).collect()
    };
    for options in [&[][..], &["--aggregate"]] {
        let job = options.iter().fold(Job::fixture("heaps", "40"), |job, option| job.option(option));
        let (outcome, recording) = job.both(&scratch);
        recording.assert_whole().assert_adds_up();
        let told = outcome.printed_objects().pop().unwrap();
        let (live, total) = (sums(&told["live"]), sums(&told["total"]));
        assert_eq!(by_context_and_heap(&recording, &["--at", "end"]), live);
        assert_eq!(by_context_and_heap(&recording, &["--total"]), total);
        // A filter selects a part of the answer.
        let of = |part: &str, sums: &Sums| -> (i64, i64) {
            let selected = sums.iter().filter(|(name, _)| name.contains(part));
            selected.fold((0, 0), |sum, (_, figures)| (sum.0 + figures.0, sum.1 + figures.1))
        };
        for (options, part) in [
            (["--heap", "arena"], "|arena"),
            (["--heap", "(no heap)"], "|(no heap)"),
            (["--context", "serve"], "serve"),
            (["--context", "(no context)"], "(no context)"),
        ] {
            let leaks = recording.ask("leaks", &options);
            let found = (number(&leaks["total"], "blocks"), number(&leaks["total"], "bytes"));
            assert_eq!(found, of(part, &live), "{options:?}");
        }
        let heaps = recording.summary["heaps"].as_array().unwrap();
        for (name, part) in [("arena", "|arena"), ("slab", "|slab")] {
            let heap = heaps.iter().find(|heap| heap["heap"] == name).unwrap();
            assert_eq!((number(heap, "blocks_live_end"), number(heap, "bytes_live_end")), of(part, &live));
        }
    }
}
