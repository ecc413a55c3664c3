//! `heapledger advise`: advice about memory, the reasons, and the command that shows each.

use std::time::Duration;

use heapledger_analysis::{Advice, AdviceList, Finding, Metric, Selection};
use heapledger_core::allocator::AllocatorKind;
use serde::Serialize;
use serde_json::Value;

use crate::args::Advise;
use crate::error::Result;
use crate::format::{bytes, count, duration, wrapped};
use crate::json::document::Document;
use crate::json::names::{FrameJson, LabelJson};
use crate::output::Output;
use crate::question::Question;
use crate::text::{quoted, shown};
use crate::verbs::replay::saved;
use crate::views::table::limit;

mod describe;

use self::describe::describe;

/// The width of the text, in columns.
const WIDTH: usize = 80;

pub(crate) fn run(arguments: &Advise, out: &mut Output) -> Result<()> {
    let hint = "what is never unmapped: heapledger leaks FILE --mappings";
    arguments.input.needs_blocks(false, "the rules of advice are", hint)?;
    let input = arguments.input.find(out)?;
    input.needs_history("nodes that are often too many: heapledger heap find FILE")?;
    let recording = input.open()?;
    let selection = Selection { filter: arguments.blocks.filter(), ..Selection::default() };
    let question = Question::new(&input, &recording, &arguments.symbols, selection, Metric::Bytes);
    let mut question = question.expect_something()?;
    let replayed = arguments.replay.as_deref().map(|path| saved::read(path, &recording)).transpose()?;
    let mut list = question.answer(|names, selection, progress| AdviceList::load(names, selection, progress))?;
    match replayed {
        Some(allocators) => {
            let recorded: Vec<AllocatorKind> = recording.images().iter().map(|start| start.allocator).collect();
            list.add_replay(&allocators, &recorded);
        }
        None => list.skip_replay(),
    }
    input.warn_of(&list.damage);
    let items: Vec<Item> = list.advice.iter().take(limit(arguments.rows)).map(|it| Item::new(&question, it)).collect();
    if let Some(form) = arguments.input.form() {
        let skipped = list.skipped.iter().map(|it| SkippedJson { rule: it.rule, why: it.why }).collect();
        return out.document(&AdviseJson { advice: items, advice_all: list.advice.len() as u64, skipped }, form);
    }
    match list.advice.len() as u64 {
        0 => out.title("no advice: no rule found anything worth a change")?,
        1 => out.title("1 piece of advice")?,
        all => out.title(format_args!("{} pieces of advice, those first with the most bytes at stake", count(all)))?,
    }
    question.words(out)?;
    for (number, item) in items.iter().enumerate() {
        out.line("")?;
        out.line(format_args!("{}. {}", number + 1, item.head))?;
        for line in wrapped(&item.sentence, WIDTH - 3) {
            out.line(format_args!("   {line}"))?;
        }
        out.line(format_args!("   see: {}", item.proof))?;
    }
    let left_out = list.advice.len() - items.len();
    if left_out > 0 {
        out.line("")?;
        out.dim_line(format_args!("and {} more: -n 0 shows them", count(left_out as u64)))?;
    }
    if !list.skipped.is_empty() {
        out.line("")?;
        let skipped = list.skipped.iter().map(|skipped| format!("{} ({})", skipped.rule, skipped.why));
        let skipped = format!("not looked for: {}", skipped.collect::<Vec<_>>().join(", "));
        for line in wrapped(&skipped, WIDTH) {
            out.dim_line(line)?;
        }
    }
    Ok(())
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AdviseJson {
    advice: Vec<Item>,
    advice_all: u64,
    /// Rules that do not apply to this recording, and why.
    skipped: Vec<SkippedJson>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SkippedJson {
    rule: &'static str,
    why: &'static str,
}

impl Document for AdviseJson {
    const SCHEMA: &'static str = "advice";
    const ROWS: Option<&'static str> = Some("advice");
}

/// A piece of advice, in the terms of the user.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Item {
    rule: &'static str,
    /// The bytes at stake.
    bytes: u64,
    owner: Option<FrameJson>,
    /// The function that the owner called to allocate.
    via: Option<LabelJson>,
    sentence: String,
    /// The figures on which the rule is based.
    evidence: Value,
    /// The command that shows the evidence.
    proof: String,
    #[serde(skip)]
    head: String,
}

impl Item {
    fn new(question: &Question<'_, '_>, advice: &Advice) -> Item {
        let labels = &question.labels;
        let (sentence, evidence, options) = describe(&advice.finding);
        let file = quoted(&shown(&question.input.path));
        let (verb, options) = options.split_once(' ').unwrap_or((&options, ""));
        let proof = [&format!("heapledger {verb} {file}"), options].join(" ").trim_end().to_owned();
        let at_stake = match &advice.finding {
            // An allocator that was chosen for the time that it saves often takes more memory.
            Finding::Allocator(found) if !found.saves_memory => {
                let saved = found.present.cpu_ns.saturating_sub(found.other.cpu_ns);
                format!("{} of processor time", duration(Duration::from_nanos(saved)))
            }
            _ => bytes(advice.bytes.0),
        };
        let rule = advice.finding.rule();
        let head = match &advice.owner {
            None => format!("{rule}, {at_stake}"),
            Some(owner) => {
                let name = labels.function(owner.frame.function);
                let place = labels.place_via(&owner.frame, owner.via);
                format!("{rule}, {at_stake}: {name}  {place}").trim_end().to_owned()
            }
        };
        Item {
            rule,
            bytes: advice.bytes.0,
            owner: advice.owner.as_ref().map(|owner| labels.frame(&owner.frame)),
            via: advice.owner.as_ref().and_then(|owner| owner.via).map(|via| labels.label(via)),
            sentence,
            evidence,
            proof,
            head,
        }
    }
}
