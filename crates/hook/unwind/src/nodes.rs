//! The nodes of the stack tree, by id. A node is written once and never moved.
//!
//! They lie in segments that are mapped as they are needed, and stay until the tree begins anew.
//! Ids are consecutive, so pages are touched in their order. Lock-free.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use heapledger_core::{NodeKind, StackId, sys};

const SEGMENTS: usize = 1 << 12;
const SEGMENT_NODES: usize = (StackId::MAX.0 as usize + 1) / SEGMENTS;
type Segment = [Slot; SEGMENT_NODES];

static SEGMENT: [AtomicPtr<Segment>; SEGMENTS] = [const { AtomicPtr::new(ptr::null_mut()) }; SEGMENTS];
/// The number of failed attempts to map a segment, and of attempts skipped since.
static REFUSED: AtomicU32 = AtomicU32::new(0);

/// The number of bits of an address; the kind is stored above them.
const ADDRESS_BITS: u32 = 47;

/// A node. Zeroed: not written yet.
#[derive(Debug)]
#[repr(C)]
struct Slot {
    /// The address in 47 bits, and above it the kind. Not 0, because no node has the address 0.
    /// Written last.
    key: AtomicU64,
    /// The parent's [`NodeRef`]: its id in 32 bits, and above it the hash of its path in 32.
    rest: AtomicU64,
}

/// The size of a node in bytes.
pub const NODE_LENGTH: u64 = size_of::<Slot>() as u64;

/// A node as it was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The id of the parent node.
    pub parent: StackId,
    /// The kind: a number of [`NodeKind`].
    pub kind: u8,
    /// The address, whose meaning depends on the kind.
    pub address: u64,
}

impl Node {
    /// True if the node is a frame.
    pub fn is_frame(&self) -> bool {
        self.is(NodeKind::Frame) || self.is(NodeKind::UnprovenFrame)
    }

    /// True if the node is of this kind.
    pub fn is(&self, kind: NodeKind) -> bool {
        self.kind == kind as u8
    }
}

/// A position in the tree: a node, and a hash of its path in the upper half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct NodeRef(u64);

impl NodeRef {
    /// The position of the empty stack.
    pub const ROOT: NodeRef = NodeRef(0x9e37_79b9 << 32);

    /// Returns the position of a node of which only the id is known, for use as a parent: its
    /// children are found again under this position only.
    #[inline(always)]
    pub const fn of(id: StackId) -> NodeRef {
        NodeRef((id.0.wrapping_mul(0x9e37_79b9) as u64) << 32 | id.0 as u64)
    }

    /// Returns the node.
    #[inline(always)]
    pub const fn id(self) -> StackId {
        StackId(self.0 as u32)
    }

    #[inline(always)]
    pub(crate) const fn new(id: u32, path: u64) -> NodeRef {
        NodeRef(path & !0xffff_ffff | id as u64)
    }

    #[inline(always)]
    const fn packed(self) -> u64 {
        self.0
    }

    /// Returns the hash of its path.
    #[inline(always)]
    pub(crate) const fn hash(self) -> u64 {
        self.0 >> 32
    }
}

/// The two words of a node: equal for equal nodes, and for no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    key: u64,
    rest: u64,
}

impl Words {
    /// Returns the words of a child of `parent`.
    #[inline(always)]
    pub(crate) const fn new(parent: NodeRef, kind: NodeKind, address: u64) -> Words {
        Words { key: address | (kind as u64) << ADDRESS_BITS, rest: parent.packed() }
    }

    /// Returns a hash of the path from the root to this node, in the upper half, computed from
    /// `hash`, which is that of the parent's path, and the key.
    #[inline(always)]
    pub(crate) const fn path(self, hash: u64) -> u64 {
        (hash ^ self.key).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Maps the first segment, if it is not mapped yet: [`is`] may be called then. False if there is no
/// memory.
pub(crate) fn initialise() -> bool {
    reserve(StackId::ROOT)
}

/// Empties all nodes.
///
/// # Safety
///
/// No other thread uses nodes, and no id is used again before it was written again.
pub(crate) unsafe fn clear() {
    for (index, segment) in SEGMENT.iter().enumerate() {
        let memory = segment.load(Ordering::Acquire);
        if memory.is_null() {
            continue;
        }
        let (start, length) = (memory.cast::<u8>(), size_of::<Segment>());
        // The first segment is read without a check, and stays.
        if index != 0 {
            segment.store(ptr::null_mut(), Ordering::Release);
            // SAFETY: `unmap` requires memory of `map_private` to which nothing refers: `reserve`
            // has mapped it, and nobody uses nodes by this function's `# Safety`.
            unsafe { sys::unmap(start, length) };
            continue;
        }
        // SAFETY: `discard` requires a private mapping whose content is not needed: `reserve` has
        // mapped it, and nobody uses nodes by this function's `# Safety`.
        if !unsafe { sys::discard(start, length) } {
            // SAFETY: the mapping has this length. The program has locked it, so it is zeroed by
            // hand.
            unsafe { ptr::write_bytes(start, 0, length) };
        }
    }
    REFUSED.store(0, Ordering::Relaxed);
}

/// Makes room for a node; false if there is no memory.
pub(crate) fn reserve(id: StackId) -> bool {
    let (segment, _) = locate(id);
    if !segment.load(Ordering::Acquire).is_null() {
        return true;
    }
    // After a failure the kernel is not asked again each time.
    let refused = REFUSED.load(Ordering::Relaxed);
    if refused & 0xff != 0 {
        REFUSED.store(refused.wrapping_add(1), Ordering::Relaxed);
        return false;
    }
    let Ok(memory) = sys::map_private(size_of::<Segment>()) else {
        REFUSED.fetch_add(1, Ordering::Relaxed);
        return false;
    };
    sys::dont_dump(memory, size_of::<Segment>());
    if segment.compare_exchange(ptr::null_mut(), memory.cast(), Ordering::AcqRel, Ordering::Relaxed).is_err() {
        // SAFETY: `sys::unmap` requires a mapping of `map_private` to which nothing refers: it was
        // made above with this length, and its address was not stored, since the exchange failed.
        unsafe { sys::unmap(memory, size_of::<Segment>()) };
    }
    true
}

/// Writes a node for which there is room, and which has been announced. Once for each id.
pub(crate) fn write(id: StackId, words: Words) {
    if let Some(slot) = slot(id) {
        slot.rest.store(words.rest, Ordering::Relaxed);
        slot.key.store(words.key, Ordering::Release);
    }
}

/// True if the node with this id has these words.
///
/// # Safety
///
/// [`initialise`] has succeeded, and the id is 0, or that of a node whose [`write`] happens before
/// this.
#[inline(always)]
pub(crate) unsafe fn is(id: u32, words: Words) -> bool {
    let (segment, index) = ((id as usize) / SEGMENT_NODES, (id as usize) % SEGMENT_NODES);
    // SAFETY: by the caller's contract the node of the id has been written or is the first; so the
    // id is at most `MAX`, and its segment is one of `SEGMENTS`, mapped before. `clear` alone
    // unmaps segments, when by its contract no thread uses nodes; zeroes are valid atomics.
    let slot = unsafe {
        let segment = SEGMENT.get_unchecked(segment).load(Ordering::Relaxed);
        &*segment.cast::<Slot>().add(index)
    };
    slot.key.load(Ordering::Relaxed) == words.key && slot.rest.load(Ordering::Relaxed) == words.rest
}

/// Returns the node with this id, if there is one.
pub fn get(id: StackId) -> Option<Node> {
    let slot = slot(id)?;
    let key = slot.key.load(Ordering::Acquire);
    let node = Node {
        parent: StackId(slot.rest.load(Ordering::Relaxed) as u32),
        kind: (key >> ADDRESS_BITS) as u8,
        address: key & ((1 << ADDRESS_BITS) - 1),
    };
    (key != 0).then_some(node)
}

/// Returns the hash of the path to a node, as [`Words::path`] computes it; `None` if the node has
/// not been written.
pub(crate) fn path(id: StackId) -> Option<u64> {
    let slot = slot(id)?;
    // Acquire: `rest` was written before.
    let key = slot.key.load(Ordering::Acquire);
    let words = Words { key, rest: slot.rest.load(Ordering::Relaxed) };
    (key != 0).then(|| words.path(words.rest >> 32))
}

fn locate(id: StackId) -> (&'static AtomicPtr<Segment>, usize) {
    let id = (id.0 & StackId::MAX.0) as usize;
    (&SEGMENT[id / SEGMENT_NODES % SEGMENTS], id % SEGMENT_NODES)
}

fn slot(id: StackId) -> Option<&'static Slot> {
    let (segment, index) = locate(id);
    // SAFETY: null, or a mapping of this type, which `clear` alone unmaps, when by its contract no
    // thread uses nodes; zeroes are valid atomics.
    unsafe { segment.load(Ordering::Acquire).as_ref() }?.get(index)
}
