//! Libraries with an allocator of their own that a program opens while it runs: everything is
//! recorded, from their constructors on.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::harness::{Build, Job, Recording, Scratch, build, exited, installed, number};
use crate::truth::agrees;
use crate::variants::{JEMALLOC, MIMALLOC, Variant, build_library};

/// Returns a library in C, and a copy of it.
pub(crate) fn plugins(scratch: &Scratch) -> [PathBuf; 2] {
    let library = build("later_plugin", Build::Module);
    ["one.so", "other.so"].map(|name| {
        fs::copy(&library, scratch.file(name)).unwrap();
        scratch.file(name)
    })
}

fn later(plugins: &[PathBuf; 2], mode: &str, work: &str) -> Job {
    let [one, other] = plugins.each_ref().map(|path| path.to_str().unwrap());
    Job::fixture("later", &format!("{one} {other} {mode} {work}")).variable("WORK", work)
}

/// True if the recording names no library that was not seen, and no event was missed.
fn is_clean(recording: &Recording) -> bool {
    let missed = number(&recording.summary, "frees_missed");
    (missed, recording.total("frees_unknown")) == (0, 0) && recording.summary["unseen_libraries"] == json!([])
}

/// Opened once, or again and again at the same addresses and at others, beside threads that
/// allocate, and in a child.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn every_call_of_a_library() {
    let scratch = Scratch::new();
    let plugins = plugins(&scratch);
    for mode in ["once", "again", "both", "threads", "child"] {
        let (_, recording) = agrees(|work| later(&plugins, mode, work), "100");
        assert!(is_clean(&recording), "{mode}: {recording:?}");
    }
}

/// A sample of a library's own calls is as good as one of malloc's, and sizes are asked of the
/// allocator that the block is from.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn samples_and_usable_sizes() {
    let scratch = Scratch::new();
    let plugins = plugins(&scratch);
    let (outcome, recording) = later(&plugins, "again", "100").option("--sample=16k").both(&scratch);
    let told = number(&outcome.printed_objects().pop().unwrap(), "bytes_allocated") as f64;
    let estimated = recording.total("bytes_allocated") as f64;
    assert!((estimated / told - 1.0).abs() < 0.1, "{estimated} of {told}");
    let scratch = Scratch::new();
    let (outcome, recording) = later(&plugins, "again", "10").option("--usable").both(&scratch);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    assert!(recording.total("allocations") > 1000, "{recording:?}");
}

/// Python opens a library in Rust whose allocator is mimalloc, or jemalloc.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_library_in_rust_that_python_opens() {
    let Some(python) = installed("python3") else { return };
    let script = "import ctypes, sys\n\
        library = ctypes.CDLL(sys.argv[1])\n\
        library.plugin_work(ctypes.c_uint64(int(sys.argv[2])))\n\
        counts = (ctypes.c_uint64 * 4)()\n\
        library.plugin_counts(counts)\n\
        allocations, reallocations, frees, size = counts\n\
        print('{\"allocations\":%d,\"reallocations\":%d,\"frees\":%d,\"bytes_allocated\":%d}' % \
              (allocations + reallocations, reallocations, frees + reallocations, size))\n";
    let scratch = Scratch::new();
    let script = scratch.write("opens.py", script);
    let opens = |variant: &Variant| {
        let library = build_library("plugin", variant);
        let job = |work: &str| {
            let words = [python.as_os_str(), script.as_os_str(), library.as_os_str(), work.as_ref()];
            Job::new(words).variable("PYTHONHASHSEED", "0")
        };
        let (_, recording) = agrees(job, "300");
        assert!(is_clean(&recording), "{}: {recording:?}", variant.name);
        // The constructor's blocks are recorded, too.
        let (_, recording) = job("0").recorded(&scratch);
        let rows = recording.ask("top", &["--by", "function", "--total", "-n", "1000"]).to_string();
        assert!(rows.contains("plugin::work"), "{}: {rows}", variant.name);
    };
    opens(&MIMALLOC);
    opens(&JEMALLOC);
}

/// A library that is opened a thousand times is asked about once for each address, whether it has
/// an allocator or not.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_library_is_asked_about_once() {
    if installed("strace").is_none() {
        return;
    }
    let scratch = Scratch::new();
    let [one, other] = plugins(&scratch);
    let plain = build("plugin_a", Build::Module);
    let requests = |library: &Path, rounds: usize| {
        let source = format!(
            "#include <dlfcn.h>\nint main() {{ for (int i = 0; i < {rounds}; i++) dlclose(dlopen(\"{}\", RTLD_NOW)); }}\n",
            library.display()
        );
        let program = scratch.file(&format!("opens.{rounds}"));
        let source = scratch.write("opens.c", source);
        super::run(std::process::Command::new("cc").arg(&source).arg("-o").arg(&program));
        let trace = scratch.file("trace");
        let words = ["strace", "-f", "-o", trace.to_str().unwrap(), "-e", "trace=connect", program.to_str().unwrap()];
        let (outcome, _) = Job::new(words).recorded(&Scratch::new());
        assert_eq!(outcome.status, exited(0), "{outcome:?}");
        fs::read_to_string(&trace).unwrap().lines().filter(|line| line.contains("heapledger")).count()
    };
    for library in [&one, &other, &plain] {
        // The kernel maps it to another address now and then.
        let (once, often) = (requests(library, 1), requests(library, 1000));
        assert!(once >= 2 && (once..once + 20).contains(&often), "{}: {once}, {often}", library.display());
    }
}
