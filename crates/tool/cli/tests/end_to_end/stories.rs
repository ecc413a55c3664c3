//! The stories of `docs/stories.md`: their commands print what the page shows.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::harness::{HEAPLEDGER, Job};
use crate::readme::{root, shape};

/// The maximum difference of a share from the one on the page, in percent of the whole: compilers
/// and libraries differ.
const TOLERANCE: f64 = 12.0;

/// The maximum difference of a growth from the one on the page, in percent of the bytes before.
const TOLERANCE_OF_GROWTH: f64 = 50.0;

/// A command of the page, and the output that it shows below it.
struct Step {
    command: String,
    shown: Vec<String>,
}

/// A part of a story.
enum Part {
    Step(Step),
    /// A change to a source file, which `patch` makes.
    Patch(String),
}

/// Returns the parts of the story whose title has this word.
fn story(word: &str) -> Vec<Part> {
    let page = fs::read_to_string(root().join("docs/stories.md")).unwrap();
    let mut sections = page.split("\n## ").skip(1);
    let section = sections.find(|section| section.lines().next().unwrap().contains(word));
    let section = section.unwrap_or_else(|| panic!("no story: {word}"));
    let mut parts = Vec::new();
    for block in section.split("\n```").skip(1).step_by(2) {
        match block.split_once('\n').unwrap() {
            ("diff", patch) => parts.push(Part::Patch(patch.to_owned())),
            ("console", lines) => parts.extend(steps(lines).into_iter().map(Part::Step)),
            _ => {}
        }
    }
    parts
}

fn steps(lines: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in lines.lines() {
        match line.split_once("$ ").filter(|(host, _)| ["", "laptop"].contains(host)) {
            Some((_, command)) => steps.push(Step { command: command.to_owned(), shown: vec![] }),
            None => steps.last_mut().expect("a command before its output").shown.push(line.to_owned()),
        }
    }
    steps
}

/// Returns the directory of the stories' programs, in their state before a story begins.
fn programs() -> PathBuf {
    let target = Path::new(HEAPLEDGER).ancestors().nth(2).unwrap();
    let made = Command::new(root().join("examples/stories/build")).env("CARGO_TARGET_DIR", target).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    target.join("stories")
}

/// Runs the commands of a story in one shell, and returns the output of each.
fn run(parts: &[Part], port: u16) -> Vec<String> {
    // Jobs have process groups of their own, as in an interactive shell. The other machine is a
    // directory, which has only the copied files: the program is moved away from here.
    let mut script =
        "set -m\nexec 2>&1\nscp() { mkdir laptop; cp \"$1\" laptop; mv sessions elsewhere; cd laptop; }\n".to_owned();
    for part in parts {
        script += &match part {
            Part::Step(step) => format!("printf '\\n@@@\\n'\n{}\n", step.command),
            Part::Patch(patch) => format!("patch --quiet --no-backup-if-mismatch -p0 <<'PATCH'\n{patch}\nPATCH\n"),
        };
    }
    script += "kill $(jobs -p) 2>/dev/null\nwait\n";
    let search = [Path::new(HEAPLEDGER).parent().unwrap(), Path::new("/usr/bin"), Path::new("/bin")];
    let search = std::env::join_paths(search).unwrap();
    let script = script.replace(":8081", &format!(":{port}"));
    let outcome = Job::new(["/bin/bash", "-c", &script]).directory(&programs()).variable("PATH", search).bare().text();
    let printed: Vec<String> = outcome.split("\n@@@\n").skip(1).map(str::to_owned).collect();
    let commands = parts.iter().filter(|part| matches!(part, Part::Step(_))).count();
    assert_eq!(printed.len(), commands, "{outcome}");
    printed
}

/// Parses a row of a table: its share of the whole, if it has one, and the text behind all figures.
fn row(line: &str) -> Option<(Option<f64>, String)> {
    let columns: Vec<&str> = line.split("  ").map(str::trim).filter(|column| !column.is_empty()).collect();
    let units = [" B", "KiB", "MiB", "KiB/s", "B/s"];
    let is_count = |first: &str| line.contains(" %") && first.chars().all(|c| c.is_ascii_digit() || c == ',');
    columns.first().filter(|first| is_count(first) || units.iter().any(|unit| first.ends_with(unit)))?;
    let share = columns.iter().find_map(|column| column.strip_suffix(" %"));
    let share = share.map(|share| share.replace('−', "-").trim_start_matches(['<', '+']).parse().unwrap());
    let is_figure = |column: &&str| column.starts_with(|c: char| c.is_ascii_digit() || "<+−".contains(c));
    let is_told =
        |column: &&str| ["certain", "likely", "in steps", "exact", "probable", "gone", "new"].contains(column);
    let label: Vec<&str> = columns.into_iter().skip_while(|it| is_figure(it) || is_told(it)).collect();
    let label = label.join("  ");
    // Python modules have the version of Python in their names.
    let label = match label.split_once("cpython-") {
        Some((name, rest)) => format!("{name}cpython{}", rest.trim_start_matches(|c: char| c.is_ascii_digit())),
        None => label,
    };
    Some((share, label))
}

/// Asserts that each line on the page is printed, in this order: rows by their names and locations,
/// other lines by their words. Further printed lines do not matter.
#[track_caller]
fn compare(step: &Step, printed: &str) {
    let key = |line: &str| match row(line) {
        Some((share, label)) => (share, label),
        None => match shape(line).concat() {
            // A name with a number, or a figure alone.
            words if words.is_empty() => (None, line.trim().replace(|c: char| c.is_ascii_digit() || c == '.', "")),
            words => (None, words),
        },
    };
    let there: Vec<_> = printed.lines().map(key).collect();
    let mut at = 0;
    for (number, line) in step.shown.iter().filter(|line| line.trim() != "…" && !line.is_empty()).enumerate() {
        let (share, label) = key(line);
        let found = there[at..].iter().position(|(_, other)| *other == label);
        let found =
            found.unwrap_or_else(|| panic!("{}\n{number}: not there: {line}\n{label}\n{printed}", step.command));
        at += found + 1;
        let other = there[at - 1].0;
        assert_eq!(share.is_some(), other.is_some(), "{line}\n{printed}");
        let apart = share.zip(other).map_or(0.0, |(share, other): (f64, f64)| (share - other).abs());
        let is_growth = line.trim_start().starts_with(['+', '−']);
        let tolerance = if is_growth { TOLERANCE_OF_GROWTH } else { TOLERANCE };
        assert!(apart <= tolerance, "{}\n{line}\n{printed}", step.command);
    }
    // The first row is the one that a user reads first.
    let first = |text: &str| text.lines().find_map(|line| row(line).filter(|(_, label)| label.contains("  ")));
    let shown = step.shown.join("\n");
    if let Some((_, label)) = first(&shown) {
        assert_eq!(first(printed).map(|(_, label)| label), Some(label), "{}\n{printed}", step.command);
    }
}

/// Runs a story, and checks these words in the first row of its first table.
fn repeat(word: &str, first: [&str; 2]) {
    // Only one at a time: the stories share a directory, and rates of growth are measured.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let parts = story(word);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let printed = run(&parts, port);
    let steps = parts.iter().filter_map(|part| match part {
        Part::Step(step) => Some(step),
        Part::Patch(_) => None,
    });
    for (step, printed) in steps.zip(&printed) {
        compare(step, printed);
    }
    let lines = || printed.iter().flat_map(|text| text.lines());
    let row = lines().find(|line| row(line).is_some_and(|(share, label)| share.is_some() && label.contains("  ")));
    assert!(row.is_some_and(|row| first.iter().all(|word| row.contains(word))), "{row:?}");
}

#[test]
#[ignore = "builds five programs, for minutes: `.ci/run full` runs it"]
fn a_leak_below_lua() {
    repeat("below Lua", ["parse_order", "orders.c:"]);
}

#[test]
#[ignore = "builds five programs, for minutes: `.ci/run full` runs it"]
fn a_service_on_axum() {
    repeat("axum", ["token_of", "sessions.rs:"]);
}

#[test]
#[ignore = "builds five programs, for minutes: `.ci/run full` runs it"]
fn a_tool_that_grows() {
    repeat("that grows", ["tokenize", "indexer.cpp:"]);
}

#[test]
#[ignore = "builds five programs, for minutes: `.ci/run full` runs it"]
fn a_script_with_numpy() {
    repeat("numpy", ["array_subtract", "via npyiter_new_temp_array"]);
}

#[test]
#[ignore = "builds five programs, for minutes: `.ci/run full` runs it"]
fn a_service_in_production() {
    repeat("in production", ["token_of", "sessions.rs:"]);
}
