//! The thunks, and the words of each thread. One file per architecture.

mod x86_64;

#[cfg(placed)]
pub use x86_64::THUNKS;
#[cfg(test)]
pub(crate) use x86_64::set_outermost;
pub use x86_64::thunk_address;
pub(crate) use x86_64::{
    Allocated, Next, Registers, begin_outermost, end_outermost, frame_pointer, mark_again, outermost, site, unmark,
};
