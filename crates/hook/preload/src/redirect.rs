//! Redirects the entry points of allocators that are linked into the program or its libraries,
//! before anything can call them.
//!
//! Constructors are too late: those of libraries behind this one run before ours, and they may call
//! a `malloc` that the program itself exports. But the dynamic linker has already mapped every
//! module when it relocates them, and it runs one kind of code meanwhile: the resolver of an
//! indirect function. So the entry of our constructor in `.init_array` is an indirect function. Its
//! resolver redirects, and returns the address of the constructor.
//!
//! The linker resolves such functions after all other relocations of a library, and relocates the
//! program's modules from the last to the first. So our own data and the C library can be used
//! then. Thread-local storage cannot: the linker initializes it later, and nothing here needs it.

use heapledger_interpose::initialise;
use heapledger_recorder::connect::{self, Address};
use heapledger_redirect::{install, set_start, thunk_address};

use crate::environment::{Environment, for_each};
use crate::{init, later};

const SESSION: &[u8] = b"HEAPLEDGER_SESSION=";

unsafe extern "C" {
    /// The address of the argument count: see `init`.
    static __libc_stack_end: *mut u64;
}

core::arch::global_asm!(
    ".pushsection .init_array,\"aw\",@init_array",
    ".p2align 3",
    ".quad heapledger_constructor",
    ".popsection",
    ".globl heapledger_constructor",
    ".hidden heapledger_constructor",
    ".type heapledger_constructor, @gnu_indirect_function",
    ".set heapledger_constructor, {resolve}",
    resolve = sym resolve,
);

/// Redirects entries, and returns the address of the constructor.
extern "C" fn resolve() -> *const () {
    // SAFETY: set by the dynamic linker before any object's code runs, and constant since.
    let start = unsafe { __libc_stack_end };
    if !start.is_null() {
        // SAFETY: that is the block of arguments and environment as the kernel laid it out.
        unsafe { redirect(start) };
    }
    init::constructor as *const ()
}

/// Redirects entries as the recorder says, if the environment names a session.
///
/// # Safety
///
/// The process has one thread, which is in the dynamic linker; `start` is the address of the
/// argument count.
unsafe fn redirect(start: *mut u64) {
    // SAFETY: the layout of a new process's stack (System V psABI): argc, argv, null, envp, null.
    let environment: Environment = unsafe { start.add(1 + *start as usize + 1) }.cast();
    let mut address = None;
    for_each(environment, |entry| address = address.or(entry.strip_prefix(SESSION).and_then(Address::parse)));
    // In a session whose recorder is stalled, the address has a note and is not taken: this program
    // cannot wait for a plan.
    let Some(address) = address else { return };
    set_start(initialise);
    // A program without a plan is recorded as far as that goes without; the recorder says so.
    connect::request_entries(&address, thunk_address(), |file, length| {
        // SAFETY: `install` requires a plan for this process, which the recorder has made while
        // this thread, the only one, waited; and a thread that is in no entry: it is in the dynamic
        // linker, before any constructor.
        unsafe { install(file, length) }
    });
    // SAFETY: `watch` requires one thread, which is in the dynamic linker, on behalf of which this
    // code runs: this function's `# Safety`, and the caller is a resolver.
    unsafe { later::watch() };
}
