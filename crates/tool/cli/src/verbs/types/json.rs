//! The document that `heapledger types --json` prints.

use heapledger_analysis::{Key, Profile, Site, TypeGroup, Typed};
use heapledger_block_types::{SizeCheck, TypeName};
use heapledger_symbols::BuildId;
use serde::Serialize;

use crate::args::Types;
use crate::json::amounts::AmountJson;
use crate::json::document::Document;
use crate::json::names::{FrameJson, GroupNameJson};
use crate::json::table::TableJson;
use crate::question::Question;
use crate::views::table::limit;

/// A type, or a container.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TypeJson {
    /// The full name; `[unknown]` if nothing is known.
    #[serde(rename = "type")]
    name: String,
    /// The short name, as tables show it.
    short: String,
    #[serde(flatten)]
    amount: AmountJson,
    /// The share of all that is selected.
    share: f64,
    /// The certainty of the type's least certain site.
    confidence: String,
    /// The sites, the largest first.
    sites: Vec<SiteJson>,
}

impl Document for TableJson<TypeJson> {
    const SCHEMA: &'static str = "types";
}

/// A stack that allocates blocks of the type.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SiteJson {
    #[serde(flatten)]
    amount: AmountJson,
    confidence: String,
    /// The type inferred from the code; `null` if there is none.
    inferred: Option<InferredJson>,
    /// The program's own function that wanted the memory.
    #[serde(flatten)]
    frame: FrameJson,
    /// The declarations of the program, including its stamp.
    #[serde(flatten)]
    declared: GroupNameJson,
    /// The frames, innermost first; only if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<Vec<FrameJson>>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct InferredJson {
    /// `null` if there are several candidates.
    block: Option<String>,
    element: Option<String>,
    container: Option<String>,
    confidence: String,
    evidence: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    candidates: Vec<String>,
    /// The size of the element, or of the block if it has none, in bytes.
    size: Option<u64>,
    /// The result of comparing sizes: `consistent`, `inconsistent`, or `not possible`.
    size_check: &'static str,
    /// The reason why sizes do not agree.
    #[serde(skip_serializing_if = "Option::is_none")]
    size_check_reason: Option<String>,
    /// The binary from which the type was inferred.
    binary: Option<BinaryJson>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct BinaryJson {
    path: String,
    build_id: String,
}

pub(super) fn types(
    question: &mut Question<'_, '_>,
    profile: &Profile,
    by: &'static str,
    groups: &[TypeGroup],
    arguments: &Types,
) -> TableJson<TypeJson> {
    let (rows, with_stacks) = (limit(arguments.rows.unwrap_or(0)), arguments.stacks);
    let (metric, moment) = (question.metric, question.selection.moment);
    let mut of = |group: &TypeGroup| TypeJson {
        name: group.name.full().to_owned(),
        short: group.name.short().to_owned(),
        amount: AmountJson::new(&group.amount, moment),
        share: group.amount.share(&profile.whole, metric),
        confidence: group.certainty.to_string(),
        sites: group.sites.iter().map(|(site, typed)| of_site(question, profile, site, typed, with_stacks)).collect(),
    };
    let rows: Vec<TypeJson> = groups[..groups.len().min(rows)].iter().map(&mut of).collect();
    let mut table = TableJson::new(by, question, &profile.whole, &profile.left_out, groups.len());
    table.allocated(profile.allocated);
    table.rows = rows;
    table
}

fn of_site(
    question: &mut Question<'_, '_>,
    profile: &Profile,
    site: &Site,
    typed: &Typed,
    with_stacks: bool,
) -> SiteJson {
    let labels = &mut question.labels;
    let frame = labels.names.owner(&profile.stacks, site.stack).frame;
    let stack = with_stacks.then(|| labels.stack(&profile.stacks, site.stack));
    SiteJson {
        amount: AmountJson::new(&site.amount, question.selection.moment),
        confidence: typed.certainty().to_string(),
        inferred: inferred(question, typed),
        frame: question.labels.frame(&frame),
        declared: GroupNameJson::new(&question.labels, &profile.stacks, Key::Site(site.stack)),
        stack,
    }
}

fn inferred(question: &Question<'_, '_>, typed: &Typed) -> Option<InferredJson> {
    let site = &typed.inferred.site;
    if !typed.inferred.is_known() {
        return None;
    }
    let name = |name: &TypeName| name.full().to_owned();
    let (size_check, size_check_reason) = match &site.size_check {
        SizeCheck::Consistent => ("consistent", None),
        SizeCheck::Inconsistent(why) => ("inconsistent", Some(why.to_string())),
        SizeCheck::NotPossible => ("not possible", None),
    };
    let binary = typed.inferred.module.and_then(|module| question.recording.module(module)).map(|module| BinaryJson {
        path: String::from_utf8_lossy(&module.path).into_owned(),
        build_id: BuildId(module.build_id.as_slice().into()).to_string(),
    });
    Some(InferredJson {
        block: site.block.as_ref().map(name),
        element: site.element.as_ref().map(name),
        container: site.container.as_deref().map(str::to_owned),
        confidence: site.confidence.to_string(),
        evidence: site.evidence.to_string(),
        candidates: site.candidates.iter().map(name).collect(),
        size: site.size,
        size_check,
        size_check_reason,
        binary,
    })
}
