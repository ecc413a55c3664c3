//! Names of functions that are kept in recordings.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::{
    HEAPLEDGER, Job, Outcome, Recording, Scratch, exited, heapledger, installed, number, program, wait_until,
};

/// Copies a fixture, so that it can be removed.
fn copy(name: &str, scratch: &Scratch) -> PathBuf {
    let copy = scratch.file(name);
    fs::copy(program(name), &copy).unwrap();
    copy
}

/// Returns the answer of `VERB` without names from earlier runs.
fn said(recording: &Path, verb: &str, options: &[&str]) -> Value {
    let words = [HEAPLEDGER, verb, "--json", recording.to_str().unwrap()];
    let outcome = Job::new(words.iter().chain(options)).bare();
    assert!(outcome.status.success(), "{outcome:?}");
    serde_json::from_slice(&outcome.stdout).unwrap()
}

/// Returns every function on every stack, with files, lines and all parts of the names.
fn all_functions(recording: &Path) -> Value {
    said(recording, "tree", &["--total", "--frames", "all", "--full-names"])
}

fn add_names(recording: &Path, options: &[&str]) -> Outcome {
    let words = [HEAPLEDGER, "names", recording.to_str().unwrap()];
    Job::new(words.iter().chain(options)).bare()
}

fn places(recording: &Path) -> i64 {
    number(&said(recording, "info", &[]), "places_named")
}

/// The functions in a recording are those in the program, down to the last part of a name.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn are_those_that_the_program_has() {
    let scratch = Scratch::new();
    let mut fixtures = vec![("mix", "100"), ("crew", "2")];
    if installed("c++").is_some() {
        fixtures.push(("owners", ""));
    }
    for (name, arguments) in fixtures {
        let program = copy(name, &scratch);
        let line = [program.to_str().unwrap()].into_iter().chain(arguments.split_whitespace());
        let (_, recording) = Job::new(line).recorded(&scratch);
        assert_eq!(places(&recording.path), 0);
        let from_program = all_functions(&recording.path);
        let named = scratch.file("named.hl");
        fs::copy(&recording.path, &named).unwrap();
        let outcome = add_names(&named, &[]);
        assert!(outcome.status.success() && outcome.stdout.is_empty(), "{outcome:?}");
        assert!(places(&named) > 10, "{name}");
        fs::rename(&program, scratch.file("gone")).unwrap();
        assert_eq!(all_functions(&named), from_program, "{name}");
        assert_ne!(all_functions(&recording.path), from_program, "{name}");
        Recording::open(named.clone()).assert_whole().assert_adds_up();
        // If nothing is found, the present names stay; and the file does not grow.
        let before = fs::read(&named).unwrap();
        assert!(add_names(&named, &[]).status.success());
        assert_eq!(fs::read(&named).unwrap(), before, "{name}");
        fs::remove_file(named).unwrap();
    }
}

/// A recording gives the same answers on another machine and after a rebuild.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn are_kept_by_every_recording() {
    let scratch = Scratch::new();
    let program = copy("mix", &scratch);
    let job = Job::new([program.to_str().unwrap(), "300000"]).with_names("all");
    let (_, unasked) = Job::new([program.to_str().unwrap(), "100"]).with_names("auto").recorded(&scratch);
    assert!(places(&unasked.path) > 0);
    let (_, recording) = job.recorded(&scratch);
    let (_, aggregate) = job.clone().option("--aggregate").recorded(&scratch);
    let segments = Scratch::new();
    let rotated = job.option("--rotate=64KiB").start(Some(&segments.file("app.hl"))).outcome();
    assert!(rotated.status.success(), "{rotated:?}");
    let mut files = segments.recordings();
    assert!(files.len() > 1, "{files:?}");
    files.extend([recording.path, aggregate.path]);
    let before: Vec<Value> = files.iter().map(|file| all_functions(file)).collect();
    // Another program with the same name.
    fs::copy(crate::harness::program("fresh"), &program).unwrap();
    for (file, before) in files.iter().zip(before) {
        let after = all_functions(file);
        // The last file of a rotation may have no call.
        let is_empty = after["total"]["blocks"] == 0 && segments.recordings().last() == Some(file);
        assert!(is_empty || after.to_string().contains("mix.c"), "{after:#}");
        assert_eq!(after, before);
    }
}

/// A file of a recording that continues in the next one can be copied away.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn are_in_a_file_before_the_program_ends() {
    let scratch = Scratch::new();
    let (ready, end) = (scratch.file("ready"), scratch.file("end"));
    let line = format!("{} 600000 {}", ready.display(), end.display());
    let job = Job::fixture("persists", &line).option("--rotate=200ms").with_names("all");
    let running = job.start(Some(&scratch.file("run.hl")));
    let [first, second] = ["run.0001.hl", "run.0002.hl"].map(|name| scratch.file(name));
    wait_until("the first file has names", || second.exists() && places(&first) > 0);
    let passing = fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(passing.filter(|name| name.to_str().unwrap().starts_with(".heapledger")).count() <= 1);
    Recording::open(first).assert_whole();
    fs::write(&end, "").unwrap();
    assert_eq!(running.outcome().status, exited(42));
}

/// Rows have the same owners if the program is missing: a recording contains the sizes of
/// functions, so wrappers are found there, too, and what is known about functions without a name.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn tell_owners_where_the_program_is_not() {
    let scratch = Scratch::new();
    let (one, stripped) = (copy("wrappers", &scratch), scratch.file("stripped"));
    let strip = std::process::Command::new("strip").arg(&one).arg("-o").arg(&stripped).status();
    assert!(strip.expect("strip, of binutils").success());
    let (_, other) = Job::fixture("mix", "100").recorded(&scratch);
    let other = other.path.to_str().unwrap();
    for (program, wrapper) in [(one, "make"), (stripped, "stripped+0x")] {
        let (_, recording) = Job::new([&program]).with_names("all").recorded(&scratch);
        let make = |verb: &str, name: &str, options: &[&str]| {
            let (output, file) = (scratch.file(name), recording.path.to_str().unwrap());
            let line = [&[verb, "-o", output.to_str().unwrap()], options, &[file]].concat();
            assert!(heapledger(line).status.success());
            output
        };
        let files = [
            recording.path.clone(),
            make("trim", "part.hl", &["--from", "0s"]),
            make("merge", "merged.hl", &[other]),
            make("anonymize", "known.hl", &["--keep-functions", "--keep-names"]),
        ];
        let rows = |file: &PathBuf| said(file, "top", &["--total", "-n", "0"])["rows"].clone();
        let before: Vec<Value> = files.iter().map(rows).collect();
        fs::rename(&program, scratch.file("gone")).unwrap();
        for (file, before) in files.iter().zip(&before) {
            let after = rows(file);
            assert_eq!(&after, before, "{}", file.display());
            let via = |row: &Value| row["via"]["function"].to_string();
            assert!(after.as_array().unwrap().iter().any(|row| via(row).contains(wrapper)), "{after:#}");
        }
        // Another look-up without the program removes nothing.
        assert!(add_names(&files[0], &[]).status.success());
        assert_eq!(rows(&files[0]), before[0]);
        files.iter().for_each(|file| fs::remove_file(file).unwrap());
    }
}

/// Names are kept wherever events are, and anonymous recordings have none.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn survive_what_is_done_to_a_recording() {
    let scratch = Scratch::new();
    let (one, two) = (copy("mix", &scratch), copy("forks", &scratch));
    let (_, first) = Job::new([one.to_str().unwrap(), "1000"]).with_names("all").recorded(&scratch);
    let (_, second) = Job::new([two.to_str().unwrap(), "3"]).with_names("all").recorded(&scratch);
    let make = |verb: &str, options: &[&str], name: &str, files: &[&Recording]| {
        let output = scratch.file(name);
        let mut line = vec![verb, "-o", output.to_str().unwrap()];
        line.extend(options);
        line.extend(files.iter().map(|file| file.path.to_str().unwrap()));
        let outcome = heapledger(line);
        assert!(outcome.status.success(), "{outcome:?}");
        output
    };
    let merged = make("merge", &[], "merged.hl", &[&first, &second]);
    let part = make("trim", &["--from", "0s"], "part.hl", &[&first]);
    let known = make("anonymize", &["--keep-functions"], "known.hl", &[&first]);
    let public = make("anonymize", &[], "public.hl", &[&first]);
    let (of_merged, of_part) = (all_functions(&merged), all_functions(&part));
    [one, two].iter().for_each(|program| fs::remove_file(program).unwrap());
    assert_eq!(all_functions(&merged), of_merged);
    assert_eq!(all_functions(&part), of_part);
    assert!(places(&merged) > places(&first.path) && places(&part) == places(&first.path));
    for function in ["\"mix_step\"", "\"main\""] {
        let is_in = |recording: &Path| all_functions(recording).to_string().contains(function);
        assert!(is_in(&known) && is_in(&part), "{function}");
    }
    let text = all_functions(&known).to_string();
    assert!(text.contains("/own/mix.c") && !text.contains("fixtures"), "{text}");
    assert_eq!(places(&public), 0);
    let bytes = fs::read(&public).unwrap();
    assert!(!all_functions(&public).to_string().contains("mix"), "{}", String::from_utf8_lossy(&bytes));
}

/// If a recording cannot have names, the verb says so and does not modify it.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn are_refused_to_files_without_an_end() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "100").recorded(&scratch);
    let whole = fs::read(&recording.path).unwrap();
    let cut = scratch.write("cut.hl", &whole[..whole.len() - 9]);
    let text = scratch.write("text.hl", "no recording");
    for (file, what) in [(&cut, "its end is missing"), (&text, "cannot read")] {
        let before = fs::read(file).unwrap();
        let outcome = add_names(file, &[]);
        let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(!outcome.status.success() && told.contains(what), "{outcome:?}");
        assert_eq!(fs::read(file).unwrap(), before);
    }
    // The hint's advice works.
    let repaired = scratch.file("repaired.hl");
    let words = ["trim", "--from", "0s", "-o", repaired.to_str().unwrap(), cut.to_str().unwrap()];
    assert!(heapledger(words).status.success());
    assert!(add_names(&repaired, &[]).status.success());
    assert!(places(&repaired) > 10);
    assert_eq!(add_names(&recording.path, &["--symbols", "/nowhere"]).status, exited(2));
}

/// A pipe keeps what was written to it; nothing is written there afterwards.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn are_not_put_into_pipes() {
    let scratch = Scratch::new();
    let piped = scratch.file("piped.hl");
    program("mix");
    let line =
        format!("{HEAPLEDGER} record -q -o /dev/fd/3 -- $PROGRAMS/mix 100 3>&1 >/dev/null | cat > {}", piped.display());
    let outcome = Job::shell(&line).bare();
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(places(&piped), 0);
    Recording::open(piped).assert_whole();
    // A descriptor of a file behaves the same.
    let line = format!(
        "{HEAPLEDGER} record -q -o /dev/fd/3 -- $PROGRAMS/mix 100 3> written; {HEAPLEDGER} names /dev/fd/4 4< written"
    );
    let outcome = Job::shell(&line).directory(scratch.path()).bare();
    assert!(!outcome.status.success() && String::from_utf8_lossy(&outcome.stderr).contains("no name"), "{outcome:?}");
    Recording::open(scratch.file("written")).assert_whole();
}

/// It is unknown whether a file without a build id is the one that ran; if it has changed since, a
/// message says so.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn of_a_file_that_changed_and_has_no_build_id_are_told_apart() {
    let scratch = Scratch::new();
    let (plain, program) = (copy("wrappers", &scratch), scratch.file("without-id"));
    let made = std::process::Command::new("objcopy")
        .args(["--remove-section", ".note.gnu.build-id"])
        .args([&plain, &program])
        .status();
    assert!(made.expect("objcopy, of binutils").success());
    let (_, without_names) = Job::new([&program]).recorded(&scratch);
    let (_, with_names) = Job::new([&program]).with_names("all").recorded(&scratch);
    let warnings = |recording: &Recording| {
        let top = heapledger(["top", "--total", recording.path.to_str().unwrap()]);
        assert!(top.status.success(), "{top:?}");
        String::from_utf8_lossy(&top.stderr).matches("HL0081").count()
    };
    assert_eq!([warnings(&without_names), warnings(&with_names)], [0, 0]);
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
    fs::File::options().append(true).open(&program).unwrap().set_modified(later).unwrap();
    assert_eq!([warnings(&without_names), warnings(&with_names)], [1, 0]);
}
