//! The kernel's figures for a process.

use serde::{Deserialize, Serialize};

/// The memory of a whole process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Physical memory, shared or not.
    pub resident: u64,
    /// The peak of `resident`.
    pub resident_max: Option<u64>,
    /// True if [the peak](Totals::resident_max) can be reset.
    pub is_resident_max_resettable: bool,
    /// Memory that belongs to this process alone and to no file: in physical memory, or swapped
    /// out.
    pub private_footprint: Option<u64>,
}

/// A mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Its first address.
    pub start: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The permitted accesses: [`protection`].
    pub protection: u8,
    /// The file, or a name such as `[heap]`; or nothing.
    pub file: String,
    /// The resident bytes of the mapping, each divided by the number of processes that share it.
    pub bytes_proportional: u64,
    /// Bytes that were written and belong to this process alone.
    pub bytes_private_dirty: u64,
    /// Bytes that were not written and belong to this process alone.
    pub bytes_private_clean: u64,
    /// Bytes that were written and are shared.
    pub bytes_shared_dirty: u64,
    /// Bytes that were not written and are shared.
    pub bytes_shared_clean: u64,
    /// Bytes that are swapped out.
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
    /// Other processes that map it see what is written.
    pub const SHARED: u8 = 128;
}
