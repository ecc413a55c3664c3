//! Reading of memory without bringing in pages that are not there.

use std::ops::Range;

use crate::memory::{Memory, word};
use crate::pages::{PAGE, PresentPages};

/// The most bytes that are read at once: 64 pages, which fit into a processor's second cache.
const WINDOW: u64 = 64 * PAGE;
/// The bytes that are read at once where memory is asked for here and there. From there on, windows
/// become larger.
const SMALL: u64 = 256;
/// The distance within which two questions are taken to be about the same region. Reading the pages
/// between them takes as long as two calls, about 1 µs.
const NEAR: u64 = 4 * PAGE;

/// A reader of words that keeps the window read last. Pages that are not resident are not read: the
/// kernel would make them resident, or fetch them from swap.
pub(crate) struct WordReader<'m> {
    memory: &'m dyn Memory,
    pages: &'m PresentPages,
    /// The address of the window, and its length. All of it is valid.
    start: u64,
    length: u64,
    bytes: Vec<u8>,
    /// The number of words that were asked for in the window.
    words: u64,
}

impl<'m> WordReader<'m> {
    pub(crate) fn new(memory: &'m dyn Memory, pages: &'m PresentPages) -> WordReader<'m> {
        WordReader { memory, pages, start: 0, length: 0, bytes: vec![0; WINDOW as usize], words: 0 }
    }

    /// Returns the word of 8 bytes at an address. `None` if the address is not a multiple of 8, or
    /// if its page is not resident or cannot be read.
    #[inline]
    pub(crate) fn word(&mut self, address: u64) -> Option<u64> {
        if address.wrapping_sub(self.start) >= self.length && !self.load(address) {
            return None;
        }
        self.words += 1;
        // The window begins and ends at multiples of 8.
        if address.is_multiple_of(8) { word(&self.bytes, (address - self.start) as usize) } else { None }
    }

    /// Returns the parts of a range that are in memory.
    pub(crate) fn present(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<'m> {
        let pages = self.pages;
        pages.within(range)
    }

    /// Forgets the window: what is asked for from now on is read anew.
    pub(crate) fn forget(&mut self) {
        self.length = 0;
    }

    /// Reads a window that begins with an address, or a little before. False if it is not there.
    #[cold]
    fn load(&mut self, address: u64) -> bool {
        let end = self.start + self.length;
        let is_near = (end..end.saturating_add(NEAR)).contains(&address);
        let is_dense = self.words >= self.length / NEAR;
        let start = address / 64 * 64;
        let least = SMALL.min(PAGE - start % PAGE);
        let most = if is_near && is_dense { (4 * self.length).clamp(least, WINDOW) } else { least };
        self.words = 0;
        // A page may have gone since the list was made: those before it can be read.
        self.read(start, most) || self.read(start, least)
    }

    /// Reads up to `most` bytes from an address on, as far as the pages are there.
    fn read(&mut self, start: u64, most: u64) -> bool {
        let part = self.pages.within(start..start.saturating_add(most)).next().filter(|part| part.start == start);
        let length = part.map_or(0, |part| part.end - part.start);
        let buffer = &mut self.bytes[..length as usize];
        let is_read = length > 0 && self.memory.read(start, buffer).is_ok();
        // The window is empty if nothing is there, and the words behind it are near.
        (self.start, self.length) = (start, if is_read { length } else { 0 });
        is_read
    }
}

#[cfg(test)]
mod tests;
