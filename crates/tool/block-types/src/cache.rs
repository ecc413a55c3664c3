//! Types from earlier runs: two files for each module, beside the symbolizer's file of names.

mod records;
pub(crate) mod sites;
pub(crate) mod types;

use heapledger_symbols::cache::sealed;

/// Implements the fuzz target: reads the bytes as the message in a file with a valid checksum.
pub fn exercise(data: &[u8]) {
    types::exercise(&sealed(data));
    sites::exercise(&sealed(data));
}
