//! The pages of a heap by fill, whatever the allocator.

use crate::pages::PAGE;

/// The resident pages of a heap.
///
/// They come from a process ([`heap_pages`](crate::ResidentMemory::heap_pages)), or from anything
/// else that knows which bytes of a page are in use, such as a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapPages {
    /// The allocator, as a noun phrase such as `glibc's malloc`.
    pub allocator: String,
    /// The property by which pages are grouped, in the singular: `arena`, `owner`, `age`.
    pub grouping: String,
    /// The names of the groups. [`HeapPage::group`] is an index.
    pub groups: Vec<String>,
    /// The groups that are of another kind than the others, such as the allocator's own memory, or
    /// pages on which nothing is live.
    pub apart: Vec<u32>,
    /// The pages, by address.
    pub pages: Vec<HeapPage>,
}

/// A resident page of a heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapPage {
    /// The address of the page, a multiple of 4096.
    pub address: u64,
    /// The index of the group that it belongs to.
    pub group: u32,
    /// The bytes in use, at most 4096.
    pub used: u16,
    /// The number of blocks in use of which a part is on the page.
    pub blocks: u16,
}

/// Pages of a heap by what keeps them, from the resident pages alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageUse {
    /// All pages.
    pub all: PageSum,
    /// Pages without a byte in use.
    pub empty: PageSum,
    /// Pages that one block keeps with less than a quarter of their bytes.
    pub alone: PageSum,
    /// Pages that several blocks keep with less than a quarter of their bytes.
    pub sparse: PageSum,
}

/// A number of pages, and the bytes in use on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageSum {
    /// The number of pages.
    pub pages: u64,
    /// The bytes in use.
    pub used: u64,
}

impl PageSum {
    /// Returns the bytes of the pages.
    pub fn bytes(self) -> u64 {
        self.pages.saturating_mul(PAGE)
    }

    pub(crate) fn add(&mut self, used: u16) {
        self.pages += 1;
        self.used += u64::from(used);
    }
}

impl PageUse {
    /// Adds a page.
    pub fn add(&mut self, page: &HeapPage) {
        self.all.add(page.used);
        match page.blocks {
            _ if u64::from(page.used) >= PAGE / 4 => {}
            0 => self.empty.add(page.used),
            1 => self.alone.add(page.used),
            _ => self.sparse.add(page.used),
        }
    }
}

impl HeapPages {
    /// Returns a heap without pages.
    pub fn new(allocator: impl Into<String>, grouping: impl Into<String>) -> HeapPages {
        HeapPages { allocator: allocator.into(), grouping: grouping.into(), ..HeapPages::default() }
    }

    /// Returns the sums over all pages.
    pub fn page_use(&self) -> PageUse {
        let mut sums = PageUse::default();
        self.pages.iter().for_each(|page| sums.add(page));
        sums
    }

    /// Returns the sums over the pages of each group.
    pub fn page_use_by_group(&self) -> Vec<PageUse> {
        let mut sums = vec![PageUse::default(); self.groups.len()];
        for page in &self.pages {
            if let Some(sum) = sums.get_mut(page.group as usize) {
                sum.add(page);
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_kept_by_nothing_by_one_block_or_by_several() {
        let mut heap = HeapPages::new("an allocator", "owner");
        heap.groups = vec!["one".into(), "two".into()];
        let pages = [(0, 0, 0), (0, 400, 1), (1, 1023, 2), (1, 1024, 1), (0, 4096, 1), (7, 16, 1)];
        heap.pages = (0..)
            .zip(pages)
            .map(|(number, (group, used, blocks))| HeapPage { address: number * PAGE, group, used, blocks })
            .collect();
        let sums = heap.page_use();
        assert_eq!([sums.all, sums.empty, sums.alone, sums.sparse].map(|sum| sum.pages), [6, 1, 2, 1]);
        assert_eq!((sums.alone.used, sums.alone.bytes(), sums.sparse.used), (416, 8192, 1023));
        let groups = heap.page_use_by_group();
        assert_eq!(groups.iter().map(|group| group.all.pages).collect::<Vec<_>>(), [3, 2]);
    }
}
