//! `sigaction`, `signal` and its relatives in front of the C library's: for the signals of faults,
//! the program's action is kept, and our handler stays in front of it.

use core::ffi::{CStr, c_int, c_void};
use core::mem;
use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_core::arch::nr;
use heapledger_core::sys;
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
static NEXT_SIGACTION: AtomicUsize = AtomicUsize::new(0);

/// The functions of the type of `signal`.
const LIKE_SIGNAL: [&CStr; 6] = [c"signal", c"bsd_signal", c"ssignal", c"sysv_signal", c"__sysv_signal", c"sigset"];
static NEXT_OF_SIGNAL: [AtomicUsize; LIKE_SIGNAL.len()] = [const { AtomicUsize::new(0) }; LIKE_SIGNAL.len()];

/// Finds the C library's functions.
pub(crate) fn look_up(objects: &Objects<'_>) {
    NEXT_SIGACTION.store(objects.lookup(Scope::Next, SIGACTION), Ordering::Release);
    for (cached, name) in NEXT_OF_SIGNAL.iter().zip(LIKE_SIGNAL) {
        cached.store(objects.lookup(Scope::Next, name), Ordering::Release);
    }
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

const SIG_ERR: usize = usize::MAX;

/// Sets the action of a signal for which our handler is in front. Returns the handler of the former
/// one; `None` if the C library is to do that.
fn set(signal: c_int, handler: usize, flags: u64, mask: u64) -> Option<usize> {
    if !handles(signal) || handler == SIG_ERR {
        return None;
    }
    set_program_action(signal, Some(SignalAction { handler, flags, restorer: 0, mask })).map(|before| before.handler)
}

/// Calls the next definition of a function of the type of `signal`.
///
/// # Safety
///
/// The arguments are those with which the program has called the function of [`LIKE_SIGNAL`] with
/// this index.
unsafe fn call_next(index: usize, signal: c_int, handler: usize) -> usize {
    let function = NEXT_OF_SIGNAL.get(index).zip(LIKE_SIGNAL.get(index));
    let address = function.map_or(0, |(cached, name)| next(cached, name));
    if address == 0 {
        return SIG_ERR;
    }
    // SAFETY: the address is that of the next definition of a function that has this type in the C
    // library. The arguments are the program's, by this function's `# Safety`.
    unsafe { mem::transmute::<usize, unsafe extern "C" fn(c_int, usize) -> usize>(address)(signal, handler) }
}

/// Defines functions of the type of `signal`: each with its index in [`LIKE_SIGNAL`], the flags of
/// its action, and the signals that are blocked while the handler runs.
macro_rules! signals {
    ($($name:ident, $index:literal, $flags:expr, $mask:expr;)*) => {
        $(
            /// The C function of this name.
            ///
            /// # Safety
            ///
            /// The contract of the C function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(signal: c_int, handler: usize) -> usize {
                set(signal, handler, $flags, $mask(signal)).unwrap_or_else(|| {
                    // SAFETY: the program has called the function with this index, with these
                    // arguments.
                    unsafe { call_next($index, signal, handler) }
                })
            }
        )*
    };
}

const SA_RESTART: u64 = 0x1000_0000;
const SA_NODEFER: u64 = 0x4000_0000;
const SA_RESETHAND: u64 = 0x8000_0000;

/// Returns the set that contains a signal for which our handler is in front; else an empty one.
fn only(signal: c_int) -> u64 {
    u32::try_from(signal - 1).ok().and_then(|bit| 1_u64.checked_shl(bit)).unwrap_or(0)
}

fn nothing(_: c_int) -> u64 {
    0
}

// The semantics of BSD and of System V, as in signal(2). A program that is compiled for standard C
// (`-std=c11`) calls `__sysv_signal` when it says `signal`.
signals! {
    signal, 0, SA_RESTART, only;
    bsd_signal, 1, SA_RESTART, only;
    ssignal, 2, SA_RESTART, only;
    sysv_signal, 3, SA_RESETHAND | SA_NODEFER, nothing;
    __sysv_signal, 4, SA_RESETHAND | SA_NODEFER, nothing;
}

/// The C function of this name: the action of System V that also blocks and unblocks the signal.
///
/// # Safety
///
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigset(signal: c_int, handler: usize) -> usize {
    const SIG_HOLD: usize = 2;
    const SIG_BLOCK: usize = 0;
    const SIG_UNBLOCK: usize = 1;
    let former = match handler {
        SIG_HOLD if handles(signal) => set_program_action(signal, None).map(|before| before.handler),
        handler => set(signal, handler, 0, 0),
    };
    let Some(former) = former else {
        // SAFETY: the program has called the function with this index, with these arguments.
        return unsafe { call_next(5, signal, handler) };
    };
    let how = if handler == SIG_HOLD { SIG_BLOCK } else { SIG_UNBLOCK };
    let (set, mut before) = (only(signal), 0_u64);
    let (new, old) = ((&raw const set).expose_provenance(), (&raw mut before).expose_provenance());
    // SAFETY: the kernel reads one live signal set of 8 bytes and writes the other. The program has
    // asked for this mask.
    unsafe { sys::call(nr::RT_SIGPROCMASK, [how, new, old, size_of_val(&set), 0, 0]) };
    if before & set == 0 { former } else { SIG_HOLD }
}
