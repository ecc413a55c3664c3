//! The thread's two words. One file per architecture, and one for a library without thread-local
//! storage.

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(placed)))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(placed)))]
pub(crate) use x86_64::*;

#[cfg(all(target_arch = "x86_64", target_os = "linux", placed))]
mod placed;
#[cfg(all(target_arch = "x86_64", target_os = "linux", placed))]
pub(crate) use placed::*;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod none;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(crate) use none::*;
