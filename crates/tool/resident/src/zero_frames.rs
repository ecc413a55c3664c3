//! The kernel's pages of zeroes, by their numbers, for kernels without `PAGEMAP_SCAN`.
//!
//! Sources: the kernel's `Documentation/admin-guide/mm/pagemap.rst`. Both files tell numbers of
//! frames and their flags only to processes with CAP_SYS_ADMIN.

use std::collections::HashMap;
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;

/// Bits of an entry of `/proc/PID/pagemap`: the number of the frame.
const FRAME: u64 = (1 << 55) - 1;
/// A flag in `/proc/kpageflags`.
const IS_ZERO: u64 = 1 << 24;
/// The pages of a huge page.
const HUGE: u64 = 512;

/// The frames that have zeroes for all processes.
#[derive(Debug)]
pub(crate) struct ZeroFrames {
    /// `/proc/kpageflags`.
    flags: File,
    /// The frame for a page.
    small: u64,
    /// The beginnings of huge pages, and true for those of zeroes. It is one frame that is looked
    /// up for every huge page, and by chance for every 512th other page.
    huge: HashMap<u64, bool>,
}

impl ZeroFrames {
    /// Finds the frame of zeroes, by the size of a page. `None` if the kernel does not tell this
    /// user.
    pub(crate) fn find(page_size: u64) -> Option<ZeroFrames> {
        // Fresh memory from the system, because of its size. Its pages become that of zeroes by
        // being read.
        let memory = vec![0_u8; 1 << 20];
        let middle = &memory[memory.len() / 2];
        black_box(*black_box(middle));
        let address = std::ptr::from_ref(middle).expose_provenance() as u64;
        let entry = word_of(&File::open("/proc/self/pagemap").ok()?, address / page_size)?;
        let flags = File::open("/proc/kpageflags").ok()?;
        let frames = ZeroFrames { flags, small: entry & FRAME, huge: HashMap::new() };
        (frames.small != 0 && frames.has_flag(frames.small)).then_some(frames)
    }

    /// True if an entry of the page map is for a page of zeroes. `page` is its number: the address
    /// divided by the size of a page.
    pub(crate) fn has(&mut self, entry: u64, page: u64) -> bool {
        let frame = entry & FRAME;
        if frame == self.small {
            return true;
        }
        // A huge page lies at multiples of its size, in memory and in addresses.
        let may_be_huge = frame % HUGE == page % HUGE;
        let first = frame - frame % HUGE;
        if !may_be_huge || first == 0 {
            return false;
        }
        if let Some(&is_zero) = self.huge.get(&first) {
            return is_zero;
        }
        let is_zero = self.has_flag(first);
        self.huge.insert(first, is_zero);
        is_zero
    }

    fn has_flag(&self, frame: u64) -> bool {
        word_of(&self.flags, frame).is_some_and(|flags| flags & IS_ZERO != 0)
    }
}

/// Returns the word with a number in a file of words of 8 bytes.
fn word_of(file: &File, number: u64) -> Option<u64> {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, number.checked_mul(8)?).ok()?;
    Some(u64::from_le_bytes(word))
}
