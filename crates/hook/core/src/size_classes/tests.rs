extern crate std;

use std::vec::Vec;

use super::*;

#[test]
fn each_size_has_the_smallest_class_that_holds_it() {
    for size in 0..=LARGE_MAX {
        let class = class_of(size);
        assert!(bytes_of(class) >= size, "{size} in {}", bytes_of(class));
        assert!(class == 0 || bytes_of(class - 1) < size, "{size} fits in {}", bytes_of(class - 1));
    }
}

#[test]
fn classes_ascend_and_end_where_the_constants_say() {
    let sizes: Vec<usize> = (0..CLASSES).map(bytes_of).collect();
    assert!(sizes.is_sorted_by(|a, b| a < b), "{sizes:?}");
    assert_eq!((sizes[0], sizes[LINEAR - 1], sizes[FINE - 1]), (16, 128, 8 << 10));
    assert_eq!((sizes[SMALL_CLASSES - 1], sizes[CLASSES - 1]), (SMALL_MAX, LARGE_MAX));
    assert!(sizes.iter().all(|size| size % 16 == 0));
}

#[test]
fn a_request_wastes_at_most_an_eighth_up_to_8_kib_and_a_fifth_up_to_64_kib() {
    for size in 129..=SMALL_MAX {
        let waste = bytes_of(class_of(size)) - size;
        assert!(waste * if size <= 8 << 10 { 8 } else { 4 } <= size, "{size}");
    }
}

#[test]
fn a_run_holds_its_blocks() {
    for class in 0..CLASSES {
        assert!(capacity_of(class) * bytes_of(class) <= slices_of(class) * SLICE);
        assert!(capacity_of(class) == 1 || slices_of(class) == 1);
    }
}

#[test]
fn an_aligned_class_is_aligned_and_holds_the_size() {
    for alignment in (0..=16).map(|shift| 1 << shift) {
        for size in [0, 1, 15, 16, 17, 100, 1000, 4096, 5000, 40_000, 65_536, 700_000, LARGE_MAX] {
            let class = aligned_class_of(size, alignment).unwrap();
            assert!(bytes_of(class) >= size && bytes_of(class).is_multiple_of(alignment), "{size} at {alignment}");
        }
    }
    assert_eq!(aligned_class_of(LARGE_MAX + 1, 32), None);
}
