//! The size classes: four in each doubling.

/// The number of classes.
const CLASSES: u32 = 232;
/// The first class in a doubling of its own: 8, and 16 to 128 in steps of 16, are before it.
const FIRST_GROUPED: u32 = 9;

/// Returns the size of the blocks of a class in bytes. `None` if there is no such class.
pub(super) fn size_of(class: u32) -> Option<u64> {
    match class {
        0 => Some(8),
        1..FIRST_GROUPED => Some(16 * u64::from(class)),
        FIRST_GROUPED..CLASSES => {
            let (group, step) = ((class - FIRST_GROUPED) / 4, (class - FIRST_GROUPED) % 4 + 1);
            Some((128_u64 << group) + (u64::from(step) << (5 + group)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes are those of the table in `jemalloc(3)`.
    #[test]
    fn sizes_of_classes() {
        let sizes =
            [(0, 8), (1, 16), (8, 128), (9, 160), (12, 256), (13, 320), (28, 4096), (35, 14 << 10), (36, 16 << 10)];
        sizes.into_iter().for_each(|(class, size)| assert_eq!(size_of(class), Some(size), "{class}"));
        assert_eq!((size_of(231), size_of(232)), (Some(7 << 60), None));
    }
}
