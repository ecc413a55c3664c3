//! The pages of a process that are in memory.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use crate::scan::{self, PageRegion};
use crate::zero_frames::ZeroFrames;

/// The size of a page in bytes. Only x86-64 is observed.
pub(crate) const PAGE: u64 = 4096;

/// The pages of some mappings that are in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PresentPages {
    /// Ascending, and no two touch.
    ranges: Vec<Range<u64>>,
    /// The number of pages before each range.
    before: Vec<u64>,
}

impl PresentPages {
    /// Adds a range of addresses that is not below any before it.
    pub(crate) fn push(&mut self, range: Range<u64>) {
        match self.ranges.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => {
                let count = self.ranges.last().map_or(0, pages_of);
                self.before.push(self.before.last().map_or(0, |before| before + count));
                self.ranges.push(range);
            }
        }
    }

    /// Returns the number of pages in memory that begin below an address.
    pub(crate) fn count_below(&self, address: u64) -> u64 {
        let index = self.ranges.partition_point(|present| present.end <= address);
        match (self.ranges.get(index), self.before.get(index)) {
            (Some(range), Some(before)) => before + address.saturating_sub(range.start).div_ceil(PAGE),
            _ => self.before.last().map_or(0, |before| before + self.ranges.last().map_or(0, pages_of)),
        }
    }

    /// Returns the parts of a range that are in memory, in ascending order.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.ranges.partition_point(|present| present.end <= range.start);
        let present = self.ranges[first..].iter().take_while({
            let end = range.end;
            move |present| present.start < end
        });
        present.map(move |present| present.start.max(range.start)..present.end.min(range.end))
    }

    /// Returns the bytes of a range that are in memory.
    pub(crate) fn bytes_within(&self, range: Range<u64>) -> u64 {
        self.within(range).map(|part| part.end - part.start).sum()
    }

    /// Returns a cursor for questions in the order of addresses, from this one on.
    pub(crate) fn cursor(&self, start: u64) -> PresentCursor<'_> {
        let first = self.ranges.partition_point(|present| present.end <= start);
        PresentCursor { ranges: &self.ranges[first..], at: start }
    }
}

/// Returns the number of pages of a range.
fn pages_of(range: &Range<u64>) -> u64 {
    (range.end - range.start).div_ceil(PAGE)
}

/// A position in a process's memory. Questions in order take no search.
#[derive(Clone, Debug)]
pub(crate) struct PresentCursor<'p> {
    /// The ranges that end above the position.
    ranges: &'p [Range<u64>],
    at: u64,
}

impl PresentCursor<'_> {
    /// Returns the bytes between the position and an address that are in memory, and moves there.
    #[inline]
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        match self.ranges.first() {
            Some(first) if first.start <= self.at && end < first.end && self.at <= end => {
                let bytes = end - self.at;
                self.at = end;
                bytes
            }
            _ => self.below_several(end),
        }
    }

    fn below_several(&mut self, end: u64) -> u64 {
        let mut bytes = 0;
        while let Some(first) = self.ranges.first().filter(|first| first.start < end) {
            bytes += first.end.min(end).saturating_sub(first.start.max(self.at));
            if first.end > end {
                break;
            }
            self.ranges = &self.ranges[1..];
        }
        self.at = self.at.max(end);
        bytes
    }
}

/// The page map of a process.
#[derive(Debug)]
pub(crate) struct PageMap {
    file: File,
    /// True unless the kernel does not have PAGEMAP_SCAN. Known after the first read.
    can_scan: bool,
    /// The pages of zeroes, if the kernel cannot scan and tells this user.
    zeroes: Option<ZeroFrames>,
}

impl PageMap {
    /// Opens the page map of a process, which takes the rights of a debugger.
    pub(crate) fn open(process: u32) -> io::Result<PageMap> {
        Ok(PageMap { file: File::open(format!("/proc/{process}/pagemap"))?, can_scan: true, zeroes: None })
    }

    /// True if pages of zeroes, which are not resident for the kernel, are told from others. Known
    /// after the first read.
    pub(crate) fn knows_zeroes(&self) -> bool {
        self.can_scan || self.zeroes.is_some()
    }
    /// Adds the pages of a range of addresses that are resident. They have to be above those that
    /// were added before.
    pub(crate) fn read(&mut self, range: Range<u64>, pages: &mut PresentPages) -> io::Result<()> {
        if self.can_scan {
            match self.scan(range.clone(), pages) {
                // Kernels before 6.7 do not have the call.
                Err(error) if is_unknown_call(&error) => {
                    (self.can_scan, self.zeroes) = (false, ZeroFrames::find(PAGE));
                }
                result => return result,
            }
        }
        self.read_entries(range, pages)
    }

    fn scan(&self, range: Range<u64>, pages: &mut PresentPages) -> io::Result<()> {
        self.scan_for(scan::resident, range, pages)
    }

    fn scan_for(&self, ask: AskKernel, range: Range<u64>, pages: &mut PresentPages) -> io::Result<()> {
        let mut regions = [PageRegion::default(); 1024];
        let mut start = range.start;
        while start < range.end {
            let (found, end) = ask(&self.file, start..range.end, &mut regions)?;
            found.iter().for_each(|region| pages.push(region.start..region.end));
            // The kernel goes on unless the buffer is full.
            if found.is_empty() || end <= start {
                break;
            }
            start = end;
        }
        Ok(())
    }

    /// Returns the ranges of addresses within this one that are in huge pages of private memory.
    ///
    /// # Errors
    ///
    /// Fails on kernels before 6.7.
    pub(crate) fn huge(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        let mut pages = PresentPages::default();
        self.scan_for(scan::huge, range, &mut pages)?;
        Ok(pages.ranges)
    }

    /// Reads the entries of `/proc/PID/pagemap`: 8 bytes for each page. Bit 63 says that the page
    /// is present, which pages of zeroes are, too.
    fn read_entries(&mut self, range: Range<u64>, pages: &mut PresentPages) -> io::Result<()> {
        const PRESENT: u64 = 1 << 63;
        let mut buffer = vec![0; 64 << 10];
        let mut start = range.start / PAGE * PAGE;
        while start < range.end {
            let count = ((range.end - start).div_ceil(PAGE) as usize).min(buffer.len() / 8);
            let read = self.file.read_at(&mut buffer[..count * 8], start / PAGE * 8)?;
            if read < 8 {
                break;
            }
            for entry in buffer[..read].chunks_exact(8) {
                let entry = u64::from_le_bytes(entry.try_into().unwrap_or([0; 8]));
                let mut is_zero = || self.zeroes.as_mut().is_some_and(|zeroes| zeroes.has(entry, start / PAGE));
                if entry & PRESENT != 0 && !is_zero() {
                    pages.push(start..start + PAGE);
                }
                start += PAGE;
            }
        }
        Ok(())
    }
}

/// A function of [`scan`].
type AskKernel = for<'b> fn(&File, Range<u64>, &'b mut [PageRegion]) -> io::Result<(&'b [PageRegion], u64)>;

fn is_unknown_call(error: &io::Error) -> bool {
    [Errno::NOTTY, Errno::NOSYS, Errno::INVAL].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_ranges() {
        let mut pages = PresentPages::default();
        [0x1000..0x3000, 0x3000..0x4000, 0x4000..0x4000, 0x8000..0x9000]
            .into_iter()
            .for_each(|range| pages.push(range));
        assert_eq!(pages.ranges, [0x1000..0x4000, 0x8000..0x9000]);
        assert_eq!(pages.bytes_within(0..u64::MAX), 0x4000);
        assert_eq!(pages.within(0x2800..0x8800).collect::<Vec<_>>(), [0x2800..0x4000, 0x8000..0x8800]);
        assert_eq!(pages.bytes_within(0x4000..0x8000), 0);
        let mut cursor = pages.cursor(0x1800);
        let steps = [0x1900, 0x1900, 0x2000, 0x3fff, 0x8000, 0x8010, 0x9000, u64::MAX];
        assert_eq!(steps.map(|end| cursor.below(end)), [0x100, 0, 0x700, 0x1fff, 1, 0x10, 0xff0, 0]);
    }

    /// Pages that were written to are resident, those that were only read are not.
    #[test]
    fn pages_of_zeroes_are_told_apart_if_the_kernel_does() {
        const PAGES: usize = 64;
        // Fresh memory from the system, because of its size.
        let mut memory = vec![0_u8; (PAGES + 1) * PAGE as usize + (32 << 20)];
        let start = (memory.as_ptr() as u64).next_multiple_of(PAGE);
        let skip = (start - memory.as_ptr() as u64) as usize;
        for page in 0..PAGES {
            let at = skip + page * PAGE as usize;
            match page % 4 {
                0 => memory[at] = 1,
                1 => assert_eq!(std::hint::black_box(&memory)[at], 0),
                _ => {}
            }
        }
        let range = start..start + PAGES as u64 * PAGE;
        let mut map = PageMap::open(std::process::id()).unwrap();
        let mut pages = PresentPages::default();
        map.read(range.clone(), &mut pages).unwrap();
        let is_there = |page: u64| pages.bytes_within(start + page * PAGE..start + (page + 1) * PAGE) == PAGE;
        assert!((0..PAGES as u64).filter(|page| page % 4 == 0).all(is_there), "{pages:?}");
        // Huge pages would fill the gaps.
        let is_sparse = !is_there(2);
        if map.knows_zeroes() && is_sparse {
            assert!(!(0..PAGES as u64).filter(|page| page % 4 == 1).any(is_there), "{pages:?}");
        }
        let can_scan = std::mem::replace(&mut map.can_scan, false);
        map.zeroes = ZeroFrames::find(PAGE);
        if map.knows_zeroes() && can_scan {
            let mut told = PresentPages::default();
            map.read(range.clone(), &mut told).unwrap();
            assert_eq!(told, pages);
        }
        map.zeroes = None;
        let mut entries = PresentPages::default();
        map.read_entries(range.clone(), &mut entries).unwrap();
        assert!(entries.bytes_within(range.clone()) >= pages.bytes_within(range), "{entries:?} {pages:?}");
    }
}
