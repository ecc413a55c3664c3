//! The options that select blocks and a moment, which all reading verbs share.

use std::ops::RangeInclusive;

use clap::{Args, ValueEnum};
use heapledger_analysis::{Filter, Metric, Moment, Pattern, ProcessPattern, Selection, ThreadPattern};
use heapledger_recording::Time;

use super::values::{moment, process, sizes, thread, times};
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
    /// allocator's own. An arena is a heap, by its label; a mapping has its kind
    #[arg(long, visible_aliases = ["arena", "kind"], value_name = "PATTERN", value_parser = Pattern::new)]
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
    /// Usable bytes beyond those that were asked for: recorded with `record --usable`, else
    /// computed
    Slop,
    /// Bytes that are mapped by mmap, brk and the like: the same as --mappings
    Mapped,
}

impl AnyMetric {
    /// True if it counts mappings in place of blocks.
    pub(crate) fn counts_mappings(self) -> bool {
        self == AnyMetric::Mapped
    }
}

/// The metric by which live blocks are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LiveMetric {
    /// Bytes that were asked for
    Bytes,
    /// Blocks
    Blocks,
    /// Usable bytes beyond those that were asked for: recorded with `record --usable`, else
    /// computed
    Slop,
    /// Bytes that are mapped by mmap, brk and the like: the same as --mappings
    Mapped,
}

impl LiveMetric {
    /// True if it counts mappings in place of blocks.
    pub(crate) fn counts_mappings(self) -> bool {
        self == LiveMetric::Mapped
    }
}

impl What {
    /// True if the metric counts mappings in place of blocks.
    pub(crate) fn counts_mappings(&self) -> bool {
        self.metric.counts_mappings()
    }

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
            AnyMetric::Bytes | AnyMetric::Mapped => Metric::Bytes,
            AnyMetric::Blocks => Metric::Blocks,
            AnyMetric::Temporary => Metric::Temporaries,
            AnyMetric::Slop => Metric::Slop,
        }
    }
}

impl From<LiveMetric> for Metric {
    fn from(metric: LiveMetric) -> Metric {
        match metric {
            LiveMetric::Bytes | LiveMetric::Mapped => Metric::Bytes,
            LiveMetric::Blocks => Metric::Blocks,
            LiveMetric::Slop => Metric::Slop,
        }
    }
}
