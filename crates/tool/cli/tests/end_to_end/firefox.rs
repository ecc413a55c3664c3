//! The output of `heapledger reports`, compared with the about:memory of a real Firefox: every
//! character.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

use heapledger_core::{Bytes, sample};
use heapledger_report_format::about::{AboutOptions, Filter, Page};
use heapledger_report_format::{Difference, Kind, Report, Reports, Unit};
use heapledger_reporters::{Collector, variable};
use serde_json::{Value, json};

use crate::browser::marionette::Firefox;
use crate::harness::{HEAPLEDGER, Job, Scratch};

/// Returns the text of the page as it is copied, once it is complete; or an error.
const TEXT: &str = r#"
    const done = arguments[arguments.length - 1];
    const started = Date.now();
    const main = () => document.getElementById("mainDiv");
    const look = () => {
        const wrong = document.querySelector(".badInputWarning");
        if (wrong) return done("error: " + wrong.textContent);
        if (!document.querySelector(".treemap")) {
            return Date.now() - started > 5000 ? done("error: nothing") : requestAnimationFrame(look);
        }
        const selection = window.getSelection();
        selection.selectAllChildren(main());
        const text = selection.toString();
        selection.removeAllRanges();
        done(text);
    };
"#;

/// An empty about:memory page.
struct AboutMemory(Firefox);

impl AboutMemory {
    fn open(scratch: &Scratch) -> Option<AboutMemory> {
        let mut firefox = Firefox::start(scratch)?;
        firefox.open("about:memory");
        Some(AboutMemory(firefox))
    }

    /// Runs a script that changes the page, and returns the text shown then.
    fn text(&mut self, change: &str, arguments: &[Value]) -> String {
        let script = format!("{TEXT}\n{change}\n look();");
        lines(self.0.run(&script, arguments).as_str().unwrap())
    }

    /// Shows the text of a report file.
    fn show(&mut self, json: &str, verbose: bool) -> String {
        let change = r#"
            document.getElementById("verbose").checked = arguments[1];
            document.querySelector(".outputContainer")?.remove();
            document.querySelector(".badInputWarning")?.remove();
            window.updateAboutMemoryFromJSONString(arguments[0]);
        "#;
        self.text(change, &[json.into(), verbose.into()])
    }

    /// Loads files through the page's buttons: one, or the difference between two.
    fn load(&mut self, files: &[&Path], verbose: bool) -> String {
        let files: Vec<&str> = files.iter().map(|file| file.to_str().unwrap()).collect();
        let change = r#"
            document.getElementById("verbose").checked = arguments[1];
            document.querySelector(".outputContainer")?.remove();
            document.querySelector(".badInputWarning")?.remove();
            const files = arguments[0];
            if (files.length == 2) window.updateAboutMemoryFromTwoFiles(files[0], files[1]);
            else window.updateAboutMemoryFromFile(files[0]);
        "#;
        self.text(change, &[json!(files), verbose.into()])
    }

    /// Types a filter, and returns the text shown then.
    fn filter(&mut self, filter: &str, is_pattern: bool) -> String {
        let change = r#"
            document.querySelector(".treemap").remove();
            const item = document.querySelector(".filterItem");
            item.querySelector("input[type=checkbox]").checked = arguments[1];
            item.querySelector(".filterInput").value = arguments[0];
            item.querySelector(".filterInput").oninput();
        "#;
        self.text(change, &[filter.into(), is_pattern.into()])
    }
}

/// Removes blanks at the ends of lines, which copying adds to lists.
fn lines(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.trim_end_matches(' '))).collect()
}

fn ours(page: &Page) -> String {
    let mut text = String::new();
    page.print(&mut text).unwrap();
    lines(&text)
}

#[track_caller]
fn assert_same(ours: &str, firefox: &str, what: impl FnOnce() -> String) {
    if ours != firefox {
        let pairs = ours.lines().zip(firefox.lines()).enumerate();
        let first = pairs.into_iter().find(|(_, (ours, theirs))| ours != theirs);
        panic!("{}\nfirst difference: {first:?}\n--- ours\n{ours}\n--- Firefox\n{firefox}", what());
    }
}

// ---------------------------------------------------------------------------------- random reports

/// Random numbers; the same for the same seed.
struct Random(sample::Random);

impl Random {
    fn new(seed: u64) -> Random {
        Random(sample::Random::new(seed))
    }

    fn below(&mut self, count: usize) -> usize {
        self.0.index(count)
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

const ROOTS: &[&str] =
    &["explicit", "explicit", "explicit", "size", "a-tree", "B_tree", "größe", "名前", "heap-committed"];
const DEGENERATES: &[&str] = &[
    "resident",
    "resident-unique",
    "heap-allocated",
    "vsize",
    "size",
    "a-tree",
    "page-faults-hard",
    "Ångström",
    "_x",
    "10",
    "9",
];
const NAMES: &[&str] = &[
    "a",
    "b",
    "B",
    "c",
    "ä",
    "z\\z",
    "https:\\\\x.example\\?q",
    "_x",
    "-x",
    "x y",
    "10",
    "9",
    "é",
    "e\u{301}",
    "名前",
    "😀",
    "ß",
    "ss",
    "(2 tiny)",
    "heap-unclassified",
    "other",
    "thread (tid=12)",
    "pool#3 (tid=44)",
    "pid 77",
    "",
    ".",
    "~",
    "zone(0x1f)",
    "Z",
];
const PROCESSES: &[&str] = &[
    "Main Process (pid 12)",
    "web (pid 13)",
    "Main Process (pid 99)",
    "Web (pid 14)",
    "größe (pid=5)",
    "webIsolated=https://x.example (pid 7)",
];

fn amount(random: &mut Random, has_negative: bool) -> i64 {
    let amount = match random.below(8) {
        0 => 0,
        1 => 1 + random.below(3) as i64,
        2 => (1 << 20) * random.below(5) as i64,
        3 => random.below(1 << 16) as i64,
        4 => (1 << 17) * random.below(64) as i64,
        _ => {
            let bits = 10 + random.below(30);
            random.below(1 << bits) as i64
        }
    };
    if has_negative && random.chance(10) { -amount } else { amount }
}

/// Makes random reports that Firefox can show.
fn random_reports(random: &mut Random, has_negative: bool) -> Reports {
    let mut reports = Vec::new();
    // No report may have others below it, in any process, because a difference may merge two
    // processes.
    let (mut inner, mut leaves) = (HashSet::new(), HashSet::new());
    let count = 1 + random.below(PROCESSES.len());
    for &process in &PROCESSES[..count] {
        let mut add = |path: &str, kind, unit, amount| {
            reports.push(Report {
                process: process.into(),
                path: path.into(),
                stable_path: None,
                kind,
                unit,
                amount,
                description: "What it is.".into(),
            });
        };
        // Firefox warns in another place about invalid values of processes without an explicit
        // tree.
        let has_explicit = random.chance(80);
        let has_negative = has_negative && has_explicit;
        if has_explicit {
            add("explicit/surely", Kind::Heap, Unit::Bytes, amount(random, has_negative));
            leaves.insert("explicit/surely".to_owned());
        }
        for _ in 0..random.below(60) {
            let root = random.pick(ROOTS);
            if root == "explicit" && !has_explicit {
                continue;
            }
            let mut path = root.to_owned();
            let mut above = vec![];
            for _ in 0..=random.below(4) {
                above.push(path.clone());
                path = format!("{path}/{}", random.pick(NAMES));
            }
            if inner.contains(&path) || above.iter().any(|above| leaves.contains(above)) {
                continue;
            }
            inner.extend(above);
            leaves.insert(path.clone());
            let (kind, unit) = match root {
                "explicit" => ([Kind::Heap, Kind::NonHeap][path.len() % 2], Unit::Bytes),
                "a-tree" => (Kind::Other, Unit::Count),
                "B_tree" => (Kind::Heap, Unit::Percentage),
                "heap-committed" => (Kind::NonHeap, Unit::CountCumulative),
                _ => (Kind::Other, Unit::Bytes),
            };
            let times = if random.chance(15) { 1 + random.below(4) } else { 1 };
            (0..times).for_each(|_| add(&path, kind, unit, amount(random, has_negative)));
        }
        add("other/conflict", Kind::Other, Unit::Count, 10 + random.below(9) as i64);
        for _ in 0..random.below(8) {
            let name = random.pick(DEGENERATES);
            let unit = if name.len().is_multiple_of(2) { Unit::Bytes } else { Unit::CountCumulative };
            add(name, Kind::Other, unit, amount(random, has_negative));
        }
    }
    Reports { reports, has_usable_size: random.chance(80) }
}

/// Returns the reports of a later moment: most of them again, half of those changed.
fn later(random: &mut Random, reports: &Reports) -> Reports {
    let mut later = reports.clone();
    for report in &mut later.reports {
        if random.chance(50) {
            report.amount += amount(random, true);
        }
    }
    later.reports.retain(|_| random.chance(80));
    let restarted = random.chance(30);
    for at in 0..later.reports.len() {
        let report = &mut later.reports[at];
        if restarted {
            report.process = report.process.replace("(pid 1", "(pid 2").into();
        }
        // A path that had nothing below it before.
        if &*report.path == "other/conflict" {
            let mut other = report.clone();
            (report.path, other.path) = ("other/conflict/1".into(), "other/conflict/2".into());
            later.reports.push(other);
        }
    }
    later
}

/// The number of random files; most of the time is the browser's.
const ROUNDS: u64 = 200;

#[test]
#[ignore = "needs Firefox ESR; runs in .ci/run"]
fn random_files_are_shown_alike() {
    let scratch = Scratch::new();
    let Some(mut firefox) = AboutMemory::open(&scratch) else { return };
    for seed in 1..=ROUNDS {
        let mut random = Random::new(seed);
        let reports = random_reports(&mut random, seed % 3 > 0);
        let json = reports.to_json();
        for verbose in [false, true] {
            let options = AboutOptions { verbose, ..AboutOptions::default() };
            let what = || format!("seed {seed}, verbose: {verbose}");
            assert_same(&ours(&Page::of(&reports, &options)), &firefox.show(&json, verbose), what);
        }
        let read = Reports::parse(json.as_bytes()).unwrap();
        assert_eq!(read, reports);
    }
}

#[test]
#[ignore = "needs Firefox ESR; runs in .ci/run"]
fn filters_are_the_same() {
    let scratch = Scratch::new();
    let Some(mut firefox) = AboutMemory::open(&scratch) else { return };
    for seed in 1..=ROUNDS / 10 {
        let mut random = Random::new(seed);
        let reports = random_reports(&mut random, false);
        firefox.show(&reports.to_json(), seed % 2 == 0);
        for (text, is_pattern) in
            [("a", false), ("\\", false), ("explicit/.*[aeiou]$", true), ("nowhere", false), ("", false)]
        {
            let filter = if is_pattern { Filter::pattern(text).unwrap() } else { Filter::text(text) };
            let options = AboutOptions { verbose: seed % 2 == 0, filter: Some(filter) };
            let what = || format!("seed {seed}, filter {text}");
            assert_same(&ours(&Page::of(&reports, &options)), &firefox.filter(text, is_pattern), what);
        }
    }
}

#[test]
#[ignore = "needs Firefox ESR; runs in .ci/run"]
fn differences_are_the_same() {
    let scratch = Scratch::new();
    let Some(mut firefox) = AboutMemory::open(&scratch) else { return };
    for seed in 1..=ROUNDS / 3 {
        let mut random = Random::new(seed);
        let first = random_reports(&mut random, true);
        let second = later(&mut random, &first);
        let files = [scratch.write("first.json.gz", first.to_gzip()), scratch.write("second.json", second.to_json())];
        let difference = Difference::between(&first, &second).unwrap();
        for verbose in [false, true] {
            let options = AboutOptions { verbose, ..AboutOptions::default() };
            let what = || format!("seed {seed}, verbose: {verbose}");
            let theirs = firefox.load(&[&files[0], &files[1]], verbose);
            assert_same(&ours(&Page::of_difference(&difference, &options)), &theirs, what);
        }
    }
}

/// Firefox's own reports.
#[test]
#[ignore = "needs Firefox ESR; runs in .ci/run"]
fn files_of_firefox_are_shown_alike() {
    let scratch = Scratch::new();
    let Some(mut firefox) = AboutMemory::open(&scratch) else { return };
    let files = [scratch.file("a.json.gz"), scratch.file("b.json.gz")];
    for file in &files {
        let save = r#"
            const done = arguments[arguments.length - 1];
            Cc["@mozilla.org/memory-info-dumper;1"].getService(Ci.nsIMemoryInfoDumper)
                .dumpMemoryReportsToNamedFile(arguments[0], () => done(true), null, false, false);
        "#;
        firefox.0.run(save, &[file.to_str().unwrap().into()]);
        // Firefox garbles non-ASCII text in compressed files, also in its own.
        assert!(Command::new("gzip").args(["--decompress", "--keep"]).arg(file).status().unwrap().success());
    }
    let texts = files.each_ref().map(|file| file.with_extension(""));
    let reports = |words: &[&str]| {
        let line = [HEAPLEDGER, "reports"].iter().chain(words);
        let outcome = Job::new(line).directory(scratch.path()).bare();
        assert!(outcome.status.success(), "{outcome:?}");
        outcome.text()
    };
    for verbose in [false, true] {
        let option: &[&str] = if verbose { &["--verbose"] } else { &[] };
        let show = reports(&[&["show", "a.json.gz"], option].concat());
        assert_same(&lines(&show), &firefox.load(&[&texts[0]], verbose), || format!("verbose: {verbose}"));
        assert!(show.contains("heap-unclassified") && show.matches("\nEnd of ").count() > 3, "{show}");
        let difference = reports(&[&["diff", "a.json.gz", "b.json.gz"], option].concat());
        assert_same(&lines(&difference), &firefox.load(&[&texts[0], &texts[1]], verbose), || "difference".into());
    }
    // Firefox reads a file of its own after we have written it again.
    reports(&["save", "a.json.gz", "-o", "again.json.gz"]);
    let theirs = firefox.load(&[&scratch.file("again.json.gz")], false);
    assert_same(&lines(&reports(&["show", "a.json.gz"])), &theirs, || "written again".into());
}

/// The texts that `cargo test` compares with if there is no Firefox.
#[test]
#[ignore = "needs Firefox ESR; runs in .ci/run"]
fn kept_texts_are_those_of_firefox() {
    let scratch = Scratch::new();
    let Some(mut firefox) = AboutMemory::open(&scratch) else { return };
    let kept =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../format/report-format/tests/firefox").canonicalize().unwrap();
    let [first, second] = ["first.json", "second.json"].map(|name| kept.join(name));
    let mut texts = vec![];
    for (verbose, end) in [(false, "txt"), (true, "verbose.txt")] {
        texts.push((format!("second.{end}"), firefox.load(&[&second], verbose)));
        texts.push((format!("difference.{end}"), firefox.load(&[&first, &second], verbose)));
        texts.push((format!("first.{end}"), firefox.load(&[&first], verbose)));
    }
    firefox.load(&[&first], false);
    texts.push(("first.filtered.txt".into(), firefox.filter("t", false)));
    for (name, text) in texts {
        if std::env::var_os("HEAPLEDGER_BLESS").is_some_and(|value| value == "1") {
            std::fs::write(kept.join(&name), &text).unwrap();
        }
        assert_same(&std::fs::read_to_string(kept.join(&name)).unwrap(), &text, || name);
    }
}

/// The reports of a program of ours: this one.
#[test]
#[ignore = "needs Firefox ESR; runs in .ci/run"]
fn files_of_programs_are_shown_alike() {
    let scratch = Scratch::new();
    let Some(mut firefox) = AboutMemory::open(&scratch) else { return };
    let _held = heapledger_reporters::register("explicit/größe", |collector: &mut Collector| {
        collector.non_heap(format_args!("n°{}/名前", variable(7)), Bytes(3 << 20), "What it is.");
    });
    let reports = heapledger_reporters::collect(&heapledger_reporters::ReportOptions::default());
    let file = scratch.write("own.json.gz", reports.to_gzip());
    for verbose in [false, true] {
        let page = ours(&Page::of(&reports, &AboutOptions { verbose, ..AboutOptions::default() }));
        assert!(page.contains("größe/n°7/名前") && page.contains("heap-unclassified"), "{page}");
        assert_same(&page, &firefox.load(&[&file], verbose), || format!("verbose: {verbose}"));
    }
}
