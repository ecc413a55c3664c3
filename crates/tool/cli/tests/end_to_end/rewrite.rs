//! Recordings made from recordings: every verb reads them, and gives the answers of the originals.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::{Job, Outcome, Recording, Scratch, exited, heapledger, number};

/// Totals that can be summed over recordings, and over processes.
const SUMS: &[&str] = &[
    "allocations",
    "reallocations",
    "frees",
    "failed",
    "bytes_allocated",
    "temporary_allocations",
    "bytes_live_end",
    "blocks_live_end",
    "threads",
];

/// Runs `heapledger VERB OPTIONS… -o OUTPUT FILES…`.
fn make(verb: &str, options: &[&str], output: &Path, files: &[&Path]) -> Outcome {
    let mut line: Vec<&OsStr> = vec![verb.as_ref()];
    line.extend(options.iter().map(OsStr::new));
    line.extend(["-o".as_ref(), output.as_os_str()]);
    line.extend(files.iter().map(|file| file.as_os_str()));
    heapledger(line)
}

#[track_caller]
fn made(verb: &str, options: &[&str], output: &Path, files: &[&Path]) -> Recording {
    let outcome = make(verb, options, output, files);
    assert!(outcome.status.success() && outcome.stdout.is_empty(), "{outcome:?}");
    assert!(!outcome.text().contains("warning"), "{outcome:?}");
    Recording::open(output.to_owned())
}

/// Recordings without events are merged, with the same totals; the peak is exact if they did not
/// run at the same time.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn totals_are_merged() {
    let scratch = Scratch::new();
    let job = || Job::fixture("forks", "10");
    let [one, two] = [0, 1].map(|_| job().option("--aggregate").recorded(&scratch).1);
    let (_, full) = job().recorded(&scratch);
    assert!(one.processes().len() > 1, "{one:?}");
    let parts = [&one, &two, &full];
    let merged = made("merge", &[], &scratch.file("merged.hl"), &parts.map(|part| &*part.path));
    merged.assert_whole().assert_adds_up();
    assert_eq!(merged.ask("info", &[])["totals_only"], true);
    for name in SUMS {
        let sum: i64 = parts.iter().map(|part| part.total(name)).sum();
        assert_eq!(merged.total(name), sum, "{name}: {merged:?}\nof {parts:?}");
        let in_processes: i64 = merged.processes().iter().map(|process| number(process, name)).sum();
        assert_eq!(in_processes, sum, "{name}: {merged:?}");
    }
    assert_eq!(merged.summary["bytes_live_max_least"], Value::Null, "one after the other: {merged:?}");
    let peak = parts.map(|part| part.total("bytes_live_max")).into_iter().max();
    assert_eq!(Some(merged.total("bytes_live_max")), peak, "{merged:?}");

    // A recording merged with itself ran at the same time.
    let output = scratch.file("twice.hl");
    let outcome = make("merge", &[], &output, &[&one.path, &one.path]);
    let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(outcome.status.success() && told.contains("warning[HL0078]: at least"), "{outcome:?}");
    let twice = Recording::open(output);
    twice.assert_adds_up();
    for (bound, least) in [("bytes_live_max", "bytes_live_max_least"), ("blocks_live_max", "blocks_live_max_least")] {
        assert_eq!(twice.total(bound), 2 * one.total(bound), "{twice:?}");
        assert_eq!(twice.total(least), one.total(bound), "{twice:?}");
    }
    let table = heapledger(["summary".as_ref(), twice.path.as_os_str()]).text();
    assert!(table.contains("peak, at most") && table.contains("[HL0078]"), "{table}");
    for options in [&["--total"][..], &["--at", "end"], &[]] {
        let options = [&["--by", "stack", "-n", "0"], options].concat();
        let doubled = figures(&one.ask("top", &options)).into_iter().map(|(bytes, blocks)| (2 * bytes, 2 * blocks));
        assert_eq!(figures(&twice.ask("top", &options)), doubled.collect::<Vec<_>>(), "{options:?}");
    }
}

/// Returns the answer of each verb; that there is one is checked here, its contents by the caller.
fn answers(recording: &Recording) -> Vec<Value> {
    let top = ["function", "site", "module", "thread", "size"];
    let mut answers: Vec<Value> = top.map(|by| recording.ask("top", &["--total", "-n", "0", "--by", by])).into();
    for verb in ["top", "tree", "leaks", "temporary"] {
        answers.push(recording.ask(verb, &[]));
    }
    let flame = heapledger(["flame".as_ref(), "-o".as_ref(), "-".as_ref(), recording.path.as_os_str()]);
    assert!(flame.status.success() && flame.text().contains("<svg"), "{flame:?}");
    assert_eq!(recording.ask("info", &[])["damage"], Value::Array(vec![]));
    answers
}

/// Returns the figures of groups, without their names.
fn figures(answer: &Value) -> Vec<(i64, i64)> {
    let rows = answer["rows"].as_array().unwrap_or_else(|| panic!("no rows: {answer:#}"));
    let mut figures: Vec<(i64, i64)> = rows.iter().map(|row| (number(row, "bytes"), number(row, "blocks"))).collect();
    figures.sort_unstable();
    figures
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn merged_recordings_add_up() {
    let scratch = Scratch::new();
    let (_, one) = Job::fixture("mix_threads", "300").recorded(&scratch);
    let (_, two) = Job::fixture("forks", "100").recorded(&scratch);
    let (_, three) = Job::shell("git --version; python3 -c 'print(sorted(map(str, range(2000))))'").recorded(&scratch);
    let files = [&*three.path, &*one.path, &*two.path];
    let merged = made("merge", &[], &scratch.file("merged.hl"), &files);
    merged.assert_whole().assert_adds_up();

    let parts = [&one, &two, &three];
    for name in SUMS {
        let sum: i64 = parts.iter().map(|part| part.total(name)).sum();
        assert_eq!(merged.total(name), sum, "{name}: {merged:?}\nof {parts:?}");
    }
    let peaks = parts.map(|part| part.total("bytes_live_max"));
    assert!(merged.total("bytes_live_max") >= *peaks.iter().max().unwrap(), "{merged:?}");
    assert!(merged.total("bytes_live_max") <= peaks.iter().sum(), "{merged:?}");
    for part in parts {
        for process in part.processes() {
            let same = merged.process(number(process, "pid"));
            for name in SUMS.iter().chain(&["bytes_live_max"]) {
                assert_eq!(number(same, name), number(process, name), "{name}: {same:#}\nof {process:#}");
            }
            assert_eq!(same["exit"], process["exit"]);
        }
    }
    // They ran one after the other, in this order.
    let info = merged.ask("info", &[]);
    let start = |pid: i64| {
        let image = info["images"].as_array().unwrap().iter().find(|image| image["pid"] == pid);
        image.unwrap_or_else(|| panic!("{info:#}"))["threads"][0]["start_time_seconds"].as_f64().unwrap()
    };
    let first = |part: &Recording| start(number(&part.processes()[0], "pid"));
    assert!(first(&one) < first(&two) && first(&two) < first(&three));

    // Allocations by size, summed over all parts, are those of the whole.
    answers(&merged);
    let mut sizes = std::collections::BTreeMap::new();
    for part in parts {
        for row in part.ask("top", &["--total", "-n", "0", "--by", "size"])["rows"].as_array().unwrap() {
            *sizes.entry(number(row, "size")).or_insert(0) += number(row, "blocks");
        }
    }
    let of_merged = merged.ask("top", &["--total", "-n", "0", "--by", "size"]);
    let of_merged: Vec<(i64, i64)> = {
        let rows = of_merged["rows"].as_array().unwrap().iter();
        let mut rows: Vec<_> = rows.map(|row| (number(row, "size"), number(row, "blocks"))).collect();
        rows.sort_unstable();
        rows
    };
    assert_eq!(of_merged, sizes.into_iter().collect::<Vec<_>>());
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn anonymous_recordings_have_the_same_figures_and_no_names() {
    let scratch = Scratch::new();
    let secret = scratch.file("secret-directory");
    fs::create_dir(&secret).unwrap();
    let program = secret.join("secret-program");
    fs::copy(crate::harness::program("mix_threads"), &program).unwrap();
    let job = Job::new([program.as_os_str(), "000000000300".as_ref()]).directory(&secret);
    let (_, recording) = job.recorded(&scratch);
    let told = |recording: &Recording| format!("{:#}\n{:#}", recording.ask("info", &[]), recording.summary);
    assert!(told(&recording).contains("secret") && told(&recording).contains("000000000300"));

    let key = scratch.write("key", "0123456789abcdef");
    let keyed = ["--key-file", key.to_str().unwrap()];
    let public = made("anonymize", &[], &scratch.file("public.hl"), &[&recording.path]);
    let same = made("anonymize", &keyed, &scratch.file("same.hl"), &[&recording.path]);
    let again = made("anonymize", &keyed, &scratch.file("again.hl"), &[&recording.path]);
    for made in [&public, &same, &again] {
        made.assert_whole().assert_adds_up();
        let told = told(made);
        for name in ["secret", "000000000300", "mix_threads", scratch.path().to_str().unwrap()] {
            assert!(!told.replace(made.path.to_str().unwrap(), "").contains(name), "{name} in {told}");
        }
        for name in SUMS.iter().chain(&["bytes_live_max", "blocks_live_max"]) {
            assert_eq!(made.total(name), recording.total(name), "{name}");
        }
        let (before, after) = (answers(&recording), answers(made));
        for at in [1, 2, 3, 4] {
            assert_eq!(figures(&before[at]), figures(&after[at]), "{:#}\n{:#}", before[at], after[at]);
        }
    }
    // Only the key matters: with the same key everything is the same, with another one no name is.
    assert_eq!(fs::read(&same.path).unwrap(), fs::read(&again.path).unwrap());
    let own = |recording: &Recording| {
        let info = recording.ask("info", &[]);
        let modules = info["modules"].as_array().unwrap().clone();
        let paths = modules.iter().map(|module| module["path"].as_str().unwrap().to_owned());
        paths.filter(|path| path.starts_with("/own/")).collect::<Vec<_>>()
    };
    assert!(own(&public).len() == 1 && own(&same).len() == 1 && own(&public) != own(&same));
    assert!(told(&public).contains("libc.so.6"));

    let named = made("anonymize", &["--keep-names"], &scratch.file("named.hl"), &[&recording.path]);
    assert_eq!(own(&named), ["/own/secret-program"]);
    assert!(!told(&named).contains("secret-directory"));
    let short = scratch.write("short", "0123");
    let refused = make("anonymize", &["--key-file", short.to_str().unwrap()], &scratch.file("x.hl"), &[&public.path]);
    assert_eq!(refused.status, exited(2), "{refused:?}");
}

/// The old file stays unmodified until the new one is complete; nothing else is left behind.
#[test]
fn files_are_replaced_whole_and_on_request_only() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "100").recorded(&scratch);
    let damaged = scratch.write("damaged.hl", b"not a recording");
    let target = scratch.write("target.hl", b"precious");
    let both = [&*recording.path, &*recording.path];
    let listed = || {
        let entries = fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name());
        entries.map(|name| name.into_string().unwrap()).collect::<std::collections::BTreeSet<_>>()
    };
    let before = listed();
    for outcome in [
        make("merge", &[], &target, &both),
        make("merge", &["--force"], &target, &[&recording.path, &damaged]),
        make("anonymize", &[], &target, &[&recording.path]),
        make("anonymize", &["--force"], &target, &[&damaged]),
        make("anonymize", &["--force"], scratch.path(), &[&recording.path]),
        make("anonymize", &[], &scratch.file("no/such/directory.hl"), &[&recording.path]),
    ] {
        assert!(!outcome.status.success() && outcome.stdout.is_empty(), "{outcome:?}");
        assert_eq!(fs::read(&target).unwrap(), b"precious");
        assert_eq!(listed(), before);
    }
    let refused = make("anonymize", &[], &target, &[&recording.path]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--force"), "{refused:?}");
    assert!(make("merge", &["--force"], &target, &both).status.success());
    assert_eq!(Recording::open(target).total("allocations"), 2 * recording.total("allocations"));
    // The output cannot be the input.
    assert_eq!(make("anonymize", &["-f"], &recording.path, &[&recording.path]).status, exited(2));
    assert_eq!(Recording::open(recording.path.clone()).total("allocations"), recording.total("allocations"));
    assert_eq!(listed(), before);
}

/// A part of the time gives the answers of the whole for every moment in it, and parts add up.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn parts_answer_like_the_whole() {
    let scratch = Scratch::new();
    let script = "our @kept; for my $round (1..8) { push @kept, map { \"$_\" x 20 } 1..3000; \
                  splice @kept, 0, 1500; select undef, undef, undef, 0.03 }";
    let line = format!("perl -e '{script}' & $PROGRAMS/forks >/dev/null; wait");
    crate::harness::program("forks");
    let (_, whole) = Job::shell(&line).recorded(&scratch);
    let end = whole.ask("timeline", &[])["to_seconds"].as_f64().unwrap();
    let seconds = |part: f64| format!("{:.9}s", end * part);
    let cut = |from: f64, to: f64, name: &str| {
        let options = ["--from", &seconds(from), "--to", &seconds(to)];
        made("trim", &options, &scratch.file(name), &[&whole.path])
    };

    let part = cut(0.4, 0.7, "part.hl");
    part.assert_whole();
    for time in [0.4, 0.5, 0.55, 0.7] {
        let (at, files) = (seconds(time), [&whole.path, &part.path].map(|path| path.to_str().unwrap()));
        let line = ["diff", files[0], files[1], "--by", "site", "--at", &at, "--json"];
        let answer: Value = serde_json::from_slice(&heapledger(line).stdout).unwrap();
        assert!(number(&answer["before"]["total"], "bytes") > 100_000, "{answer:#}");
        assert_eq!((number(&answer, "growth"), number(&answer, "rows_all")), (0, 0), "{answer:#}");
        assert_eq!(answer["before"]["total"], answer["after"]["total"]);
    }
    answers(&part);
    let timeline = part.ask("timeline", &[]);
    assert!((timeline["from_seconds"].as_f64().unwrap() - end * 0.4).abs() < 1e-6, "{timeline:#}");
    assert_eq!(number(&timeline["peak"], "bytes"), part.total("bytes_live_max"));

    let before = cut(0.0, 0.5, "before.hl");
    let options = ["--from", &format!("{:.9}s", end * 0.5 + 1e-9)];
    let after = made("trim", &options, &scratch.file("after.hl"), &[&whole.path]);
    for name in ["allocations", "reallocations", "frees", "failed", "bytes_allocated"] {
        assert_eq!(before.total(name) + after.total(name), whole.total(name), "{name}: {before:?}{after:?}{whole:?}");
    }
    // For one process only: the peak of all depends on the order of their calls, which is known to
    // half a millisecond.
    let largest = whole.processes().iter().max_by_key(|process| number(process, "bytes_live_max")).unwrap();
    let of = |recording: &Recording, name: &str| number(recording.process(number(largest, "pid")), name);
    let peaks = [&before, &after, &whole].map(|recording| of(recording, "bytes_live_max"));
    assert_eq!(peaks[0].max(peaks[1]), peaks[2], "{before:?}{after:?}");
    assert_eq!(of(&after, "bytes_live_end"), of(&whole, "bytes_live_end"));
    // A part of a part.
    let again =
        made("trim", &["--from", &seconds(0.4), "--to", &seconds(0.6)], &scratch.file("again.hl"), &[&part.path]);
    let direct = cut(0.4, 0.6, "direct.hl");
    for name in SUMS.iter().chain(&["bytes_live_max"]) {
        assert_eq!(again.total(name), direct.total(name), "{name}");
    }
    assert_eq!(make("trim", &["--from", "1h"], &scratch.file("x.hl"), &[&whole.path]).status, exited(2));
    assert_eq!(make("merge", &[], &scratch.file("x.hl"), &[&whole.path, &part.path]).status, exited(2));
}

/// Files of `--rotate` are merged into one recording, which gives the answers of one that was never
/// cut.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn segments_merge_to_what_one_recording_says() {
    let plain = Scratch::new();
    for (fixture, work) in [("mix", "600000"), ("mix_threads", "150000")] {
        let scratch = Scratch::new();
        let (_, whole) = Job::fixture(fixture, work).recorded(&plain);
        let job = Job::fixture(fixture, work).option("--rotate=64KiB");
        let outcome = job.start(Some(&scratch.file("app.hl"))).outcome();
        let told = &outcome.printed_objects()[0];
        let files = scratch.recordings();
        assert!(files.len() >= 4, "{files:?}");
        let mut given: Vec<&Path> = files.iter().map(|file| &**file).collect();
        given.rotate_left(2);
        let joined = made("merge", &[], &scratch.file("joined.hl"), &given);
        joined.assert_whole().assert_adds_up();
        // The number of temporary blocks depends on the order in which threads continue.
        let steady = SUMS.iter().filter(|name| fixture == "mix" || **name != "temporary_allocations");
        for name in steady {
            assert_eq!(joined.total(name), whole.total(name), "{fixture}: {name}: {joined:?}{whole:?}");
        }
        assert!(joined.total("allocations") >= number(told, "allocations"));
        let info = joined.ask("info", &[]);
        assert_eq!((&info["part"], &info["begins_seconds"]), (&0.into(), &0.0.into()), "{info:#}");
        assert_eq!(joined.summary["exit"], whole.summary["exit"]);
        assert_eq!(joined.processes()[0]["running"], whole.processes()[0]["running"]);
        let (merged, unrotated) = (answers(&joined), answers(&whole));
        if fixture == "mix" {
            for name in ["bytes_live_max", "blocks_live_max"] {
                assert_eq!(joined.total(name), whole.total(name), "{name}: {joined:?}{whole:?}");
            }
            // All except the tree.
            for at in [0, 1, 2, 3, 4, 5, 7, 8] {
                assert_eq!(figures(&merged[at]), figures(&unrotated[at]), "{:#}{:#}", merged[at], unrotated[at]);
            }
        }
        let timeline = joined.ask("timeline", &[]);
        assert_eq!(number(&timeline["peak"], "bytes"), joined.total("bytes_live_max"), "{timeline:#}");
        assert_eq!(timeline["from_seconds"], 0.0);

        // Merged with another session.
        let both = made("merge", &[], &scratch.file("both.hl"), &[&[&*whole.path][..], &given].concat());
        for name in SUMS {
            assert_eq!(both.total(name), joined.total(name) + whole.total(name), "{name}: {both:?}");
        }
        // The same as if the oldest files had been removed.
        let rest = made("merge", &[], &scratch.file("rest.hl"), &given[..2]);
        rest.assert_whole();
        let parts = [given[0], given[1]].map(|file| Recording::open(file.to_owned()));
        assert_eq!(rest.total("allocations"), parts.iter().map(|part| part.total("allocations")).sum::<i64>());
        assert_eq!(rest.total("bytes_live_end"), parts[1].total("bytes_live_end"));
        assert_eq!(rest.total("bytes_live_max"), parts.iter().map(|part| part.total("bytes_live_max")).max().unwrap());
        let begins = |recording: &Recording| recording.ask("info", &[])["begins_seconds"].clone();
        assert_eq!(begins(&rest), begins(&parts[0]));

        let output = scratch.file("x.hl");
        let told = |files: &[&Path]| {
            let refused = make("merge", &[], &output, files);
            assert_eq!(refused.status, exited(2), "{refused:?}");
            assert!(refused.stdout.is_empty() && !output.exists(), "{refused:?}");
            String::from_utf8_lossy(&refused.stderr).into_owned()
        };
        // The message names the missing segment.
        let gap = told(&[&files[0], &files[2]]);
        assert!(gap.contains("segment 2 of its session is missing"), "{gap}");
        assert!(
            gap.contains(&format!("hint: merge consecutive files: heapledger merge -o {}", output.display())),
            "{gap}"
        );
        assert!(gap.contains("app.0002.hl"), "{gap}");
        fs::remove_file(&files[1]).unwrap();
        let gap = told(&[&files[3], &files[0], &files[2]]);
        let run = format!("{} {}", files[2].display(), files[3].display());
        assert!(gap.contains(&run) && !gap.contains("app.0002.hl"), "{gap}");
        let twice = told(&[&files[0], &files[0]]);
        assert!(twice.contains("segment 1 of its session is there twice"), "{twice}");
        let mixed = told(&[&files[2], &whole.path]);
        assert!(mixed.contains("begins in the middle of a run") && mixed.contains("hint: "), "{mixed}");
    }
}

/// Processes that start, end and fork while files change have all their stacks.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn segments_of_many_processes_merge() {
    let scratch = Scratch::new();
    let (ready, end) = (scratch.file("ready"), scratch.file("end"));
    let line = format!("{} 600000 {}", ready.display(), end.display());
    let running = Job::fixture("persists", &line).option("--rotate=200ms").start(Some(&scratch.file("app.hl")));
    crate::harness::wait_until("there are five files", || scratch.recordings().len() >= 5);
    fs::write(&end, "").unwrap();
    let outcome = running.outcome();
    assert_eq!(outcome.status, exited(42), "{outcome:?}");
    let parts: Vec<Recording> = scratch.recordings().into_iter().map(Recording::open).collect();
    let files: Vec<&Path> = parts.iter().map(|part| &*part.path).collect();
    let joined = made("merge", &[], &scratch.file("joined.hl"), &files);
    joined.assert_whole().assert_adds_up();
    for name in ["allocations", "reallocations", "frees", "failed", "bytes_allocated"] {
        assert_eq!(joined.total(name), parts.iter().map(|part| part.total(name)).sum::<i64>(), "{name}: {joined:?}");
    }
    let pids = |recording: &Recording| -> std::collections::BTreeSet<i64> {
        recording.processes().iter().map(|process| number(process, "pid")).collect()
    };
    assert_eq!(pids(&joined), parts.iter().flat_map(pids).collect());
    for part in &parts {
        // A process that ended in a part has the same exit in the merged recording.
        for process in part.processes().iter().filter(|process| process["running"] != true) {
            assert_eq!(joined.process(number(process, "pid"))["exit"], process["exit"]);
        }
    }
    answers(&joined);
    let sites = joined.ask("top", &["--by", "stack", "--total", "-n", "0"]).to_string();
    assert!(sites.contains("\"work\"") && !sites.contains("unknown"), "{sites}");
}
