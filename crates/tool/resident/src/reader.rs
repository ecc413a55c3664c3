//! Reading of memory without bringing in pages that are not there.

use crate::memory::Memory;
use crate::pages::{PAGE, PresentPages};

/// The bytes that are read at once. A multiple of the page size, of at most 16 pages.
const WINDOW: u64 = 16 * PAGE;

/// A reader of words that keeps the window read last. Pages that are not resident are not read: the
/// kernel would make them resident, or fetch them from swap.
pub(crate) struct WordReader<'m> {
    memory: &'m dyn Memory,
    pages: &'m PresentPages,
    /// The address of the window; `u64::MAX` before the first.
    start: u64,
    bytes: Vec<u8>,
    /// A bit for each page of the window that has been read.
    valid: u16,
}

impl<'m> WordReader<'m> {
    pub(crate) fn new(memory: &'m dyn Memory, pages: &'m PresentPages) -> WordReader<'m> {
        WordReader { memory, pages, start: u64::MAX, bytes: vec![0; WINDOW as usize], valid: 0 }
    }

    /// Returns the word of 8 bytes at an address. `None` if the address is not a multiple of 8, or
    /// if its page is not resident or cannot be read.
    pub(crate) fn word(&mut self, address: u64) -> Option<u64> {
        if address % 8 != 0 {
            return None;
        }
        let start = address / WINDOW * WINDOW;
        if start != self.start {
            self.load(start);
        }
        let offset = (address - start) as usize;
        if self.valid & 1 << (offset as u64 / PAGE) == 0 {
            return None;
        }
        self.bytes.get(offset..offset + 8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// Reads all windows anew that are needed from now on.
    pub(crate) fn forget(&mut self) {
        self.start = u64::MAX;
    }

    fn load(&mut self, start: u64) {
        (self.start, self.valid) = (start, 0);
        for part in self.pages.within(start..start.saturating_add(WINDOW)) {
            let (from, to) = ((part.start - start) as usize, (part.end - start) as usize);
            if self.memory.read(part.start, &mut self.bytes[from..to]).is_ok() {
                (from as u64 / PAGE..(to as u64).div_ceil(PAGE)).for_each(|page| self.valid |= 1 << page);
            }
        }
    }
}
