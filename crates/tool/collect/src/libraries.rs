//! The libraries that a command runs with.

use std::borrow::Cow;
use std::path::PathBuf;

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
