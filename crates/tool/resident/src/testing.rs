//! Imitations of a process's memory, for tests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{HeapMapError, Result};
use crate::memory::Memory;
use crate::pages::{PAGE, PresentPages};

/// Memory whose words are those that were written, and otherwise zeroes. Pages that are not
/// resident cannot be read.
#[derive(Clone, Default)]
pub(crate) struct Imitation {
    pub(crate) words: BTreeMap<u64, u64>,
    pub(crate) pages: PresentPages,
}

impl Imitation {
    /// Returns memory with nothing but some parts, which are given with their addresses. The last
    /// word of a part is filled up with zeroes, which cannot be read.
    pub(crate) fn of_parts(parts: &BTreeMap<u64, Vec<u8>>) -> Imitation {
        let mut memory = Imitation::default();
        for (&start, bytes) in parts {
            for (at, chunk) in (start..).step_by(8).zip(bytes.chunks(8)) {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                memory.words.insert(at, u64::from_le_bytes(word));
            }
            memory.pages.push(start..start + bytes.len() as u64);
        }
        memory
    }

    /// Writes words from an address on, which is a multiple of 8.
    pub(crate) fn write<const N: usize>(&mut self, address: u64, words: [u64; N]) {
        (address..).step_by(8).zip(words).for_each(|(at, word)| _ = self.words.insert(at, word));
    }

    /// Makes exactly the pages resident that have something, and those of some ranges.
    pub(crate) fn set_pages(&mut self, ranges: &[std::ops::Range<u64>]) {
        let written = self.words.keys().map(|at| at / PAGE * PAGE);
        let all = ranges.iter().flat_map(|range| range.clone().step_by(PAGE as usize)).chain(written);
        let all: std::collections::BTreeSet<u64> = all.collect();
        self.pages = PresentPages::default();
        all.into_iter().for_each(|page| self.pages.push(page..page + PAGE));
    }
}

impl Memory for Imitation {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<()> {
        let end = address + buffer.len() as u64;
        if self.pages.bytes_within(address..end) != buffer.len() as u64 {
            return Err(nothing_at(address));
        }
        buffer.fill(0);
        for (&at, word) in self.words.range(address.saturating_sub(7)..end) {
            // The first and the last word may be asked for in part.
            let bytes = &word.to_le_bytes()[address.saturating_sub(at) as usize..];
            let to = &mut buffer[at.saturating_sub(address) as usize..];
            let length = bytes.len().min(to.len());
            to[..length].copy_from_slice(&bytes[..length]);
        }
        Ok(())
    }
}

/// Memory that a function fills into a buffer, which is false if nothing is there.
pub(crate) struct Computed<F>(pub(crate) F);

impl<F: Fn(u64, &mut [u8]) -> bool + Sync> Memory for Computed<F> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<()> {
        if (self.0)(address, buffer) { Ok(()) } else { Err(nothing_at(address)) }
    }
}

/// Memory of which the reads are counted.
pub(crate) struct Counted<M> {
    memory: M,
    calls: AtomicU64,
    bytes: AtomicU64,
    bytes_max: u64,
}

impl<M: Memory> Counted<M> {
    /// Counts the reads of some memory. Panics at the first read after so many bytes.
    pub(crate) fn new(memory: M, bytes_max: u64) -> Counted<M> {
        Counted { memory, calls: AtomicU64::new(0), bytes: AtomicU64::new(0), bytes_max }
    }

    /// Returns the number of reads, and of bytes.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [&self.calls, &self.bytes].map(|count| count.load(Ordering::Relaxed))
    }
}

impl<M: Memory> Memory for Counted<M> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let before = self.bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        assert!(before < self.bytes_max, "it is read again and again");
        self.memory.read(address, buffer)
    }
}

/// Returns the error of a read at an address.
fn nothing_at(address: u64) -> HeapMapError {
    HeapMapError::Corrupt { address, reason: "nothing is there" }
}
