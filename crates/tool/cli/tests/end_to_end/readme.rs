//! The README shows what its first command prints.

use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::{Job, Scratch};

#[test]
fn shows_the_report_as_it_is() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let command = block(&readme, "console", "cargo run");
    let words: Vec<&str> = command.trim().split(' ').collect();
    let at = words.iter().position(|&word| word == "--").unwrap();
    assert_eq!(words[..at + 3], ["cargo", "run", "--release", "--", "record", "--"]);

    let scratch = Scratch::new();
    let (outcome, _) = Job::new(&words[at + 3..]).directory(&root()).with_report().recorded(&scratch);
    let printed = String::from_utf8(outcome.stderr.clone()).unwrap();
    let shown = block(&readme, "text", "heapledger: peak");
    assert_eq!(shape(&printed), shape(shown), "{printed}");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap().to_owned()
}

/// The first block of a language that starts like this.
fn block<'a>(readme: &'a str, language: &str, start: &str) -> &'a str {
    let fence = format!("```{language}\n");
    let blocks = readme.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.into_iter().find(|block| block.starts_with(start)).unwrap_or_else(|| panic!("no {language} block: {start}"))
}

/// What is the same on every machine: words without figures, and a table of five rows. A hint depends on what is
/// installed.
fn shape(report: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for line in report.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("hint:")) {
        let is_row = line.starts_with(' ') && line.contains(" % ");
        let words = line.split_whitespace().filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
        let units = ["B", "KiB", "MiB", "GiB", "ns", "us", "µs", "ms", "s"];
        let word = |word: &str| word.trim_matches(|c: char| !c.is_alphabetic()).to_owned();
        let words: Vec<String> = words.map(word).filter(|word| !word.is_empty() && !units.contains(&&**word)).collect();
        lines.push(if is_row { "row".to_owned() } else { words.join(" ") });
    }
    lines
}
