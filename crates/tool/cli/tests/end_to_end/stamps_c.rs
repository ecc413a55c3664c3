//! Stamps of C and C++ programs: the headers compile whatever the compiler and the standard, change nothing of the program,
//! and are nothing where they are switched off.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Scratch, exited, headers, installed};

fn fixture(name: &str) -> PathBuf {
    headers().join("../fixtures/headers").join(name)
}

/// Compiles a fixture, without a warning. Panics with what the compiler says.
fn compile(compiler: &Path, options: &[&str], source: &str, into: &Path) {
    let mut command = Command::new(compiler);
    command.args(["-D_GNU_SOURCE", "-Wall", "-Wextra", "-pedantic", "-Werror"]).args(options);
    let done = command.arg("-I").arg(headers()).arg("-o").arg(into).arg(fixture(source)).output().unwrap();
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success() && told.is_empty(), "{command:?}:\n{told}");
}

/// Compiles a fixture in so many ways, and runs it: nobody observes.
fn compile_and_run(compiler: &str, source: &str, ways: &[&[&str]]) {
    let scratch = Scratch::new();
    let Some(compiler) = installed(compiler) else { return };
    for options in ways {
        let program = scratch.file("program");
        compile(&compiler, options, source, &program);
        let done = Command::new(&program).output().unwrap();
        assert_eq!(done.status, exited(0), "{} {options:?}", compiler.display());
        let said = if source.ends_with("pp") { "7 1\n" } else { "" };
        assert_eq!(String::from_utf8_lossy(&done.stdout), said, "{} {options:?}", compiler.display());
    }
}

const OFF: &str = "-DHEAPLEDGER_OFF";

#[test]
fn the_macros_compile_with_two_compilers_and_change_nothing() {
    for compiler in ["gcc", "clang"] {
        compile_and_run(compiler, "stamps.c", &[&["-std=c99", "-O2"], &["-std=c17", "-O0"], &["-std=c11", "-O2", OFF]]);
    }
    compile_and_run("g++", "stamps.cpp", &[&["-std=c++11", "-O2", "-fno-rtti"], &["-std=c++20", "-O0"]]);
    let free_of = ["-std=c++17", "-O2", "-fno-rtti", "-fno-exceptions"];
    compile_and_run("clang++", "stamps.cpp", &[&free_of, &["-std=c++20", "-O0", OFF]]);
}

#[test]
#[ignore = "half a minute of compilers; .ci/run has it"]
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

/// Switched off, a program has nothing of it: no symbol that it refers to, none that it defines.
#[test]
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
