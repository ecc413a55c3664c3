//! The body of the fuzz target of this crate.

use crate::{Line, Munge, Requests, Survey, for_each_line};

/// Reads a log by all means, and compares what they say. Must not panic, whatever the bytes.
pub fn log(log: &[u8]) {
    let (mut munge, mut requests, mut survey, mut calls) =
        (Munge::default(), Requests::default(), Survey::default(), 0);
    let read = for_each_line(log, |line| {
        let parsed = Line::parse(line);
        if let Ok(line) = &parsed {
            // A line is written in one form, whatever it was read from.
            assert_eq!(Line::parse(line.to_string().as_bytes()), Ok(*line));
            requests.add(line);
            survey.add(line);
            calls += 1;
        }
        if let Ok(munged) = munge.line(line) {
            assert_eq!(munged.request.function(), parsed.unwrap_or(munged).request.function());
        }
        true
    });
    assert!(read.is_ok_and(|read| read == log.len() as u64));
    assert!(survey.calls() == calls && requests.total() <= calls);
}
