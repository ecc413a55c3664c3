//! The options of the preload library, and its functions beside those of malloc, in a program in C.

mod library;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use self::library::{compiled_with, is_installed, library, scratch};

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compiled_with("allocator_inspection.c", &scratch("inspection"), &[library()]))
}

fn command(options: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments).env("LD_PRELOAD", library()).env("HEAPLEDGER_ALLOCATOR_OPTIONS", options);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the program with options. Returns what it prints to stdout; it prints nothing to stderr.
fn run(options: &str, arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = command(options, arguments).output().unwrap();
    assert_eq!(text(&stderr), "", "{options} {arguments:?}");
    assert!(status.success(), "{options} {arguments:?}: {status}, {}", text(&stdout));
    text(&stdout)
}

#[test]
fn new_blocks_are_filled() {
    assert_eq!(run("junk", &["filled", "228"]), "filled\n");
    assert_eq!(run("4fJ2Q", &["filled", "228"]), "filled\n");
    assert_eq!(run("zero junk", &["filled", "0"]), "filled\n");
    assert_eq!(run("poison", &["filled", "-1"]), "filled\n");
    assert_eq!(run("", &["filled", "-1"]), "filled\n");
    assert_eq!(run("keyed", &["filled", "-1"]), "filled\n");
    assert_eq!(run("junk keyed", &["grown", "228"]), "grown\n");
    assert_eq!(run("zero", &["grown", "0"]), "grown\n");
    assert_eq!(run("junk 4P guard", &["grown", "228"]), "grown\n");
    assert_eq!(run("random guard thp=never 16f", &["filled", "-1"]), "filled\n");
}

#[test]
fn freed_blocks_are_poisoned_as_far_as_the_option_says() {
    assert_eq!(run("poison", &["poisoned", "100000000"]), "poisoned\n");
    assert_eq!(run("QQ", &["poisoned", "100000000"]), "poisoned\n");
    assert_eq!(run("poison=2", &["poisoned", "128"]), "poisoned\n");
    assert_eq!(run("J4Q", &["poisoned", "256"]), "poisoned\n");
}

#[test]
fn freed_huge_blocks_are_unmapped_instead() {
    assert_eq!(run("poison", &["unmapped"]), "unmapped\n");
}

#[test]
fn with_options_that_fill_wrong_frees_are_noticed() {
    let fails = |argument: &str| {
        let output = command("poison", &["misuse", argument]).output().unwrap();
        assert!(!output.status.success(), "{argument}");
        text(&output.stderr)
    };
    let stderr = fails("inside");
    assert!(stderr.starts_with("heapledger: free of an address that is not the start of a block: 0x"), "{stderr}");
    assert!(fails("stack").starts_with("heapledger: free of an address that is not a block: 0x"));
}

#[test]
fn the_order_of_fresh_memory_is_reset() {
    assert_eq!(run("", &["reset"]), "reset\n");
}

#[test]
fn memory_beyond_the_limit_is_refused() {
    for block in ["1000", "100000", "3000000"] {
        let printed = run("limit=64M", &["limited", block]);
        let (bytes, rest) = printed.strip_prefix("no memory after ").unwrap().split_once(" MiB\n").unwrap();
        assert!((40..64).contains(&bytes.parse::<u32>().unwrap()), "{block}: {printed}");
        assert_eq!(rest, "again\n", "{block}");
    }
}

#[test]
fn memory_that_is_free_in_the_allocator_is_not_beyond_the_limit() {
    assert_eq!(run("limit=64M", &["kept"]), "memory\n");
    assert_eq!(run("limit=39M", &["kept"]), "no memory\n");
}

#[test]
fn the_budget_for_dirty_pages_is_shifted() {
    let dirty_max = |options: &str| -> usize {
        let json = run(options, &["print", "1"]);
        let (_, rest) = json.split_once("\"dirty_max\":").unwrap();
        rest.split_once(',').unwrap().0.parse().unwrap()
    };
    let usual = dirty_max("");
    assert!(usual >= 1 << 20, "{usual}");
    assert_eq!(dirty_max("2F"), usual * 4);
    assert_eq!(dirty_max("dirty-shift=-3"), ((usual / 4096) >> 3) * 4096);
}

#[test]
fn blocks_are_handed_out_in_random_order() {
    assert_eq!(run("", &["ordered"]), "in order\n");
    assert_eq!(run("R", &["ordered"]), "in no order\n");
    assert_eq!(run("Rr", &["ordered"]), "in order\n");
}

#[test]
fn pages_beside_metadata_are_inaccessible() {
    assert_eq!(run("guard", &["guarded"]), "15 of 16 pages refused\n");
    let without = run("", &["guarded"]);
    assert!(without.ends_with("0 of 16 pages refused\n"), "{without}");
}

#[test]
fn real_programs_print_the_same_with_options() {
    let directory = scratch("programs_with_options");
    let python = "import json, threading\n\
                  d = [{str(i): [i, 'x' * (i % 99)]} for i in range(2000)]\n\
                  t = [threading.Thread(target=lambda: json.loads(json.dumps(d))) for _ in range(3)]\n\
                  [x.start() for x in t]; [x.join() for x in t]\n\
                  print(len(json.dumps(d)))";
    let programs = [
        ("perl", ["-e", "my %h; $h{$_} = 'x' x ($_ % 300) for 1..10000; print scalar keys %h"]),
        ("lua5.4", ["-e", "local t = {} for i = 1, 20000 do t[i] = {i, tostring(i)} end print(#t, t[777][2])"]),
        ("python3", ["-c", python]),
        ("bash", ["-c", "for i in {1..2000}; do a[i]=$i$i; done; echo ${#a[@]} $(echo ${a[77]} | wc -c)"]),
    ];
    for (program, arguments) in programs {
        if is_installed(program) {
            let alone = library::run(program, &arguments, &directory, None);
            for options in ["junk poison random guard thp=never", "zero Q 8f"] {
                let mut command = Command::new(program);
                command.args(arguments).env("LD_PRELOAD", library()).env("PYTHONMALLOC", "malloc");
                let with = command.env("HEAPLEDGER_ALLOCATOR_OPTIONS", options).output().unwrap();
                assert_eq!(text(&with.stderr), "", "{program}");
                assert_eq!(text(&with.stdout), text(&alone.stdout), "{program}");
                assert_eq!(with.status, alone.status, "{program}");
            }
        }
    }
}

#[test]
fn wrong_options_are_named() {
    let output = command("4x howdy,Z thp=yes", &["filled", "0"]).output().unwrap();
    assert!(output.status.success());
    assert_eq!(
        text(&output.stderr),
        "heapledger: HEAPLEDGER_ALLOCATOR_OPTIONS: `4x` is ignored: unknown option\n\
         heapledger: HEAPLEDGER_ALLOCATOR_OPTIONS: `howdy` is ignored: unknown option\n\
         heapledger: HEAPLEDGER_ALLOCATOR_OPTIONS: `thp=yes` is ignored: expected `thp=never` or `thp=default`\n"
    );
}

#[test]
fn statistics_are_printed_at_exit() {
    let output = command("stats-at-exit", &["filled", "-1"]).output().unwrap();
    let stderr = text(&output.stderr);
    assert!(stderr.starts_with("heapledger allocator, in bytes:\n        mapped "), "{stderr}");
    assert_eq!(text(&output.stdout), "filled\n");
}

#[test]
fn the_functions_of_the_header_answer() {
    run("", &["functions"]);
    run("poison guard random", &["functions"]);
    assert_eq!(run("", &["arena", "-1"]), "arena\n");
    assert_eq!(run("junk poison", &["arena", "228"]), "arena\n");
    assert_eq!(run("guard", &["foreign"]), "foreign\n");
    let json = run("", &["print", "1"]);
    assert!(json.starts_with("{\"mapped\":") && json.ends_with("]}\n"), "{json}");
    assert!(run("", &["print", "2"]).contains("\n# TYPE heapledger_allocator_dirty_bytes gauge\n"));
}

#[test]
fn the_functions_of_glibc_answer_for_this_allocator() {
    let output = command("", &["answers"]).output().unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(stdout.starts_with("mallinfo2: 1024, 1 of 5242880\nmallopt: 1 1 0\n<malloc version=\"1\">\n"), "{stdout}");
    assert!(stdout.contains("<total type=\"mmap\" count=\"1\" size=\"5242880\"/>\n"), "{stdout}");
    assert!(stdout.ends_with("</malloc>\nmalloc_info: 0, wrong options: 22\n"), "{stdout}");
    assert!(stderr.starts_with("heapledger allocator, in bytes:\n"), "{stderr}");
}
