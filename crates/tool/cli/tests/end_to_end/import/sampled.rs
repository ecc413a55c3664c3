//! Files that samplers inside programs write: Go's runtime, tcmalloc, and jemalloc through
//! `jemalloc_pprof`.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::imported;
use crate::harness::{Recording, Scratch, installed, shared_library};

/// Returns the bytes in the row of a function.
fn bytes_of(recording: &Recording, function: &str) -> i64 {
    let top = recording.ask("top", &[]);
    let rows = top["rows"].as_array().unwrap();
    let bytes = rows.iter().filter(|row| row["function"] == function).map(|row| row["bytes"].as_i64().unwrap());
    bytes.sum()
}

/// Returns the sum of a kind of value in a file, according to Go's own reader.
fn sum(go: &Path, kind: &str, file: &Path) -> i64 {
    let options = ["tool", "pprof", "-top", "-unit=B", "-nodefraction=0", "-nodecount=100000"];
    let done = Command::new(go).args(options).arg(format!("-sample_index={kind}")).arg(file).output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let total = text.lines().find_map(|line| line.split_once(" of ")?.1.split_once(" total")?.0.parse().ok());
    // Units are written behind bytes only.
    let with_unit = || text.lines().find_map(|line| line.split_once(" of ")?.1.split_once("B total")?.0.parse().ok());
    total.or_else(with_unit).unwrap_or_else(|| panic!("{text}"))
}

#[test]
#[ignore = "`.ci/run` runs it"]
fn of_go() {
    let scratch = Scratch::new();
    let Some(go) = installed("go") else { return };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/go/heap.go");
    let [program, packed, text] = ["heap", "heap.pb.gz", "heap.txt"].map(|name| scratch.file(name));
    let built = Command::new(&go).args(["build", "-o"]).args([&program, &source]).output().unwrap();
    assert!(built.status.success(), "{built:?}");
    assert!(Command::new(&program).args([&packed, &text]).status().unwrap().success());
    // Compressed, as a program writes it, and uncompressed.
    let unpacked = scratch.file("heap.pb");
    let bytes = Command::new("gzip").args(["-dc"]).arg(&packed).output().unwrap().stdout;
    assert_eq!(bytes[0], 0x5a, "the kind of the period is first");
    fs::write(&unpacked, bytes).unwrap();
    for file in [&packed, &unpacked, &text] {
        let recording = imported(&scratch, file);
        for (kind, ours) in [
            ("inuse_space", "bytes_live_end"),
            ("inuse_objects", "blocks_live_end"),
            ("alloc_space", "bytes_allocated"),
            ("alloc_objects", "allocations"),
        ] {
            let (theirs, ours) = (sum(&go, kind, file), recording.total(ours));
            // We round each stack once; their reader of text rounds it down.
            assert!((theirs - ours).abs() <= 64, "{}: {kind}: {theirs}, {ours}", file.display());
        }
        let (kept, dropped) = (bytes_of(&recording, "main.keep"), bytes_of(&recording, "main.drop"));
        assert!((3_500_000..4_700_000).contains(&kept) && dropped < 1_000_000, "{}: {kept} {dropped}", file.display());
    }
}

/// Calls a function that the library's header declares, which is in a package of its own.
const TCMALLOC: &str = r#"
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>
struct MallocExtension {
    static MallocExtension *instance();
    void GetHeapSample(std::string *out);
};
static void *keep(std::size_t size) { return std::malloc(size); }
int main() {
    std::vector<void *> kept;
    for (int i = 0; i < 40000; i++) kept.push_back(keep(4096));
    std::string out;
    MallocExtension::instance()->GetHeapSample(&out);
    std::fwrite(out.data(), 1, out.size(), stdout);
}
"#;

#[test]
#[ignore = "`.ci/run` runs it"]
fn of_tcmallocs_sampler() {
    let scratch = Scratch::new();
    let (Some(pprof), Some(library)) = (installed("google-pprof"), shared_library("libtcmalloc.so.4")) else { return };
    let (source, program) = (scratch.write("sampled.cpp", TCMALLOC), scratch.file("sampled"));
    let built = Command::new("c++")
        .args(["-O1", "-g", "-fno-builtin"])
        .arg(&source)
        .arg(library)
        .arg("-o")
        .arg(&program)
        .output();
    let built = built.unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let done = Command::new(&program).env("TCMALLOC_SAMPLE_PARAMETER", "16384").output().unwrap();
    let file = scratch.write("sampled.heap", &done.stdout);
    assert!(done.stdout.starts_with(b"heap profile:"), "{done:?}");
    let recording = imported(&scratch, &file);
    let options = ["--text", "--show_bytes", "--inuse_space"];
    let theirs = Command::new(&pprof).args(options).args([&program, &file]).output().unwrap();
    let theirs = String::from_utf8(theirs.stdout).unwrap();
    let total: i64 = theirs.lines().next().unwrap()["Total: ".len()..].split(' ').next().unwrap().parse().unwrap();
    let ours = recording.total("bytes_live_end");
    // tcmalloc rounds each of its lines, several of which have the same stack. It does not sample
    // the first 16 of the 160 MB.
    assert!((total - ours).abs() <= total / 10_000 && (130_000_000..165_000_000).contains(&ours), "{ours}: {theirs}");
    assert!(
        bytes_of(&recording, "keep") + bytes_of(&recording, "main") > 130_000_000,
        "{:#}",
        recording.ask("top", &[])
    );
}

/// `fixtures/profiles/jemalloc_pprof.pb.gz` was written by version 0.8.2 of that crate, in a
/// program that keeps 1,000 vectors of 4 KiB.
#[test]
fn of_jemalloc_pprof() {
    let scratch = Scratch::new();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/profiles/jemalloc_pprof.pb.gz");
    let recording = imported(&scratch, &file);
    let live = recording.total("bytes_live_end");
    assert!((3_500_000..4_700_000).contains(&live), "{live}");
    let top = recording.ask("top", &["--by", "module"]);
    assert_eq!(top["rows"][0]["module"], "/usr/local/bin/programs", "{top:#}");
}
