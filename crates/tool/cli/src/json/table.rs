//! Tables, and the rows of groups of sites, for JSON.

use heapledger_analysis::{Amount, Moment, Profile, Rank};
use serde::Serialize;

use crate::json::amounts::AmountJson;
use crate::json::document::Document;
use crate::json::group::GroupJson;
use crate::json::names::FrameJson;
use crate::json::selection::SelectionJson;
use crate::question::Question;

/// A table, for JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TableJson<R> {
    by: &'static str,
    #[serde(flatten)]
    selection: SelectionJson,
    total: AmountJson,
    /// The amount that the selection leaves out.
    left_out: AmountJson,
    /// The amount allocated in the time that was asked for, live or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    allocated: Option<AmountJson>,
    /// The number of rows that there would be without a limit.
    rows_all: usize,
    pub(crate) rows: Vec<R>,
}

impl<R> TableJson<R> {
    pub(crate) fn new(
        by: &'static str,
        question: &Question<'_, '_>,
        whole: &Amount,
        left_out: &Amount,
        rows_all: usize,
    ) -> Self {
        let moment = question.selection.moment;
        TableJson {
            by,
            selection: SelectionJson::of(question),
            total: AmountJson::new(whole, moment),
            left_out: AmountJson::new(left_out, moment),
            allocated: None,
            rows_all,
            rows: Vec::new(),
        }
    }

    /// Sets the amount allocated in the time that was asked for.
    pub(crate) fn allocated(&mut self, allocated: Option<Amount>) {
        self.allocated = allocated.map(|all| AmountJson::new(&all, Moment::Total));
    }
}

impl Document for TableJson<RankJson> {
    const SCHEMA: &'static str = "ranks";
}

/// A row, for JSON. The names that are present depend on the property by which sites are grouped.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RankJson {
    #[serde(flatten)]
    amount: AmountJson,
    share: f64,
    #[serde(flatten)]
    group: GroupJson,
    /// The number of sites in the group.
    sites: usize,
    /// The stack of the site that holds the most, innermost first.
    stack: Vec<FrameJson>,
}

impl RankJson {
    pub(crate) fn new(question: &mut Question<'_, '_>, profile: &Profile, rank: &Rank) -> RankJson {
        let (labels, metric, moment) = (&mut question.labels, question.metric, question.selection.moment);
        RankJson {
            amount: AmountJson::new(&rank.amount, moment),
            share: rank.amount.share(&profile.whole, metric),
            group: GroupJson::new(labels, &profile.stacks, rank),
            sites: rank.sites,
            stack: labels.stack(&profile.stacks, rank.largest),
        }
    }
}
