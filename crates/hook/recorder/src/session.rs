//! The session as this process knows it: whether it records, how, and where the recorder is.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use heapledger_core::sys;
use heapledger_wire::session::SessionPage;

use crate::cell::CELL;
use crate::connect::{self, Address};

static STATE: AtomicU32 = AtomicU32::new(STATE_UNDECIDED);
const STATE_UNDECIDED: u32 = 0;
const STATE_ON: u32 = 1;
const STATE_OFF: u32 = 2;

/// True if the session records a sample.
static SAMPLES: AtomicBool = AtomicBool::new(false);

/// True if the session records usable sizes, and blocks of the program have such sizes: see
/// [`usable`](crate::usable).
static USABLE: AtomicU32 = AtomicU32::new(USABLE_NOT_YET);
const USABLE_NOT_YET: u32 = 0;
const USABLE_ON: u32 = 1;
const USABLE_STOPPED: u32 = 2;

struct AddressCell(UnsafeCell<MaybeUninit<Address>>);
// SAFETY: written in `join` only, while no thread is inside a session, before `STATE` becomes
// `STATE_ON`; and only read by threads that are, after they have seen that.
unsafe impl Sync for AddressCell {}
/// The address of the session, which is fixed as long as the process belongs to it.
static ADDRESS: AddressCell = AddressCell(UnsafeCell::new(MaybeUninit::uninit()));

static PAGE: AtomicPtr<SessionPage> = AtomicPtr::new(ptr::null_mut());
/// The inode of the network namespace at the start, in which the session is reached. 0 if unknown.
static NETWORK: AtomicU64 = AtomicU64::new(0);

/// True if the program ran before it joined the session.
static IS_LATE: AtomicBool = AtomicBool::new(false);

/// Keeps the address of the session. Recording is off until [`turn_on`] is called. `is_late` says
/// that the program ran before.
///
/// # Safety
///
/// No thread is inside a session until the next call of [`turn_on`].
pub(crate) unsafe fn join(address: Address, is_late: bool) {
    IS_LATE.store(is_late, Ordering::Relaxed);
    SAMPLES.store(address.samples(), Ordering::Relaxed);
    NETWORK.store(network().unwrap_or(0), Ordering::Relaxed);
    // SAFETY: nobody else refers to the cell: by this function's `# Safety` no thread is inside a
    // session, and `address` reads the cell only after `STATE_ON`, which `turn_on` stores later.
    unsafe { (*ADDRESS.0.get()).write(address) };
}

/// Switches recording on.
pub(crate) fn turn_on() {
    STATE.store(STATE_ON, Ordering::Release);
}

/// Switches recording off in this process, until it joins another session.
#[cold]
pub fn turn_off() {
    STATE.store(STATE_OFF, Ordering::SeqCst);
}

/// A `fn()`, or null.
static OVER_HANDLER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Calls `handler` whenever a call finds the session to be over.
pub(crate) fn on_over(handler: fn()) {
    OVER_HANDLER.store(handler as *mut (), Ordering::Release);
}

/// Handles that a call has found the session to be over.
#[cold]
pub(crate) fn notice_over() {
    let handler = OVER_HANDLER.load(Ordering::Acquire);
    if !handler.is_null() {
        // SAFETY: `transmute` requires that the pointer is a `fn()`. It is not null, and `on_over`,
        // which stores all others, makes them from a `fn()`.
        unsafe { core::mem::transmute::<*mut (), fn()>(handler)() };
    }
}

/// True if the program ran before it joined the session.
pub(crate) fn is_late() -> bool {
    IS_LATE.load(Ordering::Relaxed)
}

/// Forgets the session.
///
/// # Safety
///
/// No thread is inside the hook.
pub(crate) unsafe fn reset() {
    // Fails if it has been stopped: blocks of another allocator go on to come.
    let _ = USABLE.compare_exchange(USABLE_ON, USABLE_NOT_YET, Ordering::Relaxed, Ordering::Relaxed);
    if let Some(page) = known_page() {
        connect::forget_page(page);
    }
    PAGE.store(ptr::null_mut(), Ordering::Release);
    connect::forget_timeout();
}

/// True if recording is on, or may still become so.
#[inline]
pub fn is_on() -> bool {
    STATE.load(Ordering::Acquire) == STATE_ON
}

/// Returns the address of the session.
pub(crate) fn address() -> &'static Address {
    // SAFETY: hooks get here only after `is_on`, which reads what `turn_on` released after `join`
    // had written.
    unsafe { (*ADDRESS.0.get()).assume_init_ref() }
}

/// True if the session records a sample of all blocks, at any rate.
#[inline(always)]
pub fn samples() -> bool {
    SAMPLES.load(Ordering::Relaxed)
}

/// True if usable sizes are to be recorded.
#[inline(always)]
pub(crate) fn wants_usable() -> bool {
    USABLE.load(Ordering::Relaxed) == USABLE_ON
}

/// Records usable sizes from now on, if the session wants them. Call when the constructors of the
/// allocator's library have run: some allocators cannot be asked before (tcmalloc follows a null
/// pointer then).
pub fn start_usable() {
    if address().wants_usable() {
        // Fails if it has been stopped.
        let _ = USABLE.compare_exchange(USABLE_NOT_YET, USABLE_ON, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Records no usable sizes from now on: the allocator cannot be asked about every block any more.
pub fn stop_usable() {
    USABLE.store(USABLE_STOPPED, Ordering::Relaxed);
}

/// True if the collector is gone for good.
pub(crate) fn is_gone() -> bool {
    connect::is_gone(address())
}

/// Returns the session page. Call only while introduced.
#[inline(always)]
pub(crate) fn page() -> &'static SessionPage {
    // SAFETY: set before `introduced`, never unmapped; a forked child inherits the mapping.
    unsafe { &*PAGE.load(Ordering::Relaxed) }
}

/// Returns the session page, if this process or the one that forked it has been introduced. It
/// stays mapped when the session is over; then it reads as the page of another session, or of none.
#[inline(always)]
pub(crate) fn known_page() -> Option<&'static SessionPage> {
    // SAFETY: `as_ref` requires null or a live page: `PAGE` is null until `set_page` stores the
    // session page, which is never unmapped, and which a forked child inherits. Its fields are
    // atomic.
    unsafe { PAGE.load(Ordering::Relaxed).as_ref() }
}

/// Keeps the session page, which stays mapped.
pub(crate) fn set_page(page: NonNull<SessionPage>) {
    PAGE.store(page.as_ptr(), Ordering::Release);
    CELL.page_at.store(page.as_ptr().expose_provenance() as u64, Ordering::Release);
}

/// Returns the inode of the network namespace of the calling thread.
fn network() -> Option<u64> {
    sys::inode(c"/proc/thread-self/ns/net")
}

/// True if the calling thread is in another network namespace than the process was at its start: an
/// abstract socket is found in its own namespace only.
pub fn is_in_other_network() -> bool {
    let before = NETWORK.load(Ordering::Relaxed);
    before != 0 && network().is_some_and(|now| now != before)
}

/// True if the calling thread is in another network namespace than the process was at its start,
/// and the recorder cannot be reached from there.
pub fn is_in_other_network_out_of_reach() -> bool {
    is_in_other_network() && connect::is_gone(address())
}

#[cfg(test)]
mod tests;
