//! Captures of memray, the memory profiler for Python, as `memray run -o FILE` writes them.
//!
//! A [`Capture`] has [every call](Capture::read_events) or, with `--aggregate`, only
//! [totals](Capture::read_totals). Python functions have names, files and lines. Native frames
//! (`--native`) are addresses in modules. Frames inside the interpreter's function
//! `_PyEval_EvalFrameDefault` run Python code, and the Python functions take their place in the
//! stack. The caller tells the reader which addresses these are, since it can open the files.

use std::fmt;

use header::{Header, MAGIC};

use crate::input::{Input, LZ4_MAGIC};
use crate::profile::{Event, Known, Profile};
use crate::read_error::ReadError;

mod allocator;
mod blocks;
mod events;
mod header;
mod lines;
mod modules;
mod ranges;
mod stacks;
#[cfg(test)]
mod tests;
mod totals;
#[cfg(test)]
pub(crate) mod written;

pub use stacks::RunsPython;

/// The maximum length of an LZ4 frame's header with the first bytes of its contents.
const PACKED_HEAD: usize = 64;

/// True if a file begins as a capture does, compressed with LZ4 or not.
pub fn detects(bytes: &[u8]) -> bool {
    // The first bytes of the first block cannot refer to earlier ones, so they are literals.
    let head = &bytes[..bytes.len().min(PACKED_HEAD)];
    bytes.starts_with(MAGIC) || bytes.starts_with(&LZ4_MAGIC) && head.windows(MAGIC.len()).any(|part| part == MAGIC)
}

/// A capture whose header has been read.
pub struct Capture<'a> {
    header: Header,
    input: Input<'a>,
}

impl fmt::Debug for Capture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("header", &self.header).finish_non_exhaustive()
    }
}

impl<'a> Capture<'a> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// The file is not a capture, or its version of the format is not supported.
    pub fn open(bytes: &'a [u8]) -> Result<Capture<'a>, ReadError> {
        let mut input = Input::new(bytes);
        let header = Header::read(&mut input)?;
        Ok(Capture { header, input })
    }

    /// True if the file has totals for each stack instead of every call.
    pub fn is_aggregated(&self) -> bool {
        self.header.is_aggregated
    }

    /// Passes each allocation and free to `take`, in order, and returns the profile with their
    /// stacks. Takes memory in proportion to the stacks and the live blocks.
    ///
    /// `runs_python` returns true if an address of a module, as in its file, is in the function
    /// that runs Python code. A file that ends too early is read to its end, and the profile [is
    /// cut](Profile::is_cut). An aggregated file has no events: use [`read_totals`].
    ///
    /// [`read_totals`]: Capture::read_totals
    ///
    /// # Errors
    ///
    /// The file is damaged.
    pub fn read_events(self, runs_python: RunsPython<'_>, take: &mut dyn FnMut(Event)) -> Result<Profile, ReadError> {
        let Capture { header, input } = self;
        let described = header.clone();
        let profile = events::read(input, header, runs_python, take)?;
        let known = Known { allocated: true, temporaries: true, live: true, peak: true, end: true, ..Known::NONE };
        Ok(Profile { known, ..with_header(profile, described) })
    }

    /// Reads the totals of an aggregated file: live blocks at the high-water mark and at the end.
    ///
    /// # Errors
    ///
    /// The file is damaged.
    pub fn read_totals(self, runs_python: RunsPython<'_>) -> Result<Profile, ReadError> {
        let Capture { header, input } = self;
        let described = header.clone();
        Ok(with_header(totals::read(input, header, runs_python)?, described))
    }
}

fn with_header(mut profile: Profile, header: Header) -> Profile {
    let ms = header.end_ms.saturating_sub(header.start_ms);
    profile.duration_ns = profile.duration_ns.max(ms.saturating_mul(1_000_000));
    profile.start_unix_ns = header.start_ms.saturating_mul(1_000_000);
    (profile.command, profile.pid) = (header.command, header.pid);
    profile
}
