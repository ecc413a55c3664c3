//! Redirects the entry points of allocators that are linked into the program or its libraries,
//! before anything can call them.
//!
//! Constructors are too late: those of libraries behind this one run before ours, and they may call
//! a `malloc` that the program itself exports. But the dynamic linker has already mapped every
//! module when it relocates them, and it runs one kind of code meanwhile: the resolver of an
//! indirect function. So there is a pointer to an indirect function in our data, whose resolver
//! redirects.
//!
//! The linker resolves such functions after all other relocations of a library, and relocates the
//! program's modules from the last to the first. So our own data and the C library can be used
//! then. Thread-local storage cannot: the linker initializes it later, and nothing here needs it.
//!
//! musl's dynamic linker knows no indirect functions, and would not start the program. For its
//! programs, the recorder removes the pointer's relocation from its copy of the library: then no
//! entry is redirected, and everything else is as usual.

use heapledger_interpose::initialise;
use heapledger_interpose::next::Objects;
use heapledger_recorder::connect::{self, Address, elsewhere};
use heapledger_redirect::{install, set_start, thunk_address};

use crate::environment::{Environment, for_each, initial_stack_of_glibc};
use crate::later;

const SESSION: &[u8] = b"HEAPLEDGER_SESSION=";

core::arch::global_asm!(
    ".pushsection .data.rel.ro.heapledger_redirection,\"aw\",@progbits",
    ".p2align 3",
    ".globl heapledger_redirection",
    ".hidden heapledger_redirection",
    ".type heapledger_redirection, @object",
    ".size heapledger_redirection, 8",
    "heapledger_redirection:",
    ".quad heapledger_redirect",
    ".popsection",
    ".globl heapledger_redirect",
    ".hidden heapledger_redirect",
    ".type heapledger_redirect, @gnu_indirect_function",
    ".set heapledger_redirect, {resolve}",
    resolve = sym resolve,
);

unsafe extern "C" {
    /// The address of the indirect function: what [`resolve`] has returned.
    static heapledger_redirection: usize;
}

/// Keeps the pointer in the library: the linker removes data that nobody refers to.
pub(crate) fn keep() {
    // SAFETY: a word of ours, written by the dynamic linker before any code runs.
    unsafe { (&raw const heapledger_redirection).read_volatile() };
}

/// Redirects entries. The result is never called.
extern "C" fn resolve() -> *const () {
    let start = initial_stack_of_glibc();
    if !start.is_null() {
        // SAFETY: that is the block of arguments and environment as the kernel laid it out.
        unsafe { redirect(start) };
    }
    resolve as *const ()
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
    // SAFETY: `at_start` requires that nobody loads or unloads an object meanwhile: the only thread
    // is here, by this function's `# Safety`.
    elsewhere::set_library(unsafe { Objects::at_start() }.own_path());
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
