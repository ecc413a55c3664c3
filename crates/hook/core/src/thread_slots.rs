//! The words of each thread in one table, for a library that has no thread-local storage.
//!
//! A library that is placed into a program from outside cannot have thread-local storage: the C
//! library has laid it out without it. So a thread's words are in a *slot*, which is found by a
//! hash of the thread pointer: open addressing with linear probing, in a static table, without
//! locks. A slot belongs to a thread pointer for ever.
//!
//! C libraries give the thread pointer of a thread that has ended to a new one. The new thread is
//! told by its kernel id, which glibc and musl keep at a fixed distance from the thread pointer:
//! [`find_thread_ids`] looks for it. Then the words are reset, and the old thread's end is noticed
//! ([`on_thread_end`]).
//!
//! Built only with `--cfg placed`: see `hook/placed`.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::arch::{self, Countdown};
use crate::{sandbox, sys};

/// The logarithm of the number of slots.
pub const SLOTS_BITS: u32 = 14;
/// The logarithm of the bytes of a slot.
pub const SLOT_LENGTH_BITS: u32 = 7;
/// The multiplier of the hash: 2^32 divided by the golden ratio. It is odd, and negative as a
/// number of 32 bits.
pub const MULTIPLIER: i32 = 0x9e37_79b9_u32.cast_signed();

const SLOTS: usize = 1 << SLOTS_BITS;
/// The most slots that are looked at for a thread. There are so few free ones then that more of
/// them would cost every call of the thread more than its events are worth.
const PROBES_MAX: usize = 128;

/// The words of a thread. All are 0 at the start of every thread. Only its own thread uses them,
/// and its signal handlers.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct ThreadSlot {
    /// The thread pointer; 0 if the slot is free.
    pub thread: AtomicUsize,
    /// The kernel's id of the thread; see [`THREAD_ID_AT`].
    pub id: AtomicU32,
    /// The word for the thread's block.
    pub block: AtomicUsize,
    /// The stack pointer of the outermost call of a redirected entry.
    pub outermost: AtomicU64,
    /// The site of that call; it stays when `outermost` is 0 again.
    pub site: AtomicU64,
    /// The number of calls of redirected entries that the thread is in, without nested ones: those
    /// of signal handlers on other stacks may come on top. A call that was left by a jump stays. So
    /// a tool knows which threads return to the library's code.
    pub inside: AtomicU64,
    countdown: [AtomicU64; 5],
    /// The address of memory of [`EXEC_STACK_LENGTH`] bytes; 0 if there is none yet.
    exec_stack: AtomicUsize,
}

/// The bytes of a stack for calls of execve(2): signal handlers may run there.
const EXEC_STACK_LENGTH: usize = 64 << 10;

const _: () = assert!(size_of::<ThreadSlot>() == 1 << SLOT_LENGTH_BITS);

impl ThreadSlot {
    const fn free() -> ThreadSlot {
        ThreadSlot {
            thread: AtomicUsize::new(0),
            id: AtomicU32::new(0),
            block: AtomicUsize::new(0),
            outermost: AtomicU64::new(0),
            site: AtomicU64::new(0),
            inside: AtomicU64::new(0),
            countdown: [const { AtomicU64::new(0) }; 5],
            exec_stack: AtomicUsize::new(0),
        }
    }

    /// Returns the thread's countdown.
    pub(crate) fn countdown(&self) -> Countdown {
        let [until_reread, rate, after_reread, stride, reread_at] =
            self.countdown.each_ref().map(|word| word.load(Ordering::Relaxed));
        Countdown { until_reread: until_reread.cast_signed(), rate, after_reread, stride, reread_at }
    }

    /// Sets the thread's countdown.
    pub(crate) fn set_countdown(&self, to: Countdown) {
        let [until_reread, others @ ..] = &self.countdown;
        // Nobody counts in between, because the countdown is 0.
        until_reread.store(0, Ordering::Relaxed);
        let values = [to.rate, to.after_reread, to.stride, to.reread_at];
        others.iter().zip(values).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        until_reread.store(to.until_reread.cast_unsigned(), Ordering::Relaxed);
    }

    /// Subtracts from the countdown: see [`arch::count_down`](crate::arch::count_down).
    pub(crate) fn count_down(&self, size: usize, rate: u32) -> bool {
        let [until_reread, drawn_at, ..] = &self.countdown;
        let left = until_reread.load(Ordering::Relaxed).cast_signed();
        if drawn_at.load(Ordering::Relaxed) as u32 != rate || left <= size as i64 {
            return false;
        }
        until_reread.store((left - size as i64).cast_unsigned(), Ordering::Relaxed);
        true
    }

    /// Makes the words those of another thread, with this id. The end of the thread before is
    /// noticed.
    #[cold]
    fn change_thread(&self, id: u32) {
        // First, so that a signal handler that comes here meanwhile finds nothing to do.
        self.id.store(id, Ordering::Relaxed);
        self.outermost.store(0, Ordering::Relaxed);
        self.site.store(0, Ordering::Relaxed);
        self.inside.store(0, Ordering::Relaxed);
        self.countdown.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let block = self.block.swap(0, Ordering::Relaxed);
        let handler = END_HANDLER.load(Ordering::Acquire);
        if block != 0 && !handler.is_null() {
            // SAFETY: `transmute` requires that the pointer is a `fn(usize)`. It is not null, and
            // `on_thread_end`, which stores all others, makes them from one.
            unsafe { core::mem::transmute::<*mut (), fn(usize)>(handler)(block) };
        }
    }
}

/// The table: memory that costs nothing until it is touched.
pub static TABLE: [ThreadSlot; SLOTS] = [const { ThreadSlot::free() }; SLOTS];
/// The words of a thread that got no slot because there are too many threads: its calls are not
/// recorded.
static NO_SLOT: ThreadSlot = ThreadSlot::free();

/// The distance from the thread pointer to the word with the thread's id in the kernel. 0, where
/// the thread pointer itself is, until [`find_thread_ids`] has found it: then slots are never
/// reset.
pub static THREAD_ID_AT: AtomicUsize = AtomicUsize::new(0);

/// True if the first thread did not find its id, because it was another process's at that time.
static ARE_IDS_WANTED: AtomicBool = AtomicBool::new(false);

/// Not 0 while only one thread has called a redirected entry: so no other can have freed a block.
pub static HAS_ONE_THREAD: AtomicU8 = AtomicU8::new(1);
/// The number of slots that have been taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// A `fn(usize)`, or null.
static END_HANDLER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Calls `handler` with the word for the block of a thread that has ended, in the thread that has
/// taken its thread pointer over.
pub fn on_thread_end(handler: fn(usize)) {
    END_HANDLER.store(handler as *mut (), Ordering::Release);
}

/// Returns the slot of the calling thread. Its id is that of the thread's latest call of
/// [`enter`].
#[inline(always)]
pub fn current() -> &'static ThreadSlot {
    let thread = arch::thread_pointer();
    match TABLE.get(index(thread)) {
        Some(slot) if slot.thread.load(Ordering::Relaxed) == thread => slot,
        _ => find(thread).unwrap_or(&NO_SLOT),
    }
}

/// Returns the slot of the calling thread during a redirected call, without a search: the thunk has
/// put its address below the return address. `sp` is the stack pointer of the call's caller.
///
/// # Safety
///
/// *In a call*: the thread is in a call of a redirected entry, and `sp` is the stack pointer that
/// its caller has when the call has returned.
#[inline(always)]
pub unsafe fn of_call(sp: u64) -> &'static ThreadSlot {
    let word = ptr::with_exposed_provenance::<usize>((sp as usize).wrapping_sub(16));
    // SAFETY: by this function's `# Safety` the thread is in a call: until that returns, the word
    // below its return address, which is on this thread's stack, has the address of a slot. Slots
    // are in a static table, or `NO_SLOT`, and all their fields are atomic.
    unsafe { &*ptr::with_exposed_provenance::<ThreadSlot>(word.read()) }
}

/// Returns the slot of the calling thread; null if there is none.
/// Its words have been reset if they were those of another thread. Called by the thunk of
/// redirected entries, if the first slot of the hash is not that of the thread, or has another id.
#[cold]
pub extern "C" fn enter() -> *const ThreadSlot {
    let thread = arch::thread_pointer();
    let Some(slot) = find(thread) else { return ptr::null() };
    if ARE_IDS_WANTED.load(Ordering::Relaxed) && !sandbox::is_entered() {
        find_thread_ids();
    }
    let (noted, id) = (slot.id.load(Ordering::Relaxed), thread_id(thread, THREAD_ID_AT.load(Ordering::Relaxed)));
    if noted == thread as u32 {
        // Noted before the ids were found. The thread is the same, and may be inside of a call.
        slot.id.store(id, Ordering::Relaxed);
    } else if noted != id {
        slot.change_thread(id);
    }
    slot
}

/// True if there is a slot for the calling thread.
pub fn has_slot() -> bool {
    find(arch::thread_pointer()).is_some()
}

/// Finds where the C library keeps the kernel's ids of threads. Call inside of a call of a
/// redirected entry. In a child of vfork(2) nothing is found, because the descriptor has the
/// parent's id: then [`enter`] tries again in the next new thread. Sources: `struct pthread` of
/// musl 1.2 (the id follows six words), and of glibc from 2.11 on (the id follows the head of 704
/// bytes and two words).
pub fn find_thread_ids() {
    let found = own_id_at();
    ARE_IDS_WANTED.store(found.is_none(), Ordering::Relaxed);
    if let Some(distance) = found {
        current().id.store(sys::thread_id(), Ordering::Relaxed);
        THREAD_ID_AT.store(distance, Ordering::Relaxed);
    }
}

/// True if the calling thread's descriptor has its id. That of a child of vfork(2) has its
/// parent's.
pub fn has_own_thread_id() -> bool {
    own_id_at().is_some()
}

/// Returns the end of a stack on which the calling thread is to make a call of execve(2); 0 if that
/// is to be its own, where `stack_pointer` leads.
///
/// A child of vfork(2) gets another stack: musl's posix_spawn(3) runs one on a small stack. It has
/// the thread pointer of the thread that made it, and so the memory that this thread keeps. The
/// thread does not run meanwhile.
pub fn exec_stack(stack_pointer: usize) -> usize {
    let thread = arch::thread_pointer();
    let is_vfork_child = match THREAD_ID_AT.load(Ordering::Relaxed) {
        0 => !has_own_thread_id(),
        at => thread_id(thread, at) != sys::thread_id(),
    };
    let Some(slot) = find(thread).filter(|_| is_vfork_child) else { return 0 };
    let mut stack = slot.exec_stack.load(Ordering::Relaxed);
    if stack == 0 {
        let Ok(mapped) = sys::map_private(EXEC_STACK_LENGTH) else { return 0 };
        stack = mapped.expose_provenance();
        slot.exec_stack.store(stack, Ordering::Relaxed);
    }
    // A signal handler has interrupted such a call.
    if (stack..stack + EXEC_STACK_LENGTH).contains(&stack_pointer) { 0 } else { stack + EXEC_STACK_LENGTH }
}

/// Returns the distance from the thread pointer to the id of the calling thread.
fn own_id_at() -> Option<usize> {
    const OF_MUSL: usize = 0x30;
    const OF_GLIBC: usize = 0x2d0;
    let (thread, own) = (arch::thread_pointer(), sys::thread_id());
    let is_at = |distance: &usize| {
        let mut word = [0];
        // By the kernel: a small descriptor of a thread may end before that.
        let read = sys::read_own_pieces(&[[thread.wrapping_add(*distance) as u64, 8]], &mut word);
        read == 8 && word[0] as u32 == own
    };
    [OF_MUSL, OF_GLIBC].into_iter().find(is_at)
}

/// Returns the word at a distance from the thread pointer.
fn thread_id(thread: usize, distance: usize) -> u32 {
    // SAFETY: `read` requires a readable, aligned word: `distance` is 0 for the thread pointer
    // itself, or was found to be that of the id in the first thread, and the C library's
    // descriptors of all threads have one layout. Both distances are multiples of 8, and so is the
    // pointer. Volatile, since the C library writes it.
    unsafe { ptr::with_exposed_provenance::<u32>(thread.wrapping_add(distance)).read_volatile() }
}

/// Returns the index of the first slot that may be a thread's: a hash of the lower half of the
/// thread pointer, by which threads differ.
#[inline(always)]
fn index(thread: usize) -> usize {
    ((thread as u32).wrapping_mul(MULTIPLIER.cast_unsigned()) >> (32 - SLOTS_BITS)) as usize
}

/// Finds the slot of a thread, or takes a free one. `None` if there is none nearby.
#[cold]
fn find(thread: usize) -> Option<&'static ThreadSlot> {
    let start = index(thread);
    (0..PROBES_MAX).filter_map(|step| TABLE.get((start + step) % SLOTS)).find(|slot| {
        // An exchange takes the line from other threads even if it fails.
        let owner = slot.thread.load(Ordering::Relaxed);
        if owner != 0 {
            return owner == thread;
        }
        match slot.thread.compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                if TAKEN.fetch_add(1, Ordering::Relaxed) > 0 {
                    // Before the thread frees a block, whose next owner synchronises with it.
                    HAS_ONE_THREAD.store(0, Ordering::Release);
                }
                true
            }
            Err(owner) => owner == thread,
        }
    })
}
