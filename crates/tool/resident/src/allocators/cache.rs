//! Reading of structures that are scattered over memory.

use std::collections::HashMap;

use crate::memory::Memory;
use crate::pages::{PAGE, PresentPages};

/// The bytes that are read at once.
const WINDOW: u64 = 4 * PAGE;
/// The most windows that are kept: 64 MiB.
const WINDOWS_MAX: usize = 4096;

/// A reader of words that keeps what it has read. Pages that are not resident are not read.
pub(super) struct CachedReader<'m> {
    memory: &'m dyn Memory,
    pages: &'m PresentPages,
    windows: HashMap<u64, Window>,
}

struct Window {
    bytes: Vec<u8>,
    /// A bit for each page that could be read.
    valid: u16,
}

impl Window {
    /// Copies words from an offset on. `None` if a page of them could not be read.
    fn copy_words(&self, offset: usize, to: &mut [u64]) -> Option<()> {
        let end = offset + 8 * to.len();
        let mut pages = offset as u64 / PAGE..=(end as u64 - 1) / PAGE;
        if !pages.all(|page| self.valid & 1 << page != 0) {
            return None;
        }
        for (from, to) in self.bytes.get(offset..end)?.chunks_exact(8).zip(to) {
            *to = u64::from_le_bytes(from.try_into().ok()?);
        }
        Some(())
    }
}

impl<'m> CachedReader<'m> {
    pub(super) fn new(memory: &'m dyn Memory, pages: &'m PresentPages) -> CachedReader<'m> {
        CachedReader { memory, pages, windows: HashMap::new() }
    }

    /// Returns the word of 8 bytes at an address. `None` if the address is not a multiple of 8, or
    /// if its page is not resident or cannot be read.
    pub(super) fn word(&mut self, address: u64) -> Option<u64> {
        self.words::<1>(address).map(|[word]| word)
    }

    /// Returns `N` words. They are read at about one moment if they are in 16 KiB that are aligned.
    pub(super) fn words<const N: usize>(&mut self, address: u64) -> Option<[u64; N]> {
        let length = 8 * N as u64;
        let end = address.checked_add(length)?;
        if !address.is_multiple_of(8) {
            return None;
        }
        let mut words = [0; N];
        let mut at = address;
        let mut rest = &mut words[..];
        while at < end {
            let window_end = (at / WINDOW + 1).checked_mul(WINDOW)?.min(end);
            let (first, behind) = rest.split_at_mut(((window_end - at) / 8) as usize);
            self.window(at)?.copy_words((at % WINDOW) as usize, first)?;
            (at, rest) = (window_end, behind);
        }
        Some(words)
    }

    /// Returns the number of 4 bytes at an address that is a multiple of 4.
    pub(super) fn half(&mut self, address: u64) -> Option<u32> {
        let word = self.word(address & !7)?;
        address.is_multiple_of(4).then_some((word >> (8 * (address & 7))) as u32)
    }

    /// Calls a function with the address of each block of a list, from the first on, as long as it
    /// returns true. A block begins with the address of the next. The function has to come to an
    /// end by itself: the list may be a circle.
    pub(super) fn follow_list(&mut self, first: u64, mut visit: impl FnMut(u64) -> bool) {
        let mut block = first;
        while visit(block) {
            let Some(next) = self.word(block) else { break };
            block = next;
        }
    }

    /// Forgets what was read around an address: it is read anew when it is asked for.
    pub(super) fn forget(&mut self, address: u64) {
        self.windows.remove(&(address / WINDOW));
    }

    /// Forgets all that was read.
    pub(super) fn forget_all(&mut self) {
        self.windows.clear();
    }

    /// Returns the window that has an address.
    fn window(&mut self, address: u64) -> Option<&Window> {
        let number = address / WINDOW;
        if !self.windows.contains_key(&number) {
            if self.windows.len() >= WINDOWS_MAX {
                self.windows.clear();
            }
            let window = self.load(number * WINDOW);
            self.windows.insert(number, window);
        }
        self.windows.get(&number)
    }

    fn load(&self, start: u64) -> Window {
        let mut window = Window { bytes: Vec::new(), valid: 0 };
        for part in self.pages.within(start..start.saturating_add(WINDOW)) {
            window.bytes.resize(WINDOW as usize, 0);
            let (from, to) = ((part.start - start) as usize, (part.end - start) as usize);
            if self.memory.read(part.start, &mut window.bytes[from..to]).is_ok() {
                (from as u64 / PAGE..(to as u64).div_ceil(PAGE)).for_each(|page| window.valid |= 1 << page);
            }
        }
        window
    }
}
