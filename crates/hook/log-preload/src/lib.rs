//! The hook library of `heapledger log record`: it writes a line for each call of the allocator, as
//! Mozilla's logalloc does, in every process that it is loaded into.
//!
//! - `observer` turns calls into lines. An allocation is logged after the call and a free before
//!   it, under one lock, so a block is never allocated in the log before it was freed. Only the end
//!   of a `realloc` is logged, as in logalloc: its old block may be somebody else's by then.
//! - `log` is where lines go: to the file of `log record` through a buffer that outlives the
//!   process, or, as logalloc's environment variables say, to a descriptor or a file.
//! - `fields` adds what logalloc's lines have no place for, if `log record` was asked for it.
//! - `statistics` are functions of the C library that ask its allocator for statistics: points that
//!   a log has.
#![cfg_attr(panic = "abort", no_std)]
#![allow(unreachable_pub, reason = "exported C symbols must be `pub`, though no Rust code names them")]

mod buffer;
mod destination;
mod fields;
mod line;
mod log;
mod observer;
mod owned_lock;
mod prefixes;
mod statistics;

use core::ffi::c_int;

use heapledger_core::hooks::{self, Functions, Hooks};
use heapledger_core::sandbox;

/// The version of the hook table that this library is for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is a C symbol")]
pub static heapledger_hook_version: u32 = hooks::VERSION;

/// Starts the log, if there is somewhere for it to go.
///
/// # Safety
///
/// Called by Heapledger, with its tables, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_hook_init(_: *const Functions, table: *const Hooks) -> c_int {
    // Without a log, too: the program's calls come here.
    statistics::find_next();
    if !log::begin() {
        return 1;
    }
    observer::set_minimal(destination::is_minimal());
    // SAFETY: Heapledger's table, by this function's `# Safety`.
    unsafe { fields::find(table) };
    // SAFETY: Heapledger's table, by this function's `# Safety`. The observer is static, and its
    // functions keep the contract of `Observer`: they return, make only system calls, and do not
    // call the malloc family.
    unsafe { ((*table).install_observer)(observer::chosen()) }
}

/// Called before this process becomes another program.
#[unsafe(no_mangle)]
pub extern "C" fn heapledger_hook_exec_begins() {
    log::flush();
}

/// Called before the program puts itself in a sandbox, where a system call of ours could kill it.
#[unsafe(no_mangle)]
pub extern "C" fn heapledger_hook_sandbox_begins() {
    log::enter_sandbox();
}

/// Called if the program did not enter the sandbox after all.
#[unsafe(no_mangle)]
pub extern "C" fn heapledger_hook_sandbox_refused() {
    sandbox::refused();
}

/// See the panic handler of the preload library.
#[cfg(panic = "abort")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    const SIGABRT: usize = 6;
    let (process, number) = (heapledger_core::sys::process_id() as usize, heapledger_core::arch::nr::KILL);
    loop {
        // SAFETY: sends a signal to this process; no memory is involved.
        unsafe { heapledger_core::arch::syscall(number, [process, SIGABRT, 0, 0, 0, 0]) };
    }
}
