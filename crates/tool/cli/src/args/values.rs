//! The syntax of the values of options: moments, times, sizes, thresholds, ranges, and names of
//! processes and threads.

use std::ops::RangeInclusive;
use std::time::Duration;

use heapledger_analysis::{LifetimeCondition, Moment, Pattern, ProcessPattern, ThreadPattern};
use heapledger_profile_formats::chrome::Cut;
use heapledger_recording::Time;

/// Parses a moment: `peak`, `end`, or a time.
pub(crate) fn moment(text: &str) -> Result<Moment, String> {
    match text {
        "peak" => Ok(Moment::Peak),
        "end" => Ok(Moment::End),
        text => time(text).map(Moment::At).map_err(|_| invalid("moment", text, "peak, end, or a time", EXAMPLES)),
    }
}

/// Parses a time of a recording.
pub(crate) fn time(text: &str) -> Result<Time, String> {
    duration(text).map(|time| Time(nanoseconds(time)))
}

const EXAMPLES: &str = "1.5s, 200ms or 2min";

/// Parses a number and a unit; seconds without one.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let unknown = || invalid("time", text, "a number and a unit", EXAMPLES);
    let (number, unit) = number_and_unit(text).ok_or_else(unknown)?;
    let seconds = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(unknown()),
    };
    Duration::try_from_secs_f64(number * seconds).map_err(|_| unknown())
}

/// Parses a number of allocations, or a time with its unit.
pub(crate) fn within(text: &str) -> Result<LifetimeCondition, String> {
    match text.parse() {
        Ok(allocations) => Ok(LifetimeCondition::Allocations(allocations)),
        Err(_) if text.ends_with(|last: char| last.is_ascii_alphabetic()) => {
            duration(text).map(|time| LifetimeCondition::Freed(nanoseconds(time)))
        }
        Err(_) => Err(invalid("number or time", text, "a number of allocations, or a time with its unit", "10 or 1ms")),
    }
}

/// Parses the threshold below which heaps are left out of a trace.
pub(crate) fn cut(text: &str) -> Result<Cut, String> {
    if text == "share" { Ok(Cut::Share) } else { size(text).map(Cut::Bytes) }
}

/// Parses a number of bytes and a unit.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let unknown = || invalid("size", text, "a number of bytes, with a unit if need be", "64, 16k or 1.5M");
    let (number, unit) = number_and_unit(text).ok_or_else(unknown)?;
    let unit = unit.to_ascii_lowercase();
    let shift = match unit.strip_suffix("ib").or(unit.strip_suffix('b')).unwrap_or(&unit) {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(unknown()),
    };
    let bytes = number * (1_u64 << shift) as f64;
    if bytes.fract() == 0.0 && bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(unknown()) }
}

/// A threshold, relative or absolute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    /// A percentage of the whole.
    Percent(f64),
    /// A number of bytes or blocks.
    Figure(u64),
}

impl Limit {
    /// Returns the threshold in the unit of the whole.
    pub(crate) fn of(self, whole: u64) -> u128 {
        match self {
            Limit::Percent(percent) => (whole as f64 * percent / 100.0) as u128,
            Limit::Figure(figure) => figure.into(),
        }
    }
}

/// Parses a threshold: `10%`, `1MiB`, `250`.
pub(crate) fn amount(text: &str) -> Result<Limit, String> {
    let unknown = || invalid("limit", text, "a share or a figure", "10%, 1MiB or 250");
    match text.strip_suffix('%') {
        None => size(text).map(Limit::Figure).map_err(|_| unknown()),
        Some(number) => match number.trim_end().parse() {
            Ok(percent) if (0.0..=1e9).contains(&percent) => Ok(Limit::Percent(percent)),
            _ => Err(unknown()),
        },
    }
}

/// Parses a share in percent.
pub(crate) fn percentage(text: &str) -> Result<f64, String> {
    let unknown = || invalid("share", text, "a number from 0 to 100", "2.5 or 5%");
    let number: f64 = text.trim_end_matches('%').trim_end().parse().map_err(|_| unknown())?;
    if (0.0..=100.0).contains(&number) { Ok(number) } else { Err(unknown()) }
}

/// Parses a number of rows or of other things; 0 is allowed.
pub(crate) fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| invalid("number", text, "a whole number", "0 or 20"))
}

/// Parses the id of a node of a heap snapshot, which may have an @ before it, as in the output.
pub(crate) fn node_id(text: &str) -> Result<u64, String> {
    let unknown = |_| invalid("id of a node", text, "a number, with or without an @", "4711 or @4711");
    text.strip_prefix('@').unwrap_or(text).parse().map_err(unknown)
}

/// Explains why a value is invalid.
fn invalid(kind: &str, text: &str, expected: &str, examples: &str) -> String {
    if text.starts_with('-') && text.contains(|character: char| character.is_ascii_digit()) {
        return format!("a {kind} cannot be negative; expected {expected}, such as {examples}");
    }
    format!("invalid {kind} `{text}`: expected {expected}, such as {examples}")
}

fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let digits = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit.trim()))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn process(text: &str) -> Result<ProcessPattern, String> {
    match text.parse() {
        Ok(pid) => Ok(ProcessPattern::Pid(pid)),
        Err(_) => Ok(ProcessPattern::Program(Pattern::new(text).map_err(|error| error.to_string())?)),
    }
}

pub(crate) fn thread(text: &str) -> Result<ThreadPattern, String> {
    if let Some(number) = text.strip_prefix('#') {
        return number.parse().map(ThreadPattern::Number).map_err(|_| "expected a number after #".to_owned());
    }
    match text.parse() {
        Ok(tid) => Ok(ThreadPattern::Tid(tid)),
        Err(_) => Ok(ThreadPattern::Name(Pattern::new(text).map_err(|error| error.to_string())?)),
    }
}

/// Parses the length of a canary behind a block.
pub(crate) fn canary(text: &str) -> Result<u64, String> {
    const RANGE: RangeInclusive<u64> = 16..=1 << 20;
    let bytes = size(text)?;
    if RANGE.contains(&bytes) { Ok(bytes) } else { Err(invalid("size", text, "16 bytes to 1 MiB", "64 or 4k")) }
}

pub(crate) fn sizes(text: &str) -> Result<RangeInclusive<u64>, String> {
    range(text, size)
}

pub(crate) fn times(text: &str) -> Result<RangeInclusive<u64>, String> {
    range(text, |text| duration(text).map(nanoseconds))
}

/// Parses a range: `MIN..MAX`, `MIN-MAX`, `MIN..`, `..MAX`, or one value.
fn range(text: &str, value: impl Fn(&str) -> Result<u64, String>) -> Result<RangeInclusive<u64>, String> {
    if text.starts_with('-') {
        let open = text.trim_start_matches('-');
        return Err(format!("a bound cannot be negative; up to a bound is written `..{open}`"));
    }
    let Some((first, last)) = text.split_once("..").or_else(|| text.split_once('-')) else {
        let only = value(text)?;
        return Ok(only..=only);
    };
    let bound = |text: &str, open: u64| if text.is_empty() { Ok(open) } else { value(text) };
    let (first, last) = (bound(first, 0)?, bound(last, u64::MAX)?);
    if first <= last { Ok(first..=last) } else { Err("the range ends before it begins".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_percentages() {
        assert_eq!(duration("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(duration("2"), Ok(Duration::from_secs(2)));
        assert_eq!(duration("0.5 min"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("10us"), Ok(Duration::from_micros(10)));
        for wrong in ["", "s", "1.2.3s", "-1s", "1y", "1e99s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!(percentage("2.5"), Ok(2.5));
        assert_eq!(percentage("5%"), Ok(5.0));
        assert!(percentage("101").is_err() && percentage("NaN").is_err());
    }

    #[test]
    fn soon_is_a_number_of_allocations_or_a_time() {
        assert_eq!(within("10"), Ok(LifetimeCondition::Allocations(10)));
        assert_eq!(within("10ms"), Ok(LifetimeCondition::Freed(10_000_000)));
        assert!(within("1.5").is_err() && within("x").is_err() && within("").is_err());
    }

    #[test]
    fn sizes_have_binary_units() {
        for (text, bytes) in [("64", 64), ("1k", 1024), ("1.5 KiB", 1536), ("2MB", 2 << 20), ("3G", 3 << 30)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "k", "1x", "1.0001k", "-1", "99999999T"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ids_of_nodes_may_have_an_at() {
        assert_eq!((node_id("4711"), node_id("@4711")), (Ok(4711), Ok(4711)));
        assert!(node_id("@").is_err() && node_id("@@1").is_err() && node_id("-1").is_err());
    }

    #[test]
    fn limits() {
        assert_eq!(amount("10%"), Ok(Limit::Percent(10.0)));
        assert_eq!(amount("250 %"), Ok(Limit::Percent(250.0)));
        assert_eq!(amount("1MiB"), Ok(Limit::Figure(1 << 20)));
        assert_eq!((Limit::Percent(2.5).of(1000), Limit::Figure(7).of(1000)), (25, 7));
        assert!(Limit::Percent(1e9).of(u64::MAX) > u64::MAX.into());
        for wrong in ["", "%", "-1%", "NaN%", "inf%", "much"] {
            assert!(amount(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ranges_may_be_open() {
        assert_eq!(sizes("1k..1M"), Ok(1024..=1 << 20));
        assert_eq!(sizes("100"), Ok(100..=100));
        assert_eq!(sizes("..64"), Ok(0..=64));
        assert_eq!(times("10s-20s"), Ok(10_000_000_000..=20_000_000_000));
        assert_eq!(times("1ms-"), Ok(1_000_000..=u64::MAX));
        for wrong in ["2..1", "a..", "1..2..3", ""] {
            assert!(sizes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn processes_and_threads() {
        assert_eq!(process("4411"), Ok(ProcessPattern::Pid(4411)));
        assert_eq!(process("cc1"), Ok(ProcessPattern::Program(Pattern::new("cc1").unwrap())));
        assert_eq!(thread("#2"), Ok(ThreadPattern::Number(2)));
        assert_eq!(thread("4412"), Ok(ThreadPattern::Tid(4412)));
        assert_eq!(thread("worker*"), Ok(ThreadPattern::Name(Pattern::new("worker*").unwrap())));
        assert!(thread("#x").is_err() && thread("").is_err() && process("/(/").is_err());
    }
}
