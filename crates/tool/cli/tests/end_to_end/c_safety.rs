//! A C program makes calls with the headers and libheapledger that must not crash it: every null
//! pointer, addresses inside blocks, and libraries that are loaded and unloaded meanwhile.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::c::{WITH_ALL, install};
use crate::harness::{Job, Scratch, exited, headers, heapledger, installed};

/// Compiles a program that links an installed libheapledger.
fn build(scratch: &Scratch, compiler: &Path, name: &str, text: &str, prefix: &Path) -> PathBuf {
    let (source, program) = (scratch.write(name, text), scratch.file(&format!("{name}.program")));
    let mut command = Command::new(compiler);
    command.args(["-O1", "-g", "-Wall", "-Wextra", "-Wno-nonnull", "-pthread", "-I"]).arg(headers()).arg(source);
    command.arg("-L").arg(prefix.join("lib")).args(["-Wl,--no-as-needed", "-lheapledger", "-o"]).arg(&program);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    program
}

/// Compiles a program without libheapledger, so that there is no observer.
fn build_alone(scratch: &Scratch, compiler: &Path, name: &str, text: &str) -> PathBuf {
    let (source, program) = (scratch.write(name, text), scratch.file(&format!("{name}.alone")));
    let mut command = Command::new(compiler);
    command.args(["-O1", "-Wall", "-Wextra", "-Wno-nonnull", "-pthread", "-I"]).arg(headers()).arg(source).arg("-o");
    let done = command.arg(&program).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    program
}

/// Two threads load and unload a library while the first one asks for the checks, which examine the
/// libraries each time.
const COMING_AND_GOING: &str = r#"
#include "heapledger/heapledger.h"
#include <dlfcn.h>
#include <pthread.h>
static int done;
static void *reload(void *file) {
    for (int round = 0; round < 4000; round++) {
        void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) abort();
        dlclose(library);
    }
    __atomic_fetch_add(&done, 1, __ATOMIC_RELEASE);
    return NULL;
}
int main(int count, char **files) {
    pthread_t threads[2];
    if (count < 3 || heapledger_check() != HEAPLEDGER_OK) return 1;
    for (int at = 0; at < 2; at++) pthread_create(&threads[at], NULL, reload, files[at + 1]);
    while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) < 2)
        if (heapledger_check() != HEAPLEDGER_STATE) return 2;
    for (int at = 0; at < 2; at++) pthread_join(threads[at], NULL);
    return 0;
}
"#;

#[test]
#[ignore = "it builds libheapledger; `.ci/run` runs it"]
fn checks_begin_while_libraries_come_and_go() {
    let scratch = Scratch::new();
    let prefix = scratch.file("prefix");
    install(WITH_ALL, &prefix);
    let program = build(&scratch, Path::new("cc"), "reload.c", COMING_AND_GOING, &prefix);
    let libraries = ["one", "two"].map(|name| {
        let source = scratch.write(&format!("{name}.c"), format!("int {name}(void) {{ return 1; }}\n"));
        let file = scratch.file(&format!("lib{name}.so"));
        let done = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&file).arg(source).status().unwrap();
        assert!(done.success());
        file
    });
    let done = Command::new(program).args(libraries).env("LD_LIBRARY_PATH", prefix.join("lib")).output().unwrap();
    assert_eq!(done.status, exited(0), "{done:?}");
}

/// Calls every function with null for each pointer, and checks the documented results.
const NULLS: &str = r#"
#include "heapledger/heapledger.h"
#include "heapledger/dumps.h"
#include "heapledger/hooks.h"
#include "heapledger/profile.h"
#include <stdio.h>
#define EXPECT(what) do { if (!(what)) { printf("line %d: %s\n", __LINE__, #what); failed = 1; } } while (0)
static int failed;
static const heapledger_name name = HEAPLEDGER_NAME("name");
static heapledger_pool pool = HEAPLEDGER_POOL(&name), nameless = HEAPLEDGER_POOL(NULL);
static const heapledger_name empty = {NULL, 5, 0, NULL};
static const heapledger_place place = HEAPLEDGER_PLACE(), nowhere = {NULL, 5, 1, NULL, 5};
static heapledger_collector left;
static void report(const heapledger_collector *collector, void *data) {
    (void)data;
    heapledger_report(NULL, "p", HEAPLEDGER_OTHER, HEAPLEDGER_COUNT, 1, "One.");
    heapledger_report(collector, NULL, HEAPLEDGER_OTHER, HEAPLEDGER_COUNT, 1, "One.");
    heapledger_report(collector, "p", HEAPLEDGER_OTHER, HEAPLEDGER_COUNT, 1, NULL);
    heapledger_reportf(NULL, HEAPLEDGER_OTHER, HEAPLEDGER_COUNT, 1, "One.", "%d", 1);
    heapledger_reportf(collector, HEAPLEDGER_OTHER, HEAPLEDGER_COUNT, 1, NULL, "%d", 1);
    heapledger_reportf(collector, HEAPLEDGER_OTHER, HEAPLEDGER_COUNT, 1, "One.", NULL);
    heapledger_report_failed(NULL, "why");
    heapledger_report_failed(collector, NULL);
    heapledger_is_anonymous(NULL);
    left = heapledger_report_later(NULL);
    heapledger_report_done(&left);
    heapledger_report_done(NULL);
}
static int each_report(const heapledger_report_found *found, void *data) { (void)found, (void)data; return 0; }
static int each_block(const heapledger_block *block, void *data) { (void)block, (void)data; return 0; }
static int each_site(const heapledger_site *site, void *data) { (void)site, (void)data; return 0; }
static int each_type(const heapledger_dynamic_type *type, void *data) { (void)type, (void)data; return 0; }
static int each_misuse(const heapledger_misuse *misuse, void *data) { (void)misuse, (void)data; return 0; }
static int dump_nothing(const heapledger_dump_args *args, heapledger_dump *dump, void *data) {
    const heapledger_heap_entry entry = {{5, 0, NULL}, 1, 1};
    (void)args, (void)data;
    heapledger_dump_scalar(dump, NULL, "a", "b", 1), heapledger_dump_scalar(dump, "n", NULL, "b", 1);
    heapledger_dump_scalar(dump, "n", "a", NULL, 1), heapledger_dump_text(dump, "n", "a", NULL), heapledger_dump_text(dump, "n", NULL, "t");
    EXPECT(heapledger_dump_size(dump, NULL, 1) == 0 && heapledger_dump_shared(dump, NULL, 0, 1) == 0);
    heapledger_dump_suballocate(dump, 1, NULL), heapledger_dump_heap(dump, NULL, &entry, 1), heapledger_dump_heap(dump, "n", NULL, 1);
    heapledger_dump_heap(dump, "n", &entry, 1), heapledger_dump_cost(dump, "n", NULL, NULL), heapledger_dump_cost(dump, "n", "p", NULL);
    return 0;
}
HEAPLEDGER_DEFINE_MALLOC_SIZE_OF(size_of, "r")
HEAPLEDGER_DEFINE_MALLOC_ENCLOSING_SIZE_OF(enclosing, "r")
HEAPLEDGER_DEFINE_MALLOC_SIZE_OF_ON_ALLOC(on_alloc, "r")
HEAPLEDGER_DEFINE_MALLOC_SIZE_OF_ON_FREE(on_free, "r")

int main(int count, char **arguments) {
    /* What the calls of a ledger answer to an argument that makes no sense, if there is one. */
    const int has_ledger = count > 1 && strcmp(arguments[1], "ledger") == 0, is_linked = count > 1;
    const int bad = heapledger_ledger() != NULL ? HEAPLEDGER_FAILED : HEAPLEDGER_ELSEWHERE;
    const int no_file = is_linked ? HEAPLEDGER_FAILED : HEAPLEDGER_ELSEWHERE;
    void *block, *other;
    heapledger_reporter *reporter;
    if (has_ledger && heapledger_start(NULL) != HEAPLEDGER_OK) return 2;
    EXPECT(!has_ledger || heapledger_is_observed());
    block = malloc(100);
    heapledger_enable(NULL, 1);
    heapledger_leave(heapledger_enter(NULL, NULL));
    heapledger_leave(heapledger_enter(NULL, &name));
    { heapledger_scope scope = heapledger_enter(&name, NULL); free(malloc(1)); heapledger_leave(scope); }
    { heapledger_scope scope = heapledger_enter(&empty, &empty); free(malloc(1)); heapledger_leave(scope); }
    { heapledger_scope none = {NULL, 7}; heapledger_leave(none); heapledger_end_ignoring(none); }
    heapledger_pool_alloc(NULL, block, 10), heapledger_pool_alloc(&nameless, block, 10), heapledger_pool_alloc(&pool, NULL, 10);
    heapledger_pool_free(NULL, block), heapledger_pool_free(&nameless, block), heapledger_pool_free(&pool, NULL);
    heapledger_pool_back(NULL, block), heapledger_pool_back(&pool, NULL), heapledger_pool_back(&nameless, NULL);
    heapledger_pool_reset(NULL), heapledger_pool_reset(&nameless), heapledger_pool_reset(&pool);
    heapledger_pool_close(NULL), heapledger_pool_close(&nameless), heapledger_pool_close(&pool);
    heapledger_set_context(NULL);
    EXPECT(heapledger_stamp(NULL, "t", &place) == (heapledger_find_bridge() ? HEAPLEDGER_NOTHING : HEAPLEDGER_ELSEWHERE));
    EXPECT(heapledger_stamp(block, NULL, &place) == (heapledger_find_bridge() ? HEAPLEDGER_OK : HEAPLEDGER_ELSEWHERE) || !heapledger_is_observed());
    heapledger_stamp(block, "t", NULL), heapledger_stamp(block, "t", &nowhere), heapledger_stamp(block, NULL, NULL);
    heapledger_stamp_text(block, NULL, 5, NULL), heapledger_stamp_text(NULL, NULL, 5, NULL);
    EXPECT(heapledger_stamped(NULL, "t", &place) == NULL);
    EXPECT(heapledger_stamped(block, NULL, NULL) == block);
    heapledger_marker(NULL);
    EXPECT((other = heapledger_track_malloc(10, NULL, NULL)) != NULL);
    EXPECT(heapledger_track_free(other) == HEAPLEDGER_OK && heapledger_track_free(NULL) == HEAPLEDGER_OK);
    free(heapledger_track_malloc(10, "t", NULL)), free(heapledger_track_malloc(10, NULL, &place));
    free(heapledger_new_array(1, 10, NULL, NULL));
    EXPECT(heapledger_get_totals(NULL) == bad && heapledger_block_at(block, NULL) == bad && heapledger_get_reported(NULL) == bad);
    { heapledger_block found; EXPECT(heapledger_block_at(NULL, &found) != HEAPLEDGER_OK); }
    EXPECT(heapledger_blocks(NULL, NULL) == bad && heapledger_sites(1, NULL, NULL) == bad);
    EXPECT(heapledger_census_by_vtable(NULL, NULL) == bad && heapledger_misuses(NULL, NULL) == bad);
    heapledger_blocks(each_block, NULL), heapledger_sites(1, each_site, NULL);
    heapledger_census_by_vtable(each_type, NULL), heapledger_misuses(each_misuse, NULL);
    EXPECT(heapledger_usable_size(NULL) == 0 && heapledger_malloc_size_of(NULL) == 0 && heapledger_start_of(NULL) == NULL);
    EXPECT(heapledger_malloc_enclosing_size_of(NULL) == 0);
    EXPECT(heapledger_mark(NULL, "r", 0) == HEAPLEDGER_MARK_UNKNOWN && heapledger_mark(block, NULL, 0) == HEAPLEDGER_MARK_UNKNOWN);
    EXPECT(heapledger_mark_measured(NULL, NULL, HEAPLEDGER_MARK_KEEP, 5) == HEAPLEDGER_MARK_UNKNOWN);
    EXPECT(heapledger_unmark(NULL, "r") == 0 && heapledger_unmark(block, NULL) == 0);
    EXPECT(heapledger_size_of_marked(NULL, "r", 0) == 0 && heapledger_size_of_marked(block, NULL, 0) >= 100);
    EXPECT(size_of(NULL) == 0 && enclosing(NULL) == 0 && on_alloc(NULL) == 0 && on_free(NULL) == 0);
    EXPECT(heapledger_register(NULL, report, NULL) == NULL && heapledger_register("r", NULL, NULL) == NULL);
    heapledger_unregister(NULL);
    reporter = heapledger_register("r", report, NULL);
    EXPECT(heapledger_collect(NULL, NULL, NULL) == no_file);
    EXPECT(heapledger_collect(NULL, each_report, NULL) == (is_linked ? HEAPLEDGER_OK : HEAPLEDGER_ELSEWHERE));
    EXPECT(heapledger_save_reports(NULL, NULL) == no_file);
    EXPECT(heapledger_print_reports(NULL, -1) == no_file);
    EXPECT(heapledger_serve(NULL, 10) == no_file);
    EXPECT(heapledger_dmd_save(NULL, NULL) == no_file && heapledger_dmd_on_signal(34, NULL, NULL) == no_file);
    EXPECT(heapledger_dmd_at_exit(NULL, NULL) == no_file);
    EXPECT(heapledger_profile_save(NULL) == no_file);
    EXPECT(heapledger_profile_serve(0, NULL, 10) != HEAPLEDGER_OK);
    heapledger_unregister(reporter);
    {
        heapledger_provider nameless = {sizeof nameless, 0, NULL, dump_nothing, NULL, NULL, NULL};
        heapledger_provider idle = {sizeof idle, 0, "Idle", NULL, NULL, NULL, NULL};
        heapledger_provider provider = {sizeof provider, 5, "P", dump_nothing, NULL, NULL, NULL};
        heapledger_trace_options wrong = {sizeof wrong, 0, 2, 3, 0, 0, 0, 0};
        heapledger_registered_provider *registered;
        heapledger_allocation_register *allocations;
        EXPECT(heapledger_register_provider(NULL) == NULL && heapledger_register_provider(&nameless) == NULL);
        EXPECT(heapledger_register_provider(&idle) == NULL);
        registered = heapledger_register_provider(&provider);
        EXPECT((registered != NULL) == is_linked);
        heapledger_unregister_provider(NULL);
        EXPECT(heapledger_trace_start(NULL, NULL) == no_file && heapledger_trace_start("/dev/null", &wrong) == no_file);
        EXPECT(heapledger_trace_dump(HEAPLEDGER_LIGHT) == (is_linked ? HEAPLEDGER_STATE : HEAPLEDGER_ELSEWHERE));
        EXPECT(heapledger_trace_finish() == (is_linked ? HEAPLEDGER_STATE : HEAPLEDGER_ELSEWHERE));
        if (is_linked) {
            EXPECT(heapledger_trace_start("/dev/null", NULL) == HEAPLEDGER_OK);
            EXPECT(heapledger_trace_dump(7) == HEAPLEDGER_FAILED && heapledger_trace_dump(HEAPLEDGER_DETAILED) == HEAPLEDGER_OK);
            EXPECT(heapledger_trace_finish() == HEAPLEDGER_OK);
        }
        EXPECT(dump_nothing(NULL, NULL, NULL) == 0);
        heapledger_dump_own(NULL, 1, 2, 3);
        heapledger_unregister_provider(registered);
        allocations = heapledger_allocation_register_new();
        EXPECT((allocations != NULL) == is_linked);
        heapledger_allocation_insert(NULL, block, 1, NULL), heapledger_allocation_insert(allocations, NULL, 1, NULL);
        EXPECT(heapledger_allocation_remove(NULL, block) == 0 && heapledger_allocation_remove(allocations, NULL) == is_linked);
        EXPECT(heapledger_allocation_blocks(NULL, NULL, 5) == 0 && heapledger_allocation_blocks(allocations, NULL, 5) == 0);
        EXPECT(heapledger_allocation_register_cost(NULL).count == 0);
        heapledger_allocation_register_delete(allocations), heapledger_allocation_register_delete(NULL);
    }
    if (heapledger_find_hooks() != NULL) {
        const heapledger_hooks *hooks = heapledger_find_hooks();
        EXPECT(hooks->install_observer(NULL) == HEAPLEDGER_HOOK_MALFORMED && hooks->remove_observer(NULL) != 0);
        EXPECT(hooks->install_replacement(NULL) == HEAPLEDGER_HOOK_MALFORMED && hooks->remove_replacement(NULL) != 0);
    }
    if (is_linked) {
        /* The tables, as a program calls them that does not use the header. */
        const heapledger_bridge *bridge = heapledger_find_bridge();
        const uint64_t address = (uint64_t)(uintptr_t)block;
        bridge->annotate(300, NULL, 0), bridge->annotate(300, NULL, 5);
        bridge->pool_allocated(NULL, address, 1), bridge->pool_freed(NULL, address), bridge->pool_reset(NULL);
        bridge->pool_closed(NULL), bridge->pool_backed(NULL, address), bridge->pool_backed(NULL, 0), bridge->set_context(0);
        bridge->stamp(address, NULL, 5, NULL), bridge->stamp(0, "t", 1, NULL), bridge->stamp(0, NULL, 0, NULL);
        bridge->mark(address, NULL), bridge->mark(0, NULL), bridge->unmark(address, NULL, 5), bridge->unmark(0, NULL, 0);
        EXPECT(bridge->block_around(address, NULL) == 0);
    }
    free(block);
    return failed;
}
"#;

#[test]
#[ignore = "it builds libheapledger; `.ci/run` runs it"]
fn every_function_takes_null_for_every_pointer() {
    let scratch = Scratch::new();
    let prefix = scratch.file("prefix");
    install(WITH_ALL, &prefix);
    for (compiler, name) in [("cc", "nulls.c"), ("c++", "nulls.cpp")] {
        let Some(compiler) = installed(compiler) else { continue };
        // In C++ these two have other names.
        let text = match name {
            "nulls.c" => NULLS.to_owned(),
            _ => NULLS
                .lines()
                .filter(|line| !line.contains("_stamped(") && !line.contains("_new_array("))
                .collect::<Vec<_>>()
                .join("\n"),
        };
        let alone = build_alone(&scratch, &compiler, name, &text);
        let linked = build(&scratch, &compiler, name, &text, &prefix);
        let outcome = Job::new([&alone]).bare();
        assert_eq!((outcome.status, outcome.text()), (exited(0), String::new()), "{name} alone");
        let (outcome, _) = Job::new([&alone]).recorded(&scratch);
        assert_eq!((outcome.status, outcome.text()), (exited(0), String::new()), "{name} alone, recorded");
        let job = || Job::new([&linked]).variable("LD_LIBRARY_PATH", prefix.join("lib"));
        for what in ["idle", "ledger"] {
            let outcome = job().argument(what).bare();
            assert_eq!((outcome.status, outcome.text()), (exited(0), String::new()), "{name}, {what}");
        }
        let (outcome, recording) = job().argument("recorded").recorded(&scratch);
        assert_eq!((outcome.status, outcome.text()), (exited(0), String::new()), "{name}, recorded");
        recording.assert_whole();
    }
}

/// Reports objects that are parts of others, after words that mislead the allocator.
const INSIDE: &str = r#"
#include "heapledger/heapledger.hpp"
#include <cstdio>
#include <cstdint>
HEAPLEDGER_DEFINE_MALLOC_SIZE_OF(size_of, "inside")
HEAPLEDGER_DEFINE_MALLOC_SIZE_OF_ON_FREE(size_of_freed, "inside")
struct Part { virtual ~Part() {} };
struct Whole { std::uint64_t words[3]; Part part; char rest[100]; };
static Whole *whole;
static void report(const heapledger_collector *, void *) {
    if (size_of(&whole->part) != 0 || size_of_freed(&whole->part) != 0) std::abort();
    if (heapledger_malloc_size_of(&whole->part) != 0) std::abort();
}
HEAPLEDGER_REPORTER("inside", report, NULL)
static int each(const heapledger_report_found *, void *) { return 0; }
int main(int count, char **arguments) {
    if (heapledger_start(NULL) != HEAPLEDGER_OK) return 2;
    whole = new Whole();
    // As the size of a block: far beyond what is mapped.
    whole->words[2] = 0x4141414141414140;
    heapledger_collection what = {sizeof what, 0, 0, 0};
    if (heapledger_collect(&what, each, NULL) != HEAPLEDGER_OK) return 3;
    if (heapledger_mark(&whole->part, "inside", 0) != HEAPLEDGER_MARK_INSIDE) return 4;
    if (count < 2 || heapledger_dmd_save(arguments[1], NULL) != HEAPLEDGER_OK) return 5;
    delete whole;
    return 0;
}
"#;

#[test]
#[ignore = "it builds libheapledger; `.ci/run` runs it"]
fn an_address_inside_a_block_is_a_defect_and_no_crash() {
    let Some(compiler) = installed("c++") else { return };
    let scratch = Scratch::new();
    let prefix = scratch.file("prefix");
    install(WITH_ALL, &prefix);
    let program = build(&scratch, &compiler, "inside.cpp", INSIDE, &prefix);
    let log = scratch.file("inside.json.gz");
    let done = Command::new(program).arg(&log).env("LD_LIBRARY_PATH", prefix.join("lib")).output().unwrap();
    assert_eq!(done.status, exited(0), "{done:?}");
    let shown = heapledger(["dmd", "--defects", log.to_str().unwrap()]).text();
    assert!(shown.contains("reported an address inside a block of "), "{shown}");
}
