//! The values that a part of a program gives for its memory.

use serde::{Deserialize, Serialize};

use super::guid::Guid;
use super::untracked;

/// The flag bit of weak dumps.
pub const WEAK: u32 = 1;

/// The memory of one part of a program: an allocator, a cache, one of its entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocatorDump {
    /// Names from the general to the special, with `/` between them.
    pub name: String,
    /// The number by which other dumps refer to it.
    pub guid: Guid,
    /// [`WEAK`], or 0.
    pub flags: u32,
    /// The values, by name. Each name is there once.
    pub attributes: Vec<(String, Attribute)>,
}

/// A value of an allocator dump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attribute {
    /// A number, and its unit.
    Scalar {
        /// `bytes`, `objects`, or another unit.
        units: String,
        /// The number.
        value: u64,
    },
    /// A text.
    Text(String),
}

impl AllocatorDump {
    /// The name of the attribute for the size. For a part with others below it: the size of all of
    /// them together.
    pub const SIZE: &str = "size";
    /// The name of the attribute for the number of objects.
    pub const OBJECT_COUNT: &str = "object_count";
    /// The unit of sizes.
    pub const BYTES: &str = "bytes";
    /// The unit of numbers of objects.
    pub const OBJECTS: &str = "objects";

    pub(super) fn new(name: String, guid: Guid) -> AllocatorDump {
        AllocatorDump { name, guid, flags: 0, attributes: Vec::new() }
    }

    /// True if the dump counts only if another process has a dump with the same number that is not
    /// weak.
    pub fn is_weak(&self) -> bool {
        self.flags & WEAK != 0
    }

    /// Sets the size.
    pub fn set_size(&mut self, bytes: u64) -> &mut AllocatorDump {
        self.set_scalar(Self::SIZE, Self::BYTES, bytes)
    }

    /// Sets the number of objects.
    pub fn set_object_count(&mut self, count: u64) -> &mut AllocatorDump {
        self.set_scalar(Self::OBJECT_COUNT, Self::OBJECTS, count)
    }

    /// Sets another number, in these units.
    pub fn set_scalar(&mut self, name: &str, units: &str, value: u64) -> &mut AllocatorDump {
        untracked::scope(|| self.set(name, Attribute::Scalar { units: units.to_owned(), value }))
    }

    /// Sets a text. It is left out of dumps in the background.
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

    /// Adds the values that another part of the program gives for the same.
    pub(super) fn add(&mut self, other: AllocatorDump) {
        self.flags &= other.flags;
        other.attributes.into_iter().for_each(|(name, value)| _ = self.set(&name, value));
    }

    /// Returns a number that was set.
    pub fn scalar(&self, name: &str) -> Option<u64> {
        self.attributes.iter().find_map(|(known, attribute)| match attribute {
            Attribute::Scalar { value, .. } if known == name => Some(*value),
            _ => None,
        })
    }

    /// Returns the size, if it was set.
    pub fn size(&self) -> Option<u64> {
        self.scalar(Self::SIZE)
    }
}

/// The statement that one allocator dump is the memory of another, and owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// The owner.
    pub source: Guid,
    /// The dump that is owned.
    pub target: Guid,
    /// The importance of the owner. The most important of several owners bear the cost; those that
    /// are equal share it.
    pub importance: i32,
}
