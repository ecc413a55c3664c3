//! Typed ids and amounts.

use core::fmt::{self, Write};

macro_rules! newtype {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $name(pub $inner);
    };
}

newtype! {
    /// An amount of memory in bytes. Requested bytes, unless a name says usable.
    Bytes(u64)
}
newtype! {
    /// A number of blocks, or of calls that returned a block.
    Blocks(u64)
}
newtype! {
    /// A node of one process image's stack tree: the innermost frame of a stack, and through its
    /// parents the whole stack. Only meaningful together with its image. 26 bits on the wire.
    StackId(u32)
}
newtype! {
    /// A thread of one process image, numbered from 0 in the order of its first allocator call.
    ThreadId(u32)
}
newtype! {
    /// A type declared for blocks, numbered by its declarer. 0 if none was declared.
    TypeId(u32)
}
newtype! {
    /// The ordinal of an allocation in its process image, from 0: it identifies a block in a
    /// recording, where addresses are not kept. The result of a reallocation has a serial of its
    /// own. 37 bits.
    Serial(u64)
}

impl core::ops::Add for Bytes {
    type Output = Bytes;

    #[inline(always)]
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl core::ops::AddAssign for Bytes {
    #[inline(always)]
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl core::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(all: I) -> Bytes {
        all.fold(Bytes(0), |sum, bytes| sum + bytes)
    }
}

/// `17 B`, `1.5 KiB`, `412.6 MiB`. Width, fill and alignment are those of the format.
impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let mut text = Amount { bytes: [0; AMOUNT_BYTES_MAX], length: 0 };
        if self.0 < 1024 {
            write!(text, "{} B", self.0)?;
        } else {
            let (mut value, mut unit) = (self.0 as f64 / 1024.0, UNITS[0]);
            for larger in &UNITS[1..] {
                // Values that would be shown as 1024.0 are 1.0 of the next unit.
                if value < 1023.95 {
                    break;
                }
                (value, unit) = (value / 1024.0, larger);
            }
            write!(text, "{value:.1} {unit}")?;
        }
        out.pad(text.as_str())
    }
}

/// The length of `1023.9 KiB`.
const AMOUNT_BYTES_MAX: usize = 10;

/// A text without allocation, because amounts may be printed in hooks.
struct Amount {
    bytes: [u8; AMOUNT_BYTES_MAX],
    length: usize,
}

impl Amount {
    fn as_str(&self) -> &str {
        self.bytes.get(..self.length).and_then(|text| core::str::from_utf8(text).ok()).unwrap_or_default()
    }
}

impl Write for Amount {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

impl StackId {
    /// The empty stack: root of the tree, and the stack of blocks whose stack could not be taken.
    pub const ROOT: StackId = StackId(0);
    /// The largest id: ids have 26 bits on the wire.
    pub const MAX: StackId = StackId((1 << 26) - 1);
    /// The end of the ids that programs give the nodes of their trees; ids from here on are the
    /// collector's own, given out from [`StackId::MAX`] downwards.
    pub const PROGRAM_END: StackId = StackId(3 << 24);

    /// Returns this stack, or the empty one if the id is too large.
    #[inline(always)]
    pub const fn or_root(self) -> StackId {
        if self.0 <= StackId::MAX.0 { self } else { StackId::ROOT }
    }
}

impl TypeId {
    /// No type was declared.
    pub const NONE: TypeId = TypeId(0);
}

impl NodeKind {
    /// Returns the kind of this number; `None` if this version does not know it.
    pub const fn from_number(number: u8) -> Option<NodeKind> {
        Some(match number {
            0 => NodeKind::Frame,
            1 => NodeKind::Epoch,
            2 => NodeKind::Truncated,
            4 => NodeKind::Scope,
            5 => NodeKind::Value,
            6 => NodeKind::Context,
            7 => NodeKind::Heap,
            8 => NodeKind::Stamp,
            9 => NodeKind::UnprovenFrame,
            _ => return None,
        })
    }

    /// True if the node's address is that of a [`Name`](crate::context::Name), whose text is sent
    /// before the node.
    pub const fn has_text(self) -> bool {
        matches!(self, NodeKind::Scope | NodeKind::Value | NodeKind::Heap)
    }
}

/// The path of the memory that holds code which belongs to no module, in place of a module's.
pub const GENERATED_CODE: &[u8] = b"[jit]";

/// The kind of a node of a stack tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NodeKind {
    /// A frame; the node's address is the one to look up: the return address less one for callers.
    Frame = 0,
    /// The root of the stacks of a module epoch; the address is the epoch's number.
    Epoch = 1,
    /// A placeholder for outer frames that were cut off.
    Truncated = 2,
    /// A scope of a context; the address is that of its [`Name`](crate::context::Name). Paths of
    /// scopes are separate from the stacks: they begin at the root, or at that of an epoch, and
    /// contain no frames.
    Scope = 4,
    /// The value of the scope that is its parent; the address is that of the text, a
    /// [`Name`](crate::context::Name).
    Value = 5,
    /// A stack within a context: the parent is the stack's innermost frame, the address is the id
    /// of the context's innermost node. A leaf, except for children of kind [`NodeKind::Heap`].
    Context = 6,
    /// A stack that allocates in a user's heap: the parent is the stack, or its
    /// [`NodeKind::Context`]; the address is that of the heap's [`Name`](crate::context::Name). A
    /// leaf, except for children of kind [`NodeKind::Stamp`].
    Heap = 7,
    /// Blocks of the parent stack that the program declares to be of one type. Programs do not
    /// announce such nodes: the collector makes them from [stamps](crate::stamp). Always a leaf.
    Stamp = 8,
    /// A frame in code without unwind information, as [`NodeKind::Frame`] otherwise: its caller was
    /// found by its frame pointer. Nothing proves that it had one, nor that the frames outside of
    /// this one are right.
    UnprovenFrame = 9,
}

#[cfg(test)]
mod tests;
