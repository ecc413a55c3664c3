//! Start: at the first call of a redirected entry.

use core::cell::UnsafeCell;

use heapledger_core::allocator::{AllocatorKind, AllocatorVersion};
use heapledger_core::hooks::{self, Observer, dispatch_path};
use heapledger_core::lock::Lock;
use heapledger_core::thread_slots;
use heapledger_recorder::block::ThreadBlock;
use heapledger_recorder::connect::{self, Address};
use heapledger_recorder::hook::sample;
use heapledger_recorder::{observer, process, session};
use heapledger_unwind::modules::{self, Listed};
use heapledger_wire::VERSION;
use heapledger_wire::placed::{Description, Parameters};

/// The parameters, which the tool writes.
struct ParametersCell(UnsafeCell<Parameters>);
// SAFETY: written by the tool only, before any code of this library runs.
unsafe impl Sync for ParametersCell {}

#[used]
static PARAMETERS: ParametersCell = ParametersCell(UnsafeCell::new(Parameters::NONE));

/// The description by which the tool finds all else.
#[unsafe(no_mangle)]
#[used]
pub static heapledger_placed: Description = Description {
    version: VERSION as u64,
    thunk: heapledger_redirect::THUNK,
    parameters: (&raw const PARAMETERS).cast(),
    exec: crate::exec::THUNK,
};

/// Joins the session, at the first call of a redirected entry; other threads wait until it is done.
#[unsafe(no_mangle)]
pub extern "Rust" fn heapledger_placed_starts() {
    static LOCK: Lock = Lock::new();
    let _lock = LOCK.lock();
    if dispatch_path::is_initialised() {
        return;
    }
    // Volatile, since the compiler does not know that the tool has written them.
    // SAFETY: a static of ours, which nobody writes any more.
    let parameters = unsafe { PARAMETERS.0.get().read_volatile() };
    thread_slots::find_thread_ids();
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
    // SAFETY: `start` requires that this is the first call: the caller holds a lock, and has found
    // that nothing has been initialised. The first thread's stack began at `stack_top`.
    unsafe { process::start(address, parameters.stack_top, parameters.is_late != 0) };
    session::start_usable();
    // SAFETY: a table of ours, whose functions keep the contract.
    let _ = unsafe { hooks::install_observer(observer) };
}
