//! Programs with an allocator of their own inside: their calls are recorded as those of malloc are.

pub(crate) mod later;
mod preloaded;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::armed;
use crate::harness::{
    Job, Recording, Scratch, exited, heapledger, installed, number, shared_library, skipped, wait_until,
};
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
pub(crate) fn own_jemalloc() -> Option<PathBuf> {
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
pub(crate) fn linked(name: &str, library: &Path, output: &str) -> PathBuf {
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

/// gcc knows which registers an allocator in the same file leaves alone, and that it needs no
/// aligned stack.
#[test]
fn an_allocator_that_gcc_knows_all_of() {
    if installed("gcc").is_none() {
        return;
    }
    let (source, scratch) = (Path::new(SOURCES).join("kept_registers.c"), Scratch::new());
    let program = scratch.file("kept_registers");
    run(Command::new("gcc").args(["-O2", "-fno-builtin"]).arg(&source).arg("-o").arg(&program));
    let (outcome, recording) = Job::new([program.as_os_str()]).recorded(&scratch);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    assert_eq!((recording.total("allocations"), recording.total("frees")), (2000, 2000), "{recording:?}");
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

/// A failure of the program's own `operator new` can be caught. Its nothrow form calls that, and
/// must not be called instead: it may not throw.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn operators_of_a_program_with_its_own_malloc() {
    if installed("c++").is_none() {
        return;
    }
    let scratch = Scratch::new();
    let source = scratch.write(
        "own.cpp",
        "#include <atomic>\n#include <cstdio>\n#include <cstring>\n#include <new>\n\
         using std::size_t;\n\
         alignas(16) static char heap[1 << 24]; static std::atomic<size_t> next;\n\
         extern \"C\" void *malloc(size_t size) {\n\
             size_t at = next.fetch_add((size + 31) & ~size_t(15));\n\
             *(size_t *)(heap + at) = size;\n\
             return heap + at + 16;\n\
         }\n\
         extern \"C\" void free(void *) {}\n\
         extern \"C\" void *calloc(size_t count, size_t each) { return malloc(count * each); }\n\
         extern \"C\" void *realloc(void *old, size_t size) {\n\
             void *block = malloc(size);\n\
             if (old) { size_t was = ((size_t *)old)[-2]; memcpy(block, old, was < size ? was : size); }\n\
             return block;\n\
         }\n\
         void *operator new(size_t size) { if (size > 1 << 20) throw std::bad_alloc(); return malloc(size); }\n\
         void *operator new(size_t size, const std::nothrow_t &) noexcept { return operator new(size); }\n\
         void operator delete(void *block) noexcept { free(block); }\n\
         void operator delete(void *block, size_t) noexcept { free(block); }\n\
         int main() {\n\
             for (int i = 0; i < 500; i++) delete[] new char[77];\n\
             try { static char *volatile kept; kept = new char[1 << 30]; }\n\
             catch (const std::bad_alloc &) { puts(\"caught\"); return 0; }\n\
             return 1;\n\
         }\n",
    );
    let program = scratch.file("own");
    run(Command::new("c++").args(["-O0", "-g", "-fno-builtin"]).arg(&source).arg("-o").arg(&program));
    let (outcome, recording) = Job::new([program.as_os_str()]).recorded(&scratch);
    assert_eq!(outcome.text(), "caught\n", "{outcome:?}");
    // The operators' calls of malloc are seen, once each, and the C++ library's few.
    assert!((500..1000).contains(&recording.total("allocations")), "{recording:?}");
}

/// A block of an arena over a redirected malloc is one event, and is in its arena.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn arenas_over_a_preloaded_jemalloc() {
    let Some(library) = shared_library("libjemalloc.so.2") else { return };
    let job = Job::fixture("labelled_arenas", "").variable("LD_PRELOAD", &library);
    let scratch = Scratch::new();
    let (outcome, recording) = job.recorded(&scratch);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    recording.assert_whole().assert_adds_up();
    let images = recording.ask("top", &["--arena", "images", "--at", "end"]);
    assert_eq!((number(&images["total"], "blocks"), number(&images["total"], "bytes")), (4, 5520), "{images:#}");
    assert_eq!(number(&recording.summary, "frees_missed"), 0, "{recording:?}");
}

/// A program that an armed one has started has redirected entries, and calls nothing else: after
/// the session in which it began, it joins another one.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_program_that_an_armed_one_has_started() {
    let Some(library) = own_jemalloc() else { return };
    let program = linked("own_allocator.c", &library, "own_allocator_armed");
    let scratch = Scratch::new();
    let preload = armed::library(&scratch);
    let line = "while [ ! -e $0/go ]; do /bin/true; done; \"$1\" 1000000000 & echo $! > $0/pid; wait";
    let words = ["/bin/sh".as_ref(), "-c".as_ref(), line.as_ref(), scratch.path().as_os_str(), program.as_os_str()];
    let shell = Job::new(words).variable("LD_PRELOAD", &preload).start_bare();
    let pid = armed::id(&shell);
    wait_until("the shell is armed", || heapledger(["start"]).text().contains(&*pid));
    let first = armed::start(&pid, &scratch.file("first.hl"), &[]);
    let allocations = |pid: &str| {
        let status = heapledger(["status", pid, "--json"]);
        let rows = serde_json::from_str::<serde_json::Value>(&status.text()).ok()?["rows"].clone();
        rows[0]["allocations"].as_i64()
    };
    wait_until("the shell is recorded", || allocations(&pid) > Some(100));
    scratch.write("go", "");
    let child = || fs::read_to_string(scratch.file("pid")).unwrap_or_default().trim().to_owned();
    wait_until("the program is started", || !child().is_empty());
    wait_until("the program is recorded", || allocations(&pid) > Some(100_000));
    armed::succeeded(&heapledger(["stop", &*pid]));
    armed::succeeded(&first.outcome());
    let file = scratch.file("second.hl");
    let second = armed::start(&child(), &file, &["--duration", "300ms"]).outcome();
    run(Command::new("kill").arg("-9").arg(child()));
    armed::succeeded(&second);
    let recording = Recording::open(file);
    assert!(recording.total("allocations") > 1000, "{recording:?}");
    shell.outcome();
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

/// The compiler's own functions are redirected where the allocator has none of C's: all calls, in a
/// build without optimisation.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_rust_program_with_its_own_pool() {
    let scratch = Scratch::new();
    let program = scratch.file("own_pool");
    let source = Path::new(SOURCES).join("own_pool_rust.rs");
    run(Command::new("rustc").args(["--edition", "2024", "-g"]).arg(&source).arg("-o").arg(&program));
    let (_, recording) = agrees(|work| job(&program, work), "300");
    assert_eq!((number(&recording.summary, "frees_missed"), recording.total("frees_unknown")), (0, 0), "{recording:?}");
    // Optimised, the compiler has put some calls in place of the functions, and that is said.
    run(Command::new("rustc").args(["--edition", "2024", "-O"]).arg(&source).arg("-o").arg(&program));
    let said = job(&program, "1").with_report().start(Some(&scratch.file("told.hl"))).outcome();
    assert!(String::from_utf8_lossy(&said.stderr).contains("warning[HL0115]"), "{said:?}");
}

/// A function that frees, and that nobody knows, shows by the addresses that are handed out again.
#[test]
fn frees_by_an_unknown_function_are_counted() {
    let scratch = Scratch::new();
    let file = scratch.file("missed.hl");
    let outcome = Job::fixture("missed_frees", "1000").with_report().start(Some(&file)).outcome();
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    let recording = Recording::open(file);
    assert_eq!(number(&recording.summary, "frees_missed"), 1000, "{recording:?}");
    assert_eq!((recording.total("allocations"), recording.total("frees")), (2001, 2001), "{recording:?}");
    let said = String::from_utf8_lossy(&outcome.stderr);
    assert!(said.contains("warning[HL0075]") && said.contains("1,000"), "{said}");
    let summary = heapledger(["summary".as_ref(), scratch.file("missed.hl").as_os_str()]);
    assert!(summary.text().lines().any(|line| line.contains("missed frees") && line.contains("1,000")), "{summary:?}");
}
