//! Programs with arenas: over any malloc, their blocks and their misuse, and in recordings.
//! `fixtures/programs/labelled_arenas.c` prints what each of its arenas should have at the end.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use heapledger_core::Api;
use heapledger_recording::{Call, EventKind, EventsBuffer, Recording as Contents};
use serde_json::Value;

use crate::c::{example, libheapledger};
use crate::harness::{
    Build, HEAPLEDGER, Job, Outcome, Recording, Scratch, build, exited, headers, heapledger, number, plain_command,
    program,
};

/// Blocks and bytes, by arena.
type Sums = BTreeMap<String, (i64, i64)>;

/// Returns the program's own sums.
fn printed(outcome: &Outcome) -> Sums {
    let [told] = &outcome.printed_objects()[..] else { panic!("not one object: {outcome:?}") };
    let sum = |figures: &Value| (figures[0].as_i64().unwrap(), figures[1].as_i64().unwrap());
    told.as_object().unwrap().iter().map(|(label, figures)| (label.clone(), sum(figures))).collect()
}

/// Returns a recording's sums at the end, without those of blocks in no arena.
fn recorded(recording: &Recording, by: &str) -> Sums {
    let top = recording.ask("top", &["--by", by, "--at", "end", "-n", "0"]);
    let rows = top["rows"].as_array().unwrap().iter().filter(|row| row["heap"].is_string());
    rows.map(|row| (row["heap"].as_str().unwrap().to_owned(), (number(row, "blocks"), number(row, "bytes")))).collect()
}

/// Returns the texts of the annotations, without the arenas' numbers, which are random.
fn annotations(recording: &Recording) -> Vec<String> {
    let info = recording.ask("info", &[]);
    let texts = info["annotations"].as_array().unwrap().iter().map(|annotation| annotation["text"].as_str().unwrap());
    let words = |text: &str| text.split(' ').filter(|word| !word.starts_with("(0x")).collect::<Vec<_>>().join(" ");
    texts.map(words).collect()
}

/// Each block is in its arena, however it was allocated and reallocated, and by any thread.
#[test]
fn each_block_has_its_arena_in_a_recording() {
    let scratch = Scratch::new();
    let (outcome, recording) = Job::fixture("labelled_arenas", "").recorded(&scratch);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    recording.assert_whole().assert_adds_up();
    let expected = printed(&outcome);
    assert_eq!(recorded(&recording, "arena"), expected);
    assert_eq!(recorded(&recording, "heap"), expected);

    let images = recording.ask("top", &["--arena", "images", "--at", "end"]);
    let total = &images["total"];
    assert_eq!((number(total, "blocks"), number(total, "bytes")), (4, 5520), "{images:#}");
    let created = ["images", "parsers", "limited"].map(|label| format!("arena {label} created"));
    let expected: Vec<String> = created.into_iter().chain(["arena limited disposed of".to_owned()]).collect();
    assert_eq!(annotations(&recording), expected);

    // The groups that held most at the peak.
    let timeline = recording.ask("timeline", &["--by", "arena"]);
    let groups: Vec<_> = timeline["groups"].as_array().unwrap().iter().map(|group| &group["name"]).collect();
    assert!(["limited", "images"].iter().all(|label| groups.contains(&&Value::from(*label))), "{groups:?}");
}

/// A block of an arena that is reallocated by `reallocarray` has that call in a recording, with its
/// count; and the block is in its arena.
#[test]
fn arrays_in_arenas_have_their_counts() {
    let scratch = Scratch::new();
    let (outcome, recording) = Job::fixture("labelled_arenas", "reallocarray").recorded(&scratch);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    let bytes = std::fs::read(&recording.path).unwrap();
    let contents = Contents::open(&bytes).unwrap();
    let image = contents.images()[0].image;
    let (mut buffer, mut arrays) = (EventsBuffer::default(), Vec::new());
    for chunk in contents.event_chunks(image) {
        let events = chunk.decode(&mut buffer).unwrap();
        for (index, event) in events.as_slice().iter().enumerate() {
            if let EventKind::Realloc { size, .. } = event.kind
                && event.call == Call::from(Api::Reallocarray)
            {
                arrays.push((size.0, events.extras(index).count));
            }
        }
    }
    assert_eq!(arrays, [(77, Some(7))]);
    assert_eq!(recorded(&recording, "arena"), Sums::from([("images".to_owned(), (1, 77))]));
}

/// A sample has the arenas, too: with a sample point for each byte or so, all of them.
#[test]
fn samples_have_arenas() {
    let scratch = Scratch::new();
    let job = Job::fixture("labelled_arenas", "").option("--sample").option("16");
    let (outcome, recording) = job.recorded(&scratch);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    let (found, expected) = (recorded(&recording, "arena"), printed(&outcome));
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    // 400 blocks of 48 bytes, each with a probability of 95 %: the standard deviation is 220 bytes.
    assert!((found["parsers"].1 - 19200).abs() < 2200, "{found:?}");
}

#[test]
fn misuse_ends_the_program_with_a_message() {
    let scratch = Scratch::new();
    for (how, message) in [
        ("foreign", ["heapledger: a block of arena 0x", " (images) was passed as one of arena 0x"]),
        ("not-a-block", ["heapledger: an address that is not a block was passed as one of an arena: 0x", ""]),
        ("unknown", ["heapledger: no arena has the id 0x", ", or it was disposed of"]),
    ] {
        let (outcome, _) = Job::fixture("labelled_arenas", how).recorded(&scratch);
        assert_eq!(outcome.status.signal(), Some(6), "{how}: {outcome:?}");
        let text = String::from_utf8_lossy(&outcome.stderr);
        assert!(message.iter().all(|part| text.contains(part)), "{how}: {text}");
    }
    // Over malloc the block may have been freed unseen, and it stays valid if it was not.
    let (outcome, _) = Job::fixture("labelled_arenas", "live").recorded(&scratch);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    let text = String::from_utf8_lossy(&outcome.stderr);
    assert!(text.contains(" (images) was disposed of with 1 live blocks of 10 bytes"), "{text}");
}

/// A child that was forked while another thread was in an arena finds no lock taken.
#[test]
fn forked_children_use_arenas() {
    let scratch = Scratch::new();
    let (outcome, recording) = Job::fixture("labelled_arenas", "forks").recorded(&scratch);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    assert!(outcome.text().contains("forked"), "{outcome:?}");
    assert_eq!(recording.processes().len(), 51);
}

/// The heap checker owns some blocks of the program, and leaves it its arenas.
#[test]
fn checked_programs_have_arenas() {
    let scratch = Scratch::new();
    let mut job = Job::fixture("labelled_arenas", "");
    for option in ["--phc", "--phc-first", "1", "--phc-normal", "1", "--phc-min-memory", "0"] {
        job = job.option(option);
    }
    let (outcome, recording) = job.recorded(&scratch);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    assert_eq!(recorded(&recording, "arena"), printed(&outcome));
}

/// A handler around forks that the program has registered before its first arena frees blocks.
#[test]
fn handlers_around_forks_use_arenas() {
    let scratch = Scratch::new();
    let (outcome, recording) = Job::fixture("arena_at_fork", "").recorded(&scratch);
    assert_eq!((outcome.status, outcome.text().trim()), (exited(0), "forked"), "{outcome:?}");
    assert_eq!(recording.processes().len(), 2);
}

/// A program that asks its ledger about a block of an arena.
const ASKS: &str = r#"
#include "heapledger/arena.h"
#include "heapledger/heapledger.h"
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    if (heapledger_start(NULL)) return 2;
    heapledger_arena_params params = HEAPLEDGER_ARENA_PARAMS("images");
    heapledger_arena arena = heapledger_arena_create(&params);
    void *block = realloc(heapledger_arena_malloc(arena, 100), 300);
    heapledger_block found = {sizeof found};
    if (heapledger_block_at(block, &found)) return 3;
    printf("%s %lu\n", found.at.heap, found.bytes);
    return 0;
}
"#;

/// libheapledger has arenas for programs that are not recorded, linked or preloaded, and a recorded
/// program uses them under the recorder.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn libheapledger_has_arenas() {
    let scratch = Scratch::new();
    let library = libheapledger(&scratch).join("lib/libheapledger.so");
    let preloaded =
        |how: &str| plain_command(program("labelled_arenas")).arg(how).env("LD_PRELOAD", &library).output().unwrap();
    let done = preloaded("");
    assert!(done.status.success() && done.stdout.starts_with(b"{\"images\""), "{done:?}");
    let done = preloaded("forks");
    assert!(done.status.success() && done.stdout == b"forked\n", "{done:?}");
    let done = preloaded("live");
    assert!(done.status.success(), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stderr).contains("(images) was disposed of with 1 live blocks"), "{done:?}");

    let link = |source: &Path, name: &str| {
        let linked = scratch.file(name);
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-g", "-fno-builtin", "-D_GNU_SOURCE", "-pthread", "-I"]).arg(headers()).arg("-o").arg(&linked);
        let built = cc.arg(source).arg(&library).arg("-Wl,-rpath").arg(library.parent().unwrap()).output().unwrap();
        assert!(built.status.success(), "{built:?}");
        linked
    };
    // The ledger in the program has the arena of a block as its heap.
    let asks = scratch.write("asks.c", ASKS);
    let asked = plain_command(link(&asks, "asks")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&asked.stdout), "images 300\n", "{asked:?}");

    let linked = link(&headers().join("../fixtures/programs/labelled_arenas.c"), "linked");
    let (outcome, recording) = Job::new([&linked]).recorded(&scratch);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    recording.assert_whole();
    assert_eq!(recorded(&recording, "arena"), printed(&outcome));
}

/// Builds the allocator's library beside the command under test.
pub(crate) fn allocator() -> PathBuf {
    let target = Path::new(HEAPLEDGER).ancestors().nth(2).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--offline", "--profile", "preload", "--package", "heapledger-heap-preload"]);
    let done = cargo.arg("--target-dir").arg(target).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    target.join("preload/libheapledger_allocator.so")
}

/// A recording of a program over our allocator has the same figures as over malloc.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn arenas_of_the_allocator_are_recorded() {
    let scratch = Scratch::new();
    let library = allocator();
    let job = |how: &str| Job::fixture("labelled_arenas", how).variable("LD_PRELOAD", &library);
    let (outcome, recording) = job("").recorded(&scratch);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    recording.assert_whole().assert_adds_up();
    assert_eq!(recorded(&recording, "arena"), printed(&outcome));

    let (outcome, _) = job("live").recorded(&scratch);
    assert_eq!(outcome.status.signal(), Some(6), "{outcome:?}");
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("(images) was disposed of with 1 live blocks"));
}

/// A program, or a hook, asks the allocator below through the hook table.
#[test]
fn the_hook_table_leads_to_the_allocators_own_answers() {
    const ASKS: &str = r#"
#include <heapledger/hooks.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    const heapledger_functions *functions = heapledger_find_hooks()->program;
    char *block = malloc(3000);
    heapledger_statistics total = {0};
    heapledger_bin_statistics *bins = calloc(functions->statistics_bins() + 1, sizeof *bins);
    functions->statistics(&total, bins);
    heapledger_light_statistics light = {0};
    functions->statistics_light(&light);
    heapledger_pointer_info info = {0};
    functions->pointer_info(block + 2999, &info);
    int is_within = total.mapped >= total.allocated + total.waste + total.dirty + total.bookkeeping;
    int is_the_block = info.address == (uint64_t)block && info.bytes == functions->malloc_usable_size(block);
    heapledger_statistics before = {0}, after = {0};
    functions->statistics(&before, NULL);
    char *volatile counted = malloc(100);
    free(counted);
    functions->statistics(&after, NULL);
    functions->reset_randomisation(true);
    int rising = 0;
    char *last = malloc(208);
    for (int at = 0; at < 100; at++) {
        char *next = malloc(208);
        rising += next > last;
        last = next;
    }
    printf("%d %d ", after.operations == before.operations + 2 && light.operations > 0, rising < 80);
    printf("%d %d %d %u\n", is_within && total.allocated > 3000 && total.arenas == 1,
        functions->statistics_bins() > 20 && bins[0].size == 16 && light.allocated >= total.allocated,
        is_the_block, info.kind);
    free(block);
}
"#;
    let scratch = Scratch::new();
    let (source, asks) = (scratch.write("asks.c", ASKS), scratch.file("asks"));
    let done = Command::new("cc").arg("-I").arg(headers()).arg("-o").arg(&asks).arg(source).status().unwrap();
    assert!(done.success());
    let file = scratch.file("asks.hl");
    let told = |allocator: &str| {
        let words = ["record", "--quiet", "--force", "--allocator", allocator, "-o"].map(OsStr::new);
        let words = words.into_iter().chain([file.as_os_str(), "--".as_ref(), asks.as_os_str()]);
        let outcome = heapledger(words);
        assert!(outcome.status.success(), "{outcome:?}");
        outcome.text()
    };
    assert_eq!(told("heapledger"), "1 1 1 1 1 1\n");
    // glibc's does not know.
    assert_eq!(told("system"), "0 0 0 0 0 0\n");
}

/// Purges are in the recording and in exports, and the program's own hook is called as ever.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn purges_of_the_allocator_are_recorded() {
    let scratch = Scratch::new();
    let job = Job::fixture("labelled_arenas", "purges").variable("LD_PRELOAD", allocator());
    let (outcome, recording) = job.recorded(&scratch);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    let told = outcome.printed_objects().remove(0);
    assert!(number(&told, "purges") > 0 && number(&told, "pages") >= 1900, "{told}");

    // The process may have purged before the program set its hook, or after.
    let exported = |format: &str, name: &str| -> Value {
        let file = scratch.file(name);
        let words = ["export", "--to", format, "-o"].map(OsStr::new);
        let done = heapledger(words.into_iter().chain([file.as_os_str(), recording.path.as_os_str()]));
        assert!(done.status.success(), "{done:?}");
        serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
    };
    let sum = |pages: &mut dyn Iterator<Item = &Value>| pages.map(|pages| pages.as_i64().unwrap()).sum::<i64>();
    let firefox = exported("firefox", "firefox.json");
    let markers = firefox["threads"][0]["markers"]["data"].as_array().unwrap();
    let of_images = || markers.iter().filter(|marker| marker["label"] == "images");
    assert!(of_images().count() > 0, "{markers:?}");
    assert!(of_images().all(|marker| marker["type"] == "PurgeArena" && marker["caller"].is_string()));
    let pages = sum(&mut markers.iter().map(|marker| &marker["pages"]));
    assert!(pages >= number(&told, "pages"), "{pages} {told}");
    let chrome = exported("chrome", "chrome.json");
    let slices: Vec<_> =
        chrome["traceEvents"].as_array().unwrap().iter().filter(|event| event["name"] == "purge").collect();
    assert_eq!(slices.len(), markers.len());
    assert_eq!(sum(&mut slices.iter().map(|slice| &slice["args"]["pages"])), pages);
    let texts = annotations(&recording);
    assert!(texts.iter().any(|text| text.starts_with("arena images purged of ")), "{texts:?}");
}

/// The arenas of Rust programs are those of the recorder, too.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn arenas_of_rust_programs_are_recorded() {
    let scratch = Scratch::new();
    let program = example("arenas");
    let bare = Job::new([&program]).bare();
    assert_eq!(bare.text(), "{\"images\": [4, 1550]}\n", "{bare:?}");
    let (outcome, recording) = Job::new([&program]).recorded(&scratch);
    assert_eq!((outcome.status, outcome.text()), (exited(0), bare.text()));
    assert_eq!(recorded(&recording, "arena"), printed(&outcome));
}

/// The header compiles as C99 and C++11, with all warnings.
#[test]
fn the_header_is_c_and_cpp() {
    let scratch = Scratch::new();
    let text = "#include <heapledger/arena.h>\n#include <heapledger/hooks.h>\n\
                heapledger_arena_params params = HEAPLEDGER_ARENA_PARAMS(\"label\");\n";
    for (compiler, standard, name) in [("cc", "-std=c99", "uses.c"), ("c++", "-std=c++11", "uses.cpp")] {
        let source = scratch.write(name, text);
        let options = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I"];
        let done = Command::new(compiler).arg(standard).args(options).arg(headers()).arg(&source).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    // Programs that link nothing run without arenas.
    let alone = plain_command(build("labelled_arenas", Build::Program)).output().unwrap();
    assert_eq!(alone.stdout, b"no arenas\n");
}
