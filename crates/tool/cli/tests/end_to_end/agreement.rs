//! The counts agree with those of valgrind's DHAT and of heaptrack, on programs that people use.
//! docs/agreement.md explains the differences; `-- --nocapture` prints the figures.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Job, Scratch, installed, number, skipped};

/// A program with something to do, in the scratch directory.
struct Subject {
    name: &'static str,
    line: Vec<String>,
    /// Set so that two runs do the same work.
    variables: &'static [&'static str],
}

const PERL: &str = "my %h; $h{$_} = \"x$_\" for 1..20000; print join(',', (sort keys %h)[0..9]), \"\\n\"";
const PYTHON: &str = "import json; print(len(json.dumps([{'i': i} for i in range(20000)])))";
const BASH: &str = "for i in {1..3000}; do x[i]=$i; done; echo ${#x[@]}";
const SQL: &str = "
create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000) insert into t select i, 'text ' || i, i * 1.5 from n;
create index tb on t(b);
select count(*), sum(c), max(b) from t where b like 'text 1%';
";
const TEMPLATES: &str = "
template<int N> struct F { static int f(int x) { return F<N - 1>::f(x * N ^ x) + N; } };
template<> struct F<0> { static int f(int x) { return x; } };
int main(int c, char **) { return F<200>::f(c); }
";

/// Returns the programs that are installed.
fn subjects(scratch: &Scratch) -> Vec<Subject> {
    let records = (0..3000).map(|i| format!(r#"{{"id":{i},"name":"name {i}","value":{}.5}}"#, i * 3));
    scratch.write("a.json", format!("[{}]", records.collect::<Vec<_>>().join(",\n")));
    scratch.write("a.sql", SQL);
    scratch.write("a.cc", TEMPLATES);
    let repository = "git init -q tree && cd tree && for i in 1 2 3 4 5 6 7 8; do seq $i 2000 > file && git add file && \
                      git -c user.name=n -c user.email=e commit -q -m \"change $i\"; done";
    let mut found = Vec::new();
    let mut add = |name: &'static str, arguments: &[&str], variables: &'static [&'static str]| {
        let Some(program) = installed(name) else { return };
        let line = [program.to_str().unwrap()].iter().chain(arguments).map(|word| (*word).to_owned()).collect();
        found.push(Subject { name, line, variables });
    };
    add("jq", &["[.[] | select(.id % 2 == 0) | .name] | length", "a.json"], &[]);
    add("sqlite3", &[":memory:", ".read a.sql"], &[]);
    add("perl", &["-e", PERL], &["PERL_HASH_SEED=0"]);
    add("python3", &["-I", "-c", PYTHON], &["PYTHONMALLOC=malloc", "PYTHONHASHSEED=0"]);
    add("bash", &["--norc", "-c", BASH], &[]);
    if installed("git").is_some() {
        let made = Job::new(["/bin/sh", "-c", repository]).directory(scratch.path()).bare();
        assert!(made.status.success(), "{made:?}");
        add("git", &["-C", "tree", "--no-pager", "log", "-p"], &[]);
    }
    let cc1plus = Command::new("c++").arg("-print-prog-name=cc1plus").output();
    let cc1plus = cc1plus.map_or_else(|_| String::new(), |done| String::from_utf8(done.stdout).unwrap());
    if Path::new(cc1plus.trim()).is_file() {
        let words = [cc1plus.trim(), "-quiet", "-O1", "a.cc", "-o", "a.s"];
        found.push(Subject { name: "cc1plus", line: words.map(str::to_owned).to_vec(), variables: &[] });
    } else {
        skipped("c++ has no cc1plus");
    }
    found
}

impl Subject {
    /// Returns the variables that the program runs with, independent of the test's own: their
    /// number and length affect what some programs allocate.
    fn environment(&self, scratch: &Scratch) -> Vec<String> {
        let own = self.variables.iter().map(|&variable| variable.to_owned());
        let directory = format!("PWD={}", scratch.path().display());
        ["PATH=/usr/bin:/bin", "HOME=/nonexistent", "LANG=C"]
            .map(str::to_owned)
            .into_iter()
            .chain([directory])
            .chain(own)
            .collect()
    }

    /// Returns a job for the program under another tool, or by itself.
    fn job(&self, scratch: &Scratch, environment: &[String], tool: &[&str]) -> Job {
        let words = ["/usr/bin/env", "-i"]
            .into_iter()
            .chain(environment.iter().map(String::as_str))
            .chain(tool.iter().copied());
        Job::new(words.chain(self.line.iter().map(String::as_str))).directory(scratch.path())
    }

    /// Records the program and returns its process.
    fn process(&self, scratch: &Scratch, environment: &[String]) -> Value {
        let (outcome, recording) = self.job(scratch, environment, &[]).both(scratch);
        assert!(outcome.status.success(), "{}: {outcome:?}", self.name);
        let [process] = recording.assert_whole().processes() else { panic!("{}: {recording:?}", self.name) };
        process.clone()
    }

    /// Returns the allowed difference. cc1plus hashes pointers, so its own counts vary with the
    /// addresses that the kernel gives it.
    fn tolerance(&self, is_bytes: bool) -> i64 {
        match (self.name, is_bytes) {
            ("cc1plus", true) => 64 << 10,
            ("cc1plus", false) => 8,
            _ => 0,
        }
    }

    /// Prints a line for docs/agreement.md.
    fn print_line(&self, what: &str, ours: i64, theirs: i64) {
        println!("{:8} {what:16} {ours:10} {theirs:10}", self.name);
    }

    #[track_caller]
    fn assert_close(&self, what: &str, ours: i64, theirs: i64) {
        self.print_line(what, ours, theirs);
        let tolerance = self.tolerance(what.starts_with("bytes"));
        assert!((ours - theirs).abs() <= tolerance, "{what} of {}: {ours} here, {theirs} there", self.name);
    }
}

/// Returns the program's own counts, without those of `env`, which was the process's image before.
fn last_image(process: &Value) -> Value {
    process["images"].as_array().unwrap().last().unwrap().clone()
}

/// Agrees with DHAT in every block and byte.
#[test]
#[ignore = "valgrind takes long; `.ci/run` runs it"]
fn with_dhat() {
    if installed("valgrind").is_none() {
        return;
    }
    let scratch = Scratch::new();
    let output = scratch.file("dhat.json");
    let own = format!("--dhat-out-file={}", output.display());
    let tool = ["valgrind", "--tool=dhat", "--run-libc-freeres=no", "--run-cxx-freeres=no", &own];
    let mut left = subjects(&scratch);
    while let Some(subject) = left.pop() {
        let plain = subject.environment(&scratch);
        // Under valgrind, which adds some variables, so that they are the same.
        let line = ["/usr/bin/env", "-i"].into_iter().chain(plain.iter().map(String::as_str)).chain(tool);
        let told = Job::new(line.chain(["/usr/bin/env", "-0"])).directory(scratch.path()).bare();
        let environment: Vec<String> = told.text().split_terminator('\0').map(str::to_owned).collect();
        assert!(environment.len() > plain.len(), "{told:?}");
        let ours = subject.process(&scratch, &environment);

        let under = subject.job(&scratch, &plain, &tool).bare();
        assert!(under.status.success(), "{}: {under:?}", subject.name);
        let dhat: Value = serde_json::from_slice(&fs::read(&output).unwrap()).unwrap();
        // bash keeps its process id as text.
        let digits = |of: &Value| number(of, "pid").to_string().len();
        if digits(&ours) != digits(&dhat) {
            left.push(subject);
            continue;
        }
        // bash keeps its parent's process id, too: there it is this process, here the recorder,
        // which was started just before it.
        let there = std::process::id().to_string().len();
        let longer = if subject.name == "bash" { digits(&ours) as i64 - there as i64 } else { 0 };
        let ours = last_image(&ours);
        let sum = |key: &str| dhat["pps"].as_array().unwrap().iter().map(|point| number(point, key)).sum::<i64>();
        let pairs = [
            ("allocations", "tbk"),
            ("bytes_allocated", "tb"),
            ("bytes_live_max", "gb"),
            ("bytes_live_end", "eb"),
            ("blocks_live_end", "ebk"),
        ];
        for (name, key) in pairs {
            let longer = if name.starts_with("bytes") { longer } else { 0 };
            subject.assert_close(name, number(&ours, name) - longer, sum(key));
        }
    }
}

/// Agrees with heaptrack, except for one block of heaptrack's own C++ library in the program, and
/// for what heaptrack frees before it looks.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn with_heaptrack() {
    /// libstdc++'s reserve for exceptions, in programs that have no libstdc++ of their own.
    const RESERVE: i64 = 72_704;
    if installed("heaptrack").is_none() || installed("heaptrack_print").is_none() {
        return;
    }
    let scratch = Scratch::new();
    // bash copies its environment, and cc1plus has a reserve of its own: see docs/agreement.md.
    for subject in subjects(&scratch).into_iter().filter(|subject| !["bash", "cc1plus"].contains(&subject.name)) {
        let environment = subject.environment(&scratch);
        let ours = last_image(&subject.process(&scratch, &environment));
        let base = scratch.file(&format!("heaptrack.{}", subject.name));
        let under = subject.job(&scratch, &environment, &["heaptrack", "-o", base.to_str().unwrap()]).bare();
        assert!(under.status.success(), "{}: {under:?}", subject.name);
        let written = fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().path());
        let is_own = |path: &std::path::PathBuf| path.to_string_lossy().starts_with(&*base.to_string_lossy());
        let file = written.into_iter().find(is_own).unwrap_or_else(|| panic!("{}: {under:?}", subject.name));
        let stacks = scratch.file("stacks");
        let sum = |kind: &str| -> i64 {
            let options = ["--flamegraph-cost-type", kind, "-p0", "-a0", "-T0", "-l0"];
            let off = ["--disable-embedded-suppressions", "--disable-builtin-suppressions", "-F"];
            let line = [OsStr::new("heaptrack_print"), OsStr::new("-f"), file.as_os_str()];
            let words = options.into_iter().chain(off).map(OsStr::new);
            let done = Job::new(line.into_iter().chain(words).chain([stacks.as_os_str()])).bare();
            assert!(done.status.success(), "{done:?}");
            let text = fs::read(&stacks).unwrap();
            let text = String::from_utf8_lossy(&text).into_owned();
            text.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<i64>().ok()).sum()
        };
        subject.assert_close("allocations", number(&ours, "allocations") + 1, sum("allocations"));
        subject.assert_close("bytes_live_max", number(&ours, "bytes_live_max") + RESERVE, sum("peak"));
        // heaptrack 1.4 lets libc free its buffers first.
        subject.print_line("temporary", number(&ours, "temporary_allocations"), sum("temporary"));
        let (ours, theirs) = (number(&ours, "bytes_live_end"), sum("leaked"));
        subject.print_line("bytes_live_end", ours, theirs);
        assert!((ours - 16_384..=ours).contains(&theirs), "{}: {ours} live at the end, {theirs} there", subject.name);
    }
}
