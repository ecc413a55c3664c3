//! Amounts for people: sizes, counts, times, rates, shares; and times for JSON.

use std::time::Duration;

use heapledger_core::Bytes;

/// Returns a size, such as `17 B`, `1.5 KiB`, `412.6 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

/// Returns a count, such as `9,204,118`.
pub(crate) fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a count and what is counted, such as `1 block`, `2 blocks`.
pub(crate) fn counted(number: u64, one: &str, more: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { more })
}

/// Returns a time, such as `350 µs`, `12.4 ms`, `18.2 s`, `3 min 05 s`, `2 h 07 min`.
pub(crate) fn duration(time: Duration) -> String {
    let nanoseconds = time.as_nanos();
    let tenths = |unit: u128| {
        let tenths = (nanoseconds + unit / 20) / (unit / 10);
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    if nanoseconds < 999_500 {
        format!("{} µs", (nanoseconds + 500) / 1000)
    } else if nanoseconds < 999_950_000 {
        format!("{} ms", tenths(1_000_000))
    } else if nanoseconds < 119_950_000_000 {
        format!("{} s", tenths(1_000_000_000))
    } else {
        let seconds = (nanoseconds + 500_000_000) / 1_000_000_000;
        if seconds < 7200 {
            format!("{} min {:02} s", seconds / 60, seconds % 60)
        } else {
            format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60)
        }
    }
}

/// Returns a moment of a recording, to the nanosecond: `--at` takes it for this moment, and no
/// other.
pub(crate) fn time(time: heapledger_recording::Time) -> String {
    let (unit, name, digits) = match time.0 {
        0..1_000_000 => (1_000, "µs", 3),
        1_000_000..1_000_000_000 => (1_000_000, "ms", 6),
        _ => (1_000_000_000, "s", 9),
    };
    let fraction = format!("{:0digits$}", time.0 % unit);
    let fraction = fraction.trim_end_matches('0');
    let fraction = if fraction.is_empty() && digits > 3 { "0" } else { fraction };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{}{point}{fraction} {name}", time.0 / unit)
}

/// Returns a time in seconds, for JSON.
pub(crate) fn seconds(time: heapledger_recording::Time) -> f64 {
    time.0 as f64 / 1e9
}

/// Returns a rate for the shortest unit of time in which it is a kibibyte, at most an hour.
pub(crate) fn rate(per_second: f64) -> String {
    let units = [(1.0, "s"), (60.0, "min"), (3600.0, "h")];
    let fits = |(seconds, _): &&(f64, &str)| per_second * seconds >= 1024.0;
    let (seconds, unit) = units.iter().find(fits).unwrap_or(&units[2]);
    format!("{}/{unit}", bytes((per_second * seconds) as u64))
}

/// Returns a share from 0 to 1, for a column: `72.7 %`, `<0.1 %`.
pub(crate) fn share(share: f64) -> String {
    if share > 0.0 && share < 0.000_5 { "<0.1 %".to_owned() } else { format!("{:.1} %", share * 100.0) }
}

/// Returns a part of a whole, for a sentence: `12 %`, `<1 %`.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    match (part, whole) {
        (0, _) | (_, 0) => "0 %".to_owned(),
        _ if part as f64 / (whole as f64) < 0.005 => "<1 %".to_owned(),
        _ => format!("{:.0} %", part as f64 * 100.0 / whole as f64),
    }
}

/// Returns a date and time in UTC, such as `2026-11-21 01:52:35 UTC`.
pub(crate) fn utc(unix_nanoseconds: u64) -> String {
    let seconds = unix_nanoseconds / 1_000_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March, in eras of 400 years: leap days are then at the end of both.
    let day = days + 719_468;
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

/// Breaks a text between words.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().map(|line| (line.chars().count(), line));
        match line {
            Some((0, line)) => line.push_str(word),
            Some((length, line)) if length + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        let shown: Vec<String> = [0, 7, 999, 1000, 123_456, 9_204_118].map(count).into();
        assert_eq!(shown, ["0", "7", "999", "1,000", "123,456", "9,204,118"]);
        assert_eq!(counted(1, "block", "blocks"), "1 block");
        assert_eq!(counted(2000, "block", "blocks"), "2,000 blocks");
    }

    #[test]
    fn long_text_is_broken_between_words() {
        let text = "word ".repeat(40);
        let lines = wrapped(&text, 80);
        assert!(lines.iter().all(|line| line.len() <= 80) && lines.len() == 3, "{lines:?}");
        assert_eq!(lines.join(" "), text.trim());
    }

    #[test]
    fn durations() {
        let shown = |nanoseconds| duration(Duration::from_nanos(nanoseconds));
        assert_eq!(shown(0), "0 µs");
        assert_eq!(shown(350_400), "350 µs");
        assert_eq!(shown(999_600), "1.0 ms");
        assert_eq!(shown(12_440_000), "12.4 ms");
        assert_eq!(shown(999_960_000), "1.0 s");
        assert_eq!(shown(18_249_999_999), "18.2 s");
        assert_eq!(shown(119_949_999_999), "119.9 s");
        assert_eq!(shown(185_400_000_000), "3 min 05 s");
        assert_eq!(shown(7_650_000_000_000), "2 h 07 min");
    }

    #[test]
    fn moments_are_printed_as_they_can_be_asked_for() {
        let shown = |ns| time(heapledger_recording::Time(ns));
        assert_eq!(shown(0), "0 µs");
        assert_eq!(shown(350_400), "350.4 µs");
        assert_eq!(shown(10_000_000), "10.0 ms");
        assert_eq!(shown(18_249_500_000), "18.2495 s");
        assert_eq!(shown(7_650_000_000_001), "7650.000000001 s");
        for ns in [0, 1, 999, 1_000_001, 999_999_999, 1_000_000_000, 18_249_999_999, 86_400_123_456_789] {
            assert_eq!(crate::args::values::time(&shown(ns)), Ok(heapledger_recording::Time(ns)), "{}", shown(ns));
        }
    }

    #[test]
    fn rates_have_a_time_that_fits() {
        for (per_second, told) in [
            (2048.0, "2.0 KiB/s"),
            (1024.0 * 1024.0 * 3.0, "3.0 MiB/s"),
            (100.0, "5.9 KiB/min"),
            (1.0, "3.5 KiB/h"),
            (0.01, "36 B/h"),
        ] {
            assert_eq!(rate(per_second), told);
        }
    }

    #[test]
    fn shares() {
        assert_eq!([0.0, 0.000_1, 0.001, 0.727, 1.0].map(share), ["0.0 %", "<0.1 %", "0.1 %", "72.7 %", "100.0 %"]);
        assert_eq!(percent(0, 100), "0 %");
        assert_eq!(percent(3, 0), "0 %");
        assert_eq!(percent(1, 1000), "<1 %");
        assert_eq!(percent(123, 1000), "12 %");
    }

    #[test]
    fn dates() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_827_696_000_000_000), "2000-02-29 12:34:56 UTC");
        assert_eq!(utc(1_795_225_955_000_000_000), "2026-11-21 01:52:35 UTC");
        assert_eq!(utc(4_107_542_399_000_000_000), "2100-02-28 23:59:59 UTC");
    }

    #[test]
    fn text_is_broken_between_words() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("one-and-only two", 8), ["one-and-only", "two"]);
    }
}
