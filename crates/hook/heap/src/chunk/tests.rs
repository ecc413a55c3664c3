use super::*;
use crate::geometry::SLICES;

#[test]
fn rows_of_bits_are_found_where_they_are() {
    assert_eq!(find(0b0111_0110, 1), Some(1));
    assert_eq!(find(0b0111_0110, 2), Some(1));
    assert_eq!(find(0b0111_0110, 3), Some(4));
    assert_eq!(find(0b0111_0110, 4), None);
    assert_eq!(find(bits(40, 16), 16), Some(40));
    assert_eq!(find(ALL, SLICES), Some(1));
    assert_eq!(find(0, 1), None);
}

#[test]
fn a_chunk_of_a_level_has_room_for_what_looks_there() {
    assert_eq!(level_of(0), None);
    assert_eq!(level_of(ALL), Some(LEVELS as u8 - 1));
    for first in 1..64 {
        for count in 1..=64 - first {
            let level = level_of(bits(first, count) & ALL);
            let longest = if count == SLICES { LEVELS - 1 } else { (count.ilog2() as usize).min(4) };
            assert_eq!(level, Some(longest as u8), "{count}");
        }
    }
    for count in 1..=16 {
        let level = level_for(count);
        assert!(find(bits(3, 1 << level), count).is_some());
    }
}
