//! The memory in which the heap checker keeps its latest reports, so that they are in a core file.
//!
//! It is a mapping of its own, between inaccessible pages, of which nothing else is a part:
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 16 | [`MAGIC`] |
//! | 16 | 4 | [`VERSION`], little-endian |
//! | 20 | 4 | the bytes of the reports, little-endian |
//! | 24 | 8 | 0 |
//! | 32 | | the reports, in the form of their file (`docs/phc.md`), without the mappings |

/// The first bytes.
pub const MAGIC: [u8; 16] = *b"HEAPLEDGER PHC\n\0";
/// The version of the layout.
pub const VERSION: u32 = 1;
/// The bytes before the reports.
pub const HEADER: usize = 32;
/// The bytes of the mapping.
pub const LENGTH: usize = 64 << 10;
