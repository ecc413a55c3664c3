//! Executes a program with arguments and an environment exactly as they are given.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::ptr;

use crate::signals::sigpipe_was_ignored;

/// The arguments of `execve`. The standard library would sort the variables, which the program
/// could notice.
#[derive(Debug)]
pub(crate) struct Image {
    file: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Image {
    pub(crate) fn new(file: &Path, arguments: Vec<CString>, environment: &[CString]) -> io::Result<Image> {
        Ok(Image { file: CString::new(file.as_os_str().as_bytes())?, arguments, environment: environment.to_vec() })
    }
}

/// Makes the command's child execute this image instead of the program of the command. If
/// `is_traced`, the thread that starts the command becomes its tracer.
pub(crate) fn exec_instead(command: &mut Command, image: Image, is_traced: bool) {
    /// Pointers into the strings of `image`, which live as long.
    struct Pointers {
        arguments: Vec<*const libc::c_char>,
        environment: Vec<*const libc::c_char>,
        image: Image,
    }
    // SAFETY: the pointers refer to heap memory that `image` owns and that is never changed.
    unsafe impl Send for Pointers {}
    // SAFETY: as for `Send`: the memory behind the pointers is never changed, so it can be read by
    // several threads.
    unsafe impl Sync for Pointers {}
    let pointers =
        |strings: &[CString]| strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect::<Vec<_>>();
    let pointers = Pointers { arguments: pointers(&image.arguments), environment: pointers(&image.environment), image };
    let exec = move || {
        let pointers = &pointers;
        if sigpipe_was_ignored() {
            // SAFETY: `signal` requires a signal that exists, and a disposition: both are constants
            // of the C library, and `SIG_IGN` runs no code. It may be called after a fork: it is
            // async-signal-safe.
            unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        }
        if is_traced {
            heapledger_inject::trace_me()?;
        }
        // SAFETY: the file is a NUL-terminated string; the arguments and the environment are arrays
        // of such strings that end with null.
        unsafe {
            libc::execve(pointers.image.file.as_ptr(), pointers.arguments.as_ptr(), pointers.environment.as_ptr());
        }
        Err(io::Error::last_os_error())
    };
    // SAFETY: after the fork the closure makes only system calls, on memory that was prepared
    // before the fork, and allocates nothing.
    unsafe { command.pre_exec(exec) };
}

/// Returns this process's environment unchanged: in its order, including entries that are not
/// `NAME=VALUE`.
pub(crate) fn environment() -> Vec<OsString> {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    let mut entries = Vec::new();
    // SAFETY: `environ` is the C library's variable: null, or an array of strings that ends with a
    // null pointer. `record` is documented not to be called while another thread changes the
    // environment, as for `std::env::set_var`.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            entries.push(OsStr::from_bytes(CStr::from_ptr(*at).to_bytes()).to_owned());
            at = at.add(1);
        }
    }
    entries
}
