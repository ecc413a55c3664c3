//! The heap checker and the checks, which are loaded into programs.

use std::borrow::Cow;

use heapledger_core::Bytes;

/// The heap checker, as a hook library that is loaded after all others.
#[derive(Clone, Debug)]
pub struct HeapChecker {
    /// The bytes of the library.
    pub library: Cow<'static, [u8]>,
    /// Its options: the text of the file `phc.conf` beside it.
    pub settings: String,
}

/// The checks of `heapledger check`, as a hook library.
#[derive(Clone, Copy, Debug)]
pub struct Checker<'l> {
    /// The bytes of the library.
    pub library: &'l [u8],
    /// The size of the quarantine for freed blocks, in each process; 0 switches it off.
    pub quarantine: Bytes,
    /// The length of the canary behind each block, 16 bytes to 1 MiB.
    pub canary: Bytes,
}
