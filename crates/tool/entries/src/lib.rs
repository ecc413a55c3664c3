//! Finds the allocators inside of programs and libraries, and plans how their calls are redirected.
//!
//! A program that has an allocator linked in does not call malloc through the dynamic linker, so a
//! preloaded library does not see it. This crate finds the entry points of the allocator in the
//! program's file, and makes the bytes by which the entries lead elsewhere:
//!
//! 1. [`Module::open`] maps the file, and the separate file with its symbols if there is one.
//! 2. [`find`] returns the [`Allocator`]s in it: by names, or, if these are stripped, by the code
//!    itself or by the calls of Rust code.
//! 3. [`plan`] decides which entries can be patched safely, and says why others cannot.
//! 4. [`relocate`] makes the trampoline of an entry, for an address in a running process.
//!
//! Nothing here runs in the observed program, and nothing is written to any process. Files may come
//! from anybody: damage means an error or fewer entries, never a panic, and memory is bounded by a
//! multiple of the file's size. All functions may be called from any thread.
//!
//! ```no_run
//! use heapledger_entries::{Module, find, plan};
//!
//! let module = Module::open("/usr/bin/program".as_ref())?;
//! for allocator in find(&module)?.allocators {
//!     let plan = plan(&module, &allocator);
//!     println!("{}: {} entries can be redirected", allocator.family, plan.patches.len());
//! }
//! # Ok::<(), heapledger_entries::EntriesError>(())
//! ```

mod allocator;
mod error;
mod find;
mod module;
mod plan;

pub use allocator::{Allocator, Entry, Evidence, Family};
pub use error::{EntriesError, Result};
pub use find::{Found, find};
pub use module::Module;
pub use plan::{Patch, Plan, Refusal, Refused, plan, plan_all, relocate};

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
