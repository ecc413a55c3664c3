//! A question that is being answered.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The maximum number of notes, and of bytes in all of them.
const NOTES_MAX: usize = 32;
const NOTES_BYTES_MAX: usize = 8 << 10;

/// A question that is being answered: its progress, and a flag that ends it. Clones are the same
/// work.
#[derive(Clone, Debug, Default)]
pub struct Work(Arc<State>);

#[derive(Debug, Default)]
struct State {
    done: AtomicU64,
    all: AtomicU64,
    is_cancelled: AtomicBool,
    notes: Mutex<Vec<String>>,
}

// The three atomics are independent of each other and of other memory, so relaxed accesses do. A
// reader may see the parts of two reports together: the progress is then off by one report.
impl Work {
    /// Reports how much of all is done, in any unit.
    pub fn report(&self, done: u64, all: u64) {
        self.0.all.store(all, Ordering::Relaxed);
        self.0.done.store(done, Ordering::Relaxed);
    }

    /// Adds a note for people that belongs to the answer: a warning, or a fact about the file.
    /// Notes beyond 32, or 8 KiB, are dropped.
    pub fn note(&self, text: String) {
        let mut notes = self.0.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: usize = notes.iter().map(String::len).sum();
        if notes.len() < NOTES_MAX && bytes + text.len() <= NOTES_BYTES_MAX {
            notes.push(text);
        }
    }

    /// Returns the notes, and forgets them.
    pub(crate) fn take_notes(&self) -> Vec<String> {
        mem::take(&mut self.0.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the share that is done, from 0 to 1; `None` if nothing was reported yet.
    pub fn progress(&self) -> Option<f64> {
        let (done, all) = (self.0.done.load(Ordering::Relaxed), self.0.all.load(Ordering::Relaxed));
        (all > 0).then(|| (done as f64 / all as f64).min(1.0))
    }

    /// True if nobody waits for the answer any more.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Relaxed)
    }

    /// Asks the work to end.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_a_share() {
        let work = Work::default();
        assert_eq!(work.progress(), None);
        work.report(1, 4);
        assert_eq!(work.clone().progress(), Some(0.25));
        work.report(5, 4);
        assert_eq!(work.progress(), Some(1.0));
        work.report(1, 0);
        assert_eq!(work.progress(), None);
        assert!(!work.is_cancelled());
        work.clone().cancel();
        assert!(work.is_cancelled());
    }

    #[test]
    fn notes_are_bounded() {
        let work = Work::default();
        work.note("a".repeat(NOTES_BYTES_MAX));
        work.note("more".into());
        assert_eq!(work.take_notes().len(), 1);
        (0..100).for_each(|number| work.note(number.to_string()));
        assert_eq!(work.take_notes().len(), NOTES_MAX);
        assert!(work.take_notes().is_empty());
    }
}
