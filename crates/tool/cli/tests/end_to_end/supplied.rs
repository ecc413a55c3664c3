//! Stacks of programs whose C library cannot be asked for modules: the recorder's library gets a
//! table of them.
//!
//! An older glibc is not needed: a library that hides the modules from the recorder takes its
//! place, so that glibc's `backtrace` is there to compare with.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use crate::harness::{Build, Job, Scratch, build, headers, installed};
use crate::stacks::stacks;
use crate::verified::{verified, workloads};

/// Returns the job with the modules hidden.
fn hidden(job: Job) -> Job {
    job.variable("LD_PRELOAD", build("hides_modules", Build::Module))
}

#[test]
fn stacks_are_whole_without_the_linker() {
    let scratch = Scratch::new();
    let (_, recording) = hidden(Job::fixture("stacks", "500")).option("--verify-stacks").both(&scratch);
    let of = |name| recording.total(name);
    assert_eq!((of("stacks_mismatched"), of("stacks_dropped"), of("stacks_incomparable")), (0, 0, 0), "{recording:?}");
    assert!(of("stacks_verified") >= of("allocations") && of("allocations") >= 500, "{recording:?}");
}

/// Libraries that are loaded, unloaded and replaced: the table is asked for again.
#[test]
fn libraries_that_come_and_go_are_noticed() {
    let scratch = Scratch::new();
    let directory = build("plugin_a", Build::Module).parent().unwrap().to_owned();
    build("plugin_b", Build::Module);
    let job = hidden(Job::fixture("plugins", &format!("{} 20", directory.display())));
    let (_, recording) = job.option("--verify-stacks").both(&scratch);
    let of = |name| recording.total(name);
    // A stack ends early, and counts so, if libraries are unloaded again and again while the table
    // is made.
    assert!(of("stacks_mismatched") <= of("stacks_dropped"), "{recording:?}");
    assert!(of("stacks_dropped") * 100 <= of("allocations") && of("stacks_verified") > 0, "{recording:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn in_real_programs() {
    let scratch = Scratch::new();
    // Libraries that come and go have a test of their own.
    for workload in workloads(&scratch, 1).into_iter().filter(|workload| workload.name != "dlopen and dlclose") {
        println!("{}: {}", workload.name, verified(hidden(workload.job), &scratch));
    }
}

/// The modules have their names, and the recording those of functions, as with the linker.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn reports_are_the_same() {
    let Some(python) = installed("python3") else { return };
    let scratch = Scratch::new();
    let line = [python.as_os_str(), "-c".as_ref(), "import json; json.dumps([str(i) for i in range(9999)])".as_ref()];
    let top = |job: Job| {
        let (_, recording) = job.variable("PYTHONHASHSEED", "0").recorded(&scratch);
        assert_eq!(recording.total("stacks_dropped"), 0, "{recording:?}");
        let top = recording.ask("top", &["--by", "function", "-n", "0"]);
        // The linker has the path by which it opened a library, the kernel the real one.
        let module =
            |row: &serde_json::Value| Path::new(row["module"].as_str().unwrap()).file_name().map(OsStr::to_owned);
        let rows = top["rows"].as_array().unwrap().iter();
        let names: BTreeSet<_> = rows.map(|row| (row["function"].as_str().map(str::to_owned), module(row))).collect();
        assert!(names.len() > 10, "{top:#}");
        names
    };
    assert_eq!(top(hidden(Job::new(line))), top(Job::new(line)));
}

/// A program whose own code has no unwind information has the same stacks as one that has it: the
/// compiler makes the same code.
#[test]
fn code_without_unwind_information_has_rules() {
    let scratch = Scratch::new();
    let of = |program: &Path| {
        let (_, recording) = Job::new([program.as_os_str(), "500".as_ref()]).both(&scratch);
        let counts = (recording.total("allocations"), recording.total("stacks_dropped"));
        let stacks: BTreeSet<_> = stacks(&recording).into_iter().map(|stack| (stack.functions, stack.blocks)).collect();
        (stacks, counts)
    };
    let compile = |name: &str, options: &[&str]| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/programs/stacks.c");
        let output = scratch.file(name);
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-g", "-fno-builtin", "-pthread", "-I"]).arg(headers()).args(options);
        assert!(compiler.arg("-o").arg(&output).arg(source).status().unwrap().success(), "{compiler:?}");
        output
    };
    let (whole, counts) = of(&compile("whole", &[]));
    assert!(whole.len() > 10 && counts.1 == 0, "{counts:?} {whole:#?}");
    let bare = compile("bare", &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]);
    assert_eq!(of(&bare), (whole, counts));
}
