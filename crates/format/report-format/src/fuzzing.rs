//! The body of the fuzz target, shared with a property test.

use crate::about::{AboutOptions, Filter, Node, Page};
use crate::difference::Difference;
use crate::report::Reports;

/// Reads the data as one report file, and the parts before and after its first line end of `===` as
/// two, and derives everything from them that can be derived. Panics if that does, or if the
/// results are not consistent.
pub fn reports(data: &[u8]) {
    let whole = exercise(data);
    let separator = b"\n===\n";
    let middle = data.windows(separator.len()).position(|window| window == separator);
    let parts = middle.map(|at| (exercise(&data[..at]), exercise(&data[at + separator.len()..])));
    let pairs = [(whole.clone(), whole), parts.unwrap_or_default()];
    for (first, second) in pairs.into_iter().filter_map(|(first, second)| first.zip(second)) {
        if let Ok(difference) = Difference::between(&first, &second) {
            assert!(first != second || difference.changes.is_empty(), "nothing has changed: {difference:?}");
            assert!(difference.changes.iter().all(|change| change.amount != 0), "no change: {difference:?}");
            show(|options| Page::of_difference(&difference, options));
        }
        let count = first.reports.len() + second.reports.len();
        assert_eq!(Reports::merge([first, second]).reports.len(), count);
    }
}

fn exercise(data: &[u8]) -> Option<Reports> {
    let reports = Reports::parse(data).ok()?;
    // Unnamed processes get a name, and duplicates are merged.
    let written = Reports::parse(reports.to_json().as_bytes()).expect("what was written can be read");
    assert_eq!(written.reports.len(), reports.reports.len());
    assert_eq!(Reports::parse(&written.to_gzip()).as_ref(), Ok(&written));
    assert!(reports.to_openmetrics().ends_with("# EOF\n"));
    show(|options| Page::of(&reports, options));
    let anonymous = reports.clone().anonymized();
    show(|options| Page::of(&anonymous, options));
    Some(reports)
}

fn show(page: impl Fn(&AboutOptions) -> Page) {
    for verbose in [false, true] {
        for filter in [None, Some(Filter::text("a")), Filter::pattern("[a-m]/?$").ok()] {
            let page = page(&AboutOptions { verbose, filter });
            let mut text = String::new();
            page.print(&mut text).expect("a string takes everything");
            assert!(text.lines().count() >= 1);
            page.sections.iter().flat_map(|section| section.trees()).for_each(|tree| hold_together(tree, verbose));
        }
    }
}

/// Checks that the nodes below a node add up to its amount, except at the limits of numbers, and
/// that siblings are in order.
fn hold_together(node: &Node, verbose: bool) {
    let below: i128 = node.children.iter().map(|child| i128::from(child.amount)).sum();
    let is_small = node.children.iter().all(|child| child.amount.unsigned_abs() < 1 << 50);
    assert!(node.children.is_empty() || !is_small || below == i128::from(node.amount), "{node:?}");
    assert!(!(verbose && node.is_collapsed), "hidden: {node:?}");
    node.children.iter().for_each(|child| hold_together(child, verbose));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::reports;

    fn report() -> impl Strategy<Value = String> {
        let process = prop::sample::select(vec!["", "Main Process (pid 1)", "webIsolated=x (pid 2)", "w\\u0041"]);
        let name = prop::sample::select(vec![
            "a",
            "b",
            "c",
            "",
            "heap-unclassified",
            "(2 tiny)",
            "zone(0x1)",
            "x (tid=3)",
            "\\\\",
            "\u{1b}[1m",
            "pid 4",
            "1.2.3.4",
        ]);
        let root = prop::sample::select(vec!["explicit", "heap-allocated", "resident", "a", "b"]);
        let path = (root, prop::collection::vec(name, 0..5)).prop_map(|(root, names)| {
            let mut path = root.to_owned();
            names.iter().for_each(|name| path = format!("{path}/{name}"));
            path
        });
        let amount = prop_oneof![
            any::<i64>().prop_map(|amount| amount.to_string()),
            (-9i32..99).prop_map(|amount| amount.to_string()),
            Just("0".to_owned()),
            Just("1e3".to_owned()),
        ];
        let stable = prop_oneof![Just(String::new()), Just(", \"stable_path\": \"explicit/NNN\"".to_owned())];
        (process, path, 0u8..2, amount, stable).prop_map(|(process, path, kind, amount, stable)| {
            let path = path.replace('\u{1b}', "\\u001b");
            format!(
                r#"{{"process": "{process}", "path": "{path}", "kind": {kind}, "units": 0, "amount": {amount}, "description": ""{stable}}}"#
            )
        })
    }

    fn file() -> impl Strategy<Value = String> {
        prop::collection::vec(report(), 0..12).prop_map(|reports| {
            format!(r#"{{"version": 1, "hasMozMallocUsableSize": true, "reports": [{}]}}"#, reports.join(","))
        })
    }

    proptest! {
        #[test]
        fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..200)) {
            reports(&data);
        }

        #[test]
        fn files(first in file(), second in file(), changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..3)) {
            reports(format!("{first}\n===\n{second}").as_bytes());
            reports(first.as_bytes());
            let mut damaged = format!("{first}\n===\n{second}").into_bytes();
            for (at, byte) in changes {
                let at = at % damaged.len();
                damaged[at] = byte;
            }
            reports(&damaged);
        }
    }
}
