//! Comparison of the sizes of a site's blocks with the size of a type.

/// The sizes of a site's allocations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SiteSizes {
    /// The number of blocks ever allocated there.
    pub blocks: u64,
    /// The sum of their requested sizes.
    pub bytes: u64,
    /// The common properties of their sizes. `None`: the sizes were not examined one by one.
    pub each: Option<EachSize>,
}

/// The common properties of the sizes of some blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EachSize {
    /// The smallest size.
    pub least: u64,
    /// The largest size.
    pub most: u64,
    /// The greatest common divisor of their differences; 0 if there are none.
    pub step: u64,
}

impl EachSize {
    /// Returns the properties for one block.
    pub fn of(size: u64) -> Self {
        Self { least: size, most: size, step: 0 }
    }

    /// Adds a block.
    pub fn add(&mut self, size: u64) {
        if self.step != 1 {
            self.step = common(self.step, size.abs_diff(self.least));
        }
        (self.least, self.most) = (self.least.min(size), self.most.max(size));
    }

    /// Adds the blocks of another set.
    pub fn join(&mut self, other: EachSize) {
        self.add(other.least);
        self.add(other.most);
        self.step = common(self.step, other.step);
    }
}

impl SiteSizes {
    /// Returns the sizes of a site with one block.
    pub fn of_one(size: u64) -> Self {
        Self { blocks: 1, bytes: size, each: Some(EachSize::of(size)) }
    }

    /// Adds the blocks of another site. What is not known of each block of both is known of none.
    pub fn join(&mut self, other: SiteSizes) {
        self.each = match (self.each(), other.each()) {
            (Some(mut each), Some(others)) => {
                each.join(others);
                Some(each)
            }
            (_, each) if self.blocks == 0 => each,
            (each, _) if other.blocks == 0 => each,
            _ => None,
        };
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// Returns the properties of each size; for one block they follow from the sum.
    pub(crate) fn each(&self) -> Option<EachSize> {
        if self.blocks == 1 { Some(EachSize::of(self.bytes)) } else { self.each }
    }

    /// Returns `true` if each block has this size. `None`: the sum does not tell.
    pub(crate) fn are(&self, size: u64) -> Option<bool> {
        match self.each() {
            Some(each) => Some(each.least == size && each.most == size),
            None if self.blocks == 0 => None,
            None => (size.checked_mul(self.blocks) != Some(self.bytes)).then_some(false),
        }
    }

    /// Returns `true` if each block has a number of elements of this size behind `head` bytes.
    /// `None`: the sum does not tell.
    pub(crate) fn are_several(&self, size: u64, head: u64) -> Option<bool> {
        if size == 0 {
            return Some(false);
        }
        match self.each() {
            Some(EachSize { least, step, .. }) => {
                Some(least.checked_sub(head).is_some_and(|rest| rest % size == 0) && step % size == 0)
            }
            None if self.blocks == 0 => None,
            None => {
                let rest = head.checked_mul(self.blocks).and_then(|heads| self.bytes.checked_sub(heads));
                rest.is_none_or(|rest| rest % size != 0).then_some(false)
            }
        }
    }

    /// Returns `true` if no block is smaller than this. `None`: the sum does not tell.
    pub(crate) fn are_at_least(&self, size: u64) -> Option<bool> {
        match self.each() {
            Some(each) => Some(each.least >= size),
            None if self.blocks == 0 => None,
            None => (size.saturating_mul(self.blocks) > self.bytes).then_some(false),
        }
    }

    /// Returns the sizes in words, for a contradiction: "40 bytes in 1 block".
    pub(crate) fn in_words(&self) -> String {
        let Self { blocks, bytes, .. } = *self;
        match self.each() {
            Some(EachSize { least, .. }) if blocks == 1 => format!("{least} bytes in 1 block"),
            Some(EachSize { least, most, .. }) if least == most => format!("{least} bytes in each of {blocks} blocks"),
            Some(EachSize { least, most, .. }) => format!("{least} to {most} bytes in each of {blocks} blocks"),
            None => format!("{bytes} bytes in {blocks} blocks"),
        }
    }
}

/// Returns the greatest common divisor; for 0 and a number, the number.
fn common(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(each: &[u64]) -> SiteSizes {
        let mut known = EachSize::of(each[0]);
        each[1..].iter().for_each(|&size| known.add(size));
        SiteSizes { blocks: each.len() as u64, bytes: each.iter().sum(), each: Some(known) }
    }

    #[test]
    fn each_block_counts() {
        // The sum of ten blocks of 40 bytes is a multiple of 16.
        let forty = sizes(&[40; 10]);
        assert_eq!((forty.are(40), forty.are(16), forty.are_several(16, 0)), (Some(true), Some(false), Some(false)));
        let varied = sizes(&[72, 24, 48, 240]);
        assert_eq!(
            (varied.are(96), varied.are_several(24, 0), varied.are_several(48, 0)),
            (Some(false), Some(true), Some(false))
        );
        let behind = sizes(&[8 + 24, 8 + 72, 8]);
        assert_eq!(
            (behind.are_several(24, 8), behind.are_several(24, 0), behind.are_several(0, 0)),
            (Some(true), Some(false), Some(false))
        );
        assert_eq!((behind.are_at_least(8), behind.are_at_least(9)), (Some(true), Some(false)));
        assert_eq!(varied.in_words(), "24 to 240 bytes in each of 4 blocks");
    }

    #[test]
    fn a_sum_alone_contradicts_at_most() {
        let sum = SiteSizes { blocks: 10, bytes: 400, each: None };
        assert_eq!((sum.are(40), sum.are_several(16, 0), sum.are_several(24, 0)), (None, None, Some(false)));
        assert_eq!((sum.are(16), sum.are_at_least(40), sum.are_at_least(41)), (Some(false), None, Some(false)));
        assert_eq!(SiteSizes::default().are(8), None);
        assert_eq!(SiteSizes { blocks: 1, bytes: 48, each: None }.are_several(16, 0), Some(true));
    }

    #[test]
    fn sites_are_joined() {
        let mut all = SiteSizes::default();
        [40, 24, 72].map(SiteSizes::of_one).into_iter().for_each(|one| all.join(one));
        assert_eq!(all, sizes(&[40, 24, 72]));
        all.join(SiteSizes::default());
        assert_eq!(all, sizes(&[40, 24, 72]));
        all.join(SiteSizes { blocks: 2, bytes: 100, each: None });
        assert_eq!(all, SiteSizes { blocks: 5, bytes: 236, each: None });
    }

    #[test]
    fn blocks_of_several_sites() {
        for (some, others) in
            [(&[24u64, 48][..], &[72u64][..]), (&[7], &[7, 7]), (&[10, 30, 20], &[15, 45]), (&[0], &[u64::MAX])]
        {
            let mut joined = sizes(some).each.unwrap();
            let EachSize { .. } = joined;
            let other = others[1..].iter().fold(EachSize::of(others[0]), |mut each, &size| {
                each.add(size);
                each
            });
            joined.join(other);
            let all: Vec<u64> = some.iter().chain(others).copied().collect();
            let mut expected = EachSize::of(all[0]);
            all[1..].iter().for_each(|&size| expected.add(size));
            assert_eq!(joined, expected, "{some:?} {others:?}");
        }
    }
}
