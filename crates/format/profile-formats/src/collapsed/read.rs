//! Reading collapsed stacks.

use crate::gather::Gather;
use crate::profile::{Amount, Frame, Known, Location, Profile};
use crate::read_error::ReadError;

/// The number of lines that are checked to recognise a file.
const LINES: usize = 20;

/// True if a file may have collapsed stacks: each of its first lines ends in a number, and one of
/// them has several functions.
pub fn detects(bytes: &[u8]) -> bool {
    let mut lines = bytes.split_inclusive(|&byte| byte == b'\n').take(LINES).peekable();
    let mut has_calls = false;
    while let Some(line) = lines.next() {
        match line.strip_suffix(b"\n").map(stack) {
            Some(Some((stack, _))) => has_calls |= stack.contains(';'),
            // The last line may go on behind the given bytes.
            None if lines.peek().is_none() => return has_calls || stack(line).is_some_and(|it| it.0.contains(';')),
            _ => return false,
        }
    }
    has_calls
}

/// Reads a file. Its figures are taken for bytes, because the file does not tell their unit.
///
/// # Errors
///
/// Fails if it is not such a file.
pub fn read(bytes: &[u8]) -> Result<Profile, ReadError> {
    let mut gather = Gather::default();
    let mut offset = 0;
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        let text = line.trim_ascii_end();
        if !text.is_empty() {
            let (stack, bytes) =
                stack(text).ok_or_else(|| ReadError::new(offset, "not a stack and a whole number behind it"))?;
            // Some writers end stacks with a semicolon.
            let functions = stack.rsplit(';').filter(|function| !function.is_empty());
            let stack = functions.map(|function| gather.location(location(function))).collect();
            gather.amounts(stack, Vec::new()).live.add(Amount { blocks: 0, bytes });
        }
        offset += line.len() as u64;
    }
    gather.profile.known = Known { live: true, ..Known::NONE };
    Ok(gather.profile)
}

/// Returns the stack and the figure of a line.
fn stack(line: &[u8]) -> Option<(&str, u64)> {
    let (stack, figure) = std::str::from_utf8(line.trim_ascii_end()).ok()?.rsplit_once(' ')?;
    let is_number = !stack.trim().is_empty() && figure.bytes().all(|byte| byte.is_ascii_digit());
    Some((stack.trim(), figure.parse().ok().filter(|_| is_number)?))
}

fn location(function: &str) -> Location {
    let name = function.to_owned();
    let frame = Frame { function: name.clone(), full_name: name, known: true, ..Frame::default() };
    Location { frames: vec![frame], ..Location::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_begin_outside() {
        let file = "main;a b;c 12\nmain; 3\nmain;a b;c 1\n";
        assert!(detects(file.as_bytes()) && detects(b"main;f 1\nmain;g"));
        let profile = read(file.as_bytes()).unwrap();
        let found = profile.samples.iter().map(|sample| {
            let names = sample.locations.iter().map(|&at| &*profile.locations[at].frames[0].function);
            (names.collect::<Vec<_>>(), sample.amounts.live.bytes)
        });
        assert_eq!(found.collect::<Vec<_>>(), [(vec!["c", "a b", "main"], 13), (vec!["main"], 3)]);
    }

    #[test]
    fn other_texts_are_none() {
        for text in ["", "a;b c\n", "one line 5\nanother 6\n", "x\ny;z 3\n", "int x; x = 3;\n", "a;b -3\n", " 3\n"] {
            assert!(!detects(text.as_bytes()), "{text}");
        }
        assert_eq!(read(b"a;b 1\nc\n").unwrap_err().offset, 6);
    }
}
