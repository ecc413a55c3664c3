//! Programs that people use: the recorder changes nothing, and loses nothing.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::{Job, Recording, Scratch, heapledger, installed, number};

/// Returns C code that keeps a compiler busy for a moment. It has no includes, because a bare cc1
/// does not find them.
fn source_text() -> String {
    let mut text = String::from("int printf(const char *, ...);\n");
    for i in 0..200 {
        let line = format!(
            "static int f{i}(int x) {{ int s = 0; for (int j = 0; j < x; j++) s += j * {i} ^ s; return s; }}\n"
        );
        text.push_str(&line);
    }
    text.push_str("int main(void) { int s = 0;\n");
    for i in 0..200 {
        writeln!(text, "s += f{i}(s & 15);").unwrap();
    }
    text.push_str("printf(\"%d\\n\", s); return 0; }\n");
    text
}

const SQL: &str = "
create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000) insert into t select i, 'text ' || i, i * 1.5 from n;
create index tb on t(b);
select count(*), sum(c), max(b) from t where b like 'text 1%';
select a, b from t order by c desc limit 3;
";

fn line<'a>(program: &'a Path, arguments: &'a [&'a str]) -> Vec<&'a OsStr> {
    [program.as_os_str()].into_iter().chain(arguments.iter().map(OsStr::new)).collect()
}

#[test]
fn a_compiler() {
    let scratch = Scratch::new();
    let source = scratch.write("source.c", source_text());
    let object = scratch.file("source.o");
    let arguments = ["-O1", "-c", source.to_str().unwrap(), "-o", object.to_str().unwrap()];
    let job = Job::new(["cc"].into_iter().chain(arguments));
    let bare = job.bare();
    let expected = fs::read(&object).unwrap();
    let (recorded, recording) = job.recorded(&scratch);
    assert_eq!(bare, recorded);
    assert!(expected == fs::read(&object).unwrap(), "the object files differ");
    recording.assert_whole().assert_adds_up();
    for name in ["cc1", "as"] {
        assert!(!recording.running(name).is_empty(), "{name}: {recording:?}");
    }
    assert_eq!(recording.processes().len(), 3, "cc, cc1, as: {recording:?}");
}

#[test]
fn interpreters() {
    let scratch = Scratch::new();
    let scripts = [
        ("perl", "-e", "my %h; $h{$_} = \"x$_\" for 1..20000; print join(',', (sort keys %h)[0..9]), \"\\n\"; exit 3"),
        ("python3", "-c", "import json, sys\nprint(len(json.dumps([{'i': i} for i in range(20000)])))\nsys.exit(4)"),
        (
            "bash",
            "-c",
            "for i in {1..3000}; do x[i]=$i; done; echo ${#x[@]} $(echo sub | tr a-z A-Z) <(:) | wc -w; exit 5",
        ),
    ];
    for (name, option, script) in scripts {
        let Some(program) = installed(name) else { continue };
        let (outcome, recording) = Job::new(line(&program, &[option, script])).both(&scratch);
        assert!((3..=5).contains(&outcome.status.code().unwrap()), "{name}: {outcome:?}");
        assert!(recording.assert_whole().assert_adds_up().total("allocations") > 1000, "{name}: {recording:?}");
    }
}

#[test]
fn threads_of_python() {
    let Some(python) = installed("python3") else { return };
    let scratch = Scratch::new();
    let script = "
import subprocess, sys, threading
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    print(sum(pool.map(lambda n: len('x' * n), range(2000))))
    print(list(pool.map(lambda n: subprocess.run([sys.executable, '-c', f'print({n})'], capture_output=True).stdout, range(6))))
";
    let job = Job::new(line(&python, &["-c", script])).variable("PYTHONMALLOC", "malloc");
    let (_, recording) = job.both(&scratch);
    assert_eq!(recording.assert_whole().assert_adds_up().processes().len(), 7, "{recording:?}");
}

#[test]
fn git() {
    let Some(git) = installed("git") else { return };
    let scratch = Scratch::new();
    let setup = "git init -q . && for i in 1 2 3 4 5 6 7 8; do seq $i 2000 > file && git add file && \
                 git -c user.name=n -c user.email=e commit -q -m \"change $i\"; done";
    // Outside of the directory of recordings, which git would see as new files.
    let tree = scratch.file("tree");
    fs::create_dir(&tree).unwrap();
    let done = Job::new(["/bin/sh", "-c", setup]).directory(&tree).bare();
    assert!(done.status.success(), "{done:?}");
    for arguments in [&["log", "--stat", "-p"][..], &["status", "--short"], &["diff", "HEAD~5"], &["gc", "--quiet"]] {
        let (outcome, recording) = Job::new(line(&git, arguments)).directory(&tree).both(&scratch);
        assert!(outcome.status.success(), "{outcome:?}");
        recording.assert_whole().assert_adds_up();
    }
}

/// Debian's redis links a shared jemalloc: its calls must reach jemalloc, not libc.
#[test]
fn a_server_with_another_allocator() {
    let (Some(server), Some(_)) = (installed("redis-server"), installed("redis-cli")) else { return };
    let scratch = Scratch::new();
    let (outcome, recording) = Job::new(line(&server, &["--version"])).both(&scratch);
    assert!(outcome.text().contains("malloc=jemalloc"), "{outcome:?}");
    recording.assert_whole();

    let script = "
redis-server --port 0 --unixsocket ./socket --save '' --appendonly no > /dev/null & server=$!
ask() { redis-cli -s ./socket \"$@\"; }
until ask ping 2> /dev/null | grep -q PONG; do sleep 0.02; done
i=0; while [ $i -lt 3000 ]; do echo \"set key$i value$i$i$i$i$i$i$i\"; i=$((i+1)); done | ask | sort | uniq -c
ask append large \"$(head -c 100000 /dev/zero | tr '\\0' x)\"
ask memory malloc-stats | tr -d '\\r' | sed -n 's/.*Allocated: \\([0-9]*\\),.*/\\1/p' | { read n; [ \"$n\" -gt 500000 ] && echo in jemalloc; }
ask dbsize; ask get key77
ask shutdown nosave
wait $server; echo ended $?
";
    let (outcome, recording) = Job::shell(script).directory(scratch.path()).both(&scratch);
    assert!(outcome.text().contains("in jemalloc") && outcome.text().contains("ended 0"), "{outcome:?}");
    recording.assert_whole().assert_adds_up();
    let started =
        |process: &&Value| process["command"].as_str().is_some_and(|command| command.starts_with("redis-server"));
    let server = recording.processes().iter().find(started).unwrap_or_else(|| panic!("{recording:?}"));
    assert!(number(server, "allocations") > 9000, "{server:#}");
}

/// A recording of a real program can be read by every verb.
#[test]
fn every_verb_reads_a_real_recording() {
    let Some(sqlite) = installed("sqlite3") else { return };
    let scratch = Scratch::new();
    let (_, recording) = Job::new(line(&sqlite, &[":memory:"])).stdin(SQL).both(&scratch);
    for verb in ["summary", "top", "tree", "leaks", "temporary", "info"] {
        recording.ask(verb, &[]);
        let plain = heapledger([OsStr::new(verb), recording.path.as_os_str()]);
        assert!(plain.status.success() && plain.stdout.len() > 50, "{verb}: {plain:?}");
    }
    let picture = scratch.file("flame.svg");
    let drawn = heapledger([OsStr::new("flame"), recording.path.as_os_str(), OsStr::new("-o"), picture.as_os_str()]);
    assert!(drawn.status.success(), "{drawn:?}");
    let picture = fs::read_to_string(picture).unwrap();
    assert!(picture.contains("<svg") && picture.contains("sqlite3"), "{} bytes", picture.len());
    Recording::open(recording.path.clone()).assert_whole();
}
