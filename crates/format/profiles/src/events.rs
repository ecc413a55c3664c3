//! What happened to every block, for formats that hold that.

use std::io;

use crate::profile::{Event, Profile};

/// Writes events one by one, of formats that have a place for each. What it takes in memory is said by each of them.
pub trait EventWriter {
    /// Takes an event. Events come in the order of time, and a block is freed after it was allocated; what is never freed is
    /// live at the end. `profile` has the stacks: from event to event there may be more of them.
    ///
    /// # Errors
    ///
    /// Those of the output.
    fn event(&mut self, profile: &Profile, event: &Event) -> io::Result<()>;

    /// Takes note that a thread has allocated or freed blocks that are not among the events since its latest one.
    ///
    /// # Errors
    ///
    /// Those of the output.
    fn interrupted(&mut self, profile: &Profile, process: usize, thread: u32) -> io::Result<()> {
        let _ = (profile, process, thread);
        Ok(())
    }

    /// Writes what is left to be written.
    ///
    /// # Errors
    ///
    /// Those of the output.
    fn finish(&mut self, profile: &Profile) -> io::Result<()>;

    /// What had to be told in fewer words than there was to tell: a sentence for people.
    fn merged(&self) -> Option<String> {
        None
    }
}
