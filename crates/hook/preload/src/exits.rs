//! The exit of the program: after `main` and the functions that it registered with `atexit`, or by
//! `_exit`. A signal, and a call of `exit_group` by the program itself, are not seen.

use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_core::arch::{self, nr};
use heapledger_interpose::next::{Objects, Scope};
use heapledger_recorder::exit::process_exits;
use heapledger_recorder::session;

use crate::guard::with_guard;

/// The next definitions of the functions of these names.
static EXIT: AtomicUsize = AtomicUsize::new(0);
static EXIT_OF_C: AtomicUsize = AtomicUsize::new(0);

/// Looks up the functions that are called here. Once, at start.
pub(crate) fn look_up(objects: &Objects<'_>) {
    EXIT.store(objects.lookup(Scope::Next, c"_exit"), Ordering::Release);
    EXIT_OF_C.store(objects.lookup(Scope::Next, c"_Exit"), Ordering::Release);
}

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = notify;

/// Notifies the recorder of the exit.
extern "C" fn notify() {
    if session::is_on() {
        with_guard(process_exits);
    }
}

/// The C function of this name.
///
/// # Safety
///
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) {
    notify();
    // SAFETY: `exit_by` requires the contract of the C function: this function's `# Safety`.
    unsafe { exit_by(&EXIT, status) }
}

/// The C function of this name.
///
/// # Safety
///
/// The contract of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) {
    notify();
    // SAFETY: `exit_by` requires the contract of the C function: this function's `# Safety`.
    unsafe { exit_by(&EXIT_OF_C, status) }
}

/// Ends the process by the next definition of a function.
///
/// # Safety
///
/// The contract of `_exit`. `next` is one of this module's.
unsafe fn exit_by(next: &AtomicUsize, status: c_int) {
    let address = next.load(Ordering::Acquire);
    // SAFETY: `transmute` requires a value of the type: 0 is `None`, and `look_up` stores only
    // addresses of definitions of `_exit` and `_Exit`, which have this type.
    let next = unsafe { core::mem::transmute::<usize, Option<unsafe extern "C" fn(c_int)>>(address) };
    match next {
        // SAFETY: the next definition requires the contract of `_exit`: this function's `# Safety`.
        Some(next) => unsafe { next(status) },
        // SAFETY: `syscall` requires that pointers are valid, and that the call breaks no
        // assumption of other code. exit_group(2) takes no pointer, and no code of this process
        // runs after it, as the caller of `_exit` demands.
        None => _ = unsafe { arch::syscall(nr::EXIT_GROUP, [status as usize, 0, 0, 0, 0, 0]) },
    }
}
