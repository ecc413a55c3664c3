//! The functions at an address as tables and files have them, before names are made of them.

use crate::frame::NameSource;

/// All that the tables contain about an address.
#[derive(Default)]
pub(crate) struct Answer {
    /// From the debug information, innermost first.
    pub(crate) frames: Vec<RawFrame>,
    /// From the symbol table.
    pub(crate) symbol: Option<(Vec<u8>, NameSource)>,
    /// An exported name of the last frame in the symbol table, besides its own: `malloc` for
    /// `__GI___libc_malloc`.
    pub(crate) public_name: Option<Vec<u8>>,
}

/// One function at an address, from the tables.
pub(crate) struct RawFrame {
    /// The linkage name if there is one.
    pub(crate) name: Option<Vec<u8>>,
    /// The unmangled name, needed only if `name` leaves out type arguments.
    pub(crate) plain: Option<Vec<u8>>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
}
