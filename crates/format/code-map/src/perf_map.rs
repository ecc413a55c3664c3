//! Perf maps: `/tmp/perf-PID.map`, a line `START SIZE NAME` for each function, both numbers in
//! hexadecimal.
//!
//! Source: `tools/perf/Documentation/jit-interface.txt` of Linux. The file has no times: if code
//! was replaced at an address, the last line counts.

use std::io::BufRead;

use crate::{CodeMapError, CodeMapReason, NAME_MAX, Wanted};

/// The maximum length of a file in bytes: a recorder reads it while programs may wait for it.
pub const LENGTH_MAX: u64 = 256 << 20;
/// The maximum length of a line in bytes; the rest of a longer one is ignored.
const LINE_MAX: usize = NAME_MAX + 64;

/// Reads a perf map. Returns the number of lines that were not understood, which are left out: the
/// process may be writing the last one, and some compilers write others.
///
/// Takes time in proportion to the length of the file, and memory for one line and the names.
///
/// # Errors
///
/// Fails if the file cannot be read or is longer than [`LENGTH_MAX`], or if its functions reach a
/// limit of [`Wanted`]. Names found before stay.
pub fn read(input: impl BufRead, wanted: &mut Wanted) -> Result<u64, CodeMapError> {
    read_up_to(LENGTH_MAX, input, wanted)
}

/// Does the same with another limit of the length.
fn read_up_to(length_max: u64, mut input: impl BufRead, wanted: &mut Wanted) -> Result<u64, CodeMapError> {
    let (mut offset, mut line, mut ignored) = (0_u64, Vec::new(), 0);
    loop {
        let piece = match input.fill_buf() {
            Ok(piece) => piece,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(CodeMapError { offset, reason: CodeMapReason::Io(error) }),
        };
        let end = memchr::memchr(b'\n', piece);
        let part = &piece[..end.unwrap_or(piece.len())];
        let room = LINE_MAX - line.len();
        line.extend_from_slice(part.get(..room).unwrap_or(part));
        let (is_last, read) = (piece.is_empty(), end.map_or(piece.len(), |end| end + 1));
        if end.is_some() || is_last {
            if !line.is_empty() {
                match parse(&line) {
                    Some((start, size, name)) => {
                        if !wanted.note(start, size, name, None) {
                            return Err(CodeMapError { offset, reason: CodeMapReason::TooManyNames });
                        }
                    }
                    None => ignored += 1,
                }
            }
            line.clear();
        }
        if is_last {
            return Ok(ignored);
        }
        input.consume(read);
        offset += read as u64;
        if offset > length_max {
            return Err(CodeMapError { offset, reason: CodeMapReason::TooLong(length_max) });
        }
    }
}

/// Returns the start, the size and the name of a line.
fn parse(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut parts = line.splitn(3, |&byte| byte == b' ');
    let mut number = || {
        let digits = std::str::from_utf8(parts.next()?).ok()?;
        let digits = digits.strip_prefix("0x").unwrap_or(digits);
        // `from_str_radix` accepts a sign.
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u64::from_str_radix(digits, 16).ok())?
    };
    let (start, size) = (number()?, number()?);
    let name = parts.next()?.trim_ascii();
    (!name.is_empty()).then_some((start, size, name))
}

#[cfg(test)]
pub(crate) mod tests;
