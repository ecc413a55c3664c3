//! The options that select blocks and a moment, which all reading verbs share, and the syntax of
//! their values.

use std::ops::RangeInclusive;
use std::time::Duration;

use clap::{Args, ValueEnum};
use heapledger_analysis::{
    Filter, LifetimeCondition, Metric, Moment, Pattern, ProcessPattern, Selection, ThreadPattern,
};
use heapledger_profile_formats::chrome::Cut;
use heapledger_recording::Time;

use crate::error::{self, Failure};
use crate::exit::Exit;

/// The options that select blocks by their properties.
///
/// The doc comment of the first option explains how patterns and ranges are written.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which blocks")]
pub(crate) struct BlockFilter {
    /// Only blocks whose stack goes through a function that matches; if given several times,
    /// through all of them
    ///
    /// A PATTERN is a text that the name contains (`parse`); or, with `*` for any
    /// text and `?` for any character, all of the name (`json::*`); or a regular
    /// expression between slashes (`/^(get|set)_/`). A pattern may match the name
    /// with or without its parameters and type arguments.
    ///
    /// A RANGE is `MIN..MAX`, both included; either may be left out, and `MIN-MAX`
    /// means the same. If several options of this group are given, a block is shown
    /// if it matches all of them.
    #[arg(long, value_name = "PATTERN", value_parser = Pattern::new)]
    function: Vec<Pattern>,

    /// Only blocks whose stack goes through no function that matches
    #[arg(long, value_name = "PATTERN", value_parser = Pattern::new)]
    not_function: Vec<Pattern>,

    /// Only blocks allocated by a function that matches, or by one of several: the innermost that
    /// is not an allocator, or the owner that `top` shows
    #[arg(long, value_name = "PATTERN", value_parser = Pattern::new)]
    allocated_by: Vec<Pattern>,

    /// Only blocks not allocated by a function that matches
    #[arg(long, value_name = "PATTERN", value_parser = Pattern::new)]
    not_allocated_by: Vec<Pattern>,

    /// Only blocks allocated by a function of this module, by its path or file name, or of one of
    /// several
    #[arg(long, value_name = "PATTERN", value_parser = Pattern::new)]
    module: Vec<Pattern>,

    /// Only blocks not allocated by a function of this module
    #[arg(long, value_name = "PATTERN", value_parser = Pattern::new)]
    not_module: Vec<Pattern>,

    /// Only blocks allocated in this context: a scope, `name{value}`, or several, `outer > inner`
    ///
    /// If given several times, in all of them. A program declares its scopes;
    /// `(no context)` matches blocks allocated in none.
    #[arg(long, value_name = "PATTERN", value_parser = Pattern::new, verbatim_doc_comment)]
    context: Vec<Pattern>,

    /// Only blocks not allocated in this context
    #[arg(long, value_name = "PATTERN", value_parser = Pattern::new)]
    not_context: Vec<Pattern>,

    /// Only blocks of this heap, or of one of several, that the program declares; `(no heap)`: the
    /// allocator's own
    #[arg(long, value_name = "PATTERN", value_parser = Pattern::new)]
    heap: Vec<Pattern>,

    /// Only blocks of this type, or of one of several: by its name, its element's or its
    /// container's; `[unknown]` too
    #[arg(long = "type", value_name = "PATTERN", value_parser = Pattern::new)]
    types: Vec<Pattern>,

    /// Only blocks allocated by this thread: its id, a pattern of its name, or #N for the N-th of
    /// its process, from 0
    #[arg(long, value_name = "THREAD", value_parser = thread)]
    thread: Vec<ThreadPattern>,

    /// Only blocks of these requested sizes: 1k..1M, ..64, 100 (k, M, G are KiB, MiB, GiB)
    #[arg(long, value_name = "RANGE", value_parser = sizes)]
    size: Option<RangeInclusive<u64>>,

    /// Only blocks with this lifetime: ..1ms, 1s..; to the end of the process if they were not
    /// freed
    #[arg(long, value_name = "RANGE", value_parser = times)]
    lifetime: Option<RangeInclusive<u64>>,

    /// Only this process, or one of several: its pid, or a pattern of its program's file name
    #[arg(short, long, value_name = "PROCESS", value_parser = process)]
    process: Vec<ProcessPattern>,
}

/// The options that select blocks, and the time of their allocation.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Which blocks")]
pub(crate) struct Which {
    #[command(flatten)]
    blocks: BlockFilter,

    /// Only blocks allocated in this time: 10s-20s, 1min.. . Without --at or --total: and still
    /// live at its end
    #[arg(long, value_name = "RANGE", value_parser = times)]
    during: Option<RangeInclusive<u64>>,
}

/// The options that select live blocks, and the moment.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "What to show")]
pub(crate) struct Live {
    /// Show the blocks live at a moment: peak, end, or a time such as 1.5s or 200ms
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    at: Option<Moment>,

    #[command(flatten)]
    pub(crate) which: Which,
}

/// The options that select blocks, the moment, and the metric.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "What to show")]
pub(crate) struct What {
    /// Show the blocks live at a moment: peak, end, or a time such as 1.5s or 200ms [default: peak]
    #[arg(long, value_name = "WHEN", value_parser = moment, conflicts_with = "total")]
    at: Option<Moment>,

    /// Show all blocks that were ever allocated, live or not
    #[arg(long)]
    total: bool,

    /// The metric to order and sum up by; temporary implies --total
    #[arg(long, value_name = "WHAT", default_value = "bytes")]
    metric: AnyMetric,

    #[command(flatten)]
    pub(crate) which: Which,
}

/// The metric by which rows are ordered and summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnyMetric {
    /// Bytes that were asked for
    Bytes,
    /// Blocks; with --total: allocations
    Blocks,
    /// Temporary allocations
    Temporary,
}

/// The metric by which live blocks are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LiveMetric {
    /// Bytes that were asked for
    Bytes,
    /// Blocks
    Blocks,
}

impl What {
    /// Returns true if the command line asks for a moment.
    pub(crate) fn has_moment(&self, in_name: Option<Moment>) -> bool {
        self.at.or(in_name).is_some()
    }

    /// Returns the selection, and the metric. `in_name` is the moment given with the file's name.
    pub(crate) fn resolve(&self, in_name: Option<Moment>) -> error::Result<(Selection, Metric)> {
        let moment = match (self.metric, one_moment(self.at, in_name)?) {
            (_, Some(_)) if self.total => return Err(usage("all that was ever allocated has no moment")),
            (AnyMetric::Temporary, Some(_)) => {
                let what = "temporary allocations are gone at once: there is no moment to count them at";
                return Err(usage(what));
            }
            (AnyMetric::Temporary, None) => Moment::Total,
            (_, Some(at)) => at,
            (_, None) if self.total => Moment::Total,
            (_, None) => self.which.retained().unwrap_or(Moment::Peak),
        };
        Ok((self.which.at(moment), self.metric.into()))
    }
}

impl Live {
    /// Returns the selection; its moment is `usual` if none is asked for.
    pub(crate) fn resolve(&self, in_name: Option<Moment>, usual: Moment) -> error::Result<Selection> {
        let at = one_moment(self.at, in_name)?;
        Ok(self.which.at(at.or(self.which.retained()).unwrap_or(usual)))
    }
}

/// Returns the moment that is asked for, by an option or with the file's name.
pub(crate) fn one_moment(option: Option<Moment>, in_name: Option<Moment>) -> error::Result<Option<Moment>> {
    match (option, in_name) {
        (Some(option), Some(in_name)) if option != in_name => {
            Err(usage("the file's name has a moment, and --at is another one").hint("leave one of them out"))
        }
        (option, in_name) => Ok(option.or(in_name)),
    }
}

fn usage(what: &str) -> Failure {
    Failure::new(Exit::Usage, what)
}

impl BlockFilter {
    /// Returns the filter that lets these blocks pass.
    pub(crate) fn filter(&self) -> Filter {
        Filter {
            processes: self.process.clone(),
            functions: self.function.clone(),
            not_functions: self.not_function.clone(),
            allocated_by: self.allocated_by.clone(),
            not_allocated_by: self.not_allocated_by.clone(),
            modules: self.module.clone(),
            not_modules: self.not_module.clone(),
            contexts: self.context.clone(),
            not_contexts: self.not_context.clone(),
            heaps: self.heap.clone(),
            types: self.types.clone(),
            threads: self.thread.clone(),
            size: self.size.clone(),
            lifetime: self.lifetime.clone(),
            allocated: None,
        }
    }
}

impl Which {
    /// Returns the selection of these blocks at a moment.
    pub(crate) fn at(&self, moment: Moment) -> Selection {
        let filter = Filter { allocated: self.during.clone(), ..self.blocks.filter() };
        Selection { filter, ..Selection::at(moment) }
    }

    /// Returns the selection of all these blocks, live or not; with a moment given with the file's
    /// name, those allocated up to then.
    pub(crate) fn until(&self, in_name: Option<Moment>) -> error::Result<Selection> {
        let mut selection = self.at(Moment::Total);
        match in_name {
            None | Some(Moment::End | Moment::Total) => {}
            Some(Moment::At(end)) => {
                let (first, last) = self.during.clone().unwrap_or(0..=u64::MAX).into_inner();
                selection.filter.allocated = Some(first..=last.min(end.0).max(first));
            }
            Some(Moment::Peak) => {
                let what = "this counts what happened over time, and the peak is no time of it";
                return Err(usage(what).hint("up to a time: FILE@1.5s, or --during ..1.5s"));
            }
        }
        Ok(selection)
    }

    /// Returns the end of the time that is asked for: blocks allocated in that time and live at its
    /// end are retained.
    pub(crate) fn retained(&self) -> Option<Moment> {
        self.during.as_ref().map(|during| match *during.end() {
            u64::MAX => Moment::End,
            end => Moment::At(Time(end)),
        })
    }
}

impl From<AnyMetric> for Metric {
    fn from(metric: AnyMetric) -> Metric {
        match metric {
            AnyMetric::Bytes => Metric::Bytes,
            AnyMetric::Blocks => Metric::Blocks,
            AnyMetric::Temporary => Metric::Temporaries,
        }
    }
}

impl From<LiveMetric> for Metric {
    fn from(metric: LiveMetric) -> Metric {
        match metric {
            LiveMetric::Bytes => Metric::Bytes,
            LiveMetric::Blocks => Metric::Blocks,
        }
    }
}

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

fn thread(text: &str) -> Result<ThreadPattern, String> {
    if let Some(number) = text.strip_prefix('#') {
        return number.parse().map(ThreadPattern::Number).map_err(|_| "expected a number after #".to_owned());
    }
    match text.parse() {
        Ok(tid) => Ok(ThreadPattern::Tid(tid)),
        Err(_) => Ok(ThreadPattern::Name(Pattern::new(text).map_err(|error| error.to_string())?)),
    }
}

fn sizes(text: &str) -> Result<RangeInclusive<u64>, String> {
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
