//! Contexts: which request, task or part of a program asks for memory.
//!
//! A program says what it is doing by naming scopes; each thread is in a stack of them. Whoever observes the program's
//! allocator sees with each allocation the scopes that it was made in: `heapledger record`, or the ledger in the program
//! itself. So memory can be told apart by what it is for, where all of it is allocated by the same few functions.
//!
//! ```
//! # extern crate heapledger_context as heapledger;
//! fn answer(route: &str) -> Vec<u8> {
//!     let _request = heapledger::context!(task, "http.request", route = route);
//!     let body = {
//!         let _render = heapledger::context!("render");
//!         vec![0; 4096]  // in `http.request{route=/users} > render`
//!     };
//!     body
//! }
//! # assert_eq!(answer("/users").len(), 4096);
//! ```
//!
//! # What it costs
//!
//! To enter a scope takes two stores, to leave it one, whether or not anybody observes; neither allocates. A scope with
//! values has to format them, and to find the text among those that it has seen: some hundred nanoseconds. The observer
//! pays for reading the stack at each allocation; where a thread is in no scope, four instructions.
//!
//! # Names, values, categories, tasks
//!
//! - A *name* is a constant text. Few names tell more than many: what differs from one time to the next is a value.
//! - *Values* are `key = value` pairs, displayed, cut off after 200 bytes. A process keeps the first 4,096 different
//!   texts, for good; every further one is `(other)`. So a value should be a route, and not a user's id.
//! - A *task* ([`context!`] with `task`) is a piece of work that is taken up by threads, such as a request: reports can
//!   go by the innermost task.
//! - A [`Category`](macro@category) is a group of scopes that can be switched off and on while the program runs.
//!
//! # Threads and futures
//!
//! A new thread is in no scope, and neither is a future of the scopes in which it was made: it is polled anywhere.
//! [`Context::current`] takes the scopes along, [`Context::enter`] enters them in another thread, and
//! [`InContext::in_context`] has a future polled in them, however often it is interrupted, in whichever thread. An
//! attribute makes a function a scope: `#[heapledger::in_context("layout.reflow")]`; of an `async` function, each poll.
//! With the feature `tracing` the spans of the `tracing` crate are scopes: see the module `tracing`.
//!
//! A child process is in the scopes of the thread that forked it.
//!
//! # Bounds
//!
//! 128 scopes in each other; of those further in only the number is kept: allocations there belong to the 128th. A guard
//! that is dropped after one that was entered before it changes nothing. A scope that is left by a jump over its guard
//! ends with the one around it. A signal handler may enter scopes.
//!
//! A shared library that enters scopes must not be unloaded while threads run that have entered one of its scopes first
//! of all: the memory for a thread's scopes is the thread-local memory of the library that was first.

mod context;
mod future;
mod interner;
mod scope;
mod stack;
#[cfg(feature = "tracing")]
pub mod tracing;

pub use context::Context;
pub use future::{InContext, WithContext};
pub use heapledger_core::context::Category;
pub use scope::{Ignore, Scope, ignore};

/// What the macros need.
#[doc(hidden)]
pub mod __private {
    pub use heapledger_core::context::{Category, Frame, Name};

    pub use crate::future::InScope;
    pub use crate::interner::value;
    pub use crate::scope::Entry;
}
