//! The executable memory of this process, as the kernel lists it (proc_pid_maps(5)).

use core::ops::Range;

use heapledger_core::sys;

/// Returns the executable memory around an address, with the mappings of the same kind that border
/// on it. `None` if the address cannot be executed, is the kernel's, or the list cannot be read.
///
/// Reads the list up to the address: a few microseconds for each kilobyte of it.
#[cold]
pub(super) fn executable_around(address: u64) -> Option<Range<u64>> {
    const O_CLOEXEC: usize = 0o2000000;
    sys::without_signals(|| {
        let fd = sys::open(c"/proc/self/maps", O_CLOEXEC, 0).ok()?;
        let mut search = Search::new(address);
        let mut bytes = [0_u8; 1024];
        while let Ok(count @ 1..) = sys::read(fd, &mut bytes) {
            if search.feed(bytes.get(..count).unwrap_or(&[])) {
                break;
            }
        }
        sys::close(fd);
        search.finish()
    })
}

/// A search in the list, whose text may come in pieces of any length.
#[derive(Debug)]
pub(super) struct Search {
    address: u64,
    found: Option<Run>,
    line: Line,
}

/// Mappings of the same kind that border on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: u64,
    end: u64,
    is_file: bool,
}

/// A line, as far as it has been read.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    start: u64,
    end: u64,
    is_executable: bool,
    /// The first byte of the name; 0 if there is none.
    name: u8,
    field: u8,
    /// True if the byte before was a space.
    is_between: bool,
}

impl Search {
    pub(super) fn new(address: u64) -> Search {
        Search { address, found: None, line: Line::default() }
    }

    /// Reads a piece of the list. True if the rest of the list does not matter.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> bool {
        for &byte in bytes {
            if byte != b'\n' {
                self.line.feed(byte);
                continue;
            }
            let line = core::mem::take(&mut self.line);
            if self.take(line) {
                return true;
            }
        }
        false
    }

    /// Handles a whole line. True if no further line matters.
    fn take(&mut self, line: Line) -> bool {
        let is_after = self.found.is_some_and(|found| found.end > self.address);
        // `[vdso]` and the like are the kernel's, and have unwind information; other names in
        // brackets are given by the program.
        let is_code = line.is_executable && line.name != b'[' && line.start < line.end;
        let run = Run { start: line.start, end: line.end, is_file: line.name == b'/' };
        match &mut self.found {
            Some(found) if is_code && found.end == run.start && found.is_file == run.is_file && !run.is_file => {
                found.end = run.end;
                false
            }
            _ if is_after => true,
            found => {
                *found = is_code.then_some(run);
                line.start > self.address
            }
        }
    }

    pub(super) fn finish(self) -> Option<Range<u64>> {
        let found = self.found.filter(|found| (found.start..found.end).contains(&self.address))?;
        Some(found.start..found.end)
    }
}

impl Line {
    /// Reads one byte of `start-end perms offset device inode name`.
    fn feed(&mut self, byte: u8) {
        let digit = || char::from(byte).to_digit(16).map_or(0, u64::from);
        if byte == b' ' {
            self.field += u8::from(!self.is_between && self.field < 6);
            self.is_between = true;
            return;
        }
        self.is_between = false;
        match self.field {
            0 if byte == b'-' => self.field = 1,
            0 => self.start = self.start << 4 | digit(),
            1 => self.end = self.end << 4 | digit(),
            2 => self.is_executable |= byte == b'x',
            6 if self.name == 0 => self.name = byte,
            _ => {}
        }
    }
}
