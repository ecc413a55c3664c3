//! `heapledger reports`: files of memory reports, shown, compared, merged and saved.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::documents;
use crate::harness::{HEAPLEDGER, Job, Outcome, Scratch, exited, installed, wait_until};

/// Returns a file with these reports: process, path, kind, units, amount.
fn file(reports: &[(&str, &str, u8, u8, i64)]) -> String {
    let reports: Vec<String> = reports
        .iter()
        .map(|(process, path, kind, units, amount)| {
            format!(
                r#"{{"process": "{process}", "path": "{path}", "kind": {kind}, "units": {units}, "amount": {amount},
                    "description": "What it is."}}"#
            )
        })
        .collect();
    format!(r#"{{"version": 1, "hasMozMallocUsableSize": true, "reports": [{}]}}"#, reports.join(",\n"))
}

const SERVER: &str = "server (pid 7)";

fn before() -> String {
    file(&[
        (SERVER, "explicit/cache/bodies", 1, 0, 50 << 20),
        (SERVER, "explicit/cache/keys", 1, 0, 10 << 20),
        (SERVER, "explicit/threads/stacks/main (tid=7)", 0, 0, 1 << 20),
        (SERVER, "explicit/tables/a", 1, 0, 1_000),
        (SERVER, "explicit/tables/b", 1, 0, -1),
        (SERVER, "heap-allocated", 2, 0, 70 << 20),
        (SERVER, "resident", 2, 0, 90 << 20),
        (SERVER, "requests/by-host/www\\\\example.org", 2, 1, 1_234),
        (SERVER, "requests/by-host/www\\\\example.net", 2, 1, 6),
        (SERVER, "cache-hits", 2, 3, 9_876),
    ])
}

fn reports(scratch: &Scratch, words: &[&str]) -> Outcome {
    Job::new([HEAPLEDGER, "reports"].iter().chain(words)).directory(scratch.path()).bare()
}

/// Returns the output, if the command succeeds and prints nothing else.
fn printed(scratch: &Scratch, words: &[&str]) -> String {
    let outcome = reports(scratch, words);
    assert!(outcome.status.success() && outcome.stderr.is_empty(), "{words:?}: {outcome:?}");
    outcome.text()
}

#[test]
fn a_file_is_shown_as_by_firefox() {
    let scratch = Scratch::new();
    scratch.write("before.json", before());
    let shown = "\
Total resident memory (approximate) -- 90.00 MB
server (pid 7)

WARNING: the following values are negative or unreasonably large.

    explicit/tables/b

This indicates a defect in one or more memory reporters. The invalid values are highlighted.
Explicit Allocations

71.00 MB (100.0%) -- explicit
├──60.00 MB (84.51%) -- cache
│  ├──50.00 MB (70.42%) ── bodies
│  └──10.00 MB (14.08%) ── keys
├──10.00 MB (14.08%) ── heap-unclassified
├───1.00 MB (01.41%) ── threads/stacks/main (tid=7)
└───0.00 MB (00.00%) -- tables
    ├──0.00 MB (00.00%) ── a
    └──-0.00 MB (-00.00%) ── b [?!]

Other Measurements

1,240 (100.0%) -- requests
└──1,240 (100.0%) -- by-host
   ├──1,234 (99.52%) ── www/example.org
   └──────6 (00.48%) ── www/example.net

  98.76% ── cache-hits
70.00 MB ── heap-allocated
90.00 MB ── resident

End of server (pid 7)
";
    assert_eq!(printed(&scratch, &["show", "before.json"]), shown);
    let outcome = Job::new([HEAPLEDGER, "reports", "show", "-"]).stdin(before()).bare();
    assert_eq!(outcome.text(), shown, "{outcome:?}");

    assert_eq!(
        printed(&scratch, &["show", "--verbose", "--regex", "--filter", "cache/|^resident$", "before.json"]),
        "\
Total resident memory (approximate) -- 94,371,840 B
server (pid 7)
Explicit Allocations

62,914,560 B (100.0%) -- explicit
└──62,914,560 B (100.0%) -- cache
   ├──52,428,800 B (83.33%) ── bodies
   └──10,485,760 B (16.67%) ── keys

Other Measurements

94,371,840 B ── resident

End of server (pid 7)
"
    );
    let none = printed(&scratch, &["show", "--filter", "nowhere", "before.json"]);
    assert_eq!(none, "Total resident memory (approximate) -- 90.00 MB\nNo results found.\n");

    let json = documents::read(printed(&scratch, &["show", "--json", "before.json"]).as_bytes());
    let process = &json["processes"][0];
    assert_eq!(process["process"], SERVER);
    assert_eq!(process["invalid"], serde_json::json!(["explicit/tables/b"]));
    let keys = &process["explicit"]["children"][0]["children"][1];
    assert_eq!((&keys["path"], &keys["amount"]), (&"explicit/cache/keys".into(), &(10 << 20).into()));
    assert_eq!((&keys["percent"], &keys["unit"]), (&"14.08%".into(), &"bytes".into()));
    assert_eq!(process["degenerates"][0]["value"], "98.76%");
}

#[test]
fn a_difference_leaves_out_what_is_the_same() {
    let scratch = Scratch::new();
    scratch.write("before.json", before());
    // Another run: the process and threads differ.
    let after = before()
        .replace("(pid 7)", "(pid 8)")
        .replace("(tid=7)", "(tid=8)")
        .replace(&(10 << 20).to_string(), &(12 << 20).to_string())
        .replace("explicit/tables/a", "explicit/lists/a");
    scratch.write("after.json", after);
    assert_eq!(
        printed(&scratch, &["diff", "before.json", "after.json"]),
        "\
Total resident memory (approximate) -- 0.00 MB
server (pid NNN)

WARNING: the 'heap-allocated' memory reporter does not work for this platform and/or configuration. This means that \
'heap-unclassified' is not shown and the 'explicit' tree shows less memory than it should.
Explicit Allocations

2.00 MB (100.0%) -- explicit
├──2.00 MB (100.0%) ── cache/keys
└──0.00 MB (00.00%) ++ (2 tiny)

End of server (pid NNN)
"
    );
    let verbose = printed(&scratch, &["diff", "-v", "before.json", "after.json"]);
    let lines = [
        "├──2,097,152 B (100.0%) ── cache/keys",
        "├──────1,000 B (00.05%) ── lists/a",
        "└─────-1,000 B (-00.05%) ── tables/a",
    ];
    assert!(verbose.contains(&lines.join("\n")), "{verbose}");

    let no_sizes = before().replace("true", "false");
    scratch.write("no-sizes.json", no_sizes);
    let outcome = reports(&scratch, &["diff", "before.json", "no-sizes.json"]);
    assert_eq!(outcome.status, exited(102), "{outcome:?}");
    assert!(format!("{outcome:?}").contains("hasMozMallocUsableSize"), "{outcome:?}");
}

#[test]
fn files_are_merged_saved_and_made_anonymous() {
    let scratch = Scratch::new();
    scratch.write("a.json", before());
    scratch.write(
        "b.json",
        file(&[(SERVER, "explicit/files/\\\\home\\\\me\\\\x", 1, 0, 3), ("w (pid 9)", "vsize", 2, 0, 5)]),
    );
    let outcome = reports(&scratch, &["merge", "-o", "all.json.gz", "a.json", "b.json"]);
    assert!(outcome.status.success() && outcome.stdout.is_empty(), "{outcome:?}");
    let all = printed(&scratch, &["show", "all.json.gz"]);
    let names = ["server (pid 7)", "server (pid 7) #2", "w (pid 9)"];
    for name in names {
        assert!(all.contains(&format!("\n{name}\n")) && all.contains(&format!("End of {name}\n")), "{all}");
    }
    assert_eq!(printed(&scratch, &["show", "a.json", "b.json"]), all);

    // The written reports are those that were read, and the extension selects the format.
    let saved = printed(&scratch, &["save", "-o", "-", "--to", "json", "a.json"]);
    assert_eq!(saved.lines().count(), 10 + 6, "{saved}");
    let values = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(values(&saved), values(&before()));
    assert!(reports(&scratch, &["save", "-o", "again.json", "a.json"]).status.success());
    assert_eq!(std::fs::read_to_string(scratch.file("again.json")).unwrap(), saved);

    let anonymous = printed(&scratch, &["show", "--anonymize", "all.json.gz"]);
    assert!(anonymous.contains("files/<anonymized>") && anonymous.contains("by-host"), "{anonymous}");
    assert!(!anonymous.contains("example") && !anonymous.contains("home"), "{anonymous}");
}

#[test]
fn what_cannot_be_read_or_shown_is_said() {
    let scratch = Scratch::new();
    scratch.write("text", "Hello.");
    scratch.write("mixed.json", file(&[("p", "a/b", 2, 0, 1), ("p", "a/c", 2, 1, 1)]));
    for (words, why) in [
        (&["show", "nowhere"][..], "cannot read `nowhere`"),
        (&["show", "text"], "expected value (at byte 0)"),
        (&["show", "mixed.json"], "`a/c` has other units than the rest of its tree"),
    ] {
        let outcome = reports(&scratch, words);
        assert_eq!((outcome.status, &*outcome.stdout), (exited(102), &b""[..]), "{outcome:?}");
        let said = String::from_utf8_lossy(&outcome.stderr);
        assert!(said.contains(why) && said.contains("hint: "), "{outcome:?}");
    }
    let outcome = reports(&scratch, &["show", "--regex", "--filter", "(", "text"]);
    assert_eq!(outcome.status, exited(2), "{outcome:?}");

    scratch.write("lost.json", file(&[("p", "a/b", 2, 0, 1), ("p", "a/b/c", 2, 0, 2), ("p", "a/d", 2, 0, 4)]));
    let outcome = reports(&scratch, &["show", "lost.json"]);
    assert!(outcome.status.success() && outcome.text().contains("0.00 MB (33.33%) ── b/c"), "{outcome:?}");
    assert!(String::from_utf8_lossy(&outcome.stderr).contains("[HL0069]: `a/b` of p is not shown"), "{outcome:?}");
}

/// The client library of Prometheus parses the output.
#[test]
#[ignore = "needs a package of PyPI; runs in .ci/run"]
fn prometheus_reads_openmetrics() {
    let Some(python) = installed("python3") else { return };
    let scratch = Scratch::new();
    let package = "prometheus_client==0.23.1";
    let into = scratch.file("packages");
    let line = ["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", "--target"];
    let outcome = Job::new([python.to_str().unwrap()].iter().chain(&line)).argument(&into).argument(package).bare();
    assert!(outcome.status.success(), "{outcome:?}");
    let quoted = before().replace("server (pid 7)", "ser\\\"v\\ner\\\\ (pid 7)");
    scratch.write(
        "a.json",
        quoted.replace("\"kind\": 2, \"units\": 1, \"amount\": 6", "\"kind\": 2, \"units\": 1, \"amount\": -6"),
    );
    let read = r#"
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()):
    for sample in family.samples:
        print(json.dumps([family.name, family.type, family.unit, sample.name, sample.labels, sample.value]))
"#;
    let text = printed(&scratch, &["save", "-o", "-", "--to", "openmetrics", "a.json"]);
    let outcome = Job::new([python.to_str().unwrap(), "-c", read]).variable("PYTHONPATH", &into).stdin(text).bare();
    assert!(outcome.status.success(), "{outcome:?}");
    let samples: Vec<Value> = outcome.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // One for each report, and one for the unclassified memory.
    assert_eq!(samples.len(), 11, "{outcome:?}");
    let sample = |path: &str| samples.iter().find(|sample| sample[4]["path"] == path).unwrap();
    let keys = sample("explicit/cache/keys");
    assert_eq!(keys[3], "memory_report_bytes");
    assert_eq!((&keys[1], &keys[2], &keys[5]), (&"gauge".into(), &"bytes".into(), &(10 << 20).into()));
    assert_eq!((&keys[4]["process"], &keys[4]["kind"]), (&"ser\"v\ner\\ (pid 7)".into(), &"heap".into()));
    assert_eq!(sample("cache-hits")[5], 0.9876);
    assert_eq!(sample("requests/by-host/www\\example.net")[5], -6);
    assert_eq!(sample("explicit/heap-unclassified")[5], (70 << 20) - (60 << 20) - 999);
}

/// A process that is killed when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Killed {
    fn text(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.0.id())).unwrap()
    }

    /// Returns processor time in ticks, and the number of its sleeps.
    fn work_and_sleeps(&self) -> (u64, u64) {
        let stat = self.text("stat");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let status = self.text("status");
        let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
        (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap(), sleeps.trim().parse().unwrap())
    }
}

/// With more clients than descriptors the page sleeps between attempts, and answers again when some
/// have disconnected.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_page_without_descriptors_sleeps() {
    const DESCRIPTORS: usize = 12;
    let scratch = Scratch::new();
    let file = scratch.write("before.json", before());
    let line = format!("ulimit -n {DESCRIPTORS}; exec \"$0\" reports show --page \"$1\"");
    let mut command = Command::new("sh");
    command.args(["-c", &line, HEAPLEDGER]).arg(&file).stderr(Stdio::piped());
    let mut server = Killed(command.spawn().unwrap());
    let mut told = String::new();
    BufReader::new(server.0.stderr.take().unwrap()).read_line(&mut told).unwrap();
    let url = told.split_whitespace().find_map(|word| word.strip_prefix("http://")).unwrap_or_else(|| panic!("{told}"));
    let (address, path) = url.trim_end_matches(',').split_once('/').unwrap();
    let clients: Vec<TcpStream> = (0..DESCRIPTORS).map(|_| TcpStream::connect(address).unwrap()).collect();
    let directory = format!("/proc/{}/fd", server.0.id());
    wait_until("it has no descriptor left", || fs::read_dir(&directory).unwrap().count() >= DESCRIPTORS);
    let (work, sleeps) = server.work_and_sleeps();
    wait_until("it has slept a few times", || {
        let (work_now, sleeps_now) = server.work_and_sleeps();
        assert!(work_now < work + 100, "a second of processor time, and {} sleeps", sleeps_now - sleeps);
        sleeps_now >= sleeps + 10
    });
    drop(clients);
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}
