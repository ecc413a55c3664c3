//! A recording that ended before its program did, because it could not be written any more: the
//! error, and what can be read of the file.

use std::error::Error as _;
use std::io;
use std::path::Path;

use heapledger_collect::{Outcome, RecordError};
use heapledger_recording::{ChunkKind, Recording, Time};

use crate::code::Code;
use crate::error::Failure;
use crate::exit::Exit;
use crate::format::{counted, time};
use crate::input::Input;

/// The number of events in a file, and the time of the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Readable {
    pub(crate) events: u64,
    pub(crate) until: Time,
}

impl Readable {
    /// Returns the readable part of a file; `None` if it is not a file, or has no recording in it.
    pub(crate) fn of(path: &Path) -> Option<Readable> {
        let input = Input::map(path).ok().filter(|_| path.is_file())?;
        Some(Readable::in_recording(&input.recording().ok()?))
    }

    fn in_recording(recording: &Recording<'_>) -> Readable {
        let chunks = recording.chunks().iter().filter(|chunk| chunk.kind == ChunkKind::Events);
        chunks.fold(Readable::default(), |sum, chunk| Readable {
            events: sum.events + u64::from(chunk.head.rows),
            until: sum.until.max(chunk.head.time_last),
        })
    }
}

/// Returns the error that ended a recording, with the state in which it left the file.
pub(crate) fn failure(outcome: &Outcome, problem: &RecordError) -> Failure {
    let mut text = reason(problem);
    if let RecordError::WriteOutput { .. } = problem {
        let readable = Readable::of(&outcome.output).unwrap_or_default();
        let missing = outcome.events_of_file.saturating_sub(readable.events);
        let missing = counted(missing, "event is", "events are");
        let end = time(readable.until);
        text = format!("{text}: the recording ends at {end}; {missing} not in it, and none of what came later");
    } else {
        text = format!("{text}: the recording ended before the program did");
    }
    let hint = "to write elsewhere: heapledger record -o FILE -- COMMAND";
    Failure::new(Exit::Unexpected, text).code(Code::Ended).hint(hint)
}

/// Returns the error and its cause in one line: `cannot write x.hl: no space left on device`.
fn reason(problem: &RecordError) -> String {
    let mut text = problem.to_string();
    if let Some(source) = problem.source() {
        let cause = source.to_string();
        let number = source.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        let cause = number.map_or(&*cause, |number| cause.trim_end_matches(&format!(" (os error {number})")));
        // The C library begins its messages with a capital.
        let is_sentence = cause.chars().nth(1).is_some_and(char::is_lowercase);
        let first = cause.chars().take(1).map(|first| if is_sentence { first.to_ascii_lowercase() } else { first });
        text.push_str(": ");
        text.extend(first.chain(cause.chars().skip(1)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_is_in_the_systems_words() {
        let full =
            |number| RecordError::WriteOutput { path: "x.hl".into(), source: io::Error::from_raw_os_error(number) };
        assert_eq!(reason(&full(28)), "cannot write x.hl: no space left on device");
        assert_eq!(reason(&full(27)), "cannot write x.hl: file too large");
        assert_eq!(reason(&full(122)), "cannot write x.hl: disk quota exceeded");
        assert_eq!(reason(&full(5)), "cannot write x.hl: input/output error");
        assert_eq!(reason(&RecordError::OutOfMemory), "out of memory for the table of live blocks");
    }
}
