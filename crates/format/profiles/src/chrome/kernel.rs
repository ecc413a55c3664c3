//! What the kernel says of a process.

use serde::{Deserialize, Serialize};

/// The memory of a whole process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// In physical memory, shared or not.
    pub resident: u64,
    /// The most that was.
    pub resident_max: Option<u64>,
    /// Whether [the most](Totals::resident_max) can be begun anew.
    pub is_resident_max_resettable: bool,
    /// What belongs to this process alone and to no file: in physical memory, or swapped out.
    pub private_footprint: Option<u64>,
}

/// A mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Its first address.
    pub start: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// What may be done with it: [`protection`].
    pub protection: u8,
    /// The file, or a name such as `[heap]`; or nothing.
    pub file: String,
    /// Its share of what is in physical memory, divided by the number of processes that have it.
    pub bytes_proportional: u64,
    /// Written, and of this process alone.
    pub bytes_private_dirty: u64,
    /// Not written, and of this process alone.
    pub bytes_private_clean: u64,
    /// Written, and of others, too.
    pub bytes_shared_dirty: u64,
    /// Not written, and of others, too.
    pub bytes_shared_clean: u64,
    /// Swapped out.
    pub bytes_swapped: u64,
}

/// Bits of [`Region::protection`].
pub mod protection {
    /// It may be executed.
    pub const EXECUTE: u8 = 1;
    /// It may be written.
    pub const WRITE: u8 = 2;
    /// It may be read.
    pub const READ: u8 = 4;
    /// Others that map it see what is written.
    pub const SHARED: u8 = 128;
}
