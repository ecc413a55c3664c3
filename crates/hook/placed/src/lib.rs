//! The library that the recorder places into a program from outside: into one that is statically
//! linked, so that no dynamic linker loads a library there.
//!
//! It needs nothing of the program: no C library, no dynamic linker, and no thread-local storage,
//! for which `--cfg placed` puts a table of its own
//! (`thread_slots` in `hook/core`). Built with that and with the `preload`
//! profile it is freestanding; otherwise it is empty, and only has to compile.
//!
//! The tool maps and relocates it, writes the parameters ([`heapledger_wire::placed`]), and
//! redirects the entry points of the program's allocator. The first call of one starts it.
#![cfg_attr(panic = "abort", no_std)]
#![allow(unreachable_pub, reason = "exported symbols must be `pub`, though no Rust code names them")]

#[cfg(all(placed, target_arch = "x86_64", target_os = "linux"))]
mod call;
#[cfg(all(placed, target_arch = "x86_64", target_os = "linux"))]
mod confine;
#[cfg(all(placed, target_arch = "x86_64", target_os = "linux"))]
mod description;
#[cfg(all(placed, target_arch = "x86_64", target_os = "linux"))]
mod exec;
#[cfg(all(placed, target_arch = "x86_64", target_os = "linux"))]
mod guard;
#[cfg(all(placed, target_arch = "x86_64", target_os = "linux"))]
mod later;
#[cfg(all(placed, target_arch = "x86_64", target_os = "linux"))]
mod mappings;
#[cfg(all(placed, target_arch = "x86_64", target_os = "linux"))]
mod memory;
#[cfg(all(placed, target_arch = "x86_64", target_os = "linux"))]
mod start;

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
