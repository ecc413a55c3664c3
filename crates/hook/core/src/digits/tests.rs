extern crate std;

use std::borrow::ToOwned;
use std::format;
use std::string::ToString;

use super::*;

/// Numbers of all lengths: those around the powers of a base, and many between.
fn numbers(base: u64) -> impl Iterator<Item = u64> {
    let powers = (0..20).filter_map(move |power| base.checked_pow(power)).chain([u64::MAX]);
    let around = powers.flat_map(|power| (0..40).map(move |more| power.wrapping_add(more).wrapping_sub(20)));
    // Knuth's multiplier visits all bit patterns; the shift makes short ones of them.
    let between = (0..200_000_u64).map(|at| at.wrapping_mul(6_364_136_223_846_793_005) >> (at % 64));
    around.chain(between)
}

#[test]
fn decimal_digits_are_those_of_the_standard_library() {
    for number in (0..20_000).chain(numbers(10).map(|number| (number % DECIMAL_8_END) as u32)) {
        let (text, length) = decimal(number);
        assert_eq!(str::from_utf8(&text[..length]).unwrap(), number.to_string());
        let (padded, zeros) = decimal_8(number);
        assert_eq!(str::from_utf8(&padded).unwrap(), format!("{number:08}"));
        assert_eq!(zeros, 8 - length);
    }
}

#[test]
fn hexadecimal_digits_are_those_of_the_standard_library() {
    for number in (0..70_000).chain(numbers(16)) {
        let (text, length) = hexadecimal(number);
        let expected = format!("{number:x}");
        assert_eq!(str::from_utf8(&text[..length]).unwrap(), expected);
        if let Some(rest) = expected.len().checked_sub(8) {
            let (first, last, length) = hexadecimal_ends(number);
            let ends = [first, last].map(|end| str::from_utf8(&end).unwrap().to_owned());
            assert_eq!(ends, [&expected[..8], &expected[rest..]]);
            assert_eq!(length, expected.len());
        }
    }
}
