//! The libraries that a command runs with.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::heap_checker::HeapChecker;

/// The allocator that a command and all that it starts run with, below all hooks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CommandAllocator {
    /// Each program's own: usually the C library's.
    #[default]
    System,
    /// The library with these bytes. It is Heapledger's, which never looks the malloc functions up:
    /// code that asks the C library for them gets this allocator, too.
    Carried(Cow<'static, [u8]>),
    /// The library with this absolute path.
    File(PathBuf),
}

/// True if a path can be in LD_PRELOAD: the dynamic linker takes spaces and colons for separators,
/// and `$` for a variable.
pub fn is_loadable(path: &Path) -> bool {
    path.is_absolute() && !path.as_os_str().as_bytes().iter().any(|byte| b" :;$\t\n".contains(byte))
}

/// The libraries that a command runs with, besides its hooks.
#[derive(Clone, Copy, Debug)]
pub struct CommandLibraries<'a> {
    /// The bytes of the preload library.
    pub preload: &'a [u8],
    /// The allocator.
    pub allocator: &'a CommandAllocator,
    /// The heap checker, if it is to run in the program, too.
    pub heap_checker: Option<&'a HeapChecker>,
}

/// Returns the libraries with glibc's functions for threads and for the dynamic linker, if they are
/// not in `libc.so.6` here. That was so before 2.34, and a program that calls none of them does not
/// load these libraries; hook libraries call some.
pub fn parts_of_older_glibc() -> Vec<PathBuf> {
    let Ok(linker) = Path::new("/lib64/ld-linux-x86-64.so.2").canonicalize() else { return Vec::new() };
    parts_beside(&linker)
}

/// Returns the same for a dynamic linker at this path. Until 2.33, its file had glibc's version in
/// its name.
fn parts_beside(linker: &Path) -> Vec<PathBuf> {
    let name = linker.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
    if !name.starts_with(b"ld-2.") {
        return Vec::new();
    }
    let parts = ["libpthread.so.0", "libdl.so.2"].map(|part| linker.with_file_name(part));
    parts.into_iter().filter(|part| part.exists()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_glibcs_are_known_by_their_linker() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        assert_eq!(parts_beside(&file("ld-2.31.so")), Vec::<PathBuf>::new());
        std::fs::write(file("libpthread.so.0"), "").unwrap();
        assert_eq!(parts_beside(&file("ld-2.31.so")), [file("libpthread.so.0")]);
        assert_eq!(parts_beside(&file("ld-linux-x86-64.so.2")), Vec::<PathBuf>::new());
    }
}
