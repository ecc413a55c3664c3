//! The code that is specific to a processor.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) use x86_64::*;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod none;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(crate) use none::*;
