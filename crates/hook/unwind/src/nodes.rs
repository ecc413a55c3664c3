//! The nodes of the stack tree as they were announced, kept in the process: for whoever reads stacks back.
//!
//! By id, in segments that are mapped as they are needed and stay. Lock-free.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use heapledger_core::{NodeKind, StackId, sys};

const SEGMENTS: usize = 1024;
const SEGMENT_NODES: usize = (StackId::MAX.0 as usize + 1) / SEGMENTS;
type Segment = [Slot; SEGMENT_NODES];

static SEGMENT: [AtomicPtr<Segment>; SEGMENTS] = [const { AtomicPtr::new(ptr::null_mut()) }; SEGMENTS];
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Zeroed: not announced yet.
#[repr(C)]
struct Slot {
    address: AtomicU64,
    /// Parent 32 │ kind 8 │ … │ 1 at the top.
    rest: AtomicU64,
}

/// A node as it was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it is under.
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

/// Keeps a node. Without memory it stays unknown.
#[cold]
#[inline(never)]
pub fn note(id: StackId, parent: StackId, kind: NodeKind, address: u64) {
    let (segment, _) = place(id);
    if segment.load(Ordering::Acquire).is_null() {
        let Ok(memory) = sys::map_private(size_of::<Segment>()) else { return };
        sys::dont_dump(memory, size_of::<Segment>());
        if segment.compare_exchange(ptr::null_mut(), memory.cast(), Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // SAFETY: mapped just now; nobody else has its address.
            unsafe { sys::unmap(memory, size_of::<Segment>()) };
        } else {
            BYTES.fetch_add(size_of::<Segment>() as u64, Ordering::Relaxed);
        }
    }
    if let Some(slot) = slot(id) {
        slot.address.store(address, Ordering::Relaxed);
        slot.rest.store(u64::from(parent.0) | (kind as u64) << 32 | 1 << 63, Ordering::Release);
    }
}

/// The node with this id, if it has been kept.
pub fn get(id: StackId) -> Option<Node> {
    let slot = slot(id)?;
    let rest = slot.rest.load(Ordering::Acquire);
    let node =
        Node { parent: StackId(rest as u32), kind: (rest >> 32) as u8, address: slot.address.load(Ordering::Relaxed) };
    (rest != 0).then_some(node)
}

/// Bytes mapped so far.
pub fn bytes_mapped() -> u64 {
    BYTES.load(Ordering::Relaxed)
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
