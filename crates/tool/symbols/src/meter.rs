//! Bounds on the work that a file can cause.
//!
//! DWARF is full of references, so a small file can describe an enormous amount of work and memory:
//! thousands of units that share one long list of ranges, or a million nested functions.
//! `addr2line` follows them all. So it reads through [`Metered`], which fails once too much was
//! read in relation to the size of the file, or once the stack of the reading thread grew too deep;
//! `addr2line` passes the failure on as an ordinary error.

use std::borrow::Cow;
use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use gimli::{EndianSlice, Error, Reader, ReaderOffsetId, Result, RunTimeEndian};

/// The reads granted at the start, whatever the size.
const WORK_BASE: u64 = 1 << 20;
/// The reads granted per byte of debug information. Looking up all of the code of real files (C,
/// C++, Rust) took 0.26 to 0.65 per byte.
const WORK_PER_BYTE: u64 = 8;
/// Bytes of stack that one lookup may use. A level of inlining takes less than 2 KiB, real code has
/// some 50 levels, and threads have 2 MiB or more.
const STACK: usize = 512 << 10;

/// The remaining budget. Used by one thread at a time, because its owner is behind a lock; the
/// atomics only make that evident to the compiler.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    work_left: AtomicU64,
    stack_floor: AtomicUsize,
    exceeded: AtomicBool,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self { work_left: AtomicU64::new(WORK_BASE), ..Self::default() }
    }

    /// Allows the work that `bytes` of debug information justify.
    pub(crate) fn grant(&self, bytes: u64) {
        let more = bytes.saturating_mul(WORK_PER_BYTE);
        self.work_left.store(self.work_left.load(Relaxed).saturating_add(more), Relaxed);
    }

    /// Measures the stack from here on. Must be called before each use of a reader.
    pub(crate) fn start(&self) {
        self.stack_floor.store(stack_pointer().saturating_sub(STACK), Relaxed);
    }

    /// True if a read has failed because of a bound.
    pub(crate) fn exceeded(&self) -> bool {
        self.exceeded.load(Relaxed)
    }

    #[inline]
    fn spend(&self, work: u64, at: ReaderOffsetId) -> Result<()> {
        // A load and a store instead of an atomic subtraction: there is no other thread, and this
        // runs per byte read.
        match self.work_left.load(Relaxed).checked_sub(work) {
            Some(left) if stack_pointer() >= self.stack_floor.load(Relaxed) => {
                self.work_left.store(left, Relaxed);
                Ok(())
            }
            _ => self.refuse(at),
        }
    }

    #[cold]
    fn refuse(&self, at: ReaderOffsetId) -> Result<()> {
        self.exceeded.store(true, Relaxed);
        Err(Error::UnexpectedEof(at))
    }
}

/// Returns an address in the current stack frame, or near it. Stacks grow down.
#[inline(always)]
fn stack_pointer() -> usize {
    let here = 0u8;
    hint::black_box(&raw const here).addr()
}

/// A slice of a section, with the meter of its file: a reader of `gimli`.
#[derive(Debug, Clone, Copy)]
pub struct Metered<'a> {
    slice: EndianSlice<'a, RunTimeEndian>,
    meter: &'a Meter,
}

impl<'a> Metered<'a> {
    pub(crate) fn new(data: &'a [u8], endian: RunTimeEndian, meter: &'a Meter) -> Self {
        Self { slice: EndianSlice::new(data, endian), meter }
    }

    /// Returns the bytes of the slice.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.slice.slice()
    }
}

// All costs of a record, an attribute or a character pass through `read_u8`, `read_slice`, `find`
// or a conversion to a string; moving around in a slice is free.
impl Reader for Metered<'_> {
    type Endian = RunTimeEndian;
    type Offset = usize;

    #[inline]
    fn read_u8(&mut self) -> Result<u8> {
        self.meter.spend(1, self.slice.offset_id())?;
        self.slice.read_u8()
    }

    #[inline]
    fn read_slice(&mut self, buf: &mut [u8]) -> Result<()> {
        self.meter.spend(1, self.slice.offset_id())?;
        Reader::read_slice(&mut self.slice, buf)
    }

    #[inline]
    fn find(&self, byte: u8) -> Result<usize> {
        let length = Reader::find(&self.slice, byte)?;
        self.meter.spend(1 + length as u64 / 64, self.slice.offset_id())?;
        Ok(length)
    }

    fn to_slice(&self) -> Result<Cow<'_, [u8]>> {
        Ok(Cow::Borrowed(self.slice.slice()))
    }

    fn to_string(&self) -> Result<Cow<'_, str>> {
        self.meter.spend(1 + self.slice.len() as u64 / 4, self.slice.offset_id())?;
        Reader::to_string(&self.slice)
    }

    // Paths are built from these, a directory once per file in it: charged by length.
    fn to_string_lossy(&self) -> Result<Cow<'_, str>> {
        self.meter.spend(1 + self.slice.len() as u64 / 4, self.slice.offset_id())?;
        Reader::to_string_lossy(&self.slice)
    }

    #[inline]
    fn endian(&self) -> RunTimeEndian {
        self.slice.endian()
    }

    #[inline]
    fn len(&self) -> usize {
        self.slice.len()
    }

    #[inline]
    fn empty(&mut self) {
        self.slice.empty();
    }

    #[inline]
    fn truncate(&mut self, len: usize) -> Result<()> {
        self.slice.truncate(len)
    }

    #[inline]
    fn offset_from(&self, base: &Self) -> usize {
        self.slice.offset_from(base.slice)
    }

    #[inline]
    fn offset_id(&self) -> ReaderOffsetId {
        self.slice.offset_id()
    }

    #[inline]
    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        self.slice.lookup_offset_id(id)
    }

    #[inline]
    fn skip(&mut self, len: usize) -> Result<()> {
        self.slice.skip(len)
    }

    #[inline]
    fn split(&mut self, len: usize) -> Result<Self> {
        Ok(Self { slice: self.slice.split(len)?, meter: self.meter })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_out() {
        let meter = Meter::new();
        meter.start();
        let data = [1u8; 64];
        let reader = Metered::new(&data, RunTimeEndian::Little, &meter);
        let reads = (0..WORK_BASE + 10).filter(|_| reader.clone().read_u8().is_ok()).count();
        assert_eq!(reads as u64, WORK_BASE);
        assert!(meter.exceeded());
        meter.grant(1);
        assert_eq!(reader.clone().read_u8(), Ok(1));
    }

    #[test]
    fn deep_recursion_is_refused() {
        #[inline(never)]
        fn descend(reader: Metered<'_>, depth: usize) -> usize {
            let padding = hint::black_box([depth as u8; 256]);
            match reader.clone().read_u8() {
                Ok(_) if depth < 100_000 => descend(reader, depth + 1) + usize::from(padding[0] == padding[1]) - 1,
                _ => depth,
            }
        }
        let meter = Meter::new();
        meter.start();
        let data = [1u8; 64];
        let depth = descend(Metered::new(&data, RunTimeEndian::Little, &meter), 0);
        assert!((100..STACK / 256).contains(&depth), "{depth}");
        assert!(meter.exceeded());
    }
}
