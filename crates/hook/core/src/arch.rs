//! What differs between processors. One file per architecture; nothing outside these files is specific to one.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;
