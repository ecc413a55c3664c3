//! Stamps of C and C++ programs: the headers compile with every compiler and standard, do not
//! change the program, are empty if they are switched off, and the stamps are in the program's own
//! ledger and in recordings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::c::libheapledger;
use crate::harness::{Job, Scratch, exited, headers, installed, plain_command};
use crate::stamps::recorded;

fn fixture(name: &str) -> PathBuf {
    headers().join("../fixtures/headers").join(name)
}

/// Compiles a fixture, without a warning. Panics with the compiler's messages.
fn compile(compiler: &Path, options: &[&str], source: &str, into: &Path) {
    let mut command = Command::new(compiler);
    command.args(["-D_GNU_SOURCE", "-Wall", "-Wextra", "-pedantic", "-Werror"]).args(options);
    let done = command.arg("-I").arg(headers()).arg("-o").arg(into).arg(fixture(source)).output().unwrap();
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success() && told.is_empty(), "{command:?}:\n{told}");
}

/// Compiles a fixture in several ways, and runs it without an observer.
fn compile_and_run(compiler: &str, source: &str, ways: &[&[&str]]) {
    let scratch = Scratch::new();
    let Some(compiler) = installed(compiler) else { return };
    for options in ways {
        let program = scratch.file("program");
        compile(&compiler, options, source, &program);
        let done = plain_command(&program).output().unwrap();
        assert_eq!(done.status, exited(0), "{} {options:?}", compiler.display());
        let said = if source.ends_with("pp") { "7 1\n" } else { "" };
        assert_eq!(String::from_utf8_lossy(&done.stdout), said, "{} {options:?}", compiler.display());
    }
}

const OFF: &str = "-DHEAPLEDGER_OFF";

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_macros_compile_with_two_compilers_and_change_nothing() {
    for compiler in ["gcc", "clang"] {
        compile_and_run(compiler, "stamps.c", &[&["-std=c99", "-O2"], &["-std=c17", "-O0"], &["-std=c11", "-O2", OFF]]);
    }
    compile_and_run("g++", "stamps.cpp", &[&["-std=c++11", "-O2", "-fno-rtti"], &["-std=c++20", "-O0"]]);
    let free_of = ["-std=c++17", "-O2", "-fno-rtti", "-fno-exceptions"];
    compile_and_run("clang++", "stamps.cpp", &[&free_of, &["-std=c++20", "-O0", OFF]]);
}

#[test]
#[ignore = "half a minute of compilers; .ci/run full has it"]
fn the_macros_compile_whatever_the_standard() {
    for compiler in ["gcc", "clang"] {
        for standard in ["-std=c99", "-std=c11", "-std=c17", "-std=gnu11"] {
            let ways: [&[&str]; 3] = [&[standard, "-O0"], &[standard, "-O2"], &[standard, "-O2", OFF]];
            compile_and_run(compiler, "stamps.c", &ways);
        }
    }
    for compiler in ["g++", "clang++"] {
        for standard in ["-std=c++11", "-std=c++14", "-std=c++17", "-std=c++20", "-std=gnu++17"] {
            let ways: [&[&str]; 4] = [
                &[standard, "-O0", "-fno-rtti"],
                &[standard, "-O2"],
                &[standard, "-O3", "-fno-exceptions"],
                &[standard, "-O2", OFF],
            ];
            compile_and_run(compiler, "stamps.cpp", &ways);
        }
    }
}

/// If stamps are switched off, a program neither refers to nor defines any symbol for them.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn switched_off_there_is_no_symbol() {
    let Some(nm) = installed("nm") else { return };
    let scratch = Scratch::new();
    for (compiler, source) in [("gcc", "stamps.c"), ("clang", "stamps.c"), ("g++", "stamps.cpp")] {
        let Some(compiler) = installed(compiler) else { continue };
        let symbols = |options: &[&str]| {
            let object = scratch.file("object.o");
            compile(&compiler, &[options, &["-c", "-O2"]].concat(), source, &object);
            let done = Command::new(&nm).arg(&object).output().unwrap();
            let text = String::from_utf8(done.stdout).unwrap();
            text.lines().filter(|line| line.contains("heapledger")).map(str::to_owned).collect::<Vec<_>>()
        };
        let (on, off) = (symbols(&[]), symbols(&[OFF]));
        assert!(on.iter().any(|line| line.ends_with("w heapledger_bridge_v1")), "{} {on:?}", compiler.display());
        assert_eq!(off, [""; 0], "{}", compiler.display());
    }
}

/// The stamps of a C program, as its own ledger lists them.
#[test]
#[ignore = "it builds libheapledger; `.ci/run` runs it"]
fn a_program_lists_its_usage_by_type() {
    let scratch = Scratch::new();
    let prefix = libheapledger(&scratch);
    let program = scratch.file("program");
    let options = [
        "-O1".to_owned(),
        "-Wl,--no-as-needed".to_owned(),
        format!("-L{}", prefix.join("lib").display()),
        "-lheapledger".to_owned(),
        format!("-Wl,-rpath,{}", prefix.join("lib").display()),
    ];
    compile(Path::new("cc"), &options.each_ref().map(String::as_str), "stamps.c", &program);
    let done = plain_command(&program).output().unwrap();
    assert_eq!(done.status, exited(0), "{done:?}");
    let said = String::from_utf8(done.stdout).unwrap();
    // Name, blocks, bytes.
    let row = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let line = line.unwrap_or_else(|| panic!("no {name} in\n{said}"));
        let numbers = line.split_whitespace().map(|word| word.trim_end_matches('%').parse::<f64>().unwrap());
        let numbers = numbers.collect::<Vec<_>>();
        (numbers[0] as u64, numbers[2] as u64)
    };
    assert_eq!(row("struct node"), (1, 16), "{said}");
    assert_eq!(row("[struct node]"), (1, 160), "{said}");
    // A reallocation keeps the stamp.
    assert_eq!(row("char"), (1, 120), "{said}");
    assert_eq!(row("late"), (1, 78), "{said}");
    assert_eq!(row("tracked"), (1, 500), "{said}");
    // Restamped, unknown, freed; freed twice.
    assert!(said.contains("answers 0 1 0 1\n"), "{said}");

    // The checks of the library.
    let options = [&options[..], &["-fno-builtin".to_owned(), "-O0".to_owned()]].concat();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    compile(Path::new("cc"), &options, "misuses.c", &program);
    let done = plain_command(&program).output().unwrap();
    let expected = "\
1: 100 bytes, 0 to 0, 2 times; malloc, free, free; 1 1 1
5: 10 bytes, 10 to 10, 1 times; malloc, free, once; 1 1 0
5: 20 bytes, 25 to 25, 1 times; malloc, live, once; 1 0 0
3 misuses, answers 0 2
";
    assert_eq!((done.status, String::from_utf8_lossy(&done.stdout)), (exited(0), expected.into()), "{done:?}");
    let told = String::from_utf8(done.stderr).unwrap();
    assert!(told.starts_with("double free of a block of 100 bytes, 2 times\n  freed by free at\n    drop\n"), "{told}");

    // The example, as docs/c.md shows it.
    compile(Path::new("c++"), &options, "../../examples/stamps.cpp", &program);
    let said = String::from_utf8(plain_command(&program).output().unwrap().stdout).unwrap();
    let page = std::fs::read_to_string(headers().join("../docs/c.md")).unwrap();
    assert!(page.contains(&format!("$ ./stamps\n{said}```")), "{said}");
}

/// The types that the macros give to the blocks of a C++ program, without run-time type
/// information, are in its recording.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_macros_tell_a_recording_the_types() {
    let scratch = Scratch::new();
    for (compiler, local, pair) in
        [("g++", "main()::Local", "space::Pair<int, char>"), ("clang++", "Local", "space::Pair<int, char>")]
    {
        let Some(compiler) = installed(compiler) else { continue };
        let program = scratch.file("program");
        compile(&compiler, &["-std=c++17", "-O1", "-fno-rtti", "-fno-exceptions"], "stamps.cpp", &program);
        let (outcome, recording) = Job::new([&program]).both(&scratch);
        assert_eq!(outcome.text(), "7 1\n");
        recording.assert_whole().assert_adds_up();
        // Blocks and bytes, by type.
        let mut types: BTreeMap<String, [i64; 2]> = BTreeMap::new();
        for (stamp, [blocks, bytes, ..]) in recorded(&recording.path) {
            let (name, place) = stamp.split_once('|').unwrap();
            assert!(!place.starts_with('0') && place.ends_with('|'), "{stamp}");
            let sum = types.entry(name.to_owned()).or_default();
            *sum = [sum[0] + blocks, sum[1] + bytes];
        }
        let expected = [
            // One element and two, each a row of three integers.
            (local, [2, 36]),
            (pair, [1, 8]),
            // Three pointers to functions; twelve integers in rows of four; four pointers.
            ("void (*)(int)", [1, 24]),
            ("int [4]", [1, 48]),
            ("int*", [1, 32]),
            ("const Point", [1, 8]),
            ("Late", [1, 1]),
            // One of them is placed in a block, which gets its stamp.
            ("Pooled", [3, 4 + 12 + 4104]),
            ("text", [1, 64]),
            ("double", [1, 8]),
            ("Kind", [1, 1]),
            ("Derived", [5, 5 * 16]),
            ("Base", [1, 8]),
        ];
        let spelled = |name: &str| name.replace(' ', "");
        let found: BTreeMap<String, [i64; 2]> = types.iter().map(|(name, sums)| (spelled(name), *sums)).collect();
        for (name, sums) in expected {
            assert_eq!(found.get(&spelled(name)), Some(&sums), "{}: {name} of {types:#?}", compiler.display());
        }
    }
}
