//! Interns the stack tree: (parent, address) → node id; shared by all threads, lock-free.
//!
//! The nodes themselves are in an array by id ([`nodes`]), where they stay. They are found through
//! a hash table with open addressing and linear probing, whose entries are ids, in 4 bytes together
//! with a tag from the hash, so that other nodes are skipped without being read. Each frame carries
//! a hash of the whole path from the root, so the look-ups of a stack's new frames do not depend on
//! each other. The node that an entry leads to is compared as a whole, so a hit is exact.
//!
//! A node is announced, then written, then entered in the table. A thread that looks it up
//! meanwhile does not wait: it makes the same node again under another id. That is harmless,
//! because readers merge equal nodes. Entries that are missed because the table is being replaced
//! by one twice as large are harmless too: the memory of the old table is given back at once, and
//! its address space reads as zeroes, that is, as empty, for threads that still read it. If the
//! thread that makes the larger table gets no processor, and others fill the table, their nodes
//! have no entries until the larger one exists.
//!
//! The table is between three sixteenths and three eighths full, so a node takes 27 to 38 bytes,
//! and at most 48 while the table is copied. At a [limit], or without memory, the tree stops
//! growing: a stack then ends at the innermost frame that has a node.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use heapledger_core::context::Name;
use heapledger_core::lock::Lock;
use heapledger_core::{NodeKind, StackId, sys};

use crate::nodes::{self, NODE_LENGTH, Words};
use crate::{PAGE, Sink};

pub use crate::nodes::NodeRef;

const SLOTS_MIN: u64 = 1 << 11;
/// The number of nodes that may be made without an entry while a larger table is made: 16 MiB of
/// nodes.
const UNENTERED_MAX: u64 = 1 << 20;

/// A table; its entries follow in the same mapping. All of it reads as zeroes once a larger one has
/// replaced it.
#[derive(Debug)]
#[repr(C)]
struct Table {
    /// The number of entries, a power of two, less one.
    mask: AtomicU64,
}

/// The size of a table without its entries, in bytes.
const HEADER_LENGTH: u64 = size_of::<Table>() as u64;

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());
static NEXT_ID: AtomicU32 = AtomicU32::new(1);
static GROWING: Lock = Lock::new();
/// The first id of this process's own nodes: those below are its parent's, from before a fork.
static FIRST_ID: AtomicU32 = AtomicU32::new(0);
/// True while the table is the parent's.
static IS_INHERITED: AtomicBool = AtomicBool::new(false);
/// The number of failed attempts to map a larger table, and of attempts skipped since.
static REFUSED: AtomicU32 = AtomicU32::new(0);
/// The maximum number of bytes that the tree may take.
static LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);

/// An entry of the table: the node's id, and above it a tag, the uppermost bits of the hash of its
/// path. 0 if it is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry(u32);

impl Entry {
    const fn new(id: StackId, path: u64) -> Entry {
        Entry((path >> 32) as u32 & !StackId::MAX.0 | id.0)
    }

    const fn id(self) -> u32 {
        self.0 & StackId::MAX.0
    }

    /// True if the tag is that of this path, which rules out 63 of 64 other nodes.
    #[inline(always)]
    const fn may_be(self, path: u64) -> bool {
        (self.0 ^ (path >> 32) as u32) <= StackId::MAX.0
    }
}

/// Maps the first table. Idempotent; false if there is no memory.
pub fn initialise() -> bool {
    if TABLE.load(Ordering::Acquire).is_null() {
        let _growing = GROWING.lock();
        if TABLE.load(Ordering::Acquire).is_null() {
            let Some(table) = Table::map(SLOTS_MIN).filter(|_| nodes::initialise()) else { return false };
            TABLE.store(ptr::from_ref(table).cast_mut(), Ordering::Release);
        }
    }
    true
}

/// Returns the first id that has not been given out, from which a forked child numbers its own
/// nodes.
pub fn next_id() -> StackId {
    StackId(NEXT_ID.load(Ordering::Relaxed).min(StackId::PROGRAM_END.0))
}

/// Returns the number of bytes of memory that the tree takes in this process. Memory that is shared
/// with the parent since a fork counts as the parent's.
pub fn bytes() -> u64 {
    View::now().map_or(0, |View(table)| bytes_with(next_id().0, table.slots()))
}

fn bytes_with(next: u32, slots: u64) -> u64 {
    let first = FIRST_ID.load(Ordering::Relaxed);
    let (from, to) = (u64::from(first) * NODE_LENGTH / PAGE, (u64::from(next) * NODE_LENGTH).div_ceil(PAGE));
    let table = Table::length(slots);
    // Each new entry in an inherited table copies at most one page.
    let copied = u64::from(next.saturating_sub(first)) * PAGE;
    (to - from.min(to)) * PAGE + if IS_INHERITED.load(Ordering::Relaxed) { table.min(copied) } else { table }
}

/// Sets the maximum number of bytes that the tree may take from now on; new frames beyond are left
/// out. An existing table stays.
pub fn limit(bytes: u64) {
    LIMIT.store(bytes, Ordering::Relaxed);
}

/// Makes room for so many more nodes, as far as there is memory: later none can be mapped. Memory
/// that is not used is not touched.
pub fn prepare(more: u32) {
    let from = next_id().0;
    let to = from.saturating_add(more).min(StackId::PROGRAM_END.0 - 1);
    // A segment is longer than that.
    let has_nodes = (from..=to).step_by(1 << 10).all(|id| nodes::reserve(StackId(id)));
    while has_nodes && let Some(View(table)) = View::now() {
        if !is_crowded(to, table) || grow(table) != Growth::Done {
            return;
        }
    }
}

/// Adapts to a forked child: the thread that was growing the table, if any, is not in this process,
/// and all existing nodes are the parent's.
///
/// # Safety
///
/// This process has one thread.
pub unsafe fn start_child() {
    // SAFETY: the process has one thread, by the caller's contract, so nobody holds the lock or a
    // reference to it; a free lock is all zeroes.
    unsafe { ptr::from_ref(&GROWING).cast_mut().write_volatile(Lock::new()) };
    FIRST_ID.store(next_id().0, Ordering::Relaxed);
    IS_INHERITED.store(true, Ordering::Relaxed);
}

/// Empties the tree, for another reader: ids begin anew. Remembered nodes mean nothing any more, so
/// call [`modules::advance_epoch`](crate::modules::advance_epoch) as well. False if there is no
/// memory.
///
/// # Safety
///
/// No other thread uses the tree.
pub unsafe fn restart() -> bool {
    // SAFETY: the caller's contract; a lock that a jump has left held is made anew.
    unsafe { ptr::from_ref(&GROWING).cast_mut().write_volatile(Lock::new()) };
    let Some(new) = Table::map(SLOTS_MIN) else { return false };
    let old = TABLE.swap(ptr::from_ref(new).cast_mut(), Ordering::AcqRel);
    // SAFETY: null, or a table, which stays mapped until here.
    if let Some(table) = unsafe { old.as_ref() } {
        let length = Table::length(table.slots()) as usize;
        // SAFETY: `unmap` requires memory of `map_private` to which nothing refers: `Table::map`
        // has made it, and nobody uses the tree by this function's `# Safety`.
        unsafe { sys::unmap(old.cast(), length) };
    }
    // SAFETY: `clear` requires that nobody uses nodes: this function's `# Safety` says so.
    unsafe { nodes::clear() };
    NEXT_ID.store(1, Ordering::Relaxed);
    FIRST_ID.store(0, Ordering::Relaxed);
    IS_INHERITED.store(false, Ordering::Relaxed);
    REFUSED.store(0, Ordering::Relaxed);
    LIMIT.store(u64::MAX, Ordering::Relaxed);
    true
}

/// Returns the root of the stacks of a module epoch.
pub fn root(epoch: u32, sink: &mut dyn Sink) -> NodeRef {
    if epoch == 0 { NodeRef::ROOT } else { child(NodeRef::ROOT, NodeKind::Epoch, u64::from(epoch), sink) }
}

/// Returns the child of `parent` for `address`: looked up, or made and announced.
///
/// If the tree is full, or the node could not be announced, returns the parent itself: the stack
/// loses its inner frames, not its outer ones.
pub fn child(parent: NodeRef, kind: NodeKind, address: u64, sink: &mut dyn Sink) -> NodeRef {
    View::now().map_or(parent, |mut view| view.child(parent, parent.hash(), kind, address, sink).0)
}

/// The table as it is now, for several look-ups: those of one stack, from the outside.
#[derive(Clone, Copy, Debug)]
pub struct View(&'static Table);

/// A table with a single, empty entry.
#[repr(C)]
struct Empty {
    table: Table,
    entry: AtomicU32,
}
static EMPTY: Empty = Empty { table: Table { mask: AtomicU64::new(0) }, entry: AtomicU32::new(0) };

impl View {
    /// Returns the current table, once there is one.
    #[inline(always)]
    pub fn now() -> Option<View> {
        // SAFETY: `as_ref` requires null or a live `Table`: `TABLE` is null until `initialise`, and
        // then has a table of `Table::map`, which consists of atomics, and is unmapped by `restart`
        // only: by its contract no thread uses the tree then.
        unsafe { TABLE.load(Ordering::Acquire).as_ref() }.map(View)
    }

    /// Returns the child, as [`child`] does. Once it has returned a parent, all further calls do:
    /// see [`View::is_full`]. An address has 47 bits.
    ///
    /// `hash` is the parent's, and the child's is returned. Taken from a place, it would not be
    /// known before the id, so the loads for one frame would have to wait for those for the frame
    /// before.
    #[inline(always)]
    pub(crate) fn child(
        &mut self,
        parent: NodeRef,
        hash: u64,
        kind: NodeKind,
        address: u64,
        sink: &mut dyn Sink,
    ) -> (NodeRef, u64) {
        let words = Words::new(parent, kind, address);
        let path = words.path(hash);
        let first = path >> 32;
        // Most nodes are in the first entry or the one after it; the rest of the search is out of
        // line.
        for index in first..first + 2 {
            let entry = Entry(self.0.entry(index).load(Ordering::Acquire));
            // SAFETY: a table is published after the first segment of nodes has been mapped, and
            // entries are 0 or were stored, with release, after the nodes with their ids had been
            // written.
            if entry.may_be(path) && unsafe { nodes::is(entry.id(), words) } {
                return (NodeRef::new(entry.id(), path), first);
            }
        }
        let (node, view) = self.insert(parent, kind, address, sink);
        *self = view;
        (node, node.hash())
    }

    /// True if a child was not found and could not be made.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        ptr::eq(self.0, &EMPTY.table)
    }

    /// Returns the view after the insertion, too: both results are in registers.
    #[cold]
    #[inline(never)]
    fn insert(self, parent: NodeRef, kind: NodeKind, address: u64, sink: &mut dyn Sink) -> (NodeRef, View) {
        let made = if self.is_full() { None } else { insert(parent, kind, address, sink) };
        let view = View::now().filter(|_| made.is_some()).unwrap_or(View(&EMPTY.table));
        (made.unwrap_or(parent), view)
    }
}

impl Table {
    /// Maps a table, and leaves it to the caller.
    fn map(slots: u64) -> Option<&'static Table> {
        let length = Table::length(slots) as usize;
        let table = sys::map_private(length).ok()?.cast::<Table>();
        sys::dont_dump(table.cast(), length);
        // SAFETY: freshly mapped, page-aligned, larger than a `Table`, and unmapped by `restart`
        // only, when by its contract nobody uses it; zeroes are valid.
        let table = unsafe { &*table };
        table.mask.store(slots - 1, Ordering::Relaxed);
        Some(table)
    }

    /// Returns the size in bytes of a table with this number of entries: whole pages.
    fn length(slots: u64) -> u64 {
        (HEADER_LENGTH + slots * size_of::<AtomicU32>() as u64).next_multiple_of(PAGE)
    }

    /// True if no other table has replaced it.
    fn is_current(&self) -> bool {
        ptr::eq(TABLE.load(Ordering::Acquire), self)
    }

    /// Returns the number of entries; 1 for a table that has been given back.
    fn slots(&self) -> u64 {
        self.mask.load(Ordering::Relaxed) + 1
    }

    #[inline(always)]
    fn entry(&self, index: u64) -> &AtomicU32 {
        let entries = ptr::from_ref(self).wrapping_add(1).cast::<AtomicU32>();
        // SAFETY: `mask + 1` entries follow the header in the same memory (`map`, `Empty`), and
        // stay mapped; zeroes are valid atomics. A mask that reads as zero is that of one entry.
        unsafe { &*entries.wrapping_add((index & self.mask.load(Ordering::Relaxed)) as usize) }
    }

    /// Enters a node, from this entry on. If the table is full or was replaced, the node will not
    /// be found.
    fn enter(&self, from: u64, entry: Entry) {
        for index in from..from + self.slots() {
            let entered = self.entry(index).compare_exchange(0, entry.0, Ordering::Release, Ordering::Relaxed);
            if entered.is_ok() {
                return;
            }
        }
    }
}

/// True if there is memory for one more node.
fn has_memory(next: u32, table: &Table) -> bool {
    let fits = bytes_with(next.saturating_add(1), table.slots()) <= LIMIT.load(Ordering::Relaxed);
    next < StackId::PROGRAM_END.0 && fits && nodes::reserve(StackId(next))
}

/// True if a table is so full that it is too slow.
fn is_crowded(next: u32, table: &Table) -> bool {
    u64::from(next) >= table.slots() / 4 * 3
}

#[cold]
#[inline(never)]
fn insert(parent: NodeRef, kind: NodeKind, address: u64, sink: &mut dyn Sink) -> Option<NodeRef> {
    insert_from(View::now()?, parent, kind, address, sink)
}

fn insert_from(mut view: View, parent: NodeRef, kind: NodeKind, address: u64, sink: &mut dyn Sink) -> Option<NodeRef> {
    loop {
        match attempt(view, parent, kind, address, sink) {
            Insertion::Made(node) => return Some(node),
            Insertion::Unannounced => return None,
            Insertion::Replaced => view = View::now()?,
            Insertion::NoRoom => {
                sink.folded();
                return None;
            }
        }
    }
}

/// The outcome of an attempt to find a node or to make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Insertion {
    Made(NodeRef),
    /// Another table has replaced this one, which had no room.
    Replaced,
    /// There is no room for a node.
    NoRoom,
    /// The node could not be announced.
    Unannounced,
}

fn attempt(View(table): View, parent: NodeRef, kind: NodeKind, address: u64, sink: &mut dyn Sink) -> Insertion {
    let words = Words::new(parent, kind, address);
    let path = words.path(parent.hash());
    let first = path >> 32;
    let mut empty = None;
    for index in first..first + table.slots() {
        let entry = Entry(table.entry(index).load(Ordering::Acquire));
        if entry == Entry(0) {
            empty = Some(index);
            break;
        }
        // SAFETY: `nodes::is` requires the first segment, and the id 0 or one that was written: a
        // table is published after the first segment has been mapped. Entries are 0, or were
        // stored, with release, after their nodes.
        if entry.may_be(path) && unsafe { nodes::is(entry.id(), words) } {
            return Insertion::Made(NodeRef::new(entry.id(), path));
        }
    }
    let next = NEXT_ID.load(Ordering::Relaxed);
    if !has_memory(next, table) {
        return Insertion::NoRoom;
    }
    if is_crowded(next, table) {
        match grow(table) {
            Growth::Done => return Insertion::Replaced,
            // The thread that copies the table may get no processor for some time. Until then new
            // nodes have no entries, and are made again; but not for ever, because that thread may
            // have been killed.
            Growth::Underway if u64::from(next) < table.slots() * 2 + UNENTERED_MAX => empty = None,
            Growth::Underway | Growth::Refused => return Insertion::NoRoom,
        }
    }
    let number = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    let id = StackId(number);
    // Other threads may have made nodes in between.
    if number >= StackId::PROGRAM_END.0 || !nodes::reserve(id) {
        NEXT_ID.fetch_min(StackId::PROGRAM_END.0, Ordering::Relaxed);
        return Insertion::NoRoom;
    }
    if kind.has_text() {
        announce(address, sink);
    }
    if !sink.node(id, parent.id(), kind, address) {
        // There is no node with this id: the next thread that needs the node makes it again, with
        // another id.
        return Insertion::Unannounced;
    }
    nodes::write(id, words);
    // A write to a table that has been given back would take a page again.
    if let Some(empty) = empty.filter(|_| table.is_current()) {
        table.enter(empty, Entry::new(id, path));
    }
    // If the table could not grow, that is not tried again each time.
    if u64::from(number) > table.slots() / 8 * 3 && number & 15 == 0 {
        grow(table);
    }
    Insertion::Made(NodeRef::new(number, path))
}

/// Announces the name at an address, after its category's name.
#[cold]
fn announce(address: u64, sink: &mut dyn Sink) {
    // SAFETY: nodes of these kinds have the address of a static name (`NodeKind`), which they were
    // given as a pointer.
    let Some(name) = (unsafe { ptr::with_exposed_provenance::<Name>(address as usize).as_ref() }) else { return };
    // SAFETY: `as_ref` requires null or a live `Category`: by the contract of `Name`, everything
    // that it refers to is static. The only field that changes is atomic.
    if let Some(category) = unsafe { name.category.as_ref() } {
        sink.text(&category.name);
    }
    sink.text(name);
}

/// The outcome of an attempt to make a larger table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    /// There is another table now.
    Done,
    /// Another thread is making one.
    Underway,
    /// There is no memory for it, or the limit does not allow it.
    Refused,
}

/// Makes a table at least twice as large.
#[cold]
fn grow(old: &'static Table) -> Growth {
    if !old.is_current() {
        return Growth::Done;
    }
    let Some(_growing) = GROWING.try_lock() else { return Growth::Underway };
    if !old.is_current() {
        return Growth::Done;
    }
    // After a failure the kernel is not asked again each time.
    let refused = REFUSED.load(Ordering::Relaxed);
    if refused & 0xff != 0 {
        REFUSED.store(refused.wrapping_add(1), Ordering::Relaxed);
        return Growth::Refused;
    }
    let (next, slots) = (next_id().0, old.slots());
    let fits = |larger| bytes_with(next, slots).saturating_add(Table::length(larger)) <= LIMIT.load(Ordering::Relaxed);
    let mut larger = slots * 2;
    // Other threads have made nodes meanwhile, on a busy machine many.
    while u64::from(next) > larger / 8 * 3 && fits(larger * 2) {
        larger *= 2;
    }
    if !fits(larger) {
        return Growth::Refused;
    }
    let Some(new) = Table::map(larger) else {
        REFUSED.fetch_add(1, Ordering::Relaxed);
        return Growth::Refused;
    };
    // In the order of the nodes, not of the table, so that they are read sequentially.
    for id in (1..next_id().0).map(StackId) {
        if let Some(path) = nodes::path(id) {
            new.enter(path >> 32, Entry::new(id, path));
        }
    }
    TABLE.store(ptr::from_ref(new).cast_mut(), Ordering::Release);
    IS_INHERITED.store(false, Ordering::Relaxed);
    // SAFETY: a private mapping of whole pages, ours, consisting of atomics. Threads that still
    // read it find zeroes, which are empty entries; nobody finds the nodes that they enter.
    unsafe { sys::discard(ptr::from_ref(old).cast_mut().cast(), Table::length(slots) as usize) };
    Growth::Done
}

#[cfg(test)]
mod tests;
