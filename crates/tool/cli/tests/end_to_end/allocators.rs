//! Programs that run with another allocator below the hooks (`--allocator`), and the libraries that
//! the command carries (`heapledger lib`).

mod observed;
mod programs;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::documents;
use crate::harness::{
    Build, HEAPLEDGER, Job, Outcome, Scratch, build, exited, heapledger, installed, plain_command, program,
    shared_library,
};

/// The name of the allocator that the command carries, in `/proc/PID/maps`.
const CARRIED: &str = "libheapledger_allocator.so";

/// Runs a job with an allocator.
fn with(job: &Job, allocator: impl AsRef<OsStr>) -> Outcome {
    job.through(["run".as_ref(), "--quiet".as_ref(), "--allocator".as_ref(), allocator.as_ref()]).outcome()
}

/// Runs a job by itself and with Heapledger's allocator: nothing else may differ.
#[track_caller]
fn same(job: &Job) -> Outcome {
    let (bare, outcome) = (job.bare(), with(job, "heapledger"));
    assert!(bare == outcome, "the allocator changed {job:?}\n=== without: {bare:?}\n=== with: {outcome:?}");
    outcome
}

fn told(outcome: &Outcome) -> String {
    String::from_utf8_lossy(&outcome.stderr).into_owned()
}

/// A job that prints the libraries of a process that are allocators: its own, or those of children.
fn loaded(line: &str) -> Job {
    Job::shell(line).variable("LIBRARIES", "grep -oE [^/]*alloc[^/]*[.]so[^/]*$ /proc/self/maps")
}

#[test]
fn the_program_and_all_that_it_starts_run_with_it() {
    let once = [
        "$LIBRARIES | sort -u",
        "env -i $LIBRARIES | sort -u",
        "env LD_PRELOAD= $LIBRARIES | sort -u",
        "(exec $LIBRARIES) | sort -u",
        "echo $($LIBRARIES) | tr ' ' '\\n' | sort -u",
    ];
    for line in once {
        let outcome = with(&loaded(line), "heapledger");
        assert_eq!((outcome.text(), told(&outcome)), (format!("{CARRIED}\n"), String::new()), "{line}");
    }
    // The program does not see the additions to its environment.
    same(&Job::shell(
        "env | grep -e ^HEAPLEDGER_SESSION -e ^HEAPLEDGER_HOOKS -e ^LD_PRELOAD; cat /proc/self/environ | tr '\\0' '\\n' | grep ^LD_PRELOAD",
    ));
    let job = loaded("$LIBRARIES | sort -u; env | grep -c LD_PRELOAD; exit 4");
    assert_eq!(with(&job, "system"), job.bare());
}

#[test]
fn allocators_of_the_distribution_are_found_by_their_names() {
    for (name, library) in [("jemalloc", "libjemalloc.so.2"), ("tcmalloc", "libtcmalloc_minimal.so.4")] {
        let Some(path) = shared_library(library) else { continue };
        for given in [OsStr::new(name), path.as_os_str()] {
            let text = with(&loaded("$LIBRARIES | sort -u"), given).text();
            assert!(text.starts_with(library) && text.lines().count() == 1, "{given:?}: {text}");
        }
    }
}

/// The error says what failed, why, and what to do about it, before anything runs.
#[test]
fn a_file_that_is_no_allocator_is_refused() {
    let scratch = Scratch::new();
    let text = scratch.write("text.so", "not a library");
    let cut = scratch.write("cut.so", &fs::read(build("deepbind_plugin", Build::Module)).unwrap()[..200]);
    let mut foreign = fs::read(build("deepbind_plugin", Build::Module)).unwrap();
    // The processor, in the header of the file: RISC-V.
    foreign[18..20].copy_from_slice(&243_u16.to_le_bytes());
    let foreign = scratch.write("foreign.so", foreign);
    let other = build("deepbind_plugin", Build::Module);
    let (missing, device) = (scratch.file("missing.so"), PathBuf::from("/dev/zero"));
    let own = program("dies");
    for (path, code, why) in [
        (&missing, "HL0084", "No such file or directory"),
        (&device, "HL0084", "it is not a regular file"),
        (&text, "HL0085", "it is not a shared library"),
        (&cut, "HL0085", "its headers are damaged"),
        (&foreign, "HL0085", "it is for another processor"),
        (&own, "HL0085", "it is a program"),
        (&other, "HL0085", "it exports no `malloc`"),
    ] {
        for verb in [&["run"][..], &["record", "-o", "/dev/null"], &["check"], &["log", "record", "-o", "/dev/null"]] {
            let path = path.to_str().unwrap();
            let line = verb.iter().copied().chain(["--allocator", path, "--", "touch", "/dev/null/not-run"]);
            let outcome = heapledger(line);
            let said = told(&outcome);
            assert_eq!((outcome.status, outcome.text().as_str()), (exited(101), ""), "{verb:?} {path}: {said}");
            assert!(said.starts_with(&format!("error[{code}]: cannot use the allocator `{path}`")), "{verb:?}: {said}");
            assert!(said.contains(why) && said.contains("\nhint: "), "{verb:?} {path}: {said}");
        }
    }
    let unknown = heapledger(["run", "--allocator", "dlmalloc", "--", "true"]);
    assert_eq!(unknown.status, exited(2));
    assert!(told(&unknown).contains("expected system, heapledger, jemalloc"), "{unknown:?}");
}

/// A library without a `realloc` would be given its blocks by the C library's.
#[test]
fn half_an_allocator_is_refused() {
    let scratch = Scratch::new();
    let source = scratch.write("half.c", "#include <stddef.h>\nvoid *malloc(size_t n) { (void)n; return 0; }\n\
                               void *calloc(size_t n, size_t m) { (void)n, (void)m; return 0; }\nvoid free(void *p) { (void)p; }\n");
    let library = scratch.file("half.so");
    let done = plain_command("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status().unwrap();
    assert!(done.success());
    let outcome = with(&Job::new(["true"]), &library);
    assert!(told(&outcome).contains("it exports no `realloc`"), "{outcome:?}");
}

/// A program that nothing can be preloaded into runs as always, and the command says so.
#[test]
fn a_static_program_runs_with_the_allocator_that_it_has() {
    let fixture = build("dies", Build::Static);
    let job = Job::new([fixture.as_os_str(), "10".as_ref(), "return".as_ref()]);
    let words = ["run", "--allocator", "heapledger"].map(OsStr::new);
    let outcome = job.through(words).outcome();
    assert_eq!((outcome.status, outcome.stdout.as_slice()), (job.bare().status, job.bare().stdout.as_slice()));
    let said = told(&outcome);
    assert!(said.contains("warning[HL0001]") && said.contains("it will run with the allocator that it has"), "{said}");
    assert_eq!(with(&job, "heapledger"), job.bare());
    // As a child, too.
    same(&Job::shell("$PROGRAMS/dies.static 10 return; echo $?"));
}

/// The share of malloc in the memory of an interpreter does not matter when nothing is recorded.
#[test]
fn only_obstacles_are_reported() {
    let Some(python) = installed("python3") else { return };
    let job = Job::new([python.as_os_str(), "-c".as_ref(), "print(1)".as_ref()]);
    let outcome = job.through(["run", "--allocator", "heapledger"].map(OsStr::new)).outcome();
    assert_eq!((outcome.text(), told(&outcome)), ("1\n".to_owned(), String::new()));
}

/// Libraries that bind to the C library past the preloaded ones: their blocks are freed by others,
/// and they free those of others.
#[test]
fn libraries_that_bind_deeply() {
    let directory = build("plugin_a", Build::Module);
    build("deepbind_plugin", Build::Module);
    let directory = directory.parent().unwrap().to_str().unwrap();
    for mode in ["lazy", "now", "bare", "handle"] {
        same(&Job::fixture("deepbind", &format!("{directory} {mode} 1000")));
    }
    // Debian's opens its extensions so. With an allocator in LD_PRELOAD alone it aborts.
    if let Some(php) = installed("php") {
        let script = "$a = []; for ($i = 0; $i < 20000; $i++) $a[] = str_repeat('x', $i % 60); echo count($a), count(get_loaded_extensions());";
        let job = Job::new([php.as_os_str(), "-r".as_ref(), script.as_ref()]);
        same(&job);
        same(&job.variable("USE_ZEND_ALLOC", "0"));
    }
}

/// Each namespace of `dlmopen` keeps the allocator of its own C library.
#[test]
fn namespaces() {
    let directory = build("namespace_plugin", Build::Module);
    let directory = directory.parent().unwrap().to_str().unwrap();
    same(&Job::fixture("namespaces", &format!("{directory} mix 100")).variable("WORK", "100"));
}

/// Programs that are hard on an allocator, or on whatever is preloaded.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_that_are_hard_on_it() {
    for (name, arguments) in [
        ("early", "500"),
        ("lifetime", ""),
        ("closes", ""),
        ("tiny_stacks", "100"),
        ("main_exits", ""),
        ("sandbox", ""),
        ("environment", ""),
        ("edits", "20"),
        ("spawn_threads", "20"),
    ] {
        let outcome = same(&Job::fixture(name, arguments));
        assert!(outcome.status.code().is_some(), "{name}: {outcome:?}");
    }
    let confined = ["strict", "filter", "threads", "fork", "exec"].map(|how| ("confined", how));
    // Their output depends on who runs first.
    for (name, arguments) in confined.into_iter().chain([("fork_threads", "100"), ("depths", "5000")]) {
        let job = Job::fixture(name, arguments);
        let (bare, outcome) = (job.bare(), with(&job, "heapledger"));
        assert_eq!((outcome.status, &outcome.stderr), (bare.status, &bare.stderr), "{name} {arguments}: {outcome:?}");
    }
    for how in ["return", "_exit", "quick_exit", "exit_group", "abort", "SEGV", "TERM"] {
        same(&Job::fixture("dies", &format!("5000 {how}")));
    }
}

// ---------------------------------------------------------------------------------- heapledger lib

/// Runs `heapledger lib`, with a data directory in the scratch directory.
fn lib(scratch: &Scratch, words: &[&str]) -> Outcome {
    let job = Job::new([HEAPLEDGER, "lib"].iter().chain(words)).variable("XDG_DATA_HOME", scratch.path());
    job.bare()
}

/// A library that is asked for stays, for programs that nobody starts by the command.
#[test]
fn the_library_is_written_once_and_can_be_preloaded() {
    let scratch = Scratch::new();
    let outcome = lib(&scratch, &["allocator"]);
    let path = scratch.file("heapledger/lib").canonicalize().unwrap().join(CARRIED);
    assert_eq!(
        (outcome.status, outcome.text(), told(&outcome)),
        (exited(0), format!("{}\n", path.display()), String::new())
    );
    let before = fs::metadata(&path).unwrap();
    assert_eq!(lib(&scratch, &["allocator"]), outcome);
    assert_eq!(fs::metadata(&path).unwrap().ino(), before.ino(), "the same file");

    let preloaded = loaded("$LIBRARIES | sort -u").variable("LD_PRELOAD", &path).bare();
    assert_eq!(preloaded.text(), format!("{CARRIED}\n"), "{preloaded:?}");

    // A file with another content is replaced, by one with another number: programs that have
    // mapped the old one keep it.
    fs::write(&path, "tampered").unwrap();
    let before = fs::metadata(&path).unwrap();
    let read = |outcome: &Outcome| documents::read(&outcome.stdout);
    let answer = read(&lib(&scratch, &["allocator", "--json"]));
    assert_eq!(answer["is_new"], true, "{answer}");
    assert_eq!(answer["environment"], format!("LD_PRELOAD={}", path.display()), "{answer}");
    assert_ne!(fs::metadata(&path).unwrap().ino(), before.ino());
    let answer = read(&lib(&scratch, &["allocator", "--json"]));
    assert_eq!((&answer["is_new"], &answer["path"]), (&false.into(), &path.to_str().unwrap().into()), "{answer}");
}

/// The preload library calls hook libraries by environment variables alone.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn hooks_without_the_command() {
    let scratch = Scratch::new();
    let outcome = lib(&scratch, &["preload", "--directory", scratch.file("there").to_str().unwrap()]);
    let preload = outcome.text().trim_end().to_owned();
    let allocator = lib(&scratch, &["allocator"]).text().trim_end().to_owned();
    let (histogram, _) = crate::hooks::examples();
    let hooks = format!("{}:{allocator}", histogram.display());
    let file = scratch.file("histogram");
    let job = loaded("$LIBRARIES | sort -u; env | grep -e ^LD_PRELOAD -e ^HEAPLEDGER_HOOKS")
        .variable("LD_PRELOAD", format!("{preload}:{hooks}"))
        .variable("HEAPLEDGER_HOOKS", &hooks)
        .variable("HISTOGRAM", &file);
    let outcome = job.bare();
    assert_eq!((outcome.text(), told(&outcome)), (format!("{CARRIED}\n"), String::new()));
    assert!(fs::read_to_string(file).unwrap().contains("process "));
}

#[test]
fn a_place_where_no_library_can_be_is_refused() {
    let scratch = Scratch::new();
    let spaced = scratch.file("a b");
    let outcome = lib(&scratch, &["allocator", "--directory", spaced.to_str().unwrap()]);
    assert!(outcome.status == exited(1) && told(&outcome).contains("spaces"), "{outcome:?}");
    let outcome = Job::new([HEAPLEDGER, "lib", "allocator"]).variable("XDG_DATA_HOME", "").variable("HOME", "").bare();
    assert!(outcome.status == exited(2) && told(&outcome).contains("--directory DIR"), "{outcome:?}");
    assert_eq!(lib(&scratch, &["other"]).status, exited(2));
}

/// Returns the files below a directory with their contents, by their names.
fn tree(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let done = Command::new("find").arg(directory).args(["-type", "f"]).output().unwrap();
    let mut files: Vec<_> = String::from_utf8(done.stdout)
        .unwrap()
        .lines()
        .map(|path| (path.to_owned(), fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}
