//! Moments: the times that a question can be about.

use heapledger_recording::Time;

/// The moment that a question is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moment {
    /// The moment with the most bytes live in the session, or in the process that was selected.
    #[default]
    Peak,
    /// The end of each process. Blocks that were live when a process called `exec` are not
    /// included, because they were gone by then.
    End,
    /// This time.
    At(Time),
    /// Not a moment: everything that was ever allocated.
    Total,
}

impl Moment {
    /// Returns the time, if the moment is one.
    pub fn time(self) -> Option<Time> {
        match self {
            Moment::At(time) => Some(time),
            Moment::Peak | Moment::End | Moment::Total => None,
        }
    }
}
