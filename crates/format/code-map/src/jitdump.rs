//! Jitdump files: `jit-PID.dump`, records with a time for each function that was compiled or moved.
//!
//! Source: `tools/perf/Documentation/jitdump-specification.txt` of Linux. Names are read, not the
//! code, its lines and its unwind information.

use std::io::Read;

use crate::{CodeMapError, CodeMapReason, NAME_MAX, Wanted};

/// The maximum length of a file in bytes: a recorder reads it while programs may wait for it. Most
/// of it is code.
pub const LENGTH_MAX: u64 = 1 << 30;

const MAGIC: u32 = 0x4a69_5444;
/// The length of the part of the header that is read.
const HEADER_LENGTH: u32 = 40;
const RECORD_HEADER_LENGTH: u32 = 16;
const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
/// The length of the numbers in a load record, and in a move record.
const LOAD_LENGTH: usize = 40;
const MOVE_LENGTH: usize = 48;
/// The maximum number of functions whose names are kept for later moves.
const FUNCTIONS_MAX: usize = 1 << 16;

/// The clock of the times in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpClock {
    /// Nanoseconds of CLOCK_MONOTONIC, as the specification wants it.
    Monotonic,
    /// Ticks of the processor.
    Ticks,
}

/// Reads a jitdump file. The `time`s of the wanted addresses are of the file's clock, or any if the
/// function is to be the last one: see [`clock`].
///
/// A record that the end of the file cuts is ignored: the process may be writing it. Takes time in
/// proportion to the length of the file, and memory for the wanted names and for those of functions
/// that may be moved: at most 128 MiB.
///
/// # Errors
///
/// Fails if the file cannot be read, is no jitdump file, or is damaged, or is longer than
/// [`LENGTH_MAX`], or if its functions reach a limit of [`Wanted`]. Names found before stay.
pub fn read(input: impl Read, wanted: &mut Wanted) -> Result<(), CodeMapError> {
    let mut input = Input { input, offset: 0, is_big: false };
    let Some(header) = input.bytes::<{ HEADER_LENGTH as usize }>()? else {
        return Err(input.invalid("the header is cut"));
    };
    input.is_big = header_order(&header).ok_or_else(|| input.invalid("no jitdump file"))?;
    let length = input.number32(&header, 8);
    if length < HEADER_LENGTH {
        return Err(input.invalid("the length of the header"));
    }
    input.skip(u64::from(length - HEADER_LENGTH))?;
    let mut functions = std::collections::HashMap::<u64, Vec<u8>>::new();
    while let Some(record) = input.bytes::<{ RECORD_HEADER_LENGTH as usize }>()? {
        let (kind, length, time) = (input.number32(&record, 0), input.number32(&record, 4), input.number64(&record, 8));
        let Some(mut rest) = length.checked_sub(RECORD_HEADER_LENGTH).map(|rest| rest as usize) else {
            return Err(input.invalid("the length of a record"));
        };
        match kind {
            CODE_LOAD => {
                rest = rest.checked_sub(LOAD_LENGTH).ok_or_else(|| input.invalid("the length of a load record"))?;
                let Some(load) = input.bytes::<LOAD_LENGTH>()? else { return Ok(()) };
                let (address, size, index) =
                    (input.number64(&load, 16), input.number64(&load, 24), input.number64(&load, 32));
                let mut name = vec![0; rest.min(NAME_MAX)];
                if !input.fill(&mut name)? {
                    return Ok(());
                }
                rest -= name.len();
                name.truncate(name.iter().position(|&byte| byte == 0).unwrap_or(name.len()));
                input.note(wanted, (address, size), &name, time)?;
                // An index is used again for another function.
                if functions.len() < FUNCTIONS_MAX || functions.contains_key(&index) {
                    functions.insert(index, name);
                }
            }
            CODE_MOVE => {
                rest = rest.checked_sub(MOVE_LENGTH).ok_or_else(|| input.invalid("the length of a move record"))?;
                let Some(moved) = input.bytes::<MOVE_LENGTH>()? else { return Ok(()) };
                let (address, size, index) =
                    (input.number64(&moved, 24), input.number64(&moved, 32), input.number64(&moved, 40));
                if let Some(name) = functions.get(&index) {
                    input.note(wanted, (address, size), name, time)?;
                }
            }
            _ => {}
        }
        input.skip(rest as u64)?;
    }
    Ok(())
}

/// Returns the clock of a jitdump file, from its first 40 bytes. `None` if it is no jitdump file.
pub fn clock(header: &[u8]) -> Option<DumpClock> {
    let flags: [u8; 8] = header.get(32..40)?.try_into().ok()?;
    let flags = if header_order(header)? { u64::from_be_bytes(flags) } else { u64::from_le_bytes(flags) };
    Some(if flags & 1 == 0 { DumpClock::Monotonic } else { DumpClock::Ticks })
}

/// Returns true if the file's numbers are big-endian; `None` if it is no jitdump file.
fn header_order(header: &[u8]) -> Option<bool> {
    let magic: [u8; 4] = header.get(..4)?.try_into().ok()?;
    if u32::from_le_bytes(magic) == MAGIC {
        return Some(false);
    }
    (u32::from_be_bytes(magic) == MAGIC).then_some(true)
}

struct Input<R> {
    input: R,
    offset: u64,
    is_big: bool,
}

impl<R: Read> Input<R> {
    fn invalid(&self, what: &'static str) -> CodeMapError {
        CodeMapError { offset: self.offset, reason: CodeMapReason::Invalid(what) }
    }

    /// Notes a function: its address and size, its name, and the time since which it is there.
    fn note(&self, wanted: &mut Wanted, code: (u64, u64), name: &[u8], since: u64) -> Result<(), CodeMapError> {
        let is_noted = wanted.note(code.0, code.1, name, Some(since));
        is_noted.then_some(()).ok_or(CodeMapError { offset: self.offset, reason: CodeMapReason::TooManyNames })
    }

    /// Fills the bytes; false if the file ends before.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<bool, CodeMapError> {
        if self.offset > LENGTH_MAX {
            return Err(CodeMapError { offset: self.offset, reason: CodeMapReason::TooLong(LENGTH_MAX) });
        }
        match self.input.read_exact(bytes) {
            Ok(()) => {
                self.offset += bytes.len() as u64;
                Ok(true)
            }
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(CodeMapError { offset: self.offset, reason: CodeMapReason::Io(error) }),
        }
    }

    fn bytes<const COUNT: usize>(&mut self) -> Result<Option<[u8; COUNT]>, CodeMapError> {
        let mut bytes = [0; COUNT];
        Ok(self.fill(&mut bytes)?.then_some(bytes))
    }

    /// Skips bytes; less if the file ends before.
    fn skip(&mut self, mut count: u64) -> Result<(), CodeMapError> {
        let mut bytes = [0; 4096];
        while count > 0 {
            let piece = count.min(bytes.len() as u64) as usize;
            if !self.fill(&mut bytes[..piece])? {
                return Ok(());
            }
            count -= piece as u64;
        }
        Ok(())
    }

    fn number32(&self, bytes: &[u8], at: usize) -> u32 {
        let number = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; 4]);
        if self.is_big { u32::from_be_bytes(number) } else { u32::from_le_bytes(number) }
    }

    fn number64(&self, bytes: &[u8], at: usize) -> u64 {
        let number = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; 8]);
        if self.is_big { u64::from_be_bytes(number) } else { u64::from_le_bytes(number) }
    }
}

#[cfg(test)]
pub(crate) mod tests;
