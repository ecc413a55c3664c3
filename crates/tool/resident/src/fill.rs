//! The pages of a heap by the bytes in use on each.

use std::ops::Range;

use crate::pages::{PAGE, PresentPages};

/// The use of a resident page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageFill {
    /// The bytes in use, at most 4096.
    pub(crate) used: u16,
    /// The number of chunks in use of which a part is on the page.
    pub(crate) chunks: u16,
}

/// The resident pages of a heap, in the order of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fills {
    /// The number of resident pages of the process below the heap.
    first: u64,
    /// The pages up to the last one that has a chunk in use.
    pages: Vec<PageFill>,
}

impl Fills {
    /// Returns the pages of a heap that begins at an address, without a chunk in use.
    pub(crate) fn new(pages: &PresentPages, start: u64) -> Fills {
        Fills { first: pages.count_below(start / PAGE * PAGE), pages: Vec::new() }
    }

    /// Returns the resident pages of some addresses of the heap, with their addresses.
    pub(crate) fn within(&self, present: &PresentPages, range: Range<u64>) -> impl Iterator<Item = (u64, PageFill)> {
        let range = range.start / PAGE * PAGE..range.end;
        let at = (present.count_below(range.start).saturating_sub(self.first) as usize).min(self.pages.len());
        let addresses = present.within(range).flat_map(|part| part.step_by(PAGE as usize));
        let unused = std::iter::repeat(PageFill::default());
        addresses.zip(self.pages[at..].iter().copied().chain(unused))
    }

    /// Adds the pages of a part of the heap to these.
    pub(crate) fn add_all(&mut self, part: &Fills) {
        if part.pages.is_empty() {
            return;
        }
        let at = part.first.saturating_sub(self.first) as usize;
        self.pages.resize(self.pages.len().max(at + part.pages.len()), PageFill::default());
        for (page, part) in self.pages[at..].iter_mut().zip(&part.pages) {
            page.add(u64::from(part.used), part.chunks);
        }
    }

    /// Takes a chunk away that was counted as in use.
    pub(crate) fn remove(&mut self, pages: &PresentPages, chunk: Range<u64>) {
        for part in pages.within(chunk) {
            let mut at = part.start;
            while at < part.end {
                let end = (at / PAGE * PAGE + PAGE).min(part.end);
                let index = (pages.count_below(at / PAGE * PAGE)).saturating_sub(self.first) as usize;
                if let Some(page) = self.pages.get_mut(index) {
                    page.used = page.used.saturating_sub((end - at) as u16);
                    page.chunks = page.chunks.saturating_sub(1);
                }
                at = end;
            }
        }
    }
}

impl PageFill {
    fn add(&mut self, bytes: u64, chunks: u16) {
        self.used = u64::from(self.used).saturating_add(bytes).min(PAGE) as u16;
        self.chunks = self.chunks.saturating_add(chunks);
    }
}

/// Adds chunks in use to pages, in the order of their addresses.
pub(crate) struct Filler<'p> {
    present: &'p PresentPages,
    fills: Fills,
    /// The address of the page that is being filled, and its use.
    page: u64,
    bytes: u64,
    chunks: u16,
    /// The part of memory that was looked at last, and the number of resident pages of the heap
    /// below it.
    range: Range<u64>,
    before: u64,
}

impl<'p> Filler<'p> {
    /// Begins with the page of an address.
    pub(crate) fn new(present: &'p PresentPages, start: u64) -> Filler<'p> {
        let (fills, page) = (Fills::new(present, start), start / PAGE * PAGE);
        Filler { present, fills, page, bytes: 0, chunks: 0, range: 0..0, before: 0 }
    }

    /// Adds a chunk, which is above those before it, if it is in use.
    #[inline]
    pub(crate) fn add(&mut self, chunk: Range<u64>, is_used: bool) {
        if chunk.start.wrapping_sub(self.page) < PAGE && chunk.end <= self.page + PAGE {
            self.bytes += if is_used { chunk.end - chunk.start } else { 0 };
            self.chunks += u16::from(is_used);
        } else if is_used {
            self.add_to_several(chunk);
        }
    }

    fn add_to_several(&mut self, chunk: Range<u64>) {
        let mut at = chunk.start;
        while at < chunk.end {
            let page = at / PAGE * PAGE;
            if page != self.page {
                self.flush();
                self.page = page;
            }
            let end = (page + PAGE).min(chunk.end);
            self.bytes += end - at;
            self.chunks += 1;
            // Large chunks may have few resident pages.
            at = match self.present.within(end..chunk.end).next() {
                Some(next) if end < chunk.end => next.start,
                _ => chunk.end,
            };
        }
    }

    /// Adds what is known of the page.
    fn flush(&mut self) {
        if !self.range.contains(&self.page) {
            self.range = self.present.within(self.page..u64::MAX).next().unwrap_or(0..0);
            self.before = self.present.count_below(self.range.start).saturating_sub(self.fills.first);
        }
        if self.range.contains(&self.page) && self.chunks > 0 {
            let index = (self.before + (self.page - self.range.start) / PAGE) as usize;
            let pages = &mut self.fills.pages;
            if index >= pages.len() {
                pages.resize(index + 1, PageFill::default());
            }
            pages[index].add(self.bytes, self.chunks);
        }
        (self.bytes, self.chunks) = (0, 0);
    }

    /// Returns the pages.
    pub(crate) fn finish(mut self) -> Fills {
        self.flush();
        self.fills
    }
}
