//! Numbers that are written once and read several times: in memory, and beyond a limit in a file.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// A file for data beyond the memory limit.
pub trait SpoolFile: Read + Write + Seek {}

impl<T: Read + Write + Seek> SpoolFile for T {}

/// The place where blocks and stacks are stored until they are read again.
#[derive(Clone, Copy)]
pub struct Spooling<'a> {
    /// The most bytes of each that are kept in memory.
    pub memory_max: usize,
    /// Opens an empty file for the rest.
    pub open: &'a dyn Fn() -> io::Result<Box<dyn SpoolFile>>,
}

impl fmt::Debug for Spooling<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spooling").field("memory_max", &self.memory_max).finish_non_exhaustive()
    }
}

/// The largest piece in which a file is written and read.
const PIECE_MAX: usize = 1 << 20;
/// The smallest piece.
const PIECE_MIN: usize = 64;
/// The number of pieces that fit into the memory limit.
const PIECES: usize = 16;
/// The most bytes of a number: seven bits in each.
const NUMBER_MAX: usize = 10;

/// Records of numbers.
pub(crate) struct Spool<'a> {
    spooling: Spooling<'a>,
    /// Pieces of whole records that are in memory, the first ones.
    pieces: Vec<Vec<u8>>,
    /// The lengths of the pieces that are in the file.
    lengths: Vec<usize>,
    file: Option<Box<dyn SpoolFile>>,
    /// The last piece, to which records are added.
    last: Vec<u8>,
}

impl<'a> Spool<'a> {
    pub(crate) fn new(spooling: Spooling<'a>) -> Spool<'a> {
        Spool { spooling, pieces: Vec::new(), lengths: Vec::new(), file: None, last: Vec::new() }
    }

    /// Adds a number to the record.
    #[inline]
    pub(crate) fn put(&mut self, mut number: u64) {
        let (mut bytes, mut length) = ([0; NUMBER_MAX], 0);
        while number >= 0x80 {
            bytes[length] = number as u8 | 0x80;
            number >>= 7;
            length += 1;
        }
        bytes[length] = number as u8;
        self.last.extend_from_slice(&bytes[..=length]);
    }

    /// Ends a record.
    ///
    /// # Errors
    ///
    /// Fails if the file fails.
    #[inline]
    pub(crate) fn end(&mut self) -> io::Result<()> {
        let piece = (self.spooling.memory_max / PIECES).clamp(PIECE_MIN, PIECE_MAX);
        if self.last.len() < piece { Ok(()) } else { self.store() }
    }

    #[cold]
    fn store(&mut self) -> io::Result<()> {
        if self.pieces.iter().map(Vec::len).sum::<usize>() + 2 * self.last.len() <= self.spooling.memory_max {
            self.pieces.push(std::mem::take(&mut self.last));
            return Ok(());
        }
        if self.file.is_none() {
            self.file = Some((self.spooling.open)()?);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(&self.last)?;
        self.lengths.push(self.last.len());
        self.last.clear();
        Ok(())
    }

    /// Reads all records again, from the first on: `read` takes one at a time.
    ///
    /// # Errors
    ///
    /// Fails if the file fails.
    pub(crate) fn each(&mut self, mut read: impl FnMut(&mut Numbers<'_>)) -> io::Result<()> {
        let mut all = |piece: &[u8]| {
            let mut numbers = Numbers { rest: piece };
            while !numbers.rest.is_empty() {
                read(&mut numbers);
            }
        };
        self.pieces.iter().for_each(|piece| all(piece));
        if let Some(file) = &mut self.file {
            file.seek(SeekFrom::Start(0))?;
            let mut piece = Vec::new();
            for &length in &self.lengths {
                piece.resize(length, 0);
                file.read_exact(&mut piece)?;
                all(&piece);
            }
        }
        all(&self.last);
        Ok(())
    }
}

/// The numbers of records.
pub(crate) struct Numbers<'a> {
    rest: &'a [u8],
}

impl Numbers<'_> {
    /// Takes the next number; 0 after the last one.
    #[inline]
    pub(crate) fn take(&mut self) -> u64 {
        let (mut number, mut shift) = (0_u64, 0_u32);
        while let [byte, rest @ ..] = self.rest {
            self.rest = rest;
            number |= u64::from(byte & 0x7f).wrapping_shl(shift);
            if *byte < 0x80 {
                break;
            }
            shift += 7;
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Cursor;

    use super::*;

    #[test]
    fn what_is_written_is_read_each_time_wherever_it_is() {
        for memory_max in [0, 1000, 1 << 20] {
            let files = Cell::new(0);
            let open = || -> io::Result<Box<dyn SpoolFile>> {
                files.set(files.get() + 1);
                Ok(Box::new(Cursor::new(Vec::new())))
            };
            let mut spool = Spool::new(Spooling { memory_max, open: &open });
            let records = |at: u64| [at, at << 20, u64::MAX - at];
            for at in 0..1000 {
                records(at).into_iter().for_each(|number| spool.put(number));
                spool.end().unwrap();
            }
            for _ in 0..2 {
                let mut at = 0;
                let read = spool.each(|numbers| {
                    assert_eq!([numbers.take(), numbers.take(), numbers.take()], records(at));
                    at += 1;
                });
                read.unwrap();
                assert_eq!(at, 1000);
            }
            assert_eq!(files.get(), if memory_max > 1000 { 0 } else { 1 });
            let in_memory: usize = spool.pieces.iter().map(Vec::len).sum();
            assert!(in_memory <= memory_max, "{in_memory}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_an_error() {
        let open = || -> io::Result<Box<dyn SpoolFile>> { Err(io::Error::other("the disk is full")) };
        let mut spool = Spool::new(Spooling { memory_max: 0, open: &open });
        let mut put = || {
            spool.put(1);
            spool.end()
        };
        assert_eq!((0..1000).find_map(|_| put().err()).unwrap().to_string(), "the disk is full");
    }
}
