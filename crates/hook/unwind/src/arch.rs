//! Registers, rules and steps: all knowledge of the unwinder about a processor. One file per
//! architecture.
//!
//! On other platforms no stack is unwound, so any of these files will do.

mod x86_64;
pub use x86_64::*;
