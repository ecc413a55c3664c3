//! The preload library, which `LD_PRELOAD` loads into a program.
//!
//! It exports the malloc functions ([`heapledger_interpose`]), the functions that start other
//! programs (`exec`), enter a sandbox (`sandbox`) or exit (`exits`), some of the dynamic linker's
//! (`linker`, `namespaces`, `unseen`, `wrappers`), and the bridge (`bridge`); everything else is
//! hidden. Built with the `preload` profile it is freestanding: no standard library, no allocator,
//! no unwinding.
#![cfg_attr(panic = "abort", no_std)]
#![allow(unreachable_pub, reason = "exported C symbols must be `pub`, though no Rust code names them")]

mod additions;
mod allocator;
mod announce;
mod armed;
mod bridge;
mod child;
mod environment;
mod exec;
mod exits;
mod guard;
mod init;
mod join;
mod later;
mod libraries;
mod linker;
mod mappings;
mod namespaces;
mod obstacles;
mod pools;
mod redirect;
mod replace_malloc;
mod sandbox;
mod scratch;
mod shell;
mod thread_library;
mod unseen;
mod wrappers;

/// Ends the program. No panic is reachable; if the compiler keeps one all the same, the program
/// must not go on with a recorder in an unknown state.
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
