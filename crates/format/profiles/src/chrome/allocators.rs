//! What a part of a program says of its memory.

use serde::{Deserialize, Serialize};

use super::guid::Guid;
use super::untracked;

/// The bit of a dump's flags that says that it is weak.
pub const WEAK: u32 = 1;

/// The memory of one part of a program: an allocator, a cache, one of its entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocatorDump {
    /// Names from the general to the special, with `/` between them.
    pub name: String,
    /// By what other dumps refer to it.
    pub guid: Guid,
    /// [`WEAK`], or nothing.
    pub flags: u32,
    /// What is known of it, by name. Each name is there once.
    pub attributes: Vec<(String, Attribute)>,
}

/// A value of an allocator dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attribute {
    /// A number, and what it counts.
    Scalar {
        /// `bytes`, `objects`, or what else there is.
        units: String,
        /// How much.
        value: u64,
    },
    /// A text.
    Text(String),
}

impl AllocatorDump {
    /// The attribute that says how large it is. Of a part with others below it: all of them together.
    pub const SIZE: &str = "size";
    /// The attribute that says how many there are.
    pub const OBJECT_COUNT: &str = "object_count";
    /// Units of sizes.
    pub const BYTES: &str = "bytes";
    /// Units of numbers.
    pub const OBJECTS: &str = "objects";

    pub(super) fn new(name: String, guid: Guid) -> AllocatorDump {
        AllocatorDump { name, guid, flags: 0, attributes: Vec::new() }
    }

    /// Whether it is nothing unless another process has a dump with the same number that is not weak.
    pub fn is_weak(&self) -> bool {
        self.flags & WEAK != 0
    }

    /// Says how large it is.
    pub fn set_size(&mut self, bytes: u64) -> &mut AllocatorDump {
        self.set_scalar(Self::SIZE, Self::BYTES, bytes)
    }

    /// Says of how many objects it is.
    pub fn set_object_count(&mut self, count: u64) -> &mut AllocatorDump {
        self.set_scalar(Self::OBJECT_COUNT, Self::OBJECTS, count)
    }

    /// Says something else of it, in these units.
    pub fn set_scalar(&mut self, name: &str, units: &str, value: u64) -> &mut AllocatorDump {
        untracked::scope(|| self.set(name, Attribute::Scalar { units: units.to_owned(), value }))
    }

    /// Says something of it that is no number. Left out of dumps in the background.
    pub fn set_text(&mut self, name: &str, text: &str) -> &mut AllocatorDump {
        untracked::scope(|| self.set(name, Attribute::Text(text.to_owned())))
    }

    fn set(&mut self, name: &str, value: Attribute) -> &mut AllocatorDump {
        match self.attributes.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.attributes.push((name.to_owned(), value)),
        }
        self
    }

    /// Adds what another part of the program says of the same.
    pub(super) fn add(&mut self, other: AllocatorDump) {
        self.flags &= other.flags;
        other.attributes.into_iter().for_each(|(name, value)| _ = self.set(&name, value));
    }

    /// A number that it has been given.
    pub fn scalar(&self, name: &str) -> Option<u64> {
        self.attributes.iter().find_map(|(known, attribute)| match attribute {
            Attribute::Scalar { value, .. } if known == name => Some(*value),
            _ => None,
        })
    }

    /// How large it is, if it says so.
    pub fn size(&self) -> Option<u64> {
        self.scalar(Self::SIZE)
    }
}

/// That one allocator dump is the memory of another, and owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// Who owns it.
    pub source: Guid,
    /// What is owned.
    pub target: Guid,
    /// Of several owners the most important ones bear the cost; those that are equal share it.
    pub importance: i32,
}
