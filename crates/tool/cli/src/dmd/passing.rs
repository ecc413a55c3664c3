//! Functions at the beginning of stacks that only pass something on: a request for memory, to the allocator, or a report, to the
//! ledger. The stacks of a program in which Heapledger is linked begin with some of its own.

use std::collections::HashSet;

use heapledger_analysis::is_allocator;
use heapledger_dmd::FrameTexts;
use heapledger_symbols::Frame;

/// Frames that have been resolved to such functions, by their texts.
#[derive(Debug, Default)]
pub(super) struct Passing {
    /// They pass something on.
    passing: HashSet<String>,
    /// They may be between two that do: closures' callers, iterators.
    between: HashSet<String>,
}

impl Passing {
    /// Takes note of a frame, which has this text.
    pub(super) fn note(&mut self, frame: &Frame, text: &str) {
        let file = frame.file.as_deref();
        let is_in = |parts: &[&str]| file.is_some_and(|file| parts.iter().any(|part| file.contains(part)));
        let name = frame.function.short();
        let is_reporting = is_in(&["process/measure/src/", "heapledger-measure-"]) || name.starts_with("heapledger_");
        if is_reporting || is_allocator(name, file) {
            self.passing.insert(text.to_owned());
        } else if is_in(&["/rustc/", "/rustlib/src/rust/library/"]) {
            self.between.insert(text.to_owned());
        }
    }

    /// Takes them off the beginning of each stack, but for what would be left of nothing.
    pub(super) fn leave_out(&self, log: &mut impl FrameTexts) {
        log.leave_out_leading(|frame| self.passing.contains(frame), |frame| self.between.contains(frame));
    }
}
