//! A question to a recording: which blocks, at which moment, compared by which metric. Also
//! describes it in words.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use heapledger_analysis::{
    self as analysis, Amount, Filter, LifetimeCondition, Metric, Moment, Names, Profile, Selection, SiteTotals,
};
use heapledger_recording::{ChunkKind, Counts, Recording, Time};
use serde::Serialize;

use crate::args::Symbols;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::{bytes, duration, time};
use crate::input::Input;
use crate::label::Labels;
use crate::output::Output;
use crate::progress::Progress;
use crate::rebuilt::warn_of_rebuilt;
use crate::sampled;
use crate::unmatched;

/// A selection of a recording's blocks, and the metric by which they are compared.
#[derive(Debug)]
pub(crate) struct Question<'r, 'a> {
    pub(crate) input: &'r Input,
    pub(crate) recording: &'r Recording<'a>,
    pub(crate) labels: Labels<'r, 'a>,
    pub(crate) selection: Selection,
    pub(crate) metric: Metric,
}

impl<'r, 'a> Question<'r, 'a> {
    pub(crate) fn new(
        input: &'r Input,
        recording: &'r Recording<'a>,
        symbols: &Symbols,
        selection: Selection,
        metric: Metric,
    ) -> Question<'r, 'a> {
        let mut selection = selection;
        // The time of the peak, as it is printed, means the peak itself: times of events are
        // rounded, so a time alone does not say which calls in the same tick were before the peak.
        if selection.moment.time().is_some() && selection.moment.time() == peak_time(recording, &selection.filter) {
            selection.moment = Moment::Peak;
        }
        // Blocks retained in a time that goes on beyond the end of the recording are those live at
        // the end.
        if selection.filter.allocated.is_some()
            && let Some(time) = selection.moment.time()
            && recording.footer().is_some_and(|footer| time >= footer.time)
        {
            selection.moment = Moment::End;
        }
        let labels = Labels::new(recording, symbols);
        warn_of_rebuilt(recording, &labels.names);
        Question { input, recording, labels, selection, metric }
    }

    /// Fails if the recording has no allocation at all: an empty table would say less.
    pub(crate) fn expect_something(self) -> Result<Self> {
        expect_something(self.recording).map(|()| self)
    }

    /// Fails if the answer is empty because the filter fits no block that was ever recorded.
    pub(crate) fn expect_match(&mut self, is_empty: bool) -> Result<()> {
        if is_empty { unmatched::expect_match(self) } else { Ok(()) }
    }

    /// Computes an answer, with a progress bar in the meantime.
    pub(crate) fn answer<A>(
        &mut self,
        ask: impl FnOnce(&mut Names<'r, 'a>, &Selection, analysis::Progress<'_>) -> std::result::Result<A, analysis::Error>,
    ) -> Result<A> {
        let mut progress = Progress::new();
        let answer = ask(&mut self.labels.names, &self.selection, &mut |done, all| progress.events(done, all));
        drop(progress);
        answer.map_err(|error| self.input.unanswered(error))
    }

    /// Returns the amount that every site holds. Fails if the filter fits no block.
    pub(crate) fn profile(&mut self) -> Result<Profile> {
        let profile = self.profile_or_nothing()?;
        self.expect_match(profile.whole.is_nothing())?;
        Ok(profile)
    }

    /// Returns the amount that every site holds, even if the filter fits no block.
    pub(crate) fn profile_or_nothing(&mut self) -> Result<Profile> {
        let profile = self.answer(|names, selection, progress| Profile::load(names, selection, progress))?;
        self.input.warn_of(&profile.damage);
        Ok(profile)
    }

    /// Returns the amounts that every site holds: in total, at the peak, and at the end or the time
    /// that was asked for.
    pub(crate) fn site_totals(&mut self) -> Result<SiteTotals> {
        let site_totals = self.answer(|names, selection, progress| SiteTotals::load(names, selection, progress))?;
        self.input.warn_of(&site_totals.damage);
        self.expect_match(site_totals.sites.is_empty())?;
        Ok(site_totals)
    }

    /// Returns the amount that every site holds; temporary are the blocks whose lifetime is
    /// `within`.
    pub(crate) fn profile_within(&mut self, within: &LifetimeCondition) -> Result<Profile> {
        let profile =
            self.answer(|names, selection, progress| Profile::load_within(names, selection, within, progress))?;
        self.input.warn_of(&profile.damage);
        self.expect_match(profile.whole.is_nothing())?;
        Ok(profile)
    }

    /// Describes the moment of the selection: `live at the peak (18.2 s)`, `allocated in all`.
    pub(crate) fn what(&self) -> String {
        What(self.recording, &self.selection).to_string()
    }

    /// Returns the time of the selected processes' peak, if the recording has it.
    pub(crate) fn peak_time(&self) -> Option<Time> {
        peak_time(self.recording, &self.selection.filter)
    }

    /// Prints `412.6 MiB in 1,234 blocks live at the peak (18.2 s)`, and the amount that the
    /// filters leave out.
    pub(crate) fn headline(&self, whole: &Amount, left_out: &Amount, out: &mut Output) -> Result<()> {
        let blocks = sampled::blocks_of(whole, "block", "blocks");
        out.title(format_args!("{} in {blocks} {}", sampled::bytes_of(whole), self.what()))?;
        sampled::print_notice(self.recording, out)?;
        self.filters(left_out, out)
    }

    /// Prints the filters.
    pub(crate) fn words(&self, out: &mut Output) -> Result<()> {
        let filters = filter_words(&self.selection.filter);
        if filters.is_empty() { Ok(()) } else { Ok(out.dim_line(format_args!("only: {}", filters.join(" · ")))?) }
    }

    /// Prints the filters, and the amount that they leave out.
    pub(crate) fn filters(&self, left_out: &Amount, out: &mut Output) -> Result<()> {
        let filters = filter_words(&self.selection.filter);
        if filters.is_empty() {
            return Ok(());
        }
        let blocks = sampled::blocks_of(left_out, "block", "blocks");
        let rest = match left_out.is_nothing() {
            true => "leaves nothing out".to_owned(),
            false => format!("leaves out {} in {blocks}", sampled::bytes_of(left_out)),
        };
        Ok(out.dim_line(format_args!("only: {} ({rest})", filters.join(" · ")))?)
    }

    /// Prints the amount allocated in the time that was asked for, whether live or not.
    pub(crate) fn allocated(&self, allocated: Option<Amount>, out: &mut Output) -> Result<()> {
        match (allocated, self.selection.moment) {
            (None, _) | (_, Moment::Total) => Ok(()),
            (Some(all), _) => {
                let blocks = sampled::blocks_of(&all, "block", "blocks");
                Ok(out.dim_line(format_args!("of {} in {blocks} allocated in that time", sampled::bytes_of(&all)))?)
            }
        }
    }
}

/// Fails if the recording has no allocation at all.
pub(crate) fn expect_something(recording: &Recording<'_>) -> Result<()> {
    // Blocks live at the beginning of a later segment were allocated before it. Some files of other
    // tools have bytes only.
    let tells =
        |counts: &Counts| counts.allocations.0 > 0 || counts.blocks_live_max.0 > 0 || counts.bytes_live_max.0 > 0;
    let is_event = |kind| kind == ChunkKind::Events || kind == ChunkKind::Sites;
    if recording.footer().is_some_and(|footer| tells(&footer.counts))
        || recording.chunks().iter().any(|chunk| is_event(chunk.kind))
    {
        return Ok(());
    }
    if recording.footer().is_none() {
        let what = "there is nothing to show: the recording ends before its first allocation";
        return Err(Failure::new(Exit::NothingRecorded, what).hint("record again, or copy the file again, to its end"));
    }
    let what = "nothing was recorded: the program made no allocator call that was seen";
    Err(Failure::new(Exit::NothingRecorded, what).hint("a program that is statically linked cannot be recorded"))
}

/// The moment of a selection, in words for a sentence.
struct What<'r, 'a>(&'r Recording<'a>, &'r Selection);

impl fmt::Display for What<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let What(recording, selection) = self;
        let retained = if selection.filter.allocated.is_some() { "retained, " } else { "" };
        match selection.moment {
            Moment::Peak => match peak_time(recording, &selection.filter) {
                Some(at) => write!(f, "live at the peak ({})", time(at))?,
                None => f.write_str("live at the peak")?,
            },
            Moment::End => write!(f, "{retained}live at the end")?,
            Moment::At(at) => write!(f, "{retained}live at {}", time(at))?,
            Moment::Total => f.write_str("allocated in all")?,
        }
        Ok(())
    }
}

/// Returns the time of the selected processes' peak, if the recording has it.
fn peak_time(recording: &Recording<'_>, filter: &Filter) -> Option<Time> {
    if filter.processes.is_empty() {
        return Some(recording.footer()?.counts.bytes_live_max_time);
    }
    let images = filter.images(recording).ok()?;
    let pid = recording.image(*images.first()?)?.pid;
    if images.iter().any(|image| recording.image(*image).is_none_or(|image| image.pid != pid)) {
        return None;
    }
    let counts: Option<Vec<_>> = images.iter().map(|image| recording.image_counts(*image)).collect();
    // The first of equals is chosen, as in analyses.
    let counts = counts?.into_iter().rev().max_by_key(|counts| counts.bytes_live_max)?;
    Some(counts.bytes_live_max_time)
}

/// Returns the filters in words.
pub(crate) fn filter_words(filter: &Filter) -> Vec<String> {
    let mut words = Vec::new();
    let mut add = |name: &str, patterns: Vec<String>, between: &str| {
        if !patterns.is_empty() {
            words.push(format!("{name} {}", patterns.join(between)));
        }
    };
    let texts = |patterns: &[analysis::Pattern]| patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
    add("process", filter.processes.iter().map(ToString::to_string).collect(), " or ");
    add("function", texts(&filter.functions), " and ");
    add("not function", texts(&filter.not_functions), " or ");
    add("allocated by", texts(&filter.allocated_by), " or ");
    add("not allocated by", texts(&filter.not_allocated_by), " or ");
    add("module", texts(&filter.modules), " or ");
    add("not module", texts(&filter.not_modules), " or ");
    add("context", texts(&filter.contexts), " and ");
    add("not context", texts(&filter.not_contexts), " or ");
    add("heap", texts(&filter.heaps), " or ");
    add("type", texts(&filter.types), " or ");
    add("thread", filter.threads.iter().map(ToString::to_string).collect(), " or ");
    let size = |size: u64| bytes(size);
    let time = |ns: u64| duration(Duration::from_nanos(ns));
    add("size", filter.size.iter().map(|range| shown_range(range, size)).collect(), "");
    add("lifetime", filter.lifetime.iter().map(|range| shown_range(range, time)).collect(), "");
    add("allocated during", filter.allocated.iter().map(|range| shown_range(range, time)).collect(), "");
    words
}

/// Formats a range: `1.0 KiB to 1.0 MiB`, `up to 1.0 ms`, `1.0 s or more`.
fn shown_range(range: &RangeInclusive<u64>, shown: impl Fn(u64) -> String) -> String {
    match (*range.start(), *range.end()) {
        (first, last) if first == last => shown(first),
        (first, u64::MAX) => format!("{} or more", shown(first)),
        (0, last) => format!("up to {}", shown(last)),
        (first, last) => format!("{} to {}", shown(first), shown(last)),
    }
}

/// The question, for JSON: the first fields of every answer.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SelectionJson {
    /// The order of rows: `bytes`, `blocks` or `temporary`.
    metric: &'static str,
    at: AtJson,
    /// The filters; only those that were given.
    #[serde(skip_serializing_if = "OnlyJson::is_nothing")]
    only: OnlyJson,
}

/// The moment: `peak`, `end`, `total`, or a time in seconds.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
enum AtJson {
    Name(&'static str),
    Seconds(f64),
}

/// The filters on blocks, named like the options.
#[derive(Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct OnlyJson {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    processes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    functions: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_functions: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allocated_by: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_allocated_by: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    modules: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_modules: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    contexts: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_contexts: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    heaps: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    types: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    threads: Vec<String>,
    /// The bounds of the requested size, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<BoundsJson<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifetime_seconds: Option<BoundsJson<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allocated_seconds: Option<BoundsJson<f64>>,
}

/// A range that includes both bounds.
#[derive(Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct BoundsJson<T> {
    min: T,
    /// `null` if there is no upper bound.
    max: Option<T>,
}

impl<T> BoundsJson<T> {
    fn new(range: &RangeInclusive<u64>, value: fn(u64) -> T) -> Self {
        let last = *range.end();
        BoundsJson { min: value(*range.start()), max: (last != u64::MAX).then(|| value(last)) }
    }
}

impl OnlyJson {
    fn new(filter: &Filter) -> OnlyJson {
        fn texts<T: ToString>(list: &[T]) -> Vec<String> {
            list.iter().map(ToString::to_string).collect()
        }
        let seconds = |ns: u64| ns as f64 / 1e9;
        OnlyJson {
            processes: texts(&filter.processes),
            functions: texts(&filter.functions),
            not_functions: texts(&filter.not_functions),
            allocated_by: texts(&filter.allocated_by),
            not_allocated_by: texts(&filter.not_allocated_by),
            modules: texts(&filter.modules),
            not_modules: texts(&filter.not_modules),
            contexts: texts(&filter.contexts),
            not_contexts: texts(&filter.not_contexts),
            heaps: texts(&filter.heaps),
            types: texts(&filter.types),
            threads: texts(&filter.threads),
            size: filter.size.as_ref().map(|range| BoundsJson::new(range, |bytes| bytes)),
            lifetime_seconds: filter.lifetime.as_ref().map(|range| BoundsJson::new(range, seconds)),
            allocated_seconds: filter.allocated.as_ref().map(|range| BoundsJson::new(range, seconds)),
        }
    }

    fn is_nothing(&self) -> bool {
        *self == OnlyJson::default()
    }
}

impl SelectionJson {
    pub(crate) fn new(selection: &Selection, metric: Metric) -> SelectionJson {
        let at = match selection.moment {
            Moment::Peak => AtJson::Name("peak"),
            Moment::End => AtJson::Name("end"),
            Moment::Total => AtJson::Name("total"),
            Moment::At(time) => AtJson::Seconds(time.0 as f64 / 1e9),
        };
        let metric = match metric {
            Metric::Bytes => "bytes",
            Metric::Blocks => "blocks",
            Metric::Temporaries => "temporary",
        };
        SelectionJson { metric, at, only: OnlyJson::new(&selection.filter) }
    }
}
