use super::*;

#[test]
fn the_reserve_has_as_many_single_pages_as_mozillas() {
    assert_eq!(slots_max(0), 128 * 1024 * 1024 / 4096 / 2 - 1);
    assert_eq!(RESERVE, 256 << 20);
}

#[test]
fn every_slot_is_found_from_its_first_to_its_last_byte() {
    for class in 0..CLASSES {
        for index in [0, 1, 2, slots_max(class) / 2, slots_max(class) - 1] {
            let slot = number(class, index);
            let (from, length) = (offset_of(slot), slot_length(class));
            assert_eq!(class_of(slot), class);
            assert_eq!(from % PAGE, 0);
            for at in [from, from + 1, from + length / 2, from + length - 1] {
                assert_eq!(position(at), Some(Position::Slot(slot)), "class {class}, slot {index}");
            }
        }
    }
}

#[test]
fn the_halves_of_a_guard_blame_different_neighbours() {
    let guard = |nearest, is_lower| Some(Position::Guard { nearest, is_lower });
    for class in 0..CLASSES {
        let (first, second) = (number(class, 0), number(class, 1));
        let between = offset_of(first) + slot_length(class);
        assert_eq!(position(between), guard(Some(first), true));
        assert_eq!(position(between + PAGE / 2 - 1), guard(Some(first), true));
        assert_eq!(position(between + PAGE / 2), guard(Some(second), false));
        assert_eq!(position(between + PAGE - 1), guard(Some(second), false));
        // Nothing is before the first slot, and nothing behind the last.
        assert_eq!(position(offset_of(first) - PAGE), guard(None, true));
        assert_eq!(position(offset_of(first) - 1), guard(Some(first), false));
        let last = number(class, slots_max(class) - 1);
        let end = offset_of(last) + slot_length(class);
        assert_eq!(position(end), guard(Some(last), true));
        assert_eq!(position(end + PAGE - 1), guard(None, false));
    }
    assert_eq!(position(RESERVE), None);
    assert_eq!(position(usize::MAX), None);
}

#[test]
fn a_block_gets_the_smallest_class_that_holds_it() {
    for (size, alignment, class) in [
        (0, 16, Some(0)),
        (4096, 16, Some(0)),
        (4096, 4096, Some(0)),
        (4097, 16, Some(1)),
        (1, 8192, Some(1)),
        (0, 8192, Some(1)),
        (8192, 8192, Some(2)),
        (65536, 16, Some(4)),
        (65537, 16, None),
        (1, 1 << 20, None),
        (usize::MAX, 8192, None),
    ] {
        assert_eq!(class_for(size, alignment), class, "{size} {alignment}");
    }
}

/// A slot may be used unless a page that the allocator reads is in it, or is a guard beside it.
#[test]
fn slots_beside_pages_of_metadata_are_not_used() {
    let is_metadata = |offset: usize| metadata_page(offset) == offset;
    let mut unusable = 0;
    for number in (0..SLOTS_MAX).map(SlotNumber) {
        let (from, length) = (offset_of(number), slot_length(class_of(number)));
        let expected = !(from - PAGE..from + length + PAGE).step_by(PAGE).any(is_metadata);
        assert_eq!(is_usable(number), expected, "{number:?}");
        unusable += u32::from(!expected);
    }
    assert!(unusable > 32 && unusable < 128, "{unusable}");
}
