//! Allocators inside programs, as `doctor` names them, with their entry points.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::documents;
use crate::harness::{HEAPLEDGER, Job, Scratch, heapledger, installed, skipped};

/// Returns the answer of `heapledger doctor --json`.
fn doctor(program: &Path) -> Value {
    let outcome = Job::new([HEAPLEDGER.as_ref(), "doctor".as_ref(), "--json".as_ref(), program.as_os_str()]).bare();
    documents::read(&outcome.stdout)
}

/// Compiles a file; `None`, with a message, if this compiler cannot do that.
fn compiled(scratch: &Scratch, options: &[&str], (name, text): (&str, &str)) -> Option<PathBuf> {
    let compiler = installed("gcc")?;
    let file = scratch.write(name, text);
    let output = file.with_extension("built");
    let done = Command::new(compiler).args(options).arg(&file).arg("-o").arg(&output).output().unwrap();
    if !done.status.success() {
        skipped(&format!("gcc {options:?} cannot build {name}: {}", String::from_utf8_lossy(&done.stderr)));
        return None;
    }
    Some(output)
}

/// Returns the only allocator in the answer, and the codes of the checks about it.
fn inside(answer: &Value) -> (&Value, Vec<&str>) {
    let allocators = answer["program"]["allocators"].as_array().unwrap_or_else(|| panic!("{answer:#}"));
    assert_eq!(allocators.len(), 1, "{answer:#}");
    let checks = answer["program"]["checks"].as_array().unwrap().iter();
    let inside = checks.filter(|check| check["subject"] == "inside");
    (&allocators[0], inside.map(|check| check["code"].as_str().unwrap_or("none")).collect())
}

fn names(allocator: &Value) -> Vec<&str> {
    allocator["entries"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect()
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_compiler_of_rust_has_jemalloc() {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().unwrap().stdout;
    let rustc = Path::new(String::from_utf8(sysroot).unwrap().trim()).join("bin/rustc");
    let answer = doctor(&rustc);
    if answer["program"]["allocators"].as_array().is_some_and(Vec::is_empty) {
        // Compilers of distributions have the system's allocator.
        return skipped("this rustc has no allocator of its own");
    }
    let (allocator, codes) = inside(&answer);
    assert_eq!((&allocator["family"], codes), (&Value::from("jemalloc"), vec!["none"]), "{answer:#}");
    for name in ["malloc", "calloc", "realloc", "free", "posix_memalign"] {
        assert!(names(allocator).contains(&name), "no {name}: {answer:#}");
    }
    assert!(allocator["entries"].as_array().unwrap().iter().all(|entry| entry["can_be_redirected"] == true));
    let text = heapledger(["doctor".as_ref(), rustc.as_os_str()]).text();
    assert!(text.contains("jemalloc is inside rustc, found by "), "{text}");

    // Stripped, it exports `malloc`, but not `mallocx`.
    let scratch = Scratch::new();
    let stripped = scratch.file("stripped");
    let Some(strip) = installed("strip") else { return };
    assert!(Command::new(strip).arg("-o").arg(&stripped).arg(&rustc).status().unwrap().success());
    let answer = doctor(&stripped);
    let (allocator, codes) = inside(&answer);
    assert_eq!((&allocator["family"], codes), (&Value::from("jemalloc"), vec!["HL0098"]), "{answer:#}");
    assert_eq!(allocator["is_complete"], false);
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_stripped_static_program_has_that_of_its_library() {
    let scratch = Scratch::new();
    let text = "#include <stdlib.h>\nint main(int n, char **v) { free(realloc(malloc(n), n * 2)); return 0; }\n";
    let Some(built) = compiled(&scratch, &["-static", "-s", "-fno-builtin"], ("fixed.c", text)) else { return };
    let answer = doctor(&built);
    if answer["program"]["allocators"].as_array().is_some_and(Vec::is_empty) {
        // `.ci/signatures` knows the libraries of some versions only.
        return skipped("the signatures have no C library of this version");
    }
    let (allocator, _) = inside(&answer);
    assert_eq!(allocator["family"], "glibc's malloc", "{answer:#}");
    assert!(["malloc", "free", "realloc"].iter().all(|name| names(allocator).contains(name)), "{answer:#}");
    assert!(allocator["entries"].as_array().unwrap().iter().all(|entry| entry["found_by"] == "signature"));
    // So it is recorded.
    assert_eq!(answer["verdict"], "good");
}

/// One function begins with a loop, whose branch leads to its second byte.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn functions_that_cannot_be_redirected_are_named() {
    let scratch = Scratch::new();
    let text = "__asm__(\".globl aa_mallocx, aa_sdallocx, aa_malloc\\n\"\n\
        \".type aa_mallocx,@function\\naa_mallocx: nop\\n1: dec %edi\\njg 1b\\nret\\n.size aa_mallocx, .-aa_mallocx\\n\"\n\
        \".type aa_sdallocx,@function\\naa_sdallocx: push %rax\\nmov %rdi, %rax\\nmov %rsi, %rdx\\npop %rax\\nret\\n\"\n\
        \".size aa_sdallocx, .-aa_sdallocx\\n.type aa_malloc,@function\\n\"\n\
        \"aa_malloc: push %rax\\nmov %rdi, %rax\\nmov %rsi, %rdx\\npop %rax\\nret\\n.size aa_malloc, .-aa_malloc\\n\");\n\
        extern void aa_mallocx(int), aa_sdallocx(int), aa_malloc(int);\n\
        int main(void) { aa_mallocx(3); aa_sdallocx(1); aa_malloc(1); return 0; }\n";
    let Some(built) = compiled(&scratch, &["-O1"], ("odd.c", text)) else { return };
    let answer = doctor(&built);
    let (allocator, codes) = inside(&answer);
    assert_eq!((&allocator["prefix"], codes), (&Value::from("aa_"), vec!["HL0098"]), "{answer:#}");
    let refused = allocator["entries"].as_array().unwrap().iter().filter(|entry| entry["can_be_redirected"] == false);
    let refused: Vec<_> = refused.map(|entry| (entry["name"].as_str(), entry["reason"].as_str())).collect();
    assert_eq!(refused, [(Some("aa_mallocx"), Some("a branch leads into its first instructions"))], "{answer:#}");
    let text = heapledger(["doctor".as_ref(), built.as_os_str()]).text();
    assert!(text.contains("aa_mallocx cannot be redirected: a branch leads into"), "{text}");
    assert!(heapledger(["explain", "HL0098"]).text().contains("cannot be redirected\n"));
}
