//! The page of `heapledger open`, and its server.

mod saved;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::browser::webdriver::Chromium;
use crate::documents;
use crate::harness::{HEAPLEDGER, Job, Scratch, exited, heapledger, plain_command};

/// The server, until this is dropped.
struct Served {
    child: Child,
    /// The rest of stdout.
    stdout: BufReader<ChildStdout>,
    /// Host and port.
    authority: String,
    /// The secret path, with a slash at its end.
    base: String,
}

/// The answer to a request.
struct Got {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Got {
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.head, String::from_utf8_lossy(&self.body)))
    }

    #[track_caller]
    fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_else(|| panic!("no error: {}", self.status)).to_owned()
    }
}

impl Served {
    fn start(files: &[&Path]) -> Served {
        let mut command = Command::new(HEAPLEDGER);
        command.args(["open", "--no-browser"]).args(files).env("XDG_CACHE_HOME", "/dev/null");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let (authority, path) = line.trim().strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect(&line);
        Served { child, stdout, authority: authority.into(), base: format!("/{path}") }
    }

    fn url(&self) -> String {
        format!("http://{}{}", self.authority, self.base)
    }

    fn request(&self, head: &str) -> Got {
        let mut stream = TcpStream::connect(&self.authority).unwrap();
        stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
        let body = bytes.split_off(end);
        let head = String::from_utf8(bytes).unwrap();
        Got { status: head[9..12].parse().unwrap(), head, body }
    }

    fn send(&self, method: &str, path: &str) -> Got {
        self.request(&format!("{method} {}{path} HTTP/1.1\r\nHost: {}", self.base, self.authority))
    }

    /// Asks a question, and waits for its answer.
    fn ask(&self, path: &str) -> Got {
        let mut got = self.send("GET", path);
        while got.status == 202 {
            let job = got.json();
            let progress = &job["progress"];
            assert!(progress.is_null() || (0.0..=1.0).contains(&progress.as_f64().unwrap()), "{job}");
            got = self.send("GET", &format!("api/job/{}", job["job"].as_str().unwrap()));
        }
        got
    }

    fn session(&self) -> Value {
        documents::read(&self.send("GET", "api/session").body)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the query that has these options of a command line.
fn query(options: &[&str]) -> String {
    let pair = |option: &&str| {
        let (name, value) = option.strip_prefix("--").unwrap().split_once('=').unwrap_or((&option[2..], ""));
        format!("&{name}={}", value.replace('%', "%25").replace('&', "%26").replace('+', "%2b"))
    };
    options.iter().map(pair).collect()
}

/// Asserts that the page gets what the verb prints, byte for byte; or its failure.
fn assert_same(served: &Served, path: &Path, verb: &str, words: &[&str], more: &str, options: &[&str]) {
    let line = verb.split('/').chain(["--json"]).chain(options.iter().copied()).map(OsStr::new);
    let words = words.iter().map(OsStr::new);
    // The file comes before the words of an action of `heap`.
    let printed = match verb.starts_with("heap/") {
        true => heapledger(line.chain([path.as_os_str()]).chain(words)),
        false => heapledger(line.chain(words).chain([path.as_os_str()])),
    };
    let got = served.ask(&format!("api/ask/{verb}?file=0{more}{}", query(options)));
    let shown = format!("{verb} {more} {options:?} of {}", path.display());
    if got.status == 200 {
        assert!(printed.status.success(), "{shown}: {printed:?}");
        let (got, printed) = (String::from_utf8_lossy(&got.body), String::from_utf8_lossy(&printed.stdout));
        assert_eq!(got, printed, "{shown}");
    } else {
        // The parser of command lines has no codes of its own.
        let (code, message) = (got.code(), got.json()["error"]["message"].as_str().unwrap().to_owned());
        let said = String::from_utf8_lossy(&printed.stderr);
        let beginning: String = message.chars().take(30).collect();
        assert!(said.contains(&beginning), "{shown}: {message}, {printed:?}");
        assert!(
            said.contains(&code) || said.starts_with("error: ") && code == "HL0090",
            "{shown}: {code}, {printed:?}"
        );
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn answers_are_those_of_the_verbs() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "2000").recorded(&scratch);
    let served = Served::start(&[&recording.path]);
    let session = served.session();
    let file = &session["files"][0];
    assert_eq!((&file["kind"], &file["path"]), (&json!("recording"), &json!(recording.path)));
    assert_eq!(file["bytes"], fs::metadata(&recording.path).unwrap().len());
    let process = &recording.processes()[0];
    assert_eq!(file["processes"], json!([{"process": 1, "name": "mix", "pid": process["pid"]}]));

    let mut left: Vec<String> = serde_json::from_value(file["verbs"].clone()).unwrap();
    let questions: &[(&str, &[&str], &str, &[&str])] = &[
        ("summary", &[], "", &[]),
        ("summary", &[], "", &["--at=peak"]),
        ("top", &[], "", &["--by=type", "--at=peak", "--rows=5"]),
        ("top", &[], "", &["--by=thread", "--total"]),
        ("top", &[], "", &["--function=mix_step", "--not-function=mix_end", "--size=..100"]),
        ("tree", &[], "", &["--threshold=0", "--total"]),
        ("tree", &[], "", &["--by=thread,owner", "--bottom-up"]),
        ("timeline", &[], "", &["--by=owner"]),
        ("temporary", &[], "", &["--within=1s"]),
        ("leaks", &[], "", &[]),
        ("sizes", &[], "", &["--by=owner"]),
        ("reallocations", &[], "", &["--metric=count"]),
        ("blocks", &[], "", &["--at=peak", "--rows=7"]),
        ("growth", &[], "", &["--all"]),
        ("advise", &[], "", &[]),
        ("types", &[], "", &["--stacks"]),
        ("callers", &["mix_step"], "&of=mix_step", &["--total"]),
        ("callees", &["/^main$/"], "&of=/^main$/", &["--total"]),
        ("flame", &[], "", &[]),
        ("info", &[], "", &[]),
        ("rss", &[], "", &[]),
        ("dmd", &[], "", &[]),
        // Failures: of a filter that fits nothing, and of a command line that makes no sense.
        ("top", &[], "", &["--function=nobody_is_called_so"]),
        ("top", &[], "", &["--by=nonsense"]),
        ("top", &[], "", &["--at=peak", "--total"]),
    ];
    for &(verb, words, more, options) in questions {
        assert_same(&served, &recording.path, verb, words, more, options);
        left.retain(|other| other != verb);
    }
    // The data that earlier questions read are kept, in any order of the questions.
    let kept = served.session()["memory"]["bytes"].as_u64().unwrap();
    assert!(kept > 0, "nothing is kept");
    for &(verb, words, more, options) in KEPT_QUESTIONS.iter().rev() {
        assert_same(&served, &recording.path, verb, words, more, options);
    }
    let fresh = Served::start(&[&recording.path]);
    for &(verb, words, more, options) in KEPT_QUESTIONS {
        assert_same(&fresh, &recording.path, verb, words, more, options);
    }
    // A file at two moments, as two files.
    let got = served.ask("api/ask/diff?file=0@1ms&file=0@end");
    let [before, after] = ["1ms", "end"].map(|when| format!("{}@{when}", recording.path.display()));
    let printed = heapledger(["diff", "--json", &before, &after]);
    assert_eq!((got.status, got.body), (200, printed.stdout));
    left.retain(|other| other != "diff");
    assert!(left.is_empty(), "nobody has asked {left:?}");

    // Equal questions are answered once, and answers are kept within their bound.
    let memory = served.session()["memory"].clone();
    let [bytes, bound] = ["bytes", "bound"].map(|name| memory[name].as_u64().unwrap());
    assert!(0 < bytes && bytes < bound, "{memory}");
}

/// A verb, its words that are no options, the same in a query, and its options.
type Ask<'q> = (&'q str, &'q [&'q str], &'q str, &'q [&'q str]);

/// Questions that are answered from the sites and names that a session keeps.
const KEPT_QUESTIONS: &[Ask<'_>] = &[
    ("top", &[], "", &["--at=peak"]),
    ("top", &[], "", &["--by=owner", "--total", "--metric=blocks", "--rows=3"]),
    ("top", &[], "", &["--by=function", "--at=peak", "--rows=0"]),
    ("top", &[], "", &["--by=type", "--total", "--rows=0"]),
    ("top", &[], "", &["--by=line", "--total", "--rows=0", "--full-names"]),
    ("top", &[], "", &["--by=file", "--total", "--process=mix"]),
    ("top", &[], "", &["--by=module", "--at=peak", "--allocated-by=mix*"]),
    ("top", &[], "", &["--function=nobody_is_called_so", "--total"]),
    ("top", &[], "", &["--process=nobody_is_called_so"]),
    ("top", &[], "", &["--total", "--wrapper=mix_step"]),
    ("tree", &[], "", &["--threshold=0", "--at=peak"]),
    ("tree", &[], "", &["--by=type,stack", "--bottom-up", "--total"]),
    ("leaks", &[], "", &["--by=owner", "--rows=0"]),
    ("temporary", &[], "", &["--rows=0"]),
    ("temporary", &[], "", &["--by=owner"]),
    ("types", &[], "", &["--total", "--by=container"]),
    ("types", &[], "", &["--stacks", "--at=peak"]),
    ("callers", &["mix_step"], "&of=mix_step", &["--at=peak", "--metric=blocks"]),
    ("callers", &["/./"], "&of=/./", &["--total"]),
    ("callees", &["main"], "&of=main", &["--total", "--not-function=mix_end"]),
    ("callees", &["nobody"], "&of=nobody", &["--total"]),
];

/// Asks the server for the same sites several times at once, and of one file after another at the
/// same path: each answer is that of the verb about the file that is there.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn what_is_kept_is_of_the_file_that_is_there() {
    let scratch = Scratch::new();
    let (_, first) = Job::fixture("mix", "2000").recorded(&scratch);
    let (_, second) = Job::fixture("questions", "").recorded(&scratch);
    let path = scratch.file("changing.hl");
    fs::copy(&first.path, &path).unwrap();
    let served = Served::start(&[&path]);
    std::thread::scope(|scope| {
        for by in ["owner", "function", "site", "type"] {
            let (served, path) = (&served, &path);
            scope.spawn(move || {
                for options in [["--total", &*format!("--by={by}")], ["--at=peak", &format!("--by={by}")]] {
                    assert_same(served, path, "top", &[], "", &options);
                }
            });
        }
    });
    let kept = || served.session()["memory"]["bytes"].as_u64().unwrap();
    let before = kept();
    fs::copy(&second.path, scratch.file("next.hl")).unwrap();
    fs::rename(scratch.file("next.hl"), &path).unwrap();
    // This verb keeps nothing itself.
    assert_same(&served, &path, "info", &[], "", &[]);
    let info = served.ask("api/ask/info?file=0").body.len() as u64;
    let after = kept();
    assert!(after < before + info, "{before} and then {after} bytes are kept");
    for by in ["owner", "function", "site"] {
        assert_same(&served, &path, "top", &[], "", &["--total", &format!("--by={by}")]);
    }
    assert!(kept() > after);
    fs::remove_file(&path).unwrap();
    assert_eq!(served.ask("api/ask/top?file=0&by=module").status, 404);
}

/// Reads columns as the page does.
struct Columns {
    head: Value,
    depth: Vec<u32>,
    name: Vec<u32>,
    own: Vec<Vec<f64>>,
}

impl Columns {
    fn read(bytes: &[u8]) -> Columns {
        assert_eq!(&bytes[..8], b"HLCOLS01");
        let length = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
        let head: Value = serde_json::from_slice(&bytes[12..12 + length]).unwrap();
        let nodes = head["nodes"].as_u64().unwrap() as usize;
        let mut rest = &bytes[(12 + length).next_multiple_of(8)..];
        let mut words = || {
            let (words, after) = rest.split_at((4 * nodes).next_multiple_of(8));
            rest = after;
            words[..4 * nodes].chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect::<Vec<_>>()
        };
        let (depth, name) = (words(), words());
        let column = |column: &[u8]| column.chunks(8).map(|own| f64::from_le_bytes(own.try_into().unwrap())).collect();
        let own: Vec<Vec<f64>> = rest.chunks(8 * nodes).map(column).collect();
        assert_eq!(own.len(), head["metrics"].as_array().unwrap().len());
        Columns { head, depth, name, own }
    }
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn columns_are_the_tree_of_the_verb() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("questions", "").recorded(&scratch);
    let served = Served::start(&[&recording.path]);
    for options in
        [&[][..], &["--total"], &["--total", "--bottom-up", "--metric=blocks"], &["--by=thread,stack", "--at=peak"]]
    {
        let columns = Columns::read(&served.ask(&format!("api/columns?file=0{}", query(options))).body);
        let tree = recording.ask("tree", &[options, &["--threshold=0"]].concat());
        let nodes = tree["nodes"].as_array().unwrap();
        assert!(nodes.len() > 5 && columns.depth.len() > nodes.len(), "{options:?}: {tree:#}");
        // The verb leaves out nodes without an amount in the metric; the page gets all.
        let metric = if options.contains(&"--metric=blocks") { "blocks" } else { "bytes" };
        let (names, metrics) = (&columns.head["names"], columns.head["metrics"].as_array().unwrap());
        let at_metric = metrics.iter().position(|name| name == metric).unwrap();
        let mut sums = columns.own[at_metric].clone();
        let mut parents = vec![0];
        let parent_of: Vec<usize> = (1..sums.len())
            .map(|at| {
                parents.truncate(columns.depth[at] as usize);
                let parent = *parents.last().unwrap();
                parents.push(at);
                parent
            })
            .collect();
        (1..sums.len()).rev().for_each(|at| sums[parent_of[at - 1]] += sums[at]);
        let shown = (1..sums.len()).filter(|&at| sums[at] > 0.0);
        let got: Vec<Value> = shown
            .map(|at| {
                let own: Vec<u64> = columns.own.iter().map(|own| own[at] as u64).collect();
                json!([columns.depth[at] - 1, names[columns.name[at] as usize]["function"], sums[at] as u64, own])
            })
            .collect();
        let expected = nodes.iter().map(|node| {
            let own: Vec<&Value> = metrics.iter().map(|name| &node["own"][name.as_str().unwrap()]).collect();
            json!([node["depth"], node["function"], node[metric], own])
        });
        assert_eq!(got, expected.collect::<Vec<_>>(), "{options:?}");
        for (total, name) in columns.head["total"].as_array().unwrap().iter().zip(metrics) {
            assert_eq!(*total, tree["total"][name.as_str().unwrap()], "{options:?}");
        }
        assert_eq!(sums[0] as u64, tree["total"][metric].as_u64().unwrap());
    }
}

/// Many events, so that a question that replays all of them takes long: it reports its progress,
/// and ends when it is cancelled.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn long_questions_are_jobs_that_can_be_cancelled() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "2000000").recorded(&scratch);
    let served = Served::start(&[&recording.path]);
    let question = "api/ask/top?file=0&total=&by=thread&lifetime=1us..";
    let first = served.send("GET", question);
    assert_eq!(first.status, 202, "{}", first.head);
    let job = first.json()["job"].as_str().unwrap().to_owned();
    assert_eq!(served.send("GET", question).json()["job"], job);
    let mut seen = Vec::new();
    let got = loop {
        let got = served.send("GET", &format!("api/job/{job}"));
        if got.status != 202 {
            break got;
        }
        seen.extend(got.json()["progress"].as_f64());
    };
    assert!(seen.iter().any(|&progress| progress > 0.0 && progress < 1.0), "{seen:?}");
    let printed =
        heapledger(["top", "--json", "--total", "--by=thread", "--lifetime=1us..", recording.path.to_str().unwrap()]);
    assert_eq!((got.status, got.body), (200, printed.stdout));
    // It is kept.
    assert_eq!(served.send("GET", question).status, 200);

    let other = served.send("GET", &format!("{question}&size=1..")).json()["job"].as_str().unwrap().to_owned();
    assert_eq!(served.send("DELETE", &format!("api/job/{other}")).status, 204);
    let gone = served.ask(&format!("api/job/{other}"));
    assert_eq!((gone.status, &*gone.code()), (404, "HL0134"));
    // The server answers others.
    assert_eq!(served.ask("api/ask/summary?file=0").status, 200);
}

/// Each verb that the session offers for a kind of file answers about it, if only that there is
/// nothing.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn each_kind_of_file_has_its_verbs() {
    let scratch = Scratch::new();
    let (_, recording) = Job::fixture("mix", "2000").recorded(&scratch);
    let (_, sample) = Job::fixture("mix", "2000").option("--sample=1KiB").recorded(&scratch);
    let (_, aggregate) = Job::fixture("mix", "2000").option("--aggregate").recorded(&scratch);
    let exported = |to: &str| {
        let path = scratch.file(&format!("exported.{to}"));
        let words = ["export", "--to", to, "-o", path.to_str().unwrap(), recording.path.to_str().unwrap()];
        assert_eq!(heapledger(words).status, exited(0), "{to}");
        path
    };
    let snapshot = scratch.write("small.heapsnapshot", SNAPSHOT);
    let reports = scratch.write("reports.json", REPORTS);
    let dmd = scratch.write("dmd.json", DMD);
    for (path, kind) in [
        (&sample.path, "sample"),
        (&aggregate.path, "aggregate"),
        (&exported("pprof"), "profile"),
        (&exported("collapsed"), "profile"),
        (&snapshot, "snapshot"),
        (&reports, "reports"),
        (&dmd, "dmd"),
    ] {
        let served = Served::start(&[path]);
        let file = served.session()["files"][0].clone();
        assert_eq!(file["kind"], kind, "{}", path.display());
        for verb in file["verbs"].as_array().unwrap() {
            let verb = verb.as_str().unwrap();
            let (words, more, files): (&[&str], _, _) = match verb {
                "callers" | "callees" => (&["malloc"], "&of=malloc", 1),
                "heap/node" => (&["3"], "&id=3", 1),
                "heap/paths" => (&["3"], "&ids=3", 1),
                "diff" | "heap/diff" | "reports/diff" => (&[], "", 2),
                _ => (&[], "", 1),
            };
            if files == 1 {
                assert_same(&served, path, verb, words, more, &[]);
            } else {
                let got = served.ask(&format!("api/ask/{verb}?file=0&file=0"));
                assert_eq!(got.status, 200, "{verb} of {}: {}", path.display(), String::from_utf8_lossy(&got.body));
            }
        }
    }
}

/// A snapshot of V8 with a root, an object and a string.
const SNAPSHOT: &str = r#"{"snapshot":{"meta":{"node_fields":["type","name","id","self_size","edge_count"],
"node_types":[["hidden","array","string","object","code","closure","regexp","number","native","synthetic","concatenated string","sliced string","symbol","bigint","object shape"],"string","number","number","number"],
"edge_fields":["type","name_or_index","to_node"],
"edge_types":[["context","element","property","internal","hidden","shortcut","weak"],"string_or_number","node"]},
"node_count":3,"edge_count":2},
"nodes":[9,0,1,0,1,3,1,3,64,1,2,2,5,32,0],
"edges":[1,1,5,2,3,10],
"strings":["","Thing","text","name"]}"#;

/// A log of the dark matter detector with one block.
const DMD: &str = r##"{"version":5,"invocation":{"dmdEnvVar":"1","mode":"live"},"blockList":[{"req":100,"alloc":"A"}],
"traceTable":{"A":["AA"]},"frameTable":{"AA":"#01: f (f.c:1)"}}"##;

/// A memory report file.
const REPORTS: &str = r#"{"version":1,"hasMozMallocUsableSize":true,"reports":[
{"process":"p (pid 1)","path":"explicit/a","kind":1,"units":0,"amount":100,"description":"A."}]}"#;

#[test]
fn nobody_else_is_answered_and_no_other_file_is_read() {
    let scratch = Scratch::new();
    let file = scratch.write("a.folded", "main;f;malloc 100\nmain;g 50\n");
    let served = Served::start(&[&file]);
    let address = &served.authority;
    let page = served.send("GET", "");
    assert!(page.status == 200 && page.head.contains("require-trusted-types-for 'script'"), "{}", page.head);
    for (status, head) in [
        (404, format!("GET / HTTP/1.1\r\nHost: {address}")),
        (404, format!("GET /{}/api/session HTTP/1.1\r\nHost: {address}", "0".repeat(32))),
        (403, format!("GET {}api/session HTTP/1.1\r\nHost: example.org", served.base)),
        (403, format!("GET {}api/session HTTP/1.1\r\nHost: {address}\r\nSec-Fetch-Site: cross-site", served.base)),
        (403, format!("DELETE {}api/job/1 HTTP/1.1\r\nHost: {address}\r\nOrigin: http://example.org", served.base)),
    ] {
        let got = served.request(&head);
        assert_eq!((got.status, &*got.code()), (status, "HL0134"), "{head}");
    }
    let target = scratch.file("written");
    let target = target.to_str().unwrap();
    for question in [
        format!("top?file=0&output={target}"),
        format!("top?file=0&--output={target}"),
        format!("top?file=0&by=owner%20--output={target}"),
        format!("top?file=0&function=x%00&output={target}"),
        format!("callers?file=0&of=--output%3d{target}"),
        "top?file=/etc/passwd".to_owned(),
        "top?file=0&file=0".to_owned(),
        "top?file=-1".to_owned(),
        "top?file=0@/etc".to_owned(),
        "record?file=0".to_owned(),
        "../session?file=0".to_owned(),
        "rss?file=0&command=touch".to_owned(),
        "top?%ff%fe=%00&file=%00".to_owned(),
    ] {
        let got = served.ask(&format!("api/ask/{question}"));
        assert!(got.status == 400 || got.status == 404, "{question}: {}", got.status);
        assert!(got.json()["error"]["message"].is_string(), "{question}");
    }
    assert!(!Path::new(target).exists());
    let files: Vec<_> = fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files, [file.as_path()]);
}

#[test]
fn a_file_that_vanishes_is_an_error_and_a_new_one_is_read() {
    let scratch = Scratch::new();
    let file = scratch.write("a.folded", "main;f 100\n");
    let served = Served::start(&[&file]);
    let question = "api/ask/tree?file=0&total=&threshold=0";
    let total = |got: &Got| got.json()["total"]["bytes"].as_u64();
    assert_eq!(total(&served.ask(question)), Some(100));
    fs::remove_file(&file).unwrap();
    let got = served.ask(question);
    assert_eq!((got.status, &*got.code()), (404, "HL0134"));
    assert_eq!(served.session()["files"][0]["bytes"], 0);
    fs::write(&file, "main;f 7\nmain;g 3\n").unwrap();
    assert_eq!(total(&served.ask(question)), Some(10));
}

#[test]
fn errors_are_for_people() {
    let scratch = Scratch::new();
    let file = scratch.write("a.folded", "main;f 100\n");
    let mut served = Served::start(&[&file]);
    let port = served.authority.rsplit_once(':').unwrap().1.to_owned();
    let taken =
        heapledger(["open".as_ref(), "--no-browser".as_ref(), "--port".as_ref(), port.as_ref(), file.as_os_str()]);
    let said = String::from_utf8_lossy(&taken.stderr);
    assert!(taken.status == exited(1) && said.contains("error[HL0133]: cannot serve the page on port"), "{said}");
    assert!(said.contains("hint: without --port, any free one is taken"), "{said}");
    let missing = heapledger(["open", "--no-browser", "/nowhere/a.hl"]);
    assert_eq!(missing.status, exited(102), "{missing:?}");
    let text = scratch.write("a.txt", "nothing that anybody knows");
    let unknown = heapledger(["open".as_ref(), "--no-browser".as_ref(), text.as_os_str()]);
    assert_eq!(unknown.status, exited(102));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("is not a file that the page shows"), "{unknown:?}");
    // Nothing more was printed.
    served.child.kill().unwrap();
    let mut rest = String::new();
    served.stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

/// The browser's command line has an address that is of no use afterwards, and a browser that fails
/// does not matter.
#[test]
fn the_browser_gets_an_address_of_its_own() {
    let scratch = Scratch::new();
    let file = scratch.write("a.folded", "main;f 100\n");
    let told = scratch.file("told");
    // `xdg-open` asks this variable first.
    scratch
        .script("xdg-open", format!("#!/bin/sh\necho \"$1\" >'{0}.new'; mv '{0}.new' '{0}'; exit 1\n", told.display()));
    let path = format!("{}:{}", scratch.path().display(), std::env::var("PATH").unwrap());
    let mut command = plain_command(HEAPLEDGER);
    command.args(["open", "--json"]).arg(&file).env("PATH", path).env("DISPLAY", ":99").stderr(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let session = serde_json::Deserializer::from_reader(&mut stdout).into_iter::<Value>().next().unwrap().unwrap();
    let address = session["address"].as_str().unwrap();
    let (authority, base) = address.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let served = Served { child, stdout, authority: authority.into(), base: format!("/{base}") };
    crate::harness::wait_until("the browser is opened", || told.exists());
    let told = fs::read_to_string(&told).unwrap();
    let once = told.trim().strip_prefix(&format!("http://{authority}")).unwrap();
    assert!(once.len() == served.base.len() && once != served.base, "{once}");
    let visit = || served.request(&format!("GET {once} HTTP/1.1\r\nHost: {authority}"));
    let first = visit();
    assert!(first.status == 303 && first.head.contains(&served.base), "{}", first.head);
    assert_eq!(visit().status, 404);
    assert_eq!(served.session()["files"], session["files"]);
}

#[test]
#[ignore = "a real Chromium; in .ci/run"]
fn the_page_works_under_its_policy_in_chromium() {
    let scratch = Scratch::new();
    let Some(chromium) = Chromium::start(&scratch) else { return };
    let file = scratch.write("<img src=x onerror=document.title=1>.folded", "main;f 100\n");
    let served = Served::start(&[&file]);
    chromium.open(&served.url());
    let name = "document.body.textContent.includes('<img src=x onerror=document.title=1>.folded')";
    chromium.wait(name);
    let has_run = "['1', '2'].includes(document.title)";
    assert_eq!(chromium.eval(has_run), false);
    // The policy holds: a text does not become a script.
    let refused = "(() => { try { document.createElement('script').text = 'document.title = 2'; return false; } \
                   catch (error) { return error instanceof TypeError; } })()";
    assert_eq!(chromium.eval(refused), true);
    assert_eq!(chromium.eval(has_run), false);
}
