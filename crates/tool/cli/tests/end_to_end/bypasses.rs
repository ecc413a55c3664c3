//! Libraries that bind to the C library past the preloaded one: their allocations and frees are
//! recorded and checked, and their symbols resolve as usual.

use std::path::{Path, PathBuf};

use crate::harness::{Build, Job, Scratch, build, exited, heapledger, installed, number, program};
use crate::truth::agrees;

/// Returns the directory of the libraries.
fn libraries() -> PathBuf {
    build("plugin_a", Build::Module);
    build("namespace_plugin", Build::Module);
    build("deepbind_plugin", Build::Module).parent().unwrap().to_owned()
}

fn namespaces(mode: &str, work: &str) -> Job {
    let directory = libraries();
    // glibc keeps room for the thread-local variables of four namespaces.
    let job = Job::fixture("namespaces", &format!("{} {mode} {work}", directory.to_str().unwrap()));
    job.variable("WORK", work).variable("GLIBC_TUNABLES", "glibc.rtld.nns=16")
}

fn deepbind(mode: &str, work: &str) -> Job {
    let directory = libraries();
    Job::fixture("deepbind", &format!("{} {mode} {work}", directory.to_str().unwrap())).variable("WORK", work)
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn every_call_of_a_library_that_binds_deeply() {
    for mode in ["lazy", "now", "bare", "handle"] {
        let (_, recording) = agrees(|work| deepbind(mode, work), "1000");
        assert_eq!(recording.total("threads"), 1, "{mode}: {recording:?}");
    }
}

/// With `RTLD_DEEPBIND` a library finds its own definitions first; without it, those of the global
/// scope.
#[test]
fn its_symbols_resolve_as_they_would() {
    for (mode, own) in [("lazy", "own: 1\n"), ("now", "own: 1\n"), ("bare", "own: 0\n")] {
        let job = deepbind(mode, "10");
        let (outcome, _) = job.both(&Scratch::new());
        assert!(outcome.text().starts_with(own), "{mode}: {outcome:?}");
        assert_eq!(job.launched("check", &[]).outcome(), outcome, "{mode}");
    }
}

#[test]
fn blocks_of_the_other_side_are_no_misuse() {
    for mode in ["lazy", "now", "handle"] {
        let job = deepbind(mode, "100");
        let outcome = job.launched("check", &[]).outcome();
        assert_eq!((outcome.status, outcome.stderr.as_slice()), (exited(0), &[][..]), "{mode}: {outcome:?}");
    }
}

/// PHP opens each of its extensions with `RTLD_DEEPBIND`.
#[test]
fn extensions_of_php() {
    let Some(php) = installed("php") else { return };
    let job = Job::new([php.as_os_str(), "-r".as_ref(), "echo implode(',', get_loaded_extensions());".as_ref()]);
    let scratch = Scratch::new();
    let (outcome, recording) = job.both(&scratch);
    assert!(outcome.status.success() && outcome.text().contains("Core"), "{outcome:?}");
    recording.assert_whole().assert_adds_up();
    let line = ["check", "--error-exitcode", "9", "--"].map(std::ffi::OsStr::new);
    let checked = heapledger(line.into_iter().chain([php.as_os_str(), "-r".as_ref(), "1;".as_ref()]));
    assert_eq!(checked.status, exited(0), "{checked:?}");
}

/// A library behind ours that looks up the C library's functions finds those, not ours, which call
/// it.
#[test]
fn a_wrapper_behind_ours_is_not_led_back() {
    let wrapper = build("interposer", Build::Module);
    let job = Job::fixture("mix", "1000").variable("LD_PRELOAD", &wrapper);
    let (_, recording) = job.both(&Scratch::new());
    recording.assert_whole();
    for mode in ["now", "handle"] {
        deepbind(mode, "10").variable("LD_PRELOAD", &wrapper).both(&Scratch::new());
    }
}

/// A namespace of `dlmopen` has a C library of its own. Its constructors, its threads, forks and
/// the namespaces that it makes are recorded like the program.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn every_call_in_a_namespace_of_its_own() {
    for mode in ["exchange", "many", "threads", "child", "another", "older", "symbols"] {
        let (_, recording) = agrees(|work| namespaces(mode, work), "1000");
        let said = &recording.summary;
        assert_eq!(said["unseen_libraries"], serde_json::json!([]), "{mode}: {said:#}");
        assert_eq!(
            (recording.total("frees_unknown"), recording.total("frees_missed")),
            (0, 0),
            "{mode}: {recording:?}"
        );
        // A thread that the namespace's C library starts leaves its ring to the next one.
        let rings = number(&said["costs"], "ring_bytes");
        assert!(rings < 2 << 20, "{mode}: {rings} bytes of rings");
    }
}

/// Each of many namespaces that threads make at once is recorded from its constructors on.
#[test]
fn every_namespace_of_a_crowd() {
    let (outcome, recording) = namespaces("crowd", "1000").recorded(&Scratch::new());
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    recording.assert_whole().assert_adds_up();
    assert_eq!(recording.summary["unseen_libraries"], serde_json::json!([]), "{recording:?}");
    // The dynamic linker's allocations for a thread depend on the other threads; a namespace makes
    // 9,000 allocations.
    let told = outcome.printed_objects().pop().unwrap();
    for name in ["allocations", "frees"] {
        let beyond = recording.total(name) - number(&told, name);
        assert!((0..1000).contains(&beyond), "{name}: {told}\n{recording:?}");
    }
    assert_eq!(recording.total("reallocations"), number(&told, "reallocations"), "{told}\n{recording:?}");
    assert_eq!((recording.total("frees_unknown"), recording.total("frees_missed")), (0, 0), "{recording:?}");
}

/// The stacks of allocations in a namespace are correct: they agree with those of the C library's
/// own unwinder.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_leak_in_a_namespace_is_found() {
    let (_, clean) = agrees(|work| namespaces("clean", work), "100");
    let (_, leak) = agrees(|work| namespaces("leak", work), "100");
    assert!(leak.total("bytes_live_end") - clean.total("bytes_live_end") == 100 << 20, "{leak:?}\n{clean:?}");
    let scratch = Scratch::new();
    let top = namespaces("leak", "100").recorded(&scratch).1.ask("top", &["--by", "function"]);
    assert_eq!(top["rows"][0]["function"], "makes", "{top:#}");
    let (_, verified) = namespaces("exchange", "100").option("--verify-stacks").recorded(&scratch);
    assert!(verified.total("stacks_verified") > 1000 && verified.total("stacks_mismatched") == 0, "{verified:?}");
    // With a sample point every few bytes, blocks of a mebibyte are all sampled.
    let (_, sampled) = namespaces("leak", "100").option("--sample").option("1KiB").recorded(&scratch);
    let live = sampled.total("bytes_live_end");
    assert!((99 << 20..102 << 20).contains(&live), "{live}: {sampled:?}");
}

/// If the C library of a namespace cannot be redirected, its calls are not recorded, and this is
/// reported.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_namespace_past_a_wrapper_is_named() {
    let wrapper = build("interposer", Build::Module);
    let job = namespaces("exchange", "100").variable("LD_PRELOAD", &wrapper);
    let scratch = Scratch::new();
    let (outcome, recording) = job.recorded(&scratch);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    let path = libraries().join("namespace_plugin.so");
    for verb in ["summary", "info"] {
        let said = recording.ask(verb, &[]);
        let unseen = said["unseen_libraries"].as_array().unwrap();
        assert_eq!(unseen.len(), 1, "{said:#}");
        assert_eq!(unseen[0]["path"], path.to_str().unwrap(), "{said:#}");
        assert_eq!(unseen[0]["reason"], "dlmopen", "{said:#}");
    }
    let reported = job.clone().with_report().start(Some(&scratch.file("again.hl"))).outcome();
    let text = String::from_utf8(reported.stderr).unwrap();
    assert!(text.contains("[HL0023]: the allocator calls of 1 library are not recorded: "), "{text}");
    let totals = job.option("--aggregate").recorded(&scratch).1.ask("summary", &[]);
    assert_eq!(totals["unseen_libraries"].as_array().unwrap().len(), 1, "{totals:#}");
    // It is not redirected either if a hook library may replace the allocator.
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/hooks/histogram.c");
    let hook = crate::hooks::library(&source, &scratch.file("libhistogram.so"));
    let hooked = namespaces("exchange", "100").option("--hook").option(hook.to_str().unwrap());
    let said = hooked.recorded(&scratch).1.ask("summary", &[]);
    assert_eq!(said["unseen_libraries"][0]["reason"], "dlmopen", "{said:#}");
}

/// `check` does not look into namespaces: it says so, and reports nothing false.
#[test]
fn blocks_of_a_namespace_are_no_misuse() {
    let job = namespaces("exchange", "100");
    let outcome = job.bare();
    let checked = job.clone().launched("check", &[]).outcome();
    assert_eq!(checked.status, exited(0), "{checked:?}");
    assert_eq!(checked.stdout, outcome.stdout);
    let said = String::from_utf8(checked.stderr).unwrap();
    assert!(said.is_empty(), "{said}");
    let directory = libraries();
    let line = [
        "check",
        "--json",
        "--",
        program("namespaces").to_str().unwrap(),
        directory.to_str().unwrap(),
        "exchange",
        "100",
    ]
    .map(str::to_owned);
    let report = heapledger(line).text();
    let report: serde_json::Value = serde_json::from_str(report.split_once('\n').unwrap().1).unwrap();
    assert_eq!(report["misuses"], serde_json::json!([]), "{report:#}");
    assert_eq!(report["stopped_by"][0], directory.join("namespace_plugin.so").to_str().unwrap(), "{report:#}");
}

/// The C library of a namespace takes the value at its key's number in a thread's descriptor for
/// its own.
#[test]
fn thread_specific_values_of_a_namespace() {
    let directory = build("keys_plugin", Build::Module).parent().unwrap().to_owned();
    let job = Job::fixture("namespace_keys", directory.to_str().unwrap());
    let (outcome, recording) = job.both(&Scratch::new());
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    recording.assert_whole();
    let checked = job.launched("check", &[]).outcome();
    assert_eq!((checked.status, checked.text()), (outcome.status, outcome.text()));
}

/// If another library wraps the allocator, the definitions are not redirected, and a library that
/// binds past it is named.
#[test]
fn a_library_that_binds_past_a_wrapper_is_named() {
    let wrapper = build("interposer", Build::Module);
    let scratch = Scratch::new();
    let (_, recording) = deepbind("now", "10").variable("LD_PRELOAD", &wrapper).both(&scratch);
    let said = recording.ask("summary", &[]);
    assert_eq!(said["unseen_libraries"][0]["reason"], "deepbind", "{said:#}");
    let (_, plain) = deepbind("now", "10").both(&scratch);
    assert_eq!(plain.ask("summary", &[])["unseen_libraries"], serde_json::json!([]));
}
