//! Measurements by C and C++ programs: measuring functions agree with the ledger to the byte, and
//! every collector finds the reporters in programs and libraries.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use heapledger_report_format::Reports;

use crate::c::{WITH_ALL, install, libheapledger};
use crate::harness::{Job, Scratch, exited, headers, heapledger, installed, plain_command};

/// Compiles a fixture without a warning.
fn compile(compiler: &Path, options: &[&str], source: &str, into: &Path) {
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-pedantic", "-Werror", "-pthread"]).arg("-I").arg(headers());
    command.arg("-o").arg(into).arg(headers().join("..").join(source)).args(options);
    let done = command.output().unwrap();
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success() && told.is_empty(), "{command:?}:\n{told}");
}

/// Compiles a fixture with libheapledger.
pub(crate) fn build(compiler: &Path, options: &[&str], source: &str, prefix: &Path, into: &Path) -> PathBuf {
    let library = prefix.join("lib").display().to_string();
    let linked =
        [format!("-L{library}"), format!("-Wl,-rpath,{library}"), "-Wl,--no-as-needed".into(), "-lheapledger".into()];
    let linked: Vec<&str> = linked.iter().map(String::as_str).collect();
    compile(compiler, &[options, &linked].concat(), source, into);
    into.to_path_buf()
}

/// Runs a program that prints differences between measured and live bytes on standard error.
fn agrees(program: &Path, how: &str) {
    let done = plain_command(program).output().unwrap();
    assert_eq!(done.status, exited(0), "{how}: {}", String::from_utf8_lossy(&done.stderr));
}

const SIZES: &str = "fixtures/headers/sizes.cpp";

#[test]
#[ignore = "it builds libheapledger; `.ci/run` runs it"]
fn what_is_measured_of_cpp_is_what_is_live() {
    let Some(compiler) = installed("g++") else { return };
    let scratch = Scratch::new();
    let prefix = libheapledger(&scratch);
    agrees(&build(&compiler, &["-std=c++17"], SIZES, &prefix, &scratch.file("sizes")), "g++");
}

#[test]
#[ignore = "a minute of compilers; .ci/run full has it"]
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
        for options in [&["-std=c++11", "-O2"], &["-std=c++14", "-O0"], &["-std=c++17", "-O2"], &["-std=c++20", "-O1"]]
        {
            ways.push((compiler, options));
        }
    }
    for (compiler, options) in ways {
        let Some(compiler) = installed(compiler) else { continue };
        let how = format!("{} {options:?}", compiler.display());
        agrees(&build(&compiler, options, SIZES, &prefix, &scratch.file("sizes")), &how);
    }
}

const REPORTERS: &str = "fixtures/headers/reporters.c";

/// Returns the output of a fixture: a line for each report, below the name of its collection.
fn collections(said: &str) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut name = String::new();
    for line in said.lines() {
        match line.strip_suffix(':') {
            Some(next) => name = next.to_owned(),
            None => found.entry(name.clone()).or_default().push(line.to_owned()),
        }
    }
    found
}

/// Builds the program and the library that it loads.
fn with_library(compiler: &Path, options: &[&str], prefix: &Path, scratch: &Scratch) -> (PathBuf, PathBuf) {
    let library = scratch.file("library.so");
    compile(compiler, &[options, &["-shared", "-fPIC", "-DLIBRARY"]].concat(), REPORTERS, &library);
    (build(compiler, options, REPORTERS, prefix, &scratch.file("reporters")), library)
}

#[test]
#[ignore = "it builds libheapledger; `.ci/run` runs it"]
fn reporters_of_c_are_found_marked_and_given_up_on() {
    let scratch = Scratch::new();
    let prefix = libheapledger(&scratch);
    let (program, library) = with_library(Path::new("cc"), &["-std=gnu99"], &prefix, &scratch);
    let file = scratch.file("reports.json.gz");
    let outcome = Job::new([&program]).argument(&library).argument(&file).bare();
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    let found = collections(&outcome.text());
    let cache = [
        "explicit/cache/entries [] 1 0 1000 Bodies.",
        "explicit/cache/shared [] 1 0 2008 Shared.",
        r"requests/a\b/of me\you (pid 17) [requests/a\b/of me\you (pid NNN)] 2 2 12 Requests of me since the start.",
        "cache-full [] 2 3 1234 How full it is.",
    ];
    let with = |more: &[&str]| [&cache, more].concat().iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    assert_eq!(found["both"], with(&["explicit/other/counter [] 1 0 312 Counted."]));
    let failed = |reason: &str| {
        format!(
            r"heapledger-failed/explicit\other [] 2 1 1 The reports of explicit/other are missing, or incomplete: {reason}."
        )
    };
    let counter = "explicit/other/counter [] 1 0 0 Counted.";
    let late = "other-late [] 2 1 1 From another thread.";
    assert_eq!(found["late"], with(&[counter, late, &failed("told to fail")]));
    assert!(found["stuck"].last().unwrap().contains("it had not answered after"), "{found:#?}");
    assert_eq!(found["still stuck"], with(&[&failed("it has not returned from an earlier call")]));
    let of_library = "library-count [] 2 1 5 Of a library.";
    assert_eq!(found["library"], with(&["once [] 2 1 1 Once, and not again.", of_library]));
    assert_eq!(found["unloaded"], with(&[]));
    let private = r"requests/a\b/of <anonymized> (pid 17) [requests/a\b/of <anonymized> (pid NNN)] 2 2 12 Requests of <anonymized> since the start.";
    assert_eq!(found["anonymous"][2], private);

    // The file has the same reports, and only its owner can read it.
    let saved = Reports::parse(&std::fs::read(&file).unwrap()).unwrap();
    let amount = |path: &str| saved.reports.iter().find(|report| &*report.path == path).map(|report| report.amount);
    assert_eq!((amount("explicit/cache/entries"), amount("library-count")), (Some(1000), Some(5)));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);

    // When it is recorded, there is no ledger for marks, and the rest is unchanged.
    let (outcome, _) = Job::new([&program]).argument(&library).recorded(&scratch);
    assert_eq!(outcome.status, exited(0), "{outcome:?}");
    assert_eq!(collections(&outcome.text())["library"].len(), found["library"].len(), "{outcome:?}");

    // Without a collector, reporters are on a list that is not read.
    compile(Path::new("cc"), &["-std=gnu99"], REPORTERS, &program);
    let outcome = Job::new([&program]).argument(&library).bare();
    assert_eq!((outcome.text(), outcome.status), ("first:\nnobody\n".to_owned(), exited(0)), "{outcome:?}");
}

#[test]
#[ignore = "it builds libheapledger; `.ci/run` runs it"]
fn reporters_of_cpp_may_throw_and_answer_later() {
    let Some(compiler) = installed("g++") else { return };
    let scratch = Scratch::new();
    let prefix = libheapledger(&scratch);
    let source = "fixtures/headers/reporters.cpp";
    let program = build(&compiler, &["-std=c++11"], source, &prefix, &scratch.file("reporters"));
    let said = |job: Job| {
        let outcome = job.bare();
        assert_eq!(outcome.status, exited(0), "{outcome:?}");
        let text = outcome.text();
        let (with, without) = text.split_once("--\n").unwrap();
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        (sorted(with), sorted(without))
    };
    let (with, without) = said(Job::new([&program]));
    let expected = [
        "function [] 2 1 7 Of a function.",
        "heapledger-failed/throws [] 2 1 1 The reports of throws are missing, or incomplete: no such index.",
        "heapledger-failed/throws-anything [] 2 1 1 The reports of throws-anything are missing, or incomplete: it threw something that is no std::exception.",
        "late/first [] 2 1 1 From another thread.",
        "late/second [] 2 1 2 From another thread.",
        "throws/before [] 2 1 1 It counts.",
    ];
    assert_eq!(without, expected);
    let of_cache = [
        r"bodies/a\b (at 17) [bodies/a\b (at NNN)] 2 1 1 How many.",
        "explicit/bodies [] 1 0 40 Bodies.",
        "explicit/bodies/mapped [] 0 0 8192 Mapped.",
        "full [] 2 3 1235 How full.",
        "mapped [] 2 0 4096 Of another kind.",
        "served/me-5 [] 2 2 3 How often.",
    ];
    assert_eq!(with.len(), without.len() + of_cache.len());
    assert!(of_cache.iter().all(|line| with.contains(&(*line).to_owned())), "{with:#?}");
    let (anonymous, _) = said(Job::new([&program]).argument("anonymous"));
    for line in ["served/<anonymized>-5 [] 2 2 3 How often.", "anonymous [] 2 1 1 It is."] {
        assert!(anonymous.contains(&line.to_owned()), "{anonymous:#?}");
    }
}

/// The note is kept by linkers that discard unreferenced sections, and by compilers that merge
/// files.
#[test]
#[ignore = "half a minute of compilers; .ci/run full has it"]
fn reporters_are_found_however_a_program_is_linked() {
    let scratch = Scratch::new();
    let prefix = libheapledger(&scratch);
    let ways: [&[&str]; 6] = [
        &["-std=c99", "-D_GNU_SOURCE", "-O0"],
        &["-std=gnu17", "-O3", "-flto"],
        &["-std=gnu11", "-O2", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"],
        &["-std=gnu11", "-O2", "-ffunction-sections", "-fuse-ld=gold", "-Wl,--gc-sections"],
        &["-std=gnu11", "-O2", "-ffunction-sections", "-fuse-ld=lld", "-Wl,--gc-sections"],
        &["-std=gnu11", "-O1", "-Wl,-z,norelro", "-s"],
    ];
    for compiler in ["gcc", "clang"] {
        let Some(compiler) = installed(compiler) else { continue };
        for options in ways {
            if options.contains(&"-fuse-ld=lld") && installed("ld.lld").is_none() {
                continue;
            }
            let how = format!("{} {options:?}", compiler.display());
            let (program, library) = with_library(&compiler, options, &prefix, &scratch);
            let outcome = Job::new([&program]).argument(&library).bare();
            assert_eq!(outcome.status, exited(0), "{how}: {outcome:?}");
            let found = collections(&outcome.text());
            assert!(found["library"].last().unwrap().starts_with("library-count"), "{how}: {found:#?}");
        }
    }
}

/// The code around the examples of docs/reporters-c.md: those in C++, and those in C, make one file
/// each.
const AROUND_CPP: &str = r#"
#include "heapledger/containers.hpp"
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
struct Foreign { ~Foreign() { std::free(handle); } void *handle; };
"#;
const AROUND_C: &str = r#"
#include "heapledger/heapledger.h"
#include <pthread.h>
#include <stdatomic.h>
struct name { const struct name *next; char *text; };
static const struct name *names;
static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;
static const char user[] = "me";
static int64_t names_count;
static int uid;
"#;

/// Returns the code blocks of a page, in a language.
fn examples(page: &str, language: &str) -> String {
    let fence = format!("```{language}");
    let mut is_inside = false;
    let mut found = String::new();
    for line in page.lines() {
        if line.starts_with("```") {
            is_inside = line == fence;
        } else if is_inside {
            found.push_str(line);
            found.push('\n');
        }
    }
    found
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_guide_for_c_and_cpp_compiles() {
    let scratch = Scratch::new();
    let page = std::fs::read_to_string(headers().join("../docs/reporters-c.md")).unwrap();
    for (compiler, standard, language, around) in
        [("g++", "-std=c++11", "cpp", AROUND_CPP), ("gcc", "-std=c11", "c", AROUND_C)]
    {
        let Some(compiler) = installed(compiler) else { continue };
        let examples = examples(&page, language);
        assert!(examples.lines().count() > 30, "{examples}");
        let source = scratch.write(&format!("guide.{language}"), format!("{around}{examples}"));
        let options = ["-D_GNU_SOURCE", "-Wno-unused-function", "-c", standard];
        compile(&compiler, &options, source.to_str().unwrap(), &scratch.file("guide.o"));
    }
}

/// The example measures all its allocations, as docs/c.md shows.
#[test]
#[ignore = "it builds libheapledger; `.ci/run` runs it"]
fn the_example_of_measuring_functions() {
    let Some(compiler) = installed("g++") else { return };
    let scratch = Scratch::new();
    let prefix = libheapledger(&scratch);
    let program = build(&compiler, &["-std=c++11"], "examples/sizes.cpp", &prefix, &scratch.file("sizes"));
    let done = plain_command(&program).current_dir(scratch.file("")).output().unwrap();
    assert_eq!(done.status, exited(0), "{done:?}");
    let said = String::from_utf8(done.stdout).unwrap();
    let page = std::fs::read_to_string(headers().join("../docs/c.md")).unwrap();
    assert!(page.contains(&format!("$ ./sizes\n{said}$ heapledger")), "{said}");
    let bytes = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert_eq!(bytes("measured"), bytes("live"), "{said}");
    let saved = Reports::parse(&std::fs::read(scratch.file("sizes.json.gz")).unwrap()).unwrap();
    let scene = saved.reports.iter().filter(|report| report.path.starts_with("explicit/scene/"));
    assert_eq!(format!("{} bytes", scene.map(|report| report.amount).sum::<i64>()), bytes("measured"));
}

/// A program that does not use reports still answers if it is told to listen.
#[test]
#[ignore = "it builds libheapledger; `.ci/run` runs it"]
fn a_preloaded_program_answers() {
    let scratch = Scratch::new();
    let library = libheapledger(&scratch).join("lib/libheapledger.so");
    let mut program = Command::new("sleep");
    let mut program = program.arg("60").env("LD_PRELOAD", &library).env("HEAPLEDGER_LISTEN", "1").spawn().unwrap();
    let ask = || heapledger([OsStr::new("reports"), "show".as_ref(), program.id().to_string().as_ref()]);
    let deadline = Instant::now() + Duration::from_secs(300);
    let mut answer = ask();
    while !answer.status.success() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        answer = ask();
    }
    program.kill().unwrap();
    program.wait().unwrap();
    let text = String::from_utf8_lossy(&answer.stdout);
    assert!(text.contains("heap-unclassified") && text.contains("(sleep, pid "), "{answer:?}");
}

/// With the text of about:memory, in a build of its own.
#[test]
#[ignore = "it builds libheapledger with more in it; `.ci/run` runs it"]
fn reports_are_shown_in_the_program() {
    let scratch = Scratch::new();
    let prefix = scratch.file("prefix");
    install(WITH_ALL, &prefix);
    let (program, library) = with_library(Path::new("cc"), &["-std=gnu99"], &prefix, &scratch);
    let mut running =
        plain_command(&program).arg(&library).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut output = BufReader::new(running.stdout.take().unwrap());
    while !said.contains("\nhttp://") {
        assert_ne!(output.read_line(&mut said).unwrap(), 0, "{said}");
    }
    let page = heapledger(["reports", "show", "--filter", "cache", said.lines().last().unwrap()]);
    assert!(page.text().contains("12.34% ── cache-full"), "{page:?}");
    drop(running.stdin.take());
    assert_eq!(running.wait().unwrap(), exited(0), "{said}");
    let found = collections(&said);
    let is_shown = |end: &str| found["text"].iter().any(|line| line.ends_with(end));
    assert!(is_shown("12.34% ── cache-full") && is_shown("-- explicit"), "{found:#?}");
}
