//! The progress of a long question, on a terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::listener;

/// A progress bar on stderr: only on a terminal, and only if the work takes more than half a
/// second.
#[derive(Debug)]
pub(crate) struct Progress {
    started: Instant,
    bar: Option<ProgressBar>,
}

const SHOW_AFTER: Duration = Duration::from_millis(500);

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress { started: Instant::now(), bar: None }
    }

    /// Shows how many of all events are done.
    pub(crate) fn events(&mut self, done: u64, all: u64) {
        self.show("replaying {wide_bar} {human_pos} of {human_len} events, {eta} left", done, all);
    }

    /// Shows how many of all code locations have been looked up.
    pub(crate) fn places(&mut self, done: u64, all: u64) {
        self.show("looking names up {wide_bar} {human_pos} of {human_len}", done, all);
    }

    /// Shows how many bytes of a file have been read.
    pub(crate) fn bytes(&mut self, done: u64, all: u64) {
        self.show("reading {wide_bar} {bytes} of {total_bytes}, {eta} left", done, all);
    }

    /// Shows how many of all runs of a replay are done.
    pub(crate) fn runs(&mut self, done: u64, all: u64) {
        self.show("replaying {wide_bar} {pos} of {len} runs, {eta} left", done, all);
    }

    /// Shows how many questions are answered.
    #[cfg(feature = "viewer")]
    pub(crate) fn answers(&mut self, done: u64, all: u64) {
        self.show("asking {wide_bar} {pos} of {len} questions, {eta} left", done, all);
    }

    fn show(&mut self, template: &str, done: u64, all: u64) {
        if listener::progress(done, all) {
            return;
        }
        if self.bar.is_none() && self.started.elapsed() < SHOW_AFTER {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            // The bar hides itself if stderr is not a terminal.
            let bar = ProgressBar::with_draw_target(Some(all), ProgressDrawTarget::stderr());
            bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
