//! Memory dumps of programs in C and C++: the headers compile everywhere and do nothing alone; with
//! libheapledger, traces contain what the programs declare, as viewers read them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::c::libheapledger;
use crate::harness::{Job, Scratch, exited, headers, installed, plain_command};
use crate::trace_viewer::{Viewer, dumps, heap_total};

/// Uses the whole header for C.
const IN_C: &str = r#"
#include "heapledger/dumps.h"
#include <stdio.h>

static heapledger_allocation_register *allocations;
static int answers[3], fails;
static char pages[4][64];

static void profile(int is_enabled, void *data) {
    ++*(int *)data;
    if (is_enabled && allocations == NULL) allocations = heapledger_allocation_register_new();
}
static int dump(const heapledger_dump_args *args, heapledger_dump *dump, void *data) {
    heapledger_allocation found[8];
    heapledger_heap_entry entries[8];
    size_t count = heapledger_allocation_blocks(allocations, found, 8), at;
    uint64_t whole = heapledger_dump_size(dump, "cache/pages", sizeof pages);
    uint64_t shared = heapledger_dump_shared(dump, "the file", 0, 4096);
    const heapledger_cost cost = heapledger_allocation_register_cost(allocations);
    (void)data;
    ++answers[args->level % 3];
    heapledger_dump_object_count(dump, "cache/pages", 4);
    heapledger_dump_text(dump, "cache/pages", "url", "/index.html");
    heapledger_dump_scalar(dump, "cache/pages", "hits", "times", 7);
    heapledger_dump_own(dump, heapledger_dump_allocator(dump, "mapped"), shared, 2);
    heapledger_dump_suballocate(dump, whole, HEAPLEDGER_MALLOC_OBJECTS);
    for (at = 0; at < count && at < 8; at++) {
        entries[at].context = found[at].context;
        entries[at].blocks = 1;
        entries[at].bytes = found[at].size;
    }
    heapledger_dump_heap(dump, "cache", entries, at);
    heapledger_dump_cost(dump, "cache", "pages", &cost);
    return 0;
}
static int fail(const heapledger_dump_args *args, heapledger_dump *dump, void *data) {
    (void)args, (void)data;
    heapledger_dump_size(dump, "failed", 1);
    return ++fails;
}
static const char *const background[] = {"cache/pages"};
static int profiled;
static const heapledger_provider provider = {sizeof provider, 1, "Cache", dump, profile, &profiled, background};
static const heapledger_provider failing = {sizeof failing, 0, "Failing", fail, NULL, NULL, NULL};

int main(int count, char **arguments) {
    const heapledger_trace_options options = {sizeof options, HEAPLEDGER_TRACE_ON_DEMAND, 0, 0, 0, 0, 0, 0};
    heapledger_registered_provider *registered = heapledger_register_provider(&provider);
    heapledger_registered_provider *other = heapledger_register_provider(&failing);
    void *const kept = malloc(1000);
    int at;
    if (count < 2 || kept == NULL) return registered != NULL || heapledger_trace_dump(0) != HEAPLEDGER_ELSEWHERE;
    /* HEAPLEDGER_HEAP_PROFILING has been seen to before main. */
    if (!heapledger_is_heap_profiling() || profiled != 1 || allocations == NULL) return 2;
    for (at = 0; at < 4; at++) {
        HEAPLEDGER_SCOPE("load");
        const heapledger_allocation_context context = heapledger_allocation_context_now(at % 2 ? "Odd" : NULL);
        heapledger_allocation_insert(allocations, pages[at], sizeof pages[at], &context);
    }
    if (heapledger_allocation_remove(allocations, pages[0]) != 1) return 3;
    if (heapledger_trace_start(arguments[1], &options) != HEAPLEDGER_OK) return 4;
    if (heapledger_trace_start(arguments[1], &options) != HEAPLEDGER_STATE) return 5;
    for (at = HEAPLEDGER_BACKGROUND; at <= HEAPLEDGER_DETAILED; at++)
        if (heapledger_trace_dump(at) != HEAPLEDGER_OK) return 6;
    for (at = 0; at < 3; at++) heapledger_trace_dump(HEAPLEDGER_LIGHT);
    if (heapledger_trace_finish() != HEAPLEDGER_OK || heapledger_trace_finish() != HEAPLEDGER_STATE) return 7;
    heapledger_unregister_provider(registered);
    heapledger_unregister_provider(other);
    heapledger_set_heap_profiling(0);
    heapledger_allocation_register_delete(allocations);
    free(kept);
    return answers[0] == 1 && answers[1] == 4 && answers[2] == 1 && fails == 3 && profiled == 1 ? 0 : 8;
}
"#;

/// Tests an exception, calls before main, and a class that registers itself.
const IN_CPP: &str = r#"
#include "heapledger/dumps.hpp"
#include <stdexcept>
class Throwing final : public heapledger::dump_provider {
    bool on_memory_dump(const heapledger::dump_args &args, heapledger::process_dump &dump) override {
        dump.allocator("thrown").set_size(1);
        if (args.kind == heapledger::dump_kind::explicitly) throw std::runtime_error("no");
        return false;
    }
    void on_heap_profiling_enabled(bool) override { throw 1; }
    heapledger::dump_registration registration_{"Throwing", *this};
};
static Throwing throwing;
// Before main, and known all the same.
static const char *const kept = new char[1000];
int main(int count, char **arguments) {
    if (count < 2 || kept == nullptr) return 0;
    heapledger_trace_options options = {};
    options.size = sizeof options;
    options.flags = HEAPLEDGER_TRACE_ON_DEMAND | HEAPLEDGER_TRACE_AGGREGATED;
    if (heapledger_trace_start(arguments[1], &options) != HEAPLEDGER_OK) return 1;
    if (heapledger_trace_dump(HEAPLEDGER_DETAILED) != HEAPLEDGER_OK) return 2;
    return heapledger_trace_finish();
}
"#;

fn compile(compiler: &Path, source: &Path, program: &Path, options: &[&str]) {
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-pthread", "-I"]).arg(headers());
    command.arg(source).arg("-o").arg(program).args(options);
    let done = command.output().unwrap();
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success() && told.is_empty(), "{command:?}:\n{told}");
}

fn example() -> PathBuf {
    headers().join("../examples/dumps.cpp")
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_headers_for_dumps_compile_everywhere_and_do_nothing_alone() {
    const C: &[&str] = &["-std=c99", "-std=gnu17"];
    const CPP: &[&str] = &["-std=c++11", "-std=c++20", "-std=c++17"];
    let scratch = Scratch::new();
    let (in_c, in_cpp) = (scratch.write("dumps.c", IN_C), scratch.write("dumps.cpp", IN_CPP));
    for (compiler, source, standards) in [
        ("gcc", &in_c, C),
        ("clang", &in_c, C),
        ("g++", &in_cpp, CPP),
        ("clang++", &in_cpp, CPP),
        ("g++", &example(), &["-std=c++11"]),
    ] {
        let Some(compiler) = installed(compiler) else { continue };
        for standard in standards {
            for how in [["-O0", "-g"], ["-O2", "-no-pie"], ["-O2", "-DHEAPLEDGER_OFF"]] {
                let program = scratch.file("alone");
                compile(&compiler, source, &program, &[standard, how[0], how[1]]);
                assert_eq!(plain_command(&program).output().unwrap().status, exited(0), "{} {how:?}", source.display());
                // The program then refers to nothing of Heapledger.
                let text = fs::read(&program).unwrap();
                let refers = text.windows(19).any(|bytes| bytes == b"heapledger_dumps_v1");
                assert_eq!(refers, how[1] != "-DHEAPLEDGER_OFF", "{} {how:?}", source.display());
            }
        }
    }
    // The parts that have only functions are also C++98.
    if let Some(compiler) = installed("g++") {
        let text = "#include \"heapledger/dumps.h\"\nint main() { return heapledger_trace_finish() != HEAPLEDGER_ELSEWHERE; }\n";
        let (source, program) = (scratch.write("old.cpp", text), scratch.file("old"));
        compile(&compiler, &source, &program, &["-std=c++98"]);
        assert_eq!(plain_command(&program).status().unwrap(), exited(0));
    }
}

/// Builds a program that links an installed libheapledger.
fn linked(scratch: &Scratch, compiler: &str, source: &Path, prefix: &Path) -> Option<Job> {
    let (compiler, program) = (installed(compiler)?, scratch.file("linked"));
    let library = prefix.join("lib");
    let directory = format!("-L{}", library.display());
    compile(&compiler, source, &program, &["-g", "-O1", &directory, "-Wl,--no-as-needed", "-lheapledger"]);
    Some(Job::new([program]).variable("LD_LIBRARY_PATH", library))
}

fn read(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

fn hexadecimal(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap_or_else(|| panic!("{value}")), 16).unwrap()
}

#[test]
#[ignore = "it builds libheapledger; `.ci/run` runs it"]
fn a_provider_in_c_is_in_each_dump() {
    let scratch = Scratch::new();
    let prefix = libheapledger(&scratch);
    let (source, file) = (scratch.write("dumps.c", IN_C), scratch.file("c.trace.json"));
    let Some(job) = linked(&scratch, "cc", &source, &prefix) else { return };
    let outcome = job.argument(file.to_str().unwrap()).variable("HEAPLEDGER_HEAP_PROFILING", "1").bare();
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    let trace = read(&file);
    let all = dumps(&trace);
    assert_eq!(all.len(), 6);
    for (dump, level) in all.iter().zip(["background", "light", "detailed", "light", "light", "light"]) {
        let dump = &dump["args"]["dumps"];
        assert_eq!(dump["level_of_detail"], level);
        let allocators = &dump["allocators"];
        let cache = &allocators["cache/pages"]["attrs"];
        assert_eq!((hexadecimal(&cache["size"]["value"]), hexadecimal(&cache["object_count"]["value"])), (256, 4));
        assert_eq!((hexadecimal(&cache["hits"]["value"]), &cache["hits"]["units"]), (7, &"times".into()));
        assert!(allocators["failed"].is_null(), "what fails is left out");
        let edges = dump["allocators_graph"].as_array().unwrap();
        let owns = |source: &str, target: &Value| {
            edges.iter().any(|edge| edge["source"] == allocators[source]["guid"] && edge["target"] == *target)
        };
        if level == "background" {
            assert!(cache["url"].is_null() && allocators["mapped"].is_null(), "{allocators:#}");
            continue;
        }
        assert_eq!(cache["url"]["value"], "/index.html");
        let all = allocators.as_object().unwrap();
        let (_, shared) = all.iter().find(|(name, _)| name.starts_with("global/")).unwrap();
        assert!(owns("mapped", &shared["guid"]) && hexadecimal(&shared["attrs"]["size"]["value"]) == 4096);
        assert!(edges.iter().any(|edge| edge["source"] == allocators["cache/pages"]["guid"]));
    }
    let detailed = &all[2]["args"]["dumps"];
    let heap = &detailed["heaps"]["cache"]["entries"][0];
    assert_eq!((hexadecimal(&heap["size"]), hexadecimal(&heap["count"])), (192, 3));
    let objects = &detailed["allocators"]["malloc/allocated_objects"]["attrs"]["shim_allocated_objects_size"];
    assert_eq!(detailed["heaps"]["malloc"]["entries"][0]["size"], objects["value"]);
    assert!(hexadecimal(&objects["value"]) >= 1000);
    let account = &detailed["allocators"]["tracing/heap_profiler_cache/pages"]["attrs"];
    assert!(hexadecimal(&account["virtual_size"]["value"]) > 0);
}

#[test]
#[ignore = "it builds libheapledger; `.ci/run` runs it"]
fn what_a_provider_throws_is_a_failure() {
    let scratch = Scratch::new();
    let prefix = libheapledger(&scratch);
    let (source, file) = (scratch.write("throws.cpp", IN_CPP), scratch.file("cpp.trace.json"));
    let Some(job) = linked(&scratch, "c++", &source, &prefix) else { return };
    let outcome = job.argument(file.to_str().unwrap()).variable("HEAPLEDGER_HEAP_PROFILING", "1").bare();
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    let trace = read(&file);
    let all = dumps(&trace);
    let [dump] = &all[..] else { panic!("{trace:#}") };
    let dump = &dump["args"]["dumps"];
    assert!(dump["allocators"]["thrown"].is_null() && dump["heaps_v2"]["allocators"]["malloc"].is_object(), "{dump:#}");
}

/// The example, which is Chrome's, as viewers read its trace.
#[test]
#[ignore = "it builds libheapledger, installs npm's traceviewer, and needs Chromium and Go's sources: `.ci/run`"]
fn the_example_in_cpp_as_the_viewers_read_it() {
    let scratch = Scratch::new();
    let prefix = libheapledger(&scratch);
    let file = scratch.file("foo.trace.json");
    let Some(job) = linked(&scratch, "c++", &example(), &prefix) else { return };
    let outcome = job.argument(file.to_str().unwrap()).bare();
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    let said: Value = serde_json::from_str(&outcome.text()).unwrap();
    for viewer in Viewer::all(&scratch) {
        let viewed = viewer.viewed(&file);
        let dumps = viewed["dumps"].as_array().unwrap();
        let levels: Vec<_> = dumps.iter().map(|dump| dump["level"].as_str().unwrap()).collect();
        assert_eq!((levels.as_slice(), &said["dumps"]), (&["light", "detailed", "detailed"][..], &Value::from(3)));
        for (dump, live) in dumps[1..].iter().zip(said["foo_allocator"].as_array().unwrap()) {
            let process = dump["processes"].as_object().unwrap().values().next().unwrap();
            assert_eq!(heap_total(process, "foo_allocator")[1], *live);
            let entries = process["heaps"]["foo_allocator"].as_array().unwrap();
            let has = |stack: &[&str], of_type: &str| {
                entries.iter().any(|entry| entry["stack"] == Value::from(stack) && entry["type"] == of_type)
            };
            assert!(has(&["render", "paint"], "Glyph"), "{entries:#?}");
            let objects = &process["allocators"]["malloc/allocated_objects"]["shim_allocated_objects_size"];
            assert_eq!(*objects, heap_total(process, "malloc")[1]);
        }
    }
}
