//! The program's environment.

use core::ffi::{CStr, c_char};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use heapledger_interpose::next::{Objects, Scope};

/// An environment block: pointers to strings, up to a null pointer.
pub(crate) type Environment = *const *const c_char;

/// The address of the variable `environ`.
static ENVIRON: AtomicUsize = AtomicUsize::new(0);

/// Looks up the variable `environ`. Called once, at start.
pub(crate) fn look_up(objects: &Objects<'_>) {
    // A program may have its own copy of the variable, made by the linker.
    ENVIRON.store(objects.lookup(Scope::All, c"__environ"), Ordering::Release);
}

/// Returns the program's environment as it is now.
pub(crate) fn environ() -> Environment {
    let variable = ptr::with_exposed_provenance::<Environment>(ENVIRON.load(Ordering::Acquire));
    // SAFETY: `as_ref` requires null or a live pointer: `look_up` stored 0 or the address of the C
    // library's `__environ`, which stays. The program must not change it in another thread
    // meanwhile (POSIX).
    unsafe { variable.as_ref() }.map_or(ptr::null(), |environment| *environment)
}

/// Visits the entries of an environment.
pub(crate) fn for_each<'a>(environment: Environment, mut visit: impl FnMut(&'a [u8])) {
    let mut at = environment;
    // SAFETY: an environment block, or null: strings up to a null pointer.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            visit(CStr::from_ptr(*at).to_bytes());
            at = at.add(1);
        }
    }
}

/// Returns the auxiliary vector that the kernel has made. `start` is the address of the argument
/// count.
///
/// # Safety
///
/// `start` is that address, and nothing has been taken out of the environment yet.
pub(crate) unsafe fn auxiliary_vector(start: *const u64) -> *const [u64; 2] {
    // SAFETY: the layout of a new process's stack (System V psABI): argc, argv, null, envp, null,
    // auxiliary vector.
    unsafe {
        let mut at = start.add(1 + *start as usize + 1);
        while *at != 0 {
            at = at.add(1);
        }
        at.add(1).cast()
    }
}
