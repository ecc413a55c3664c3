//! Allocation that does not fail, and allocation that may.
//!
//! A Rust program that runs out of memory ends with a message that names the size, and nothing
//! before that can be changed on stable Rust: the hook of the standard library
//! (`alloc::set_alloc_error_hook`) is not stable. So [`Infallible`] wraps the global allocator and
//! never returns null: a request that the wrapped allocator does not meet goes to [`handle_oom`],
//! as those of C's `heapledger/infallible.h` do. That records the size where crash reporters find
//! it, calls the program's [handler](set_oom_handler), which may free memory, and then either tries
//! again or ends the program.
//!
//! Code that can do with less uses the `try_` functions of this crate, or [`fallibly`]: in them,
//! the wrapper returns null as any allocator does.
//!
//! ```
//! use std::alloc::System;
//!
//! use heapledger_infallible::{Infallible, OutOfMemory, try_push, try_vec};
//!
//! #[global_allocator]
//! static ALLOCATOR: Infallible<System> = Infallible::new(System);
//!
//! let mut sizes = try_vec(2)?;
//! try_push(&mut sizes, 640)?;
//! let too_much = try_vec::<u8>(isize::MAX as usize).unwrap_err();
//! assert_eq!(too_much.to_string(), "out of memory: 0x7fffffffffffffff bytes requested");
//! # Ok::<(), OutOfMemory>(())
//! ```
//!
//! Not reached are requests that never come to an allocator: a `Vec` of more than `isize::MAX`
//! bytes panics with *capacity overflow*.

mod allocator;
mod fallible;
mod oom;

pub use allocator::{Infallible, fallibly};
pub use fallible::{
    OutOfMemory, try_box, try_extend, try_push, try_push_str, try_slice, try_string, try_vec, try_zeroed,
};
pub use oom::{OomHandler, handle_oom, oom_size, set_oom_handler};

/// The examples of the manual that are in Rust.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/low-memory.md")]
mod manual {}
