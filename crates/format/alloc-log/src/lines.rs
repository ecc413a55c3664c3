//! Cuts a log into its lines.

use std::io::{self, BufRead};

/// The longest line in bytes. No call takes more than 120; the rest of a longer line is skipped.
pub const LINE_MAX: usize = 4096;

/// Passes on each line, without its end, until `line` returns false. Returns the bytes read.
///
/// # Errors
///
/// Fails if the reader fails.
pub fn for_each_line(mut reader: impl BufRead, mut line: impl FnMut(&[u8]) -> bool) -> io::Result<u64> {
    // Not generic, so that the loop is compiled here: optimised, whatever the caller is.
    cut(&mut reader, &mut line)
}

fn cut(reader: &mut dyn BufRead, line: &mut dyn FnMut(&[u8]) -> bool) -> io::Result<u64> {
    let (mut begun, mut done) = (Vec::new(), 0_u64);
    loop {
        let buffer = match reader.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            buffer => buffer?,
        };
        if buffer.is_empty() {
            if !begun.is_empty() {
                line(&begun);
            }
            return Ok(done);
        }
        let (mut rest, mut goes_on) = (buffer, true);
        while let Some(end) = memchr::memchr(b'\n', rest).filter(|_| goes_on) {
            goes_on = if begun.is_empty() {
                line(&rest[..end.min(LINE_MAX)])
            } else {
                add(&mut begun, &rest[..end]);
                let goes_on = line(&begun);
                begun.clear();
                goes_on
            };
            rest = &rest[end + 1..];
        }
        add(&mut begun, rest);
        let read = buffer.len();
        reader.consume(read);
        done += read as u64;
        if !goes_on {
            return Ok(done);
        }
    }
}

/// Adds to a line that is not longer than allowed afterwards.
fn add(begun: &mut Vec<u8>, text: &[u8]) {
    begun.extend_from_slice(&text[..text.len().min(LINE_MAX - begun.len())]);
}
