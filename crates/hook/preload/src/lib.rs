//! The preload library: what `LD_PRELOAD` puts into a program.
//!
//! It exports the malloc family (`family`), the functions that start other programs (`exec`), `dlclose`, and the
//! bridge (`bridge`); everything else is hidden. Built with the `preload` profile it is freestanding: no standard
//! library, no allocator, no unwinding.
#![cfg_attr(panic = "abort", no_std)]
#![allow(unreachable_pub, reason = "exported C symbols must be `pub`, though no Rust code names them")]

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the thunks of the preload library are written for x86-64 only");

mod bridge;
mod environment;
mod exec;
mod family;
mod init;
mod libraries;
mod next;
mod pools;
mod scratch;

/// There is no reachable panic; should the compiler keep one all the same, the program must not go on with a recorder
/// in an unknown state.
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
