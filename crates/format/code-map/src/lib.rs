//! Names of code that compilers generate at run time, from the files that they write for profilers:
//! [`perf_map`] and [`jitdump`].
//!
//! Only the names of [`Wanted`] addresses are kept, so the memory that a file takes does not depend
//! on its length.
#![forbid(unsafe_code)]

use std::fmt;

pub mod fuzzing;
pub mod jitdump;
pub mod perf_map;

/// The maximum length of a name in bytes; the rest of a longer one is left out.
pub const NAME_MAX: usize = 2048;

/// The addresses whose functions are looked for, and the names found so far.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// In ascending order of addresses, each once.
    addresses: Vec<WantedAddress>,
}

#[derive(Clone, Debug)]
struct WantedAddress {
    address: u64,
    /// A moment at which the code was there.
    time: u64,
    found: Option<Found>,
}

#[derive(Clone, Debug)]
struct Found {
    name: String,
    /// The time since which the function was there; `None` if the file does not tell.
    since: Option<u64>,
}

impl Wanted {
    /// Looks for the functions at these addresses, each given with a moment at which the code was
    /// there: in nanoseconds, or in ticks if the file has those. If an address occurs several
    /// times, its first moment counts.
    pub fn new(addresses: impl IntoIterator<Item = (u64, u64)>) -> Wanted {
        let wanted = |(address, time)| WantedAddress { address, time, found: None };
        let mut addresses: Vec<WantedAddress> = addresses.into_iter().map(wanted).collect();
        addresses.sort_unstable_by_key(|wanted| (wanted.address, wanted.time));
        addresses.dedup_by_key(|wanted| wanted.address);
        Wanted { addresses }
    }

    /// Returns the names that were found, by address, in ascending order.
    pub fn names(&self) -> impl Iterator<Item = (u64, &str)> {
        self.addresses.iter().filter_map(|wanted| Some((wanted.address, wanted.found.as_ref()?.name.as_str())))
    }

    /// Returns the addresses without a name, with their moments.
    pub fn unnamed(&self) -> impl Iterator<Item = (u64, u64)> {
        self.addresses.iter().filter(|wanted| wanted.found.is_none()).map(|wanted| (wanted.address, wanted.time))
    }

    /// Notes a function: without a time, it takes the place of those noted before; with the time
    /// since which it is there, it counts for the addresses seen from then on.
    fn note(&mut self, start: u64, length: u64, name: &[u8], since: Option<u64>) {
        let first = self.addresses.partition_point(|wanted| wanted.address < start);
        let inside = |wanted: &&mut WantedAddress| wanted.address - start < length;
        for wanted in self.addresses.iter_mut().skip(first).take_while(inside) {
            let is_better = match (&wanted.found, since) {
                (None, _) | (_, None) => true,
                (Some(Found { since: None, .. }), Some(_)) => true,
                // The latest that was there in time; if none was, the first one.
                (Some(Found { since: Some(known), .. }), Some(since)) => {
                    match (*known <= wanted.time, since <= wanted.time) {
                        (true, true) => since >= *known,
                        (is_in_time, other) => !is_in_time && (other || since < *known),
                    }
                }
            };
            if is_better {
                let name = name.get(..NAME_MAX).unwrap_or(name);
                wanted.found = Some(Found { name: printable(name), since });
            }
        }
    }
}

/// Returns a name as text of one line.
fn printable(name: &[u8]) -> String {
    let replaced = |character: char| if character.is_control() { '\u{fffd}' } else { character };
    String::from_utf8_lossy(name).chars().map(replaced).collect()
}

/// A failure to read a file.
#[derive(Debug)]
pub struct CodeMapError {
    /// The offset in the file, in bytes.
    pub offset: u64,
    /// The reason.
    pub reason: CodeMapReason,
}

/// The reason why a file could not be read any further.
#[derive(Debug)]
pub enum CodeMapReason {
    /// The contents are invalid: what is there instead of what should be.
    Invalid(&'static str),
    /// The file is longer than this many bytes.
    TooLong(u64),
    /// The system could not read it.
    Io(std::io::Error),
}

impl fmt::Display for CodeMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at offset {}: ", self.offset)?;
        match &self.reason {
            CodeMapReason::Invalid(what) => f.write_str(what),
            CodeMapReason::TooLong(limit) => write!(f, "the file is longer than {limit} bytes"),
            CodeMapReason::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CodeMapError {}

#[cfg(test)]
mod tests;
