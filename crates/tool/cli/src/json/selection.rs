//! The selection that a question is about, for JSON.

use std::ops::RangeInclusive;

use heapledger_analysis::{Filter, Metric, Moment, Selection};
use serde::Serialize;

use crate::question::Question;

/// The question, for JSON: the first fields of every answer.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SelectionJson {
    /// The order of rows: `bytes`, `blocks`, `temporary` or `slop`.
    metric: &'static str,
    at: AtJson,
    /// True if mappings stand in place of blocks (`--mappings`, `--metric mapped`).
    #[serde(rename = "mappings", skip_serializing_if = "std::ops::Not::not")]
    counts_mappings: bool,
    /// If the answer has usable sizes or slop: `asked` if the program's allocator was asked for
    /// them, else the allocators for which they are computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    usable_sizes: Option<String>,
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
    /// Returns the selection of a question.
    pub(crate) fn of(question: &Question<'_, '_>) -> SelectionJson {
        let usable_sizes = question.slop_source.as_ref().map(ToString::to_string);
        let counts_mappings = question.input.counts_mappings();
        SelectionJson { usable_sizes, counts_mappings, ..SelectionJson::new(&question.selection, question.metric) }
    }

    /// Returns the selection with rows in another order.
    pub(crate) fn ordered_by(self, metric: Metric) -> SelectionJson {
        SelectionJson { metric: metric_name(metric), ..self }
    }

    pub(crate) fn new(selection: &Selection, metric: Metric) -> SelectionJson {
        let at = match selection.moment {
            Moment::Peak => AtJson::Name("peak"),
            Moment::End => AtJson::Name("end"),
            Moment::Total => AtJson::Name("total"),
            Moment::At(time) => AtJson::Seconds(time.0 as f64 / 1e9),
        };
        let metric = metric_name(metric);
        SelectionJson { metric, at, counts_mappings: false, usable_sizes: None, only: OnlyJson::new(&selection.filter) }
    }
}

/// Returns the name of a metric, as `--metric` has it.
fn metric_name(metric: Metric) -> &'static str {
    match metric {
        Metric::Bytes => "bytes",
        Metric::Blocks => "blocks",
        Metric::Temporaries => "temporary",
        Metric::Slop => "slop",
    }
}
