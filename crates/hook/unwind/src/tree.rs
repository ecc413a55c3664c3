//! The stack tree's interning table: (parent, address) → node id; shared by all threads, lock-free.
//!
//! Each frame carries a hash of the whole path from the root, so the table loads of a stack's new frames do not depend
//! on each other; parent and address are compared after, so a hit is exact. A slot is two words:
//!
//! ```text
//! address 47 │ hash 17        parent 26 │ 1 │ hash 5     id 26 │ 1 │ hash 5
//! ```
//!
//! where the parts of the hash are of its lower bits, as many as the largest table needs.
//!
//! The first word is claimed by compare-and-swap, then the node is announced, then the second word is stored. Whoever
//! meets a claimed slot without its second word passes on, and may make the same node again under another id: harmless,
//! readers merge. The same goes for insertions that the table's growth overtakes. So nothing here ever waits.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use heapledger_core::context::Name;
use heapledger_core::lock::Lock;
use heapledger_core::{NodeKind, StackId, sandbox, sys};

use crate::Sink;

const SLOTS_MIN: usize = 1 << 11;
/// Bits of a path's hash that a slot's first word holds.
const KEY_HASH_BITS: u32 = 17;
/// The largest table: twice as many slots as there can be ids.
const SLOTS_MAX: u64 = 1 << 27;

#[derive(Debug)]
#[repr(C)]
struct Slot {
    key: AtomicU64,
    value: AtomicU64,
}

/// A table; the slots follow in the same mapping.
#[derive(Debug)]
#[repr(C, align(16))]
struct Table {
    mask: u64,
    length: usize,
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());
static NEXT_ID: AtomicU32 = AtomicU32::new(1);
static GROWING: Lock = Lock::new();
static BYTES: AtomicU64 = AtomicU64::new(0);

/// A place in the tree: a node and the hash of its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Place {
    /// The node.
    pub id: StackId,
    /// Of the path from the root.
    pub hash: u32,
}

impl Place {
    /// The empty stack.
    pub const ROOT: Place = Place { id: StackId::ROOT, hash: 0x9e37_79b9 };

    /// A node whose place is not at hand, as a parent: its children are found under it again, and nowhere else.
    #[inline(always)]
    pub const fn of(id: StackId) -> Place {
        Place { id, hash: id.0.wrapping_mul(0x9e37_79b9) }
    }
}

/// Maps the first table. Idempotent; false when there is no memory.
pub fn initialise() -> bool {
    if TABLE.load(Ordering::Acquire).is_null() {
        let _growing = GROWING.lock();
        if TABLE.load(Ordering::Acquire).is_null() {
            let Some(table) = Table::map(SLOTS_MIN) else { return false };
            TABLE.store(table, Ordering::Release);
        }
    }
    true
}

/// The first id that has not been given out: where a forked child's own nodes begin.
pub fn next_id() -> StackId {
    StackId(NEXT_ID.load(Ordering::Relaxed).min(StackId::PROGRAM_END.0))
}

/// Bytes mapped for tables so far.
pub fn bytes_mapped() -> u64 {
    BYTES.load(Ordering::Relaxed)
}

/// After a fork: the thread that was growing the table, if any, is not in this process.
///
/// # Safety
///
/// This process has one thread.
pub unsafe fn forget_grower() {
    // SAFETY: with one thread nobody holds the lock or a reference to it; a free lock is all zeroes.
    unsafe { ptr::from_ref(&GROWING).cast_mut().write_volatile(Lock::new()) };
}

/// The root of the stacks of a module epoch.
pub fn root(epoch: u32, sink: &mut dyn Sink) -> Place {
    if epoch == 0 { Place::ROOT } else { child(Place::ROOT, NodeKind::Epoch, u64::from(epoch), sink) }
}

/// The child of `parent` for `address`: looked up, or made and announced.
///
/// When the tree is full the parent itself is returned: the stack loses its inner frames, not its outer ones. The same
/// where the node could not be announced.
pub fn child(parent: Place, kind: NodeKind, address: u64, sink: &mut dyn Sink) -> Place {
    View::now().map_or(parent, |mut view| view.child(parent, kind, address, sink))
}

/// The table as it is now, for several look-ups.
#[derive(Debug)]
pub struct View(&'static Table);

impl View {
    /// The current table, once there is one.
    #[inline(always)]
    pub fn now() -> Option<View> {
        // SAFETY: null, or a table: these are never unmapped.
        unsafe { TABLE.load(Ordering::Acquire).as_ref() }.map(View)
    }

    /// See [`child`]. An address has 47 bits.
    #[inline(always)]
    pub fn child(&mut self, parent: Place, kind: NodeKind, address: u64, sink: &mut dyn Sink) -> Place {
        let hash = mix(parent.hash, address ^ (kind as u64) << 47);
        let (key, parent_half) = (key(address, hash), half(parent.id));
        let first = u64::from(hash);
        // Most are in the first slot; the rest of the search is out of line.
        for index in first..first + 2 {
            let slot = self.0.slot(index);
            if slot.key.load(Ordering::Acquire) == key {
                let value = slot.value.load(Ordering::Relaxed);
                if value as u32 & HALF_MASK == parent_half {
                    return Place { id: id_of((value >> 32) as u32), hash };
                }
            }
        }
        let place = insert(parent, kind, address, hash, sink);
        if let Some(now) = View::now() {
            *self = now;
        }
        place
    }
}

/// An id as halves of a slot's second word have it; never 0, as the word is before it is written.
#[inline(always)]
const fn half(id: StackId) -> u32 {
    id.0 | 1 << 26
}

const HALF_MASK: u32 = (1 << 27) - 1;

#[inline(always)]
const fn id_of(half: u32) -> StackId {
    StackId(half & StackId::MAX.0)
}

#[inline(always)]
fn mix(parent: u32, address: u64) -> u32 {
    ((u64::from(parent).rotate_left(26) ^ address).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}

/// Never 0 for a real frame: address 0 is no code.
#[inline(always)]
const fn key(address: u64, hash: u32) -> u64 {
    address | (hash as u64) << 47
}

/// The second word: parent, id, and the bits of the hash that are not in the key.
const fn value(parent: StackId, id: StackId, hash: u32) -> u64 {
    let rest = (hash >> KEY_HASH_BITS) & 0x3ff;
    let parent = half(parent) | (rest & 31) << 27;
    let id = half(id) | rest >> 5 << 27;
    parent as u64 | (id as u64) << 32
}

/// The hash of a slot's path, as far as tables need it.
const fn hash_of(key: u64, value: u64) -> u64 {
    key >> 47 | (value >> 27 & 31) << KEY_HASH_BITS | value >> 59 << (KEY_HASH_BITS + 5)
}

#[cold]
#[inline(never)]
fn insert(parent: Place, kind: NodeKind, address: u64, hash: u32, sink: &mut dyn Sink) -> Place {
    let table = TABLE.load(Ordering::Acquire);
    if table.is_null() || NEXT_ID.load(Ordering::Relaxed) >= StackId::PROGRAM_END.0 {
        return parent;
    }
    // SAFETY: tables are never unmapped.
    let table = unsafe { &*table };
    // In a sandbox it cannot grow.
    if sandbox::is_entered() && u64::from(NEXT_ID.load(Ordering::Relaxed)) > table.mask / 8 * 7 {
        return parent;
    }
    let key = key(address, hash);
    let first = u64::from(hash);
    let mut claimed = None;
    for index in first..=first + table.mask {
        let slot = table.slot(index);
        let mut found = slot.key.load(Ordering::Acquire);
        if found == 0 {
            match slot.key.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    claimed = Some(slot);
                    break;
                }
                Err(other) => found = other,
            }
        }
        if found == key {
            let value = slot.value.load(Ordering::Acquire);
            if value as u32 & HALF_MASK == half(parent.id) {
                return Place { id: id_of((value >> 32) as u32), hash };
            }
        }
    }
    let number = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    if number >= StackId::PROGRAM_END.0 {
        NEXT_ID.store(StackId::PROGRAM_END.0, Ordering::Relaxed);
        return parent;
    }
    let id = StackId(number);
    if kind.has_text() {
        announce(address, sink);
    }
    if !sink.node(id, parent.id, kind, address) {
        // The slot stays without its second word: nobody else takes the id for a node.
        return parent;
    }
    if let Some(slot) = claimed {
        slot.value.store(value(parent.id, id, hash), Ordering::Release);
    }
    if u64::from(number) > table.mask / 2 {
        grow(table);
    }
    Place { id, hash }
}

/// Tells of the name at an address, and of its category's before.
#[cold]
fn announce(address: u64, sink: &mut dyn Sink) {
    // SAFETY: nodes of these kinds have the address of a static name (`NodeKind`), which they were given as a pointer.
    let Some(name) = (unsafe { ptr::with_exposed_provenance::<Name>(address as usize).as_ref() }) else { return };
    // SAFETY: null or static, by the contract of `Name`.
    if let Some(category) = unsafe { name.category.as_ref() } {
        sink.text(&category.name);
    }
    sink.text(name);
}

/// Makes a table four times as large. Old tables stay mapped, since readers may be in them: a third of the newest.
#[cold]
fn grow(old: &Table) {
    let Some(_growing) = GROWING.try_lock() else { return };
    if !ptr::eq(TABLE.load(Ordering::Acquire), old) || old.mask >= SLOTS_MAX - 1 {
        return;
    }
    let Some(new) = Table::map((old.mask as usize + 1) * 4) else { return };
    // SAFETY: just mapped, never unmapped.
    let table = unsafe { &*new };
    for index in 0..=old.mask {
        let slot = old.slot(index);
        let (key, value) = (slot.key.load(Ordering::Acquire), slot.value.load(Ordering::Acquire));
        if value == 0 {
            continue;
        }
        let mut index = hash_of(key, value);
        while table.slot(index).key.load(Ordering::Relaxed) != 0 {
            index += 1;
        }
        table.slot(index).key.store(key, Ordering::Relaxed);
        table.slot(index).value.store(value, Ordering::Relaxed);
    }
    TABLE.store(new, Ordering::Release);
}

impl Table {
    fn map(slots: usize) -> Option<*mut Table> {
        let length = size_of::<Table>() + slots * size_of::<Slot>();
        let table = sys::map_private(length).ok()?.cast::<Table>();
        sys::dont_dump(table.cast(), length);
        // SAFETY: freshly mapped, page-aligned, larger than a `Table`, seen by nobody else yet.
        unsafe { table.write(Table { mask: slots as u64 - 1, length }) };
        BYTES.fetch_add(length as u64, Ordering::Relaxed);
        Some(table)
    }

    #[inline(always)]
    fn slot(&self, index: u64) -> &Slot {
        let slots = ptr::from_ref(self).wrapping_add(1).cast::<Slot>();
        // SAFETY: `mask + 1` slots follow the header in the same mapping (`map`), zeroed, which is valid for atomics.
        unsafe { &*slots.wrapping_add((index & self.mask) as usize) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;
    use std::vec::Vec;

    use super::*;
    use crate::modules::Module;

    /// Keeps what was announced.
    #[derive(Default)]
    struct Announced(Vec<(u32, u32, u64)>);

    impl Sink for Announced {
        fn node(&mut self, id: StackId, parent: StackId, _: NodeKind, address: u64) -> bool {
            self.0.push((id.0, parent.0, address));
            true
        }

        fn module(&mut self, _: &Module<'_>) -> bool {
            true
        }
    }

    /// As it is while the recorder stands still: the node is announced to the next who needs it.
    #[test]
    fn a_node_that_could_not_be_announced_has_not_been_seen() {
        struct Refusing;
        impl Sink for Refusing {
            fn node(&mut self, _: StackId, _: StackId, _: NodeKind, _: u64) -> bool {
                false
            }

            fn module(&mut self, _: &Module<'_>) -> bool {
                false
            }
        }
        const ADDRESS: u64 = 0x7fff_1234_5678;
        assert!(initialise());
        assert_eq!(child(Place::ROOT, NodeKind::Frame, ADDRESS, &mut Refusing), Place::ROOT);
        let mut announced = Announced::default();
        let place = child(Place::ROOT, NodeKind::Frame, ADDRESS, &mut announced);
        assert_eq!(announced.0, [(place.id.0, 0, ADDRESS)]);
        assert_eq!(child(Place::ROOT, NodeKind::Frame, ADDRESS, &mut Refusing), place);
    }

    /// Paths from the root, interned by several threads at once, through several growths: every id given out leads back
    /// to its own path, and no thread sees an id that was not announced before.
    #[test]
    fn ids_lead_back_to_their_paths() {
        const THREADS: u64 = 4;
        const PATHS: u64 = if cfg!(miri) { 50 } else { 20_000 };
        assert!(initialise());
        let all = Mutex::new((Announced::default(), Vec::new()));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let all = &all;
                scope.spawn(move || {
                    let (mut announced, mut given) = (Announced::default(), Vec::new());
                    for number in 0..PATHS {
                        // Half of the paths are shared by all threads.
                        let salt = if number % 2 == 0 { 0 } else { thread + 1 };
                        let path: Vec<u64> = (0..6_u64)
                            .map(|depth| 4096 + (number >> (10 - 2 * depth.min(5))) * 64 + salt * 7 + depth)
                            .collect();
                        let leaf = path
                            .iter()
                            .fold(Place::ROOT, |at, &address| child(at, NodeKind::Frame, address, &mut announced));
                        given.push((leaf.id.0, path));
                    }
                    let mut all = all.lock().unwrap();
                    all.0.0.extend(announced.0);
                    all.1.extend(given);
                });
            }
        });
        let (announced, given) = all.into_inner().unwrap();
        let nodes: HashMap<u32, (u32, u64)> =
            announced.0.iter().map(|&(id, parent, address)| (id, (parent, address))).collect();
        assert_eq!(nodes.len(), announced.0.len(), "an id was given twice");
        for (mut id, path) in given {
            let mut back = Vec::new();
            while id != 0 {
                let (parent, address) = nodes[&id];
                back.push(address);
                id = parent;
            }
            back.reverse();
            assert_eq!(back, path);
        }
    }
}
