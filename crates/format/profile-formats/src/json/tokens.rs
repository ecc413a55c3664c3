//! JSON piece by piece: files with trees of calls are nested as deep as stacks are, which is deeper
//! than `serde_json` allows.

use std::borrow::Cow;

use crate::read_error::ReadError;

/// A piece of JSON.
#[derive(Debug, PartialEq)]
pub(crate) enum Token<'a> {
    /// An object begins.
    Object,
    /// An array begins.
    Array,
    /// The innermost object or array ends.
    End,
    /// The name of the next member of an object.
    Key(Cow<'a, str>),
    /// A text.
    Text(Cow<'a, str>),
    /// A number, as it is written.
    Number(&'a str),
    /// `true`, `false` or `null`.
    Word,
}

/// The pieces of a text. Takes a byte of memory for each level.
#[derive(Debug)]
pub(crate) struct Tokens<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The brackets that are open.
    open: Vec<u8>,
    /// True if a key has come, and its value has not.
    has_key: bool,
}

impl<'a> Tokens<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Tokens { bytes, at: 0, open: Vec::new(), has_key: false }
    }

    /// Returns an error at the end of the latest piece.
    pub(crate) fn error(&self, reason: impl Into<String>) -> ReadError {
        ReadError::new(self.at as u64, reason)
    }

    /// Returns the next piece; `None` at the end of the text.
    pub(crate) fn next(&mut self) -> Result<Option<Token<'a>>, ReadError> {
        while self.bytes.get(self.at).is_some_and(|byte| byte.is_ascii_whitespace() || *byte == b',') {
            self.at += 1;
        }
        let Some(&byte) = self.bytes.get(self.at) else {
            return if self.open.is_empty() { Ok(None) } else { Err(self.error("it ends in the middle")) };
        };
        let is_key = self.open.last() == Some(&b'{') && !self.has_key;
        if is_key && !matches!(byte, b'"' | b'}') {
            return Err(self.error("a name is missing"));
        }
        self.has_key = false;
        let token = match byte {
            b'{' | b'[' => {
                self.open.push(byte);
                self.at += 1;
                if byte == b'{' { Token::Object } else { Token::Array }
            }
            b'}' | b']' => {
                // The code of an opening bracket is one or two less than that of its closing one.
                if self.open.pop().is_none_or(|open| open.abs_diff(byte) > 2) {
                    return Err(self.error("a bracket that was not opened"));
                }
                self.at += 1;
                Token::End
            }
            b'"' => {
                let text = self.text()?;
                if is_key {
                    self.expect_colon()?;
                    self.has_key = true;
                    Token::Key(text)
                } else {
                    Token::Text(text)
                }
            }
            _ => {
                let rest = &self.bytes[self.at..];
                let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
                let length = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
                let word = std::str::from_utf8(&rest[..length]).unwrap_or_default();
                let token = match word {
                    "true" | "false" | "null" => Token::Word,
                    _ if word.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => Token::Number(word),
                    _ => return Err(self.error("no value")),
                };
                self.at += length;
                token
            }
        };
        Ok(Some(token))
    }

    fn expect_colon(&mut self) -> Result<(), ReadError> {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        if self.bytes.get(self.at) != Some(&b':') {
            return Err(self.error("a colon is missing"));
        }
        self.at += 1;
        Ok(())
    }

    fn text(&mut self) -> Result<Cow<'a, str>, ReadError> {
        let start = self.at;
        let mut end = start + 1;
        let mut is_plain = true;
        loop {
            match self.bytes.get(end) {
                None => return Err(self.error("a text that does not end")),
                Some(b'"') => break,
                Some(b'\\') => {
                    is_plain = false;
                    end += 2;
                }
                Some(_) => end += 1,
            }
        }
        self.at = end + 1;
        let text = &self.bytes[start..=end];
        let wrong = |at: u64| ReadError::new(at, "no text");
        if is_plain {
            return std::str::from_utf8(&text[1..text.len() - 1]).map(Cow::Borrowed).map_err(|_| wrong(start as u64));
        }
        // Lone halves of UTF-16 pairs are not text, but other programs write them.
        Ok(serde_json::from_slice(text).map_or_else(|_| String::from_utf8_lossy(text).into_owned().into(), Cow::Owned))
    }
}

/// Returns a number that counts something: without its fraction, and 0 if it is negative.
pub(crate) fn count(number: &str) -> Option<u64> {
    number.parse().ok().or_else(|| number.parse::<f64>().ok().map(|number| number as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Result<Vec<Token<'_>>, ReadError> {
        let mut tokens = Tokens::new(text.as_bytes());
        std::iter::from_fn(|| tokens.next().transpose()).collect()
    }

    #[test]
    fn pieces_come_in_order() {
        use Token::{Array, End, Key, Number, Object, Text, Word};
        let found = tokens(r#" {"a" : [1.5e3, "x\n\"", null], "b":{}} "#).unwrap();
        let expected =
            [Object, Key("a".into()), Array, Number("1.5e3"), Text("x\n\"".into()), Word, End, Key("b".into()), Object];
        assert_eq!(found[..9], expected);
        assert_eq!(found[9..], [End, End]);
        assert_eq!((count("1.5e3"), count("-1"), count("18446744073709551615")), (Some(1500), Some(0), Some(u64::MAX)));
    }

    #[test]
    fn damage_is_told() {
        for (text, offset) in [("[", 1), ("[}", 1), ("{1", 1), ("\"", 0), ("{\"a\" 1}", 5), ("what", 0), ("]", 0)] {
            assert_eq!(tokens(text).unwrap_err().offset, offset, "{text}");
        }
    }
}
