//! What C and C++ programs say of their memory: that measuring functions answer what the ledger has, to the byte.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::c::libheapledger;
use crate::harness::{Scratch, exited, headers, installed};

/// A program with libheapledger, compiled without a warning, whatever the options say.
fn build(compiler: &Path, options: &[&str], source: &str, prefix: &Path, into: &Path) -> PathBuf {
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-pedantic", "-Werror"]).args(options).arg("-I").arg(headers());
    command.arg("-o").arg(into).arg(headers().join("..").join(source));
    let library = prefix.join("lib").display().to_string();
    command.args([format!("-L{library}"), format!("-Wl,-rpath,{library}")]);
    command.args(["-Wl,--no-as-needed", "-lheapledger"]);
    let done = command.output().unwrap();
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success() && told.is_empty(), "{command:?}:\n{told}");
    into.to_path_buf()
}

/// Runs a program that says on standard error where measured and live bytes differ.
fn agrees(program: &Path, how: &str) {
    let done = Command::new(program).output().unwrap();
    assert_eq!(done.status, exited(0), "{how}: {}", String::from_utf8_lossy(&done.stderr));
}

const SIZES: &str = "fixtures/headers/sizes.cpp";

#[test]
fn what_is_measured_of_cpp_is_what_is_live() {
    let Some(compiler) = installed("g++") else { return };
    let scratch = Scratch::new();
    let prefix = libheapledger(&scratch);
    agrees(&build(&compiler, &["-std=c++17"], SIZES, &prefix, &scratch.file("sizes")), "g++");
}

#[test]
#[ignore = "a minute of compilers; .ci/run has it"]
fn what_is_measured_is_what_is_live_whatever_the_standard() {
    let scratch = Scratch::new();
    let prefix = libheapledger(&scratch);
    let mut ways: Vec<(&str, &[&str])> = vec![
        ("g++", &["-std=c++17", "-O1", "-D_GLIBCXX_DEBUG"]),
        ("g++", &["-std=c++14", "-O1", "-D_GLIBCXX_USE_CXX11_ABI=0"]),
        ("g++", &["-std=c++20", "-O3", "-fno-rtti", "-fno-exceptions"]),
        ("clang++", &["-std=c++17", "-O2", "-fno-rtti", "-fno-exceptions"]),
        ("clang++", &["-std=c++11", "-O0", "-stdlib=libc++"]),
        ("clang++", &["-std=c++20", "-O2", "-stdlib=libc++"]),
    ];
    for compiler in ["g++", "clang++"] {
        for options in [&["-std=c++11", "-O2"], &["-std=c++14", "-O0"], &["-std=c++17", "-O2"], &["-std=c++20", "-O1"]] {
            ways.push((compiler, options));
        }
    }
    for (compiler, options) in ways {
        let Some(compiler) = installed(compiler) else { continue };
        let how = format!("{} {options:?}", compiler.display());
        agrees(&build(&compiler, options, SIZES, &prefix, &scratch.file("sizes")), &how);
    }
}
