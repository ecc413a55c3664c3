//! The headers of what is infallible, in C and C++: over the C library's malloc.

use std::env;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SIGABRT: i32 = 6;
const STRICT: [&str; 5] = ["-O1", "-Wall", "-Wextra", "-pedantic", "-Werror"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap()
}

/// True if a compiler is installed; says that the test is incomplete otherwise.
fn is_installed(compiler: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_there = env::split_paths(&path).any(|directory| directory.join(compiler).is_file());
    if !is_there {
        let may_skip = env::var_os("HEAPLEDGER_NO_SKIP").is_none_or(|value| value != "1");
        assert!(may_skip, "may not be skipped: {compiler} is not installed");
        let _ = writeln!(std::io::stderr(), "skipped: {compiler} is not installed");
    }
    is_there
}

/// Compiles a program with all warnings as errors. `None` if the compiler is not installed.
fn compiled(compiler: &str, standard: &str, source: &Path) -> Option<PathBuf> {
    if !is_installed(compiler) {
        return None;
    }
    let name = source.file_stem().unwrap().to_str().unwrap();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{compiler}-{standard}"));
    let mut command = Command::new(compiler);
    command.args(STRICT).arg(format!("-std={standard}")).arg("-I").arg(root().join("include"));
    let output = command.arg(source).arg("-o").arg(&program).output().unwrap();
    assert!(output.status.success(), "{compiler} {standard}: {}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

/// Checks that a program ends by a signal after it has printed this.
fn aborts(program: &Path, arguments: &[&str], stdout: &str, size: &str) {
    let output = run(program, arguments);
    assert_eq!(output.status.signal(), Some(SIGABRT), "{arguments:?}: {:?}", output.status);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(printed, format!("out of memory: 0x{size} bytes requested\n"), "{arguments:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), stdout, "{arguments:?}");
}

const HALF: &str = "7fffffffffffffff";
const ALL: &str = "ffffffffffffffff";

#[test]
fn each_function_of_c_succeeds_or_ends_the_program() {
    let source = root().join("fixtures/programs/infallible.c");
    let compilers = [("gcc", "c99"), ("clang", "c11")];
    for program in compilers.iter().filter_map(|(compiler, standard)| compiled(compiler, standard, &source)) {
        assert_eq!(String::from_utf8_lossy(&run(&program, &[]).stdout), "done\n");
        for call in ["xmalloc", "xcalloc", "xrealloc", "xmemalign", "xmemdup"] {
            aborts(&program, &[call], "", HALF);
        }
        aborts(&program, &["xcalloc that overflows"], "", ALL);
        // No handler is asked for room that there cannot be.
        aborts(&program, &["free", "xcalloc that overflows"], "", ALL);
        let handled = format!("handler: 0x{HALF} bytes\n").repeat(3);
        aborts(&program, &["free", "xmalloc"], &handled, HALF);
        aborts(&program, &["again", "xmalloc"], "", HALF);
    }
}

#[test]
fn each_form_of_new_succeeds_throws_or_ends_the_program() {
    let source = root().join("fixtures/programs/infallible_new.cpp");
    let compilers = [("g++", "c++17"), ("clang++", "c++20")];
    for program in compilers.iter().filter_map(|(compiler, standard)| compiled(compiler, standard, &source)) {
        let output = run(&program, &[]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "new-handler\nnew-handler\ndone\n");
        for form in ["new", "new[]", "aligned new", "aligned new[]"] {
            aborts(&program, &[form], "", HALF);
        }
        let output = run(&program, &["new with a handler that throws"]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "new-handler\nnew-handler\ncaught\n");
        aborts(&program, &["new with a handler that leaves"], "new-handler\n", HALF);
        aborts(&program, &["a vector"], "", "7ffffffffffffffe");
        aborts(&program, &["an allocator"], "", ALL);
        aborts(&program, &["an allocator with a handler"], "", ALL);
        let output = run(&program, &["an odd alignment"]);
        assert_eq!(output.status.signal(), Some(SIGABRT));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "new: the alignment is not a power of two\n");
        assert_eq!(output.stdout, b"");
        let output = run(&program, &["a handler that throws"]);
        assert_eq!((output.status.signal(), &*output.stdout), (Some(SIGABRT), &b""[..]));
    }
}

/// A program of two files, which include the headers both, has one of each symbol.
#[test]
fn the_files_of_a_program_share_the_handler() {
    if !is_installed("gcc") || !is_installed("nm") {
        return;
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("two-files");
    std::fs::create_dir_all(&directory).unwrap();
    let header = "#include \"heapledger/infallible.h\"\n";
    let first = "static int stop(size_t size) { (void)size; heapledger_abort(\"stopped\"); }\n\
                 void set(void);\nvoid set(void) { heapledger_set_oom_handler(stop); }\n";
    let second = "void set(void);\nint main(void) { set(); return heapledger_xmalloc(SIZE_MAX / 2) != NULL; }\n";
    for (name, text) in [("first.c", first), ("second.c", second)] {
        std::fs::write(directory.join(name), format!("{header}{text}")).unwrap();
    }
    let mut command = Command::new("gcc");
    command.args(STRICT).arg("-I").arg(root().join("include")).current_dir(&directory);
    // The compiler sees that this request cannot be met.
    command.args(["-Wno-alloc-size-larger-than", "first.c", "second.c", "-o", "program"]);
    assert!(command.status().unwrap().success());
    let output = run(&directory.join("program"), &[]);
    assert_eq!(output.status.signal(), Some(SIGABRT));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "stopped\n");
    let symbols = Command::new("nm").arg(directory.join("program")).output().unwrap();
    let symbols = String::from_utf8_lossy(&symbols.stdout).into_owned();
    for name in ["heapledger_oom_size", "heapledger_oom_message", "heapledger_handle_oom"] {
        assert_eq!(symbols.lines().filter(|line| line.ends_with(&format!(" {name}"))).count(), 1, "{symbols}");
    }
}

/// A program in Rust with a part in C: the crate's definitions take the place of the header's weak
/// ones, so that one handler is called for both.
#[test]
fn c_and_rust_share_the_handler() {
    if !is_installed("gcc") || !is_installed("nm") {
        return;
    }
    const PART: &str = r#"
#include "heapledger/infallible.h"
void fail_in_c(void);
void fail_in_c(void) {
    void *volatile block = heapledger_xmalloc(SIZE_MAX / 2);
    (void)block;
}
"#;
    const MAIN: &str = r#"
unsafe extern "C" { fn fail_in_c(); }
extern "C" fn give_up(size: usize) -> i32 {
    println!("{size:#x} bytes");
    0
}
fn main() {
    heapledger_infallible::set_oom_handler(Some(give_up));
    // SAFETY: a function of this program without arguments.
    unsafe { fail_in_c() };
}
"#;
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mixed");
    std::fs::create_dir_all(directory.join("src")).unwrap();
    let manifest = format!(
        "[package]\nname = \"mixed\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n\
         [dependencies]\nheapledger-infallible = {{ path = {:?} }}\n",
        env!("CARGO_MANIFEST_DIR")
    );
    for (name, text) in [("Cargo.toml", manifest.as_str()), ("src/main.rs", MAIN), ("part.c", PART)] {
        std::fs::write(directory.join(name), text).unwrap();
    }
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-w", "-c", "part.c", "-o", "part.o", "-I"]).arg(root().join("include"));
    assert!(compiler.current_dir(&directory).status().unwrap().success());
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["rustc", "--quiet", "--offline", "--target-dir", "target", "--", "-C", "link-arg=part.o"]);
    let output = cargo.current_dir(&directory).env_remove("CARGO_BUILD_BUILD_DIR").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let program = directory.join("target/debug/mixed");
    aborts(&program, &[], &format!("0x{HALF} bytes\n"), HALF);
    let symbols = Command::new("nm").arg(program).output().unwrap();
    let symbols = String::from_utf8_lossy(&symbols.stdout).into_owned();
    for name in ["heapledger_oom_size", "heapledger_oom_message", "heapledger_oom_hook", "heapledger_handle_oom"] {
        let lines: Vec<_> = symbols.lines().filter(|line| line.ends_with(&format!(" {name}"))).collect();
        let is_weak = lines.iter().any(|line| line.contains(" V ") || line.contains(" W "));
        assert!(lines.len() == 1 && !is_weak, "{lines:?}");
    }
}
