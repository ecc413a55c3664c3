//! Where a log goes: the file of `log record`, which is beside this library, or what logalloc's
//! environment variables name.

use core::ffi::{CStr, c_char};

use heapledger_core::arch::{nr, syscall};
use heapledger_core::sys::{self, Errno};
use heapledger_dynsym::Directory;

/// The directory of this library.
pub(crate) static DIRECTORY: Directory = Directory::new();

/// `log record` puts a link of one of these names beside the library. Writes to a pipe are not
/// interrupted by those of other processes if they are short.
const FILE: &str = "log";
const PIPE: &str = "log.pipe";
const PIPE_BUF: usize = 4096;

const O_WRONLY_APPEND_CLOEXEC: usize = 1 | 0o2000 | 0o2000000;
const O_CREAT: usize = 0o100;
const O_NONBLOCK: usize = 0o4000;
const ENOENT: Errno = Errno(2);

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
    /// Writes whole lines. Signals are delayed meanwhile, and a reader that has gone away does not
    /// end the program.
    ///
    /// # Errors
    ///
    /// Fails if nothing, or not everything, could be written.
    pub(crate) fn write(self, lines: &[u8]) -> Result<(), Errno> {
        sys::without_signals(|| {
            let written = match self {
                Destination::Descriptor(fd) => sys::write_all(fd, lines),
                Destination::Beside => write_beside(lines),
            };
            if written == Err(Errno(EPIPE)) {
                take_sigpipe();
            }
            written
        })
    }
}

const EPIPE: i32 = 32;

fn write_beside(lines: &[u8]) -> Result<(), Errno> {
    const EMFILE: Errno = Errno(24);
    /// The first descriptors are free in the helper's table, whatever the program has open.
    const FREE: i32 = 16;
    let write = || {
        let (fd, is_pipe) = open_beside()?;
        let written = if is_pipe {
            parts(lines).try_for_each(|part| sys::write_all(fd, part))
        } else {
            sys::write_all(fd, lines)
        };
        sys::close(fd);
        written
    };
    match write() {
        Err(EMFILE) => sys::with_descriptors(FREE, write).unwrap_or(Err(EMFILE)),
        written => written,
    }
}

/// Cuts text behind the ends of lines, into parts of at most `PIPE_BUF` bytes.
fn parts(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = lines;
    core::iter::from_fn(move || {
        let whole = rest.get(..PIPE_BUF.min(rest.len()))?;
        let end = whole.iter().rposition(|&byte| byte == b'\n').map_or(whole.len(), |at| at + 1);
        let (part, later) = rest.split_at(end);
        rest = later;
        (!part.is_empty()).then_some(part)
    })
}

/// Takes the signal that a write to a pipe without a reader has sent to this thread, in which all
/// signals are blocked.
fn take_sigpipe() {
    const SIGPIPE: u64 = 13;
    let (set, no_time) = (1_u64 << (SIGPIPE - 1), [0_u64; 2]);
    let (set, no_time) = ((&raw const set).expose_provenance(), (&raw const no_time).expose_provenance());
    // SAFETY: rt_sigtimedwait(2) reads one signal set of 8 bytes and one `struct timespec`, both
    // live; with a time of 0 it does not wait. It takes only the signal that the failed write has
    // made pending.
    unsafe { syscall(nr::RT_SIGTIMEDWAIT, [set, 0, no_time, 8, 0, 0]) };
}
