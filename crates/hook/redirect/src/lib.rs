//! Redirected entry points: the calls of allocators that are linked into the program reach the
//! observers, too.
//!
//! The tool has decided where jumps are to be written, and has made *stubs* near the program's code
//! ([`heapledger_wire::redirection`]). [`install`] maps the stubs and writes the jumps. From then
//! on, a call of an entry goes through its stub to the thunk of its kind (`arch`), and on to
//! `calls`, which makes the call by the entry's displaced instructions, and notifies the observers
//! as the malloc interposer does. One thunk saves every register, for entries whose callers may
//! rely on that.
//!
//! [`watch_linker`] makes the dynamic linker call a function when it has mapped modules, so that
//! those that the program opens later are redirected before their code runs, and [`KeptPlans`]
//! those that it opens again.
//!
//! **Nested calls.** An allocator's entry points call each other: `operator new` calls `malloc`,
//! and `realloc` calls `free`. Only the outermost call is an event. [`nesting`] is the mark of a
//! thread that is inside one; the malloc interposer uses it too, once anything has been redirected.
//!
//! Everything here may run in any thread, in signal handlers too, and does not allocate.
#![no_std]

#[cfg(test)]
extern crate std;

#[cfg(target_arch = "x86_64")]
mod arch;
#[cfg(target_arch = "x86_64")]
mod calls;
#[cfg(target_arch = "x86_64")]
mod install;
#[cfg(target_arch = "x86_64")]
mod later;
#[cfg(target_arch = "x86_64")]
mod linker;
#[cfg(target_arch = "x86_64")]
pub mod nesting;
#[cfg(target_arch = "x86_64")]
mod replace;

#[cfg(all(placed, target_arch = "x86_64"))]
pub use arch::THUNKS;
#[cfg(target_arch = "x86_64")]
pub use arch::thunk_address;
#[cfg(target_arch = "x86_64")]
pub use calls::{set_own_code, set_request_handler, set_start};
#[cfg(target_arch = "x86_64")]
pub use install::{activate, install};
#[cfg(target_arch = "x86_64")]
pub use later::{IsLoaded, KeptPlans};
#[cfg(target_arch = "x86_64")]
pub use linker::watch_linker;
#[cfg(target_arch = "x86_64")]
pub use replace::replace_function;
