//! Registers, rules and steps: all that the unwinder knows of a processor. One file per architecture.
//!
//! Where nothing is observed, no stack is unwound, and any of them will do.

mod x86_64;
pub use x86_64::*;
