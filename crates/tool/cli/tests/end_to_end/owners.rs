//! Owners of memory: rows are named after the program's own functions.

use serde_json::Value;

use crate::harness::{Job, Recording, Scratch, heapledger, installed, number, program, skipped};

/// Returns the row of a function, and what it calls to allocate.
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
#[ignore = "it takes long; `.ci/run` runs it"]
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
    // By function, rows are the innermost functions that are not allocators, including those of
    // libraries.
    let functions = recording.ask("top", &["--total", "--by", "function"]);
    let (reserve, _) = row(&functions, "std::vector::reserve");
    assert_eq!(reserve["owner"]["function"], "store::by_container", "{reserve:#}");
    // Each row can be selected by its name.
    for (function, blocks) in [("store::by_wrapper", 10), ("store::by_container", 1), ("std::vector::reserve", 1)] {
        let selected = recording.ask("top", &["--total", "--allocated-by", function]);
        assert_eq!(number(&selected["total"], "blocks"), blocks, "{function}: {selected:#}");
        let others = recording.ask("top", &["--total", "--not-allocated-by", function]);
        assert_eq!(number(&others["total"], "blocks"), number(&top["total"], "blocks") - blocks, "{function}");
    }
    // A stack begins with its owner, too.
    let leaks = recording.ask("leaks", &[]);
    let found = leaks["rows"].as_array().unwrap().iter().filter(|row| row["owner"]["function"] == "store::by_helper");
    assert_eq!(found.map(|row| row["function"].as_str().unwrap()).collect::<Vec<_>>(), ["Pool::alloc"], "{leaks:#}");
}

/// A wrapper without a typical name, and code that is not the program's.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
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
#[ignore = "it takes long; `.ci/run` runs it"]
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

/// The text of a table: a function, its location, and what it calls.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
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
    // A stack begins with the program's own code, unless all frames are asked for.
    let [own, all] = [&["leaks", "-n", "0"][..], &["leaks", "-n", "0", "--frames", "all"]].map(shown);
    assert!(own.contains("via xmalloc") == all.contains("by_wrapper") && own.contains(", via Pool::alloc"), "{own}");
    assert!(!own.lines().any(|line| line.contains("  Pool::alloc ")), "{own}");
    assert!(all.lines().any(|line| line.contains("  Pool::alloc ")), "{all}");
}

/// A Rust program owns the memory that it requests from its language's containers.
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

/// The functions of the fixture `wrappers` that own blocks, with the rule that finds wrappers.
const WRAPPED: [(&str, i64); 9] = [
    ("first", 20),
    ("second", 20),
    ("third", 20),
    ("fourth", 20),
    ("sum", 40),
    ("inside", 40),
    ("half", 40),
    ("large", 40),
    ("rare", 30),
];

/// Small functions that have many callers, and nearly all of whose calls return a block, are found.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn wrappers_are_found() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("wrappers", "").recorded(&scratch);
    let top = recording.ask("top", &["--total", "-n", "0"]);
    for (function, blocks) in WRAPPED {
        let (row, via) = row(&top, function);
        assert_eq!(number(row, "blocks"), blocks, "{top:#}");
        assert!(["", "take", "make"].contains(&via) && via.is_empty() == (blocks != 20), "{row:#}");
    }
    assert_eq!(number(&top, "rows_all"), WRAPPED.len() as i64, "{top:#}");
    // Neither this question nor earlier ones change the owner of a block.
    for filter in [&["--function", "make"][..], &["--process", "wrappers"], &["--size", "40"]] {
        let some = recording.ask("top", &[&["--total", "-n", "0"], filter].concat());
        assert!(some["rows"].as_array().unwrap().iter().all(|row| row["owner"]["function"] != "take"), "{some:#}");
        assert_eq!(row(&some, "first").0["owner"], row(&top, "first").0["owner"], "{some:#}");
    }
}

/// Without names, functions are distinguished by unwind information, and the same ones are
/// wrappers.
#[test]
fn wrappers_of_stripped_programs_are_found() {
    let scratch = Scratch::new();
    let stripped = scratch.path().join("wrappers");
    let strip = std::process::Command::new("strip").arg(program("wrappers")).arg("-o").arg(&stripped).status();
    assert!(strip.expect("strip, of binutils").success());
    let (_, recording) = Job::new([stripped]).recorded(&scratch);
    let top = recording.ask("top", &["--total", "-n", "0"]);
    let rows = top["rows"].as_array().unwrap();
    let mut blocks: Vec<i64> = rows.iter().map(|row| number(row, "blocks")).collect();
    let mut expected = WRAPPED.map(|(_, blocks)| blocks);
    blocks.sort_unstable();
    expected.sort_unstable();
    assert_eq!(blocks, expected, "{top:#}");
    for row in rows {
        assert!(row["function"].as_str().unwrap().starts_with("wrappers+0x"), "{row:#}");
        let code = number(&row["unnamed"], "code_bytes");
        assert_eq!(row["via"].is_object(), number(row, "blocks") == 20, "{row:#}");
        assert!((10..2000).contains(&code), "{row:#}");
    }
}

/// A recording whose recorder was killed has no totals: only the stacks are available.
#[test]
fn wrappers_of_half_a_recording_are_found() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("wrappers", "").recorded(&scratch);
    let whole = std::fs::read(&recording.path).unwrap();
    // Without its last part the recording has no totals.
    let half = scratch.write("half.hl", &whole[..whole.len() - 64]);
    let half = Recording { path: half, ..recording };
    let top = half.ask("top", &["--total", "-n", "0"]);
    assert_eq!(row(&top, "first").1, "make", "{top:#}");
}

/// A project can declare functions in `heapledger.toml`.
#[test]
fn projects_declare_functions() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("wrappers", "").recorded(&scratch);
    let inside = scratch.path().join("repository/src");
    std::fs::create_dir_all(&inside).unwrap();
    let ask = |text: &str, file: &str, home: &str| {
        let file = scratch.path().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        let command = env!("CARGO_BIN_EXE_heapledger");
        let mut command = std::process::Command::new(command);
        command.args(["top", "--total", "--json", "-n", "0"]).arg(&recording.path).current_dir(&inside);
        let outcome = command.env("XDG_CONFIG_HOME", scratch.path().join(home)).output().unwrap();
        std::fs::remove_file(&file).unwrap();
        outcome
    };
    let functions = |outcome: &std::process::Output| {
        assert!(outcome.status.success(), "{outcome:?}");
        let top: Value = serde_json::from_slice(&outcome.stdout).unwrap();
        let rows = top["rows"].as_array().unwrap().iter();
        rows.map(|row| row["function"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let text = "wrappers = [\"large\"]\nown = [\"take\"]\n";
    let usual = functions(&ask(text, "elsewhere/heapledger.toml", "none"));
    assert!(usual.contains(&"large".to_owned()) && !usual.contains(&"take".to_owned()), "{usual:?}");
    std::fs::create_dir(scratch.path().join("repository/.git")).unwrap();
    for (file, home) in [
        ("repository/src/heapledger.toml", "none"),
        ("repository/heapledger.toml", "none"),
        ("home/heapledger/heapledger.toml", "home"),
    ] {
        let found = functions(&ask(text, file, home));
        assert!(!found.contains(&"large".to_owned()) && found.contains(&"take".to_owned()), "{file}: {found:?}");
    }
    assert_eq!(functions(&ask(text, "heapledger.toml", "none")), usual, "beyond the repository");
    let outcome = ask("own = []\nwraper = []\n", "repository/heapledger.toml", "none");
    let told = String::from_utf8_lossy(&outcome.stderr);
    assert_eq!(outcome.status.code(), Some(2), "{told}");
    let place = "repository/heapledger.toml`: line 2: unknown field `wraper`";
    assert!(told.contains(place) && told.contains("hint: "), "{told}");
}

/// The report after `record` finds wrappers, too.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn reports_are_by_owner() {
    let scratch = Scratch::new();
    let job = || Job::fixture("wrappers", "").with_report();
    let told = |outcome: &crate::harness::Outcome| String::from_utf8_lossy(&outcome.stderr).into_owned();
    let (outcome, _) = job().recorded(&scratch);
    assert!(told(&outcome).contains("large") && !told(&outcome).contains("  take"), "{}", told(&outcome));
    let (outcome, _) = job().option("--wrapper=large").recorded(&scratch);
    assert!(told(&outcome).contains("via large") && !told(&outcome).contains("  large"), "{}", told(&outcome));
}

/// The breakdowns that only events tell.
pub(crate) const OF_EVENTS: [&str; 3] = ["thread", "process", "size"];

/// Rows have the same contents and names in every verb.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn every_verb_has_the_same_rows() {
    let scratch = Scratch::new();
    let (_, recording) = Job::new([program("growth").to_str().unwrap(), "20"]).recorded(&scratch);
    let of_sites = ["owner", "line", "file", "function", "site", "stack", "module", "context", "heap", "type"];
    let sum = |verb: &str, by: &str, figure: &str| {
        let table = recording.ask(verb, &["--by", by, "-n", "0"]);
        assert_eq!(table["by"], by, "{verb}: {table:#}");
        let rows = table["rows"].as_array().unwrap();
        assert_eq!(number(&table, "rows_all"), rows.len() as i64, "{verb} --by {by}");
        rows.iter().map(|row| number(row, figure)).sum::<i64>()
    };
    for (verb, figure) in [("top", "bytes"), ("leaks", "blocks"), ("temporary", "temporary")] {
        let whole = number(&recording.ask(verb, &[])["total"], figure);
        for by in of_sites.into_iter().chain(OF_EVENTS) {
            assert_eq!(sum(verb, by, figure), whole, "{verb} --by {by}");
        }
    }
    let whole = number(&recording.ask("reallocations", &[])["total"], "reallocations");
    assert!(whole > 0);
    let held = number(&recording.ask("sizes", &[])["total"], "bytes");
    for by in of_sites.into_iter().chain(OF_EVENTS) {
        assert_eq!(sum("reallocations", by, "reallocations"), whole, "reallocations --by {by}");
        assert_eq!(sum("sizes", by, "bytes"), held, "sizes --by {by}");
    }
    // A block has one size.
    let sizes = recording.ask("sizes", &["--by", "size", "-n", "0"]);
    for row in sizes["rows"].as_array().unwrap() {
        let [class] = &row["classes"].as_array().unwrap()[..] else { panic!("{row:#}") };
        assert_eq!(class["bytes"], row["bytes"], "{row:#}");
        assert!(row["part"].as_str().unwrap().contains(" bytes"), "{row:#}");
    }
    // Several stacks with the same context are one row.
    let rows = |by| number(&recording.ask("reallocations", &["--by", by]), "rows_all");
    assert!(rows("context") < rows("site"), "{} contexts", rows("context"));
}

/// Checks the first rows of programs of Debian, with the functions that they call to allocate, and
/// that functions that allocate for others have no rows.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn first_rows_of_real_programs() {
    let scratch = Scratch::new();
    let json: Vec<String> = (0..2000).map(|i| format!("{{\"id\": {i}, \"tags\": [\"a{i}\", \"b\"]}}")).collect();
    let json = scratch.write("big.json", format!("[{}]", json.join(", ")).as_bytes());
    let variables: String = (0..5000).map(|i| format!("v{i} = {i}\n")).collect();
    let variables = scratch.write("Makefile", format!("{variables}all:\n").as_bytes());
    let (json, variables) = (json.to_str().unwrap(), variables.to_str().unwrap());
    let hash = "typeset -A h; for i in {1..3000}; do h[k$i]=v$i; done";
    let arrays = "my %h; for (1..20000) { $h{\"k$_\"} = [$_, 1]; }";
    let module = ["--port", "0", "--save", "", "--loadmodule", "/nonexistent"];
    // Joins words of lines: functions of the libraries `string` and `table`, called by their
    // neighbours here.
    let script = "local t = {} for i = 1, 20000 do t[i] = ('line %d of many'):format(i):rep(3, ',') end";
    let script = scratch.write("script.lua", script.as_bytes());
    let empty = scratch.write("empty.c", b"int main(void) { return 0; }");
    let (script, empty) = (script.to_str().unwrap(), empty.to_str().unwrap());
    for (name, arguments, first, via, passed_over) in [
        ("jq", &["length", json][..], "jv_parser_next", "", &["jv_mem_alloc", "jv_string_sized", "jv_array_sized"][..]),
        ("zsh", &["-f", "-c", hash], "createparam", "zshcalloc", &["zalloc", "zshcalloc", "ztrdup"]),
        ("make", &["-f", variables], "define_variable_in_set", "xcalloc", &["xmalloc", "xcalloc", "hash_init"]),
        ("perl", &["-e", arrays], "Perl_av_make", "Perl_more_sv", &["Perl_safesysmalloc", "Perl_more_sv"]),
        ("redis-server", &module, "aeCreateEventLoop", "zmalloc", &["zmalloc", "zcalloc", "listCreate", "dictCreate"]),
        ("lua5.4", &[script], "", "luaL_pushresult", &["lua_pushlstring", "luaL_pushresult", "luaL_buffinitsize"]),
        (
            "gcc",
            &["-c", empty, "-o", "/dev/null"],
            "et_new_tree",
            "xmalloc",
            &["xmalloc", "xcalloc", "ggc_internal_alloc"],
        ),
        ("sqlite3", &[":memory:", "select 1"], "", "", &["sqlite3Malloc", "sqlite3DbMallocRaw", "sqlite3DbMallocZero"]),
    ] {
        let Some(program) = installed(name) else { continue };
        let command = std::iter::once(program.to_str().unwrap()).chain(arguments.iter().copied());
        let (_, recording) = Job::new(command).recorded(&scratch);
        let top = recording.ask("top", &["-n", "0"]);
        let rows = top["rows"].as_array().unwrap();
        let functions: Vec<&str> = rows.iter().map(|row| row["function"].as_str().unwrap()).collect();
        assert!(first.is_empty() || functions[0] == first, "{name}: {:#}", rows[0]);
        assert!(via.is_empty() || rows[0]["via"]["function"] == via, "{name}: {:#}", rows[0]);
        assert!(!functions.iter().any(|function| passed_over.contains(function)), "{name}: {functions:?}");
        // A function without a name has at least a size.
        for row in rows.iter().filter(|row| row["function"].as_str().unwrap().starts_with(&format!("{name}+0x"))) {
            assert!(number(&row["unnamed"], "code_bytes") > 0, "{name}: {row:#}");
        }
    }
}

/// A C++ program that leaves memory to its containers: rows are its functions, each separately.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn first_rows_of_a_program_in_cpp() {
    if installed("c++").is_none() {
        return;
    }
    let scratch = Scratch::new();
    let (_, recording) = Job::new([program("indexer").to_str().unwrap(), "500"]).recorded(&scratch);
    let top = recording.ask("top", &[]);
    for (at, (function, via)) in
        [("tokenize", "std::vector::push_back"), ("Index::add", "std::")].into_iter().enumerate()
    {
        let row = &top["rows"][at];
        assert_eq!(row["function"], function, "{row:#}");
        assert!(row["via"]["function"].as_str().unwrap().starts_with(via), "{row:#}");
        assert!(row["file"].as_str().unwrap().ends_with("indexer.cpp"), "{row:#}");
    }
}

/// Lua with its names: its libraries own what they make their interpreter allocate.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn first_rows_of_a_program_with_lua() {
    let library = "/usr/lib/x86_64-linux-gnu/liblua5.4.a";
    if !std::path::Path::new(library).exists() {
        return skipped("liblua5.4-dev is not installed");
    }
    let scratch = Scratch::new();
    let (source, program) = (scratch.write("host.c", HOST.as_bytes()), scratch.file("host"));
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-O1", "-g", "-I/usr/include/lua5.4"]).arg(source).arg("-o").arg(&program);
    assert!(compiler.args([library, "-lm", "-ldl"]).status().unwrap().success());
    let (_, recording) = Job::new([program]).recorded(&scratch);
    let top = recording.ask("top", &["--total"]);
    for (at, (function, via)) in [("str_rep", "luaL_"), ("repeat", "lua_pushlstring")].into_iter().enumerate() {
        let row = &top["rows"][at];
        assert_eq!(row["function"], function, "{row:#}");
        assert!(row["via"]["function"].as_str().unwrap().starts_with(via), "{row:#}");
    }
}

/// A program that makes Lua create strings, with a function of its own for scripts.
const HOST: &str = r#"
#include <lauxlib.h>
#include <lualib.h>
#include <string.h>

static int repeat(lua_State *lua) {
    char text[300];
    memset(text, 'x', sizeof text);
    lua_pushlstring(lua, text, 200 + lua_tointeger(lua, 1) % 100);
    return 1;
}

int main(void) {
    lua_State *lua = luaL_newstate();
    luaL_openlibs(lua);
    lua_register(lua, "own", repeat);
    int failed = luaL_dostring(lua, "local t = {} for i = 1, 999, 2 do t[i] = ('abc'):rep(i + 99) t[i + 1] = own(i) end");
    lua_close(lua);
    return failed;
}
"#;

/// Flame graphs fold the frames that lead to the program's own code, state the share that they
/// show, and mark own code by its colour.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn pictures_are_of_the_programs_own_code() {
    if installed("c++").is_none() {
        return;
    }
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("owners", "").recorded(&scratch);
    let draw = |options: &[&str]| {
        let words = ["flame", recording.path.to_str().unwrap(), "-o", "-"];
        let outcome = heapledger(words.iter().chain(options));
        assert!(outcome.status.success(), "{outcome:?}");
        outcome.text()
    };
    let folded = draw(&[]);
    assert!(folded.contains("<title>[") && !folded.contains("__libc_start_main"), "{folded}");
    for text in ["owners: ", " live at the peak", "store::by_wrapper", "vector::reserve"] {
        assert!(folded.contains(text), "{text}: {folded}");
    }
    let all = draw(&["--frames", "all"]);
    assert!(all.contains("__libc_start_") && !all.contains("<title>["), "{all}");
    assert!(draw(&["--total", "--metric", "blocks"]).contains("allocated in all"), "{folded}");
    // In the program's own code, red, the first channel, is the strongest.
    let color = |name: &str| -> Vec<u8> {
        let (_, frame) = folded.split_once(&format!("<title>{name}")).unwrap();
        let (_, rgb) = frame.split_once("rgb(").unwrap();
        rgb.split_once(')').unwrap().0.split(',').map(|channel| channel.parse().unwrap()).collect()
    };
    let (own, library) = (color("store::by_wrapper"), color("std::vector::reserve"));
    assert!(own[0] > own[2] && library[0] < library[1].max(library[2]), "{own:?} {library:?}");
}
