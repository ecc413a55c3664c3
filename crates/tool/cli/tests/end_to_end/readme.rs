//! The README shows the output of its first command.

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

/// The picture at the top has lines of the story that it links to, whose output is a test of its
/// own.
#[test]
fn shows_a_picture_of_a_story() {
    let picture = fs::read_to_string(root().join("docs/images/leak.svg")).unwrap();
    let stories = fs::read_to_string(root().join("docs/stories.md")).unwrap();
    let story = block(&stories, "console", "$ heapledger record -o orders.hl");
    let lines: Vec<&str> = story.lines().map(str::trim).collect();
    let shown = picture.split("<text ").skip(1).filter_map(|text| text.split_once('>')?.1.split_once("</text>"));
    let shown: Vec<String> = shown.map(|(text, _)| text.replace("&lt;", "<").replace("&amp;", "&")).collect();
    assert!(shown.len() > 10, "{shown:?}");
    for line in shown {
        assert!(lines.contains(&line.trim()), "{line}");
    }
}

/// A reader of a page on the library can compile its code: the lines for `Cargo.toml` come before
/// the first code.
#[test]
fn pages_on_the_library_begin_with_the_dependency() {
    let manifest = fs::read_to_string(root().join("crates/process/heapledger/Cargo.toml")).unwrap();
    let (_, features) = manifest.split_once("[features]").unwrap();
    let pages = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|page| page.extension().is_some_and(|extension| extension == "md"));
    let mut seen = 0;
    for page in pages.chain([root().join("README.md")]) {
        let text = fs::read_to_string(&page).unwrap();
        // The language of each block, and its text.
        let blocks: Vec<_> =
            text.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect();
        let is_code = |(language, code): &&(&str, &str)| language.starts_with("rust") && code.contains("heapledger::");
        let Some(code) = blocks.iter().position(|block| is_code(&block)) else { continue };
        seen += 1;
        let before =
            blocks[..code].iter().find(|(language, lines)| *language == "toml" && lines.contains("heapledger = "));
        let (_, dependency) = before.unwrap_or_else(|| panic!("{}: {}", page.display(), blocks[code].1));
        let (_, named) = dependency.split_once("heapledger = ").unwrap();
        for feature in named.split_once("features = [").map_or("", |(_, list)| list).split('"').skip(1).step_by(2) {
            assert!(features.contains(&format!("\n{feature} = ")), "{}: no feature `{feature}`", page.display());
        }
    }
    assert!(seen > 10, "{seen}");
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap().to_owned()
}

/// Returns the first block of a language that starts like this.
fn block<'a>(readme: &'a str, language: &str, start: &str) -> &'a str {
    let fence = format!("```{language}\n");
    let blocks = readme.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.into_iter().find(|block| block.starts_with(start)).unwrap_or_else(|| panic!("no {language} block: {start}"))
}

/// Returns the parts that are the same on every machine: words without figures, and a table of five
/// rows. A hint depends on what is installed.
pub(crate) fn shape(report: &str) -> Vec<String> {
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
