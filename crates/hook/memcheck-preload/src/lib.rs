//! The hook library of `heapledger check`: it starts the checks, in every process that it is loaded
//! into, and writes what they find to files beside itself, for the command to read.
//!
//! It also defines C++'s operators `new` and `delete`, which go on to the program's own, so that
//! the checks know through which of them a block came and went.
#![cfg_attr(panic = "abort", no_std)]
#![allow(unreachable_pub, reason = "exported C symbols must be `pub`, though no Rust code names them")]

mod ends;
mod file;
mod operators;
mod settings;

use core::ffi::{CStr, c_char, c_int};

use heapledger_core::hooks::{self, Functions, Hooks};
use heapledger_dynsym::Objects;
use heapledger_memcheck::{self as checks, report};

/// The version of the hook table that this library is for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is a C symbol")]
pub static heapledger_hook_version: u32 = hooks::VERSION;

/// Starts the checks.
///
/// # Safety
///
/// Called by Heapledger, with its tables, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_hook_init(_underlying: *const Functions, table: *const Hooks) -> c_int {
    if !file::find() {
        return 1;
    }
    // SAFETY: Heapledger calls this within the first call of the allocator: the process has one
    // thread. Nothing here loads or unloads a library.
    let objects = unsafe { Objects::at_start() };
    let are_operators_seen = operators::are_in_effect(&objects);
    let is_seen = |name: &CStr| are_operators_seen && operators::is_redirected(&objects, name);
    if objects.has_unseen_calls_except(is_seen) {
        // A block whose free goes unseen would be taken for a live one.
        file::refuse();
        return 1;
    }
    if !are_operators_seen {
        checks::distrust_operators();
    }
    settings::apply();
    report::listen(file::write);
    // SAFETY: Heapledger's table; nothing has been allocated that the program could free.
    match unsafe { checks::start_in(table) } {
        Ok(()) => {
            ends::watch(&objects);
            0
        }
        Err(_) => 1,
    }
}

/// Called when the program opens a library whose calls of the allocator are not seen: from then on
/// a block may not be the one that the register says.
///
/// # Safety
///
/// `path` points to a NUL-terminated string, which does not change before this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_hook_library_unseen(reason: u64, path: *const c_char) {
    if checks::is_running() {
        checks::stop();
        // SAFETY: `CStr::from_ptr` requires a string that ends with NUL and does not change while
        // the reference exists. This function's `# Safety` requires that of `path` until it
        // returns, and `file::stop` keeps no reference.
        file::stop(reason, unsafe { CStr::from_ptr(path) });
    }
}

/// Called before this process becomes another program.
#[unsafe(no_mangle)]
pub extern "C" fn heapledger_hook_exec_begins() {
    ends::inspect_now(file::End::Exec);
}

/// Called if the process did not become another program after all.
#[unsafe(no_mangle)]
pub extern "C" fn heapledger_hook_exec_failed() {
    ends::resume();
}

/// Called before the program puts itself in a sandbox, where a system call of ours could kill it.
#[unsafe(no_mangle)]
pub extern "C" fn heapledger_hook_sandbox_begins() {
    ends::enter_sandbox();
}

/// Called if the program did not enter the sandbox after all.
#[unsafe(no_mangle)]
pub extern "C" fn heapledger_hook_sandbox_refused() {
    ends::sandbox_refused();
}

/// Runs after `main`, and after the functions that the program registered with `atexit`.
extern "C" fn destructor() {
    ends::inspect_now(file::End::Exit);
}

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;

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
