//! Reading of memory without bringing in pages that are not there.

use crate::memory::Memory;
use crate::pages::{PAGE, PresentPages};

/// The most bytes that are read at once: 16 pages.
const WINDOW: u64 = 16 * PAGE;
/// The words that are asked for in each page of a window from which on the next one is large.
/// Where chunks are larger than a page, most pages need not be read.
const DENSE: u64 = 4;

/// A reader of words that keeps the window read last. Pages that are not resident are not read: the
/// kernel would make them resident, or fetch them from swap.
pub(crate) struct WordReader<'m> {
    memory: &'m dyn Memory,
    pages: &'m PresentPages,
    /// The address of the window, and its bytes.
    start: u64,
    length: u64,
    bytes: Vec<u8>,
    /// A bit for each page of the window that has been read.
    valid: u16,
    /// The number of words that were asked for in the window.
    words: u64,
}

impl<'m> WordReader<'m> {
    pub(crate) fn new(memory: &'m dyn Memory, pages: &'m PresentPages) -> WordReader<'m> {
        WordReader { memory, pages, start: 0, length: 0, bytes: vec![0; WINDOW as usize], valid: 0, words: 0 }
    }

    /// Returns the word of 8 bytes at an address. `None` if the address is not a multiple of 8, or
    /// if its page is not resident or cannot be read.
    pub(crate) fn word(&mut self, address: u64) -> Option<u64> {
        if !address.is_multiple_of(8) {
            return None;
        }
        if address.wrapping_sub(self.start) >= self.length {
            self.load(address);
        }
        self.words += 1;
        let offset = (address - self.start) as usize;
        if self.valid & 1 << (offset as u64 / PAGE) == 0 {
            return None;
        }
        self.bytes.get(offset..offset + 8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// Forgets the window: what is asked for from now on is read anew.
    pub(crate) fn forget(&mut self) {
        self.length = 0;
    }

    /// Reads the window that begins with the page of an address.
    fn load(&mut self, address: u64) {
        let is_dense = self.words >= DENSE * (self.length / PAGE).max(1);
        let start = address / PAGE * PAGE;
        let length = if is_dense { WINDOW } else { PAGE };
        (self.start, self.length, self.valid, self.words) = (start, length, 0, 0);
        for part in self.pages.within(start..start.saturating_add(length)) {
            let (from, to) = ((part.start - start) as usize, (part.end - start) as usize);
            if self.memory.read(part.start, &mut self.bytes[from..to]).is_ok() {
                (from as u64 / PAGE..(to as u64).div_ceil(PAGE)).for_each(|page| self.valid |= 1 << page);
            }
        }
    }
}
