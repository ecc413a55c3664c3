//! Names of code that compilers generate at run time, from the files that they write for profilers:
//! [`perf_map`] and [`jitdump`].
//!
//! Only the names of [`Wanted`] addresses are kept, a name once for all addresses in its function.
//! A file may claim that each of its functions covers all addresses: so the work for one file has
//! limits, [`FOUND_MAX`] and [`NAMES_MAX`], beyond which it is not read any further.
#![forbid(unsafe_code)]

use std::fmt;
use std::rc::Rc;

pub mod fuzzing;
pub mod jitdump;
pub mod perf_map;

/// The maximum length of a name in bytes; the rest of a longer one is left out.
pub const NAME_MAX: usize = 2048;

/// The number of times that a wanted address may lie in a function of one file: less than a second
/// of work.
pub const FOUND_MAX: u64 = 1 << 26;
/// The bytes of all names of one file that are kept, even if others take their places.
pub const NAMES_MAX: usize = 64 << 20;

/// The addresses whose functions are looked for, and the names found so far.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// In ascending order of addresses, each once.
    addresses: Vec<WantedAddress>,
    /// The number of times that an address may still be found in a function.
    found_left: u64,
    /// The bytes of the names that may still be kept.
    name_bytes_left: usize,
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
    name: Rc<str>,
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
        Wanted { addresses, found_left: FOUND_MAX, name_bytes_left: NAMES_MAX }
    }

    /// Returns the names that were found, by address, in ascending order.
    pub fn names(&self) -> impl Iterator<Item = (u64, &Rc<str>)> {
        self.addresses.iter().filter_map(|wanted| Some((wanted.address, &wanted.found.as_ref()?.name)))
    }

    /// Returns the addresses without a name, with their moments.
    pub fn unnamed(&self) -> impl Iterator<Item = (u64, u64)> {
        self.addresses.iter().filter(|wanted| wanted.found.is_none()).map(|wanted| (wanted.address, wanted.time))
    }

    /// Notes a function: without a time, it takes the place of those noted before; with the time
    /// since which it is there, it counts for the addresses seen from then on. False if a limit is
    /// reached: then some addresses may not have been considered.
    fn note(&mut self, start: u64, length: u64, name: &[u8], since: Option<u64>) -> bool {
        let mut text: Option<Rc<str>> = None;
        let first = self.addresses.partition_point(|wanted| wanted.address < start);
        let inside = |wanted: &&mut WantedAddress| wanted.address - start < length;
        for wanted in self.addresses.iter_mut().skip(first).take_while(inside) {
            let Some(left) = self.found_left.checked_sub(1) else { return false };
            self.found_left = left;
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
                let name = match &text {
                    Some(name) => name,
                    None => {
                        let name = printable(name.get(..NAME_MAX).unwrap_or(name));
                        let Some(left) = self.name_bytes_left.checked_sub(name.len()) else { return false };
                        self.name_bytes_left = left;
                        text.insert(name)
                    }
                };
                wanted.found = Some(Found { name: Rc::clone(name), since });
            }
        }
        true
    }
}

/// Returns a name as text of one line.
fn printable(name: &[u8]) -> Rc<str> {
    let replaced = |character: char| if character.is_control() { '\u{fffd}' } else { character };
    String::from_utf8_lossy(name).chars().map(replaced).collect::<String>().into()
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
    /// Its functions cover each other too often, or too many have names.
    TooManyNames,
    /// The system could not read it.
    Io(std::io::Error),
}

impl fmt::Display for CodeMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at offset {}: ", self.offset)?;
        match &self.reason {
            CodeMapReason::Invalid(what) => f.write_str(what),
            CodeMapReason::TooLong(limit) => write!(f, "the file is longer than {limit} bytes"),
            CodeMapReason::TooManyNames => f.write_str("too many functions at the same addresses, or too many names"),
            CodeMapReason::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CodeMapError {}

#[cfg(test)]
mod tests;
