//! Requests and short answers: one line of words.

use std::fmt::Write;
use std::time::Duration;

/// The version of the protocol. Requests of later versions are not answered.
pub const VERSION: u32 = 1;
/// The length of the longest request, in bytes.
pub const REQUEST_BYTES_MAX: usize = 256;

/// The line of any request: words, and words with values, separated by spaces, and a newline at the
/// end.
#[derive(Clone, Copy, Debug)]
pub struct RequestLine<'line>(&'line str);

impl<'line> RequestLine<'line> {
    /// Returns a line that begins with `first` and the version, with those of the words that are
    /// set.
    pub fn write(first: &str, words: &[(bool, &str)]) -> String {
        let mut line = format!("{first} version={VERSION}");
        for (_, word) in words.iter().filter(|(is_set, _)| *is_set) {
            // Writing to a string cannot fail.
            let _ = write!(line, " {word}");
        }
        line.push('\n');
        line
    }

    /// Returns a word for the times that each reporter, and all of them, may take.
    pub fn write_deadlines([each, all]: [Duration; 2]) -> String {
        format!("each={} all={}", each.as_millis(), all.as_millis())
    }

    /// Parses a line whose first word is `first`. `None`: it has another one, is of a later
    /// version, or is cut off.
    pub fn parse(line: &'line [u8], first: &str) -> Option<RequestLine<'line>> {
        let line = std::str::from_utf8(line.get(..REQUEST_BYTES_MAX).unwrap_or(line)).ok()?.strip_suffix('\n')?;
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let line = RequestLine(rest);
        // The first version had no number.
        let version: u32 = line.value("version").map_or(Some(1), |number| number.parse().ok())?;
        (word == first && version <= VERSION).then_some(line)
    }

    /// True if the line has this word.
    pub fn has(self, word: &str) -> bool {
        self.0.split(' ').any(|one| one == word)
    }

    /// Returns the value of this word.
    pub fn value(self, word: &str) -> Option<&'line str> {
        self.0.split(' ').find_map(|one| one.strip_prefix(word)?.strip_prefix('='))
    }

    /// Returns the times that each reporter, and all of them, may take: 0 if the line does not say.
    /// `None`: a value is not a number.
    pub fn deadlines(self) -> Option<[Duration; 2]> {
        let milliseconds = |word| self.value(word).map_or(Some(0), |number| number.parse().ok());
        Some([milliseconds("each")?, milliseconds("all")?].map(Duration::from_millis))
    }
}

const REFUSED: &str = "refused ";

/// Returns the answer of a process that cannot do what it is asked, for this reason.
pub fn refusal(reason: &str) -> String {
    format!("{REFUSED}{}\n", reason.replace('\n', " "))
}

/// Returns the reason in such an answer. `None`: it is not a refusal.
pub fn refused(answer: &[u8]) -> Option<&str> {
    std::str::from_utf8(answer).ok()?.strip_suffix('\n')?.strip_prefix(REFUSED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_later_versions_are_not_parsed() {
        let line = RequestLine::write("ask", &[(true, "one"), (false, "two"), (true, "three=3")]);
        assert_eq!(line, "ask version=1 one three=3\n");
        let parsed = RequestLine::parse(line.as_bytes(), "ask").unwrap();
        assert!(parsed.has("one") && !parsed.has("two") && parsed.value("three") == Some("3"));
        assert!(RequestLine::parse(b"ask one\n", "ask").is_some(), "of the time before there was a version");
        for other in [&b"ask version=2 one\n"[..], b"ask version=x\n", b"asks one\n", b"ask one"] {
            assert!(RequestLine::parse(other, "ask").is_none(), "{other:?}");
        }
    }
}
