//! The code that differs between processors, and its portable version.

#[cfg(any(test, not(target_arch = "x86_64")))]
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use portable::{equal_bytes, prefetch};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{equal_bytes, prefetch};

#[cfg(all(test, not(loom)))]
mod tests;
