//! The heap checker, which is loaded into programs.

use std::borrow::Cow;

/// The heap checker, as a hook library that is loaded after all others.
#[derive(Clone, Debug)]
pub struct HeapChecker {
    /// The bytes of the library.
    pub library: Cow<'static, [u8]>,
    /// Its options: the text of the file `phc.conf` beside it.
    pub settings: String,
}
