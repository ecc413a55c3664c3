//! The numbers by which allocator dumps refer to each other.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

/// The number of an allocator dump, or of a dump of all processes. It is computed from a text, so
/// that processes which know the same text have the same number without asking each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Guid(pub u64);

impl Guid {
    /// Returns the number of a text: the first eight bytes of its SHA-1, the lowest first.
    pub fn of(text: &str) -> Guid {
        let digest = Sha1::digest(text.as_bytes());
        Guid(digest.iter().take(8).rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    /// Returns the number of a process's allocator dump with this name.
    pub fn of_name(pid: u32, name: &str) -> Guid {
        Guid::of(&format!("{pid}:{name}"))
    }
}

/// Writes the number in hexadecimal, without prefix.
impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_byte_is_the_first() {
        // printf abc | sha1sum: a9993e364706816a…
        assert_eq!(Guid::of("abc").to_string(), "6a810647363e99a9");
        assert_eq!(Guid::of_name(7, "malloc"), Guid::of("7:malloc"));
    }
}
