use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::*;

/// Returns all of the command's sources but this file: path and text.
fn sources() -> Vec<(String, String)> {
    fn collect(directory: &Path, into: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, into);
            } else if path.file_name().unwrap() != "code.rs" {
                into.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut found = vec![];
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    found
}

#[test]
fn each_code_is_explained_and_each_explanation_is_used() {
    let sources = sources();
    for explanation in EXPLANATIONS {
        let name = format!("Code::{:?}", explanation.code);
        let is_use = |text: &str| {
            text.match_indices(&name)
                .any(|(at, _)| !text[at + name.len()..].starts_with(|next: char| next.is_alphanumeric() || next == '_'))
        };
        assert!(sources.iter().any(|(_, text)| is_use(text)), "{name} is explained, but never said");
        for part in [explanation.title(), explanation.cause, explanation.consequence, explanation.remedy] {
            assert!(part.len() > 10 && !part.contains("  "), "{name}: {part:?}");
        }
    }
}

#[test]
fn numbers_are_told_apart() {
    let numbers: Vec<u16> = EXPLANATIONS.iter().map(|explanation| explanation.code as u16).collect();
    assert!(numbers.is_sorted());
    assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), numbers.len());
    assert_eq!(Code::Static.to_string(), "HL0001");
    for text in ["HL0001", "hl0001", "hl1", "1", " 0001 "] {
        assert_eq!(Code::parse(text).map(|explanation| explanation.code), Some(Code::Static), "{text:?}");
    }
    for text in ["", "HL", "HL9999", "x", "-1"] {
        assert!(Code::parse(text).is_none(), "{text:?}");
    }
}
