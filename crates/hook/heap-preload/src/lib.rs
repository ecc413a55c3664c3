//! The allocator as a library for `LD_PRELOAD`: it exports the malloc functions, and
//! those for arenas.
//!
//! Built with the `preload` profile it is freestanding: no standard library, no unwinding. The C++
//! operators are not here, because those of the C++ library call `malloc`.
#![cfg_attr(panic = "abort", no_std)]
#![allow(unreachable_pub, reason = "exported C symbols must be `pub`, though no Rust code names them")]

mod arenas;
mod functions;
mod glibc;
mod hook_table;
mod low_memory;

/// Ends the program. No panic is reachable; if the compiler keeps one all the same, the program
/// must not go on with a heap in an unknown state.
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
