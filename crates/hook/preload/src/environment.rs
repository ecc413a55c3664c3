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

/// Returns the address of the argument count, at which the first thread's stack began, as glibc
/// knows it; null in another C library.
pub(crate) fn initial_stack_of_glibc() -> *mut u64 {
    let variable = ptr::with_exposed_provenance::<*mut u64>(heapledger_core::weak_address!("__libc_stack_end"));
    // SAFETY: `as_ref` requires null or a live pointer: 0, or the address of glibc's variable,
    // which its dynamic linker sets before any object's code runs, and which is constant since.
    unsafe { variable.as_ref() }.map_or(ptr::null_mut(), |start| *start)
}

/// Returns the address of the argument count, at which the first thread's stack began; null if it
/// is not found. Call before the program can change its environment, in the first thread.
///
/// In musl it is found from `environ`, which lies behind the arguments: the count is the only word
/// before them that is equal to the number of words in between, since those are addresses.
pub(crate) fn initial_stack() -> *mut u64 {
    /// The largest number of arguments: the kernel's limit is a quarter of the stack.
    const ARGUMENTS_MAX: usize = 1 << 20;
    let of_glibc = initial_stack_of_glibc();
    if !of_glibc.is_null() {
        return of_glibc;
    }
    let environment = environ().cast::<u64>().cast_mut();
    // An array that a constructor has made is elsewhere: the stack is above all other memory.
    let here = &raw const environment;
    if environment.addr() <= here.addr() {
        return ptr::null_mut();
    }
    // SAFETY: the kernel has put the arguments, a null word and the environment one behind the
    // other, above this function's frame; the count stops the loop before its first word.
    unsafe {
        if environment.sub(1).read() != 0 {
            return ptr::null_mut();
        }
        (0..ARGUMENTS_MAX)
            .map(|count| (count, environment.sub(2 + count)))
            .take_while(|&(_, at)| at.addr() > here.addr())
            .find(|&(count, at)| at.read() == count as u64)
            .map_or(ptr::null_mut(), |(_, at)| at)
    }
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
