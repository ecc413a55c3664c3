//! Live blocks on resident pages: which sites keep which pages.

use std::collections::HashMap;
use std::ops::Range;

use crate::pages::{PAGE, PresentCursor, PresentPages};

/// A live block of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedBlock {
    /// The address at which it begins.
    pub address: u64,
    /// Its requested bytes. On pages, a block of 0 bytes counts as 1.
    pub size: u64,
    /// The number of its site.
    pub site: u32,
    /// The bytes by which its usable size is larger; 0 if that is not known.
    pub slop: u32,
}

/// The live blocks of a site, and the pages that they keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteFold {
    /// The number of the site.
    pub site: u32,
    /// The blocks.
    pub blocks: u64,
    /// Their requested bytes.
    pub bytes: u64,
    /// The part of these that is in resident pages.
    pub resident: u64,
    /// The sum of [`PlacedBlock::slop`].
    pub slop: u64,
    /// The share of resident pages in bytes: each page is divided among its live blocks by their
    /// bytes in it.
    pub kept: u64,
    /// The resident pages that are not full, and in which there is one of these blocks and no other
    /// live block.
    pub pages_alone: u64,
    /// The resident pages less than a quarter full of whose live bytes this site has the most. Of
    /// sites with the same, the lowest number counts.
    pub pages_sparse: u64,
}

/// Live blocks on resident pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockFold {
    /// The sites, in ascending order of numbers.
    pub sites: Vec<SiteFold>,
    /// The resident pages of heaps: those of known allocators, and of mappings that have a live
    /// block.
    pub heap_pages: u64,
    /// The heap pages with live bytes: less than a quarter full, less than a half, less than three
    /// quarters, more.
    pub pages_by_fill: [u64; 4],
    /// The resident pages that are not full and have one live block.
    pub pages_alone: u64,
    /// The resident bytes of live blocks in each part of the account.
    pub parts_live: Vec<u64>,
}

/// The addresses of the parts of an account, as indices. A part without resident memory has none.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartRanges {
    /// The heaps of known allocators, ascending.
    pub(crate) heaps: Vec<(Range<u64>, Option<usize>)>,
    /// All mappings, ascending, with the part that they are in apart from the heaps.
    pub(crate) mappings: Vec<(Range<u64>, Option<usize>)>,
    /// The number of parts.
    pub(crate) parts: usize,
}

/// See [`ResidentMemory::fold`](crate::ResidentMemory::fold).
pub(crate) fn fold(pages: &PresentPages, ranges: PartRanges, blocks: &mut [PlacedBlock]) -> BlockFold {
    blocks.sort_unstable_by_key(|block| (block.address, block.site));
    let mut folder = Folder::new(pages, ranges);
    let mut taken = 0;
    for block in blocks.iter() {
        let site = folder.site(block.site);
        let end = block.address.saturating_add(block.size.max(1));
        let row = &mut folder.sites[site];
        row.blocks += 1;
        row.bytes = row.bytes.saturating_add(block.size);
        row.slop = row.slop.saturating_add(block.slop.into());
        let start = block.address.max(taken);
        if start < end {
            taken = end;
            folder.put(start..end, site);
        }
    }
    folder.finish()
}

/// The page that is being filled.
#[derive(Debug, Default)]
struct Page {
    number: u64,
    live: u64,
    blocks: u64,
    /// The sites in it, as indices, with their bytes.
    holders: Vec<(usize, u64)>,
}

/// A fold in progress.
struct Folder<'a> {
    pages: &'a PresentPages,
    cursor: PresentCursor<'a>,
    page: Page,
    sites: Vec<SiteFold>,
    indices: HashMap<u32, usize>,
    /// The site that was looked up last, since neighbours often have the same.
    latest: Option<(u32, usize)>,
    fold: BlockFold,
    heaps: Vec<(Range<u64>, Option<usize>)>,
    /// The mappings, with a flag for those that have a live block.
    mappings: Vec<(Range<u64>, Option<usize>, bool)>,
    /// The heap and the mapping at which to go on looking.
    next: (usize, usize),
}

impl<'a> Folder<'a> {
    fn new(pages: &'a PresentPages, ranges: PartRanges) -> Folder<'a> {
        Folder {
            pages,
            cursor: pages.cursor(0),
            page: Page::default(),
            sites: Vec::new(),
            indices: HashMap::new(),
            latest: None,
            fold: BlockFold { parts_live: vec![0; ranges.parts], ..BlockFold::default() },
            heaps: ranges.heaps,
            mappings: ranges.mappings.into_iter().map(|(range, part)| (range, part, false)).collect(),
            next: (0, 0),
        }
    }

    /// Returns the index of a site.
    fn site(&mut self, site: u32) -> usize {
        if let Some((_, index)) = self.latest.filter(|(latest, _)| *latest == site) {
            return index;
        }
        let next = self.sites.len();
        let index = *self.indices.entry(site).or_insert(next);
        if index == next {
            self.sites.push(SiteFold { site, ..SiteFold::default() });
        }
        self.latest = Some((site, index));
        index
    }

    /// Adds the bytes of a block, which are behind all before.
    fn put(&mut self, range: Range<u64>, site: usize) {
        let (first, last) = (range.start / PAGE, (range.end - 1) / PAGE);
        self.put_into(first, range.start..range.end.min((first + 1).saturating_mul(PAGE)), site);
        if first == last {
            return;
        }
        if first + 1 < last {
            self.put_whole(first + 1..last, site);
        }
        self.put_into(last, last * PAGE..range.end, site);
    }

    fn put_into(&mut self, number: u64, range: Range<u64>, site: usize) {
        if self.page.number != number {
            self.end_page();
            self.page.number = number;
        }
        let bytes = range.end - range.start;
        self.page.live += bytes;
        self.page.blocks += 1;
        match self.page.holders.iter_mut().find(|(holder, _)| *holder == site) {
            Some((_, held)) => *held += bytes,
            None => self.page.holders.push((site, bytes)),
        }
    }

    /// Adds pages that one block fills.
    fn put_whole(&mut self, pages: Range<u64>, site: usize) {
        self.end_page();
        let range = pages.start * PAGE..pages.end * PAGE;
        self.cursor.below(range.start);
        let resident = self.cursor.below(range.end);
        self.fold.pages_by_fill[3] += resident / PAGE;
        let row = &mut self.sites[site];
        row.resident += resident;
        row.kept += resident;
        self.note_part(range.start, resident);
    }

    /// Ends the page that is being filled, and begins an empty one.
    fn end_page(&mut self) {
        let mut page = std::mem::take(&mut self.page);
        let start = page.number * PAGE;
        if page.live > 0 {
            self.cursor.below(start);
            if self.cursor.below(start.saturating_add(PAGE)) > 0 {
                self.count(&page, start);
            }
        }
        // Its memory is used again.
        page.holders.clear();
        self.page.holders = page.holders;
    }

    /// Counts a resident page.
    fn count(&mut self, page: &Page, start: u64) {
        let quarter = (page.live * 4 / PAGE).min(3);
        self.fold.pages_by_fill[quarter as usize] += 1;
        let mut left = PAGE;
        for (at, &(site, bytes)) in page.holders.iter().enumerate() {
            // The last one gets what rounding leaves.
            let is_last = at + 1 == page.holders.len();
            let share = if is_last { left } else { PAGE * bytes / page.live };
            left -= share;
            let row = &mut self.sites[site];
            row.resident += bytes;
            row.kept += share;
        }
        let most = page.holders.iter().max_by_key(|(site, bytes)| (*bytes, u32::MAX - self.sites[*site].site));
        if let Some(&(most, _)) = most {
            self.sites[most].pages_sparse += u64::from(quarter == 0);
            let is_alone = page.blocks == 1 && page.live < PAGE;
            self.sites[most].pages_alone += u64::from(is_alone);
            self.fold.pages_alone += u64::from(is_alone);
        }
        self.note_part(start, page.live);
    }

    /// Adds live bytes to the part that an address is in.
    fn note_part(&mut self, address: u64, bytes: u64) {
        let (heap, mapping) = &mut self.next;
        while self.heaps.get(*heap).is_some_and(|(range, _)| range.end <= address) {
            *heap += 1;
        }
        while self.mappings.get(*mapping).is_some_and(|(range, _, _)| range.end <= address) {
            *mapping += 1;
        }
        let in_heap = self.heaps.get(*heap).filter(|(range, _)| range.contains(&address));
        let part = match (in_heap, self.mappings.get_mut(*mapping)) {
            (Some((_, part)), _) => *part,
            (None, Some((range, part, has_blocks))) if range.contains(&address) => {
                *has_blocks = true;
                *part
            }
            _ => None,
        };
        if let Some(live) = part.and_then(|part| self.fold.parts_live.get_mut(part)) {
            *live += bytes;
        }
    }

    fn finish(mut self) -> BlockFold {
        self.end_page();
        let in_heaps: u64 = self.heaps.iter().map(|(range, _)| self.pages.bytes_within(range.clone())).sum();
        let mut bytes = in_heaps;
        for (range, _, _) in self.mappings.iter().filter(|(_, _, has_blocks)| *has_blocks) {
            let first = self.heaps.partition_point(|(heap, _)| heap.end <= range.start);
            let inside = self.heaps[first..].iter().take_while(|(heap, _)| heap.start < range.end);
            let of_heaps =
                inside.map(|(heap, _)| self.pages.bytes_within(heap.start.max(range.start)..heap.end.min(range.end)));
            bytes += self.pages.bytes_within(range.clone()).saturating_sub(of_heaps.sum());
        }
        self.sites.sort_unstable_by_key(|site| site.site);
        BlockFold { sites: self.sites, heap_pages: bytes / PAGE, ..self.fold }
    }
}

#[cfg(test)]
mod tests;
