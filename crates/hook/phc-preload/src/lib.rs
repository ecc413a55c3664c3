//! The hook library of `heapledger run --phc` and `record --phc`: it starts the heap checker in
//! every process that it is loaded into, and writes reports to files beside itself, for the command
//! to read.
//!
//! - `settings`: the options, which the command has put beside the library.
//! - `file`: the reports.
//! - `actions`: `sigaction`, `signal` and its relatives, so that a handler of the program's for
//!   faults comes after ours.
#![cfg_attr(panic = "abort", no_std)]
#![allow(unreachable_pub, reason = "exported C symbols must be `pub`, though no Rust code names them")]

mod actions;
mod file;
mod settings;

use core::ffi::{c_char, c_int};
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicU8, Ordering};

use heapledger_core::bridge::Bridge;
use heapledger_core::hooks::{self, Functions, Hooks};
use heapledger_core::sandbox;
use heapledger_dynsym::{Objects, Scope};
use heapledger_phc::{self as phc, PhcStartError, PhcState};

/// The version of the hook table that this library is for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is a C symbol")]
pub static heapledger_hook_version: u32 = hooks::VERSION;

/// Starts the checker.
///
/// # Safety
///
/// Called by Heapledger, with its tables, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_hook_init(underlying: *const Functions, table: *const Hooks) -> c_int {
    if !file::find() {
        return 1;
    }
    // SAFETY: Heapledger calls this within the first call of the allocator: the process has one
    // thread. Nothing here loads or unloads a library.
    let objects = unsafe { Objects::at_start() };
    if objects.has_unseen_calls() {
        // Its operators might be given a block of the checker's, and would go wrong.
        file::refuse("allocator");
        return 1;
    }
    actions::look_up(&objects);
    phc::listen(file::write);
    find_contexts(&objects);
    let options = settings::read();
    // Heapledger's allocator counts by itself: then calls are not counted in front of it.
    let set = objects.lookup(Scope::Next, c"heapledger_block_sampler_v1");
    // SAFETY: 0, or that allocator's function, whose type this is. It and both tables are
    // Heapledger's, which are complete and never change.
    let below = unsafe {
        core::mem::transmute::<usize, Option<phc::SetSampler>>(set)
            .map(|set| phc::start_below(set, underlying, table, &options))
    };
    let started = match below {
        // It is not the allocator of this program.
        None | Some(Err(PhcStartError::Hooks(_))) => {
            // SAFETY: Heapledger's table, which is complete and never changes.
            unsafe { phc::start_in(table, &options) }
        }
        Some(started) => started,
    };
    match started {
        Ok(()) => {
            phc::install_handlers();
            0
        }
        Err(PhcStartError::SmallMachine) => {
            file::refuse("memory");
            1
        }
        Err(_) => {
            file::refuse("system");
            1
        }
    }
}

/// Finds the program's scopes in the bridge of the preload library, to which it declares them.
fn find_contexts(objects: &Objects<'_>) {
    let bridge = ptr::with_exposed_provenance::<Bridge>(objects.lookup(Scope::All, c"heapledger_bridge_v1"));
    // SAFETY: null, or the table of the preload library, which does not change, is never unloaded,
    // and has as many bytes as it says.
    unsafe {
        let known =
            bridge.as_ref().filter(|table| table.size as usize >= offset_of!(Bridge, contexts) + size_of::<usize>());
        if let Some(bridge) = known {
            phc::set_context_source(bridge.contexts);
        }
    }
}

/// Called when the program opens a library whose calls of the allocator are not seen: a block of
/// the checker's that it frees would reach an allocator that does not know it.
///
/// # Safety
///
/// Nothing is asked of the caller: the arguments are not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_hook_library_unseen(_reason: u64, _path: *const c_char) {
    STATE_BEFORE.store(PhcState::OnlyFree as u8, Ordering::Relaxed);
    phc::set_state(PhcState::OnlyFree);
}

/// Called before this process becomes another program.
#[unsafe(no_mangle)]
pub extern "C" fn heapledger_hook_exec_begins() {
    file::end();
}

/// The [`PhcState`] that is restored if the program does not enter the sandbox after all.
static STATE_BEFORE: AtomicU8 = AtomicU8::new(PhcState::OnlyFree as u8);

/// Called before the program puts itself in a sandbox, where a system call of ours could kill it.
/// Blocks that were sampled before are freed as such, without being protected.
#[unsafe(no_mangle)]
pub extern "C" fn heapledger_hook_sandbox_begins() {
    if !sandbox::is_entered() {
        STATE_BEFORE.store(phc::state() as u8, Ordering::Relaxed);
    }
    phc::set_state(PhcState::OnlyFree);
    file::end();
    phc::remove_handlers();
    sandbox::enter();
}

/// Called if the program did not enter the sandbox after all.
#[unsafe(no_mangle)]
pub extern "C" fn heapledger_hook_sandbox_refused() {
    sandbox::refused();
    if phc::is_running() && !sandbox::is_entered() {
        phc::install_handlers();
        if STATE_BEFORE.load(Ordering::Relaxed) == PhcState::Enabled as u8 {
            phc::set_state(PhcState::Enabled);
        }
    }
}

/// Runs after `main`, and after the functions that the program registered with `atexit`.
extern "C" fn destructor() {
    file::end();
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
