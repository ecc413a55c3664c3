//! Heapledger never counts itself: checked in the ledger and the recording of a C program that only
//! calls libheapledger.

use std::path::Path;
use std::process::Command;

use crate::c::{WITH_ALL, install};
use crate::harness::{Job, Scratch, exited, headers, number};

/// Calls all functions of libheapledger, and no others that allocate. Prints its own allocations,
/// in functions that Heapledger has called, and the counts of its ledger.
const CALLER: &str = r#"
#include "heapledger/dumps.h"
#include "heapledger/heapledger.h"
#include "heapledger/profile.h"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
static unsigned long own, collections;
static void *volatile kept;
HEAPLEDGER_DEFINE_MALLOC_SIZE_OF(size_of, "explicit/own")
static void report(const heapledger_collector *collector, void *data) {
    (void)data;
    kept = malloc(100);
    own++;
    heapledger_report(collector, "", HEAPLEDGER_HEAP, HEAPLEDGER_BYTES, (int64_t)size_of(kept), "One more.");
    free(kept);
}
HEAPLEDGER_REPORTER("explicit/own", report, NULL)
static int each_report(const heapledger_report_found *found, void *data) { (void)found, (void)data; collections++; return 0; }
static int each_block(const heapledger_block *block, void *data) { (void)block, (void)data; return 0; }
static int each_site(const heapledger_site *site, void *data) { (void)site, (void)data; return 0; }
static int each_type(const heapledger_dynamic_type *type, void *data) { (void)type, (void)data; kept = malloc(10), own++, free(kept); return 0; }
static int each_misuse(const heapledger_misuse *misuse, void *data) { (void)misuse, (void)data; return 0; }
static int dump(const heapledger_dump_args *args, heapledger_dump *dump, void *data) {
    const heapledger_heap_entry entry = {heapledger_allocation_context_now("Entry"), 1, 100};
    (void)args, (void)data;
    kept = malloc(100);
    own++;
    heapledger_dump_suballocate(dump, heapledger_dump_size(dump, "entries", 100), HEAPLEDGER_MALLOC_OBJECTS);
    heapledger_dump_own(dump, heapledger_dump_allocator(dump, "mapped"), heapledger_dump_shared(dump, "id", 0, 1), 1);
    heapledger_dump_text(dump, "entries", "url", "/");
    heapledger_dump_heap(dump, "entries", &entry, 1);
    free(kept);
    return 0;
}
static void dumps(void) {
    const heapledger_provider provider = {sizeof provider, 0, "Entries", dump, NULL, NULL, NULL};
    const heapledger_trace_options options = {sizeof options, HEAPLEDGER_TRACE_ON_DEMAND, 0, 0, 0, 0, 0, 0};
    heapledger_registered_provider *registered = heapledger_register_provider(&provider);
    heapledger_allocation_register *allocations = heapledger_allocation_register_new();
    heapledger_allocation found[2];
    HEAPLEDGER_SCOPE("dumps");
    const heapledger_allocation_context context = heapledger_allocation_context_now("Entry");
    heapledger_allocation_insert(allocations, found, sizeof found, &context);
    heapledger_trace_start("/dev/null", &options);
    heapledger_trace_dump(HEAPLEDGER_DETAILED);
    heapledger_allocation_blocks(allocations, found, 2), heapledger_allocation_remove(allocations, found);
    heapledger_trace_finish();
    heapledger_allocation_register_delete(allocations);
    heapledger_unregister_provider(registered);
}
int main(int count, char **files) {
    heapledger_totals totals;
    heapledger_collection marking = {sizeof marking, HEAPLEDGER_MARK, 0, 0};
    char url[128];
    if (count < 3) return 0;
    /* Before the ledger is there: what it frees later is no unknown free. */
    heapledger_reporter *early = heapledger_register("early", report, NULL);
    heapledger_listen();
    heapledger_start(NULL);
    heapledger_unregister(early);
    const int null = open("/dev/null", O_WRONLY);
    heapledger_reporter *late = heapledger_register("late", report, NULL);
    heapledger_collect(NULL, each_report, NULL);
    heapledger_collect(&marking, each_report, NULL);
    heapledger_save_reports(files[1], NULL);
    for (int time = 0; time < 6; time++) heapledger_dmd_save(files[2], NULL);
    heapledger_dmd_on_signal(34, "/tmp", NULL);
    heapledger_print_reports(NULL, null);
    for (int what = HEAPLEDGER_TOTALS; what <= HEAPLEDGER_MISUSES; what++) heapledger_print(what, null, 10);
    heapledger_blocks(each_block, NULL), heapledger_sites(10, each_site, NULL), heapledger_misuses(each_misuse, NULL);
    heapledger_census_by_vtable(each_type, NULL);
    heapledger_serve(url, sizeof url);
    heapledger_profile_serve(0, url, sizeof url);
    heapledger_profile_save(files[1]);
    dumps();
    heapledger_unregister(late);
    memset(&totals, 0, sizeof totals);
    heapledger_get_totals(&totals);
    /* Not by printf, which has a buffer. */
    char line[256];
    const int length = snprintf(line, sizeof line, "{\"own\": %lu, \"reports\": %lu, \"allocations\": %lu, \"live\": %lu, \"unknown\": %lu}\n", own, collections,
            (unsigned long)totals.allocations, (unsigned long)totals.blocks_live, (unsigned long)totals.frees_unknown);
    return write(1, line, (size_t)length) != length;
}
"#;

#[test]
#[ignore = "it builds libheapledger; `.ci/run` runs it"]
fn a_c_program_that_only_calls_us_allocates_nothing() {
    let scratch = Scratch::new();
    let prefix = scratch.file("prefix");
    install(WITH_ALL, &prefix);
    let (source, program) = (scratch.write("caller.c", CALLER), scratch.file("caller"));
    let mut command = Command::new("cc");
    command.args(["-O1", "-g", "-Wall", "-Wextra", "-I"]).arg(headers()).arg(source).arg("-L").arg(prefix.join("lib"));
    let done = command.args(["-Wl,--no-as-needed", "-lheapledger", "-o"]).arg(&program).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let job = |program: &Path| Job::new([program]).variable("LD_LIBRARY_PATH", prefix.join("lib"));
    let calling = || job(&program).argument(scratch.file("reports.json.gz")).argument(scratch.file("log.json.gz"));

    let outcome = calling().bare();
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    let alone: serde_json::Value = serde_json::from_str(&outcome.text()).unwrap();
    assert!(number(&alone, "own") >= 18 && number(&alone, "reports") > 10, "{alone}");
    assert_eq!((number(&alone, "allocations"), number(&alone, "live")), (number(&alone, "own"), 0), "{alone}");
    assert_eq!(number(&alone, "unknown"), 0, "{alone}");

    // Blocks that the program has without calling us are its own, or the C library's.
    let (_, silent) = job(&program).recorded(&scratch);
    let (outcome, recording) = calling().recorded(&scratch);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    let recorded: serde_json::Value = serde_json::from_str(&outcome.text()).unwrap();
    recording.assert_whole();
    assert!(number(&recorded, "own") > 5, "{recorded}");
    let more = |of: &str| recording.total(of) - silent.total(of);
    assert_eq!(more("allocations"), number(&recorded, "own"), "{:#}", recording.ask("top", &["--total"]));
    assert_eq!(more("blocks_live_end"), 0, "{:#}", recording.ask("top", &["--at", "end"]));
}
