//! Wrapper frames at the beginning of stacks: functions that only pass a request for memory to the
//! allocator, or a report to the ledger. The stacks of a program with Heapledger linked into it
//! begin with some of Heapledger's own.

use std::collections::HashSet;

use heapledger_analysis::is_allocator;
use heapledger_dmd::FrameTexts;
use heapledger_symbols::SymbolFrame;

/// The texts of resolved frames that are wrappers.
#[derive(Debug, Default)]
pub(super) struct WrapperFrames {
    /// Frames that pass a request or a report on.
    wrappers: HashSet<String>,
    /// Frames that may be between two wrappers: callers of closures, iterators.
    between: HashSet<String>,
}

impl WrapperFrames {
    /// Classifies a frame, which has this text.
    pub(super) fn add(&mut self, frame: &SymbolFrame, text: &str) {
        let file = frame.file.as_deref();
        let is_in = |parts: &[&str]| file.is_some_and(|file| parts.iter().any(|part| file.contains(part)));
        let name = frame.function.short();
        let is_reporting = is_in(&["process/measure/src/", "heapledger-measure-"]) || name.starts_with("heapledger_");
        if is_reporting || is_allocator(name, file) {
            self.wrappers.insert(text.to_owned());
        } else if is_in(&["/rustc/", "/rustlib/src/rust/library/"]) {
            self.between.insert(text.to_owned());
        }
    }

    /// Removes wrapper frames from the beginning of each stack, unless none would be left.
    pub(super) fn leave_out(&self, log: &mut impl FrameTexts) {
        log.strip_wrappers(|frame| self.wrappers.contains(frame), |frame| self.between.contains(frame));
    }
}
