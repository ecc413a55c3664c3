//! The error for a filter that fits no block of a recording: the same in every verb, with the names
//! that may be meant.

use std::collections::{BTreeSet, HashMap};

use heapledger_analysis::{Filter, Moment, Names, NodeId, Pattern, Profile, Scope, Selection, Stacks, TypeBy, totals};

use super::Question;
use super::words::filter_words;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::near::nearest;
use crate::text::{quoted, shown};

/// Fails if the filter of a question that had an empty answer fits no block at any moment.
pub(crate) fn expect_match(question: &mut Question<'_, '_>) -> Result<()> {
    let filter = question.selection.filter.clone();
    if filter == Filter::default() {
        return Ok(());
    }
    let found = question.answer(|names, selection, progress| totals(names, selection, progress))?;
    if !found.selected.is_nothing() {
        return Ok(());
    }
    let what = format!("no block of the recording fits: {}", filter_words(&filter).join(" · "));
    let file = quoted(&shown(&question.input.path));
    Err(Failure::new(Exit::Usage, what).hint(hint(question, &filter, &file)))
}

/// A kind of names by which blocks are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Function,
    AllocatedBy,
    Module,
    Context,
    Heap,
    Type,
}

impl Kind {
    fn option(self) -> &'static str {
        match self {
            Kind::Function => "--function",
            Kind::AllocatedBy => "--allocated-by",
            Kind::Module => "--module",
            Kind::Context => "--context",
            Kind::Heap => "--heap",
            Kind::Type => "--type",
        }
    }

    /// Returns the verb that lists these names.
    fn listed_by(self) -> &'static str {
        match self {
            Kind::Function => "tree --total",
            Kind::AllocatedBy => "top --total --by function",
            Kind::Module => "top --total --by module",
            Kind::Context => "top --total --by context",
            Kind::Heap => "top --total --by heap",
            Kind::Type => "types --total",
        }
    }
}

/// Returns a hint with the names that may have been meant.
fn hint(question: &mut Question<'_, '_>, filter: &Filter, file: &str) -> String {
    let asked: [(Kind, &[Pattern]); 6] = [
        (Kind::Function, &filter.functions),
        (Kind::AllocatedBy, &filter.allocated_by),
        (Kind::Module, &filter.modules),
        (Kind::Context, &filter.contexts),
        (Kind::Heap, &filter.heaps),
        (Kind::Type, &filter.types),
    ];
    let kinds: Vec<Kind> = asked.iter().filter(|(_, patterns)| !patterns.is_empty()).map(|(kind, _)| *kind).collect();
    let names = names_of(question, &kinds);
    let mut hints = Vec::new();
    for (kind, patterns) in asked {
        let Some(names) = names.get(&kind) else { continue };
        for pattern in patterns.iter().filter(|pattern| !names.iter().any(|name| pattern.matches(name))) {
            let text = pattern.text().trim_matches(['*', '?', '/', '^', '$']);
            let near = nearest(text, names.iter().map(String::as_str));
            hints.push(match &near[..] {
                [] => format!("names are listed by: heapledger {} {file}", kind.listed_by()),
                near => {
                    let near: Vec<String> =
                        near.iter().map(|name| format!("{} {}", kind.option(), quoted(name))).collect();
                    format!("did you mean {}?", near.join(" or "))
                }
            });
        }
    }
    hints.dedup();
    if hints.is_empty() {
        hints.push(format!("what there is without these options: heapledger top --total {file}"));
    }
    hints.join("\n")
}

/// Returns all names of these kinds in the recording by which blocks can be selected.
fn names_of(question: &mut Question<'_, '_>, kinds: &[Kind]) -> HashMap<Kind, BTreeSet<String>> {
    let mut found: HashMap<Kind, BTreeSet<String>> = kinds.iter().map(|kind| (*kind, BTreeSet::new())).collect();
    if kinds.is_empty() {
        return found;
    }
    let names = &mut question.labels.names;
    // Damage to the recording was reported before.
    let Ok(all) = Profile::load(names, &Selection::at(Moment::Total), &mut |_, _| ()) else { return found };
    for site in &all.sites {
        for (kind, into) in &mut found {
            add(*kind, names, &all.stacks, site.stack, into);
        }
    }
    found
}

fn add(kind: Kind, names: &mut Names<'_, '_>, stacks: &Stacks, stack: NodeId, into: &mut BTreeSet<String>) {
    match kind {
        Kind::Function => {
            let frames = names.frames(stacks, stack);
            into.extend(frames.iter().map(|frame| names.function(frame.function).short.to_string()));
        }
        Kind::AllocatedBy => {
            let frames = [names.useful_frame(stacks, stack), names.owner(stacks, stack).frame];
            into.extend(frames.iter().map(|frame| names.function(frame.function).short.to_string()));
        }
        Kind::Module => {
            let frame = names.useful_frame(stacks, stack);
            let path = names.module_path(names.function(frame.function).module);
            into.insert(path.rsplit('/').next().unwrap_or_default().to_owned());
        }
        Kind::Context => {
            let scopes: Vec<Scope> = stacks.scopes(stacks.context(stack));
            into.extend(scopes.iter().flat_map(|scope| [names.text(scope.name), names.scope(*scope)]));
        }
        Kind::Heap => {
            into.insert(names.heap(stacks.heap(stack)));
        }
        Kind::Type => {
            let typed = names.typed(stacks, stack);
            into.extend([TypeBy::Block, TypeBy::Element].map(|by| typed.name(by).to_string()));
        }
    }
}
