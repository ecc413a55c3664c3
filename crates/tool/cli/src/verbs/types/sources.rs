//! The binaries from which the types of blocks are known, and those from which they could not be
//! inferred.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use heapledger_analysis::{Amount, Metric, Profile, TypeGroup};
use heapledger_recording::ModuleId;
use heapledger_report_format::{Row, Tree};
use heapledger_symbols::{BuildId, DebugInfo};

use crate::error::Result;
use crate::format::counted;
use crate::output::Output;
use crate::question::Question;
use crate::symbols::names_from;
use crate::views::sampled;

/// The most binaries of each kind that are shown.
const SHOWN_MAX: usize = 4;
/// The most digits of a build id that are shown.
const DIGITS: usize = 16;

/// The source of the type of blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    /// The program itself.
    Stamps,
    /// The code of a binary.
    Binary(ModuleId),
    /// None: the code that allocates the blocks is in this binary.
    Unknown(ModuleId),
}

pub(super) fn print(
    question: &mut Question<'_, '_>,
    profile: &Profile,
    groups: &[TypeGroup],
    out: &mut Output,
) -> Result<()> {
    let mut sums: BTreeMap<Source, Amount> = BTreeMap::new();
    let names = &mut question.labels.names;
    for (site, typed) in groups.iter().flat_map(|group| &group.sites) {
        let source = match typed.inferred.module {
            _ if typed.stamp.is_some() => Source::Stamps,
            Some(module) if typed.inferred.is_known() => Source::Binary(module),
            _ => {
                let function = names.useful_frame(&profile.stacks, site.stack).function;
                Source::Unknown(names.function(function).module)
            }
        };
        *sums.entry(source).or_default() += site.amount;
    }
    let mut sums: Vec<(Source, Amount)> = sums.into_iter().collect();
    sums.sort_by_key(|(source, amount)| (kind(*source), Reverse(amount.bytes), *source));
    let mut table = Tree::new(["", ""]);
    let mut helped = HashSet::new();
    for of_kind in sums.chunk_by(|(a, _), (b, _)| kind(*a) == kind(*b)) {
        let (shown, rest) = of_kind.split_at(of_kind.len().min(SHOWN_MAX));
        for (source, amount) in shown {
            table.push(
                0,
                row(question, *source, &mut helped)
                    .cells([sampled::cell(amount, Metric::Bytes), words(*source).to_owned()]),
            );
        }
        if !rest.is_empty() {
            let mut amount = Amount::default();
            rest.iter().for_each(|(_, more)| amount += *more);
            let text = format!("{} of which `heapledger info` tells", counted(rest.len() as u64, "other", "others"));
            table.push(
                0,
                Row::default()
                    .line("", text)
                    .cells([sampled::cell(&amount, Metric::Bytes), words(rest[0].0).to_owned()]),
            );
        }
    }
    out.line("")?;
    out.tree(&table)?;
    Ok(())
}

fn kind(source: Source) -> u8 {
    match source {
        Source::Stamps => 0,
        Source::Binary(_) => 1,
        Source::Unknown(_) => 2,
    }
}

fn words(source: Source) -> &'static str {
    match source {
        Source::Stamps => "stamped by",
        Source::Binary(_) => "told by",
        Source::Unknown(_) => "unknown in",
    }
}

/// Returns the row of a source. `helped` are the binaries for which a hint was shown already.
fn row(question: &Question<'_, '_>, source: Source, helped: &mut HashSet<ModuleId>) -> Row {
    let (module, is_unknown) = match source {
        Source::Stamps => return Row::new("the program"),
        Source::Binary(module) => (module, false),
        Source::Unknown(module) => (module, true),
    };
    let names = &question.labels.names;
    let Some(recorded) = question.recording.module(module) else { return Row::new("code of no file") };
    let mut said = Vec::new();
    if !recorded.build_id.is_empty() {
        let id = BuildId(recorded.build_id.as_slice().into()).to_string();
        said.push(match id.get(..DIGITS) {
            Some(start) if id.len() > DIGITS => format!("build id {start}…"),
            _ => format!("build id {id}"),
        });
    }
    let state = names.module_state(module);
    let needs_help = is_unknown || state.as_ref().is_some_and(|state| state.debug < DebugInfo::Full);
    said.extend(state.map(|state| names_from(state.debug).to_owned()));
    let row = Row::new(names.module_path(module)).note(said.join(", "));
    match names.hint(module).filter(|_| needs_help && helped.insert(module)) {
        Some(hint) => row.line("", hint),
        None => row,
    }
}
