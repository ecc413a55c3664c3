//! The thunks, and the words of each thread. One file per architecture.

mod x86_64;

#[cfg(not(placed))]
pub(crate) use x86_64::Allocated;
#[cfg(placed)]
pub use x86_64::THUNK;
pub use x86_64::thunk_address;
pub(crate) use x86_64::{Next, Registers, begin_outermost, frame_pointer, outermost, set_outermost, site};
