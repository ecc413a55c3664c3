//! A streaming JSON lexer, with a buffer of a fixed size.
//!
//! This is not a JSON library, for speed: nearly all of a log is short keys and small numbers,
//! which are taken from the buffer in place. To look at each token of a log of 1 GB takes 3.1 s of
//! CPU with it, 6.3 s with `actson` and 7.7 s with `serde_json` (`examples/readers.rs`, on two busy
//! virtual cores); `json-event-parser` and `struson` take six and seven times as long. Also, texts
//! may be invalid UTF-8 or halves of surrogate pairs here.

use std::io::Read;

use crate::read_error::ReadError;
use crate::table_keys::short_key;

/// The size of the buffer, in bytes.
const BUFFER: usize = 256 << 10;
/// The longest string, in bytes.
const STRING_MAX: usize = 1 << 20;
/// The deepest nesting of values that are skipped.
const DEPTH_MAX: usize = 64;

type Result<T> = std::result::Result<T, ReadError>;

/// Reads tokens.
pub(crate) struct Lexer<'i> {
    /// Not a type parameter: it is asked for a buffer at a time, and each caller would compile a
    /// lexer of its own.
    input: &'i mut dyn Read,
    buffer: Box<[u8]>,
    /// The part of the buffer that has not been read.
    at: usize,
    end: usize,
    /// The offset in the input of the buffer's first byte.
    base: u64,
    /// The most bytes that are read.
    bytes_max: u64,
    /// A string that is in more than one piece.
    pieces: Vec<u8>,
}

impl<'i> Lexer<'i> {
    pub(crate) fn new(input: &'i mut dyn Read, bytes_max: u64) -> Lexer<'i> {
        let buffer = vec![0; BUFFER].into_boxed_slice();
        Lexer { input, buffer, at: 0, end: 0, base: 0, bytes_max, pieces: Vec::new() }
    }

    /// Returns the offset of the next byte, from the beginning.
    pub(crate) fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// Returns an error at the present offset.
    #[cold]
    pub(crate) fn wrong(&self, reason: impl Into<String>) -> ReadError {
        ReadError::Malformed { offset: self.offset(), reason: reason.into() }
    }

    /// Fills the buffer. Returns true if there is more to read.
    #[cold]
    fn fill(&mut self) -> Result<bool> {
        self.base += self.end as u64;
        (self.at, self.end) = (0, 0);
        if self.base > self.bytes_max {
            return Err(self.wrong(format!("it has more than the {} bytes that are read of one", self.bytes_max)));
        }
        loop {
            match self.input.read(&mut self.buffer) {
                Ok(count) => {
                    self.end = count;
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ReadError::Io(error)),
            }
        }
    }

    /// Returns the next byte; `None` at the end.
    #[inline]
    fn peek(&mut self) -> Result<Option<u8>> {
        if self.at == self.end && !self.fill()? {
            return Ok(None);
        }
        Ok(Some(self.buffer[self.at]))
    }

    /// Returns the next byte that is not white space.
    #[inline]
    pub(crate) fn token(&mut self) -> Result<u8> {
        // Nearly always it is the next byte, or the one after a space.
        match self.buffer[self.at..self.end] {
            [byte @ b'!'..=b'~', ..] => Ok(byte),
            [b' ', byte @ b'!'..=b'~', ..] => {
                self.at += 1;
                Ok(byte)
            }
            _ => self.token_after_space(),
        }
    }

    #[cold]
    fn token_after_space(&mut self) -> Result<u8> {
        loop {
            match self.peek()? {
                Some(b' ' | b'\t' | b'\r' | b'\n') => self.at += 1,
                Some(byte) => return Ok(byte),
                None => return Err(self.wrong("it ends too early")),
            }
        }
    }

    /// Takes this byte.
    #[inline]
    pub(crate) fn expect(&mut self, wanted: u8) -> Result<()> {
        let found = self.token()?;
        if found != wanted {
            return Err(self.wrong(format!("`{}` was expected, not `{}`", char::from(wanted), found.escape_ascii())));
        }
        self.at += 1;
        Ok(())
    }

    /// Returns true if another item follows before `close`, and consumes the separator or `close`.
    /// `first` is true if no item has been read yet.
    #[inline]
    pub(crate) fn item(&mut self, first: &mut bool, close: u8) -> Result<bool> {
        let next = self.token()?;
        if next == close {
            self.at += 1;
            return Ok(false);
        }
        if !std::mem::take(first) {
            self.expect(b',')?;
            self.token()?;
        }
        Ok(true)
    }

    /// Returns the key of an object's next member, if there is one.
    #[inline]
    pub(crate) fn key(&mut self, first: &mut bool) -> Result<Option<Span>> {
        if !self.item(first, b'}')? {
            return Ok(None);
        }
        let key = self.string()?;
        if self.at < self.end && self.buffer[self.at] == b':' {
            self.at += 1;
            return Ok(Some(key));
        }
        // The buffer may be refilled before the colon comes.
        if let Span::Buffer(from, to) = key {
            self.pieces.clear();
            self.pieces.extend_from_slice(&self.buffer[from..to]);
        }
        self.expect(b':')?;
        Ok(Some(Span::Pieces))
    }

    /// Reads a string. It must be [looked at](Lexer::bytes) before the next token is read.
    #[inline]
    pub(crate) fn string(&mut self) -> Result<Span> {
        self.expect(b'"')?;
        let from = self.at;
        let rest = &self.buffer[from..self.end];
        let length = rest.iter().position(|&byte| matches!(byte, b'"' | b'\\' | 0..0x20)).unwrap_or(rest.len());
        self.at += length;
        if rest.get(length) == Some(&b'"') {
            self.at += 1;
            return Ok(Span::Buffer(from, from + length));
        }
        self.string_in_pieces(from)
    }

    /// Takes a string that is a short key as a whole, if it is next, and returns its number.
    #[inline]
    pub(crate) fn short_key(&mut self) -> Option<u64> {
        let [b'"', rest @ ..] = &self.buffer[self.at..self.end] else { return None };
        let (key, length) = short_key(rest.iter().copied())?;
        self.at += length + 2;
        Some(key)
    }

    /// Reads a string that goes on in the next buffer, or has escapes.
    #[cold]
    fn string_in_pieces(&mut self, from: usize) -> Result<Span> {
        self.pieces.clear();
        self.pieces.extend_from_slice(&self.buffer[from..self.at]);
        loop {
            let Some(byte) = self.peek()? else { return Err(self.wrong("it ends inside a string")) };
            if self.pieces.len() > STRING_MAX {
                return Err(self.wrong(format!("a string of more than {STRING_MAX} bytes")));
            }
            self.at += 1;
            match byte {
                b'"' => return Ok(Span::Pieces),
                b'\\' => self.escape()?,
                0..0x20 => return Err(self.wrong("a control character in a string")),
                byte => self.pieces.push(byte),
            }
        }
    }

    fn escape(&mut self) -> Result<()> {
        let byte = self.next()?;
        let character = match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let mut units = [self.hex4()?, 0];
                let mut count = 1;
                if (0xd800..0xdc00).contains(&units[0]) && self.peek()? == Some(b'\\') {
                    self.at += 1;
                    if self.next()? != b'u' {
                        return Err(self.wrong("half a surrogate pair"));
                    }
                    units[1] = self.hex4()?;
                    count = 2;
                }
                for character in char::decode_utf16(units[..count].iter().copied()) {
                    let character = character.unwrap_or(char::REPLACEMENT_CHARACTER);
                    self.pieces.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                return Ok(());
            }
            _ => return Err(self.wrong("an escape that there is not")),
        };
        self.pieces.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    /// Takes the next byte, whatever it is.
    fn next(&mut self) -> Result<u8> {
        let Some(byte) = self.peek()? else { return Err(self.wrong("it ends inside a string")) };
        self.at += 1;
        Ok(byte)
    }

    fn hex4(&mut self) -> Result<u16> {
        let mut value = 0;
        for _ in 0..4 {
            let byte = self.next()?;
            let Some(digit) = char::from(byte).to_digit(16) else {
                return Err(self.wrong("not four hexadecimal digits"));
            };
            value = value << 4 | digit as u16;
        }
        Ok(value)
    }

    /// Returns the bytes of the string that was read last.
    #[inline]
    pub(crate) fn bytes(&self, span: Span) -> &[u8] {
        match span {
            Span::Buffer(from, to) => &self.buffer[from..to],
            Span::Pieces => &self.pieces,
        }
    }

    /// Reads a string as text.
    pub(crate) fn text(&mut self) -> Result<String> {
        let span = self.string()?;
        let bytes = self.bytes(span);
        if bytes.len() > STRING_MAX {
            return Err(self.wrong(format!("a string of more than {STRING_MAX} bytes")));
        }
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    /// Reads a whole number that is not negative.
    #[inline]
    pub(crate) fn integer(&mut self) -> Result<u64> {
        if !self.token()?.is_ascii_digit() {
            return Err(self.wrong("a whole number was expected"));
        }
        let mut value: u64 = 0;
        // Any 18 digits fit.
        for &byte in self.buffer[self.at..self.end].iter().take(18) {
            match byte {
                b'0'..=b'9' => value = value * 10 + u64::from(byte - b'0'),
                b',' | b'}' => return Ok(value),
                _ => break,
            }
            self.at += 1;
        }
        while let Some(byte @ b'0'..=b'9') = self.peek()? {
            let next = value.checked_mul(10).and_then(|value| value.checked_add(u64::from(byte - b'0')));
            let Some(next) = next else { return Err(self.wrong("a number of more than 64 bits")) };
            value = next;
            self.at += 1;
        }
        match self.peek()? {
            Some(b'.' | b'e' | b'E') => Err(self.wrong("a whole number was expected")),
            _ => Ok(value),
        }
    }

    /// Reads a number.
    pub(crate) fn number(&mut self) -> Result<f64> {
        self.token()?;
        let mut digits = String::new();
        while let Some(byte @ (b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')) = self.peek()? {
            if digits.len() > 64 {
                break;
            }
            digits.push(char::from(byte));
            self.at += 1;
        }
        let number = digits.parse::<f64>().ok().filter(|number| number.is_finite());
        number.ok_or_else(|| self.wrong("a number was expected"))
    }

    /// Takes `null`, if it is next.
    pub(crate) fn null(&mut self) -> Result<bool> {
        if self.token()? != b'n' {
            return Ok(false);
        }
        self.literal()?;
        Ok(true)
    }

    /// Skips `true`, `false`, `null` or a number.
    fn literal(&mut self) -> Result<()> {
        while let Some(b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'+' | b'-' | b'.') = self.peek()? {
            self.at += 1;
        }
        Ok(())
    }

    /// Skips a value of any kind.
    pub(crate) fn skip(&mut self) -> Result<()> {
        let mut open: Vec<(u8, bool)> = Vec::new();
        loop {
            match self.token()? {
                opening @ (b'{' | b'[') => {
                    self.at += 1;
                    if open.len() == DEPTH_MAX {
                        return Err(self.wrong("values that are nested too deep"));
                    }
                    open.push((opening + 2, true));
                }
                b'"' => {
                    self.string()?;
                }
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => self.literal()?,
                _ => return Err(self.wrong("a value was expected")),
            }
            // The value that ends here, and then whether another one follows.
            loop {
                let Some((close, first)) = open.last_mut() else { return Ok(()) };
                let (close, mut is_first) = (*close, std::mem::take(first));
                if self.item(&mut is_first, close)? {
                    if close == b'}' {
                        self.string()?;
                        self.expect(b':')?;
                    }
                    break;
                }
                open.pop();
            }
        }
    }

    /// Checks that only white space follows.
    pub(crate) fn finish(&mut self) -> Result<()> {
        loop {
            match self.peek()? {
                Some(b' ' | b'\t' | b'\r' | b'\n') => self.at += 1,
                Some(_) => return Err(self.wrong("something follows where it should end")),
                None => return Ok(()),
            }
        }
    }
}

/// The position of a string's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Span {
    /// In the buffer.
    Buffer(usize, usize),
    /// In more than one piece.
    Pieces,
}
