//! Questions with known answers: `fixtures/programs/questions.c` lists its allocations.

use std::sync::LazyLock;

use serde_json::Value;

use crate::harness::{HEAPLEDGER, Job, Recording, Scratch, exited, heapledger, number};

/// The recording for all questions.
static RECORDED: LazyLock<(Scratch, Recording, Vec<String>)> = LazyLock::new(|| {
    let scratch = Scratch::new();
    let (outcome, recording) = Job::fixture("questions", "").recorded(&scratch);
    recording.assert_whole();
    let start = recording.ask("info", &[])["start_unix_ns"].as_u64().unwrap();
    let told = outcome.printed_objects().pop().unwrap();
    let times = told["began"].as_array().unwrap().iter().map(|time| format!("{}ns", time.as_u64().unwrap() - start));
    (scratch, recording, times.collect())
});

fn ask(verb: &str, options: &str) -> Value {
    // `0` to `3` in braces are replaced by the times at which the phases began.
    let mut options = options.to_owned();
    for (at, time) in RECORDED.2.iter().enumerate() {
        options = options.replace(&format!("{{{at}}}"), time);
    }
    RECORDED.1.ask(verb, &options.split_whitespace().collect::<Vec<_>>())
}

/// Returns the bytes and blocks of an answer.
#[track_caller]
fn total(options: &str) -> (i64, i64) {
    let answer = ask("top", options);
    (number(&answer["total"], "bytes"), number(&answer["total"], "blocks"))
}

#[track_caller]
fn fits_nothing(verb: &str, options: &str) {
    let line = format!("{verb} {} {options}", RECORDED.1.path.to_str().unwrap());
    let outcome = heapledger(line.split(' '));
    let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(outcome.status == exited(2) && told.contains("no block of the recording fits: "), "{line}: {outcome:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn by_function() {
    assert_eq!(total("--total --function alpha"), (1300, 13));
    assert_eq!(total("--total --allocated-by alpha"), (1300, 13));
    assert_eq!(total("--total --function alpha --function dig"), (300, 3));
    assert_eq!(total("--total --function alpha --not-function /^dig$/"), (1000, 10));
    assert_eq!(total("--total --function a?pha"), (1300, 13));
    fits_nothing("top", "--total --function ?pha");
    assert_eq!(total("--at end --function descend"), (192, 3));
    assert_eq!(total("--total --allocated-by beta --allocated-by grow"), (20_000 + 8176, 20 + 9));
    let (all, without) = (total("--total"), total("--total --not-allocated-by beta"));
    assert_eq!((all.0 - without.0, all.1 - without.1), (20_000, 20));
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn by_module() {
    let all = total("--total");
    let program = total("--total --module questions");
    assert_eq!(program, total("--total --module quest*ns"));
    // alpha, beta, dig, descend, grow, shrink.
    assert_eq!(program, (1300 + 20_000 + 25_000 + 192 + 8176 + 3300, 13 + 20 + 5 + 3 + 9 + 2));
    let others = total("--total --not-module questions");
    assert_eq!((program.0 + others.0, program.1 + others.1), all);
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn by_thread() {
    let info = ask("info", "");
    let digger =
        info["images"][0]["threads"].as_array().unwrap().iter().find(|thread| thread["name"] == "digger").unwrap();
    for thread in ["digger".to_owned(), number(digger, "tid").to_string(), format!("#{}", number(digger, "thread"))] {
        let of_program = format!("--total --module questions --thread {thread}");
        assert_eq!(total(&of_program), (25_300, 8), "{thread}");
    }
    assert_eq!(total("--total --function alpha --thread questions"), (1000, 10));
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn by_size_and_lifetime() {
    assert_eq!(total("--total --module questions --size 1000"), (20_000, 20));
    assert_eq!(total("--total --module questions --size 64..100"), (1300 + 192 + 64, 13 + 3 + 1));
    assert_eq!(total("--total --module questions --size 4k.."), (25_000 + 4096, 6));
    // The blocks of dig lived from the second phase to the third, those of beta hardly at all.
    assert_eq!(total("--total --function dig --lifetime 100ms..1min --size 5000"), (25_000, 5));
    assert_eq!(total("--total --function beta --lifetime ..100ms"), (20_000, 20));
    fits_nothing("top", "--total --function beta --lifetime 100ms..");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn by_process() {
    let pid = number(&RECORDED.1.processes()[0], "pid");
    assert_eq!(total(&format!("--process {pid}")), total(""));
    assert_eq!(total("--process questions"), total(""));
    assert_eq!(total("--process quest*ns --process questions"), total(""));
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn what_a_time_allocated_and_retained() {
    // All of it, and the part that was live at the end of that time.
    let first = ask("top", "--module questions --during {0}-{1}");
    assert_eq!((number(&first["total"], "bytes"), number(&first["total"], "blocks")), (1000, 10));
    assert_eq!((number(&first["allocated"], "bytes"), number(&first["allocated"], "blocks")), (21_000, 30));
    assert_eq!(total("--module questions --during {0}-{1} --total"), (21_000, 30));
    assert_eq!(total("--module questions --during {1}-{2}"), (25_300, 8));
    assert_eq!(total("--module questions --during {1}-{3}"), (300 + 192, 6));
    // Four blocks of the first phase were freed later.
    assert_eq!(total("--module questions --during {0}-{1} --at end"), (600, 6));
    assert_eq!(total("--module questions --during {0}.."), (600 + 300 + 192, 12));
    assert_eq!(total("--module questions --during {2}.. --total"), (192 + 8176 + 3300, 14));
    // At a moment in the middle.
    assert_eq!(total("--module questions --at {1}"), (1000, 10));
    assert_eq!(total("--module questions --at {2}"), (26_300, 18));
    let summary = ask("summary", "--module questions --during {0}-{1}");
    assert_eq!(number(&summary["allocated"], "bytes"), 21_000);
    assert_eq!(number(&summary["live"], "bytes"), 1000);
}

/// Every verb that reads takes the same selection.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn every_verb_selects() {
    let selection = "--function alpha --thread digger";
    assert_eq!(number(&ask("leaks", selection)["total"], "bytes"), 300);
    assert_eq!(number(&ask("tree", &format!("{selection} --at end"))["total"], "bytes"), 300);
    assert_eq!(number(&ask("summary", selection)["live"], "bytes"), 300);
    assert_eq!(number(&ask("temporary", "--function beta --size ..1000")["total"], "temporary"), 20);
    fits_nothing("temporary", "--function beta --size 1001..");
    for by in ["function", "site", "stack", "module", "thread", "size"] {
        let answer = ask("top", &format!("{selection} --at end --by {by}"));
        assert_eq!(number(&answer["total"], "bytes"), 300, "by {by}");
    }
    let path = RECORDED.1.path.to_str().unwrap();
    let exported = RECORDED.0.file("selected.pb.gz");
    let line = format!("export {path} {selection} --at end --to pprof -o {}", exported.display());
    let outcome = heapledger(line.split(' '));
    assert!(outcome.status.success() && exported.exists(), "{outcome:?}");
    let line = format!("flame {path} {selection} --at end --collapsed -o -");
    let collapsed = heapledger(line.split(' ')).text();
    let bytes: i64 = collapsed.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<i64>().unwrap()).sum();
    assert_eq!(bytes, 300, "{collapsed}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn what_is_left_out_is_told() {
    let answer = ask("top", "--total --function alpha");
    let all = total("--total");
    assert_eq!(number(&answer["total"], "bytes") + number(&answer["left_out"], "bytes"), all.0);
    let text = heapledger(["top", RECORDED.1.path.to_str().unwrap(), "--function", "alpha", "--size", "..1k"]).text();
    assert!(text.contains("only: function alpha · size up to 1.0 KiB (leaves out "), "{text}");
}

#[test]
fn questions_that_make_no_sense() {
    let path = RECORDED.1.path.to_str().unwrap();
    for (options, why) in [
        ("--thread nobody", "no thread nobody"),
        ("--process 1", "no process 1"),
        ("--size 2..1", "ends before it begins"),
        ("--function /(/", "no regular expression"),
        ("--at 10h", "ends before that moment"),
        ("--during 10h..", "ends before that moment"),
        ("--lifetime soon", "invalid time `soon`"),
    ] {
        let line = format!("top {path} {options}");
        let outcome = heapledger(line.split(' '));
        let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(outcome.status == exited(2) && told.contains(why), "{HEAPLEDGER} {line}: {outcome:?}");
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn blocks_freed_within_a_threshold() {
    let temporary = |options: &str| number(&ask("temporary", options)["total"], "temporary");
    // The blocks of beta are freed by the next call; those of dig after its 7 further ones, by
    // another thread; those of grow by each other.
    assert_eq!(temporary("--function beta --within 0"), 20);
    assert_eq!(temporary("--function dig --size 5000 --within 2"), 0);
    assert_eq!(temporary("--function dig --size 5000 --within 3"), 1);
    assert_eq!(temporary("--function dig --size 5000 --within 7"), 5);
    assert_eq!(temporary("--function dig --size 5000 --within 100ms"), 0);
    assert_eq!(temporary("--function dig --size 5000 --within 1min"), 5);
    assert_eq!(temporary("--function grow --within 0"), temporary("--function grow"));
    assert_eq!(temporary("--function alpha --within 1000000"), 4);
    let text =
        heapledger(["temporary", RECORDED.1.path.to_str().unwrap(), "--function", "beta", "--within", "5"]).text();
    assert!(text.starts_with("20 of 20 allocations were freed within 5 further allocations of their thread"), "{text}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn reallocations_and_what_they_copy() {
    let answer = ask("reallocations", "--module questions");
    let (total, first) = (&answer["total"], &answer["rows"][0]);
    assert_eq!((number(total, "reallocations"), number(total, "grown"), number(total, "shrunk")), (9, 8, 1));
    // 16 + 32 + … + 2048 by grow, and 300 of 3000 kept.
    assert_eq!(number(total, "bytes_copied_max"), 4080 + 300);
    assert_eq!((&first["function"], number(first, "chain_max"), number(first, "size_max")), (&"grow".into(), 8, 4096));
    assert_eq!(number(&ask("reallocations", "--function shrink")["total"], "bytes_copied_max"), 300);
    assert_eq!(number(&ask("reallocations", "--module questions --size 4096")["total"], "grown"), 1);
    assert_eq!(number(&ask("reallocations", "--module questions --during ..{2}")["total"], "reallocations"), 0);
    let counted = ask("reallocations", "--metric count -n 0");
    assert_eq!(number(&counted["total"], "reallocations"), RECORDED.1.total("reallocations"));
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn callers_and_callees() {
    let of = |verb: &str, function: &str, options: &str| {
        let line = format!("{verb} {function} {} --json {options}", RECORDED.1.path.display());
        let answer: Value = serde_json::from_slice(&heapledger(line.split(' ')).stdout).unwrap();
        let rows = answer["rows"].as_array().unwrap().iter();
        let row = |row: &Value| {
            let name = row["neighbour"]["function"].as_str().unwrap_or("-").to_owned();
            (name, number(row, "bytes"), number(row, "blocks"))
        };
        let mut rows: Vec<_> = rows.map(row).collect();
        rows.sort();
        (number(&answer["total"], "bytes"), rows)
    };
    let main = || "main".to_owned();
    assert_eq!(of("callers", "/^alpha$/", "--total"), (1300, vec![("dig".into(), 300, 3), (main(), 1000, 10)]));
    assert_eq!(of("callees", "/^dig$/", "--total"), (25_300, vec![("-".into(), 25_000, 5), ("alpha".into(), 300, 3)]));
    // The function calls itself; each block counts once.
    assert_eq!(of("callers", "descend", "--at end"), (192, vec![(main(), 192, 3)]));
    assert_eq!(of("callees", "descend", "--at end"), (192, vec![("-".into(), 192, 3)]));
    let (through_main, rows) = of("callees", "/^main$/", "--total --module questions");
    assert_eq!(through_main, 1000 + 20_000 + 192 + 8176 + 3300);
    assert!(rows.contains(&("beta".into(), 20_000, 20)) && rows.contains(&("grow".into(), 8176, 9)), "{rows:?}");
    let outcome = heapledger(["callers", "no_such_function", RECORDED.1.path.to_str().unwrap()]);
    assert_eq!(outcome.status, exited(2), "{outcome:?}");
}

#[test]
fn sizes_by_class() {
    let answer = ask("sizes", "--total --module questions --not-function grow --not-function shrink");
    let rows: Vec<_> = answer["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (number(row, "size_min"), number(row, "size_max"), number(row, "bytes"), number(row, "blocks")))
        .collect();
    assert_eq!(rows, [(33, 64, 192, 3), (65, 128, 1300, 13), (513, 1024, 20_000, 20), (4097, 8192, 25_000, 5)]);
    let path = RECORDED.1.path.to_str().unwrap();
    let text = heapledger(["sizes", path, "--total", "--metric", "blocks", "--function", "beta"]).text();
    assert!(text.contains("≤ 1.0 KiB  ████████████████████████████████████████\n"), "{text}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn known_leaks_are_suppressed() {
    let scratch = Scratch::new();
    let path = RECORDED.1.path.to_str().unwrap();
    let known = scratch.write("known.supp", "# what we know\nleak:^alp*a$\n\nleak:no_such_function\n");
    let more = scratch.write("more.supp", "leak:questions.c\n");
    let leaks = |options: &[&str]| {
        let outcome = heapledger([&["leaks", path, "--module", "questions", "--json"], options].concat());
        let answer: Value = serde_json::from_slice(&outcome.stdout).unwrap();
        (outcome.status, answer)
    };
    let (status, answer) = leaks(&["--error-exitcode", "9"]);
    assert_eq!((status, number(&answer["total"], "bytes")), (exited(9), 900 + 192));
    let known = ["--error-exitcode", "9", "--suppressions", known.to_str().unwrap()];
    let (status, answer) = leaks(&known);
    assert_eq!((status, number(&answer["total"], "bytes")), (exited(9), 192));
    assert_eq!(number(&answer["suppressed"], "bytes"), 900);
    assert_eq!(number(&answer["suppressions"][0], "blocks"), 9);
    assert_eq!(number(&answer["suppressions"][1], "blocks"), 0);
    // By the source file, if debug information has it.
    let (status, answer) = leaks(&[&known[..], &["--suppressions", more.to_str().unwrap()]].concat());
    assert_eq!((status, number(&answer["total"], "bytes")), (exited(0), 0));
    assert_eq!(number(&answer["suppressions"][2], "bytes"), 192);

    let text = heapledger([&["leaks", path, "--module", "questions"], &known[2..]].concat()).text();
    assert!(text.contains("suppressed: 900 B in 9 blocks\n") && text.contains("  ^alp*a$\n"), "{text}");
    let wrong = scratch.write("wrong.supp", "leak:x\nrace:y\n");
    let outcome = heapledger(["leaks", path, "--suppressions", wrong.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(outcome.status == exited(2) && told.contains("line 2: expected `leak:PATTERN`, found `race:y`"), "{told}");
}

/// Questions that need no events are answered from totals alone; the others are refused, with the
/// reason.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn of_totals_alone() {
    let scratch = Scratch::new();
    let (_, totals) = Job::fixture("questions", "").option("--aggregate").recorded(&scratch);
    let total = |options: &str| {
        let answer = totals.ask("top", &options.split_whitespace().collect::<Vec<_>>());
        (number(&answer["total"], "bytes"), number(&answer["total"], "blocks"))
    };
    assert_eq!(total("--total --function alpha"), (1300, 13));
    assert_eq!(total("--at end --module questions --not-allocated-by descend"), (900, 9));
    let path = totals.path.to_str().unwrap();
    for question in [
        "top --at 1ms",
        "top --size 1..",
        "top --by thread",
        "leaks --during ..1s",
        "tree --lifetime 1s..",
        "summary --thread digger",
        "temporary --within 5",
        "reallocations",
        "sizes",
    ] {
        let (verb, options) = question.split_once(' ').unwrap_or((question, ""));
        let outcome = heapledger([verb, path].into_iter().chain(options.split_whitespace()));
        let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(outcome.status == exited(2) && told.contains("has totals only"), "{question}: {outcome:?}");
    }
}
