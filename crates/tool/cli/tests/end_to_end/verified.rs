//! `record --verify-stacks`: every captured stack agrees with glibc's `backtrace`.
//!
//! `cargo test -p heapledger-cli --test end_to_end verified:: -- --ignored --nocapture` is the long
//! form: millions of stacks, and a table of them.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use crate::harness::{Build, HEAPLEDGER, Job, Recording, Scratch, build, heapledger, installed, number};

/// Records with verification and checks that no stack differs. Returns the number of compared
/// stacks.
#[track_caller]
pub(crate) fn verified(job: Job, scratch: &Scratch) -> i64 {
    let (_, recording) = job.option("--verify-stacks").timeout(Duration::from_secs(600)).both(scratch);
    let compared = recording.total("stacks_verified");
    assert_eq!(recording.total("stacks_mismatched"), 0, "{:#}\n{recording:?}", mismatches(&recording));
    assert_eq!(recording.total("stacks_incomparable_outlasting"), 0, "{recording:?}");
    assert!(compared > 0, "nothing was compared: {recording:?}");
    compared
}

fn mismatches(recording: &Recording) -> serde_json::Value {
    recording.ask("info", &[])["stack_mismatches"].clone()
}

/// Asserts that no stack differs, and that none was left out.
#[track_caller]
fn assert_all_verified(recording: &Recording) {
    let of = |name| recording.total(name);
    assert_eq!(of("stacks_mismatched"), 0, "{:#}\n{recording:?}", mismatches(recording));
    assert_eq!((of("stacks_incomparable"), of("stacks_dropped")), (0, 0), "{recording:?}");
    // Failed calls have stacks, too.
    assert!(of("stacks_verified") >= of("allocations"), "{recording:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn in_programs_that_are_hard_to_unwind() {
    let scratch = Scratch::new();
    for (name, arguments) in
        [("fibers", "40"), ("signals", "100"), ("escapes", "3000"), ("deep", "20000"), ("stacks", "5000")]
    {
        verified(Job::fixture(name, arguments), &scratch);
    }
    let directory = build("plugin_a", Build::Module).parent().unwrap().to_owned();
    build("plugin_b", Build::Module);
    let plugins = format!("{} 20", directory.display());
    for (name, arguments) in
        [("plugins", plugins.as_str()), ("mix_threads", "2000"), ("forks", ""), ("tiny_stacks", "30")]
    {
        let (_, recording) = Job::fixture(name, arguments).option("--verify-stacks").recorded(&scratch);
        assert_all_verified(&recording);
    }
    if installed("c++").is_some() {
        verified(Job::fixture("unwinds", "500"), &scratch);
        verified(Job::fixture("lifetime", ""), &scratch);
    }
}

/// The destructors of a thread allocate after the recorder has released it: no stack is taken
/// there. Each stack is still in one of three classes.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn in_threads_that_allocate_while_they_end() {
    if installed("c++").is_none() {
        return;
    }
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("endings", "50").option("--verify-stacks").both(&scratch);
    let of = |name: &str| recording.total(name);
    assert_eq!(of("stacks_mismatched"), 0, "{recording:?}");
    let (verified, incomparable) = (of("stacks_verified"), of("stacks_incomparable"));
    assert_eq!(verified + incomparable, of("allocations"), "{recording:?}");
    assert!(of("stacks_incomparable_missing") >= 50 && verified > 0, "{recording:?}");
    let reasons = ["unasked", "outlasting", "missing"].map(|reason| of(&format!("stacks_incomparable_{reason}")));
    assert_eq!(reasons.iter().sum::<i64>(), incomparable, "{recording:?}");
    // `info` has the counts, too, as data and as text.
    let info = recording.ask("info", &[]);
    assert_eq!(number(&info, "stacks_verified"), verified, "{info:#}");
    assert_eq!(number(&info, "stacks_incomparable"), incomparable, "{info:#}");
    let text = heapledger(["info".as_ref(), recording.path.as_os_str()]).text();
    assert!(text.contains(" verified, 0 mismatched, ") && text.contains("no stack was taken"), "{text}");
    // Without verification nothing is incomparable, and the summary omits it.
    let (_, recording) = Job::fixture("endings", "50").recorded(&scratch);
    assert_eq!(recording.total("stacks_incomparable"), 0, "{recording:?}");
    let text = heapledger(["summary".as_ref(), recording.path.as_os_str()]).text();
    assert!(text.contains("stacks missing"), "{text}");
}

/// If a program's segments are not contiguous, glibc knows only the segment that contains an
/// address.
#[test]
fn in_a_program_with_holes() {
    let scratch = Scratch::new();
    let apart = build("stacks", Build::Apart);
    let (_, recording) = Job::new([apart.as_os_str(), "5000".as_ref()]).option("--verify-stacks").both(&scratch);
    assert_all_verified(&recording);
}

#[test]
fn of_a_stack_that_was_cut() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("deep", "5000").option("--verify-stacks").both(&scratch);
    assert_all_verified(&recording);
    assert!(recording.total("stacks_truncated") > 0, "{recording:?}");
}

/// Verifying takes little address space.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn under_a_tight_limit() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("limits", "AS 60000000").option("--verify-stacks").both(&scratch);
    assert_all_verified(&recording);
}

/// Unwind information that a program registers at run time is not used, but frame pointers are.
/// glibc, which uses it, finds the same.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn in_generated_code() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("registers", "50").option("--verify-stacks").both(&scratch);
    assert_eq!((recording.total("stacks_mismatched"), recording.total("stacks_unproven")), (0, 50), "{recording:?}");
    assert!(recording.total("stacks_verified") >= 50, "{recording:?}");
}

/// Without frame pointers a difference is detected, counted and reported.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_difference_is_told() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("registers", "50 without").option("--verify-stacks").both(&scratch);
    recording.assert_whole();
    assert_eq!(recording.total("stacks_mismatched"), 50, "{recording:?}");
    let mismatches = mismatches(&recording);
    let [mismatch] = &mismatches.as_array().unwrap()[..] else { panic!("not one stack: {mismatches:#}") };
    assert_eq!((number(mismatch, "differs_at"), number(mismatch, "first_frame")), (2, 0), "{mismatches:#}");
    let (ours, theirs) = (mismatch["recorded"].as_array().unwrap(), mismatch["glibc"].as_array().unwrap());
    assert_eq!((ours.len(), &ours[..]), (2, &theirs[..2]), "{mismatches:#}");
    let is_in_program =
        |place: &serde_json::Value| place["module"].as_str().is_some_and(|it| it.ends_with("/registers"));
    assert!(is_in_program(&ours[0]) && ours[1]["module"] == "[jit]" && is_in_program(&theirs[2]), "{mismatches:#}");
    // glibc is not called while its unwinder is running: here, within the registration.
    assert!(recording.total("stacks_incomparable_unasked") > 0, "{recording:?}");
    // Without the option glibc is never called.
    let (_, recording) = Job::fixture("registers", "50").recorded(&scratch);
    assert_eq!((recording.total("stacks_verified"), recording.total("stacks_mismatched")), (0, 0), "{recording:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn in_real_programs() {
    let scratch = Scratch::new();
    for workload in workloads(&scratch, 1) {
        verified(workload.job, &scratch);
    }
}

#[test]
#[ignore = "takes minutes: `.ci/run full` runs it"]
fn by_the_million() {
    let scratch = Scratch::new();
    let mut all = 0;
    for workload in workloads(&scratch, 10) {
        let (_, recording) = workload.job.option("--verify-stacks").timeout(Duration::from_secs(3600)).both(&scratch);
        let of = |name| recording.total(name);
        let (verified, mismatched) = (of("stacks_verified"), of("stacks_mismatched"));
        println!(
            "| {} | {verified} | {mismatched} | {} | {} |",
            workload.name,
            of("stacks_incomparable_unasked"),
            of("stacks_incomparable_outlasting")
        );
        assert_eq!(mismatched, 0, "{}: {:#}\n{recording:?}", workload.name, mismatches(&recording));
        all += verified;
    }
    println!("| all | {all} | 0 | | |");
    assert!(all >= 1_000_000, "only {all} stacks");
}

pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) job: Job,
}

/// Returns real programs and fixtures, each `size` times as large as for a quick test.
pub(crate) fn workloads(scratch: &Scratch, size: usize) -> Vec<Workload> {
    let mut workloads = vec![];
    let mut add = |name, job: Job| workloads.push(Workload { name, job: job.directory(scratch.path()) });
    let is_long = size > 1;
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    if installed("c++").is_some() {
        // cc1plus -O2 over most of the standard library makes 3.5 million; over a header or two, a
        // tenth of that.
        let header = if is_long { "bits/stdc++.h" } else { "vector" };
        scratch.write("big.cpp", format!("#include <{header}>\n{}", if is_long { CPP } else { "" }));
        add("g++ -O2 (cc1plus, as)", Job::new(["c++", if is_long { "-O2" } else { "-O0" }, "-c", "big.cpp"]));
        add("exceptions and longjmp (C++)", Job::fixture("unwinds", &(2000 * size).to_string()));
    }
    if let Some(python) = installed("python3") {
        let script = scratch.write("work.py", PYTHON);
        let job = Job::new([python.as_os_str(), script.as_os_str(), (500 * size).to_string().as_ref()]);
        add("python3 with C extensions", job.variable("PYTHONMALLOC", "malloc"));
    }
    if installed("rustc").is_some() {
        add("threads, channels, panics (Rust)", Job::fixture("crew", &(50 * size).to_string()));
        let inner = scratch.file("inner.hl");
        let own = ["record", "-q", "-f", "-o"].map(OsStr::new).into_iter().chain([inner.as_os_str(), "--".as_ref()]);
        let perl = ["perl", "-e", "my %h; $h{$_} = [$_] for 1..2000"].map(OsStr::new);
        if installed("perl").is_some() {
            add(
                "heapledger record (Rust, threads)",
                Job::new([OsStr::new(HEAPLEDGER)].into_iter().chain(own).chain(perl)),
            );
        }
        // The tree of packages: it is large, and needs files that only a build of the whole
        // workspace has downloaded.
        if is_long {
            let job = Job::new([env!("CARGO"), "tree", "--offline", "--manifest-path"]);
            add("cargo tree (Rust)", job.argument(repository.join("Cargo.toml")));
        }
    }
    if let Some(git) = installed("git") {
        let count = (3 * size).to_string();
        let job = Job::new([git.as_os_str(), "log".as_ref(), "-p".as_ref(), "-n".as_ref(), count.as_ref()]);
        workloads.push(Workload { name: "git log -p", job: job.directory(&repository) });
    }
    let mut add = |name, job: Job| workloads.push(Workload { name, job: job.directory(scratch.path()) });
    if installed("perl").is_some() {
        let script =
            format!("my %h; $h{{$_}} = [split //, \"x$_\"] for 1..{}; print scalar(sort keys %h)", 5000 * size);
        add("perl", Job::new(["perl", "-e", &script]));
    }
    if installed("jq").is_some() {
        add(
            "jq",
            Job::new([
                "jq",
                "-n",
                &format!("[range({}) | tostring | {{a: .}}] | group_by(.a[0:2]) | length", 3000 * size),
            ]),
        );
    }
    if installed("sqlite3").is_some() {
        let sql = format!(
            "create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n where i < {}) \
             insert into t select i, hex(i * 7919 % 10007) from n; create index x on t(b); \
             select count(*), max(b), group_concat(distinct substr(b, 1, 3)) from t group by substr(b, 2, 2);",
            5000 * size
        );
        add("sqlite3", Job::new(["sqlite3", ":memory:", &sql]));
    }
    add("threads (C)", Job::fixture("mix_threads", &(10_000 * size).to_string()));
    add("signal handlers, alternate stacks", Job::fixture("signals", &(200 * size).to_string()));
    add("fibers", Job::fixture("fibers", &(100 * size).to_string()));
    let directory = build("plugin_a", Build::Module).parent().unwrap().to_owned();
    build("plugin_b", Build::Module);
    add("dlopen and dlclose", Job::fixture("plugins", &format!("{} {}", directory.display(), 20 * size)));
    workloads
}

const CPP: &str = r#"
int main(int argc, char **argv) {
    std::regex pattern(argv[0]);
    std::map<std::string, std::vector<std::function<int(int)>>> map;
    map["x"].push_back([](int value) { return value; });
    std::unordered_map<int, std::string> other;
    std::sort(argv, argv + argc);
    return std::regex_match("x", pattern) + map.size() + other.size();
}
"#;

const PYTHON: &str = r#"
import bz2, csv, ctypes, decimal, io, json, pickle, re, sqlite3, ssl, sys, zlib
import xml.etree.ElementTree as etree

n = int(sys.argv[1])
rows = [{"id": i, "name": "n%d" % i, "v": [i, i / 3, None]} for i in range(n)]
text = json.dumps(rows)
assert json.loads(text) == rows
database = sqlite3.connect(":memory:")
database.execute("create table t(a, b)")
database.executemany("insert into t values(?, ?)", ((i, "x%d" % i) for i in range(n)))
# Python called by a library, which Python called.
database.create_function("f", 1, lambda x: str(x) + "!")
assert len(list(database.execute("select f(a), b from t order by b"))) == n
etree.fromstring("<r>" + "".join("<a i='%d'>t%d</a>" % (i, i) for i in range(n)) + "</r>")
sum(decimal.Decimal(i) / 7 for i in range(n))
pickle.loads(pickle.dumps(rows))
zlib.compress(text.encode())
bz2.compress(text.encode()[:10000])
re.sub(r"(\d+)", lambda m: str(int(m.group(1)) + 1), text[:100000])
list(csv.reader(io.StringIO(text[:100000])))
compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
at = lambda address: ctypes.cast(address, ctypes.POINTER(ctypes.c_int))[0]
numbers = (ctypes.c_int * n)(*[i * 7919 % 10007 for i in range(n)])
ctypes.CDLL(None).qsort(numbers, n, 4, compare(lambda a, b: at(a) - at(b)))
assert list(numbers) == sorted(numbers)
"#;
