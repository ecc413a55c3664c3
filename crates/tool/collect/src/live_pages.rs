//! The live blocks of a recorded process by page, for [`RunningSession::live_pages`].
//!
//! The recorder puts blocks onto pages itself, since a page of many blocks takes a few bytes. The
//! answer is a list of runs of pages, in ascending order, of six numbers each (LEB128): the pages
//! between the run before and this one, the pages of the run, and the four of [`LivePages`].
//!
//! [`RunningSession::live_pages`]: crate::RunningSession::live_pages

use heapledger_recording::Time;

/// The first bytes of an answer.
const MAGIC: &[u8; 8] = b"HLPAGES1";
const PAGE: u64 = 4096;
/// An age that is not known.
const UNKNOWN: u32 = u32::MAX;
/// The number of moments that are kept of an image.
const MARKS_MAX: usize = 1024;

/// Neighbouring pages of a process that have live blocks, all in the same way: one page, or the
/// pages that a large block fills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LivePages {
    /// The address of the first page, a multiple of 4096.
    pub address: u64,
    /// The number of pages.
    pub pages: u64,
    /// The live bytes on each, at most 4096.
    pub used: u16,
    /// The number of live blocks on each of which a part is on it.
    pub blocks: u16,
    /// The stack of the site that has the most bytes, in the process's image of the recording.
    pub site: u32,
    /// The age of the oldest of these blocks in milliseconds. `None` if it is not known: the block
    /// was allocated before a fork.
    pub age_ms: Option<u32>,
}

/// The most runs of pages that one more block can add: the page before, its own first page, and
/// those that it fills.
const RUNS_OF_BLOCK_MAX: usize = 3;

/// A live block with its age in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgedBlock {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) site: u32,
    pub(crate) age_ms: u32,
}

/// The moments at which an image has reached some serials, so that the age of a block is known
/// without a time for each.
#[derive(Debug, Default)]
pub(crate) struct SerialTimes {
    /// Ascending.
    marks: Vec<(u64, Time)>,
    /// The number of moments that are left out for each that is kept.
    skipped: usize,
    calls: usize,
}

impl SerialTimes {
    /// Notes the serial of the next block at a moment. Every second one is forgotten when there are
    /// too many.
    pub(crate) fn add(&mut self, serial: u64, now: Time) {
        self.calls += 1;
        if self.calls <= self.skipped {
            return;
        }
        self.calls = 0;
        if self.marks.len() >= MARKS_MAX {
            let mut number = 0;
            self.marks.retain(|_| (number += 1, number % 2 == 1).1);
            self.skipped = self.skipped * 2 + 1;
        }
        self.marks.push((serial, now));
    }

    /// Returns the age at `now` of the block with a serial, in milliseconds. It is exact to the
    /// distance of two moments, between which blocks are taken for evenly spread.
    pub(crate) fn age_ms(&self, serial: u64, next: u64, now: Time) -> u32 {
        let at = self.marks.partition_point(|(mark, _)| *mark <= serial);
        let before = at.checked_sub(1).map_or((0, 0), |at| (self.marks[at].0, self.marks[at].1.0));
        let after = self.marks.get(at).map_or((next, now.0), |(mark, time)| (*mark, time.0));
        let (serials, times) = (after.0.saturating_sub(before.0).max(1), after.1.saturating_sub(before.1));
        let part = u128::from(times) * u128::from(serial.saturating_sub(before.0)) / u128::from(serials);
        let allocated = before.1 + part as u64;
        u32::try_from(now.0.saturating_sub(allocated) / 1_000_000).unwrap_or(UNKNOWN - 1)
    }
}

impl AgedBlock {
    pub(crate) const UNKNOWN_AGE: u32 = UNKNOWN;
}

/// Puts blocks onto pages. Sorts them. `None` if there is no memory for so many pages.
pub(crate) fn by_page(blocks: &mut [AgedBlock]) -> Option<Vec<LivePages>> {
    blocks.sort_unstable_by_key(|block| (block.address, block.site));
    let mut found = Vec::new();
    let mut page = OpenPage::default();
    let mut taken = 0;
    for block in blocks.iter() {
        let end = block.address.saturating_add(block.size.max(1));
        let start = block.address.max(taken);
        if start >= end {
            continue;
        }
        taken = end;
        found.try_reserve(RUNS_OF_BLOCK_MAX).ok()?;
        let (first, last) = (start / PAGE, (end - 1) / PAGE);
        page.add(first, start..end.min((first + 1).saturating_mul(PAGE)), block, &mut found);
        if first + 1 < last {
            page.end(&mut found);
            let run = LivePages {
                address: (first + 1) * PAGE,
                pages: last - first - 1,
                used: PAGE as u16,
                blocks: 1,
                site: block.site,
                age_ms: known(block.age_ms),
            };
            found.push(run);
        }
        if first < last {
            page.add(last, last * PAGE..end, block, &mut found);
        }
    }
    found.try_reserve(RUNS_OF_BLOCK_MAX).ok()?;
    page.end(&mut found);
    Some(found)
}

fn known(age_ms: u32) -> Option<u32> {
    (age_ms != UNKNOWN).then_some(age_ms)
}

/// The page that is being filled.
#[derive(Debug, Default)]
struct OpenPage {
    number: u64,
    used: u64,
    blocks: u64,
    /// The sites in it, with their bytes.
    sites: Vec<(u32, u64)>,
    /// The largest known age.
    age_ms: Option<u32>,
}

impl OpenPage {
    fn add(&mut self, number: u64, range: std::ops::Range<u64>, block: &AgedBlock, found: &mut Vec<LivePages>) {
        if number != self.number {
            self.end(found);
            self.number = number;
        }
        let bytes = range.end - range.start;
        self.used += bytes;
        self.blocks += 1;
        self.age_ms = self.age_ms.max(known(block.age_ms));
        match self.sites.iter_mut().find(|(site, _)| *site == block.site) {
            Some((_, of)) => *of += bytes,
            None => self.sites.push((block.site, bytes)),
        }
    }

    fn end(&mut self, found: &mut Vec<LivePages>) {
        // The first of equals has the lowest address.
        if let Some((site, _)) = self.sites.iter().rev().max_by_key(|(_, bytes)| *bytes) {
            found.push(LivePages {
                address: self.number * PAGE,
                pages: 1,
                used: self.used.min(PAGE) as u16,
                blocks: u16::try_from(self.blocks).unwrap_or(u16::MAX),
                site: *site,
                age_ms: self.age_ms,
            });
        }
        self.sites.clear();
        (self.used, self.blocks, self.age_ms) = (0, 0, None);
    }
}

/// Writes pages, which are ascending. `None` if there is no memory for the text.
pub(crate) fn write(pages: &[LivePages]) -> Option<Vec<u8>> {
    /// The most bytes of a number.
    const NUMBER_MAX: usize = 10;
    let mut bytes = MAGIC.to_vec();
    let mut next = 0;
    for run in pages {
        bytes.try_reserve(6 * NUMBER_MAX).ok()?;
        let number = |mut number: u64| {
            while number >= 0x80 {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
        };
        let first = run.address / PAGE;
        let age = run.age_ms.map_or(0, |age| u64::from(age) + 1);
        [first - next, run.pages, run.used.into(), run.blocks.into(), run.site.into(), age]
            .into_iter()
            .for_each(number);
        next = first + run.pages;
    }
    Some(bytes)
}

/// Reads what [`write`] has written. `None` if it is something else.
pub(crate) fn read(bytes: &[u8]) -> Option<Vec<LivePages>> {
    /// The end of the addresses of a process, in pages.
    const PAGES_MAX: u64 = 1 << 52;
    let mut rest = bytes.strip_prefix(MAGIC)?;
    let (mut pages, mut next) = (Vec::new(), 0_u64);
    while !rest.is_empty() {
        let mut run = [0; 6];
        for number in &mut run {
            (*number, rest) = number_of(rest)?;
        }
        let [gap, count, used, blocks, site, age] = run;
        let first = next.checked_add(gap)?;
        next = first.checked_add(count).filter(|next| *next <= PAGES_MAX && count > 0)?;
        pages.push(LivePages {
            address: first * PAGE,
            pages: count,
            used: u16::try_from(used).ok().filter(|used| u64::from(*used) <= PAGE)?,
            blocks: u16::try_from(blocks).ok()?,
            site: u32::try_from(site).ok()?,
            age_ms: u32::try_from(age).ok()?.checked_sub(1),
        });
    }
    Some(pages)
}

/// Returns a number, and what follows it.
fn number_of(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0_u64;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f).checked_shl(7 * at as u32)?;
        if byte & 0x80 == 0 {
            return Some((number, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests;
