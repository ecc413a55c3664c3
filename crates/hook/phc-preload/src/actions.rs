//! `sigaction` and `signal` in front of the C library's: for the signals of faults, the program's
//! action is kept, and our handler stays in front of it.

use core::ffi::{CStr, c_int, c_void};
use core::mem;
use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_dynsym::{Objects, Scope};
use heapledger_phc::{SignalAction, handles, set_program_action};

/// `struct sigaction` of the C library.
#[derive(Debug)]
#[repr(C)]
pub struct Action {
    handler: usize,
    mask: [u64; 16],
    flags: c_int,
    restorer: usize,
}

const SIGACTION: &CStr = c"sigaction";
const SIGNAL: &CStr = c"signal";
static NEXT_SIGACTION: AtomicUsize = AtomicUsize::new(0);
static NEXT_SIGNAL: AtomicUsize = AtomicUsize::new(0);

/// Finds the C library's functions.
pub(crate) fn look_up(objects: &Objects<'_>) {
    NEXT_SIGACTION.store(objects.lookup(Scope::Next, SIGACTION), Ordering::Release);
    NEXT_SIGNAL.store(objects.lookup(Scope::Next, SIGNAL), Ordering::Release);
}

/// Returns the address of the next definition of a function, while nobody loads a library.
fn next(cached: &AtomicUsize, name: &CStr) -> usize {
    unsafe extern "C" {
        /// Calls back with each object, while it holds the dynamic linker's lock of the list.
        fn dl_iterate_phdr(
            callback: unsafe extern "C" fn(*mut c_void, usize, *mut c_void) -> c_int,
            data: *mut c_void,
        ) -> c_int;
    }
    match cached.load(Ordering::Acquire) {
        0 => {
            // SAFETY: `Objects::locked` requires the C library's `dl_iterate_phdr`. The declaration
            // above refers to that symbol, which no object but the C library is known to define.
            // The look-up waits for no other thread.
            let found = unsafe { Objects::locked(dl_iterate_phdr, |objects| objects.lookup(Scope::Next, name)) };
            found.unwrap_or(0)
        }
        address => address,
    }
}

/// The C function of this name.
///
/// # Safety
///
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    if handles(signal) {
        // SAFETY: null, or the program's structure, by the contract of the C function.
        let action = unsafe { new.as_ref() }.map(|new| SignalAction {
            handler: new.handler,
            flags: u64::from(new.flags.cast_unsigned()),
            restorer: 0,
            mask: new.mask[0],
        });
        if let Some(before) = set_program_action(signal, action) {
            // SAFETY: null, or the program's structure, by the contract of the C function.
            if let Some(old) = unsafe { old.as_mut() } {
                let SignalAction { handler, flags, restorer, mask } = before;
                let mut whole = [0; 16];
                whole[0] = mask;
                *old = Action { handler, mask: whole, flags: flags as c_int, restorer };
            }
            return 0;
        }
    }
    let address = next(&NEXT_SIGACTION, SIGACTION);
    if address == 0 {
        return -1;
    }
    type Function = unsafe extern "C" fn(c_int, *const Action, *mut Action) -> c_int;
    // SAFETY: the next definition of the function of this name, whose type this is, with the
    // program's own arguments.
    unsafe { mem::transmute::<usize, Function>(address)(signal, new, old) }
}

/// The C function of this name.
///
/// # Safety
///
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    const SA_RESTART: u64 = 0x1000_0000;
    const SIG_ERR: usize = usize::MAX;
    if handles(signal) && handler != SIG_ERR {
        // The semantics of BSD, as the C library's function has them.
        let mask = 1_u64 << (signal - 1);
        if let Some(before) =
            set_program_action(signal, Some(SignalAction { handler, flags: SA_RESTART, restorer: 0, mask }))
        {
            return before.handler;
        }
    }
    let address = next(&NEXT_SIGNAL, SIGNAL);
    if address == 0 {
        return SIG_ERR;
    }
    // SAFETY: the next definition of the function of this name, whose type this is, with the
    // program's own arguments.
    unsafe { mem::transmute::<usize, unsafe extern "C" fn(c_int, usize) -> usize>(address)(signal, handler) }
}
