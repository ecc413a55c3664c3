//! The headers for C and C++: they compile everywhere without a warning, cost next to nothing
//! without an observer, and the declarations that programs make with them are recorded.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use crate::harness::{HEAPLEDGER, Job, Recording, Scratch, exited, headers, installed, number, plain_command};

/// A program that uses the whole header, in C and in C++.
const EVERYTHING: &str = r#"
#include "heapledger/heapledger.h"
#include <stdlib.h>
#include <string.h>

static heapledger_category category = HEAPLEDGER_CATEGORY("layout", 1);
static const heapledger_name heap = HEAPLEDGER_NAME("frames");
static const heapledger_name route = HEAPLEDGER_NAME("route=/users");
static heapledger_pool pool = HEAPLEDGER_POOL(&heap);

static void *work(size_t size) {
    HEAPLEDGER_SCOPE("work");
    return malloc(size);
}

int main(void) {
    HEAPLEDGER_TASK("request");
    HEAPLEDGER_SCOPE_IN(&category, "reflow");
    HEAPLEDGER_SCOPE_VALUE("handle", &route);
    void *memory = work(1000);
    if (memory == NULL) return 1;
    {
        HEAPLEDGER_IGNORE();
        void *other = malloc(10);
        if (other == NULL) return 2;
        free(other);
    }
    heapledger_pool_back(&pool, memory);
    heapledger_pool_alloc(&pool, memory, 100);
    heapledger_pool_free(&pool, memory);
    heapledger_pool_reset(&pool);
    heapledger_pool_close(&pool);
    heapledger_enable(&category, 0);
    heapledger_marker("done");
    heapledger_scope scope = heapledger_enter(&heap, NULL);
    heapledger_leave(scope);
    free(memory);
    return heapledger_is_observed() ? 10 : 0;
}
"#;

/// The same in C++ style.
const EVERYTHING_CPP: &str = r#"
#include "heapledger/heapledger.hpp"
#include <cstdlib>
#include <new>
static heapledger::category layout{"layout"};
static heapledger::pool frames{"frames"};
static void *work(std::size_t size) { heapledger::context scope{"work"}; return ::operator new(size); }
int main() {
  heapledger::task request{"request"};
  heapledger::context reflow{"reflow", layout};
  void *memory = work(1000);
  { heapledger::ignore ignore; ::operator delete(::operator new(10)); }
  frames.back(memory); frames.alloc(memory, 100); frames.free(memory); frames.alloc(memory, 50); frames.reset();
  heapledger::marker("done");
  layout.enable(false);
  ::operator delete(memory);
  return heapledger::is_observed() ? 10 : 0;
}
"#;

/// Compiles a program against the headers. Panics with the compiler's messages.
fn compile(compiler: &Path, source: &Path, program: &Path, options: &[&str]) {
    let mut command = Command::new(compiler);
    command.args(options).arg("-I").arg(headers()).arg(source).arg("-o").arg(program);
    let done = command.output().unwrap();
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success() && told.is_empty(), "{command:?}:\n{told}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_header_compiles_everywhere_and_runs_alone() {
    const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-pedantic", "-Werror"];
    const C: [&str; 4] = ["-std=c99", "-std=c11", "-std=c17", "-std=gnu11"];
    const CPP: [&str; 4] = ["-std=c++11", "-std=c++17", "-std=c++20", "-std=gnu++17"];
    let scratch = Scratch::new();
    let in_c = scratch.write("everything.c", EVERYTHING);
    let in_cpp = scratch.write("everything.cpp", EVERYTHING);
    for (compiler, source, standards) in
        [("gcc", &in_c, C), ("clang", &in_c, C), ("g++", &in_cpp, CPP), ("clang++", &in_cpp, CPP)]
    {
        let Some(compiler) = installed(compiler) else { continue };
        let ways = ["-O0", "-O3", "-no-pie", "-static"].map(|how| [standards[0], how]);
        for how in standards.map(|standard| [standard, "-O2"]).into_iter().chain(ways) {
            let program = scratch.file("everything");
            compile(&compiler, source, &program, &[&STRICT[..], &how[..]].concat());
            let done = plain_command(&program).status().unwrap();
            assert_eq!(done, exited(0), "{} {how:?}", compiler.display());
        }
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_header_for_cpp_compiles_everywhere_and_is_recorded() {
    let scratch = Scratch::new();
    let source = scratch.write("everything.cpp", EVERYTHING_CPP);
    let program = scratch.file("everything");
    for compiler in ["clang++", "g++"] {
        let Some(compiler) = installed(compiler) else { continue };
        for how in [["-std=c++20", "-O2"], ["-std=c++17", "-O0"], ["-std=c++14", "-O3"], ["-std=c++11", "-O2"]] {
            let options = ["-Wall", "-Wextra", "-pedantic", "-Werror", how[0], how[1]];
            compile(&compiler, &source, &program, &options);
            assert_eq!(plain_command(&program).status().unwrap(), exited(0), "{} {options:?}", compiler.display());
        }
    }
    let (outcome, recording) = Job::new([&program]).recorded(&scratch);
    assert_eq!(outcome.status, exited(10), "{outcome:?}");
    recording.assert_whole().assert_adds_up();
    assert_eq!(recording.total("frees_unknown"), 0, "{recording:?}");
    let contexts = sums(&recording, "context");
    assert_eq!(contexts["request > reflow > work"], (1000, 1), "{contexts:?}");
    assert_eq!(contexts["request > reflow"], (150, 2), "{contexts:?}");
    assert_eq!(sums(&recording, "heap")["frames"], (150, 2));
}

/// Scopes of the program, of a library that it links, and of one that it loads, with both ways of
/// linking.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_thread_has_one_stack_of_scopes_whoever_enters_them() {
    let scratch = Scratch::new();
    let library = |name: &str| {
        let text = format!(
            r#"
#include "heapledger/heapledger.h"
#include <stdlib.h>
void *{name}(void *(*next)(void)) {{
    HEAPLEDGER_SCOPE("{name}");
    return next ? next() : malloc(100);
}}
"#
        );
        let source = scratch.write(&format!("{name}.c"), text);
        let file = scratch.file(&format!("lib{name}.so"));
        compile(Path::new("cc"), &source, &file, &["-O2", "-fPIC", "-shared"]);
        file
    };
    let (linked, loaded) = (library("linked"), library("loaded"));
    let text = r#"
#include "heapledger/heapledger.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
void *linked(void *(*)(void));
static void *(*loaded)(void *(*)(void));
static void *innermost(void) {
    HEAPLEDGER_SCOPE("innermost");
    return malloc(10);
}
static void *load(void) { return loaded(innermost); }
static void *run(void *name) {
    // In this thread the library is the first.
    free(loaded(NULL));
    (void)name;
    HEAPLEDGER_SCOPE("outermost");
    free(linked(load));
    return NULL;
}
int main(int count, char **arguments) {
    if (count < 2) return 1;
    *(void **)&loaded = dlsym(dlopen(arguments[1], RTLD_NOW), "loaded");
    if (!loaded) return 2;
    pthread_t thread;
    pthread_create(&thread, NULL, run, NULL);
    pthread_join(thread, NULL);
    HEAPLEDGER_SCOPE("main");
    free(linked(load));
    return 0;
}
"#;
    let source = scratch.write("program.c", text);
    for position in ["-fPIE", "-no-pie"] {
        let program = scratch.file("program");
        compile(
            Path::new("cc"),
            &source,
            &program,
            &["-O2", "-pthread", position, "-Wl,--no-as-needed", linked.to_str().unwrap()],
        );
        let (outcome, recording) = Job::new([&program]).argument(&loaded).both(&scratch);
        assert_eq!(outcome.status, exited(0));
        let contexts = sums(&recording, "context");
        assert_eq!(contexts["loaded"], (100, 1), "{contexts:?}");
        assert_eq!(contexts["outermost > linked > loaded > innermost"], (10, 1), "{contexts:?}");
        assert_eq!(contexts["main > linked > loaded > innermost"], (10, 1), "{contexts:?}");
    }
}

/// Returns total bytes and blocks, by something that a program declares.
fn sums(recording: &Recording, by: &str) -> HashMap<String, (i64, i64)> {
    let top = recording.ask("top", &["--by", by, "--total", "--rows", "1000"]);
    let rows = top["rows"].as_array().unwrap().iter();
    let label = |row: &Value| match &row[by] {
        Value::Array(scopes) => {
            scopes.iter().map(|scope| scope["name"].as_str().unwrap()).collect::<Vec<_>>().join(" > ")
        }
        name => name.as_str().unwrap_or_default().to_owned(),
    };
    rows.map(|row| (label(row), (number(row, "bytes"), number(row, "blocks")))).collect()
}

/// Also if references are not through the global offset table by themselves.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_program_with_the_header_is_recorded_however_it_is_built() {
    let scratch = Scratch::new();
    let source = scratch.write("everything.c", EVERYTHING);
    for (name, options) in [("pie", ["-O2", "-fPIE"]), ("no-pie", ["-O2", "-no-pie"]), ("debug", ["-O0", "-g"])] {
        let program = scratch.file(name);
        compile(Path::new("cc"), &source, &program, &options);
        let (outcome, recording) = Job::new([&program]).recorded(&scratch);
        assert_eq!(outcome.status, exited(10), "{name}: {outcome:?}");
        recording.assert_whole().assert_adds_up();
        // The ignored block is missing; a block of malloc and one of the pool are there, and both
        // are freed.
        let counts = ["allocations", "frees", "bytes_allocated", "bytes_live_max", "frees_unknown"];
        assert_eq!(counts.map(|count| recording.total(count)), [2, 2, 1100, 1000, 0], "{recording:?}");
        let info = recording.ask("info", &[]);
        assert_eq!(info["annotations"][0]["text"], "done");
    }
}

/// Returns the instructions of a program, as valgrind counts them.
fn instructions(valgrind: &Path, program: &Path, argument: &str, scratch: &Scratch) -> i64 {
    let out = scratch.file("callgrind.out");
    let mut command = Command::new(valgrind);
    command.args(["--tool=callgrind", "--collect-systime=no"]);
    command.arg(format!("--callgrind-out-file={}", out.display())).arg(program).arg(argument);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = std::fs::read_to_string(out).unwrap();
    let totals = text.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
    totals.unwrap().trim().parse().unwrap()
}

/// `-- c::what_nobody_observes --ignored --nocapture` prints the figures of docs/c.md.
#[test]
#[ignore = "many programs under valgrind; `.ci/run` runs it"]
fn what_nobody_observes_is_two_loads_and_two_tests() {
    let Some(valgrind) = installed("valgrind") else { return };
    let scratch = Scratch::new();
    let source = scratch.write(
        "calls.c",
        r#"
#include "heapledger/heapledger.h"
#include <stdlib.h>
static const heapledger_name name = HEAPLEDGER_NAME("pool");
heapledger_pool pool = HEAPLEDGER_POOL(&name);
__attribute__((noinline)) static void nothing(long number) { __asm__ volatile("" : : "r"(number)); }
__attribute__((noinline)) static void step(long number) {
#ifdef SCOPE
    HEAPLEDGER_SCOPE("scope");
#endif
#ifdef STAMP
    HEAPLEDGER_STAMP((char *)(number * 16), "type");
#endif
#ifdef POOL
    heapledger_pool_alloc(&pool, (void *)(number * 16), 8);
#endif
    nothing(number);
}
int main(int count, char **arguments) {
    for (long number = count > 1 ? atol(arguments[1]) : 0; number > 0; number--) step(number);
}
"#,
    );
    for compiler in ["gcc", "clang"] {
        let Some(compiler) = installed(compiler) else { continue };
        let per_step = |what: &[&str]| {
            let program = scratch.file("calls");
            compile(&compiler, &source, &program, &[&["-O2"], what].concat());
            let [few, many] = ["1000", "101000"].map(|work| instructions(&valgrind, &program, work, &scratch));
            (many - few) as f64 / 100_000.0
        };
        let without = per_step(&[]);
        for what in ["-DSCOPE", "-DPOOL", "-DSTAMP"] {
            assert_eq!(per_step(&[what, "-DHEAPLEDGER_OFF"]), without, "{} {what}: off is off", compiler.display());
            let more = per_step(&[what]) - without;
            println!("{} {what}: {more:.0} instructions", compiler.display());
            // Includes the registers that the function has to save for it.
            assert!(more <= 16.0, "{} {what}: {more}", compiler.display());
        }
    }
}

/// The bump arena of the examples, in C and in Rust: the heap has its name, and its memory is not
/// counted twice.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_examples_of_a_bump_arena() {
    let scratch = Scratch::new();
    let in_c = scratch.file("bump");
    let options = ["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-pedantic", "-Werror"];
    compile(Path::new("cc"), &headers().join("../examples/bump.c"), &in_c, &options);
    let in_rust = example("bump");
    for (program, scope) in [(in_c, json!("draw")), (in_rust, json!(null))] {
        let (outcome, recording) = Job::new([&program]).both(&scratch);
        assert_eq!(outcome.text(), "7770 sprites\n");
        recording.assert_whole().assert_adds_up();
        assert_eq!(recording.total("frees_unknown"), 0, "{recording:?}");
        // First the memory; later the blocks of the arena, and those of the C library or Rust for
        // standard output.
        let peak = recording.total("bytes_live_max");
        assert!(((64 << 10)..(64 << 10) + 2048).contains(&peak), "{recording:?}");
        assert!((160..170).contains(&recording.total("blocks_live_max")), "{recording:?}");
        assert_eq!(sums(&recording, "heap")["frames"], (7770 * 32, 7770));
        let scopes = recording.ask("top", &["--by", "scope", "--total", "--heap", "frames"]);
        assert_eq!(scopes["rows"][0]["scope"], scope, "{scopes}");
    }
}

/// libheapledger is found by a program that uses only `pkg-config`, shared and as an archive, alone
/// and recorded.
#[test]
#[ignore = "it builds the archive with all optimisations; `.ci/run` runs it"]
fn a_program_that_links_libheapledger_holds_its_ledger() {
    let Some(pkg_config) = installed("pkg-config") else { return };
    let scratch = Scratch::new();
    let prefix = libheapledger(&scratch);
    let asked = |options: &[&str]| {
        let mut command = Command::new(&pkg_config);
        command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(options).arg("heapledger");
        let done = command.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let build = |name: &str, example: &str, libraries: &[String]| {
        let program = scratch.file(name);
        let mut command = Command::new("cc");
        command.args(["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-pedantic", "-Werror"]);
        command.arg(headers().join("../examples").join(example)).arg("-o").arg(&program);
        let done = command.args(libraries).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        program
    };
    let shared = asked(&["--cflags", "--libs"]);
    let mut archive = asked(&["--cflags"]);
    archive.extend([prefix.join("lib/libheapledger.a").display().to_string(), "-lgcc_s".to_owned()]);
    let told = "\
live      5050 bytes in 6 blocks, peak 10050 bytes
site      5000 bytes in 5 blocks, context \"start > load\"
site      50 bytes in 1 blocks, context \"start\"
block     1000 bytes, 123 bytes into it: yes, context \"start > load\"
no block  on the stack
";
    for (name, libraries) in [("shared", &shared), ("archive", &archive)] {
        let job = |program: &Path| Job::new([program]).variable("LD_LIBRARY_PATH", prefix.join("lib"));
        let ledger = build(&format!("ledger-{name}"), "ledger.c", libraries);
        let outcome = job(&ledger).bare();
        assert_eq!((outcome.text(), outcome.status), (told.to_owned(), exited(0)), "{name}");

        // When it is recorded, the recorder has the ledger, not the program.
        let (outcome, _) = job(&ledger).recorded(&scratch);
        assert_eq!((outcome.text(), outcome.status), ("no ledger here\n".to_owned(), exited(1)), "{name}");

        // Nothing is counted twice, and the program's declarations reach the recorder.
        let bump = build(&format!("bump-{name}"), "bump.c", libraries);
        let job = job(&bump).variable("HEAPLEDGER_AT_EXIT", "totals");
        let alone = String::from_utf8(job.bare().stderr).unwrap();
        assert!(alone.contains("\npeak      65536 bytes\n"), "{name}: {alone}");
        let (outcome, recording) = job.recorded(&scratch);
        assert_eq!(String::from_utf8_lossy(&outcome.stderr), "", "{name}");
        recording.assert_whole().assert_adds_up();
        assert_eq!(recording.total("allocations"), 7772, "{name}: {recording:?}");
        let bytes = recording.total("bytes_allocated");
        assert!(alone.contains(&format!("\nallocated {bytes} bytes in 7772 blocks\n")), "{name}: {alone}");
        assert_eq!(recording.total("bytes_live_max"), 64 << 10, "{name}: {recording:?}");
        assert_eq!(sums(&recording, "heap")["frames"], (7770 * 32, 7770), "{name}");
        assert_eq!(sums(&recording, "scope")["draw"], (7770 * 32, 7770), "{name}");
    }
}

/// Preloaded into programs that do not use it: they run as usual, and their ledgers are printed at
/// the end.
#[test]
#[ignore = "it builds the archive with all optimisations; `.ci/run` runs it"]
fn libheapledger_preloaded_prints_at_exit() {
    let scratch = Scratch::new();
    let library = libheapledger(&scratch).join("lib/libheapledger.so");
    let run = |what: &str, program: &Path, arguments: &[&str]| {
        let mut command = plain_command(program);
        command.args(arguments).env("LD_PRELOAD", &library).env("HEAPLEDGER_AT_EXIT", what);
        let done = command.output().unwrap();
        assert!(done.status.success(), "{done:?}");
        (String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    // The program closes its standard error earlier.
    let (said, told) = run("totals", Path::new("/bin/ls"), &["/proc/self/fd"]);
    assert!(told.starts_with("heapledger: totals\nlive      "), "{told}");
    assert!(said.lines().any(|line| line == "512"), "{said}");

    // The programs count their own allocations.
    for (fixture, work) in [("mix", "20000"), ("mix_threads", "3000"), ("pools", "50")] {
        let program = crate::harness::program(fixture);
        let figures = |work: &str| {
            let (said, told) = run("totals", &program, &[work]);
            let truth: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
            let after = |word: &str, skip: usize| -> i64 {
                let line = told.lines().find(|line| line.starts_with(word)).unwrap_or_else(|| panic!("{told}"));
                line.split_whitespace().nth(skip).unwrap().parse().unwrap()
            };
            // Allocations, their bytes, frees; live blocks, live bytes.
            let ledger =
                [after("allocated", 4), after("allocated", 1), after("freed", 1), after("live", 4), after("live", 1)];
            let names = ["allocations", "bytes_allocated", "frees", "blocks_live_end", "bytes_live_end"];
            (names.map(|name| number(&truth, name)), ledger)
        };
        let (idle, busy) = (figures(&"0".repeat(work.len())), figures(work));
        for index in 0..5 {
            let (truth, ledger) = (busy.0[index] - idle.0[index], busy.1[index] - idle.1[index]);
            assert_eq!(truth, ledger, "{fixture}, {index}: {idle:?} {busy:?}");
        }
    }

    // A library in a namespace of `dlmopen` has its own keys.
    let plugin = crate::harness::build("keys_plugin", crate::harness::Build::Module);
    run("totals", &crate::harness::program("namespace_keys"), &[plugin.parent().unwrap().to_str().unwrap()]);

    let (_, told) = run("sites,blocks,more", &crate::harness::program("mix"), &["100"]);
    assert!(told.contains("heapledger: sites with the most live bytes\n"), "{told}");
    assert!(told.contains("HEAPLEDGER_AT_EXIT=more: it can be totals, sites, blocks, dynamic"), "{told}");
}

/// A program that puts itself in a sandbox ends as it does without the library, which prints its
/// results before.
#[test]
#[ignore = "it builds the archive with all optimisations; `.ci/run` runs it"]
fn libheapledger_in_a_sandbox() {
    let scratch = Scratch::new();
    let library = libheapledger(&scratch).join("lib/libheapledger.so");
    for how in ["strict", "filter", "seccomp", "threads", "fork"] {
        let bare = Job::fixture("confined", how).bare();
        let program = crate::harness::program("confined");
        let mut command = plain_command(program);
        let done = command.arg(how).env("LD_PRELOAD", &library).env("HEAPLEDGER_AT_EXIT", "totals").output().unwrap();
        assert_eq!((done.status, &done.stdout), (bare.status, &bare.stdout), "{how}: {done:?}");
        let told = String::from_utf8(done.stderr).unwrap();
        // One attempt is refused, but too late for the library to print nothing.
        assert!(told.starts_with("heapledger: the program enters a sandbox"), "{how}: {told}");
        assert!(told.contains("heapledger: totals\nlive      "), "{how}: {told}");
    }
}

/// Finds the types of C++ objects by their vtables, in stripped programs and without run-time type
/// information.
#[test]
#[ignore = "many compilers run; `.ci/run` runs it"]
fn dynamic_types_are_found_in_stripped_programs() {
    let scratch = Scratch::new();
    let library = libheapledger(&scratch).join("lib/libheapledger.so");
    let source = headers().join("../fixtures/types/dynamic.cpp");
    let sorted = |text: &[u8]| {
        let mut lines: Vec<String> = String::from_utf8_lossy(text).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let ways: [(&str, &[&str]); 4] = [
        ("g++", &["-O2", "-s"]),
        ("g++", &["-O1", "-no-pie", "-s", "-Wl,-z,norelro"]),
        ("g++", &["-O1", "-fno-rtti"]),
        ("clang++", &["-O2", "-s"]),
    ];
    for (compiler, options) in ways {
        let Some(compiler) = installed(compiler) else { continue };
        let program = scratch.file("dynamic");
        compile(&compiler, &source, &program, &[&["-std=c++17", "-Wall", "-Wextra"], options].concat());
        let done = plain_command(&program).env("LD_PRELOAD", &library).output().unwrap();
        assert_eq!(done.status, exited(0), "{done:?}");
        let (truth, mut found) = (sorted(&done.stdout), sorted(&done.stderr));
        // Without type information, only the name of the block of `make_shared` is found.
        found.retain(|line| !options.contains(&"-fno-rtti") || !line.contains("_Sp_counted_ptr_inplace"));
        assert_eq!(truth, found, "{} {options:?}", compiler.display());

        let mut at_exit = plain_command(&program);
        at_exit.env("LD_PRELOAD", &library).env("HEAPLEDGER_AT_EXIT", "dynamic");
        let told = String::from_utf8(at_exit.output().unwrap().stderr).unwrap();
        let row = told.lines().find(|line| line.starts_with("app::Circle ")).unwrap_or_else(|| panic!("{told}"));
        assert_eq!(row.split_whitespace().nth(1), Some("300"), "{told}");
    }
}

/// A program whose profile is written, and fetched by `go tool pprof`.
const PROFILED: &str = r#"
#include "heapledger/profile.h"
#include <stdio.h>
#include <stdlib.h>
static void *kept[100];
__attribute__((noinline)) static void keeps(void) {
    for (int i = 0; i < 100; i++) if ((kept[i] = malloc(1 << 20)) == NULL) abort();
}
int main(int argc, char **argv) {
    char url[128], command[512];
    if (heapledger_profile_stop() != HEAPLEDGER_STATE) return 1;
    if (heapledger_profile_start(0) != HEAPLEDGER_OK) return 2;
    if (heapledger_profile_start(0) != HEAPLEDGER_STATE || heapledger_start(NULL) != HEAPLEDGER_STATE) return 3;
    keeps();
    if (heapledger_profile_set_rate(0) != HEAPLEDGER_FAILED || heapledger_profile_set_rate(1 << 20) != HEAPLEDGER_OK) return 4;
    if (argc < 2 || heapledger_profile_save(argv[1]) != HEAPLEDGER_OK) return 5;
    if (heapledger_profile_serve(0, url, 4) != HEAPLEDGER_FAILED) return 6;
    if (heapledger_profile_serve(0, url, sizeof url) != HEAPLEDGER_OK) return 7;
    snprintf(command, sizeof command, "go tool pprof -top -unit=B '%s/heap'", url);
    int status = system(command);
    for (int i = 0; i < 100; i++) free(kept[i]);
    return status != 0 ? 8 : heapledger_profile_stop() != HEAPLEDGER_OK ? 9 : 0;
}
"#;

#[test]
#[ignore = "builds libheapledger with more in it; .ci/run has it in a lane"]
fn a_profile_of_a_c_program() {
    let (Some(gcc), Some(go)) = (installed("gcc"), installed("go")) else { return };
    let scratch = Scratch::new();
    let prefix = scratch.file("prefix");
    install(WITH_ALL, &prefix);
    let (source, program, file) = (scratch.write("p.c", PROFILED), scratch.file("p"), scratch.file("p.pb.gz"));
    let library = prefix.join("lib");
    let options = [format!("-L{}", library.display()), format!("-Wl,-rpath,{}", library.display())];
    let options = ["-g", "-Wall", "-Wextra", &options[0], &options[1], "-Wl,--no-as-needed", "-lheapledger"];
    compile(&gcc, &source, &program, &options);
    let tmp = scratch.file("tmp");
    let mut profiled = plain_command(&program);
    // The library path of cargo comes first; it may contain the library, too, from an earlier
    // build.
    profiled.arg(&file).env("PPROF_TMPDIR", &tmp).env("LD_LIBRARY_PATH", &library);
    let done = profiled.output().unwrap();
    let fetched = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(done.status, exited(0), "{done:?}");
    let saved = Command::new(go).args(["tool", "pprof", "-top", "-unit=B"]).arg(&file).output().unwrap();
    let saved = String::from_utf8_lossy(&saved.stdout).into_owned();
    for shown in [&fetched, &saved] {
        let row = shown.lines().find(|line| line.ends_with(" keeps")).unwrap_or_else(|| panic!("{shown}"));
        let bytes: f64 = row.split_whitespace().next().unwrap().trim_end_matches('B').parse().unwrap();
        // Each block is sampled with a probability of 0.86: one standard deviation is 4 %.
        assert!((bytes / (100 << 20) as f64 - 1.0).abs() < 0.25, "{row}");
    }
}

/// Starts the heap checker by a call, asks it, and commits an error. Also C++.
const HEAP_CHECKED: &str = r#"
#include "heapledger/phc.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#define EXPECT(what) do { if (!(what)) { printf("line %d: %s\n", __LINE__, #what); return 1; } } while (0)
static char *volatile block;
__attribute__((noinline)) static char *make(size_t bytes) { return (char *)malloc(bytes); }
__attribute__((noinline)) static char *make_other(size_t bytes) { return (char *)malloc(bytes); }
int main(int argc, char **argv) {
    heapledger_phc_options options = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    static heapledger_phc_found found;
    heapledger_phc_stats stats;
    (void)argv;
    options.size = sizeof options, options.delay_first = 1, options.delay_normal = 1, options.memory_min = 1;
    memset(&stats, 0, sizeof stats), stats.size = sizeof stats, found.size = sizeof found;
    EXPECT(heapledger_phc_get_stats(&stats) == HEAPLEDGER_STATE && heapledger_phc_enable(1) == HEAPLEDGER_STATE);
    EXPECT(heapledger_phc_find(&stats, &found) == HEAPLEDGER_OK && found.kind == HEAPLEDGER_PHC_UNKNOWN);
    options.placement = 7;
    EXPECT(heapledger_phc_start(&options) == HEAPLEDGER_FAILED);
    options.placement = HEAPLEDGER_PHC_END;
    EXPECT(heapledger_phc_choose(HEAPLEDGER_PHC_NEVER, "make_other") == HEAPLEDGER_OK);
    EXPECT(heapledger_phc_choose(HEAPLEDGER_PHC_NEVER, NULL) == HEAPLEDGER_FAILED);
    EXPECT(heapledger_phc_choose(2, "main") == HEAPLEDGER_FAILED);
    EXPECT(heapledger_phc_start(&options) == HEAPLEDGER_OK);
    EXPECT(heapledger_phc_start(NULL) == HEAPLEDGER_STATE);
    EXPECT(heapledger_phc_choose(HEAPLEDGER_PHC_ONLY, "main") == HEAPLEDGER_STATE);

    block = make(40);
    EXPECT(heapledger_phc_find(block + 3, &found) == HEAPLEDGER_OK);
    EXPECT(found.kind == HEAPLEDGER_PHC_IN_USE && found.base == (uint64_t)(size_t)block && found.bytes == 40);
    EXPECT(found.allocated.frames_count >= 2 && found.freed.frames_count == 0);
    EXPECT(found.allocated.frames[0] - (uint64_t)(size_t)&make < 200);
    EXPECT(heapledger_phc_get_stats(&stats) == HEAPLEDGER_OK && stats.slots_allocated >= 1 && stats.blocks_sampled >= 1);
    EXPECT(heapledger_phc_find(block + 48, &found) == HEAPLEDGER_OK && found.kind == HEAPLEDGER_PHC_GUARD && found.is_overflow);
    EXPECT(heapledger_phc_find(block + (1 << 20), &found) == HEAPLEDGER_OK && found.kind == HEAPLEDGER_PHC_NEVER_ALLOCATED);
    char *other = make_other(40);
    EXPECT(heapledger_phc_find(other, &found) == HEAPLEDGER_OK && found.kind == HEAPLEDGER_PHC_UNKNOWN);
    free(other);
    heapledger_phc_disable_thread();
    other = make(40);
    heapledger_phc_enable_thread();
    EXPECT(heapledger_phc_find(other, &found) == HEAPLEDGER_OK && found.kind == HEAPLEDGER_PHC_UNKNOWN);
    free(other);
    EXPECT(heapledger_phc_find(NULL, NULL) == HEAPLEDGER_FAILED && heapledger_phc_get_stats(NULL) == HEAPLEDGER_FAILED);

    free(block);
    EXPECT(heapledger_phc_find(block, &found) == HEAPLEDGER_OK && found.kind == HEAPLEDGER_PHC_FREED && found.freed.frames_count >= 1);
    EXPECT(heapledger_phc_enable(0) == HEAPLEDGER_OK);
    puts("asked");
    fflush(stdout);
    if (argc > 1) putchar(block[argc]);
    return 0;
}
"#;

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_program_starts_the_heap_checker() {
    let scratch = Scratch::new();
    let prefix = libheapledger(&scratch);
    let library = prefix.join("lib");
    let (include, search) = (format!("-I{}", prefix.join("include").display()), format!("-L{}", library.display()));
    for (compiler, name, standard) in
        [("gcc", "phc.c", "-std=c99"), ("clang", "phc.c", "-std=c99"), ("g++", "phc.cpp", "-std=c++98")]
    {
        let Some(compiler) = installed(compiler) else { continue };
        let (source, program) = (scratch.write(name, HEAP_CHECKED), scratch.file("phc"));
        let options = ["-g", "-O1", "-fno-builtin", "-Wall", "-Wextra", standard, &include, &search];
        compile(&compiler, &source, &program, &[&options[..], &["-Wl,--no-as-needed", "-lheapledger"]].concat());
        let run = |argument: &[&str]| {
            plain_command(&program).args(argument).env("LD_LIBRARY_PATH", &library).output().unwrap()
        };
        let asked = run(&[]);
        assert_eq!((asked.status, asked.stdout.as_slice()), (exited(0), &b"asked\n"[..]), "{name} {asked:?}");
        let died = run(&["x"]);
        let said = String::from_utf8_lossy(&died.stderr);
        assert_eq!(died.status.signal(), Some(11), "{name}: {died:?}");
        assert!(
            said.contains("use-after-free (read at ") && said.contains("freed block of 40 bytes"),
            "{name}: {said}"
        );
    }
}

/// Installs libheapledger as its users do; it is built beside the command under test.
pub(crate) fn libheapledger(scratch: &Scratch) -> PathBuf {
    let prefix = scratch.file("prefix");
    install(&[], &prefix);
    prefix
}

/// Options of `install` that add the display of reports, and the profile.
pub(crate) const WITH_ALL: &[&str] = &["--page", "--profile"];

/// Installs libheapledger with some of its features.
pub(crate) fn install(options: &[&str], prefix: &Path) {
    // All variants are built in one place, and copied from there.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut install = Command::new(headers().join("../crates/process/capi/install"));
    install.args(options).arg(prefix).env("CARGO", env!("CARGO"));
    install.env("CARGO_TARGET_DIR", Path::new(HEAPLEDGER).ancestors().nth(2).unwrap());
    let done = install.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Builds an example of another package like the command under test: with the whole workspace, so
/// that nothing is built again.
pub(crate) fn example(name: &str) -> PathBuf {
    let directory = Path::new(HEAPLEDGER).parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--offline", "--workspace", "--example", name]);
    if directory.ends_with("release") {
        cargo.arg("--release");
    }
    cargo.arg("--target-dir").arg(directory.parent().unwrap());
    let done = cargo.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    directory.join("examples").join(name)
}
