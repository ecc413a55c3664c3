//! What differs between processors. One file per architecture; nothing outside these files is specific to one.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub use x86_64::*;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod none;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub use none::*;
