//! The display of two small files, which have a bit of everything, compared with the texts of a
//! real Firefox beside them.
//!
//! An end-to-end test of the command (`firefox::kept_texts_are_those_of_firefox`) compares these
//! texts with the Firefox that is installed, and with `HEAPLEDGER_BLESS=1` writes them again.

use std::fs;
use std::path::Path;

use heapledger_report_format::about::{AboutOptions, Filter, Page};
use heapledger_report_format::{Difference, Reports};

fn kept(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/firefox").join(name)).unwrap()
}

fn reports(name: &str) -> Reports {
    Reports::parse(kept(name).as_bytes()).unwrap()
}

#[track_caller]
fn assert_kept(page: &Page, name: &str) {
    let mut text = String::new();
    page.print(&mut text).unwrap();
    let lines: String = text.lines().map(|line| format!("{}\n", line.trim_end_matches(' '))).collect();
    assert_eq!(lines, kept(name), "{name}");
}

#[test]
fn files() {
    for name in ["first", "second"] {
        let reports = reports(&format!("{name}.json"));
        assert_kept(&Page::of(&reports, &AboutOptions::default()), &format!("{name}.txt"));
        let verbose = AboutOptions { verbose: true, ..AboutOptions::default() };
        assert_kept(&Page::of(&reports, &verbose), &format!("{name}.verbose.txt"));
    }
    let filter = AboutOptions { filter: Some(Filter::text("t")), ..AboutOptions::default() };
    assert_kept(&Page::of(&reports("first.json"), &filter), "first.filtered.txt");
}

#[test]
fn differences() {
    let difference = Difference::between(&reports("first.json"), &reports("second.json")).unwrap();
    assert_kept(&Page::of_difference(&difference, &AboutOptions::default()), "difference.txt");
    let verbose = AboutOptions { verbose: true, ..AboutOptions::default() };
    assert_kept(&Page::of_difference(&difference, &verbose), "difference.verbose.txt");
}
