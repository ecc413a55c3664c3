//! The body of the fuzz target of this crate.

use crate::{Fields, Line, LineParser, Munge, Requests, Survey, for_each_line};

/// Reads a log by all means, and compares what they say. Must not panic, whatever the bytes.
pub fn log(log: &[u8]) {
    let (mut munge, mut requests, mut survey, mut calls) =
        (Munge::default(), Requests::default(), Survey::default(), 0);
    let mut parser = LineParser::default();
    let read = for_each_line(log, |line| {
        let parsed = Line::parse(line);
        // The line before makes no difference.
        assert_eq!(parser.parse(line), parsed);
        let with_fields = Line::parse_with_fields(line);
        assert_eq!(parser.parse_with_fields(line), with_fields);
        if let Ok((line, fields)) = with_fields {
            assert_eq!(parsed, Ok(line));
            survey.add_fields(&line, &fields);
            fields_are_written(&line, &fields);
        }
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

/// Fields are read as they were written.
fn fields_are_written(line: &Line, fields: &Fields<'_>) {
    let label = fields.arena_label().map(|label| Fields::escaped_label(&label));
    let fields = Fields { arena: label.as_deref(), ..*fields };
    let mut text = Vec::new();
    line.write_to(&mut text);
    fields.write_to(&mut text);
    assert_eq!(Line::parse_with_fields(&text), Ok((*line, fields)));
}
