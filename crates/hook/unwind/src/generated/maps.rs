//! The executable memory of this process, as the kernel lists it (proc_pid_maps(5)).

use heapledger_core::sys;

/// Returns the executable memory around an address, with the mappings of the same kind that border
/// on it. `None` if the address cannot be executed or is the kernel's.
///
/// Reads the list up to the address: a few microseconds for each kilobyte of it. The descriptor is
/// not in the program's table if that can be avoided: another thread of the program may close
/// numbers that it does not know, and a child that it forks meanwhile would keep this one.
///
/// # Errors
///
/// Fails if the list cannot be read: then nothing is known about the address.
#[cold]
pub(super) fn executable_around(address: u64) -> Result<Option<Run>, Unknown> {
    let read = || sys::without_signals(|| read_around(address));
    sys::with_descriptors(1, read).unwrap_or_else(read)
}

fn read_around(address: u64) -> Result<Option<Run>, Unknown> {
    const O_CLOEXEC: usize = 0o2000000;
    let fd = sys::open(c"/proc/self/maps", O_CLOEXEC, 0).map_err(|_| Unknown)?;
    let mut search = Search::new(address);
    let mut bytes = [0_u8; 1024];
    let result = loop {
        match sys::read(fd, &mut bytes) {
            Ok(0) => break Ok(()),
            Ok(count) if search.feed(bytes.get(..count).unwrap_or(&[])) => break Ok(()),
            Ok(_) => {}
            Err(_) => break Err(Unknown),
        }
    };
    sys::close(fd);
    result.map(|()| search.finish())
}

/// The list of mappings could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unknown;

/// A search in the list, whose text may come in pieces of any length.
#[derive(Debug)]
pub(super) struct Search {
    address: u64,
    found: Option<Run>,
    line: Line,
}

/// Mappings of the same kind that border on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) end: u64,
    /// True if this is a mapping of a file, which may be one in memory.
    is_file: bool,
    /// True if the file has a name in a file system: a module may be in it.
    pub(super) is_named_file: bool,
}

/// The number of bytes of a name by which its kind is known.
const NAME_LENGTH: usize = 7;

/// A line, as far as it has been read.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    start: u64,
    end: u64,
    is_executable: bool,
    /// The beginning of the name; zeroes if there is none.
    name: [u8; NAME_LENGTH],
    name_length: usize,
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
        // `[vdso]` and the like are the kernel's, and have unwind information; the program has
        // given the names `[anon:…]` and `[anon_shmem:…]` (PR_SET_VMA_ANON_NAME).
        let is_kernels = line.name.starts_with(b"[") && !line.name.starts_with(b"[anon");
        let is_code = line.is_executable && !is_kernels && line.start < line.end;
        let is_file = line.name.starts_with(b"/");
        let is_named_file = is_file && !line.name.starts_with(b"/memfd:");
        let run = Run { start: line.start, end: line.end, is_file, is_named_file };
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

    pub(super) fn finish(self) -> Option<Run> {
        self.found.filter(|found| (found.start..found.end).contains(&self.address))
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
            6 => {
                if let Some(to) = self.name.get_mut(self.name_length) {
                    *to = byte;
                    self.name_length += 1;
                }
            }
            _ => {}
        }
    }
}
