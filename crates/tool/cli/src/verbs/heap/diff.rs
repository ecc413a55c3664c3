//! `heapledger heap diff`: the difference of two snapshots.

use heapledger_census::count::CensusOptions;
use heapledger_census::diff::CensusDifference;
use heapledger_census::result::Census;
use serde::{Serialize, Serializer};

use super::census::{invalid, parse};
use super::{begin, report, snapshot};
use crate::args::HeapDiff;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::json::document::{Document, Form};
use crate::output::Output;

/// The answer of `heap diff --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct HeapDiffJson {
    before: SizeJson,
    after: SizeJson,
    /// The census of the second snapshot less that of the first, as `heap census --json` has it.
    #[serde(serialize_with = "in_json")]
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    difference: CensusDifference,
}

/// The size of a heap.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SizeJson {
    count: i64,
    bytes: i64,
}

impl Document for HeapDiffJson {
    const SCHEMA: &'static str = "heap-diff";
    const ROWS: Option<&'static str> = None;
}

fn in_json<S: Serializer>(difference: &CensusDifference, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    difference.value.in_json(&difference.frames).serialize(serializer)
}

pub(super) fn run(arguments: &HeapDiff, out: &mut Output) -> Result<()> {
    let breakdown = parse(&arguments.breakdown)?;
    begin(&arguments.answer.written, &[&arguments.before, &arguments.after], out)?;
    // One graph after the other, so that there is memory for one only.
    let take = |path| {
        let graph = snapshot::read(path)?;
        let whole = Census::take(&graph, &heapledger_census::breakdown::Breakdown::count()).map_err(invalid)?;
        let census = Census::take_with(&graph, &breakdown, CensusOptions::default()).map_err(invalid)?;
        Ok::<_, Failure>((report::figures(&whole.value), census))
    };
    let ((whole_before, before), (whole_after, after)) = (take(&arguments.before)?, take(&arguments.after)?);
    let difference = CensusDifference::of(&before, &after).map_err(|error| {
        let what = format!("cannot compare `{}` with `{}`", arguments.after.display(), arguments.before.display());
        Failure::caused(Exit::Usage, what, error)
    })?;
    let [size_before, size_after] = [&whole_before, &whole_after]
        .map(|figures| SizeJson { count: figures.count.unwrap_or_default(), bytes: figures.bytes.unwrap_or_default() });
    if arguments.answer.json {
        return out.document(&HeapDiffJson { before: size_before, after: size_after, difference }, Form::Json);
    }
    let change = report::change(size_after.bytes.saturating_sub(size_before.bytes));
    out.title(format_args!("{change} in {} nodes", report::signed(size_after.count - size_before.count)))?;
    for (name, size) in [("before", &size_before), ("after", &size_after)] {
        let nodes = crate::format::counted(size.count.unsigned_abs(), "node", "nodes");
        let size = crate::format::bytes(size.bytes.unsigned_abs());
        out.dim_line(format_args!("{:8}{size} in {nodes}", format!("{name}:")))?;
    }
    report::print_difference(&difference, &arguments.report, out)
}
