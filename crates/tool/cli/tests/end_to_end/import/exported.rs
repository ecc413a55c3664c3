//! Files that `export` has written, imported as recordings.

use std::ffi::OsStr;
use std::io::Write;

use serde_json::Value;

use super::{functions, imported};
use crate::export::exported;
use crate::harness::{Job, Recording, Scratch, heapledger, number};

fn totals(recording: &Recording, names: &[&str]) -> Vec<i64> {
    names.iter().map(|name| recording.total(name)).collect()
}

/// Asks the verbs that show a table about a file of another format.
fn answers(scratch: &Scratch, recording: &Recording, file: &OsStr) {
    for verb in ["top", "tree", "leaks", "summary"] {
        let outcome = heapledger([OsStr::new(verb), file]);
        assert!(outcome.status.success() && !outcome.stdout.is_empty(), "{verb}: {outcome:?}");
    }
    let picture = scratch.file("flame.svg");
    let flame = heapledger([OsStr::new("flame"), file, "--force".as_ref(), "-o".as_ref(), picture.as_os_str()]);
    assert!(flame.status.success() && picture.exists(), "{flame:?}");
    let pprof = scratch.file("again.pb.gz");
    let words = [OsStr::new("export"), file, "--force".as_ref(), "--to".as_ref(), "pprof".as_ref(), "-o".as_ref()];
    let export = heapledger(words.into_iter().chain([pprof.as_os_str()]));
    assert!(export.status.success() && pprof.exists(), "{export:?}");
    // Compared with the recording that it was made from: nothing has changed.
    let diff = heapledger([OsStr::new("diff"), recording.path.as_os_str(), file, "--json".as_ref()]);
    let diff: Value = serde_json::from_slice(&diff.stdout).unwrap_or_else(|error| panic!("{error}: {diff:?}"));
    assert_eq!(diff["growth"], 0, "{diff:#}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn as_traces_of_chrome() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix_threads", "300").recorded(&scratch);
    let names = ["bytes_live_max", "blocks_at_bytes_live_max", "bytes_live_end", "blocks_live_end"];
    for format in ["chrome", "chrome-v2"] {
        let (file, _) = exported(&scratch, &recording, format, &[]);
        let again = imported(&scratch, &file);
        assert_eq!(totals(&again, &names), totals(&recording, &names), "{format}");
        // The format has no modules, so owners may differ.
        let by_function = ["--by", "function"];
        assert_eq!(functions(&again, &by_function)[0], functions(&recording, &by_function)[0], "{format}");
    }
    let (file, _) = exported(&scratch, &recording, "chrome-v2", &[]);
    answers(&scratch, &recording, file.as_os_str());
    let at_end = ["--at", "end", "--by", "function"];
    assert_eq!(functions(&imported(&scratch, &file), &at_end), functions(&recording, &at_end));
    // The file was compressed by the user.
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&std::fs::read(&file).unwrap()).unwrap();
    let packed = scratch.write("packed.json.gz", packed.finish().unwrap());
    assert_eq!(totals(&imported(&scratch, &packed), &names), totals(&recording, &names));
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn as_profiles_of_firefox() {
    let scratch = Scratch::new();
    // The format cannot represent blocks of no bytes, so numbers of blocks differ.
    let names = ["bytes_allocated", "bytes_live_max", "bytes_live_end"];
    let (_, recording) = Job::fixture("mix_threads", "300").recorded(&scratch);
    let (file, _) = exported(&scratch, &recording, "firefox", &[]);
    let again = imported(&scratch, &file);
    again.assert_whole().assert_adds_up();
    assert_eq!(totals(&again, &names), totals(&recording, &names));
    assert_eq!(functions(&again, &[]), functions(&recording, &[]));
    let modules = |recording: &Recording| -> Vec<Value> {
        let top = recording.ask("top", &["--by", "module"]);
        let rows = top["rows"].as_array().unwrap().iter();
        rows.map(|row| serde_json::json!([row["module"], row["bytes"]])).collect()
    };
    assert_eq!(modules(&again), modules(&recording));
    answers(&scratch, &recording, file.as_os_str());

    // A process and its children, each separately.
    let (_, recording) = Job::fixture("forks", "").recorded(&scratch);
    let (file, _) = exported(&scratch, &recording, "firefox", &[]);
    let again = imported(&scratch, &file);
    for process in again.processes() {
        let pid = number(process, "pid");
        for name in ["bytes_allocated", "bytes_live_end"] {
            assert_eq!(number(process, name), number(recording.process(pid), name), "{pid} {name}: {recording:?}");
        }
    }
    assert!(again.processes().len() > 1, "{again:?}");
}

/// Addresses without names, in a program whose code is at other addresses in memory than in the
/// file. It is linked by lld, as Rust programs are.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn as_addresses() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("growth", "20").recorded(&scratch);
    let (file, _) = exported(&scratch, &recording, "gperftools", &["--total"]);
    let again = imported(&scratch, &file);
    assert_eq!(again.total("bytes_allocated"), recording.total("bytes_allocated"));
    let names = |recording: &Recording| -> Vec<String> {
        let top = recording.ask("top", &["--total", "-n", "0"]);
        let mut names: Vec<String> =
            top["rows"].as_array().unwrap().iter().map(|row| row["function"].to_string()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&again), names(&recording));
    // So the program is recognised if it is built again.
    let info = again.ask("info", &[]);
    let modules = info["modules"].as_array().unwrap();
    let program = modules.iter().find(|module| module["path"].as_str().unwrap().ends_with("growth")).unwrap();
    assert!(program["build_id"].as_str().is_some_and(|id| id.len() > 8), "{program:#}");
}

/// A file of another tool has less than a recording: functions are matched by the names in it.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn without_a_difference() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix_threads", "300").recorded(&scratch);
    const FORMATS: [&str; 11] = [
        "pprof",
        "dhat",
        "massif",
        "heaptrack",
        "chrome",
        "chrome-v2",
        "firefox",
        "gperftools",
        "heapprofile",
        "speedscope",
        "collapsed",
    ];
    for format in FORMATS {
        let all: &[&str] = if format == "chrome" { &["--cut", "0"] } else { &[] };
        let (file, _) = exported(&scratch, &recording, format, all);
        let words = ["--by", "function", "--json", "-n", "0"].map(OsStr::new);
        let files = [OsStr::new("diff"), recording.path.as_os_str(), file.as_os_str()];
        let diff = heapledger(files.into_iter().chain(words));
        let diff: Value = serde_json::from_slice(&diff.stdout).unwrap_or_else(|error| panic!("{error}: {diff:?}"));
        assert_eq!(diff["growth"], 0, "{format}: {diff:#}");
        // The format merges the smallest nodes into one.
        let least = if format == "massif" { number(&recording.summary, "bytes_live_max") / 100 } else { 0 };
        let rows = diff["rows"].as_array().unwrap();
        let differ = rows.iter().find(|row| number(row, "growth").abs() > least);
        assert!(differ.is_none(), "{format}: {differ:#?}");
    }
}
