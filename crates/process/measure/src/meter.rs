//! The meter: asks for the sizes of blocks, and remembers what it has visited.

use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::ptr;

use heapledger_annotate::untracked;
use heapledger_core::bridge::{self, BridgeRef, Extent, Marking, mark};
use heapledger_core::hooks::{UsableSize, usable_size};
use heapledger_core::{Bytes, sys};

use crate::allocator;

/// Measures blocks for a traversal, and remembers the shared values that the traversal has visited.
///
/// Sizes come from, in this order:
///
/// 1. the allocator: usable bytes, slop included. It can be asked if the program's global allocator
///    is `heapledger::Allocator`: around the system's, or around another one with
///    `with_usable_size`.
/// 2. the program's ledger, if it runs and knows the block. It also knows blocks by addresses
///    inside them, which is how tables and nodes of trees are found.
/// 3. the allocator by any address in a block, if it is Heapledger's own.
/// 4. a [computation](Meter::computed) of the size that must have been requested, which is [counted
///    as such](Meter::computed_bytes).
///
/// With [`Meter::marking`] every block that is measured is marked in the ledger as reported.
///
/// A meter is for one traversal, in one thread at a time. It allocates only to remember shared
/// things ([`Meter::is_first_visit`]): 10 to 21 bytes for each.
///
/// ```
/// # extern crate heapledger_measure as heapledger;
/// use heapledger::{HeapSize, Meter};
///
/// let mut meter = Meter::new();
/// let words = vec![String::from("to"), String::from("measure")];
/// assert!(words.heap_size(&mut meter).0 >= 3 * 2 * 8 + 9);
/// ```
pub struct Meter {
    usable_size: Option<UsableSize>,
    observer: Option<BridgeRef>,
    /// The program's own ledger, if it is not the observer.
    own: Option<BridgeRef>,
    mark_action: MarkAction,
    seen: HashSet<usize, BuildHasherDefault<AddressHasher>>,
    computed: Bytes,
    marks: MarkCounts,
}

/// The mark that a meter makes in the ledger for each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MarkAction {
    Nothing,
    /// This reporter has reported the block, with these flags of a mark.
    Mark(&'static str, u32),
    /// This reporter does not report the block any more.
    Unmark(&'static str),
}

/// The outcome of the marks that a [`Meter`] has made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MarkCounts {
    /// Blocks that had not been reported before.
    pub once: u64,
    /// Blocks that had been reported before, by this reporter or by another: they are reported
    /// twice.
    pub again: u64,
    /// Addresses at which the ledger knows no live block: allocated before it was started, or not
    /// memory of the heap.
    pub no_block: u64,
    /// Addresses inside a block.
    pub inside: u64,
}

impl Meter {
    /// Returns a meter that measures, and marks nothing.
    pub fn new() -> Meter {
        Meter {
            usable_size: usable_size(),
            observer: bridge::find(),
            own: bridge::own(),
            mark_action: MarkAction::Nothing,
            seen: HashSet::default(),
            computed: Bytes(0),
            marks: MarkCounts::default(),
        }
    }

    /// Returns a meter that marks every block it measures as reported, under this name and with the
    /// stack of the call. Without a ledger in the program it is the same as [`Meter::new`].
    pub fn marking(reporter: &'static str) -> Meter {
        Meter { mark_action: MarkAction::Mark(reporter, 0), ..Meter::new() }
    }

    /// Returns a meter whose marks stay when marks are cleared: for a reporter that measures blocks
    /// when they are allocated, and counts them until they are freed. Before that,
    /// [`Meter::unmarking`] takes the marks off.
    ///
    /// ```
    /// # extern crate heapledger_measure as heapledger;
    /// use heapledger::{HeapSize, Meter};
    ///
    /// let page = String::from("it comes");
    /// let mut bytes = page.heap_size(&mut Meter::marking_and_keeping("explicit/pages"));
    /// // … it is counted for as long as it stays …
    /// bytes.0 -= page.heap_size(&mut Meter::unmarking("explicit/pages")).0;
    /// drop(page);
    /// assert_eq!(bytes.0, 0);
    /// ```
    pub fn marking_and_keeping(reporter: &'static str) -> Meter {
        Meter { mark_action: MarkAction::Mark(reporter, mark::KEEP), ..Meter::new() }
    }

    /// Returns a meter that takes this reporter's kept marks off every block it measures, because
    /// these are about to be freed.
    pub fn unmarking(reporter: &'static str) -> Meter {
        Meter { mark_action: MarkAction::Unmark(reporter), ..Meter::new() }
    }

    /// True if the allocator can be asked for the sizes of blocks. Otherwise slop is left out,
    /// unless the ledger knows it.
    pub fn has_usable_size() -> bool {
        usable_size().is_some()
    }

    /// Returns the size of a block. `requested` is the size that was requested, as far as it is
    /// known: it counts if neither the allocator nor a ledger can tell the size. A null pointer is
    /// not a block.
    ///
    /// # Safety
    ///
    /// `start` is null, or where a live block of the program's global allocator begins, as it was
    /// returned.
    #[inline]
    pub unsafe fn block<T: ?Sized>(&mut self, start: *const T, requested: usize) -> Bytes {
        let start = start.cast::<c_void>();
        if start.is_null() {
            return Bytes(0);
        }
        let bytes = match self.usable_size {
            // SAFETY: `usable_size` requires a live block of the allocator that it belongs to, by
            // the block's first address. By this function's `# Safety` `start` is one of the
            // program's global allocator, and the function is that allocator's (UNSAFE.md,
            // Measuring).
            Some(usable_size) => Bytes(unsafe { usable_size(start) } as u64),
            None => self.block_unasked(start.addr(), requested),
        };
        if self.mark_action != MarkAction::Nothing {
            self.notify(start.addr() as u64, bytes, 0);
        }
        bytes
    }

    /// Counts a block as `bytes` bytes, for a reason of the caller's own, and marks it like others.
    /// If the usable size is larger, this is a defect of the reporter, since nobody reports the
    /// rest. The allocator is not asked, and nothing is read through the pointer. A null pointer is
    /// not a block.
    pub fn block_counted_as<T: ?Sized>(&mut self, start: *const T, bytes: usize) -> Bytes {
        let start = start.cast::<u8>();
        if start.is_null() {
            return Bytes(0);
        }
        let bytes = Bytes(bytes as u64);
        self.notify(start.addr() as u64, bytes, 0);
        bytes
    }

    #[cold]
    fn block_unasked(&mut self, start: usize, requested: usize) -> Bytes {
        match self.extent_of(start).filter(|extent| extent.address == start as u64) {
            Some(extent) => Bytes(extent.bytes_usable),
            None => self.computed(requested),
        }
    }

    /// Returns the size of the block around an address, if the ledger knows it, or the allocator if
    /// that is Heapledger's own. Nothing is read
    /// through the pointer; it may point anywhere.
    pub fn block_around<T: ?Sized>(&mut self, inside: *const T) -> Option<Bytes> {
        self.extent_around(inside).map(|extent| self.known(extent))
    }

    /// Counts bytes that were computed because no one can be asked for the size of the memory, and
    /// returns them. A function that measures in this way has `computed` in its name.
    pub fn computed(&mut self, bytes: usize) -> Bytes {
        self.computed += Bytes(bytes as u64);
        Bytes(bytes as u64)
    }

    /// Returns how many of the measured bytes were computed.
    pub fn computed_bytes(&self) -> Bytes {
        self.computed
    }

    /// True if this is the first visit of the meter to an address: that of a shared value, or of a
    /// node of a graph. An address that is freed and used anew during the traversal counts as the
    /// same.
    ///
    /// ```
    /// # use heapledger_measure::Meter;
    /// let (node, mut meter) = (7, Meter::new());
    /// assert!(meter.is_first_visit(&node));
    /// assert!(!meter.is_first_visit(&node));
    /// assert!(meter.forget(&node) && meter.is_first_visit(&node));
    /// ```
    pub fn is_first_visit<T: ?Sized>(&mut self, address: *const T) -> bool {
        let address = address.cast::<u8>().addr();
        untracked::scope(|| self.seen.insert(address))
    }

    /// Removes an address from those that have been visited. True if it was there.
    pub fn forget<T: ?Sized>(&mut self, address: *const T) -> bool {
        self.seen.remove(&address.cast::<u8>().addr())
    }

    /// Returns the outcome of the marks so far: zeroes if there is no ledger.
    pub fn mark_counts(&self) -> MarkCounts {
        self.marks
    }

    /// True if a ledger runs in the program.
    #[cfg(feature = "bytes")]
    pub(crate) fn has_ledger(&self) -> bool {
        let known = Box::new(0_u8);
        self.extent((&raw const *known).addr()).is_some()
    }

    /// Returns the extent of the block around an address, if the ledger or the allocator knows it.
    pub(crate) fn extent_around<T: ?Sized>(&self, inside: *const T) -> Option<Extent> {
        self.extent_of(inside.cast::<u8>().addr())
    }

    /// Returns the extent of the block around an address, if the ledger or the allocator knows it.
    fn extent_of(&self, address: usize) -> Option<Extent> {
        self.extent(address).or_else(|| allocator::block_around(address))
    }

    /// Counts a block that the ledger knows.
    pub(crate) fn known(&mut self, extent: Extent) -> Bytes {
        let bytes = Bytes(extent.bytes_usable);
        self.notify(extent.address, bytes, 0);
        bytes
    }

    /// Returns the size of the block around an address; if no ledger knows it, the computed size.
    pub(crate) fn block_around_or<T: ?Sized>(&mut self, inside: *const T, requested: usize) -> Bytes {
        match self.block_around(inside) {
            Some(bytes) => bytes,
            None => self.computed_around(inside, requested),
        }
    }

    /// Counts the computed size for a block that nobody can be asked about, and nevertheless marks
    /// the block around the address: a recorder finds that block later.
    pub(crate) fn computed_around<T: ?Sized>(&mut self, inside: *const T, bytes: usize) -> Bytes {
        self.notify(inside.cast::<u8>().addr() as u64, Bytes(0), mark::AROUND);
        self.computed(bytes)
    }

    /// Returns a wanted block that the ledger knows and that one of the value's words points to or
    /// into: for types that do not expose their addresses. For values up to 128 bytes.
    pub(crate) fn extent_in_words<T>(&self, value: &T, is_wanted: impl Fn(&Extent) -> bool) -> Option<Extent> {
        const WORDS_MAX: usize = 16;
        self.observer?;
        let mut addresses = [0; WORDS_MAX];
        let count = (size_of::<T>() / size_of::<u64>()).min(WORDS_MAX);
        for (place, index) in addresses.iter_mut().zip(0..count) {
            *place = ptr::from_ref(value).addr() as u64 + (index * size_of::<u64>()) as u64;
        }
        // Some words may be uninitialised, so only the kernel may read them.
        let mut words = [[0_u64]; WORDS_MAX];
        let read = sys::read_own_memory(addresses.get(..count)?, &mut words);
        let words = words.into_iter().take(read);
        words.filter_map(|[word]| self.extent(word as usize)).find(|extent| is_wanted(extent))
    }

    fn extent(&self, address: usize) -> Option<Extent> {
        // A recorder cannot answer, but the program's own ledger may, if it runs as well.
        [self.observer, self.own].into_iter().flatten().find_map(|bridge| {
            let block_around = bridge.block_around()?;
            let mut extent = Extent::default();
            // SAFETY: `block_around` of a `Bridge` requires an extent that may be written, as the
            // local is. The address may be any number.
            (unsafe { block_around(address as u64, &mut extent) } == 1).then_some(extent)
        })
    }

    #[inline(never)]
    fn notify(&mut self, start: u64, measured: Bytes, more: u32) {
        let Some(observer) = self.observer else { return };
        match self.mark_action {
            MarkAction::Nothing => {}
            MarkAction::Mark(reporter, flags) => {
                let marking = Marking::new(reporter, flags | more, measured.0);
                // SAFETY: `mark` of a `Bridge` requires a marking that may be read during the call,
                // whose reporter's name is static. The marking is a local, and `Marking::new` has
                // made it of a `&'static str`.
                let answer = observer.mark().map(|mark| unsafe { mark(start, &raw const marking) });
                self.count(answer.unwrap_or(mark::UNKNOWN));
            }
            MarkAction::Unmark(reporter) => {
                let length = u32::try_from(reporter.len()).unwrap_or(u32::MAX);
                if let Some(unmark) = observer.unmark() {
                    // SAFETY: `unmark` of a `Bridge` requires a static name with its length. The
                    // name is a `&'static str`, and `length` is no more than its length.
                    unsafe { unmark(start, reporter.as_ptr(), length) };
                }
            }
        }
    }

    fn count(&mut self, answer: c_int) {
        let count = match answer {
            mark::ONCE => &mut self.marks.once,
            mark::AGAIN => &mut self.marks.again,
            mark::NO_BLOCK => &mut self.marks.no_block,
            mark::INSIDE => &mut self.marks.inside,
            _ => return,
        };
        *count += 1;
    }
}

impl Default for Meter {
    fn default() -> Meter {
        Meter::new()
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Meter")
            .field("mark_action", &self.mark_action)
            .field("seen", &self.seen.len())
            .field("computed", &self.computed)
            .field("marks", &self.marks)
            .finish_non_exhaustive()
    }
}

/// Hashes addresses by a product, whose upper bits, which the table uses first, depend on all bits
/// of the address.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_usize(byte.into()));
    }

    fn write_usize(&mut self, address: usize) {
        let product = u128::from(self.0 ^ address as u64) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}
