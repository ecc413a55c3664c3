//! `record --sample`: estimates compared with the programs' own counts, for all kinds of programs;
//! and changes of the rate while they run.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::c::libheapledger;
use crate::harness::{Job, Recording, Scratch, exited, heapledger, installed, number, wait_until};

/// The maximum error of an estimate in standard errors: one in five hundred million is larger.
const ERRORS_MAX: f64 = 6.0;

/// Compares an estimate with the truth. It may be off by its error bar, and by `more`: the
/// allocations of the program's start.
fn assert_near(recording: &Recording, name: &str, error: &str, truth: i64, more: i64) {
    let (estimate, error) = (recording.total(name), number(&recording.summary["standard_errors"], error));
    let most = ERRORS_MAX * error as f64 + more as f64;
    assert!((estimate - truth).abs() as f64 <= most, "{name}: {estimate} ± {error} for {truth}: {recording:?}");
}

/// Totals of all functions of the malloc family, of many threads at once; and a replay with the
/// same figures.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn totals_are_estimated_with_their_errors() {
    let scratch = Scratch::new();
    for (fixture, work) in [("mix", "150000"), ("mix_threads", "15000")] {
        let (outcome, recording) = Job::fixture(fixture, work).option("--sample=16KiB").both(&scratch);
        recording.assert_whole().assert_adds_up();
        let told = &outcome.printed_objects()[0];
        let of = |name: &str| number(told, name);
        assert_near(&recording, "bytes_allocated", "bytes_allocated", of("bytes_allocated"), 100 << 10);
        assert_near(&recording, "allocations", "allocations", of("allocations"), 200);
        assert_near(&recording, "bytes_live_max", "bytes_live_max", of("bytes_live_max").max(1), 200 << 10);
        assert_near(&recording, "bytes_live_end", "bytes_live_end", of("bytes_live_end"), 100 << 10);
        // Failed calls are all counted. Reallocations are some of the allocations.
        assert_eq!(recording.total("failed"), of("failed"));
        let part = recording.total("reallocations") as f64 / of("reallocations") as f64;
        assert!((0.7..1.3).contains(&part), "{part}: {recording:?}");
        assert_eq!(recording.total("allocations") - recording.total("frees"), recording.total("blocks_live_end"));
        assert_agrees(&recording);
    }
}

/// Asserts that the events agree with the recorder's counts.
fn assert_agrees(recording: &Recording) {
    for (moment, bytes, blocks) in [
        (&["--total"][..], "bytes_allocated", "allocations"),
        (&["--at", "end"], "bytes_live_end", "blocks_live_end"),
        (&[], "bytes_live_max", "blocks_at_bytes_live_max"),
    ] {
        // By stack from the totals of sites, by size from a replay of the events.
        for by in ["stack", "size"] {
            let options = [&["--by", by, "-n", "0"], moment].concat();
            let table = recording.ask("top", &options);
            let whole = &table["total"];
            assert_eq!(
                (number(whole, "bytes"), number(whole, "blocks")),
                (recording.total(bytes), recording.total(blocks)),
                "{options:?}: {recording:?}"
            );
            let error = |of: &Value, name: &str| of.get(name).map_or(0, |error| error.as_i64().unwrap());
            let (whole, named) = (error(whole, "bytes_standard_error"), &recording.summary["standard_errors"]);
            let named = number(named, bytes);
            assert!((whole - named).abs() <= 2 + named / 100, "{options:?}: {whole} for {named}");
        }
    }
}

/// Blocks with types and contexts, pools, forks, and processes that call exec: none of it changes
/// the program, and declarations about unsampled blocks are ignored without a message.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn whatever_programs_do_is_sampled() {
    let scratch = Scratch::new();
    for (fixture, work) in
        [("pools", "40"), ("stamps", ""), ("contexts", "20"), ("forks", ""), ("forks", "raw"), ("signals", "2000")]
    {
        let job = Job::fixture(fixture, work).option("--sample=256B");
        let (outcome, recording) = job.recorded(&scratch);
        assert_eq!(outcome.status, job.bare().status, "{fixture}: {outcome:?}");
        assert_eq!(recording.summary["complete"], true, "{fixture}: {recording:?}");
        assert_eq!(recording.total("frees_unknown") + recording.total("stamps_unknown"), 0, "{fixture}: {recording:?}");
        assert_eq!(
            recording.total("allocations") - recording.total("frees"),
            recording.total("blocks_live_end"),
            "{fixture}: {recording:?}"
        );
        assert_eq!(recording.ask("info", &[])["damage"], serde_json::json!([]), "{fixture}");
    }
    // A child frees the blocks that it inherits, whether its parent sampled them or not.
    let (outcome, recording) = Job::fixture("forks", "").option("--sample=64B").recorded(&scratch);
    for told in outcome.printed_objects() {
        let process = recording.process(number(&told, "pid"));
        let (estimate, truth) = (number(process, "bytes_allocated"), number(&told, "bytes_allocated"));
        let error = process["standard_errors"].get("bytes_allocated").map_or(0, |error| error.as_i64().unwrap());
        let most = ERRORS_MAX * error as f64 + 10_000.0;
        assert!((estimate - truth).abs() as f64 <= most, "{estimate} ± {error} for {truth}: {recording:?}");
    }
}

/// The rate changes from hardly any samples to all blocks while the program runs: each thread
/// notices after some KiB, and records everything from then on.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_rate_can_be_set_while_the_program_runs() {
    let scratch = Scratch::new();
    let (go, done) = (scratch.file("go"), scratch.file("done"));
    let job = Job::fixture("flood", &format!("30000 {} {}", go.display(), done.display())).option("--sample=64GiB");
    let file = scratch.file("recording.hl");
    let running = job.start(Some(&file));
    wait_until("the program is ready", || scratch.file("go.ready").exists());
    let recorder = running.pid().as_raw_nonzero().to_string();
    let asked = |arguments: &[&str]| {
        let outcome = heapledger(arguments.iter().copied().chain([&*recorder]));
        assert_eq!(outcome.status, exited(0), "{arguments:?}: {outcome:?}");
        outcome.text()
    };
    assert!(asked(&["status"]).contains("on, one point in 64.0 GiB"), "{}", asked(&["status"]));
    assert!(asked(&["sample", "off"]).contains("on, all blocks"));
    let status: Value = serde_json::from_str(&asked(&["status", "--json"])).unwrap();
    let status = &status["rows"][0];
    assert_eq!((&status["sampled"], &status["sample_mean_bytes"]), (&Value::Bool(true), &Value::Null));
    fs::write(&go, "").unwrap();
    let outcome = running.outcome();
    let told = &outcome.printed_objects()[0];
    let recording = Recording::open(file);
    recording.assert_whole();
    // Two threads; and the program's other allocations at its end.
    let (late, end) = (2 * (32 << 10), 5000);
    for (name, most) in [("allocations", late / 16), ("frees", late / 16), ("bytes_allocated", late)] {
        let beside = recording.total(name) - number(told, name);
        assert!((-most..end).contains(&beside), "{name}: {beside} more than {told}: {recording:?}");
    }
    assert_eq!(recording.total("blocks_live_end"), recording.total("allocations") - recording.total("frees"));
    let sampling = recording.ask("info", &[])["sampling"].clone();
    assert_eq!((&sampling[0]["mean_bytes"], &sampling[1]["mean_bytes"]), (&(64_u64 << 30).into(), &Value::Null));
    assert_agrees_on_blocks(&recording);

    // A recording of all blocks stays one.
    let exact = Job::fixture("flood", &format!("1 {} {}", go.display(), done.display()));
    fs::remove_file(&go).unwrap();
    fs::remove_file(scratch.file("go.ready")).unwrap();
    let running = exact.start(Some(&scratch.file("exact.hl")));
    wait_until("the program is ready", || scratch.file("go.ready").exists());
    let refused = heapledger(["sample", "1MiB", &running.pid().as_raw_nonzero().to_string()]);
    assert_eq!(refused.status, exited(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is no sample: it has all blocks"), "{refused:?}");
    fs::write(&go, "").unwrap();
    running.outcome();
}

/// Asserts that verbs agree on the number of blocks.
fn assert_agrees_on_blocks(recording: &Recording) {
    let table = recording.ask("top", &["--by", "size", "--total", "-n", "0"]);
    assert_eq!(number(&table["total"], "blocks"), recording.total("allocations"), "{recording:?}");
}

/// Every answer says that it is an estimate; for a recording of all blocks none does.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn answers_say_that_they_are_estimates() {
    let scratch = Scratch::new();
    // Dense enough to sample some of the few blocks that stay.
    let job = || Job::fixture("mix", "60000");
    let (outcome, sampled) = job().option("--sample=256").with_report().recorded(&scratch);
    let (_, exact) = job().recorded(&scratch);
    let notice = "a sample, of one point in 256 B: figures are estimates, with error bars of 95 %";
    assert!(String::from_utf8_lossy(&outcome.stderr).contains(notice), "{outcome:?}");
    let shown = |recording: &Recording, arguments: &[&str]| {
        let (verb, options) = arguments.split_first().unwrap();
        let line = [verb.as_ref(), recording.path.as_os_str()].into_iter();
        let outcome = heapledger(line.chain(options.iter().map(|option| option.as_ref())));
        assert_eq!(outcome.status, exited(0), "{arguments:?}: {outcome:?}");
        outcome.text()
    };
    for arguments in [
        &["summary"][..],
        &["summary", "--size", "1.."],
        &["top", "--total"],
        &["top", "--by", "size"],
        &["types"],
        &["tree"],
        &["leaks"],
        &["temporary"],
        &["reallocations"],
        &["sizes"],
        &["blocks", "--at", "end"],
        &["timeline"],
        &["timeline", "--from", "1ms"],
        &["timeline", "--svg", "-o", "-"],
        &["flame", "-o", "-"],
    ] {
        let text = shown(&sampled, arguments);
        assert!(text.contains(notice), "{arguments:?}: {text}");
        assert!(arguments[0] == "flame" || text.replace(notice, "").contains('±'), "{arguments:?}: {text}");
        let text = shown(&exact, arguments);
        assert!(!text.contains('±') && !text.contains("sample,"), "{arguments:?}: {text}");
    }
    assert!(shown(&sampled, &["top", "--total"]).contains(" ±"));
    let diff = heapledger(["diff".as_ref(), exact.path.as_os_str(), sampled.path.as_os_str()]);
    assert!(diff.text().contains(notice) && diff.text().contains(" ± "), "{diff:?}");
    // The peak has the same error bar in every answer.
    let timeline = sampled.ask("timeline", &[]);
    let top = sampled.ask("top", &[]);
    for name in ["bytes", "blocks", "bytes_standard_error", "blocks_standard_error"] {
        assert_eq!(number(&timeline["peak"], name), number(&top["total"], name), "{name}");
    }
    assert_eq!(timeline["sampling"][0]["mean_bytes"], 256);
    assert!(number(&sampled.ask("temporary", &[])["total"], "temporary_standard_error") > 0);
    assert!(exact.ask("timeline", &[])["sampling"].is_null());
    // A question that a sample cannot answer.
    let within = heapledger(["temporary".as_ref(), sampled.path.as_os_str(), "--within".as_ref(), "3".as_ref()]);
    assert_eq!(within.status, exited(2), "{within:?}");
    shown(&sampled, &["temporary", "--within", "1ms"]);
    // A rewritten recording is still a sample, with the same totals.
    let copy = scratch.file("copy.hl");
    let line =
        ["trim".as_ref(), sampled.path.as_os_str(), "-o".as_ref(), copy.as_os_str(), "--from".as_ref(), "0s".as_ref()];
    let trimmed = heapledger(line);
    assert_eq!(trimmed.status, exited(0), "{trimmed:?}");
    let copy = Recording::open(copy);
    for name in ["allocations", "bytes_allocated", "bytes_live_max", "bytes_live_end", "temporary_allocations"] {
        assert_eq!(copy.total(name), sampled.total(name), "{name}");
    }
    assert_eq!(copy.summary["standard_errors"], sampled.summary["standard_errors"]);
}

/// A limit counts as exceeded only beyond the error bar.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_limit_allows_for_error_bars() {
    let scratch = Scratch::new();
    let job = |rows: &str| Job::fixture("mix", rows).option("--sample=4KiB");
    let (_, before) = job("20000").recorded(&scratch);
    let (_, after) = job("40000").recorded(&scratch);
    let diff = |limit: u64| {
        let limit = format!("--fail-above={limit}");
        let words = ["diff".as_ref(), before.path.as_os_str(), after.path.as_os_str(), "--total".as_ref()];
        let outcome = heapledger(words.into_iter().chain([limit.as_ref(), "--json".as_ref()]));
        let answer: Value = serde_json::from_str(&outcome.text()).unwrap();
        (outcome, answer)
    };
    let (outcome, answer) = diff(0);
    let (growth, error) = (number(&answer, "growth"), number(&answer, "growth_standard_error"));
    assert!(growth > 10 * error && error > 0, "{answer:#}");
    assert_eq!((outcome.status, &answer["exceeded"]), (exited(104), &Value::Bool(true)), "{outcome:?}");
    let (outcome, answer) = diff((growth - error) as u64);
    assert_eq!((outcome.status, &answer["exceeded"]), (exited(0), &Value::Bool(false)), "{outcome:?}");
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("it may have grown by more"), "{outcome:?}");
    assert_eq!(answer["before"]["sampling"][0]["mean_bytes"], 4 << 10, "{answer:#}");
}

/// Returns the bytes in a heaptrack file, line by line: allocated, at the peak, and live at the
/// end.
fn heaptrack(file: &Path) -> [i64; 3] {
    let (mut sizes, [mut allocated, mut most, mut live]) = (Vec::new(), [0_i64; 3]);
    for line in fs::read_to_string(file).unwrap().lines() {
        let mut words = line.split(' ');
        let (what, number) = (words.next().unwrap(), words.next().and_then(|word| i64::from_str_radix(word, 16).ok()));
        match (what, number) {
            ("a", Some(size)) => sizes.push(size),
            ("+", Some(number)) => {
                live += sizes[number as usize];
                allocated += sizes[number as usize];
                most = most.max(live);
            }
            ("-", Some(number)) => live -= sizes[number as usize],
            _ => {}
        }
    }
    [allocated, most, live]
}

/// Formats with events, and with live bytes over time, use the weight of each recorded block.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn exported_events_have_what_they_stand_for() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "20000").option("--sample=4KiB").recorded(&scratch);
    let exported = |format: &str, name: &str| {
        let file = scratch.file(name);
        let words = ["export", recording.path.to_str().unwrap(), "--to", format, "-o", file.to_str().unwrap()];
        let outcome = heapledger(words);
        assert_eq!(outcome.status, exited(0), "{outcome:?}");
        (file, String::from_utf8(outcome.stderr).unwrap())
    };
    let of = |name: &str| recording.total(name);
    let (file, told) = exported("heaptrack", "events.heaptrack.txt");
    assert!(told.contains("this is a sample") && told.contains("counts once"), "{told}");
    assert_eq!(heaptrack(&file), ["bytes_allocated", "bytes_live_max", "bytes_live_end"].map(of));
    let (file, told) = exported("firefox", "events.json");
    assert!(told.contains("this is a sample"), "{told}");
    let firefox: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let threads = firefox["threads"].as_array().unwrap().iter();
    let weights = threads.flat_map(|thread| thread["nativeAllocations"]["weight"].as_array().into_iter().flatten());
    let allocated = weights.map(|weight| weight.as_i64().unwrap()).filter(|&weight| weight > 0).sum::<i64>();
    assert_eq!(allocated, of("bytes_allocated"));
    let (file, _) = exported("massif", "massif.out");
    let massif = fs::read_to_string(file).unwrap();
    let live = massif.lines().filter_map(|line| line.strip_prefix("mem_heap_B=")?.parse::<i64>().ok());
    assert_eq!(live.max(), Some(of("bytes_live_max")));
}

/// Totals only, and in several files: the sums are those with events and in one file.
#[test]
fn samples_without_events_and_in_parts() {
    let scratch = Scratch::new();
    let (outcome, recording) =
        Job::fixture("mix", "60000").option("--sample=16KiB").option("--aggregate").both(&scratch);
    let truth = number(&outcome.printed_objects()[0], "bytes_allocated");
    assert_near(&recording, "bytes_allocated", "bytes_allocated", truth, 100 << 10);
    let whole = recording.ask("top", &["--by", "stack", "--total", "-n", "0"]);
    assert_eq!(number(&whole["total"], "bytes"), recording.total("bytes_allocated"));
}

/// Forty runs of a real program: the mean of the estimates is within 2 % of the truth, and at least
/// 85 % of the error bars of two standard errors contain it.
#[test]
#[ignore = "a minute of runs; in `.ci/run full`"]
fn estimates_of_real_programs_are_right_on_average() {
    let Some(python) = crate::harness::installed("python3") else { return };
    let scratch = Scratch::new();
    let script = "import json\nrows = [{'id': i, 'name': 'row %d' % i, 'tags': list(range(i % 7))} for i in range(20000)]\n\
                  back = json.loads(json.dumps(rows))\n";
    let job = || {
        Job::new([python.as_os_str(), "-c".as_ref(), script.as_ref()])
            .variable("PYTHONMALLOC", "malloc")
            .variable("PYTHONHASHSEED", "0")
    };
    let (_, exact) = job().recorded(&scratch);
    for (name, error) in [("bytes_allocated", "bytes_allocated"), ("allocations", "allocations")] {
        let truth = exact.total(name) as f64;
        let (mut sum, mut covered, runs) = (0.0, 0, 40);
        for _ in 0..runs {
            let (_, recording) = job().option("--sample=64KiB").recorded(&scratch);
            let estimate = recording.total(name) as f64;
            sum += estimate / truth;
            let error = number(&recording.summary["standard_errors"], error) as f64;
            covered += i32::from((estimate - truth).abs() <= 2.0 * error);
        }
        let mean = sum / f64::from(runs);
        println!("{name}: {mean:.4} of the truth on average, {covered} of {runs} error bars have it");
        assert!((mean - 1.0).abs() < 0.02, "{name}: {mean}");
        assert!(covered >= runs * 85 / 100, "{name}: {covered} of {runs}");
    }
}

/// A running program that is not recorded is switched to sampling: it contains libheapledger, and
/// answers.
#[test]
#[ignore = "it builds libheapledger; `.ci/run` runs it"]
fn a_program_samples_when_it_is_told() {
    let scratch = Scratch::new();
    let Some(python) = installed("python3") else { return };
    let flag = scratch.write("flag", "");
    let library = libheapledger(&scratch).join("lib/libheapledger.so");
    // Five million bytes are live, most of the time.
    let work = format!(
        "import os, time\nend = time.time() + 300\n\
         while os.path.exists({flag:?}) and time.time() < end: kept = [bytearray(5000) for _ in range(1000)]"
    );
    let mut program = Command::new(python);
    let mut program =
        program.args(["-c", &work]).env("LD_PRELOAD", library).env("HEAPLEDGER_LISTEN", "1").spawn().unwrap();
    let pid = program.id().to_string();
    let ask = |arguments: &[&str]| heapledger(arguments.iter().copied().chain([&*pid]));
    let state = |arguments: &[&str]| {
        let outcome = ask(arguments);
        assert_eq!(outcome.status, exited(0), "{arguments:?}: {outcome:?}");
        serde_json::from_str::<Value>(&outcome.text()).unwrap()["rows"][0].clone()
    };
    let number = |value: &Value| value.as_u64().unwrap();
    wait_until("it answers", || ask(&["status"]).status == exited(0));
    let before = state(&["status", "--json"]);
    assert_eq!((&before["recording"], &before["recorder"]), (&Value::from("off"), &Value::Null));

    let begun = state(&["sample", "64KiB", "--json"]);
    assert_eq!((&begun["recording"], &begun["sample_mean_bytes"]), (&Value::from("on"), &Value::from(64 << 10)));
    wait_until("five million bytes are seen", || {
        (3_000_000..8_000_000).contains(&number(&state(&["status", "--json"])["bytes_live"]))
    });
    assert_eq!(state(&["sample", "1KiB", "--json"])["sample_mean_bytes"], Value::from(1 << 10));
    let listed = heapledger(["status"]).text();
    let line = listed.lines().find(|line| line.contains(&pid)).unwrap_or_else(|| panic!("{listed}"));
    assert!(line.contains("on, one point in 1.0 KiB") && line.contains("python"), "{listed}");

    assert_eq!(state(&["stop", "--json"])["recording"], Value::from("off"));
    assert_eq!(state(&["start", "--json"])["sample_mean_bytes"], Value::from(512 << 10));
    assert_eq!(state(&["stop", "--json"])["recording"], Value::from("off"));
    // A ledger of all blocks cannot be switched to sampling.
    assert_eq!(state(&["sample", "off", "--json"])["sampled"], Value::Bool(false));
    let refused = ask(&["sample", "64KiB"]);
    assert_eq!(refused.status, exited(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("its ledger has all blocks"), "{refused:?}");

    fs::remove_file(flag).unwrap();
    assert_eq!(program.wait().unwrap(), exited(0));
}
