//! Code that differs between processors. One file per architecture; nothing outside these files is
//! specific to one.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub use x86_64::*;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod none;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub use none::*;

/// The bytes until a thread's next sample point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Countdown {
    /// Bytes until the thread has to re-read the rate; 0 or less if nothing has been drawn.
    pub until_reread: i64,
    /// The logarithm of the rate at which it was drawn.
    pub rate: u64,
    /// Bytes from there to the sample point.
    pub after_reread: u64,
    /// The number of bytes after which the thread last chose to re-read the rate.
    pub stride: u64,
    /// The time stamp of the last re-read.
    pub reread_at: u64,
}
