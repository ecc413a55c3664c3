//! A selection in words: its moment, and its filters.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use heapledger_analysis::{self as analysis, Filter, Moment, Selection};
use heapledger_recording::Recording;

use super::peak_time;
use crate::format::{bytes, duration, time};

/// The moment of a selection, in words for a sentence.
pub(super) struct What<'r, 'a>(pub(super) &'r Recording<'a>, pub(super) &'r Selection);

impl fmt::Display for What<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let What(recording, selection) = self;
        let retained = if selection.filter.allocated.is_some() { "retained, " } else { "" };
        match selection.moment {
            Moment::Peak => match peak_time(recording, &selection.filter) {
                Some(at) => write!(f, "live at the peak ({})", time(at))?,
                None => f.write_str("live at the peak")?,
            },
            Moment::End => write!(f, "{retained}live at the end")?,
            Moment::At(at) => write!(f, "{retained}live at {}", time(at))?,
            Moment::Total => f.write_str("allocated in all")?,
        }
        Ok(())
    }
}

/// Returns the filters in words.
pub(crate) fn filter_words(filter: &Filter) -> Vec<String> {
    let mut words = Vec::new();
    let mut add = |name: &str, patterns: Vec<String>, between: &str| {
        if !patterns.is_empty() {
            words.push(format!("{name} {}", patterns.join(between)));
        }
    };
    let texts = |patterns: &[analysis::Pattern]| patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
    add("process", filter.processes.iter().map(ToString::to_string).collect(), " or ");
    add("function", texts(&filter.functions), " and ");
    add("not function", texts(&filter.not_functions), " or ");
    add("allocated by", texts(&filter.allocated_by), " or ");
    add("not allocated by", texts(&filter.not_allocated_by), " or ");
    add("module", texts(&filter.modules), " or ");
    add("not module", texts(&filter.not_modules), " or ");
    add("context", texts(&filter.contexts), " and ");
    add("not context", texts(&filter.not_contexts), " or ");
    add("heap", texts(&filter.heaps), " or ");
    add("type", texts(&filter.types), " or ");
    add("thread", filter.threads.iter().map(ToString::to_string).collect(), " or ");
    let size = |size: u64| bytes(size);
    let time = |ns: u64| duration(Duration::from_nanos(ns));
    add("size", filter.size.iter().map(|range| shown_range(range, size)).collect(), "");
    add("lifetime", filter.lifetime.iter().map(|range| shown_range(range, time)).collect(), "");
    add("allocated during", filter.allocated.iter().map(|range| shown_range(range, time)).collect(), "");
    words
}

/// Formats a range: `1.0 KiB to 1.0 MiB`, `up to 1.0 ms`, `1.0 s or more`.
fn shown_range(range: &RangeInclusive<u64>, shown: impl Fn(u64) -> String) -> String {
    match (*range.start(), *range.end()) {
        (first, last) if first == last => shown(first),
        (first, u64::MAX) => format!("{} or more", shown(first)),
        (0, last) => format!("up to {}", shown(last)),
        (first, last) => format!("{} to {}", shown(first), shown(last)),
    }
}
