//! Start: at the first call of a redirected entry.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use heapledger_core::allocator::{AllocatorKind, AllocatorVersion};
use heapledger_core::hooks::{self, Observer, dispatch_path};
use heapledger_core::{sandbox, sys, thread_slots};
use heapledger_recorder::block::ThreadBlock;
use heapledger_recorder::connect::{self, Address};
use heapledger_recorder::hook::sample;
use heapledger_recorder::{observer, process, session, threads};
use heapledger_unwind::modules::{self, Listed};
use heapledger_wire::placed::Parameters;

/// The parameters, which the tool writes.
pub(crate) struct ParametersCell(UnsafeCell<Parameters>);
// SAFETY: written by the tool only, before any code of this library runs.
unsafe impl Sync for ParametersCell {}

pub(crate) static PARAMETERS: ParametersCell = ParametersCell(UnsafeCell::new(Parameters::NONE));

/// The process, in the upper half, and the thread that starts, or has started; 0 before.
static STARTER: AtomicU64 = AtomicU64::new(0);

/// True once a thread of this process, or of one that it was forked from, has begun to join the
/// session: so the C library has set its thread-local storage up, without which there is no thread
/// pointer.
pub(crate) fn has_begun() -> bool {
    STARTER.load(Ordering::Acquire) != 0
}

/// Returns the address of the session, if this process has not begun to join it, and is a child of
/// vfork(2): the recorder would take it for its parent, whose memory it uses.
pub(crate) fn session_to_be_joined() -> Option<Address> {
    if has_begun() || thread_slots::has_own_thread_id() {
        return None;
    }
    // Volatile, since the compiler does not know that the tool has written them.
    // SAFETY: a static of ours, which nobody writes any more.
    let parameters = unsafe { PARAMETERS.0.get().read_volatile() };
    Address::parse(parameters.address())
}

/// Returns `r_state` of the dynamic linker; `None` if it has none.
pub(crate) fn linker_state() -> Option<u32> {
    // Volatile, since the compiler does not know that the tool has written them.
    // SAFETY: a static of ours, which nobody writes any more.
    let at = unsafe { (&raw const (*PARAMETERS.0.get()).linker_state).read_volatile() };
    // SAFETY: 0, or the address of an integer of the dynamic linker, which stays, and which the
    // calling thread alone changes: it is in the linker, which has called.
    (at != 0).then(|| unsafe { core::ptr::with_exposed_provenance::<u32>(at as usize).read_volatile() })
}

/// Joins the session, at the first call of a redirected entry; other threads wait until it is done.
///
/// A child that is forked meanwhile has no thread that would end it: its calls are passed through.
#[unsafe(no_mangle)]
pub extern "Rust" fn heapledger_placed_starts() {
    if sandbox::is_entered() && !has_begun() {
        // A child of vfork(2) has entered it. The session cannot be joined.
        return dispatch_path::set_initialised();
    }
    let own = u64::from(sys::process_id()) << 32 | u64::from(sys::thread_id());
    while let Err(starter) = STARTER.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
        if starter >> 32 != own >> 32 {
            return dispatch_path::set_initialised();
        }
        // A signal handler on another stack has interrupted the start.
        if starter == own || dispatch_path::is_initialised() {
            return;
        }
        // Nobody wakes this word: a wait is a millisecond, unless a signal ends it.
        sys::futex_wait(&AtomicU32::new(0), 0, Some(1));
    }
    // Volatile, since the compiler does not know that the tool has written them.
    // SAFETY: a static of ours, which nobody writes any more.
    let parameters = unsafe { PARAMETERS.0.get().read_volatile() };
    thread_slots::find_thread_ids();
    // SAFETY: a static, which becomes 0 when a second thread calls a redirected entry: a thread
    // that has not called one can have freed no block.
    unsafe { threads::watch_threads(thread_slots::HAS_ONE_THREAD.as_ptr()) };
    for module in parameters.modules() {
        let (start, end, bias) = (module.start, module.end, module.bias);
        let listed = Listed { start, end, bias, eh_frame_hdr: module.eh_frame_hdr, name: core::ptr::null() };
        // SAFETY: `list` requires the description of a mapped module that stays: the tool has made
        // it from the program's own headers, and a program's own file is never unmapped.
        unsafe { modules::list(listed) };
    }
    if let Some(address) = Address::parse(parameters.address()) {
        join(address, &parameters);
    }
    let [start, end] = parameters.own_code;
    heapledger_redirect::set_own_code(start, end);
    heapledger_redirect::activate();
    dispatch_path::set_initialised();
}

fn join(address: Address, parameters: &Parameters) {
    let observer: *const Observer = if address.samples() {
        dispatch_path::set_sampling(&sample::OBSERVER, dispatch_path::EXTERNAL_RATE);
        &raw const sample::OBSERVER
    } else if address.wants_usable() {
        &raw const observer::OBSERVER_WITH_USABLE
    } else {
        &raw const observer::OBSERVER
    };
    let kind = AllocatorKind::from_number(parameters.allocator as u32);
    connect::set_allocator(kind, AllocatorVersion::default());
    connect::set_entries_missed(parameters.entries_missed);
    heapledger_thread::watch_slots::<ThreadBlock>();
    // SAFETY: `start` requires that this is the first call: the caller is the only one that has set
    // `STARTER`. The first thread's stack began at `stack_top`.
    unsafe { process::start(address, parameters.stack_top, parameters.is_late != 0) };
    session::start_usable();
    // SAFETY: a table of ours, whose functions keep the contract.
    let _ = unsafe { hooks::install_observer(observer) };
}
