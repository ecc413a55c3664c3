//! The player of `heapledger replay`: a library that is preloaded, in front of an allocator, into a
//! process that does nothing else. Its constructor makes the calls of the work, measures, writes
//! the result, and ends the process.
//!
//! So the process has no heap of its own, and the allocator is entered as by any program: the calls
//! go through the dynamic linker's tables. What the player needs is in shared memory, which the
//! kernel counts apart from anonymous memory: it is not in the figures of the allocator.
//!
//! - `files` maps the work and the result.
//! - `functions` are the allocator that is tried, and one that does nothing, whose run costs what
//!   the player itself costs.
//! - `threads` starts the threads of the work and measures their time.
//! - `play` makes the calls of a thread.
//! - `arenas` are those of the work, in an allocator that has arenas.
//! - `figures` counts blocks, and `memory` looks at the memory of the process.
//! - `system_calls` counts the system calls that change mappings.
#![cfg_attr(panic = "abort", no_std)]
#![allow(unreachable_pub, reason = "exported C symbols must be `pub`, though no Rust code names them")]

mod arch;
mod arenas;
mod figures;
mod files;
mod functions;
mod memory;
mod play;
mod system_calls;
mod threads;
mod time;

use core::ffi::c_int;
use core::sync::atomic::Ordering;

use heapledger_wire::replay::state;

use crate::files::Files;

unsafe extern "C" {
    fn _exit(status: c_int) -> !;
}

/// The constructor. Without a work the library does nothing.
extern "C" fn start() {
    let Some(files) = Files::open() else { return };
    let outcome = files.outcome();
    outcome.state.store(state::RUNNING, Ordering::Release);
    let is_done = threads::play_all(&files);
    outcome.state.store(if is_done { state::DONE } else { state::CANNOT }, Ordering::Release);
    // SAFETY: the process has no other purpose, and nothing of it needs to be finished.
    unsafe { _exit(0) }
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

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
