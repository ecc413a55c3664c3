//! Hook libraries in programs that people use: the output is unchanged, and hooks see the same
//! calls as the recorder.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use crate::harness::{Build, Job, Outcome, Scratch, build, exited, headers, installed, number};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn must(command: &mut Command) {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&done.stderr));
}

/// Compiles a hook library in C, as C99; its includes must compile without a warning.
pub(crate) fn library(source: &Path, into: &Path) -> PathBuf {
    let options = ["-std=c99", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic", "-shared", "-fPIC"];
    must(Command::new("cc").args(options).arg("-I").arg(headers()).arg("-o").arg(into).arg(source));
    into.to_owned()
}

/// Compiles a hook library from this text.
fn library_of(text: &str, name: &str, scratch: &Scratch) -> PathBuf {
    library(&scratch.write(&format!("{name}.c"), text), &scratch.file(&format!("lib{name}.so")))
}

/// Builds the example in C, and the one in Rust.
pub(crate) fn examples() -> &'static (PathBuf, PathBuf) {
    static BUILT: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    BUILT.get_or_init(|| {
        let into = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hooks");
        fs::create_dir_all(&into).unwrap();
        let fresh = into.join(format!("histogram.{}", std::process::id()));
        let histogram = into.join("libhistogram.so");
        library(&root().join("examples/hooks/histogram.c"), &fresh);
        fs::rename(fresh, &histogram).unwrap();
        let manifest = root().join("examples/hooks/fences/Cargo.toml");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--release", "--locked", "--offline", "--manifest-path"]).arg(manifest);
        must(cargo.arg("--target-dir").arg(into.join("fences")));
        (histogram, into.join("fences/release/libfences.so"))
    })
}

/// Runs the same job under `heapledger run`.
fn hooked(job: &Job, libraries: &[&Path]) -> Outcome {
    job.launched("run", libraries).outcome()
}

/// Returns the numbers of a file's histograms: process, allocations, frees, failures.
fn histograms(file: &Path) -> Vec<[i64; 4]> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines().filter(|line| line.starts_with("process "));
    lines
        .map(|line| {
            let mut numbers = line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
            std::array::from_fn(|_| numbers.next().unwrap())
        })
        .collect()
}

/// Returns programs that allocate and exit.
fn programs(scratch: &Scratch) -> Vec<Job> {
    let mut jobs = vec![];
    if let Some(git) = installed("git") {
        let tree = scratch.file("tree");
        fs::create_dir(&tree).unwrap();
        let setup = "git init -q . && for i in 1 2 3 4; do seq $i 500 > file && git add file && \
                     git -c user.name=n -c user.email=e commit -q -m \"change $i\"; done";
        assert!(Job::new(["/bin/sh", "-c", setup]).directory(&tree).bare().status.success());
        let words = [git.as_os_str(), "log".as_ref(), "--stat".as_ref(), "-p".as_ref()];
        jobs.push(Job::new(words).directory(&tree));
    }
    if let Some(python) = installed("python3") {
        let script = "import json; print(len(json.dumps([{'key%d' % i: 'x' * i} for i in range(700)])))";
        let words = [python.as_os_str(), "-c".as_ref(), script.as_ref()];
        jobs.push(Job::new(words).variable("PYTHONMALLOC", "malloc").variable("PYTHONHASHSEED", "0"));
    }
    if let Some(sqlite) = installed("sqlite3") {
        let sql = "create table t(a integer primary key, b text);
                   with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000)
                   insert into t select i, 'text ' || i from n;
                   select count(*), max(b) from t;";
        jobs.push(Job::new([sqlite.as_os_str(), ":memory:".as_ref()]).stdin(sql));
    }
    jobs
}

/// Without hooks, a program runs as it does by itself.
#[test]
fn no_hook_at_all() {
    let job = Job::shell("env | grep -e HEAPLEDGER -e LD_PRELOAD; echo out; echo err >&2; exit 4");
    assert_eq!(job.launched("run", &[]).outcome(), job.bare());
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn an_observer_sees_as_many_calls_as_the_recorder() {
    let scratch = Scratch::new();
    let (histogram, _) = examples();
    for (index, job) in programs(&scratch).into_iter().enumerate() {
        let (alone, beside) = (scratch.file(&format!("alone{index}")), scratch.file(&format!("beside{index}")));
        let bare = job.bare();
        assert_eq!(hooked(&job.clone().variable("HISTOGRAM", &alone), &[histogram]), bare);
        assert!(histograms(&alone).iter().any(|&[_, allocations, ..]| allocations > 100), "{alone:?}");

        let job = job.variable("HISTOGRAM", &beside).option("--hook").option(histogram.to_str().unwrap());
        let (outcome, recording) = job.recorded(&scratch);
        assert_eq!(outcome, bare);
        recording.assert_whole().assert_adds_up();
        let told = histograms(&beside);
        assert!(!told.is_empty());
        for [pid, allocations, frees, failures] in told {
            let process = recording.process(pid);
            let counted = ["allocations", "frees", "failed"].map(|name| number(process, name));
            assert_eq!(counted, [allocations, frees, failures], "{process:#}");
        }
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_replacement_handles_calls_of_unmodified_programs() {
    let scratch = Scratch::new();
    let (histogram, fences) = examples();
    for (index, job) in programs(&scratch).into_iter().enumerate() {
        let (served, counted) = (scratch.file(&format!("served{index}")), scratch.file(&format!("counted{index}")));
        let bare = job.bare();
        let job = job.variable("FENCES", &served).variable("HISTOGRAM", &counted);
        assert_eq!(hooked(&job, &[fences, histogram]), bare);
        let text = fs::read_to_string(&served).unwrap();
        let blocks = |line: &str| line.split(' ').nth(3).and_then(|number| number.parse::<u64>().ok());
        assert!(text.lines().any(|line| blocks(line) > Some(0)), "{text}");
        assert!(!histograms(&counted).is_empty());

        let job = job.option("--hook").option(fences.to_str().unwrap());
        let (outcome, recording) = job.recorded(&scratch);
        assert_eq!(outcome, bare);
        recording.assert_whole().assert_adds_up();
    }
}

/// The replacement serves its purpose: it finds a write past the end of a block, and a use after
/// free.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_replacement_finds_what_a_program_does_wrong() {
    const SIGSEGV: i32 = 11;
    let (_, fences) = examples();
    for wrong in ["overrun", "reuse"] {
        let job = Job::fixture("careless", wrong);
        assert_eq!(job.bare().status, exited(0), "{wrong}");
        let outcome = hooked(&job, &[fences]);
        assert_eq!(outcome.status.signal(), Some(SIGSEGV), "{wrong}: {outcome:?}");
    }
    assert_eq!(hooked(&Job::fixture("careless", "none"), &[fences]).status, exited(0));
}

/// Children get the hooks, too, however they are started, and their environment does not show it.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn children_get_the_hooks() {
    let Some(_) = installed("perl") else { return };
    let scratch = Scratch::new();
    let (histogram, fences) = examples();
    let file = scratch.file("histogram");
    let line =
        "env | sort; HISTOGRAM=$HISTOGRAM LC_ALL=C ls -d / ; perl -e 'print `ls -d /`'; env -i perl -e 'print 1'";
    let job = Job::shell(line).variable("HISTOGRAM", &file);
    let bare = job.bare();
    let outcome = hooked(&job, &[fences, histogram]);
    assert_eq!((outcome.status, &outcome.stdout), (bare.status, &bare.stdout));
    // The last one has no HISTOGRAM and prints it here: it is the one that adds something.
    let added = String::from_utf8_lossy(&outcome.stderr);
    assert!(
        added.starts_with("process ") && added.lines().filter(|line| line.starts_with("process ")).count() == 1,
        "{added}"
    );
    // env, sort, two times ls, perl; the shell does not end by `exit`.
    assert!(histograms(&file).len() >= 5, "{:?}", histograms(&file));
}

/// Children made by vfork run in their parent's memory, and leave nothing in it.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn children_leave_nothing_behind() {
    let Some(python) = installed("python3") else { return };
    let script = "
import os, subprocess
def spawn():
    os.waitpid(os.posix_spawn('/bin/true', ['true'], os.environ), 0)
    subprocess.run(['/bin/true'])
def mappings():
    return len(open('/proc/self/maps').readlines())
for _ in range(5): spawn()
before = mappings()
for _ in range(100): spawn()
print(mappings() - before < 20)";
    let job = Job::new([python.as_os_str(), "-c".as_ref(), script.as_ref()]).variable("HISTOGRAM", "/dev/null");
    assert_eq!(job.bare().text(), "True\n");
    assert_eq!(hooked(&job, &[&examples().0]), job.bare());
}

/// Allocations during the installation of hooks are not observed; and the functions that an
/// observer leaves out are derived from those that it gives.
#[test]
fn what_is_left_out_is_derived() {
    let scratch = Scratch::new();
    let text = r#"
#include <heapledger/hooks.h>
#include <stdio.h>
#include <stdlib.h>
HEAPLEDGER_HOOK_LIBRARY;
static uint64_t allocations, frees, own;
static void allocated(void *block, size_t size, heapledger_caller caller) {
    (void)block, (void)caller;
    __atomic_fetch_add(&allocations, 1, __ATOMIC_RELAXED);
    own += size == 123457;
}
static void freed(void *block, heapledger_caller caller) {
    (void)block, (void)caller;
    __atomic_fetch_add(&frees, 1, __ATOMIC_RELAXED);
}
static heapledger_observer observer = HEAPLEDGER_OBSERVER(0, "derived", allocated, freed);
int heapledger_hook_init(const heapledger_functions *real, const heapledger_hooks *hooks) {
    int result = hooks->install_observer(&observer);
    void *volatile block = malloc(123457);
    free(block);
    real->free(real->malloc(123457));
    return result;
}
__attribute__((destructor)) static void print(void) {
    FILE *file = fopen(getenv("DERIVED"), "w");
    if (file == NULL) return;
    fprintf(file, "%lu %lu %lu", (unsigned long)allocations, (unsigned long)frees, (unsigned long)own);
    fclose(file);
}
"#;
    let library = library_of(text, "derived", &scratch);
    let file = scratch.file("numbers");
    let job =
        Job::fixture("mix", "20000").variable("DERIVED", &file).option("--hook").option(library.to_str().unwrap());
    let bare = job.bare();
    let (outcome, recording) = job.recorded(&scratch);
    assert_eq!(outcome, bare);
    let numbers = fs::read_to_string(file).unwrap();
    let numbers: Vec<i64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
    let [allocations, frees, own] = numbers[..] else { panic!("{numbers:?}") };
    assert_eq!(own, 0, "the library's own allocations were told");
    // An observer sees a reallocation that fails as a free and an allocation. The library's own
    // stdio comes after its counting.
    let failed = allocations - recording.total("allocations");
    assert!(failed > -10 && allocations > 10_000, "{numbers:?} {recording:?}");
    let live = recording.total("allocations") - recording.total("frees");
    assert!((allocations - frees - live).abs() < 10, "{numbers:?} {recording:?}");
}

#[test]
fn libraries_that_are_none_are_refused() {
    let scratch = Scratch::new();
    let (histogram, _) = examples();
    let init = "#include <heapledger/hooks.h>\nint heapledger_hook_init(const heapledger_functions *r, const heapledger_hooks *h) { return !r + !h; }\n";
    let without_version = library_of(init, "unversioned", &scratch);
    let other_version = format!("{init}const uint32_t heapledger_hook_version = HEAPLEDGER_HOOK_VERSION + 1;\n");
    let other_version = library_of(&other_version, "newer", &scratch);
    let cases = [
        (PathBuf::from("/nonexistent.so"), "HL0020"),
        (scratch.path().to_owned(), "HL0020"),
        (scratch.write("text", "not ELF"), "HL0021"),
        (PathBuf::from("/bin/sh"), "HL0021"),
        (build("plugin_a", Build::Module), "HL0021"),
        (without_version, "HL0022"),
        (other_version, "HL0022"),
    ];
    let job = Job::new(["/bin/echo", "it ran"]);
    for (library, code) in cases {
        // A valid one beside it does not help.
        let refused = hooked(&job, &[histogram, &library]);
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!((refused.status, &*refused.stdout), (exited(101), &b""[..]), "{library:?}: {refused:?}");
        assert!(text.contains(code) && text.contains("\nhint: "), "{library:?}: {text}");
        let option = library.to_str().unwrap();
        let recorded = job.clone().option("--hook").option(option).start(Some(&scratch.file("x.hl"))).outcome();
        assert_eq!(recorded.status, exited(101), "{recorded:?}");
    }
    assert!(!scratch.file("x.hl").exists());
}

/// File names that the loader cannot take unchanged.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_library_with_spaces_in_its_name() {
    let scratch = Scratch::new();
    let (histogram, _) = examples();
    let odd = scratch.file("a b:c $x.so");
    fs::copy(histogram, &odd).unwrap();
    let file = scratch.file("histogram");
    let job = Job::new(["/bin/ls", "-d", "/"]).variable("HISTOGRAM", &file);
    assert_eq!(hooked(&job, &[&odd]), job.bare());
    assert_eq!(histograms(&file).len(), 1);
}

#[test]
fn run_ends_as_the_program_does() {
    let (histogram, _) = examples();
    let run = |line: &str| hooked(&Job::shell(line).variable("HISTOGRAM", "/dev/null"), &[histogram]).status;
    assert_eq!(run("exit 7"), exited(7));
    assert_eq!(run("kill -TERM $$").signal(), Some(15));
    let missing = hooked(&Job::new(["/nonexistent/program"]), &[histogram]);
    assert_eq!(missing.status, exited(127), "{missing:?}");
}

/// Hooks are installed and removed thousands of times while four threads allocate: no call is
/// missed, seen twice, or seen after the removal.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_storm_of_hooks() {
    let scratch = Scratch::new();
    let job = Job::fixture("hooks_storm", "2000");
    let sums = |outcome: &Outcome| {
        assert!(outcome.status.success(), "{outcome:?}");
        let told: Value = outcome.printed_objects().remove(0);
        ["allocations", "frees"].map(|name| number(&told, name))
    };
    let (outcome, recording) = job.recorded(&scratch);
    let [allocations, frees] = sums(&outcome);
    recording.assert_whole().assert_adds_up();
    // The program's own allocations, and a few of the C library's for threads and output.
    let few = 0..=20;
    assert!(few.contains(&(recording.total("allocations") - allocations)), "{allocations} {recording:?}");
    assert!(few.contains(&(recording.total("frees") - frees)), "{frees} {recording:?}");

    let file = scratch.file("histogram");
    let (histogram, fences) = examples();
    let outcome = hooked(&job.variable("HISTOGRAM", &file), &[histogram, fences]);
    let [allocations, frees] = sums(&outcome);
    let [_, told_allocations, told_frees, _] = histograms(&file)[0];
    assert!(few.contains(&(told_allocations - allocations)) && few.contains(&(told_frees - frees)), "{outcome:?}");
}

/// The headers compile as C99 and as C++11, with every warning; and a program that looks for the
/// hook table runs alone.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn the_header_compiles_and_runs_alone() {
    let scratch = Scratch::new();
    let text = "#include <heapledger/hooks.h>\n#include <heapledger/hooks.h>\n\
        static void allocated(void *block, size_t size, heapledger_caller caller) { (void)block; (void)size; (void)caller; }\n\
        static void freed(void *block, heapledger_caller caller) { (void)block; (void)caller; }\n\
        static heapledger_observer observer = HEAPLEDGER_OBSERVER(1, \"none\", allocated, freed);\n\
        static const heapledger_functions *below;\n\
        static heapledger_replacement replacement = HEAPLEDGER_REPLACEMENT(1, \"none\", &below);\n\
        int main(void) {\n\
            const heapledger_hooks *hooks = heapledger_find_hooks();\n\
            if (hooks == NULL) return 0;\n\
            if (hooks->size < sizeof *hooks || hooks->version != HEAPLEDGER_HOOK_VERSION) return 1;\n\
            if (hooks->install_observer(&observer) != 0) return 2;\n\
            if (hooks->install_replacement(&replacement) != 0 || below == NULL) return 3;\n\
            size_t arena = hooks->program->create_arena(NULL);\n\
            void *block = hooks->program->arena_malloc(arena, 100);\n\
            if (block == NULL) return 4;\n\
            hooks->program->arena_free(arena, block);\n\
            observer.size = 8;\n\
            if (hooks->install_observer(NULL) != HEAPLEDGER_HOOK_MALFORMED) return 5;\n\
            if (hooks->remove_replacement(&replacement) != 0) return 6;\n\
            return 20;\n\
        }\n";
    for (compiler, standard, suffix) in [("gcc", "c99", "c"), ("g++", "c++11", "cpp"), ("clang", "c99", "c")] {
        let Some(compiler) = compiler_of(compiler) else { continue };
        for extra in ["-fPIE", "-fno-pie"] {
            let source = scratch.write(&format!("alone.{suffix}"), text);
            let program = scratch.file("alone");
            let options = ["-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", extra];
            let link = if extra == "-fPIE" { "-pie" } else { "-no-pie" };
            let mut command = Command::new(&compiler);
            command.args(options).arg(format!("-std={standard}")).arg(link).arg("-I").arg(headers());
            must(command.arg(source).arg("-o").arg(&program));
            let job = Job::new([&program]);
            assert_eq!(job.bare().status, exited(0), "{compiler:?} {extra}");
            let (outcome, recording) = job.recorded(&scratch);
            assert_eq!(outcome.status, exited(20), "{compiler:?} {extra}");
            assert_eq!(recording.total("allocations"), 1, "{recording:?}");
        }
    }
}

/// Returns a compiler that a distribution may not have. The C++ compiler and gcc exist wherever
/// fixtures are built.
fn compiler_of(name: &str) -> Option<PathBuf> {
    if name == "clang" && !Path::new("/usr/bin/clang").exists() { None } else { installed(name) }
}
