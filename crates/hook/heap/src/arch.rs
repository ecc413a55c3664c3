//! The word in which each thread has its heap. One file per architecture.

#[cfg(miri)]
mod miri;
#[cfg(miri)]
pub(crate) use miri::*;

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
pub(crate) use x86_64::*;

#[cfg(not(any(all(target_arch = "x86_64", target_os = "linux"), miri)))]
mod none;
#[cfg(not(any(all(target_arch = "x86_64", target_os = "linux"), miri)))]
pub(crate) use none::*;
