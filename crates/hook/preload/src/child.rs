//! A program that is about to be started.

use core::ffi::{CStr, c_char, c_int};

use heapledger_core::program::Obstacle;

/// A program that is about to be started. A path is null or a NUL-terminated string: one of *the
/// program's arguments* (see [`exec`](crate::exec)).
#[derive(Clone, Copy)]
pub(crate) enum Child {
    /// A file.
    At(*const c_char),
    /// A file, or a name to be looked for in `PATH`.
    InPath(*const c_char),
    /// An open file (no path, or an empty one), or a file by its path from an open directory.
    Below(c_int, *const c_char),
    /// A program of the system, such as the shell.
    Any,
}

/// The path of a program's file, as it was found, cut off at the end if it is long.
pub(crate) struct ChildPath {
    bytes: [u8; 512],
    length: usize,
    /// True if it is a program for musl.
    pub(crate) is_musl: bool,
}

impl Default for ChildPath {
    fn default() -> Self {
        ChildPath { bytes: [0; 512], length: 0, is_musl: false }
    }
}

impl ChildPath {
    pub(crate) fn path(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }

    /// Returns the address of the path as a NUL-terminated text; `None` if it was cut off.
    pub(crate) fn text(&mut self) -> Option<*const u8> {
        *self.bytes.get_mut(self.length)? = 0;
        Some(self.bytes.as_ptr())
    }

    /// Keeps the name by which the caller starts the program, without looking for the file.
    pub(crate) fn keep_as_named(&mut self, child: Child) {
        if let Child::At(name) | Child::InPath(name) | Child::Below(_, name) = child
            && !name.is_null()
        {
            // SAFETY: `CStr::from_ptr` requires a live, NUL-terminated string: `name` is not null,
            // and one of *the program's arguments*, as `Child` says.
            self.keep(unsafe { CStr::from_ptr(name) }.to_bytes());
        }
    }

    pub(crate) fn keep(&mut self, path: &[u8]) {
        self.length = path.len().min(self.bytes.len());
        self.bytes.iter_mut().zip(path).for_each(|(to, from)| *to = *from);
    }
}

/// The fate of a program that is started.
#[derive(Clone, Copy)]
pub(crate) enum ChildStatus {
    /// Neither a session nor a hook library is interested.
    Unobserved,
    /// The program gets the additions, and is to introduce itself.
    Recorded,
    /// The program runs unrecorded.
    Unrecorded(Obstacle),
}
