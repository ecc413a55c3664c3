//! x86-64: a thread's words for the outermost call, and what thunks and calls pass to each other.

mod preserving;
mod thunks;
#[cfg(placed)]
#[path = "x86_64/placed_words.rs"]
mod words;
#[cfg(not(placed))]
mod words;

#[cfg(placed)]
pub use thunks::THUNKS;
pub use thunks::thunk_address;
#[cfg(test)]
pub(crate) use words::set_outermost;
pub(crate) use words::{begin_outermost, end_outermost, frame_pointer, mark_again, outermost, site, unmark};

/// The registers of a call of a redirected entry, as the thunk saves them.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Registers {
    /// The result is returned in it, unless the function has none.
    pub(crate) rax: u64,
    /// The arguments, from the first to the sixth.
    pub(crate) arguments: [u64; 6],
    r10: u64,
    /// r11; in a library that is placed into a program, the address of the thread's slot.
    r11: u64,
    /// The return address of the call.
    pub(crate) return_address: u64,
}

impl Registers {
    /// Returns the stack pointer by which the thunk has marked the call: it had pushed r10 last.
    pub(crate) fn mark(&self) -> u64 {
        (&raw const self.r10).expose_provenance() as u64
    }
}

/// The way on after [`calls::call`](crate::calls::call): returned in rax and rdx.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Next {
    /// 0: return to the caller. Otherwise go on in the original, with the registers of the call.
    pub(crate) goes_on: u64,
    /// The address to go on at: [`Site::pass`](heapledger_wire::redirection::Site::pass).
    pub(crate) pass: u64,
}

/// The result of [`calls::new`](crate::calls::new): returned in rax and rdx.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Allocated {
    /// The block; 0 to go on in the original, with the registers of the call.
    pub(crate) block: u64,
    /// The address to go on at: [`Site::pass`](heapledger_wire::redirection::Site::pass).
    pub(crate) pass: u64,
}
