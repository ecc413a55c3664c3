//! An arena: chunks, heaps, a budget and a limit of its own.
//!
//! A heap belongs to one arena and one thread. The main arena has the heaps from which the malloc
//! functions allocate; a program makes others for blocks that it wants to keep apart. A thread gets
//! its heap of an arena at its first allocation there, and finds it without a lock afterwards
//! (`Heap::arena_heaps`). A heap whose thread ended waits for the next thread that uses the arena.
//!
//! The memory of an arena's description is never freed, but used again for another arena. So all
//! descriptions can be visited without a lock, and what refers to one stays valid.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::{mem, ptr};

use crate::arch::thread_pointer;
use crate::chunk::ChunkPtr;
use crate::fatal;
use crate::locked::Locked;
use crate::run::Owner;
use crate::{options, os};

mod abandoned;
pub(crate) mod blocks;
pub(crate) mod clock;
pub(crate) mod disposal;
pub(crate) mod handle;
pub(crate) mod heaps;
pub(crate) mod ids;
pub(crate) mod lookup;
pub(crate) mod operations;
pub(crate) mod purge;
pub(crate) mod registry;
pub(crate) mod slices;
pub(crate) mod source;
pub(crate) mod space;
pub(crate) mod statistics;
pub(crate) mod thread_local;

use source::Source;
use space::Space;

/// The longest label in bytes.
pub(crate) const LABEL_MAX: usize = 127;

/// The flag of an arena whose runs make blocks of fresh memory in random order.
pub(crate) const RANDOMISED: u32 = 1;
/// The flag of an arena that does the opposite.
pub(crate) const NOT_RANDOMISED: u32 = 2;
/// The flag of an arena that only the thread which created it uses.
pub(crate) const SINGLE_THREAD: u32 = 4;
/// The flag of an arena whose id only its creator knows: it is not found by its label, and not told
/// of an address.
pub(crate) const PRIVATE: u32 = 8;

/// The mark of a thread's own arena whose thread has ended: no thread has this number.
const UNCLAIMED: usize = 1;

/// The properties that an arena has from its creation on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// The label, ended by a null byte.
    pub(crate) label: [u8; LABEL_MAX + 1],
    pub(crate) flags: u32,
    /// The thread that created it.
    pub(crate) thread: usize,
    /// The dirty pages that are kept. 0: as many as the default formula says.
    pub(crate) dirty_max: usize,
    /// The shift that takes the place of the global modifier if that increases budgets, unless 0.
    pub(crate) increase_override: i32,
    /// The shift that takes the place of the global modifier if that decreases budgets, unless 0.
    pub(crate) decrease_override: i32,
    /// The bytes that may be mapped. 0: no limit.
    pub(crate) bytes_max: usize,
    pub(crate) source: Source,
}

impl Settings {
    pub(crate) const DEFAULT: Settings = Settings {
        label: [0; LABEL_MAX + 1],
        flags: 0,
        thread: 0,
        dirty_max: 0,
        increase_override: 0,
        decrease_override: 0,
        bytes_max: 0,
        source: Source::System,
    };
}

/// The heaps of an arena, which the module [`heaps`] knows.
#[derive(Debug)]
pub(crate) struct Heaps {
    /// The first of all of them, or null.
    all: *mut Owner,
    /// The first of those that no thread has, or null.
    unowned: *mut Owner,
    /// The pages that these keep in empty runs for the threads that adopt them.
    pages_left: usize,
    /// The heap of the abandoned runs, or null. It is none of `unowned`.
    abandoned: *mut Owner,
    /// The first of those of threads that this process does not have, or null: see
    /// `SharedArena::keep`. They are not in `all`.
    lost: *mut Owner,
    /// True if there are such heaps, or if there were some in an arena that ended.
    has_lost: bool,
}

impl Heaps {
    /// Returns the heaps of an arena that has none, apart from those that are lost.
    const fn none(has_lost: bool) -> Heaps {
        Heaps {
            all: ptr::null_mut(),
            unowned: ptr::null_mut(),
            pages_left: 0,
            abandoned: ptr::null_mut(),
            lost: ptr::null_mut(),
            has_lost,
        }
    }
}

/// An arena, as all threads see it.
#[repr(align(64))]
pub(crate) struct SharedArena {
    /// The id; 0 while no arena has this description. Changed under the locks `purging` and that of
    /// the registry.
    id: AtomicU64,
    /// Written before the arena gets its id, read while it has that.
    settings: UnsafeCell<Settings>,
    /// The bytes of chunks and huge blocks.
    pub(crate) mapped: AtomicUsize,
    pub(crate) huge_blocks: AtomicUsize,
    pub(crate) huge_bytes: AtomicUsize,
    /// The allocations, frees and reallocations of huge blocks.
    pub(crate) huge_operations: AtomicU64,
    pub(crate) space: Locked<Space>,
    heaps: Locked<Heaps>,
    /// The number of abandoned runs. Changed under the lock of the heaps.
    abandoned: AtomicUsize,
    /// The bytes of blocks that were freed in runs of heaps without a thread. Wraps.
    freed_abandoned: AtomicUsize,
    /// The thread whose own arena this is, [`UNCLAIMED`] if that thread has ended, 0 if it is none
    /// of those.
    claimed_by: AtomicUsize,
    /// Held while dirty pages are returned to the system, and while the arena is disposed of.
    pub(crate) purging: Locked<()>,
    /// The state of deferred purges.
    pub(crate) deferred: purge::Deferred,
    /// The links of the registry.
    pub(crate) links: registry::Links,
}

// SAFETY: `Sync` demands that threads may share it. Fields are atomics, or data under locks, or
// cells of other modules that are accessed under a lock (see there), or the settings. Those are
// written by `begin` only, which the registry calls before any other thread can learn of the arena.
unsafe impl Sync for SharedArena {}

/// The main arena.
pub(crate) static MAIN: SharedArena = SharedArena::new();

impl core::fmt::Debug for SharedArena {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("SharedArena").field("id", &self.id).finish_non_exhaustive()
    }
}

impl SharedArena {
    /// The offset of the id in bytes.
    pub(crate) const ID_OFFSET: u32 = mem::offset_of!(SharedArena, id) as u32;
    /// The offset of the label in bytes.
    pub(crate) const LABEL_OFFSET: u32 =
        (mem::offset_of!(SharedArena, settings) + mem::offset_of!(Settings, label)) as u32;

    pub(crate) const fn new() -> SharedArena {
        SharedArena {
            id: AtomicU64::new(0),
            settings: UnsafeCell::new(Settings::DEFAULT),
            mapped: AtomicUsize::new(0),
            huge_blocks: AtomicUsize::new(0),
            huge_bytes: AtomicUsize::new(0),
            huge_operations: AtomicU64::new(0),
            space: Locked::new(Space::new()),
            heaps: Locked::new(Heaps::none(false)),
            abandoned: AtomicUsize::new(0),
            freed_abandoned: AtomicUsize::new(0),
            claimed_by: AtomicUsize::new(0),
            purging: Locked::new(()),
            deferred: purge::Deferred::new(),
            links: registry::Links::new(),
        }
    }

    /// Gives the description to a new arena.
    ///
    /// # Safety
    ///
    /// No arena has it, and the caller holds the registry's lock.
    pub(crate) unsafe fn begin(&self, id: u64, settings: &Settings) {
        // SAFETY: nobody reads the settings: no arena has the description, by this function's
        // `# Safety`, and the id that allows it is stored afterwards.
        unsafe { *self.settings.get() = *settings };
        // Release: a thread that finds the arena sees its settings.
        self.id.store(id, Ordering::Release);
    }

    /// Returns the id. 0 if no arena has the description.
    pub(crate) fn id(&self) -> u64 {
        self.id.load(Ordering::Acquire)
    }

    /// Gives the main arena its id.
    pub(crate) fn set_main_id(&self, id: u64) {
        self.id.store(id, Ordering::Release);
    }

    /// Ends the arena. The lock `purging` is held.
    fn end(&self) {
        self.id.store(0, Ordering::Release);
    }

    #[inline(always)]
    pub(crate) fn is_main(&self) -> bool {
        ptr::eq(self, &raw const MAIN)
    }

    /// True if an arena has the description.
    pub(crate) fn is_live(&self) -> bool {
        self.is_main() || self.id() != 0
    }

    /// Returns the settings of an arena that is not disposed of meanwhile.
    #[inline(always)]
    pub(crate) fn settings(&self) -> &Settings {
        // SAFETY: nobody writes to the settings of an arena that has its id: see `begin`.
        unsafe { &*self.settings.get() }
    }

    /// Returns the label of an arena that is not disposed of meanwhile.
    pub(crate) fn label(&self) -> &str {
        if self.is_main() {
            return "main";
        }
        let label = &self.settings().label;
        let length = label.iter().position(|&byte| byte == 0).unwrap_or(LABEL_MAX);
        // A label of C may have any bytes.
        match label.get(..length).map(core::str::from_utf8) {
            Some(Ok(text)) => text,
            _ => "a label that is not text",
        }
    }

    /// True if runs make blocks of fresh memory in random order.
    pub(crate) fn is_random(&self) -> bool {
        match self.settings().flags & (RANDOMISED | NOT_RANDOMISED) {
            RANDOMISED => true,
            NOT_RANDOMISED => false,
            _ => options::is_random(),
        }
    }

    /// Aborts the program if another thread created the arena, and no other may use it.
    #[inline(always)]
    pub(crate) fn check_thread(&self) {
        let settings = self.settings();
        if settings.flags & SINGLE_THREAD != 0 && settings.thread != thread_pointer() {
            self.abort_for_thread();
        }
    }

    #[cold]
    fn abort_for_thread(&self) -> ! {
        fatal::abort_with(format_args!("use of the single-thread {} by another thread", self.name()))
    }

    /// True if only the creator of the arena knows its id.
    pub(crate) fn is_private(&self) -> bool {
        self.settings().flags & PRIVATE != 0
    }

    /// Returns the id for who asks about an address: 0 if the arena is private. It is not disposed
    /// of meanwhile.
    pub(crate) fn public_id(&self) -> u64 {
        if self.is_private() { 0 } else { self.id() }
    }

    /// Returns the arena's name in messages: its label, and the id if that is not private.
    pub(crate) fn name(&self) -> ArenaName<'_> {
        ArenaName(self)
    }

    /// Makes a new arena the own one of a thread.
    pub(crate) fn claim_new(&self, thread: usize) {
        self.claimed_by.store(thread, Ordering::Relaxed);
    }

    /// Takes the own arena of a thread that has ended. False if it is not one.
    pub(crate) fn claim(&self, thread: usize) -> bool {
        self.claimed_by.compare_exchange(UNCLAIMED, thread, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// True if this is the own arena of a thread.
    pub(crate) fn is_claimed_by(&self, thread: usize) -> bool {
        self.claimed_by.load(Ordering::Relaxed) == thread
    }

    /// Leaves the own arena of a thread, which ends, to others.
    pub(crate) fn unclaim(&self, thread: usize) {
        let _ = self.claimed_by.compare_exchange(thread, UNCLAIMED, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// True if this is the own arena of a thread, or was so.
    pub(crate) fn is_of_threads(&self) -> bool {
        self.claimed_by.load(Ordering::Relaxed) != 0
    }

    /// Counts bytes that are about to be mapped. False if the arena's limit does not allow them.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        let bytes_max = match self.settings().bytes_max {
            0 => usize::MAX,
            bytes_max => bytes_max,
        };
        let sum = |mapped: usize| mapped.checked_add(bytes).filter(|&sum| sum <= bytes_max);
        let is_allowed = self.mapped.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_ok();
        if !is_allowed {
            os::refuse();
        }
        is_allowed
    }

    /// Counts bytes as no longer mapped.
    pub(crate) fn release(&self, bytes: usize) {
        self.mapped.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the arena that has a chunk.
    pub(crate) fn of(chunk: ChunkPtr) -> &'static SharedArena {
        // SAFETY: a reference demands a valid arena to which nobody has a unique reference: the
        // space gives each chunk the address of a description, and those are never freed.
        unsafe { &*chunk.arena().cast() }
    }
}

/// The name of an arena in messages.
pub(crate) struct ArenaName<'a>(&'a SharedArena);

impl core::fmt::Display for ArenaName<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (id, label) = (self.0.id(), self.0.label());
        if self.0.is_private() {
            write!(out, "private arena ({label})")
        } else {
            write!(out, "arena {id:#x} ({label})")
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
