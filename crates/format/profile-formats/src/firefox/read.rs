//! Reading profiles with native allocations: processed ones, as the Firefox Profiler saves them,
//! and those of Firefox itself.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use serde::{Deserialize, Deserializer, de};

use crate::gather::Gather;
use crate::profile::{Amount, Event, EventKind, Known, Process, Profile};
use crate::read_error::ReadError;

mod gecko;
mod processed;

/// True if a file may be a profile: JSON that says what it was made with. `bytes` may be just its
/// beginning.
pub fn detects(bytes: &[u8]) -> bool {
    let bytes = bytes.trim_ascii_start();
    let has = |word: &[u8]| bytes.windows(word.len()).any(|part| part == word);
    let has_head = has(b"\"meta\"") && (has(b"\"preprocessedProfileVersion\"") || has(b"\"stackwalk\""));
    // The files of Firefox itself begin with its libraries.
    bytes.starts_with(b"{") && (has_head || has(b"\"breakpadId\""))
}

/// Reads a profile. If blocks have addresses ("balanced" allocations), all events of them are
/// returned beside it, in the order of time. Otherwise the profile has the allocations, and nothing
/// is known about their frees. If Firefox has taken a sample of the allocations, they are returned
/// unscaled.
///
/// # Errors
///
/// Fails if it is not such a file, or has no native allocations.
pub fn read(bytes: &[u8]) -> Result<(Profile, Vec<Event>), ReadError> {
    let mut rows = Rows::default();
    // Files of Firefox itself have another version.
    match processed::version(bytes)? {
        Some(version) => processed::read(bytes, version, &mut rows)?,
        None => gecko::read(bytes, &mut rows)?,
    }
    if rows.threads.iter().all(Vec::is_empty) {
        return Err(ReadError::new(0, "it has no native allocations: the feature `nativeallocations` was not on"));
    }
    Ok(rows.finish())
}

/// The metadata that both formats have.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    /// Milliseconds since 1970.
    #[serde(default)]
    start_time: f64,
    #[serde(default)]
    product: String,
}

/// Allocations and frees as they are read.
#[derive(Default)]
struct Rows {
    gather: Gather,
    /// The rows of each thread that has some, in order.
    threads: Vec<Vec<Row>>,
}

struct Row {
    time_ns: u64,
    process: usize,
    thread: u32,
    /// The size; negative for a free.
    bytes: i64,
    address: Option<u64>,
    sample: usize,
}

impl Rows {
    /// Returns the number of a process.
    fn process(&mut self, pid: u32, name: &str) -> usize {
        let processes = &mut self.gather.profile.processes;
        processes.iter().position(|process| process.pid == pid).unwrap_or_else(|| {
            processes.push(Process { pid, name: name.to_owned(), ..Process::default() });
            processes.len() - 1
        })
    }

    fn finish(self) -> (Profile, Vec<Event>) {
        let Rows { gather, threads } = self;
        let mut profile = gather.profile;
        let is_balanced = threads.iter().flatten().all(|row| row.address.is_some());
        let times = threads.iter().flatten().map(|row| row.time_ns);
        profile.duration_ns = times.max().unwrap_or(0);
        if !is_balanced {
            for row in threads.iter().flatten().filter(|row| row.bytes >= 0) {
                let allocated = Amount { blocks: 1, bytes: row.bytes.unsigned_abs() };
                profile.samples[row.sample].amounts.allocated.add(allocated);
            }
            profile.known = Known { allocated: true, ..Known::NONE };
            return (profile, Vec::new());
        }
        profile.known = Known { allocated: true, temporaries: true, live: true, peak: true, end: true, ..Known::NONE };
        (profile, events(threads))
    }
}

/// Returns the events of all threads. Those of each thread stay in their order, whatever their
/// times.
fn events(threads: Vec<Vec<Row>>) -> Vec<Event> {
    let mut threads: Vec<_> = threads.into_iter().map(|rows| rows.into_iter().peekable()).collect();
    let first = |(at, rows): (usize, &mut std::iter::Peekable<std::vec::IntoIter<Row>>)| {
        Some(Reverse((rows.peek()?.time_ns, at)))
    };
    let mut next: BinaryHeap<_> = threads.iter_mut().enumerate().filter_map(first).collect();
    let (mut events, mut live) = (Vec::new(), HashMap::new());
    while let Some(Reverse((_, at))) = next.pop() {
        let Some(row) = threads[at].next() else { continue };
        next.extend(first((at, &mut threads[at])));
        let Row { time_ns, process, thread, bytes, sample, .. } = row;
        let address = row.address.unwrap_or(0);
        let key = (process, address);
        let kind = if bytes >= 0 {
            let bytes = bytes.unsigned_abs();
            live.insert(key, (bytes, sample));
            EventKind::Allocated { bytes, sample }
        } else {
            // Other blocks were allocated before the profile began.
            let Some((bytes, sample)) = live.remove(&key) else { continue };
            EventKind::Freed { bytes, sample }
        };
        events.push(Event { time_ns, process, thread, address, kind });
    }
    events
}

fn nanoseconds(milliseconds: f64) -> u64 {
    (milliseconds * 1e6).round() as u64
}

/// A process id, which may be written as a text with more behind it.
struct Pid(u32);

impl<'de> Deserialize<'de> for Pid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl de::Visitor<'_> for Number {
            type Value = u32;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the number of a process")
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<u32, E> {
                Ok(u32::try_from(value).unwrap_or(0))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<u32, E> {
                let digits = text.split(|other: char| !other.is_ascii_digit()).next();
                Ok(digits.and_then(|digits| digits.parse().ok()).unwrap_or(0))
            }
        }
        deserializer.deserialize_any(Number).map(Pid)
    }
}

#[cfg(test)]
mod tests;
