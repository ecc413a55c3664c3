//! Numbers as Firefox shows them, like `Intl.NumberFormat` in American English.

use crate::grouped::grouped;
use crate::report::Unit;

/// The number of bytes in a `MB` of about:memory.
const MEGABYTE: f64 = 1_048_576.0;

/// Formats an amount with its unit.
pub(super) fn amount(amount: i64, unit: Unit, verbose: bool) -> String {
    match unit {
        Unit::Bytes if verbose => format!("{} B", whole(amount)),
        Unit::Bytes => format!("{} MB", decimal(amount as f64 / MEGABYTE, 0, 1, 2)),
        Unit::Count | Unit::CountCumulative => whole(amount),
        // Amounts are in hundredths of a percent.
        Unit::Percentage => format!("{}%", decimal(amount as f64 / 10_000.0, 2, 1, 2)),
    }
}

/// Formats a part of a whole in percent. If the whole is 0, the result is 100 %.
pub(super) fn fraction(part: i64, whole: i64) -> String {
    let ratio = if whole == 0 { 1.0 } else { part as f64 / whole as f64 };
    if (0.99995..=1.0).contains(&ratio) { "100.0%".to_owned() } else { format!("{}%", decimal(ratio, 2, 2, 2)) }
}

fn whole(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", grouped(&number.unsigned_abs().to_string()))
}

/// Formats the number times ten to the power of `shift`, with `digits_after` digits after its point
/// and at least `digits_before` before.
///
/// As in ICU, the number that is rounded, half away from zero, is the shortest decimal one that
/// represents this binary one.
fn decimal(number: f64, shift: i32, digits_before: usize, digits_after: usize) -> String {
    let shortest = format!("{:e}", number.abs());
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let mut digits: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).map(|digit| digit - b'0').collect();
    // The point is behind this many digits.
    let mut point = exponent.parse::<i32>().unwrap_or(0) + 1 + shift;

    if point < 0 {
        digits.splice(0..0, std::iter::repeat_n(0, point.unsigned_abs() as usize));
        point = 0;
    }
    let kept = point as usize + digits_after;
    let rounds_up = digits.get(kept).is_some_and(|&digit| digit >= 5);
    digits.resize(kept, 0);
    if rounds_up {
        match digits.iter().rposition(|&digit| digit < 9) {
            Some(last) => {
                digits[last] += 1;
                digits[last + 1..].fill(0);
            }
            None => {
                digits.fill(0);
                digits.insert(0, 1);
                point += 1;
            }
        }
    }
    let mut text: String = digits.into_iter().map(|digit| char::from(b'0' + digit)).collect();
    let after = text.split_off(point as usize);
    let before = format!("{:0>digits_before$}", text.trim_start_matches('0'));
    let sign = if number.is_sign_negative() { "-" } else { "" };
    format!("{sign}{}.{after}", grouped(&before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts() {
        let bytes = |number| amount(number, Unit::Bytes, false);
        assert_eq!(bytes(0), "0.00 MB");
        assert_eq!(bytes(-1), "-0.00 MB");
        assert_eq!(bytes(1 << 20), "1.00 MB");
        // A tie: 0.125.
        assert_eq!((bytes(1 << 17), bytes(-(1 << 17))), ("0.13 MB".into(), "-0.13 MB".into()));
        assert_eq!(bytes((1 << 20) * 1_234_567 + 5_243), "1,234,567.01 MB");
        assert_eq!(bytes((1 << 30) - 1), "1,024.00 MB");
        assert_eq!(amount(-1_234_567, Unit::Bytes, true), "-1,234,567 B");
        assert_eq!(amount(i64::MIN, Unit::Count, false), "-9,223,372,036,854,775,808");
        assert_eq!(amount(999, Unit::CountCumulative, true), "999");
        assert_eq!(amount(1_234, Unit::Percentage, true), "12.34%");
        assert_eq!(amount(-7, Unit::Percentage, false), "-0.07%");
        assert_eq!(amount(12_345_678, Unit::Percentage, false), "123,456.78%");
    }

    #[test]
    fn fractions() {
        assert_eq!(fraction(1, 3), "33.33%");
        assert_eq!(fraction(0, 3), "00.00%");
        assert_eq!(fraction(3, 3), "100.0%");
        assert_eq!(fraction(99_995, 100_000), "100.0%");
        assert_eq!(fraction(99_994, 100_000), "99.99%");
        assert_eq!(fraction(4, 3), "133.33%");
        assert_eq!(fraction(0, 0), "100.0%");
        assert_eq!(fraction(0, -3), "-00.00%");
        assert_eq!(fraction(-455, 10_000), "-04.55%");
        assert_eq!(fraction(12, 1), "1,200.00%");
        assert_eq!(fraction(1, i64::MAX), "00.00%");
    }
}
