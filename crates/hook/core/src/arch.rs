//! What differs between processors. One file per architecture; nothing outside these files is specific to one.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub use x86_64::*;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod none;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub use none::*;

/// A thread's way to its next sample point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Countdown {
    /// Bytes until the thread has to look; not above 0 where nothing has been drawn.
    pub left: i64,
    /// The rate at which it was drawn.
    pub rate: u64,
    /// Bytes from there to the sample point.
    pub beyond: u64,
    /// After how many bytes the thread last chose to look.
    pub stride: u64,
    /// The time stamp of then.
    pub looked: u64,
}
