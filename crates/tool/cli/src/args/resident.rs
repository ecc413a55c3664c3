//! The options about resident snapshots of a recording.

use std::time::Duration;

use clap::Args;

use crate::args::values;

/// The moments at which a recording notes where the resident memory is.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ResidentOptions {
    /// Also record where the resident memory is after each such time, such as 10s
    ///
    /// By default that is recorded when it has changed by a tenth, now and then, and at the
    /// program's exit, as far as it takes no more than a fiftieth of the program's time: see
    /// `heapledger rss FILE`. So programs of a moment have nothing of it.
    #[arg(long, value_name = "TIME", value_parser = values::duration, verbatim_doc_comment)]
    pub(crate) resident_every: Option<Duration>,

    /// The longest time that a program waits at its exit until that is recorded; 0 for none
    ///
    /// By default a fiftieth of the time for which it ran, at most 1s, and not at all if that
    /// is not enough, as in programs that run for less than half a second. Programs that are
    /// attached to, or are statically linked, never wait.
    #[arg(long, value_name = "TIME", value_parser = values::duration, verbatim_doc_comment)]
    pub(crate) resident_exit: Option<Duration>,

    /// Do not record where the resident memory is
    #[arg(long, conflicts_with_all = ["resident_every", "resident_exit"])]
    pub(crate) no_resident: bool,
}

impl ResidentOptions {
    /// Returns the options as the command line has them.
    pub(crate) fn text(&self) -> Vec<String> {
        let mut options = Vec::new();
        let times = [("--resident-every", self.resident_every), ("--resident-exit", self.resident_exit)];
        for (name, time) in times {
            options.extend(time.map(|time| format!("{name} {}s", time.as_secs_f64())));
        }
        if self.no_resident {
            options.push("--no-resident".to_owned());
        }
        options
    }
}
