//! The options of the allocator: from code before the first allocation, then from the environment.
//!
//! All are off by default. Options that fill memory ([`AllocatorOptions::junk`], `zero` and
//! `poison`), and `keyed_lists`, cost nothing while they are off: if one is on, the word in which
//! the common path looks for the thread's heap stays that of the empty heap, so that each call
//! takes the slow path.

use core::ffi::CStr;
#[cfg(not(miri))]
use core::ffi::c_char;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};

use heapledger_core::print::Printer;

use crate::locked::Locked;
use crate::{keys, page};

mod parse;

/// The environment variable that has the options.
pub const ALLOCATOR_OPTIONS: &CStr = c"HEAPLEDGER_ALLOCATOR_OPTIONS";
/// The byte that [`AllocatorOptions::junk`] fills new blocks with.
pub const JUNK: u8 = 0xe4;
/// The byte that [`AllocatorOptions::poison`] fills freed blocks with.
pub const POISON: u8 = 0xe5;

/// The size of a processor's cache line in bytes.
const CACHE_LINE: usize = 64;
const STDERR: i32 = 2;

#[cfg(not(miri))]
unsafe extern "C" {
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

/// The parts of a freed block that are overwritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Poison {
    /// Nothing.
    #[default]
    None,
    /// The first bytes: this number of cache lines of 64 bytes.
    CacheLines(usize),
    /// The whole block.
    All,
}

/// The options. [`apply`](AllocatorOptions::apply) makes them those of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct AllocatorOptions {
    pub(crate) junk: bool,
    pub(crate) zero: bool,
    pub(crate) poison: Poison,
    pub(crate) dirty_shift: i32,
    pub(crate) decay_seconds: u32,
    pub(crate) bytes_max: usize,
    pub(crate) statistics_at_exit: bool,
    pub(crate) no_large_pages: bool,
    pub(crate) randomize: bool,
    pub(crate) guards: bool,
    pub(crate) page_shift: u32,
    pub(crate) keyed_lists: bool,
}

/// The error of [`AllocatorOptions::apply`] after the first allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlreadyStarted;

impl core::fmt::Display for AlreadyStarted {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the allocator has started: options are set before the first allocation")
    }
}

impl core::error::Error for AlreadyStarted {}

impl AllocatorOptions {
    /// Returns options that are all off.
    pub const fn new() -> AllocatorOptions {
        AllocatorOptions {
            junk: false,
            zero: false,
            poison: Poison::None,
            dirty_shift: 0,
            decay_seconds: 0,
            bytes_max: 0,
            statistics_at_exit: false,
            no_large_pages: false,
            randomize: false,
            guards: false,
            page_shift: 0,
            keyed_lists: false,
        }
    }

    /// Fills new blocks with [`JUNK`], except those of `calloc`, and what `realloc` adds to the
    /// usable size of a block.
    pub const fn junk(mut self, is_on: bool) -> AllocatorOptions {
        self.junk = is_on;
        self
    }

    /// Fills new blocks with zeroes, as [`AllocatorOptions::junk`] does, which it wins over.
    pub const fn zero(mut self, is_on: bool) -> AllocatorOptions {
        self.zero = is_on;
        self
    }

    /// Fills freed blocks of up to 1 MiB with [`POISON`]; larger ones are unmapped.
    pub const fn poison(mut self, poison: Poison) -> AllocatorOptions {
        self.poison = poison;
        self
    }

    /// Doubles (positive) or halves (negative) the number of free pages that are kept so many
    /// times, at most 16.
    pub const fn dirty_shift(mut self, shift: i32) -> AllocatorOptions {
        self.dirty_shift = if shift > 16 {
            16
        } else if shift < -16 {
            -16
        } else {
            shift
        };
        self
    }

    /// Returns free pages to the system after about so many seconds, by threads that allocate. 0
    /// switches that off.
    pub const fn decay(mut self, seconds: u32) -> AllocatorOptions {
        self.decay_seconds = seconds;
        self
    }

    /// Limits the bytes that the allocator maps. Requests beyond fail as if the system had no
    /// memory. 0 is no limit.
    pub const fn bytes_max(mut self, bytes: usize) -> AllocatorOptions {
        self.bytes_max = bytes;
        self
    }

    /// Prints statistics to standard error when the process exits.
    pub const fn statistics_at_exit(mut self, is_on: bool) -> AllocatorOptions {
        self.statistics_at_exit = is_on;
        self
    }

    /// Asks the kernel not to use large pages for the allocator's memory (`MADV_NOHUGEPAGE`). Off,
    /// the system's setting holds.
    pub const fn no_large_pages(mut self, is_on: bool) -> AllocatorOptions {
        self.no_large_pages = is_on;
        self
    }

    /// Hands out the blocks of fresh memory in random order.
    pub const fn randomize(mut self, is_on: bool) -> AllocatorOptions {
        self.randomize = is_on;
        self
    }

    /// Makes pages inaccessible: in each chunk, the unused ones beside the metadata; and one behind
    /// each chunk and each huge block. Not in memory of
    /// [`ChunkCallbacks`](crate::arenas::ChunkCallbacks).
    pub const fn guards(mut self, is_on: bool) -> AllocatorOptions {
        self.guards = is_on;
        self
    }

    /// Makes the links in free blocks unreadable, and checks them: a program that writes to a free
    /// block is ended before memory is handed out that the block's content names, and so is one
    /// that frees a block twice.
    pub const fn keyed_lists(mut self, is_on: bool) -> AllocatorOptions {
        self.keyed_lists = is_on;
        self
    }

    /// Doubles the size of pages so many times, up to 64 KiB: the allocator then maps, protects and
    /// returns memory in larger units than the system needs. For tests of larger pages.
    pub const fn page_shift(mut self, shift: u32) -> AllocatorOptions {
        self.page_shift = shift;
        self
    }

    /// Makes these the options of the process. Those in the environment variable
    /// [`ALLOCATOR_OPTIONS`] are applied on top of them.
    ///
    /// # Errors
    ///
    /// Fails after the first allocation of the process.
    pub fn apply(self) -> Result<(), AlreadyStarted> {
        START.with(|()| {
            if IS_STARTED.load(Ordering::Relaxed) {
                return Err(AlreadyStarted);
            }
            self.finish_with_environment();
            Ok(())
        })
    }

    fn finish_with_environment(mut self) {
        if let Some(text) = environment() {
            parse::parse(text, &mut self, &mut refuse);
        }
        self.store();
        IS_STARTED.store(true, Ordering::Release);
    }

    fn store(self) {
        let flags = [
            (self.junk && !self.zero, FILL_JUNK),
            (self.zero, FILL_ZERO),
            (self.statistics_at_exit, AT_EXIT),
            (self.no_large_pages, NO_LARGE_PAGES),
            (self.randomize, RANDOMIZE),
            (self.guards, GUARDS),
            (self.poison != Poison::None, FILL_POISON),
            (self.keyed_lists, KEYED),
        ];
        let flags = flags.into_iter().filter(|(is_on, _)| *is_on).fold(0, |all, (_, flag)| all | flag);
        let poisoned = match self.poison {
            Poison::None => 0,
            Poison::CacheLines(lines) => lines.saturating_mul(CACHE_LINE),
            Poison::All => usize::MAX,
        };
        page::start(self.page_shift);
        if self.keyed_lists {
            keys::start();
        }
        POISONED.store(poisoned, Ordering::Relaxed);
        DIRTY_SHIFT.store(self.dirty_shift, Ordering::Relaxed);
        DECAY.store(self.decay_seconds, Ordering::Relaxed);
        LIMIT.store(self.bytes_max, Ordering::Relaxed);
        FLAGS.store(flags, Ordering::Relaxed);
    }
}

const FILL_JUNK: u32 = 1;
const FILL_ZERO: u32 = 2;
const FILL_POISON: u32 = 4;
const AT_EXIT: u32 = 8;
const NO_LARGE_PAGES: u32 = 16;
const RANDOMIZE: u32 = 32;
const GUARDS: u32 = 64;
const KEYED: u32 = 128;

/// Held while the options are read. Nothing else is locked under it.
static START: Locked<()> = Locked::new(());
static IS_STARTED: AtomicBool = AtomicBool::new(false);
static FLAGS: AtomicU32 = AtomicU32::new(0);
static POISONED: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(0);
static DIRTY_SHIFT: AtomicI32 = AtomicI32::new(0);
static DECAY: AtomicU32 = AtomicU32::new(0);

/// Reads the options from the environment at the first call.
#[inline]
pub(crate) fn start() {
    if !IS_STARTED.load(Ordering::Acquire) {
        start_once();
    }
}

#[cold]
fn start_once() {
    START.with(|()| {
        if !IS_STARTED.load(Ordering::Relaxed) {
            AllocatorOptions::new().finish_with_environment();
        }
    });
}

/// Locks the start for a fork.
pub(crate) fn lock_for_fork() {
    START.lock_for_fork();
}

/// Unlocks after a fork, in both processes.
///
/// # Safety
///
/// This thread, or the one that it was copied from, has called [`lock_for_fork`].
pub(crate) unsafe fn unlock_after_fork() {
    // SAFETY: `unlock_after_fork` demands what this function's `# Safety` does.
    unsafe { START.unlock_after_fork() };
}

/// Returns the text of the variable. `None` if it is not set, and in programs that run with other
/// rights than their caller's.
#[cfg(not(miri))]
fn environment() -> Option<&'static [u8]> {
    // SAFETY: the C library's function looks the name up in the environment and does not allocate.
    let value = unsafe { secure_getenv(ALLOCATOR_OPTIONS.as_ptr()) };
    // SAFETY: `from_ptr` demands a text that ends with NUL, as that of the environment does when it
    // is not null. It is read before the program can change it: by its first allocation.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes())
}

/// Miri does not know the function of the C library.
#[cfg(miri)]
fn environment() -> Option<&'static [u8]> {
    None
}

fn refuse(text: &[u8], reason: &str) {
    let mut printer = Printer::new(STDERR);
    let _ = printer.write_str("heapledger: HEAPLEDGER_ALLOCATOR_OPTIONS: `");
    for &byte in text.iter().take(64) {
        let _ = printer.write_char(if byte.is_ascii_graphic() { char::from(byte) } else { '?' });
    }
    let _ = writeln!(printer, "` is ignored: {reason}");
    printer.finish();
}

fn has(flags: u32) -> bool {
    FLAGS.load(Ordering::Relaxed) & flags != 0
}

/// True if each call of a thread has to take the slow path: blocks are filled when they are
/// allocated or freed, or the links of free lists are keyed.
pub(crate) fn is_slow() -> bool {
    has(FILL_JUNK | FILL_ZERO | FILL_POISON | KEYED)
}

pub(crate) fn has_keyed_lists() -> bool {
    has(KEYED)
}

/// Returns the byte that new blocks are filled with.
pub(crate) fn fill() -> Option<u8> {
    match FLAGS.load(Ordering::Relaxed) & (FILL_JUNK | FILL_ZERO) {
        0 => None,
        FILL_JUNK => Some(JUNK),
        _ => Some(0),
    }
}

/// Returns the number of bytes that are poisoned in freed blocks of at least as many.
pub(crate) fn poisoned() -> usize {
    POISONED.load(Ordering::Relaxed)
}

pub(crate) fn is_random() -> bool {
    has(RANDOMIZE)
}

/// Switches the option `random` on or off.
pub(crate) fn set_random(is_on: bool) {
    if is_on {
        FLAGS.fetch_or(RANDOMIZE, Ordering::Relaxed);
    } else {
        FLAGS.fetch_and(!RANDOMIZE, Ordering::Relaxed);
    }
}

pub(crate) fn has_guards() -> bool {
    has(GUARDS)
}

pub(crate) fn prints_at_exit() -> bool {
    has(AT_EXIT)
}

pub(crate) fn has_no_large_pages() -> bool {
    has(NO_LARGE_PAGES)
}

/// Returns the shift of the budgets for dirty pages.
pub(crate) fn dirty_shift() -> i32 {
    DIRTY_SHIFT.load(Ordering::Relaxed)
}

/// Returns the seconds after which dirty pages are returned, 0 for never.
pub(crate) fn decay() -> u32 {
    DECAY.load(Ordering::Relaxed)
}

/// Returns the limit of mapped bytes, `usize::MAX` if there is none.
pub(crate) fn limit() -> usize {
    match LIMIT.load(Ordering::Relaxed) {
        0 => usize::MAX,
        limit => limit,
    }
}

#[cfg(test)]
mod tests;
