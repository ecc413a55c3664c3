//! Whose memory it is: rows are called by the program's own functions.

use serde_json::Value;

use crate::harness::{Job, Recording, Scratch, number, program};

/// The row of a function, and by what that allocates.
#[track_caller]
fn row<'a>(table: &'a Value, function: &str) -> (&'a Value, &'a str) {
    let rows = table["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["function"] == function).unwrap_or_else(|| panic!("{function}: {table:#}"));
    (row, row["via"]["function"].as_str().unwrap_or_default())
}

fn owners() -> (Scratch, Recording) {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("owners", "").recorded(&scratch);
    (scratch, recording)
}

#[test]
fn rows_name_own_functions_and_what_they_call() {
    let (_scratch, recording) = owners();
    let top = recording.ask("top", &["--total"]);
    assert_eq!(top["by"], "owner");
    for (function, via, blocks) in [
        ("store::by_wrapper", "xmalloc", 10),
        ("store::by_helper", "Pool::alloc", 10),
        ("store::by_container", "std::vector::reserve", 1),
        ("store::by_map", "std::map::operator[]", 10),
        ("store::by_itself", "", 10),
    ] {
        let (row, found) = row(&top, function);
        assert_eq!((found, number(row, "blocks")), (via, blocks), "{row:#}");
        assert!(row["file"].as_str().unwrap().ends_with("/owners.cpp") && number(row, "line") > 0, "{row:#}");
        assert_eq!((&row["owner"]["function"], &row["owner"]["line"]), (&row["function"], &row["line"]), "{row:#}");
    }
    // Libraries are where they were: under the functions that are no allocators.
    let functions = recording.ask("top", &["--total", "--by", "function"]);
    let (reserve, _) = row(&functions, "std::vector::reserve");
    assert_eq!(reserve["owner"]["function"], "store::by_container", "{reserve:#}");
    // A stack begins with its owner, too.
    let leaks = recording.ask("leaks", &[]);
    let found = leaks["rows"].as_array().unwrap().iter().filter(|row| row["owner"]["function"] == "store::by_helper");
    assert_eq!(found.map(|row| row["function"].as_str().unwrap()).collect::<Vec<_>>(), ["Pool::alloc"], "{leaks:#}");
}

/// A wrapper that is not called like one, and code that is not the program's.
#[test]
fn wrappers_are_declared() {
    let (_scratch, recording) = owners();
    let plain = recording.ask("top", &["--total"]);
    assert_eq!(row(&plain, "store::by_itself").1, "");
    let declared = recording.ask("top", &["--total", "--wrapper", "store::by_*", "--wrapper", "std::"]);
    let (main, _) = row(&declared, "main");
    assert_eq!(number(main, "blocks"), 41, "{declared:#}");
    assert_eq!(declared["total"], plain["total"]);
}

#[test]
fn rows_are_of_lines_files_and_processes() {
    let (_scratch, recording) = owners();
    let whole = recording.ask("top", &["--total"])["total"].clone();
    for by in ["owner", "line", "file", "process"] {
        let table = recording.ask("top", &["--total", "--by", by, "-n", "0"]);
        let sum: i64 = table["rows"].as_array().unwrap().iter().map(|row| number(row, "bytes")).sum();
        assert_eq!((&table["total"], sum), (&whole, number(&whole, "bytes")), "{by}: {table:#}");
    }
    let processes = recording.ask("top", &["--total", "--by", "process"]);
    assert_eq!(processes["rows"][0]["pid"], recording.processes()[0]["pid"], "{processes:#}");
}

/// The text of a table: a function, its place, and what it calls.
#[test]
fn texts_say_via_what() {
    let (_scratch, recording) = owners();
    let shown = |words: &[&str]| {
        let file = recording.path.to_str().unwrap();
        let outcome = crate::harness::heapledger([words, &[file]].concat());
        assert!(outcome.status.success(), "{outcome:?}");
        String::from_utf8(outcome.stdout).unwrap()
    };
    let line = |text: &str, of: &str| text.lines().find(|line| line.contains(of)).unwrap_or_default().to_owned();
    let top = shown(&["top", "--total"]);
    let container = line(&top, "store::by_container");
    assert!(container.contains("owners.cpp:") && container.ends_with(", via vector::reserve"), "{top}");
    assert!(!line(&top, "store::by_itself").contains("via"), "{top}");
    assert!(line(&shown(&["top", "--total", "--by", "line"]), "store::by_map").contains("owners.cpp:"), "{top}");
    let files = shown(&["top", "--total", "--by", "file"]);
    assert_eq!(files.lines().filter(|line| line.contains("owners.cpp")).count(), 1, "{files}");
    // A stack begins with the program's own code, unless all of it is asked for.
    let [own, all] = [&["leaks", "-n", "0"][..], &["leaks", "-n", "0", "--frames", "all"]].map(shown);
    assert!(own.contains("via xmalloc") == all.contains("by_wrapper") && own.contains(", via Pool::alloc"), "{own}");
    assert!(!own.lines().any(|line| line.contains("  Pool::alloc ")), "{own}");
    assert!(all.lines().any(|line| line.contains("  Pool::alloc ")), "{all}");
}

/// What a Rust program asks of its language's containers is its own.
#[test]
fn of_rust_containers() {
    let scratch = Scratch::new();
    let (_, recording) = Job::new([program("growth").to_str().unwrap(), "20"]).recorded(&scratch);
    let top = recording.ask("top", &["--total"]);
    // Four threads, 20 rounds: a vector that grows nine times, and three blocks.
    for (function, via, blocks) in [("growth::grow", "Vec", 4 * 20 * 9), ("growth::round", "", 4 * 20 * 3)] {
        let (row, found) = row(&top, function);
        assert!(found.contains(via) && number(row, "blocks") == blocks, "{row:#}");
        assert!(row["file"].as_str().unwrap().ends_with("growth.rs"), "{row:#}");
    }
}
