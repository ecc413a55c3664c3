//! The thunk, and the word of each thread. One file per architecture.

mod x86_64;

pub(crate) use x86_64::{Next, Registers, outermost, set_outermost, site};
pub use x86_64::{THUNK, thunk_address};
