//! Unwind information for programs whose own is missing or cannot be found from inside.
//!
//! The recorder's walk ([`heapledger-unwind`]) asks the C library for the module of an address, and
//! reads the module's `.eh_frame` by way of `.eh_frame_hdr`. In static programs, with musl, and
//! with glibc before 2.35, one or the other is missing. This crate reads the files instead:
//!
//! 1. [`FileRules::read`] finds the unwind information of a file, makes an index if it has none,
//!    and generates rules from the machine code of functions that have no description.
//! 2. [`table()`] puts those of all modules of a process into one table, which the hook maps.
//!
//! Nothing here runs in the observed program. Files may come from anybody: damage means an error or
//! fewer rules, never a panic, and memory is bounded by a multiple of the file's size. All
//! functions may be called from any thread.
//!
//! [`heapledger-unwind`]: https://docs.rs/heapledger-unwind
//!
//! ```no_run
//! use heapledger_unwind_rules::{FileRules, MappedModule, table};
//!
//! let rules = FileRules::read("/lib/ld-musl-x86_64.so.1".as_ref())?;
//! let module = MappedModule { bias: 0x7f00_0000_0000, path: b"/lib/ld-musl-x86_64.so.1", rules: &rules };
//! let bytes = table(&[module]);
//! # Ok::<(), heapledger_unwind_rules::RulesError>(())
//! ```

#![forbid(unsafe_code)]

mod described;
mod error;
mod file;
mod generate;
mod table;

pub use error::{Result, RulesError};
pub use file::{FileRules, FoundFrames};
pub use generate::Generated;
pub use table::{MappedModule, table};

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
