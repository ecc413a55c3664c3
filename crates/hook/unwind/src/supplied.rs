//! The modules that the tool has found in this process, for C libraries that cannot be asked: those
//! of static programs, musl, and glibc before 2.35.
//!
//! The tool supplies a [table](heapledger_wire::module_table) of them. It is used for addresses for
//! which neither the dynamic linker nor the [list](crate::modules::list) has a module with unwind
//! information. If an address is in code of a file that the table does not have either, a library
//! may have been loaded since: another table is [asked for](Sink::supply_modules). An address that
//! the new table does not have is remembered, so that it is not asked for again and again.
//!
//! A table is replaced, or dropped because a module was unloaded, while other threads read it. They
//! are counted, so that its memory is given back when nobody does.

use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};
use core::slice;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use heapledger_core::lock::Lock;
use heapledger_core::sys;
use heapledger_wire::module_table::{FramesIndex, ModuleRecord, ModuleTable};

use crate::Sink;

/// The number of tables that are kept because threads read them; no more are taken then.
const RETIRED_MAX: usize = 8;
/// The number of keys that are remembered as unknown, a power of two.
const UNKNOWN_MAX: usize = 64;
/// The number of look-ups of unknown keys after which the tool is asked again.
const UNKNOWN_UNTIL: u32 = 1024;

/// The number of attempts to get a table that is not older than the last change of modules.
const ATTEMPTS: usize = 8;
/// The time for which a thread waits for another one that asks.
const ASKING_MILLISECONDS: u32 = 5000;

/// The start of the present table, whose first word is its length; null if there is none.
static TABLE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// The table that this process has inherited, which is never unmapped; null if there is none.
static INHERITED: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// The number of threads that may read a table.
static READERS: AtomicUsize = AtomicUsize::new(0);
/// The replaced tables that threads may still read.
static RETIRED: Retired = Retired { lock: Lock::new(), tables: UnsafeCell::new([ptr::null_mut(); RETIRED_MAX]) };
/// Taken while the tool is asked.
static ASKING: Lock = Lock::new();
/// The keys of what the table did not have when it was new.
static UNKNOWN: [AtomicU64; UNKNOWN_MAX] = [const { AtomicU64::new(0) }; UNKNOWN_MAX];
static UNKNOWN_LOOKUPS: AtomicU32 = AtomicU32::new(0);

struct Retired {
    lock: Lock,
    tables: UnsafeCell<[*mut u8; RETIRED_MAX]>,
}

// SAFETY: the tables are only used under the lock, and belong to no thread.
unsafe impl Sync for Retired {}

/// A module of the table. While it lives, the table stays mapped.
#[derive(Debug)]
pub(crate) struct SuppliedModule {
    table: ModuleTable<'static>,
    pub(crate) record: ModuleRecord,
    _reader: Reader,
}

/// Counts a reader.
#[derive(Debug)]
struct Reader;

impl Reader {
    fn new() -> Reader {
        READERS.fetch_add(1, Ordering::SeqCst);
        Reader
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // In a forked child the count may have begun anew since: see `start_child`.
        let _ = READERS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |readers| readers.checked_sub(1));
    }
}

impl SuppliedModule {
    /// Returns the module's path; empty for the program itself.
    pub(crate) fn path(&self) -> &[u8] {
        self.table.path(&self.record)
    }

    /// Returns the pairs of an index of this module.
    pub(crate) fn pairs(&self, index: &FramesIndex) -> &[[u8; 8]] {
        self.table.pairs(index)
    }

    /// Returns the `.eh_frame` that was generated from the module's code; empty if there is none.
    pub(crate) fn generated_frames(&self) -> &[u8] {
        self.table.generated_frames(&self.record)
    }
}

/// Replaces the table by another one. False if it is not a table, or threads read so many earlier
/// ones that it cannot be taken; then the memory stays the caller's.
///
/// # Safety
///
/// The memory is readable, nobody writes to it, and it consists of whole pages that
/// [`sys::map_private`], [`sys::map_file`], or the tool from outside has mapped. If the result is
/// true, nobody else refers to it: it is unmapped when it has been replaced.
pub unsafe fn supply(start: NonNull<u8>, length: usize) -> bool {
    // SAFETY: `from_raw_parts` requires memory that is readable and does not change: this
    // function's `# Safety` says so.
    let bytes = unsafe { slice::from_raw_parts(start.as_ptr(), length) };
    if ModuleTable::parse(bytes).is_none() {
        return false;
    }
    replace(start.as_ptr())
}

/// Drops the table, because a module may have been unloaded: the next one will be asked for.
pub(crate) fn forget() {
    UNKNOWN.iter().for_each(|unknown| unknown.store(0, Ordering::Relaxed));
    if !TABLE.load(Ordering::Relaxed).is_null() {
        // If it cannot be retired, it stays mapped for ever.
        let is_retired = replace(ptr::null_mut());
        if !is_retired {
            TABLE.store(ptr::null_mut(), Ordering::SeqCst);
        }
    }
}

/// Adapts to a forked child: the other threads, which may have read the table or asked for one, are
/// not in this process. All tables stay mapped for ever: a signal handler that has interrupted the
/// recorder may fork, and the child then goes on reading one. The present one stays in use, since a
/// sandbox may keep the child from asking for another.
///
/// # Safety
///
/// This process has one thread, which is in no function of this module.
pub unsafe fn start_child() {
    INHERITED.store(TABLE.load(Ordering::Relaxed), Ordering::Relaxed);
    READERS.store(0, Ordering::Relaxed);
    for lock in [&RETIRED.lock, &ASKING] {
        // SAFETY: the process has one thread, by the caller's contract, so nobody holds the lock or
        // a reference to it; a free lock is all zeroes.
        unsafe { ptr::from_ref(lock).cast_mut().write_volatile(Lock::new()) };
    }
    let _guard = RETIRED.lock.lock();
    // SAFETY: the lock is held.
    unsafe { *RETIRED.tables.get() = [ptr::null_mut(); RETIRED_MAX] };
}

/// Puts another table, or none, in the place of the present one. False if that one cannot be
/// retired.
fn replace(new: *mut u8) -> bool {
    let _guard = RETIRED.lock.lock();
    // SAFETY: the lock is held.
    let retired = unsafe { &mut *RETIRED.tables.get() };
    free_unread(retired);
    let Some(slot) = retired.iter_mut().find(|table| table.is_null()) else { return false };
    let old = TABLE.swap(new, Ordering::SeqCst);
    if old != INHERITED.load(Ordering::Relaxed) {
        *slot = old;
    }
    free_unread(retired);
    true
}

/// Unmaps retired tables, unless a thread may read one.
fn free_unread(retired: &mut [*mut u8; RETIRED_MAX]) {
    // A thread that has counted itself after this finds a table that has not been retired: it loads
    // the address afterwards.
    if READERS.load(Ordering::SeqCst) != 0 {
        return;
    }
    for table in retired.iter_mut().filter(|table| !table.is_null()) {
        // SAFETY: a table that `supply` has taken, whose first word is its length; it is mapped
        // until here.
        let length = ModuleTable::length(unsafe { table.cast::<u64>().read() });
        // SAFETY: `unmap` requires memory that was mapped for this, and to which nothing refers:
        // the first is by the `# Safety` of `supply`. The table is not in `TABLE` any more, and no
        // thread reads it. The kernel unmaps whole pages.
        unsafe { sys::unmap(*table, length) };
        *table = ptr::null_mut();
    }
}

/// Returns the module of the table that covers an address.
pub(crate) fn find(address: u64) -> Option<SuppliedModule> {
    if TABLE.load(Ordering::Relaxed).is_null() {
        return None;
    }
    let reader = Reader::new();
    let start = TABLE.load(Ordering::SeqCst);
    if start.is_null() {
        return None;
    }
    // SAFETY: a table that `supply` has taken, which begins with its length, a word. It stays
    // mapped while this reader is counted.
    let length = ModuleTable::length(unsafe { start.cast::<u64>().read() });
    // SAFETY: the memory has this length, as `supply` has checked, and nobody writes to it. The
    // lifetime is that of the reader, beside which the slice is kept.
    let table = ModuleTable::parse(unsafe { slice::from_raw_parts(start, length) })?;
    let record = table.find(address)?;
    Some(SuppliedModule { table, record, _reader: reader })
}

/// The result of [`ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The table has the address now.
    Known,
    /// The table does not have the address, or there is none.
    Unknown,
    /// This is not known: another thread asks for too long, or modules are unloaded all the time.
    Later,
}

/// A look-up in the table that was in vain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<Known, Epoch> {
    pub(crate) address: u64,
    /// The key under which it is remembered that the tool does not know either: an address, or the
    /// start of a module.
    pub(crate) key: u64,
    /// Looks again.
    pub(crate) is_known: Known,
    /// Returns the current module epoch.
    pub(crate) epoch: Epoch,
}

/// Asks for a table, because an address is in code of a file that belongs to no known module, or in
/// a module without unwind information for it.
pub(crate) fn ask(question: Question<impl Fn() -> bool, impl Fn() -> u32>, sink: &mut dyn Sink) -> Answer {
    let Question { address, key, is_known, epoch } = question;
    if is_unknown(key) {
        return Answer::Unknown;
    }
    // If this thread was interrupted while it asked, nobody gives the lock back.
    let Some(_asking) = ASKING.lock_within(ASKING_MILLISECONDS) else { return Answer::Later };
    // Another thread may have asked meanwhile.
    if is_known() {
        return Answer::Known;
    }
    for _ in 0..ATTEMPTS {
        let before = epoch();
        let is_supplied = sink.supply_modules(address);
        // The table may be older than the last change of modules. If they change after this, the
        // table is dropped by the thread that has advanced the epoch.
        fence(Ordering::SeqCst);
        if epoch() != before {
            forget();
            continue;
        }
        if is_supplied && is_known() {
            return Answer::Known;
        }
        if let Some(slot) = slot(key) {
            slot.store(key, Ordering::Relaxed);
        }
        return Answer::Unknown;
    }
    Answer::Later
}

/// True if the tool did not know more. Now and then it is asked all the same: something may have
/// been loaded there.
fn is_unknown(key: u64) -> bool {
    slot(key).is_some_and(|slot| slot.load(Ordering::Relaxed) == key)
        && UNKNOWN_LOOKUPS.fetch_add(1, Ordering::Relaxed) % UNKNOWN_UNTIL != UNKNOWN_UNTIL - 1
}

/// Returns the place where a key is remembered as unknown.
fn slot(key: u64) -> Option<&'static AtomicU64> {
    UNKNOWN.get((key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % UNKNOWN_MAX)
}
