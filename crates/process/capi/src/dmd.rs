//! `heapledger/dmd.h`: logs of the heap, for C.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use heapledger_annotate::untracked;
use heapledger_reporters::dark_matter::{self, DarkMatterError, DarkMatterOptions, Mode};

use crate::sized::read;
use crate::status::{ELSEWHERE, FAILED, OK, STATE};

/// `heapledger_dmd_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct COptions {
    size: u32,
    mode: u32,
    flags: u32,
    reporter_deadline_ms: u32,
    deadline_ms: u32,
}

const ANONYMOUS: u32 = 1;
const AS_IT_IS: u32 = 2;

/// `heapledger_dmd`: functions are only ever appended.
#[repr(C)]
#[derive(Debug)]
pub struct Table {
    size: u32,
    version: u32,
    save: unsafe extern "C" fn(*const c_char, *const COptions) -> c_int,
    on_signal: unsafe extern "C" fn(c_int, *const c_char, *const COptions) -> c_int,
    at_exit: unsafe extern "C" fn(*const c_char, *const COptions) -> c_int,
}

/// Found by programs also where a recorder observes them, other than the ledger.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is a C symbol")]
pub static heapledger_dmd_v1: Table = Table { size: size_of::<Table>() as u32, version: 1, save, on_signal, at_exit };

/// # Safety
///
/// `file` is null or a path that ends with NUL and stays during the call. `options` is null or
/// *sized* (see [`crate::sized`]).
unsafe extern "C" fn save(file: *const c_char, options: *const COptions) -> c_int {
    // SAFETY: `given` has this function's contract, and gets its parameters. The path is used
    // during this call only: `dark_matter::save` opens it.
    let Some((file, options)) = (unsafe { given(file, options) }) else { return FAILED };
    answer(|| dark_matter::save(file, &options))
}

/// # Safety
///
/// As [`save`].
unsafe extern "C" fn on_signal(signal: c_int, directory: *const c_char, options: *const COptions) -> c_int {
    // SAFETY: `given` has this function's contract, and gets its parameters. The path is used
    // during this call only: `dark_matter::on_signal` copies it.
    let Some((directory, options)) = (unsafe { given(directory, options) }) else { return FAILED };
    answer(|| dark_matter::on_signal(signal, directory, options).map(dark_matter::OnSignal::keep))
}

/// # Safety
///
/// As [`save`].
unsafe extern "C" fn at_exit(directory: *const c_char, options: *const COptions) -> c_int {
    // SAFETY: `given` has this function's contract, and gets its parameters. The path is used
    // during this call only: `dark_matter::at_exit` copies it.
    let Some((directory, options)) = (unsafe { given(directory, options) }) else { return FAILED };
    answer(|| dark_matter::at_exit(directory, options))
}

fn answer(run: impl FnOnce() -> io::Result<()>) -> c_int {
    let _untracked = untracked::enter();
    let Err(error) = run() else { return OK };
    match error.get_ref().and_then(|error| error.downcast_ref::<DarkMatterError>()) {
        Some(DarkMatterError::NotRunning) => STATE,
        Some(DarkMatterError::Recorded) => ELSEWHERE,
        _ => FAILED,
    }
}

/// A path and options as they are meant; `None`: they make no sense.
///
/// # Safety
///
/// As [`save`]; the path stays for as long as it is used.
unsafe fn given<'a>(path: *const c_char, options: *const COptions) -> Option<(&'a Path, DarkMatterOptions)> {
    if path.is_null() {
        return None;
    }
    let mut given = COptions { size: 0, mode: 0, flags: 0, reporter_deadline_ms: 0, deadline_ms: 0 };
    // SAFETY: `read` requires null or a *sized* structure, as this function's `# Safety` does of
    // `options`, and that any prefix of a `COptions` is valid, as it is of integers.
    // `CStr::from_ptr` requires a text that ends with NUL and stays as long as the result: the same
    // section says so of `path`, which the check above has found not to be null.
    let path = unsafe {
        read(options, &mut given);
        CStr::from_ptr(path)
    };
    let defaults = DarkMatterOptions::default();
    let or = |milliseconds: u32, default: Duration| match milliseconds {
        0 => default,
        _ => Duration::from_millis(milliseconds.into()),
    };
    let options = DarkMatterOptions {
        mode: *[Mode::DarkMatter, Mode::Live, Mode::Cumulative, Mode::Scan].get(given.mode as usize)?,
        report: given.flags & AS_IT_IS == 0,
        anonymous: given.flags & ANONYMOUS != 0,
        reporter_deadline: or(given.reporter_deadline_ms, defaults.reporter_deadline),
        deadline: or(given.deadline_ms, defaults.deadline),
        ..defaults
    };
    Some((Path::new(OsStr::from_bytes(path.to_bytes())), options))
}
