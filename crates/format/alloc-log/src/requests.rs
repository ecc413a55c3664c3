//! Requested sizes in three classes, as `logalloc_stats.py` counts them.

use crate::line::{Line, Request};

/// A class of requested sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeClass {
    /// Less than a page of 4 KiB.
    Small,
    /// From a page to less than 1 MiB, the seed's chunk.
    Large,
    /// 1 MiB and more.
    Huge,
}

impl SizeClass {
    /// The classes, smallest first.
    pub const ALL: [SizeClass; 3] = [SizeClass::Small, SizeClass::Large, SizeClass::Huge];

    /// Returns the class of a size in bytes.
    pub fn of(size: u64) -> SizeClass {
        match size {
            0..4096 => SizeClass::Small,
            4096..0x10_0000 => SizeClass::Large,
            _ => SizeClass::Huge,
        }
    }

    /// Returns its name in the statistics.
    pub fn name(self) -> &'static str {
        match self {
            SizeClass::Small => "Small",
            SizeClass::Large => "Large",
            SizeClass::Huge => "Huge",
        }
    }
}

/// The number of requests by the class of their size.
///
/// Counts `malloc`, `calloc`, `memalign` and `realloc`, whether they succeed or not, unless they
/// request 0 bytes. The other functions are not counted: a minimal log has none of them, since
/// there they are `memalign`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    counts: [u64; 3],
}

impl Requests {
    /// Counts a line.
    pub fn add(&mut self, line: &Line) {
        let counts = match line.request {
            Request::Malloc { .. } | Request::Calloc { .. } | Request::Memalign { .. } | Request::Realloc { .. } => {
                line.request.size().filter(|&size| size > 0)
            }
            _ => None,
        };
        if let Some(size) = counts {
            self.counts[SizeClass::of(size) as usize] += 1;
        }
    }

    /// Returns the requests of a class.
    pub fn count(&self, class: SizeClass) -> u64 {
        self.counts[class as usize]
    }

    /// Returns the requests of all classes.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the part of a class in all requests, from 0 to 1; 0 if there are none.
    pub fn share(&self, class: SizeClass) -> f64 {
        self.count(class) as f64 / self.total().max(1) as f64
    }
}
