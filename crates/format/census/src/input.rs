//! A stream with a buffer, which knows its offset.

use std::fmt;
use std::io::{self, ErrorKind, Read};

use crate::read_error::ReadError;

const BUFFER_BYTES: usize = 64 << 10;

/// A stream that is read byte by byte, or in contiguous pieces. Its buffer grows to at most twice
/// the longest piece that really came.
pub(crate) struct Input<'a> {
    source: &'a mut dyn Read,
    buffer: Vec<u8>,
    /// The bytes of the buffer from `at` to `end` have not been taken yet.
    at: usize,
    end: usize,
    /// The offset in the stream at which the buffer begins.
    base: u64,
}

impl<'a> Input<'a> {
    pub(crate) fn new(source: &'a mut dyn Read) -> Input<'a> {
        Input { source, buffer: vec![0; BUFFER_BYTES], at: 0, end: 0, base: 0 }
    }

    /// The offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// Returns an error at the next byte.
    pub(crate) fn error(&self, reason: impl fmt::Display) -> ReadError {
        ReadError::Malformed { offset: self.offset(), reason: reason.to_string() }
    }

    /// Returns the next byte without taking it, or nothing at the end.
    #[inline]
    pub(crate) fn peek(&mut self) -> Result<Option<u8>, ReadError> {
        if self.at == self.end && !self.fill()? {
            return Ok(None);
        }
        Ok(Some(self.buffer[self.at]))
    }

    /// Takes the byte that was returned by `peek`.
    #[inline]
    pub(crate) fn bump(&mut self) {
        debug_assert!(self.at < self.end, "a byte was returned");
        self.at += 1;
    }

    /// Returns the bytes that are in the buffer, without taking them.
    #[inline]
    pub(crate) fn buffered(&self) -> &[u8] {
        &self.buffer[self.at..self.end]
    }

    /// Takes bytes that are in the buffer.
    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.at, "the bytes are in the buffer");
        self.at += count;
    }

    /// Takes the next bytes, or fails if there are fewer.
    pub(crate) fn take(&mut self, count: usize) -> Result<&[u8], ReadError> {
        while self.end - self.at < count {
            if !self.fill()? {
                let left = self.end - self.at;
                return Err(self.error(format_args!("the file ends {left} bytes into a piece of {count} bytes")));
            }
        }
        let start = self.at;
        self.at += count;
        Ok(&self.buffer[start..self.at])
    }

    /// Reads more into the buffer. Returns false at the end of the stream.
    #[cold]
    fn fill(&mut self) -> Result<bool, ReadError> {
        self.buffer.copy_within(self.at..self.end, 0);
        self.base += self.at as u64;
        self.end -= self.at;
        self.at = 0;
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failure(error)),
            }
        }
    }

    /// Returns the error of a stream, or of unpacking it.
    fn failure(&self, error: io::Error) -> ReadError {
        match error.kind() {
            ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof => ReadError::Malformed {
                offset: self.base + self.end as u64,
                reason: format!("the compressed data is damaged or cut off: {error}"),
            },
            ErrorKind::FileTooLarge => {
                ReadError::Malformed { offset: self.base + self.end as u64, reason: error.to_string() }
            }
            _ => ReadError::Io(error),
        }
    }
}
