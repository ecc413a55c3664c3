//! Tables, and the rows of groups of sites, for JSON.

use heapledger_analysis::{Amount, Key, Moment, Profile, Rank};
use serde::Serialize;

use crate::json::amounts::AmountJson;
use crate::json::document::Document;
use crate::json::names::{FrameJson, GroupNameJson, OwnerJson};
use crate::json::selection::SelectionJson;
use crate::label::Labels;
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
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<String>,
    /// The full name of the type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    type_name: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    frame: Option<FrameJson>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    owner: Option<OwnerJson>,
    #[serde(flatten)]
    declared: GroupNameJson,
    /// The number of sites in the group.
    sites: usize,
    /// The stack of the site that holds the most, innermost first.
    stack: Vec<FrameJson>,
}

impl RankJson {
    pub(crate) fn new(question: &mut Question<'_, '_>, profile: &Profile, rank: &Rank) -> RankJson {
        let (labels, metric, moment) = (&mut question.labels, question.metric, question.selection.moment);
        let stack = labels.names.useful_frames(&profile.stacks, rank.largest);
        let (module, frame) = module_and_frame(labels, rank);
        let owner = frame.is_some().then(|| OwnerJson::new(labels, &profile.stacks, rank.largest));
        RankJson {
            amount: AmountJson::new(&rank.amount, moment),
            share: rank.amount.share(&profile.whole, metric),
            module,
            type_name: type_of(labels, rank),
            frame,
            owner,
            declared: GroupNameJson::new(labels, &profile.stacks, rank.key),
            sites: rank.sites,
            stack: stack.iter().map(|frame| labels.frame(frame)).collect(),
        }
    }
}

/// Returns the module or the frame that names a group, for JSON.
pub(crate) fn module_and_frame(labels: &Labels<'_, '_>, rank: &Rank) -> (Option<String>, Option<FrameJson>) {
    match rank.key {
        Key::Module(module) => (Some(labels.names.module_path(module)), None),
        Key::Owner(_) | Key::Line(_) | Key::File(_) | Key::Site(_) | Key::Function(_) => {
            (None, Some(labels.frame(&rank.frame)))
        }
        Key::Context(_) | Key::Scope(_) | Key::Task(_) | Key::Heap(_) | Key::Type(_) | Key::Part(_) => (None, None),
    }
}

/// Returns the full name of a group's type, if groups are types.
pub(crate) fn type_of(labels: &Labels<'_, '_>, rank: &Rank) -> Option<String> {
    matches!(rank.key, Key::Type(_)).then(|| labels.names.function(rank.frame.function).full.to_string())
}
