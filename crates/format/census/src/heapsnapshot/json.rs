//! The parts of JSON that snapshots consist of, taken from a stream.

use crate::input::Input;
use crate::read_error::ReadError;

/// JSON that is taken piece by piece.
pub(super) struct Json<'a> {
    pub(super) input: Input<'a>,
}

impl Json<'_> {
    /// Returns the next byte that is not white space, without taking it.
    #[inline]
    pub(super) fn peek(&mut self) -> Result<u8, ReadError> {
        loop {
            match self.input.peek()? {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.input.bump(),
                Some(byte) => return Ok(byte),
                None => return Err(self.input.error("the file is cut off")),
            }
        }
    }

    /// Takes a byte, after white space.
    #[inline]
    pub(super) fn expect(&mut self, expected: u8) -> Result<(), ReadError> {
        let byte = self.peek()?;
        if byte != expected {
            return Err(self.expected(&format!("`{}`", char::from(expected))));
        }
        self.input.bump();
        Ok(())
    }

    pub(super) fn expected(&self, what: &str) -> ReadError {
        self.input.error(format_args!("{what} is expected here"))
    }

    /// Fails unless only white space is left.
    pub(super) fn end(&mut self) -> Result<(), ReadError> {
        loop {
            match self.input.peek()? {
                Some(b' ' | b'\n' | b'\r' | b'\t') => self.input.bump(),
                Some(_) => return Err(self.expected("the end of the file")),
                None => return Ok(()),
            }
        }
    }

    /// Goes to the next element of an array or to the next member of an object. Returns false, and
    /// takes the bracket, if there is none.
    #[inline]
    pub(super) fn has_next(&mut self, is_first: bool, close: u8) -> Result<bool, ReadError> {
        let byte = self.peek()?;
        if byte == close {
            self.input.bump();
            return Ok(false);
        }
        if is_first {
            return Ok(true);
        }
        if byte != b',' {
            return Err(self.expected(&format!("`,` or `{}`", char::from(close))));
        }
        self.input.bump();
        Ok(true)
    }

    /// Takes a number that is not negative and has no fraction.
    #[inline]
    pub(super) fn number(&mut self) -> Result<u64, ReadError> {
        if !self.peek()?.is_ascii_digit() {
            return Err(self.expected("a number, which is not negative,"));
        }
        let mut value: u64 = 0;
        loop {
            let bytes = self.input.buffered();
            let mut count = 0;
            for byte in bytes {
                let digit = byte.wrapping_sub(b'0');
                if digit > 9 {
                    break;
                }
                let next = value.checked_mul(10).and_then(|it| it.checked_add(u64::from(digit)));
                let Some(next) = next else { return Err(self.input.error("a number has more than 64 bits")) };
                value = next;
                count += 1;
            }
            let is_whole = count < bytes.len();
            self.input.consume(count);
            if is_whole {
                break;
            }
            if self.input.peek()?.is_none() {
                break;
            }
        }
        match self.input.peek()? {
            Some(b'.' | b'e' | b'E') => Err(self.input.error("a number has a fraction or an exponent")),
            _ => Ok(value),
        }
    }

    /// Takes a text and puts it into `text`. Surrogates that stand alone become U+FFFD, and so does
    /// what is not UTF-8.
    pub(super) fn text(&mut self, text: &mut Vec<u8>) -> Result<(), ReadError> {
        self.expect(b'"')?;
        text.clear();
        // The first half of a pair of surrogates.
        let mut high = None;
        loop {
            let Some(byte) = self.input.peek()? else { return Err(self.input.error("the file ends in a text")) };
            if byte != b'\\' && high.take().is_some() {
                push_char(text, char::REPLACEMENT_CHARACTER);
            }
            match byte {
                b'"' => {
                    self.input.bump();
                    break;
                }
                b'\\' => {
                    self.input.bump();
                    self.escape(text, &mut high)?;
                }
                0..0x20 => return Err(self.input.error("a text has a control character")),
                _ => {
                    let bytes = self.input.buffered();
                    let plain = bytes.iter().position(|&it| it == b'"' || it == b'\\' || it < 0x20);
                    let plain = plain.unwrap_or(bytes.len());
                    text.extend_from_slice(&bytes[..plain]);
                    self.input.consume(plain);
                }
            }
        }
        if let Err(_not_utf8) = std::str::from_utf8(text) {
            *text = String::from_utf8_lossy(text).into_owned().into_bytes();
        }
        Ok(())
    }

    fn escape(&mut self, text: &mut Vec<u8>, high: &mut Option<u16>) -> Result<(), ReadError> {
        let Some(byte) = self.input.peek()? else { return Err(self.input.error("the file ends in a text")) };
        let plain = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                self.input.bump();
                let unit = self.hexadecimal()?;
                push_unit(text, high, unit);
                return Ok(());
            }
            _ => return Err(self.input.error("a text has an unknown escape")),
        };
        self.input.bump();
        if high.take().is_some() {
            push_char(text, char::REPLACEMENT_CHARACTER);
        }
        text.push(plain);
        Ok(())
    }

    fn hexadecimal(&mut self) -> Result<u16, ReadError> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.input.peek()?.and_then(|it| char::from(it).to_digit(16));
            let Some(digit) = digit else { return Err(self.expected("a hexadecimal digit")) };
            unit = unit << 4 | digit as u16;
            self.input.bump();
        }
        Ok(unit)
    }

    /// Takes any value, of which only the texts and brackets are checked. If `copy` is given,
    /// appends the text of the value.
    pub(super) fn value(&mut self, mut copy: Option<&mut Vec<u8>>) -> Result<(), ReadError> {
        let mut open = Vec::new();
        let first = self.peek()?;
        if !matches!(first, b'{' | b'[' | b'"') {
            return self.scalar(copy);
        }
        loop {
            let Some(byte) = self.input.peek()? else { return Err(self.input.error("the file is cut off")) };
            match byte {
                b'"' => self.skip_text(copy.as_deref_mut())?,
                _ => {
                    match byte {
                        b'{' => open.push(b'}'),
                        b'[' => open.push(b']'),
                        b'}' | b']' if open.pop() != Some(byte) => {
                            return Err(self.input.error("a bracket does not match"));
                        }
                        _ => {}
                    }
                    if let Some(copy) = &mut copy {
                        copy.push(byte);
                    }
                    self.input.bump();
                }
            }
            if open.is_empty() {
                return Ok(());
            }
        }
    }

    /// Takes a number or a word.
    fn scalar(&mut self, mut copy: Option<&mut Vec<u8>>) -> Result<(), ReadError> {
        let mut is_empty = true;
        while let Some(byte @ (b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.')) = self.input.peek()? {
            if let Some(copy) = &mut copy {
                copy.push(byte);
            }
            self.input.bump();
            is_empty = false;
        }
        if is_empty { Err(self.expected("a value")) } else { Ok(()) }
    }

    /// Takes a text with its quotes, as it is.
    fn skip_text(&mut self, mut copy: Option<&mut Vec<u8>>) -> Result<(), ReadError> {
        let (mut is_first, mut is_escaped) = (true, false);
        loop {
            let Some(byte) = self.input.peek()? else { return Err(self.input.error("the file ends in a text")) };
            if let Some(copy) = &mut copy {
                copy.push(byte);
            }
            self.input.bump();
            if byte == b'"' && !is_first && !is_escaped {
                return Ok(());
            }
            is_escaped = byte == b'\\' && !is_escaped;
            is_first = false;
        }
    }
}

/// Appends a unit of UTF-16; `high` is the first half of a pair that came before.
fn push_unit(text: &mut Vec<u8>, high: &mut Option<u16>, unit: u16) {
    let before = high.take();
    if let (Some(before), 0xdc00..0xe000) = (before, unit) {
        let pair = 0x1_0000 + (u32::from(before - 0xd800) << 10) + u32::from(unit - 0xdc00);
        return push_char(text, char::from_u32(pair).unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    if before.is_some() {
        push_char(text, char::REPLACEMENT_CHARACTER);
    }
    match unit {
        0xd800..0xdc00 => *high = Some(unit),
        _ => push_char(text, char::from_u32(unit.into()).unwrap_or(char::REPLACEMENT_CHARACTER)),
    }
}

fn push_char(text: &mut Vec<u8>, char: char) {
    text.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
}
