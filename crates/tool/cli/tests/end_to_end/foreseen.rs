//! Obstacles are reported in advance, by `record` and `doctor`, with codes that `explain` explains.
//! Tested on programs built here in all relevant ways.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::documents;
use crate::harness::{
    Build, HEAPLEDGER, Job, Outcome, Scratch, build, exited, heapledger, installed, program, skipped,
};

/// Compiles a few lines; `None`, with a message, if this compiler cannot do that.
fn compiled(scratch: &Scratch, compiler: &str, options: &[&str], source: (&str, &str)) -> Option<PathBuf> {
    let compiler = installed(compiler)?;
    let (name, text) = source;
    let file = scratch.write(name, text);
    let output = file.with_extension("built");
    let done = Command::new(&compiler).args(options).arg(&file).arg("-o").arg(&output).output().unwrap();
    if !done.status.success() {
        let why = String::from_utf8_lossy(&done.stderr).into_owned();
        skipped(&format!("{} {options:?} cannot build {name}: {why}", compiler.display()));
        return None;
    }
    Some(output)
}

const C: &str =
    "#include <stdlib.h>\nint main(void) { for (int i = 0; i < 100; i++) free(malloc(1000 + i)); return 42; }\n";

/// Returns the outcome of `heapledger record`, and its report.
fn recorded(program: &Path, scratch: &Scratch) -> (Outcome, String) {
    let file = scratch.file("report.hl");
    let outcome = Job::new([program]).with_report().option("--force").start(Some(&file)).outcome();
    let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
    (outcome, told)
}

/// Returns the answer of `heapledger doctor --json`, and its exit status.
fn doctor(program: &Path) -> (Value, Option<i32>) {
    let outcome = Job::new([HEAPLEDGER.as_ref(), "doctor".as_ref(), "--json".as_ref(), program.as_os_str()]).bare();
    (documents::read(&outcome.stdout), outcome.status.code())
}

/// Returns the codes of `doctor`'s findings about a program, except those about names.
fn codes(answer: &Value) -> Vec<&str> {
    let checks = answer["program"]["checks"].as_array().unwrap_or_else(|| panic!("no checks: {answer:#}"));
    let codes = checks.iter().filter_map(|check| check["code"].as_str());
    codes.filter(|code| !["HL0013", "HL0014"].contains(code)).collect()
}

/// Checks the messages about a program that runs, but that is not recorded, or not completely.
#[track_caller]
fn assert_foreseen(program: &Path, code: &str, is_obstacle: bool, scratch: &Scratch) {
    let bare = Job::new([program]).bare();
    let (outcome, told) = recorded(program, scratch);
    assert_eq!((outcome.status, &outcome.stdout), (bare.status, &bare.stdout), "{program:?}: {outcome:?}");
    let before = told.split("heapledger: ").next().unwrap();
    assert!(before.contains(&format!("warning[{code}]: `")) && before.contains("hint: "), "{program:?}: {told}");
    let (answer, status) = doctor(program);
    assert_eq!(codes(&answer), [code], "{answer:#}");
    let expected = if is_obstacle { ("bad", Some(101)) } else { ("warning", Some(0)) };
    assert_eq!((answer["verdict"].as_str().unwrap(), status), expected, "{answer:#}");
    // With --quiet there is no message.
    Job::new([program]).both(scratch);
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_that_load_no_library() {
    let scratch = Scratch::new();
    // Without a C library, so nothing can be redirected.
    let fixed = without_allocator(&scratch);
    let (answer, status) = doctor(&fixed);
    assert_eq!((codes(&answer), status), (vec!["HL0001"], Some(101)), "{answer:#}");
    // Through a script, and through one that searches for its interpreter.
    scratch.script("script", format!("#!{}\n", fixed.display()));
    scratch.script("looking", format!("#!/usr/bin/env -S {}\n", fixed.display()));
    for script in ["script", "looking"] {
        let script = scratch.file(script);
        let (answer, status) = doctor(&script);
        assert_eq!((codes(&answer), status), (vec!["HL0001"], Some(101)), "{answer:#}");
        assert_eq!(answer["program"]["scripts"][0], script.to_str().unwrap(), "{answer:#}");
        let (_, told) = recorded(&script, &scratch);
        assert!(told.contains("warning[HL0001]: `"), "{told}");
        // The program that searches for the other is recorded.
        assert_eq!(told.contains("nothing was recorded[HL0001]"), script.ends_with("script"), "{told}");
    }
    if installed("musl-gcc").is_some() {
        let (answer, status) = doctor(&build("tower", Build::Musl));
        assert_eq!((codes(&answer), status), (vec![], Some(0)), "{answer:#}");
    }
    // Without a C library, so a 32-bit one is not needed.
    let start = ("narrow.c", "void _start(void) { for (;;) ; }\n");
    let narrow = compiled(&scratch, "gcc", &["-m32", "-nostdlib", "-static", "-ffreestanding"], start);
    if let Some(narrow) = narrow {
        let (answer, status) = doctor(&narrow);
        assert_eq!((codes(&answer), status), (vec!["HL0003"], Some(101)), "{answer:#}");
        let (outcome, told) = recorded(&narrow, &scratch);
        assert_eq!(outcome.status, exited(101), "{told}");
        assert!(told.starts_with("error[HL0003]: cannot record: `") && told.contains("hint: "), "{told}");
    }
    if let Some(language) = installed("go") {
        let answer = doctor(&language).0;
        assert!(codes(&answer).contains(&"HL0009"), "{answer:#}");
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_with_other_rights() {
    let scratch = Scratch::new();
    let Some(built) = compiled(&scratch, "cc", &["-O1", "-fno-builtin"], ("plain.c", C)) else { return };
    let gain = |line: &str| Job::shell(line).bare().status.success();
    if !gain(&format!("chown 1:1 '{0}' && chmod 6755 '{0}'", built.display())) {
        return skipped("no right to give a file away");
    }
    let (answer, status) = doctor(&built);
    assert_eq!((codes(&answer), status), (vec!["HL0002"], Some(101)), "{answer:#}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_with_an_allocator_of_their_own() {
    let scratch = Scratch::new();
    // Its entry points are redirected: nothing is unseen.
    let (answer, status) = doctor(&program("own_malloc"));
    assert_eq!((codes(&answer), status), (vec![], Some(0)), "{answer:#}");
    let (_, recording) = Job::fixture("own_malloc", "").both(&scratch);
    assert!(recording.total("allocations") >= 2, "{recording:?}");

    // Besides malloc, under any name: calls of malloc are recorded. Also if nothing is exported.
    for (name, function) in [
        ("jemalloc", "_rjem_malloc"),
        ("mimalloc", "mi_malloc"),
        ("snmalloc", "sn_rust_alloc"),
        ("rpmalloc", "rpmalloc"),
    ] {
        let text = format!(
            "#include <stdlib.h>\n#include <sys/mman.h>\n\
             void *{function}(size_t n) {{ return mmap(0, n, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }}\n\
             int main(void) {{ free(malloc(10)); return {function}(100) ? 42 : 1; }}\n"
        );
        let source = (&*format!("{name}.c"), &*text);
        let Some(built) = compiled(&scratch, "cc", &["-O1", "-fno-builtin"], source) else { return };
        assert_foreseen(&built, "HL0006", false, &scratch);
        let (_, told) = recorded(&built, &scratch);
        assert!(told.contains(name), "{told}");
    }

    // An allocator in a shared library is not an obstacle.
    if let Some(library) = crate::harness::shared_library("libjemalloc.so.2") {
        let Some(built) = compiled(
            &scratch,
            "cc",
            &["-O1", "-fno-builtin", "-Wl,--no-as-needed", library.to_str().unwrap()],
            ("je.c", C),
        ) else {
            return;
        };
        let (answer, status) = doctor(&built);
        assert_eq!((codes(&answer), status), (vec![], Some(0)), "{answer:#}");
        let checks = answer["program"]["checks"].as_array().unwrap();
        let text = checks.iter().filter_map(|check| check["text"].as_str()).find(|text| text.contains("libjemalloc"));
        assert!(text.is_some(), "{answer:#}");
        let (outcome, recording) = Job::new([&built]).both(&scratch);
        assert!(outcome.status == exited(42) && recording.total("allocations") >= 100, "{recording:?}");
        // Its `operator new` does not call malloc, and is redirected.
        let source = ("new.cpp", "int main() { char *volatile block = new char[100]; delete[] block; return 42; }\n");
        let options = ["-O0", "-Wl,--no-as-needed", library.to_str().unwrap()];
        let Some(built) = compiled(&scratch, "c++", &options, source) else { return };
        let (answer, status) = doctor(&built);
        assert_eq!((codes(&answer), status), (vec![], Some(0)), "{answer:#}");
        let (_, recording) = Job::new([&built]).both(&scratch);
        assert!(
            recording.ask("top", &["--by", "function", "--total"]).to_string().contains("\"main\""),
            "{recording:?}"
        );
    }
}

/// Returns a static program that has no allocator, and ends with the status 3.
pub(crate) fn without_allocator(scratch: &Scratch) -> PathBuf {
    let (source, output) = (scratch.file("alone.c"), scratch.file("alone"));
    std::fs::write(&source, "void _start(void) { __asm__(\"mov $60, %eax; mov $3, %edi; syscall\"); }\n").unwrap();
    let mut compiler = crate::harness::plain_command("cc");
    let done = compiler.args(["-nostdlib", "-static", "-ffreestanding"]).arg(&source).arg("-o").arg(&output).status();
    assert!(done.unwrap().success());
    output
}

/// The shell is always recorded; about the programs that the script starts, the known facts are
/// reported.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn launchers() {
    let scratch = Scratch::new();
    let fixed = without_allocator(&scratch);
    let directory = fixed.parent().unwrap().to_str().unwrap().to_owned();
    let script = |name: &str, text: &str| {
        scratch.script(name, format!("#!/bin/sh\n{text}\n"));
        scratch.file(name)
    };
    let run = |file: &Path| heapledger(["doctor".as_ref(), file.as_os_str()]).text();
    let plain = script("plain", "echo hello");
    let (answer, status) = doctor(&plain);
    assert_eq!((codes(&answer), status), (vec!["HL0019"], Some(0)), "{answer:#}");
    let text = run(&plain);
    assert!(!text.contains("all of it") && text.contains("judged when it starts"), "{text}");

    let launcher = script("launcher", &format!("DIR={directory}\nexec \"$DIR/alone\" \"$@\""));
    let outer = script("outer", "exec \"${0%/*}/launcher\" \"$@\"");
    for file in [&launcher, &outer] {
        let (answer, status) = doctor(file);
        assert_eq!((codes(&answer), status), (vec!["HL0001"], Some(0)), "{answer:#}");
        let mut starts = &answer["program"]["starts"][0];
        if file == &outer {
            assert_eq!(starts["scripts"][0], launcher.to_str().unwrap(), "{answer:#}");
            starts = &starts["starts"][0];
        }
        assert_eq!(starts["file"], fixed.to_str().unwrap(), "{answer:#}");
        // `record` reports it, too.
        let (_, told) = recorded(file, &scratch);
        assert!(told.contains("warning[HL0001]: `") && told.contains("the script may start it"), "{told}");
    }
    let unknown = script("unknown", "exec \"$1\"");
    assert_eq!(codes(&doctor(&unknown).0), ["HL0019"]);
}

/// A program's own malloc comes before the recorder's, which it finds when it looks up the next
/// one.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_that_wrap_malloc() {
    let scratch = Scratch::new();
    let wraps = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdlib.h>\n#include <sys/mman.h>\n\
        static void *(*next)(size_t); static int calls;\n\
        void *malloc(size_t n) { if (!next) next = dlsym(RTLD_NEXT, \"malloc\"); calls++; return next(n); }\n\
        int main(void) { MAIN for (int i = 0; i < 100; i++) free(malloc(1000 + i)); return calls < 100 ? 1 : 42; }\n";
    let options = ["-O1", "-fno-builtin", "-w"];
    let main = wraps.replace("MAIN", "");
    let Some(built) = compiled(&scratch, "cc", &options, ("wraps.c", &main)) else { return };
    let (answer, status) = doctor(&built);
    assert_eq!((codes(&answer), status), (vec![], Some(0)), "{answer:#}");
    let texts = answer["program"]["checks"].as_array().unwrap().iter().filter_map(|check| check["text"].as_str());
    assert!(texts.into_iter().any(|text| text.contains("wraps malloc")), "{answer:#}");
    let (_, told) = recorded(&built, &scratch);
    assert!(!told.contains("warning["), "{told}");
    // A recording confirms it.
    let (outcome, recording) = Job::new([&built]).both(&scratch);
    assert!(outcome.status == exited(42) && recording.total("allocations") >= 100, "{recording:?}");

    // One that could also have a heap of its own: this cannot be decided, and the message says so.
    let main = wraps.replace("MAIN", "munmap(mmap(0, 1, 1, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1);");
    let built = compiled(&scratch, "cc", &options, ("either.c", &main)).unwrap();
    assert_foreseen(&built, "HL0018", false, &scratch);
    let (outcome, recording) = Job::new([&built]).both(&scratch);
    assert!(outcome.status == exited(42) && recording.total("allocations") >= 100, "{recording:?}");
}

/// Programs of the distribution that export malloc: a recording confirms each verdict.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn real_programs_that_define_malloc() {
    let scratch = Scratch::new();
    for (file, argument) in [("mold", "-v"), ("chromedriver", "--version"), ("firefox-esr", "--version")] {
        let Some(file) = installed(file) else { continue };
        let answer = doctor(&file).0;
        let (_, recording) = Job::new([file.as_os_str(), argument.as_ref()]).recorded(&scratch);
        let is_seen = recording.total("allocations") > 0;
        assert_eq!(codes(&answer).contains(&"HL0005"), !is_seen, "{file:?}: {answer:#} {recording:?}");
    }
}

/// Runtimes that map their heap from the kernel.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_of_languages_with_a_heap_of_their_own() {
    let scratch = Scratch::new();
    for (file, arguments, language) in [
        ("node", &["-e", "0"][..], "V8"),
        ("sbcl", &["--non-interactive", "--no-userinit", "--eval", "0"], "SBCL"),
        ("java", &["-version"], "Java"),
    ] {
        let Some(file) = installed(file) else { continue };
        let job = || Job::new([file.as_os_str()].into_iter().chain(arguments.iter().map(OsStr::new)));
        let answer = doctor(&file).0;
        assert_eq!(codes(&answer), ["HL0017"], "{answer:#}");
        let output = scratch.file("report.hl");
        let outcome = job().with_report().option("-f").start(Some(&output)).outcome();
        let told = String::from_utf8_lossy(&outcome.stderr);
        assert!(told.contains("warning[HL0017]: `") && told.contains(language), "{told}");
    }
    // A program that only has such words in its names is not such a runtime.
    let text = "int v8_version(void) { return 8; }\nint lisp_init(void) { return v8_version(); }\n\
                int main(void) { return lisp_init(); }\n";
    let Some(built) = compiled(&scratch, "cc", &["-rdynamic"], ("names.c", text)) else { return };
    assert_eq!(codes(&doctor(&built).0), [""; 0]);
}

/// Libraries are found as by the dynamic linker: relative to the file, not to a link to it.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn libraries_beside_a_program() {
    let scratch = Scratch::new();
    let directory = |name: &str| {
        let path = scratch.file(name);
        fs::create_dir_all(&path).unwrap();
        path
    };
    let (bin, lib, deep, links) = (directory("bin"), directory("lib"), directory("deep"), directory("links"));
    let inner = ("inner.c", "int inner(void) { return 42; }\n");
    let Some(inner) = compiled(&scratch, "gcc", &["-shared", "-fPIC"], inner) else { return };
    fs::copy(inner, deep.join("libheapledger-test-inner.so")).unwrap();
    let outer = scratch.write("outer.c", "int inner(void);\nint outer(void) { return inner(); }\n");
    let mut made = Command::new("gcc");
    made.args(["-shared", "-fPIC", "-o"]).arg(lib.join("libheapledger-test-outer.so"));
    let made = made.arg(outer).arg("-L").arg(&deep).arg("-lheapledger-test-inner").status().unwrap();
    assert!(made.success());

    let main = scratch.write("main.c", "int outer(void);\nint main(void) { return outer(); }\n");
    // RPATH is inherited by the libraries; RUNPATH applies to the program only, so the inner
    // library is not found.
    for (tags, is_found) in [("--disable-new-dtags", true), ("--enable-new-dtags", false)] {
        let program = bin.join(tags);
        let mut made = Command::new("gcc");
        made.arg("-o").arg(&program).arg(&main).arg("-L").arg(&lib);
        made.arg("-lheapledger-test-outer").arg(format!("-Wl,{tags},--allow-shlib-undefined"));
        assert!(made.arg("-Wl,-rpath,$ORIGIN/../lib:$ORIGIN/../deep").status().unwrap().success());
        let link = links.join(tags);
        std::os::unix::fs::symlink(&program, &link).unwrap();
        for file in [&program, &link] {
            let runs = Job::new([file]).bare().status == exited(42);
            let (answer, _) = doctor(file);
            assert_eq!(runs, is_found, "{file:?}");
            assert_eq!(!codes(&answer).contains(&"HL0016"), is_found, "{file:?}: {answer:#}");
        }
        // LD_LIBRARY_PATH applies to both.
        let job = Job::new([HEAPLEDGER.as_ref(), "doctor".as_ref(), "--json".as_ref(), link.as_os_str()]);
        let outcome = job.variable("LD_LIBRARY_PATH", &deep).bare();
        assert!(!outcome.text().contains("HL0016"), "{outcome:?}");
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn rust_programs_with_an_allocator_of_their_own() {
    let scratch = Scratch::new();
    let own = r#"
        use std::alloc::{GlobalAlloc, Layout};
        use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
        struct Bump;
        static mut SPACE: [u64; 1 << 16] = [0; 1 << 16];
        static USED: AtomicUsize = AtomicUsize::new(0);
        // SAFETY: `GlobalAlloc` asks for blocks that are aligned, overlap no other one and stay
        // valid. Each call takes the next `size + align` bytes of a static, of which the program
        // needs far fewer than there are, and none is used again. Nothing here panics.
        unsafe impl GlobalAlloc for Bump {
            unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
                let at = USED.fetch_add(layout.size() + layout.align(), Relaxed);
                (((&raw mut SPACE) as usize + at + layout.align()) & !(layout.align() - 1)) as *mut u8
            }
            unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
        }
        #[global_allocator]
        static OWN: Bump = Bump;
        fn main() { let text: Vec<String> = (0..100).map(|i| i.to_string()).collect(); println!("{}", text.concat()); }
    "#;
    let of_the_system = own.replace("Bump = Bump", "std::alloc::System = std::alloc::System");
    let strip = ["-O", "--edition", "2021", "-C", "strip=symbols", "-A", "warnings"];
    let Some(built) = compiled(&scratch, "rustc", &strip, ("own.rs", own)) else { return };
    assert_foreseen(&built, "HL0005", false, &scratch);
    let built = compiled(&scratch, "rustc", &strip, ("system.rs", &of_the_system)).unwrap();
    let (answer, status) = doctor(&built);
    assert_eq!((codes(&answer), status), (vec![], Some(0)), "{answer:#}");
    // A compiler that includes jemalloc.
    if let Some(root) =
        Command::new("rustc").args(["--print", "sysroot"]).output().ok().filter(|done| done.status.success())
    {
        let rustc = Path::new(String::from_utf8(root.stdout).unwrap().trim()).join("bin/rustc");
        let symbols = Command::new("nm").arg("-D").arg(&rustc).output();
        if symbols.is_ok_and(|done| String::from_utf8_lossy(&done.stdout).contains(" T malloc\n")) {
            let answer = doctor(&rustc).0;
            assert!(!codes(&answer).contains(&"HL0005"), "{answer:#}");
        } else {
            skipped("this rustc has no allocator of its own");
        }
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_with_sanitizers() {
    let scratch = Scratch::new();
    // A shared runtime that must be loaded first: the program would not start.
    if let Some(built) = compiled(&scratch, "gcc", &["-fsanitize=address", "-g"], ("asan.c", C)) {
        let (answer, status) = doctor(&built);
        assert_eq!((codes(&answer), status), (vec!["HL0007"], Some(101)), "{answer:#}");
        let (outcome, told) = recorded(&built, &scratch);
        assert_eq!(outcome.status, exited(101), "{told}");
        assert!(told.starts_with("error[HL0007]: cannot record: `"), "{told}");
        // The hint works.
        assert!(told.contains("ASAN_OPTIONS=verify_asan_link_order=0"), "{told}");
        let (outcome, recording) =
            Job::new([&built]).variable("ASAN_OPTIONS", "verify_asan_link_order=0").both(&scratch);
        assert!(outcome.status == exited(42) && recording.total("allocations") >= 100, "{recording:?}");
        // If another program starts it, it runs as usual.
        let line = format!("'{}'; echo $?", built.display());
        let (outcome, recording) = Job::shell(&line).both(&scratch);
        assert!(outcome.text().ends_with("42\n") && recording.total("allocations") < 100, "{outcome:?} {recording:?}");
        let (outcome, recording) =
            Job::shell(&line).variable("ASAN_OPTIONS", "verify_asan_link_order=0").both(&scratch);
        assert!(outcome.text().ends_with("42\n") && recording.total("allocations") >= 100, "{outcome:?} {recording:?}");
    }
    // A runtime that is part of the program keeps malloc to itself.
    if let Some(built) = compiled(&scratch, "clang", &["-fsanitize=address", "-g"], ("static.c", C)) {
        assert_foreseen(&built, "HL0008", true, &scratch);
    }
    // These are harmless.
    for sanitizer in ["-fsanitize=thread", "-fsanitize=undefined"] {
        let Some(built) = compiled(&scratch, "gcc", &[sanitizer, "-g"], ("harmless.c", C)) else { continue };
        let (answer, status) = doctor(&built);
        assert_eq!((codes(&answer), status), (vec![], Some(0)), "{answer:#}");
        let (outcome, recording) = Job::new([&built]).both(&scratch);
        assert!(outcome.status == exited(42) && recording.total("allocations") >= 100, "{recording:?}");
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn interpreters_that_allocate_themselves() {
    let Some(python) = installed("python3") else { return };
    let scratch = Scratch::new();
    let job = || Job::new([python.as_os_str(), "-c".as_ref(), "print(1)".as_ref()]).with_report();
    let told = |job: Job| {
        String::from_utf8_lossy(&job.option("-f").start(Some(&scratch.file("p.hl"))).outcome().stderr).into_owned()
    };
    let plain = told(job());
    assert!(
        plain.contains("warning[HL0010]: Python") && plain.contains("PYTHONMALLOC=malloc heapledger record"),
        "{plain}"
    );
    let all = told(job().variable("PYTHONMALLOC", "malloc"));
    assert!(!all.contains("HL0010"), "{all}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_without_unwind_information() {
    let scratch = Scratch::new();
    let without = ["-fno-asynchronous-unwind-tables", "-Wl,--no-eh-frame-hdr", "-Wl,--build-id=none"];
    let Some(built) = compiled(&scratch, "gcc", &without, ("bare.c", C)) else { return };
    let (answer, status) = doctor(&built);
    assert_eq!((codes(&answer), status), (vec!["HL0012"], Some(0)), "{answer:#}");
    assert_eq!(answer["program"]["modules"][0]["has_unwind_information"], false, "{answer:#}");
    assert_eq!(answer["program"]["modules"][0]["build_id"], "", "{answer:#}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_that_miss_a_library() {
    let scratch = Scratch::new();
    let options = ["-shared", "-Wl,-soname,libheapledger-test-missing.so"];
    let Some(library) = compiled(&scratch, "gcc", &options, ("missing.c", "int missing = 1;\n")) else { return };
    let source = ("needs.c", "extern int missing;\nint main(void) { return missing; }\n");
    let built = compiled(&scratch, "gcc", &["-Wl,--no-as-needed", library.to_str().unwrap()], source).unwrap();
    fs::remove_file(library).unwrap();
    let (answer, status) = doctor(&built);
    assert_eq!((codes(&answer), status), (vec!["HL0016"], Some(101)), "{answer:#}");
}

#[test]
fn the_machine() {
    let outcome = heapledger(["doctor"]);
    assert!(outcome.status.success() && outcome.stderr.is_empty(), "{outcome:?}");
    for expected in ["this machine", "kernel", "self-test", "stacks verified", "can be recorded here"] {
        assert!(outcome.text().contains(expected), "{expected}: {outcome:?}");
    }
    // A tight limit, a read-only directory, and no place for the library.
    let limited = Job::shell(&format!("ulimit -n 20; '{HEAPLEDGER}' doctor --json")).bare();
    let answer: Value = serde_json::from_slice(&limited.stdout).unwrap();
    let machine = |answer: &Value| -> Vec<String> {
        let checks = answer["machine"].as_array().unwrap().iter();
        checks.filter_map(|check| check["code"].as_str().map(str::to_owned)).collect()
    };
    assert!(machine(&answer).contains(&"HL0033".to_owned()), "{answer:#}");
    // Here the files and the disk are ours, and the self-test, which records a program, must
    // succeed.
    let checks = answer["machine"].as_array().unwrap();
    let test = checks.iter().find(|check| check["subject"] == "self-test").unwrap_or_else(|| panic!("{answer:#}"));
    assert_eq!(test["state"], "good", "{answer:#}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_program_that_is_all_right() {
    let (answer, status) = doctor(&program("mix"));
    assert_eq!((codes(&answer), status), (vec![], Some(0)), "{answer:#}");
    assert_eq!(answer["program"]["modules"][0]["names_from"], "debug info", "{answer:#}");
    let outcome = heapledger(["doctor", program("mix").to_str().unwrap(), "100", "--whatever"]);
    assert!(outcome.status.success() && outcome.text().contains("the C library's malloc"), "{outcome:?}");
    let outcome = heapledger(["doctor", "heapledger-no-such-program"]);
    assert_eq!(outcome.status, exited(127), "{outcome:?}");
    assert!(String::from_utf8_lossy(&outcome.stderr).starts_with("error[HL0015]: "), "{outcome:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn codes_are_explained() {
    let outcome = heapledger(["explain"]);
    assert!(outcome.status.success(), "{outcome:?}");
    let listed: Vec<String> = outcome
        .text()
        .lines()
        .filter_map(|line| line.split_whitespace().next().filter(|word| word.starts_with("HL")).map(str::to_owned))
        .collect();
    assert!(listed.len() > 20, "{outcome:?}");
    for code in &listed {
        let text = heapledger(["explain", code]).text();
        for part in [code.as_str(), "Why", "What follows", "What to do"] {
            assert!(text.contains(part), "{code}: {text}");
        }
    }
    let json = heapledger(["explain", "--json", "hl5"]);
    let answer: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(answer["code"], "HL0005", "{answer:#}");
    let outcome = heapledger(["explain", "HL9999"]);
    assert_eq!(outcome.status, exited(2), "{outcome:?}");
    // Every code in the documents exists.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let documents = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    for document in documents.chain([root.join("README.md"), root.join("CHANGELOG.md")]) {
        let Ok(text) = fs::read_to_string(&document) else { continue };
        for (at, _) in text.match_indices("HL0") {
            let code: String = text[at..].chars().take(6).collect();
            assert!(listed.contains(&code), "{} names {code}, which is none", document.display());
        }
    }
}

/// Warnings and errors of the reading verbs have codes, too.
#[test]
fn messages_about_recordings_have_codes() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "100").recorded(&scratch);
    let told = |path: &Path, bytes: &[u8]| {
        fs::write(path, bytes).unwrap();
        let outcome = heapledger(["summary".as_ref(), path.as_os_str()]);
        String::from_utf8_lossy(&outcome.stderr).into_owned()
    };
    let bytes = fs::read(&recording.path).unwrap();
    let copy = scratch.file("copy.hl");
    let cut = told(&copy, &bytes[..bytes.len() * 2 / 3]);
    assert!(cut.contains("warning[HL0060]: "), "{cut}");
    let cut = told(&copy, &bytes[..bytes.len() - 20]);
    assert!(cut.contains("warning[HL0061]: ") && cut.contains("warning[HL0062]: "), "{cut}");
    let other = told(&copy, b"something else altogether, which is no recording");
    assert!(other.starts_with("error[HL0068]: cannot read `"), "{other}");
}
