//! The events of every block, for formats that hold them.

use std::io;

use crate::profile::{Event, Profile};

/// Writes events one by one, for formats that have a place for each. Each implementation documents
/// its use of memory.
pub trait EventWriter {
    /// Takes an event. Events come in the order of time, and a block is freed after it was
    /// allocated; blocks that are never freed are live at the end. `profile` has the stacks, which
    /// may become more from event to event.
    ///
    /// # Errors
    ///
    /// The errors of the output.
    fn event(&mut self, profile: &Profile, event: &Event) -> io::Result<()>;

    /// Notes that, since its latest event, a thread has allocated or freed blocks that are not
    /// among the events.
    ///
    /// # Errors
    ///
    /// The errors of the output.
    fn interrupted(&mut self, profile: &Profile, process: usize, thread: u32) -> io::Result<()> {
        let _ = (profile, process, thread);
        Ok(())
    }

    /// Writes the rest.
    ///
    /// # Errors
    ///
    /// The errors of the output.
    fn finish(&mut self, profile: &Profile) -> io::Result<()>;

    /// Returns a sentence for people about data that had to be merged.
    fn merged(&self) -> Option<String> {
        None
    }
}
