//! Threads that move ranges take turns.
//!
//! A move is told by two events, one before the call and one after it, since both its addresses may
//! be another thread's at once. If two threads moved ranges at the same time, the events would not
//! say which of them the kernel moved first, and so not what lies at an address that one has left
//! and the other has got. The kernel makes moves one after the other anyway.
//!
//! Only moves wait, only for moves, and never for anything that a thread does with a lock of the
//! program's: who has the turn makes one system call and writes two events.
//!
//! The state is in the page that a forked child finds zeroed ([`Process`]), whoever made the child
//! and by whatever call: the thread that has the turn does not exist there.

use crate::process::Process;
use crate::turns::Turns;

/// A turn, which ends when it is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Turn {
    /// The turns of the process; `None` if the turn is that of an outer call of the thread.
    of: Option<&'static Turns>,
}

/// Waits until it is this thread's turn to move a range. `stack` is the stack pointer of the call.
///
/// A signal handler that interrupts the holder of the turn has it, too. If the handler leaves by
/// `longjmp`, the thread's next move, from an outer frame, takes the turn over.
pub(super) fn begin(stack: u64) -> Turn {
    // Without the page, nothing has been recorded, and nothing is.
    let turns = Process::known().map(Process::turns);
    Turn { of: turns.filter(|turns| turns.take_over(stack)) }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.of {
            turns.end();
        }
    }
}

#[cfg(test)]
mod tests;
