//! Printing to a descriptor without allocation: at exit, in a signal handler, inside a hook.

use core::fmt::{self, Write};

use crate::sys;

const BUFFER: usize = 2048;

/// Buffered text for a descriptor. Text that the descriptor does not accept is dropped, which
/// [`Printer::finish`] reports.
pub struct Printer {
    fd: i32,
    length: usize,
    is_broken: bool,
    buffer: [u8; BUFFER],
}

impl Printer {
    /// Returns a printer with an empty buffer.
    pub const fn new(fd: i32) -> Printer {
        Printer { fd, length: 0, is_broken: false, buffer: [0; BUFFER] }
    }

    /// Writes the rest of the buffer. True if everything has been written.
    pub fn finish(mut self) -> bool {
        self.flush();
        !self.is_broken
    }

    fn flush(&mut self) {
        let bytes = self.buffer.get(..self.length).unwrap_or(&[]);
        self.is_broken |= !self.is_broken && sys::write_all(self.fd, bytes).is_err();
        self.length = 0;
    }
}

impl Write for Printer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            if self.length == BUFFER {
                self.flush();
            }
            let room = self.buffer.get_mut(self.length..).unwrap_or(&mut []);
            let count = room.len().min(rest.len());
            let (now, later) = rest.split_at(count);
            room.iter_mut().zip(now).for_each(|(to, from)| *to = *from);
            self.length += count;
            rest = later;
        }
        if self.is_broken { Err(fmt::Error) } else { Ok(()) }
    }
}

impl fmt::Debug for Printer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Printer").field("fd", &self.fd).field("is_broken", &self.is_broken).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
