//! Real C++ programs with an allocator that is preloaded: one allocation is one event, as a library
//! counts them that is preloaded before the allocator.

use std::fs;

use crate::harness::{Build, Job, Recording, Scratch, build, installed, number, shared_library};

/// Returns the counts of `fixtures/programs/counting.c`: allocations, frees, reallocations, and
/// calls of C++'s operators.
fn counts(bytes: &[u8]) -> [i64; 4] {
    let words: Vec<i64> = bytes.chunks_exact(8).map(|word| i64::from_ne_bytes(word.try_into().unwrap())).collect();
    words.try_into().unwrap()
}

/// Records a job with each allocator, and compares. Functions of the allocator that the library
/// does not wrap are none of those that the job calls.
fn agrees(job: &Job, operators_min: i64) {
    let counting = build("counting", Build::Module);
    for name in ["libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2"] {
        let Some(library) = shared_library(name) else { continue };
        let scratch = Scratch::new();
        let file = scratch.file("counts");
        let preload = format!("{} {}", counting.display(), library.display());
        let job = job.clone().variable("LD_PRELOAD", preload).variable("COUNTS", &file);
        let bare = job.bare();
        let (outcome, recording) = job.recorded(&scratch);
        assert_eq!((outcome.status, outcome.text()), (bare.status, bare.text()), "{name}");
        recording.assert_whole().assert_adds_up();
        let pid = number(&recording.processes()[0], "pid");
        let counted = counts(&fs::read(file.with_extension(pid.to_string())).unwrap());
        assert!(counted[3] > operators_min, "{name}: {counted:?}");
        differs_by_at_most(&recording, &counted, name);
        assert_eq!(number(&recording.summary, "frees_missed"), 0, "{name}: {recording:?}");
    }
}

/// The allocator and the dynamic linker may allocate before the library is ready to count, so a few
/// events more are recorded than it counts.
fn differs_by_at_most(recording: &Recording, counted: &[i64; 4], name: &str) {
    const EARLY_MAX: i64 = 4;
    let recorded = ["allocations", "frees", "reallocations"].map(|figure| recording.total(figure));
    let beyond: Vec<i64> = recorded.iter().zip(counted).map(|(recorded, counted)| recorded - counted).collect();
    assert!(beyond.iter().all(|beyond| (0..=EARLY_MAX).contains(beyond)), "{name}: {recorded:?} and {counted:?}");
}

/// The C++ compiler of LLVM, whose containers call `operator new` and malloc.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_compiler() {
    let Some(clang) = installed("clang++") else { return };
    let scratch = Scratch::new();
    let source = scratch.write(
        "source.cpp",
        "#include <map>\n#include <string>\n#include <vector>\n\
         int main() { std::map<std::string, std::vector<int>> map; map[\"a\"].push_back(1); return map.size(); }\n",
    );
    let job = Job::new([clang.as_os_str(), "-fsyntax-only".as_ref(), source.as_os_str()]);
    agrees(&job, 10_000);
}

/// A fixture with containers, and with malloc beside them.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_program_with_containers() {
    if installed("c++").is_none() {
        return;
    }
    agrees(&Job::fixture("owners", ""), 5);
}
