//! Mapped ranges of addresses, parts of which may be unmapped.

use std::collections::BTreeMap;

/// Mappings that do not overlap: the end and the data of each, by its first address.
#[derive(Debug)]
pub(super) struct Ranges<T>(BTreeMap<u64, (u64, T)>);

/// A removed range, and its remaining parts.
#[derive(Debug, PartialEq)]
pub(super) struct Cut<T> {
    pub(super) was: T,
    /// The starts and lengths of the parts before and after the removed one.
    pub(super) left: [Option<(u64, u64)>; 2],
}

impl<T> Default for Ranges<T> {
    fn default() -> Ranges<T> {
        Ranges(BTreeMap::new())
    }
}

impl<T> Ranges<T> {
    /// Adds a range. Overlapping ones must have been [removed](Ranges::cut).
    pub(super) fn insert(&mut self, start: u64, length: u64, what: T) {
        self.0.insert(start, (start.saturating_add(length), what));
    }

    /// Removes one range that overlaps the given one, if there is any.
    pub(super) fn cut(&mut self, start: u64, length: u64) -> Option<Cut<T>> {
        let end = start.saturating_add(length);
        if end == start {
            return None;
        }
        let (&at, &(its_end, _)) = self.0.range(..end).next_back()?;
        if its_end <= start {
            return None;
        }
        let (_, was) = self.0.remove(&at)?;
        let before = (at < start).then(|| (at, start - at));
        let behind = (end < its_end).then(|| (end, its_end - end));
        Some(Cut { was, left: [before, behind] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_cut_out() {
        let mut ranges = Ranges::default();
        ranges.insert(100, 50, 'a');
        ranges.insert(150, 10, 'b');
        assert_eq!(ranges.cut(0, 100), None);
        assert_eq!(ranges.cut(160, 100), None);
        let cut = ranges.cut(110, 20).unwrap();
        assert_eq!(cut, Cut { was: 'a', left: [Some((100, 10)), Some((130, 20))] });
        ranges.insert(100, 10, 'c');
        ranges.insert(130, 20, 'd');
        let mut all = Vec::new();
        while let Some(cut) = ranges.cut(105, 50) {
            all.push((cut.was, cut.left));
        }
        let left = [('b', [None, Some((155, 5))]), ('d', [None, None]), ('c', [Some((100, 5)), None])];
        assert_eq!(all, left);
        ranges.insert(u64::MAX - 5, 100, 'e');
        assert_eq!(ranges.cut(u64::MAX - 1, u64::MAX).unwrap().left, [Some((u64::MAX - 5, 4)), None]);
        ranges.insert(0, 9, 'f');
        assert_eq!(ranges.cut(7, 0), None);
    }
}
