//! The word in which each thread has its heap. One file per architecture.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) use x86_64::*;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod none;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(crate) use none::*;
