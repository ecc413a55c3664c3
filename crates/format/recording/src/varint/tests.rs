use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn varints_round_trip(values in prop::collection::vec(any::<u64>().prop_flat_map(|v| (0u32..64).prop_map(move |s| v >> s)), 0..50)) {
        let mut bytes = Vec::new();
        for &value in &values {
            put(&mut bytes, value);
        }
        let mut varints = Varints::new(&bytes);
        for &value in &values {
            prop_assert_eq!(varints.next(), Some(value));
        }
        prop_assert!(varints.is_empty());
        prop_assert_eq!(varints.next(), None);
    }

    #[test]
    fn zigzags_round_trip(from: u64, to: u64) {
        prop_assert_eq!(unzigzag(from, zigzag(from, to)), to);
    }

    #[test]
    fn small_differences_are_small(from: u64, step in 0u64..1 << 20) {
        prop_assert!(zigzag(from, from.wrapping_add(step)) <= 2 * step);
        prop_assert!(zigzag(from, from.wrapping_sub(step)) <= 2 * step);
    }
}

#[test]
fn what_is_no_varint_of_64_bits_is_refused() {
    assert_eq!(Varints::new(&[0xff; 9]).next(), None);
    assert_eq!(Varints::new(&[0xff; 10]).next(), None);
    assert_eq!(Varints::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).next(), None);
    assert_eq!(Varints::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).next(), Some(u64::MAX));
}
