//! Processes whose calls that change mappings were not seen.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use heapledger_recording::{ImageStart, MappingCall, Recording};

use crate::format::counted;
use crate::text::shown;

/// Says in which processes no call that changes mappings was seen, if there are some and mappings
/// were recorded.
pub(crate) fn unseen(recording: &Recording<'_>) -> Option<String> {
    let is_unseen = |start: &&ImageStart| {
        let mut calls = recording.mapping_events(start.image).flatten().map(|event| event.call).peekable();
        calls.peek().is_some() && calls.all(|call| call == MappingCall::Unseen)
    };
    let unseen: Vec<&ImageStart> = recording.images().iter().filter(is_unseen).collect();
    let first = unseen.first()?;
    let programs = counted(unseen.len() as u64, "program", "programs");
    let name = shown(Path::new(OsStr::from_bytes(&first.executable)));
    Some(format!("mappings of {programs} (the first is {name}) are only known from /proc: without stacks"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recording without mappings needs no such sentence, nor one whose calls were seen.
    #[test]
    fn only_what_was_not_seen_is_named() {
        let sample = heapledger_recording::fuzzing::sample();
        assert_eq!(unseen(&Recording::open(&sample).unwrap()), None);
    }
}
