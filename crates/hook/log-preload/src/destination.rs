//! Where a log goes: the file of `log record`, which is beside this library, or what logalloc's
//! environment variables name.

use core::ffi::{CStr, c_char};
use core::fmt;

use heapledger_core::arch::nr;
use heapledger_core::sys::{self, Errno};
use heapledger_dynsym::Directory;

/// The directory of this library.
pub(crate) static DIRECTORY: Directory = Directory::new();

/// `log record` puts one of these beside the library: a link to a file, or a pipe. Writes to a pipe
/// are not interrupted by those of other processes if they are short.
const FILE: &str = "log";
const PIPE: &str = "log.pipe";
const PIPE_BUF: usize = 4096;

const O_WRONLY_APPEND_CLOEXEC: usize = 1 | 0o2000 | 0o2000000;
const O_CREAT: usize = 0o100;
const O_NONBLOCK: usize = 0o4000;

const ENOENT: Errno = Errno(2);
const EMFILE: Errno = Errno(24);
const EFBIG: Errno = Errno(27);
const EPIPE: Errno = Errno(32);
/// The first descriptors are free in a helper's table, whatever the program has open.
const FREE: i32 = 16;

/// A destination for lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// The file beside the library, which is opened for each write.
    Beside,
    /// A descriptor of the program, or of a file that stays open.
    Descriptor(i32),
}

unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
}

/// Returns the value of an environment variable, at the start of the program.
fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the C library's function, which looks the name up in `environ` and does not allocate.
    let value = unsafe { getenv(name.as_ptr()) };
    // SAFETY: not null, so it is a NUL-terminated text of the environment. The program has not run
    // yet, so nothing changes it while this library starts.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

/// Finds the destination, before the program runs. `None` if no log is wanted.
pub(crate) fn find() -> Option<Destination> {
    if DIRECTORY.find() {
        match open_beside() {
            Ok((fd, _)) => {
                sys::close(fd);
                return Some(Destination::Beside);
            }
            Err(ENOENT) => {}
            // A pipe whose reader has gone away: what is not written is counted.
            Err(_) => return Some(Destination::Beside),
        }
    }
    let name = variable(c"MALLOC_LOG")?;
    match descriptor(name.to_bytes()) {
        Some(0) => None,
        Some(fd) => Some(Destination::Descriptor(fd)),
        None => sys::open(name, O_WRONLY_APPEND_CLOEXEC | O_CREAT, 0o644).ok().map(Destination::Descriptor),
    }
}

/// True if a log has the functions of logalloc's minimal one only.
pub(crate) fn is_minimal() -> bool {
    variable(c"MALLOC_LOG_MINIMAL").is_some()
}

/// Returns the number of a descriptor, if the text is one below 10,000.
fn descriptor(text: &[u8]) -> Option<i32> {
    const DESCRIPTORS: i32 = 10_000;
    let digit = |number: i32, byte: &u8| byte.is_ascii_digit().then(|| number * 10 + i32::from(byte - b'0'));
    let number = text.iter().try_fold(0, |number, byte| digit(number, byte).filter(|&number| number < DESCRIPTORS))?;
    (!text.is_empty()).then_some(number)
}

/// Opens the file beside the library; says whether it is a pipe.
fn open_beside() -> Result<(i32, bool), Errno> {
    match DIRECTORY.open(format_args!("{FILE}"), O_WRONLY_APPEND_CLOEXEC, 0) {
        Ok(fd) => Ok((fd, false)),
        // A pipe without a reader is an error, instead of one to wait for.
        Err(ENOENT) => match DIRECTORY.open(format_args!("{PIPE}"), O_WRONLY_APPEND_CLOEXEC | O_NONBLOCK, 0) {
            Ok(fd) => {
                sys::set_flags(fd, 0)?;
                Ok((fd, true))
            }
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    }
}

impl Destination {
    /// Writes whole lines. Returns the bytes that were written, which are fewer if that failed.
    /// Neither a reader that has gone away nor a limit of the file's length ends the program.
    pub(crate) fn write(self, lines: &[u8]) -> usize {
        quietly(|| match self {
            Destination::Descriptor(fd) => write_to(fd, lines, false),
            Destination::Beside => {
                let write = || {
                    let (fd, is_pipe) = open_beside().map_err(|error| (0, error))?;
                    let written = write_to(fd, lines, is_pipe);
                    sys::close(fd);
                    written
                };
                match write() {
                    Err((0, EMFILE)) => sys::with_descriptors(FREE, write).unwrap_or(Err((0, EMFILE))),
                    written => written,
                }
            }
        })
        .unwrap_or_else(|(written, _)| written)
    }
}

/// Makes a file beside the library, even if the program has no descriptor left.
pub(crate) fn make_beside<R>(name: fmt::Arguments<'_>, with: impl Fn(i32) -> Result<R, Errno>) -> Option<R> {
    const O_RDWR_CREAT_EXCL_CLOEXEC: usize = 2 | 0o100 | 0o200 | 0o2000000;
    let make = || {
        let fd = DIRECTORY.open(name, O_RDWR_CREAT_EXCL_CLOEXEC, 0o600)?;
        let made = with(fd);
        sys::close(fd);
        made
    };
    quietly(|| {
        match make() {
            Err(EMFILE) => sys::with_descriptors(FREE, make).unwrap_or(Err(EMFILE)),
            made => made,
        }
        .map_err(|error| (0, error))
    })
    .ok()
}

/// Runs a function that writes while no signal reaches this thread, and takes the signal that a
/// failed write has sent to it.
fn quietly<R>(run: impl FnOnce() -> Result<R, (usize, Errno)>) -> Result<R, (usize, Errno)> {
    const SIGPIPE: u64 = 13;
    const SIGXFSZ: u64 = 25;
    sys::without_signals(|| {
        let answer = run();
        match answer {
            Err((_, EPIPE)) => take(SIGPIPE),
            Err((_, EFBIG)) => take(SIGXFSZ),
            _ => {}
        }
        answer
    })
}

/// Writes all bytes; after an error, says how many were written. To a pipe, lines at a time.
fn write_to(fd: i32, lines: &[u8], is_pipe: bool) -> Result<usize, (usize, Errno)> {
    let mut written = 0;
    for part in parts(lines, if is_pipe { PIPE_BUF } else { lines.len() }) {
        let mut rest = part;
        while !rest.is_empty() {
            let count = sys::write(fd, rest).map_err(|error| (written, error))?;
            rest = rest.get(count..).unwrap_or(&[]);
            written += count;
        }
    }
    Ok(written)
}

/// Cuts text behind the ends of lines, into parts of at most `length_max` bytes.
fn parts(lines: &[u8], length_max: usize) -> impl Iterator<Item = &[u8]> {
    let mut rest = lines;
    core::iter::from_fn(move || {
        let whole = rest.get(..length_max.min(rest.len()))?;
        let end = whole.iter().rposition(|&byte| byte == b'\n').map_or(whole.len(), |at| at + 1);
        let (part, later) = rest.split_at(end);
        rest = later;
        (!part.is_empty()).then_some(part)
    })
}

/// Takes a signal that the kernel has sent to this thread, in which all signals are blocked.
fn take(signal: u64) {
    let (set, no_time) = (1_u64 << (signal - 1), [0_u64; 2]);
    let (set, no_time) = ((&raw const set).expose_provenance(), (&raw const no_time).expose_provenance());
    // SAFETY: rt_sigtimedwait(2) reads one signal set of 8 bytes and one `struct timespec`, both
    // live; with a time of 0 it does not wait. It takes only the signal that a failed write has
    // made pending.
    unsafe { sys::call(nr::RT_SIGTIMEDWAIT, [set, 0, no_time, 8, 0, 0]) };
}
