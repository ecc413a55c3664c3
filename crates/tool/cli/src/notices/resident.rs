//! Resident memory compared with the live heap: the most that a recording has, and how much of it
//! malloc cannot explain.

use std::time::Duration;

use heapledger_core::Bytes;
use heapledger_recording::MemorySample;

use crate::format::{bytes, duration};

/// The smallest excess of anonymous memory over the live heap that is worth a remark, in bytes, if
/// it is also more than the heap itself.
const BEYOND_MIN: u64 = 16 << 20;

/// Formats the peak of resident memory:
/// `at 1.0 s, 302.1 MiB of it of no file: 239.0 MiB more than was ever live`. The remark after the
/// colon appears only if anonymous memory and the largest live heap differ much.
pub(crate) fn note(most: &MemorySample, live_max: Bytes) -> String {
    let anonymous = most.resident_anonymous;
    // The recorder measures only periodically, so the time is no more precise than that.
    let time = duration(Duration::from_nanos(most.time.0));
    let mut note = format!("at {time}, {} of it of no file", bytes(anonymous.0));
    let beyond = anonymous.0.saturating_sub(live_max.0);
    if beyond >= BEYOND_MIN && beyond > live_max.0 {
        note.push_str(&format!(": {} more than was ever live", bytes(beyond)));
    }
    note
}

/// Formats the note as a sentence of `record`'s report: `resident 35.3 MiB at most, at 1.0 s, …`.
pub(crate) fn sentence(most: &MemorySample, live_max: Bytes) -> String {
    format!("resident {} at most, {}", bytes(most.resident.0), note(most, live_max))
}

#[cfg(test)]
mod tests {
    use heapledger_recording::Time;

    use super::*;

    #[test]
    fn a_large_difference_is_pointed_out() {
        let most = MemorySample {
            time: Time(1_000_000_000),
            resident: Bytes(229 << 20),
            resident_anonymous: Bytes(198 << 20),
            ..MemorySample::default()
        };
        let plain = "resident 229.0 MiB at most, at 1.0 s, 198.0 MiB of it of no file";
        assert_eq!(sentence(&most, Bytes(190 << 20)), plain);
        assert_eq!(sentence(&most, Bytes(99 << 20)), plain);
        assert_eq!(sentence(&most, Bytes(3 << 20)), format!("{plain}: 195.0 MiB more than was ever live"));
    }

    #[test]
    fn a_small_difference_is_not() {
        let most = MemorySample { resident_anonymous: Bytes(BEYOND_MIN), ..MemorySample::default() };
        assert!(!sentence(&most, Bytes(1)).contains("ever live"));
        assert!(sentence(&most, Bytes(0)).ends_with("16.0 MiB more than was ever live"));
    }
}
