//! Stacks of programs whose C library cannot be asked for modules: the recorder's library gets a
//! table of them.
//!
//! An older glibc is not needed: a library that hides the modules from the recorder takes its place,
//! so that glibc's `backtrace` is there to compare with.

use crate::harness::{Build, Job, Scratch, build, installed};
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
    assert!(of("stacks_verified") >= of("allocations") && of("allocations") > 500, "{recording:?}");
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
    assert_eq!((of("stacks_mismatched"), of("stacks_dropped")), (0, 0), "{recording:?}");
    assert!(of("stacks_verified") > 0, "{recording:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn in_real_programs() {
    let scratch = Scratch::new();
    for workload in workloads(&scratch, 1) {
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
        let rows = recording.ask("top", &["--by", "function"])["rows"].as_array().unwrap().clone();
        let names = rows.iter().map(|row| format!("{} {}", row["name"], row["module"])).collect::<Vec<_>>();
        assert!(!names.is_empty(), "{recording:?}");
        names
    };
    assert_eq!(top(hidden(Job::new(line))), top(Job::new(line)));
}
