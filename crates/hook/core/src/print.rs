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
mod tests {
    extern crate std;

    use std::format;
    use std::io::{Read, Seek};
    use std::os::fd::AsRawFd;
    use std::string::String;

    use super::*;

    #[test]
    fn printed_text_arrives_whole() {
        let path = std::env::temp_dir().join(format!("heapledger-print-{}", std::process::id()));
        let mut file = std::fs::File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut printer = Printer::new(file.as_raw_fd());
        let mut expected = String::new();
        for number in 0..3_000_u32 {
            writeln!(printer, "line {number}").unwrap();
            expected += &format!("line {number}\n");
        }
        assert!(printer.finish());
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, expected);
    }

    #[test]
    fn a_closed_descriptor_is_no_panic() {
        let mut printer = Printer::new(-1);
        let _ = printer.write_str("lost");
        assert!(!printer.finish());
    }
}
