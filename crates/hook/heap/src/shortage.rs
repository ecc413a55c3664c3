//! The policy for requests that the system refuses: give memory back, ask the embedder, wait.
//!
//! It runs where an allocation would return null, in the thread that allocates, without a lock: the
//! other threads go on meanwhile, and may free memory. Each step is followed by an attempt:
//!
//! 1. Everything that is free in the allocator returns to the system.
//! 2. The embedder's handler is called, which may free memory.
//! 3. If the [cause](ShortageCause) may pass, the thread waits and tries, as [`StallSpecs`] say. A
//!    request beyond the limit of the options is not waited for: no other process can help.
//!
//! A process that has waited in vain does not wait again for nine times as long. So programs that
//! probe how much memory they can have spend at most a tenth of their time here.

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use heapledger_core::arch::nr;
use heapledger_core::{sandbox, sys};

use crate::limits::{self, ShortageCause};
use crate::stall::StallSpecs;
use crate::{mapped_limit, os};

/// A function of the embedder that is called with the bytes that the system has refused. It frees
/// memory, and returns 0 if it could not.
///
/// It may allocate and free. Its own allocations fail at once if there is no memory. It must not
/// wait for locks that the thread holds where it allocates, and must return: no exception and no
/// `longjmp` may leave it.
pub type LowMemoryHandler = extern "C" fn(size: usize) -> c_int;

/// The number of requests that the system, or the limit of the options, refused at first, by their
/// ends, since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shortages {
    /// Requests that succeeded after free memory was given back.
    pub after_purge: usize,
    /// Requests that succeeded after the handler had freed memory.
    pub after_handler: usize,
    /// Requests that succeeded after waiting.
    pub after_stall: usize,
    /// Requests that failed, without waiting.
    pub failed_at_once: usize,
    /// Requests that failed after waiting.
    pub failed_after_stall: usize,
    /// The cause of the latest refusal that was examined.
    pub last_cause: Option<ShortageCause>,
    /// The bytes of addresses that could not be unmapped, because the process has too many
    /// mappings. They have no memory.
    pub left_mapped_bytes: usize,
}

/// The ends of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    AfterPurge,
    AfterHandler,
    AfterStall,
    FailedAtOnce,
    FailedAfterStall,
}

const ENDS: usize = 5;
static COUNTS: [AtomicUsize; ENDS] = [const { AtomicUsize::new(0) }; ENDS];
static LAST_CAUSE: AtomicU32 = AtomicU32::new(0);
/// The causes, in the order of their numbers in [`LAST_CAUSE`], from 1.
const CAUSES: [ShortageCause; 10] = [
    ShortageCause::TooLarge,
    ShortageCause::AddressSpace(false),
    ShortageCause::AddressSpace(true),
    ShortageCause::Data(false),
    ShortageCause::Data(true),
    ShortageCause::Mappings,
    ShortageCause::Commit,
    ShortageCause::Group,
    ShortageCause::Refused,
    ShortageCause::Unknown,
];

/// The attempts and milliseconds of the process's [`StallSpecs`], in the upper and lower half.
static SPECS: AtomicU64 = AtomicU64::new(packed(StallSpecs::MAIN));
/// The time of the monotonic clock before which nobody waits, in nanoseconds.
static NO_STALL_BEFORE: AtomicU64 = AtomicU64::new(0);
/// The multiple of a vain wait during which nobody waits again.
const REST: u64 = 9;

/// The embedder's handler, null if there is none.
static HANDLER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
/// The number of the thread that is in the handler, 0 if none is.
static IN_HANDLER: AtomicU32 = AtomicU32::new(0);
/// True if a thread forks in the handler.
static IS_FORKED_IN_HANDLER: AtomicBool = AtomicBool::new(false);

/// True if the process has had a filter for system calls when it began, as containers have.
static FILTERED_AT_START: AtomicU32 = AtomicU32::new(0);

const fn packed(specs: StallSpecs) -> u64 {
    (specs.attempts_max as u64) << 32 | specs.delay_milliseconds as u64
}

/// Sets how the process waits for memory that the system refuses. Returns the specifications that
/// it replaces; they begin as [`StallSpecs::MAIN`].
pub fn set_stall(specs: StallSpecs) -> StallSpecs {
    let before = SPECS.swap(packed(specs), Ordering::Relaxed);
    StallSpecs { attempts_max: (before >> 32) as u32, delay_milliseconds: before as u32 }
}

fn stall_specs() -> StallSpecs {
    let specs = SPECS.load(Ordering::Relaxed);
    StallSpecs { attempts_max: (specs >> 32) as u32, delay_milliseconds: specs as u32 }
}

/// Sets the function that is called when the system has refused memory, or removes it. One thread
/// at a time calls it; a thread that is refused memory meanwhile goes on without.
pub fn set_low_memory_handler(handler: Option<LowMemoryHandler>) {
    let address = handler.map_or(ptr::null_mut(), |handler| handler as *mut ());
    HANDLER.store(address, Ordering::Release);
}

/// Returns the numbers of requests that the system has refused at first.
pub fn shortages() -> Shortages {
    let count = |end: End| COUNTS[end as usize].load(Ordering::Relaxed);
    Shortages {
        after_purge: count(End::AfterPurge),
        after_handler: count(End::AfterHandler),
        after_stall: count(End::AfterStall),
        failed_at_once: count(End::FailedAtOnce),
        failed_after_stall: count(End::FailedAfterStall),
        last_cause: (LAST_CAUSE.load(Ordering::Relaxed) as usize).checked_sub(1).and_then(|at| CAUSES.get(at).copied()),
        left_mapped_bytes: os::left_mapped_bytes(),
    }
}

/// Notes that the process begins.
pub(crate) fn start() {
    FILTERED_AT_START.store(u32::from(is_filtered()), Ordering::Relaxed);
}

/// True if system calls of this thread are filtered.
fn is_filtered() -> bool {
    const PR_GET_SECCOMP: usize = 21;
    // SAFETY: PR_GET_SECCOMP takes no pointers and changes nothing.
    unsafe { sys::call(nr::PRCTL, [PR_GET_SECCOMP, 0, 0, 0, 0, 0]) != 0 }
}

/// True if the program has put itself in a sandbox, which may kill it for opening a file. A filter
/// that was there at the start lets programs start, so it allows that.
fn is_sandboxed() -> bool {
    sandbox::is_entered() || (FILTERED_AT_START.load(Ordering::Relaxed) == 0 && is_filtered())
}

/// Makes an attempt again that has failed for lack of memory: see the module. Returns true if it
/// succeeds. `size` is the number of bytes that the program asked for. `purge` returns free memory
/// to the system.
#[cold]
#[inline(never)]
pub(crate) fn retry(size: usize, purge: fn() -> usize, attempt: &mut dyn FnMut() -> bool) -> bool {
    let (error, length) = os::last_refusal();
    let is_over_limit = length == 0 && error == mapped_limit::EXCEEDED;
    if length == 0 && !is_over_limit {
        // An arena's limit, or its functions for chunks: the arena has made room already.
        return count(End::FailedAtOnce);
    }
    if limits::is_too_long(size.max(length)) {
        return count(End::FailedAtOnce);
    }
    let thread = sys::thread_id().max(1);
    if IN_HANDLER.load(Ordering::Relaxed) == thread {
        return false;
    }
    // Also if it returned nothing that counts: chunks without content were unmapped, too.
    purge();
    if attempt() {
        return count(End::AfterPurge);
    }
    if handle(size, thread) && attempt() {
        return count(End::AfterHandler);
    }
    if is_over_limit || is_sandboxed() {
        return count(End::FailedAtOnce);
    }
    let cause = limits::cause_of(error, length);
    let number = CAUSES.iter().position(|&each| each == cause).map_or(0, |at| at as u32 + 1);
    LAST_CAUSE.store(number, Ordering::Relaxed);
    let begin = sys::monotonic_nanoseconds();
    let specs = stall_specs();
    if !cause.may_pass() || specs.attempts_max == 0 || begin < NO_STALL_BEFORE.load(Ordering::Relaxed) {
        return count(End::FailedAtOnce);
    }
    if specs.stall_and_retry(sleep, || attempt().then_some(())).is_some() {
        return count(End::AfterStall);
    }
    let end = sys::monotonic_nanoseconds();
    NO_STALL_BEFORE.fetch_max(end.saturating_add(end.saturating_sub(begin).saturating_mul(REST)), Ordering::Relaxed);
    count(End::FailedAfterStall)
}

/// Counts a request. Returns true if it succeeded.
fn count(end: End) -> bool {
    COUNTS[end as usize].fetch_add(1, Ordering::Relaxed);
    matches!(end, End::AfterPurge | End::AfterHandler | End::AfterStall)
}

/// Calls the embedder's handler. True if it says that it has freed memory.
fn handle(size: usize, thread: u32) -> bool {
    let handler = HANDLER.load(Ordering::Acquire);
    if handler.is_null() || IN_HANDLER.compare_exchange(0, thread, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return false;
    }
    // SAFETY: `transmute` demands a valid function pointer: the address is not null, and
    // `set_low_memory_handler` stores those of functions of this type.
    let handler = unsafe { core::mem::transmute::<*mut (), LowMemoryHandler>(handler) };
    let has_freed = os::with_errno_kept(|| handler(size)) != 0;
    IN_HANDLER.store(0, Ordering::Release);
    has_freed
}

/// Waits. Signals do not make it shorter, because the program's handlers run meanwhile.
fn sleep(milliseconds: u32) {
    let wait = u64::from(milliseconds) * 1_000_000;
    let until = sys::monotonic_nanoseconds().saturating_add(wait);
    // Nobody wakes this word.
    let word = AtomicU32::new(0);
    loop {
        let left = until.saturating_sub(sys::monotonic_nanoseconds());
        if left == 0 || sandbox::is_entered() {
            return;
        }
        sys::futex_wait(&word, 0, Some((left / 1_000_000).max(1) as u32));
    }
}

/// Notes if the thread that is about to fork is in the handler. No other thread forks meanwhile.
pub(crate) fn before_fork() {
    let in_handler = IN_HANDLER.load(Ordering::Relaxed);
    IS_FORKED_IN_HANDLER.store(in_handler != 0 && in_handler == sys::thread_id(), Ordering::Relaxed);
}

/// Notes in the child of a fork that its thread is in the handler, or that nobody is.
pub(crate) fn after_fork() {
    let in_handler = if IS_FORKED_IN_HANDLER.load(Ordering::Relaxed) { sys::thread_id().max(1) } else { 0 };
    IN_HANDLER.store(in_handler, Ordering::Relaxed);
}
