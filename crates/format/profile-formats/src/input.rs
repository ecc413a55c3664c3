//! Reads bytes, numbers and strings of binary files, and decompresses LZ4 on the way.

use std::io::{self, ErrorKind, Read};

use lz4_flex::frame::FrameDecoder;

use crate::read_error::ReadError;

/// The first bytes of an LZ4 frame.
pub(crate) const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// The number of bytes decompressed at a time.
const BUFFER: usize = 64 << 10;
/// The maximum length of a [block](Input::blocks), before and after its compression.
const BLOCK_MAX: usize = 1 << 20;
/// The longest text or line table, in bytes.
const TEXT_MAX: usize = 16 << 20;

/// The reason why reading stops.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The file ends here.
    Cut,
    /// The file is damaged here.
    Wrong(ReadError),
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Stop {
        Stop::Wrong(error)
    }
}

pub(crate) type Step<T> = Result<T, Stop>;

/// Returns true if a file that was to be read to its last record ends before.
pub(crate) fn is_cut(read: Step<()>) -> Result<bool, ReadError> {
    match read {
        Ok(()) => Ok(false),
        Err(Stop::Cut) => Ok(true),
        Err(Stop::Wrong(error)) => Err(error),
    }
}

/// A file, read from its beginning to its end.
pub(crate) struct Input<'a> {
    source: Source<'a>,
    buffer: Vec<u8>,
    at: usize,
    /// The offset of the buffer in the uncompressed file.
    base: u64,
}

enum Source<'a> {
    Plain(&'a [u8]),
    Frame(Box<FrameDecoder<&'a [u8]>>),
    Blocks(&'a [u8]),
}

impl<'a> Input<'a> {
    /// Begins a file that is an LZ4 frame or not compressed.
    pub(crate) fn new(bytes: &'a [u8]) -> Input<'a> {
        let source = if bytes.starts_with(&LZ4_MAGIC) {
            Source::Frame(Box::new(FrameDecoder::new(bytes)))
        } else {
            // memray extends a file with zeros before it writes records over them. If the process
            // was killed, zeros are left after its last record.
            let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            Source::Plain(&bytes[..end])
        };
        Input { source, buffer: Vec::new(), at: 0, base: 0 }
    }

    /// Begins a file of blocks. Each has a byte that is 1 if it is compressed with LZ4 and 2 if it
    /// is not, and its length in 32 bits.
    pub(crate) fn blocks(bytes: &'a [u8]) -> Input<'a> {
        Input { source: Source::Blocks(bytes), buffer: Vec::new(), at: 0, base: 0 }
    }

    /// Returns the offset of the next byte in the uncompressed file.
    pub(crate) fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// Returns an error about the bytes that have just been read.
    pub(crate) fn wrong<T>(&self, reason: impl Into<String>) -> Step<T> {
        Err(Stop::Wrong(ReadError::new(self.offset(), reason)))
    }

    /// Reads a byte; `None` at the end of the file.
    pub(crate) fn byte_or_end(&mut self) -> Step<Option<u8>> {
        if self.at == self.buffer.len() && !self.refill()? {
            return Ok(None);
        }
        let byte = self.buffer[self.at];
        self.at += 1;
        Ok(Some(byte))
    }

    pub(crate) fn byte(&mut self) -> Step<u8> {
        self.byte_or_end()?.ok_or(Stop::Cut)
    }

    pub(crate) fn flag(&mut self) -> Step<bool> {
        Ok(self.byte()? != 0)
    }

    pub(crate) fn u32(&mut self) -> Step<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Step<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a LEB128 number: groups of seven bits, the lowest first.
    pub(crate) fn varint(&mut self) -> Step<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        self.wrong("a number of more than 64 bits")
    }

    /// Reads a number whose first byte begins with a one bit for each further byte. It has the
    /// highest bits; the others follow, the lowest first.
    pub(crate) fn prefix_varint(&mut self) -> Step<u64> {
        let first = self.byte()?;
        let further = first.leading_ones();
        let mut value = (0x7f_u64 >> further & u64::from(first)).checked_shl(further * 8).unwrap_or(0);
        for at in 0..further {
            value |= u64::from(self.byte()?) << (at * 8);
        }
        Ok(value)
    }

    /// Reads a number in zigzag encoding: the sign is the lowest bit.
    pub(crate) fn signed(&mut self) -> Step<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Reads a number that is stored as the difference from the previous one of its kind.
    pub(crate) fn delta(&mut self, last: &mut u64) -> Step<u64> {
        *last = last.wrapping_add(self.signed()? as u64);
        Ok(*last)
    }

    /// Reads a string that ends with a zero byte.
    pub(crate) fn text(&mut self) -> Step<String> {
        let mut text = Vec::new();
        loop {
            if self.at == self.buffer.len() && !self.refill()? {
                return Err(Stop::Cut);
            }
            let rest = &self.buffer[self.at..];
            let zero = rest.iter().position(|&byte| byte == 0);
            let part = &rest[..zero.unwrap_or(rest.len())];
            text.extend_from_slice(part);
            self.at += part.len() + usize::from(zero.is_some());
            if text.len() > TEXT_MAX {
                return self.wrong(format!("a text of more than {TEXT_MAX} bytes"));
            }
            if zero.is_some() {
                return Ok(String::from_utf8_lossy(&text).into_owned());
            }
        }
    }

    /// Reads `count` bytes.
    pub(crate) fn bytes(&mut self, count: u64) -> Step<Vec<u8>> {
        if count > TEXT_MAX as u64 {
            return self.wrong(format!("a table of more than {TEXT_MAX} bytes"));
        }
        let mut bytes = Vec::new();
        self.parts(count, |part| bytes.extend_from_slice(part))?;
        Ok(bytes)
    }

    /// Passes over `count` bytes.
    pub(crate) fn skip(&mut self, count: u64) -> Step<()> {
        self.parts(count, |_| {})
    }

    /// Reads `count` bytes, in parts.
    fn parts(&mut self, count: u64, mut take: impl FnMut(&[u8])) -> Step<()> {
        let mut left = count;
        while left > 0 {
            if self.at == self.buffer.len() && !self.refill()? {
                return Err(Stop::Cut);
            }
            let rest = &self.buffer[self.at..];
            let part = &rest[..rest.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
            take(part);
            left -= part.len() as u64;
            self.at += part.len();
        }
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Step<[u8; N]> {
        let mut array = [0; N];
        for byte in &mut array {
            *byte = self.byte()?;
        }
        Ok(array)
    }

    /// Fills the buffer, which has been read to its end. Returns false at the end of the file.
    fn refill(&mut self) -> Step<bool> {
        self.base += self.buffer.len() as u64;
        self.at = 0;
        let read = match &mut self.source {
            Source::Plain(rest) => fill(rest, &mut self.buffer),
            Source::Frame(decoder) => fill(decoder, &mut self.buffer),
            Source::Blocks(rest) => block(rest, &mut self.buffer),
        };
        match read {
            Ok(()) => Ok(!self.buffer.is_empty()),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(Stop::Cut),
            Err(error) => self.wrong(format!("it cannot be unpacked: {error}")),
        }
    }
}

/// Reads the next bytes into the buffer; none at the end.
fn fill(source: &mut impl Read, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.resize(BUFFER, 0);
    let read = source.read(buffer);
    buffer.truncate(*read.as_ref().unwrap_or(&0));
    read.map(drop)
}

/// Reads the next block that is not empty into the buffer; nothing at the end.
fn block(rest: &mut &[u8], buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.clear();
    let wrong = |reason: String| Err(io::Error::new(ErrorKind::InvalidData, reason));
    while buffer.is_empty() {
        if rest.is_empty() {
            return Ok(());
        }
        let cut = || io::Error::from(ErrorKind::UnexpectedEof);
        let (&[kind, ref length @ ..], after) = rest.split_first_chunk::<5>().ok_or_else(cut)?;
        let length = u32::from_le_bytes(*length) as usize;
        if length > BLOCK_MAX {
            return wrong(format!("a block of {length} bytes"));
        }
        let (block, after) = after.split_at_checked(length).ok_or_else(cut)?;
        *rest = after;
        match kind {
            1 => {
                // A byte of LZ4 stands for 255 at most. Clearing the length of the longest block
                // for each of many short ones takes longer than unpacking them.
                buffer.resize(BLOCK_MAX.min(length * 255), 0);
                let unpacked = lz4_flex::block::decompress_into(block, buffer);
                buffer.truncate(*unpacked.as_ref().unwrap_or(&0));
                if let Err(error) = unpacked {
                    return wrong(error.to_string());
                }
            }
            2 => buffer.extend_from_slice(block),
            _ => return wrong(format!("a block of the unknown kind {kind}")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts() {
        let mut input = Input::new(&[0x80, 0x01, 3, 4, 1, 3, b'a', 0, 7, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0]);
        assert_eq!(input.varint().unwrap(), 128);
        assert_eq!((input.signed().unwrap(), input.signed().unwrap()), (-2, 2));
        let mut last = 5;
        assert_eq!((input.delta(&mut last).unwrap(), input.delta(&mut last).unwrap()), (4, 2));
        assert_eq!((input.text().unwrap().as_str(), input.u64().unwrap()), ("a", 7 | 1 << 56));
        // Zeros at the end were never written to.
        assert_eq!((input.byte().unwrap(), input.byte_or_end().unwrap()), (0xff, None));
        assert!(matches!(input.u32(), Err(Stop::Cut)));
        let mut long = Input::new(&[0xff; 11]);
        assert!(matches!(long.varint(), Err(Stop::Wrong(error)) if error.offset == 10));
        let mut prefixed = Input::new(&[0x7f, 0x81, 2, 0xc1, 3, 4, 0xff, 1, 2, 3, 4, 5, 6, 7, 8, 0xfe, 1]);
        let numbers = [0x7f, 0x102, 0x1_0403, 0x0807_0605_0403_0201];
        assert_eq!([(); 4].map(|()| prefixed.prefix_varint().unwrap()), numbers);
        assert!(matches!(prefixed.prefix_varint(), Err(Stop::Cut)));
    }

    #[test]
    fn blocks_packed_and_not() {
        let packed = lz4_flex::block::compress(&[7; 1000]);
        let mut file = vec![2, 3, 0, 0, 0, 1, 2, 3, 2, 0, 0, 0, 0, 1, packed.len() as u8, 0, 0, 0];
        file.extend(&packed);
        let mut input = Input::blocks(&file);
        assert_eq!((input.bytes(4).unwrap(), input.offset()), (vec![1, 2, 3, 7], 4));
        input.skip(999).unwrap();
        assert_eq!(input.byte_or_end().unwrap(), None);
        let mut cut = Input::blocks(&file[..file.len() - 1]);
        assert!(matches!(cut.skip(4), Err(Stop::Cut)));
        for (damaged, reason) in [(&[3, 1, 0, 0, 0, 9][..], "kind 3"), (&[1, 2, 0, 0, 0, 0xff, 0xff], "unpacked")] {
            let damaged = Input::blocks(damaged).byte();
            assert!(matches!(&damaged, Err(Stop::Wrong(error)) if error.reason.contains(reason)), "{damaged:?}");
        }
    }
}
