//! The preload library, and programs that are run with it.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::{env, fs, io};

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap()
}

/// Returns the path of the library, which is built once, in its own profile.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("preload");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--offline", "--profile", "preload", "--package", "heapledger-heap-preload"]);
        cargo.arg("--target-dir").arg(&target).current_dir(root()).env_remove("CARGO_BUILD_BUILD_DIR");
        let output = cargo.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        target.join("preload/libheapledger_allocator.so")
    })
}

/// Returns an empty directory for a test.
pub(crate) fn scratch(name: &str) -> PathBuf {
    // The tests of other crates have theirs beside it.
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("heap").join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// True if a program is installed; says that the test is incomplete otherwise.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_there = env::split_paths(&path).any(|directory| directory.join(program).is_file());
    if !is_there {
        let may_skip = env::var_os("HEAPLEDGER_NO_SKIP").is_none_or(|value| value != "1");
        assert!(may_skip, "may not be skipped: {program} is not installed");
        let _ = writeln!(io::stderr(), "skipped: {program} is not installed");
    }
    is_there
}

/// Runs a program, with the library or without.
pub(crate) fn run(program: impl AsRef<OsStr>, arguments: &[&str], directory: &Path, with: Option<&Path>) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).env("PYTHONMALLOC", "malloc").env_remove("LD_LIBRARY_PATH");
    if let Some(library) = with {
        command.env("LD_PRELOAD", library);
    }
    command.output().unwrap()
}

pub(crate) fn compiled(source: &str, directory: &Path) -> PathBuf {
    compiled_with(source, directory, &[])
}

/// Compiles a program, and links it with libraries.
pub(crate) fn compiled_with(source: &str, directory: &Path, libraries: &[&Path]) -> PathBuf {
    let program = directory.join("program");
    let mut compiler = Command::new(if source.ends_with(".cpp") { "c++" } else { "cc" });
    compiler.args(["-O1", "-fno-builtin", "-w", "-pthread", "-I"]).arg(root().join("include")).arg("-o").arg(&program);
    let status = compiler.arg(root().join("fixtures/programs").join(source)).args(libraries).status().unwrap();
    assert!(status.success());
    program
}
