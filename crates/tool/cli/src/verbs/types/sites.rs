//! The sites of a type, with the evidence for it.

use heapledger_analysis::{Amount, Frame, Profile, TypeGroup, Typed};
use heapledger_block_types::{SizeCheck, TypeName};
use heapledger_report_format::{Row, Tree};

use super::Figures;
use crate::format::counted;
use crate::label::Labels;
use crate::views::rows::callers_in_line;

/// The most candidates that are shown.
const CANDIDATES_MAX: usize = 6;

/// The rows for the sites of types.
pub(super) struct SiteRows<'p> {
    pub(super) profile: &'p Profile,
    pub(super) figures: Figures,
    /// The most sites of a type.
    pub(super) rows: usize,
    /// True if all frames of a site have a line each.
    pub(super) with_stacks: bool,
}

impl SiteRows<'_> {
    /// Adds rows for the sites of a type, below its own.
    pub(super) fn add(&self, labels: &mut Labels<'_, '_>, group: &TypeGroup, table: &mut Tree) {
        let SiteRows { profile, figures, rows, with_stacks } = *self;
        let (shown, rest) = group.sites.split_at(group.sites.len().min(rows));
        for (site, typed) in shown {
            let (frames, via) = labels.frames(&profile.stacks, site.stack);
            let line = |row: Row, mark: &str, frame: &Frame| {
                let place = labels.place(frame.function, frame.location.as_ref());
                row.line(format!("{mark}{}", labels.function(frame.function)), place)
            };
            let (own, callers) = frames.split_at(1);
            let first =
                |row: Row, frame: &Frame| row.line(labels.function(frame.function), labels.place_via(frame, via));
            let mut row = own.iter().fold(Row::default(), first);
            let said = labels.declared(&profile.stacks, site.stack);
            row = said.into_iter().chain(describe(labels, typed)).fold(row, |row, said| row.line("", said));
            if with_stacks {
                row = callers.iter().fold(row, |row, frame| line(row, "← ", frame));
            } else if !callers.is_empty() {
                row = row.line("", callers_in_line(labels, callers));
            }
            table.push(1, row.cells(figures.row(&site.amount, &typed.certainty().to_string())));
        }
        if !rest.is_empty() {
            let mut amount = Amount::default();
            rest.iter().for_each(|(site, _)| amount += site.amount);
            let text = format!("… {}", counted(rest.len() as u64, "more site", "more sites"));
            table.push(1, Row::default().line("", text).cells(figures.row(&amount, "")));
        }
    }
}

/// Returns the evidence for the type of a site, one line per fact.
fn describe(labels: &Labels<'_, '_>, typed: &Typed) -> Vec<String> {
    let site = &typed.inferred.site;
    let mut lines = Vec::new();
    if typed.stamp.is_some() {
        let code = site
            .block
            .as_ref()
            .map(|block| format!("its code says {}, {}: {}", labels.type_name(block), site.confidence, site.evidence));
        return code.into_iter().collect();
    }
    if !typed.inferred.is_known() {
        return lines;
    }
    lines.push(site.evidence.to_string());
    let element = site.element.as_ref().filter(|element| site.block.as_ref() != Some(element));
    match (element, &site.container) {
        (Some(element), Some(container)) => lines.push(format!("of {} in {container}", labels.type_name(element))),
        (Some(element), None) => lines.push(format!("of {}", labels.type_name(element))),
        (None, Some(container)) => lines.push(format!("in {container}")),
        (None, None) => {}
    }
    let size = site.size.map_or(String::new(), |size| format!("{} each: ", counted(size, "byte", "bytes")));
    match &site.size_check {
        SizeCheck::Consistent => lines.push(format!("{size}sizes agree")),
        SizeCheck::Inconsistent(why) => lines.push(format!("sizes do not agree: {why}")),
        SizeCheck::NotPossible => {}
    }
    if !site.candidates.is_empty() {
        lines.push(format!("may be {}", alternatives(labels, &site.candidates)));
    }
    lines
}

/// Formats alternatives: `A, B or C`.
fn alternatives(labels: &Labels<'_, '_>, names: &[TypeName]) -> String {
    let mut shown: Vec<String> =
        names.iter().take(CANDIDATES_MAX).map(|name| labels.type_name(name).to_owned()).collect();
    if let Some(more) = names.len().checked_sub(CANDIDATES_MAX).filter(|&more| more > 0) {
        shown.push(format!("one of {more} more"));
    }
    match shown.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => shown.concat(),
    }
}
