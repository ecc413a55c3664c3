//! The nodes of the stack tree, by id: written once, and never moved.
//!
//! In segments that are mapped as they are needed and stay; ids are consecutive, so pages are
//! touched in their order. Lock-free.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use heapledger_core::{NodeKind, StackId, sys};

use crate::tree::Place;

const SEGMENTS: usize = 1 << 12;
const SEGMENT_NODES: usize = (StackId::MAX.0 as usize + 1) / SEGMENTS;
type Segment = [Slot; SEGMENT_NODES];

static SEGMENT: [AtomicPtr<Segment>; SEGMENTS] = [const { AtomicPtr::new(ptr::null_mut()) }; SEGMENTS];
/// Attempts to map a segment that failed.
static REFUSED: AtomicU32 = AtomicU32::new(0);

/// An address has so many bits; its kind follows.
const ADDRESS_BITS: u32 = 47;

/// Zeroed: no node yet.
#[derive(Debug)]
#[repr(C)]
struct Slot {
    /// Address 47 │ kind. Not 0: no node has the address 0. Written last.
    key: AtomicU64,
    /// The parent's [`Place`]: its id 32 │ the hash of its path 32.
    rest: AtomicU64,
}

/// Bytes of a node here.
pub const NODE_LENGTH: u64 = size_of::<Slot>() as u64;

/// A node as it was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The node that it is under.
    pub parent: StackId,
    /// What it stands for: a number of [`NodeKind`].
    pub kind: u8,
    /// What the kind says.
    pub address: u64,
}

impl Node {
    /// Whether it is of this kind.
    pub fn is(&self, kind: NodeKind) -> bool {
        self.kind == kind as u8
    }
}

/// The two words that make a node what it is: equal for equal nodes, and for no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    key: u64,
    rest: u64,
}

impl Words {
    /// Those of a child of `parent`.
    #[inline(always)]
    pub(crate) const fn new(parent: Place, kind: NodeKind, address: u64) -> Words {
        Words { key: address | (kind as u64) << ADDRESS_BITS, rest: parent.packed() }
    }

    /// A hash of the path from the root to this node, in the upper half: of the parent's, which is
    /// `hash`, and the key.
    #[inline(always)]
    pub(crate) const fn path(self, hash: u64) -> u64 {
        (hash ^ self.key).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Maps the first segment, if it is not there: [`is`] may be asked then. False when there is no
/// memory.
pub(crate) fn initialise() -> bool {
    reserve(StackId::ROOT)
}

/// Makes room for a node; false when there is no memory.
pub(crate) fn reserve(id: StackId) -> bool {
    let (segment, _) = place(id);
    if !segment.load(Ordering::Acquire).is_null() {
        return true;
    }
    // Where there has been no memory it is not asked for each time.
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
        // SAFETY: mapped just now; nobody else has its address.
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
/// [`initialise`] has succeeded, and the id is 0, or one whose [`write`] happens before this.
#[inline(always)]
pub(crate) unsafe fn is(id: u32, words: Words) -> bool {
    let (segment, index) = ((id as usize) / SEGMENT_NODES, (id as usize) % SEGMENT_NODES);
    // SAFETY: by the caller's contract the id's node has been written or is the first; so the id is
    // at most `MAX`, and its segment is one of `SEGMENTS`, mapped before. A segment is never
    // unmapped; zeroes are valid atomics.
    let slot = unsafe {
        let segment = SEGMENT.get_unchecked(segment).load(Ordering::Relaxed);
        &*segment.cast::<Slot>().add(index)
    };
    slot.key.load(Ordering::Relaxed) == words.key && slot.rest.load(Ordering::Relaxed) == words.rest
}

/// The node with this id, if there is one.
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

/// The hash of the path to a node, as [`Words::path`] has it; `None` if the node has not been
/// written.
pub(crate) fn path(id: StackId) -> Option<u64> {
    let slot = slot(id)?;
    // Acquire: the rest was written before.
    let key = slot.key.load(Ordering::Acquire);
    let words = Words { key, rest: slot.rest.load(Ordering::Relaxed) };
    (key != 0).then(|| words.path(words.rest >> 32))
}

fn place(id: StackId) -> (&'static AtomicPtr<Segment>, usize) {
    let id = (id.0 & StackId::MAX.0) as usize;
    (&SEGMENT[id / SEGMENT_NODES % SEGMENTS], id % SEGMENT_NODES)
}

fn slot(id: StackId) -> Option<&'static Slot> {
    let (segment, index) = place(id);
    // SAFETY: null, or a mapping of this type, never unmapped once it is here; zeroes are valid atomics.
    unsafe { segment.load(Ordering::Acquire).as_ref() }?.get(index)
}
