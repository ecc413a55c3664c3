//! Huge pages, and the parts of them that a program has never written to.
//!
//! Source: the kernel's `Documentation/admin-guide/mm/transhuge.rst`. A huge page is resident as a
//! whole as soon as a byte of it is written to, and begins as zeroes.

use std::ops::Range;

use crate::memory::Memory;
use crate::pages::PAGE;

/// The size of a huge page in bytes, on x86-64.
const HUGE_PAGE: u64 = 2 << 20;
/// The most bytes that are read. Of more memory than that, a part of the huge pages is read, at
/// equal distances.
const EXAMINED_MAX: u64 = 256 << 20;

/// The private memory of a process that is in huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HugePages {
    /// The bytes in huge pages, all of which are resident.
    pub bytes: u64,
    /// The bytes of these that were read.
    pub examined: u64,
    /// The bytes in small pages with nothing but zeroes: if only a part was examined, as many as
    /// there are if the rest is like it. Without huge pages they would not be resident, unless the
    /// program wrote the zeroes itself.
    pub empty: u64,
}

impl HugePages {
    /// Examines the huge pages in these ranges. Reads at most 256 MiB.
    pub(crate) fn examine(memory: &dyn Memory, ranges: &[Range<u64>]) -> HugePages {
        let starts = || {
            let whole = ranges.iter().map(|range| range.start.next_multiple_of(HUGE_PAGE)..range.end);
            whole.flat_map(|range| (range.start..range.end).step_by(HUGE_PAGE as usize))
        };
        let count = starts().count() as u64;
        let step = count.div_ceil(EXAMINED_MAX / HUGE_PAGE).max(1) as usize;
        let mut buffer = vec![0; HUGE_PAGE as usize];
        let (mut examined, mut empty) = (0, 0);
        for start in starts().step_by(step) {
            // The process may have given it back meanwhile.
            if memory.read(start, &mut buffer).is_ok() {
                examined += HUGE_PAGE;
                let pages = buffer.chunks_exact(PAGE as usize);
                empty += pages.filter(|page| page.iter().all(|&byte| byte == 0)).count() as u64 * PAGE;
            }
        }
        let bytes = count * HUGE_PAGE;
        let scaled = u128::from(empty) * u128::from(bytes) / u128::from(examined.max(1));
        HugePages { bytes, examined, empty: u64::try_from(scaled).unwrap_or(u64::MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Computed;

    /// Returns memory in which one small page in eight has a byte, above an address.
    fn memory_above(start: u64) -> impl Memory {
        Computed(move |address: u64, buffer: &mut [u8]| {
            buffer.fill(0);
            buffer.chunks_mut(PAGE as usize).step_by(8).for_each(|page| page[17] = 1);
            address >= start
        })
    }

    #[test]
    fn small_pages_of_zeroes_are_counted() {
        let huge = HugePages::examine(&memory_above(0), &[HUGE_PAGE..3 * HUGE_PAGE, 8 * HUGE_PAGE..9 * HUGE_PAGE]);
        let expected = HugePages { bytes: 3 * HUGE_PAGE, examined: 3 * HUGE_PAGE, empty: 3 * HUGE_PAGE / 8 * 7 };
        assert_eq!(huge, expected);
        assert_eq!(HugePages::examine(&memory_above(0), &[]), HugePages::default());
    }

    #[test]
    fn much_memory_is_examined_in_part() {
        let (start, end) = (4 * HUGE_PAGE, 4 * HUGE_PAGE + (10 << 30));
        let huge = HugePages::examine(&memory_above(0), std::slice::from_ref(&(start..end)));
        assert!(huge.examined <= EXAMINED_MAX && huge.examined > EXAMINED_MAX / 2, "{huge:?}");
        assert_eq!((huge.bytes, huge.empty), (10 << 30, (10 << 30) / 8 * 7));
    }

    #[test]
    fn memory_that_is_gone_is_left_out() {
        let huge = HugePages::examine(&memory_above(2 * HUGE_PAGE), std::slice::from_ref(&(0..4 * HUGE_PAGE)));
        assert_eq!((huge.bytes, huge.examined, huge.empty), (4 * HUGE_PAGE, 2 * HUGE_PAGE, 4 * HUGE_PAGE / 8 * 7));
    }
}
