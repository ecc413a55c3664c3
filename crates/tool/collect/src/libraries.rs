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
