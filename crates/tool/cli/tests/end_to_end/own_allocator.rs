//! Programs with an allocator of their own inside: their calls are recorded as those of malloc are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::harness::{Job, Scratch, heapledger, installed, number, shared_library, skipped};
use crate::truth::agrees;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures/programs");

fn run(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Returns the directory of the programs that are built here.
fn directory() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own_allocator");
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Returns a static jemalloc whose functions have the prefix `own_`; `None` if there is none.
fn own_jemalloc() -> Option<PathBuf> {
    static BUILT: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        let library = shared_library("libjemalloc_pic.a")?;
        let names = run(Command::new("nm").args(["-g", "--defined-only"]).arg(&library));
        let functions = names.lines().filter_map(|line| line.split_once(" T ").map(|(_, name)| name));
        let own = functions.filter(|name| !name.starts_with("je_") && !name.starts_with('_'));
        let renamed: String = own.map(|name| format!("{name} own_{name}\n")).collect();
        let list = directory().join("renamed");
        fs::write(&list, renamed).unwrap();
        let fresh = directory().join(format!("libown.{}.a", std::process::id()));
        run(Command::new("objcopy").arg("--redefine-syms").arg(&list).arg(&library).arg(&fresh));
        let built = directory().join("libown.a");
        fs::rename(&fresh, &built).unwrap();
        Some(built)
    });
    BUILT.clone()
}

/// Compiles a fixture with a static library.
fn linked(name: &str, library: &Path, output: &str) -> PathBuf {
    let (source, output) = (Path::new(SOURCES).join(name), directory().join(output));
    let fresh = output.with_extension(format!("{}.new", std::process::id()));
    let mut compiler = match source.extension().and_then(|extension| extension.to_str()) {
        Some("c") => Command::new("cc"),
        Some("cpp") => Command::new("c++"),
        _ => Command::new("rustc"),
    };
    if source.extension().is_some_and(|extension| extension == "rs") {
        compiler.args(["--edition", "2024", "-O", "-g", "-l", "static:-bundle=own", "-l", "dl", "-L"]);
        compiler.arg(library.parent().unwrap()).arg(&source);
    } else {
        compiler.args(["-O2", "-g", "-fno-builtin", "-pthread"]).arg(&source).arg(library).args(["-ldl", "-lm"]);
    }
    run(compiler.arg("-o").arg(&fresh));
    fs::rename(&fresh, &output).unwrap();
    output
}

fn job(program: &Path, work: &str) -> Job {
    Job::new([program.as_os_str(), work.as_ref()])
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn every_call_of_a_jemalloc_with_a_prefix() {
    let Some(library) = own_jemalloc() else { return };
    let program = linked("own_allocator.c", &library, "own_allocator");
    let (_, recording) = agrees(|work| job(&program, work), "5000");
    assert_eq!(recording.processes().len(), 2, "{recording:?}");
    assert_eq!(number(&recording.summary, "frees_missed"), 0, "{recording:?}");
    // Stacks end in the program's own functions, not in those of the allocator.
    let scratch = Scratch::new();
    let (_, recording) = job(&program, "100").recorded(&scratch);
    let rows = recording.ask("top", &["--by", "function", "--total"]).to_string();
    let has = |name: &str| rows.contains(&format!("\"function\":\"{name}"));
    assert!(has("step\"") && !has("own_") && !has("je_"), "{rows}");
    // Nothing is said about what will not be seen.
    let told = job(&program, "1").with_report().start(Some(&scratch.file("told.hl"))).outcome();
    assert!(!String::from_utf8_lossy(&told.stderr).contains("warning"), "{told:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_rust_program_with_jemalloc() {
    let Some(library) = own_jemalloc() else { return };
    let program = linked("own_allocator_rust.rs", &library, "own_allocator_rust");
    agrees(|work| job(&program, work), "300");
}

/// Exceptions pass no frame of the recorder, and a failed allocation is one failure.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn operators_of_a_static_tcmalloc() {
    let Some(library) = shared_library("libtcmalloc_minimal.a") else { return };
    let program = linked("operators.cpp", &library, "operators_tcmalloc");
    let (_, recording) = agrees(|work| job(&program, work), "300");
    assert_eq!(number(&recording.summary, "frees_missed"), 0, "{recording:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn operators_of_a_preloaded_allocator() {
    let program = crate::harness::program("operators");
    // mimalloc's library, which is built as C, ends a program whose `operator new` fails.
    for name in ["libtcmalloc_minimal.so.4", "libjemalloc.so.2"] {
        let Some(library) = shared_library(name) else { continue };
        agrees(|work| job(&program, work).variable("LD_PRELOAD", &library), "300");
    }
}

/// Sizes are asked of the allocator that the block is from.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn usable_sizes() {
    let Some(library) = own_jemalloc() else { return };
    let program = linked("own_allocator.c", &library, "own_allocator_usable");
    let (outcome, recording) = job(&program, "100").option("--usable").both(&Scratch::new());
    assert!(outcome.status.success(), "{outcome:?}");
    assert!(recording.total("allocations") > 1000, "{recording:?}");
}

/// A sample of an allocator's own calls is as good as one of malloc's.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn samples() {
    let Some(library) = own_jemalloc() else { return };
    let program = linked("own_allocator.c", &library, "own_allocator_sampled");
    let scratch = Scratch::new();
    let (outcome, recording) = job(&program, "2000").option("--sample=16k").both(&scratch);
    let told = number(&outcome.printed_objects().pop().unwrap(), "bytes_allocated") as f64;
    let estimated = recording.total("bytes_allocated") as f64;
    assert!((estimated / told - 1.0).abs() < 0.1, "{estimated} of {told}");
}

/// The compiler exports a jemalloc, and constructors of its libraries call it.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_rust_compiler() {
    if installed("rustc").is_none() {
        return;
    }
    let root = run(Command::new("rustc").args(["--print", "sysroot"]));
    let compiler = Path::new(root.trim()).join("bin/rustc");
    if !run(Command::new("nm").arg("-D").arg(&compiler)).contains(" T malloc\n") {
        return skipped("this rustc has no allocator of its own");
    }
    let scratch = Scratch::new();
    scratch.write("hello.rs", "fn main() { println!(\"{}\", (0..9).map(|i| i.to_string()).collect::<String>()); }\n");
    let job = Job::new([compiler.as_os_str(), "-O".as_ref(), "hello.rs".as_ref(), "--emit=obj".as_ref()]);
    let job = job.directory(scratch.path());
    let object = || fs::read(scratch.file("hello.o")).unwrap();
    assert!(job.bare().status.success());
    let bare = object();
    let (_, recording) = job.recorded(&scratch);
    assert_eq!(bare, object());
    recording.assert_whole().assert_adds_up();
    assert!(recording.total("allocations") > 20_000, "{recording:?}");
    // LLVM's constructors allocate before any other code of the program runs.
    let table = recording.ask("top", &["--by", "function", "--total", "-n", "100000"]);
    assert!(table.to_string().contains("llvm::cl::"), "no block of a constructor");
    let verdict = heapledger(["doctor".as_ref(), "--json".as_ref(), compiler.as_os_str()]);
    assert!(!verdict.text().contains("HL0005"), "{}", verdict.text());
}
