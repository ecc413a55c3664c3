//! `heapledger blocks`: the blocks that are live at a moment, one by one.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use heapledger_analysis::{Amount, Frame, Key, LiveBlock, LiveBlocks, Metric, Moment, NodeId, TypeBy, live_blocks};
use heapledger_core::Bytes;
use heapledger_core::ThreadId;
use heapledger_recording::{ImageId, Recording};
use heapledger_report_format::{Row, Tree};
use serde::Serialize;

use crate::args::{Blocks, Depth};
use crate::error::Result;
use crate::format::{count, duration, seconds};
use crate::json::amounts::AmountJson;
use crate::json::document::Document;
use crate::json::names::{FrameJson, GroupNameJson};
use crate::json::selection::SelectionJson;
use crate::label::Labels;
use crate::output::Output;
use crate::question::Question;
use crate::views::rows::stack_row;
use crate::views::sampled;
use crate::views::table::limit;

/// The number of frames shown of a stack.
const FRAMES_MAX: usize = 12;

pub(crate) fn run(arguments: &Blocks, out: &mut Output) -> Result<()> {
    let selection = arguments.what.resolve(arguments.input.at(), Moment::Peak)?;
    let input = arguments.input.find(out)?;
    input.needs_history("single nodes: heapledger heap census FILE --list 20")?;
    let recording = input.open()?;
    let mut question =
        Question::new(&input, &recording, &arguments.symbols, selection, Metric::Bytes).expect_something()?;
    let mut found = question.answer(|names, selection, progress| live_blocks(names, selection, progress))?;
    question.input.warn_of(&found.damage);
    question.expect_match(found.blocks.is_empty())?;
    question.slop_source = found.slop_source.clone();
    found.whole.slop = Bytes(found.blocks.iter().map(|block| slop(block).unwrap_or(0)).fold(0, u64::saturating_add));
    let (shown, rest) = found.blocks.split_at(found.blocks.len().min(limit(arguments.rows)));
    if let Some(form) = arguments.input.form() {
        return out.document(&document(&mut question, &found, shown), form);
    }
    question.headline(&found.whole, &found.left_out, out)?;
    if shown.is_empty() {
        return Ok(());
    }
    let stacks = stacks(shown);
    print_blocks(&mut question, &found, shown, &stacks, out)?;
    if !rest.is_empty() {
        let mut sum = Amount::default();
        rest.iter().for_each(|block| sum += block.amount());
        let (more, size) = (count(rest.len() as u64), sampled::bytes_of(&sum));
        out.dim_line(format_args!("and {more} more with {size} in all: -n 0 shows them"))?;
    }
    print_stacks(&mut question, &found, &stacks, out)
}

/// Returns the slop of the blocks that a block counts for.
fn slop(block: &LiveBlock) -> Option<u64> {
    Some(block.usable?.0.saturating_sub(block.size.0).saturating_mul(block.weight.0))
}

/// Returns the stacks of these blocks, each once, in the order of the blocks. They are numbered in
/// this order, from 1.
fn stacks(blocks: &[LiveBlock]) -> Vec<NodeId> {
    let mut known = HashSet::new();
    blocks.iter().map(|block| block.stack).filter(|&stack| known.insert(stack)).collect()
}

fn numbers(stacks: &[NodeId]) -> HashMap<NodeId, usize> {
    stacks.iter().copied().zip(1..).collect()
}

fn print_blocks(
    question: &mut Question<'_, '_>,
    found: &LiveBlocks,
    shown: &[LiveBlock],
    stacks: &[NodeId],
    out: &mut Output,
) -> Result<()> {
    let (recording, numbers) = (question.recording, numbers(stacks));
    let several = recording.images().len() > 1;
    // For a sample, a column also shows how many blocks each block counts for.
    let is_sample = recording.is_sample();
    let knows_usable = found.slop_source.is_some();
    let is_shown = |at: usize| (is_sample || at != 3) && (knows_usable || at != 2);
    let columns = ["block", "bytes", "usable", "stands for", "age", "thread", "stack"];
    let columns = columns.into_iter().enumerate().filter(|(at, _)| is_shown(*at));
    let mut table = Tree::new(columns.map(|(_, column)| column));
    for block in shown {
        let labels = &mut question.labels;
        let typed = labels.names.typed(&found.stacks, block.stack);
        let name = labels.type_name(&typed.name(TypeBy::Block)).to_owned();
        let pid = recording.image(block.image).filter(|_| several).map(|image| image.pid);
        let cells = [
            pid.map_or_else(|| count(block.serial.0), |pid| format!("{}, {}", pid, count(block.serial.0))),
            count(block.size.0),
            block.usable.map_or("?".to_owned(), |usable| count(usable.0)),
            count(block.weight.0),
            age(block).map_or("?".to_owned(), duration),
            block.call.map_or("?".to_owned(), |(thread, _)| called(recording, block.image, thread)),
            format!("#{}", numbers[&block.stack]),
        ];
        let cells = cells.into_iter().enumerate().filter(|(at, _)| is_shown(*at));
        table.push(0, Row::new(name).cells(cells.map(|(_, cell)| cell)));
    }
    out.line("")?;
    Ok(out.tree(&table)?)
}

fn print_stacks(
    question: &mut Question<'_, '_>,
    found: &LiveBlocks,
    stacks: &[NodeId],
    out: &mut Output,
) -> Result<()> {
    let labels = &mut question.labels;
    let mut table = Tree::new([""]);
    let mut functions = Vec::new();
    for (at, &stack) in stacks.iter().enumerate() {
        functions.push(labels.names.owner(&found.stacks, stack).frame.function);
        let row = stack_row(labels, &found.stacks, stack, Depth::Stack(FRAMES_MAX));
        table.push(0, row.cells([format!("#{}", at + 1)]));
    }
    out.line("")?;
    out.tree(&table)?;
    out.hint(labels.hint_for_unnamed(functions));
    Ok(())
}

/// Returns the time for which the block had been live.
fn age(block: &LiveBlock) -> Option<Duration> {
    block.call.map(|(_, born)| Duration::from_nanos(block.at.0.saturating_sub(born.0)))
}

/// Returns how a thread is shown: by its name, if it has one.
fn called(recording: &Recording<'_>, image: ImageId, thread: ThreadId) -> String {
    match recording.thread(image, thread) {
        None => format!("number {}", thread.0),
        Some(known) if known.name.is_empty() => known.tid.to_string(),
        Some(known) => String::from_utf8_lossy(&known.name).into_owned(),
    }
}

/// The object that `--json` prints.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct BlocksJson {
    #[serde(flatten)]
    selection: SelectionJson,
    total: AmountJson,
    /// The live blocks that the selection leaves out.
    left_out: AmountJson,
    /// The number of blocks without a limit.
    rows_all: usize,
    rows: Vec<BlockJson>,
    /// The stacks of these rows.
    stacks: Vec<StackJson>,
    /// The frames of the stacks, as a tree: frames that several stacks share are there once.
    frames: Vec<FrameNodeJson>,
}

impl Document for BlocksJson {
    const SCHEMA: &'static str = "blocks";
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct BlockJson {
    pid: Option<u32>,
    image: u32,
    /// The ordinal of its allocation in its image, from 0.
    block: u64,
    bytes: u64,
    /// The usable size: recorded or computed, as `usable_sizes` says; absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    usable_bytes: Option<u64>,
    /// The weight: the number of blocks of its size that it counts for, if it was sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "stands_for")]
    weight: Option<u64>,
    /// The time of the allocation; `null` if it was before the recording began.
    allocated_seconds: Option<f64>,
    age_seconds: Option<f64>,
    /// The thread's ordinal in the image.
    thread: Option<u32>,
    tid: Option<u32>,
    #[serde(rename = "type")]
    name: String,
    confidence: String,
    /// The number of its stack.
    stack: usize,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct StackJson {
    /// The number of the stack, from 1.
    stack: usize,
    #[serde(flatten)]
    declared: GroupNameJson,
    /// The number of the innermost frame; `null` if the stack has none.
    frame: Option<usize>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FrameNodeJson {
    /// The number of the frame, from 0: its index in the list.
    frame: usize,
    /// The number of the frame that called it, which is smaller; `null` for the outermost frame.
    caller: Option<usize>,
    #[serde(flatten)]
    place: FrameJson,
}

/// A tree of frames, which are numbered as they are added.
#[derive(Default)]
struct FrameNodes {
    numbers: HashMap<(Option<usize>, Frame), usize>,
    nodes: Vec<FrameNodeJson>,
}

impl FrameNodes {
    /// Returns the number of the innermost frame of a stack.
    fn add(&mut self, labels: &Labels<'_, '_>, stack: Vec<Frame>) -> Option<usize> {
        stack.into_iter().rev().fold(None, |caller, frame| {
            let number = match self.numbers.entry((caller, frame)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    let number = self.nodes.len();
                    let place = labels.frame(&new.key().1);
                    self.nodes.push(FrameNodeJson { frame: number, caller, place });
                    *new.insert(number)
                }
            };
            Some(number)
        })
    }
}

fn document(question: &mut Question<'_, '_>, found: &LiveBlocks, shown: &[LiveBlock]) -> BlocksJson {
    let (recording, moment) = (question.recording, question.selection.moment);
    let stacks = stacks(shown);
    let numbers = numbers(&stacks);
    let amount = |amount: &Amount| AmountJson::new(amount, moment);
    let labels = &mut question.labels;
    let mut rows = Vec::new();
    for block in shown {
        let typed = labels.names.typed(&found.stacks, block.stack);
        rows.push(BlockJson {
            pid: recording.image(block.image).map(|image| image.pid),
            image: block.image.0,
            block: block.serial.0,
            bytes: block.size.0,
            usable_bytes: block.usable.map(|usable| usable.0),
            weight: recording.is_sample().then_some(block.weight.0),
            allocated_seconds: block.call.map(|(_, time)| seconds(time)),
            age_seconds: age(block).map(|age| age.as_secs_f64()),
            thread: block.call.map(|(thread, _)| thread.0),
            tid: block.call.and_then(|(thread, _)| Some(recording.thread(block.image, thread)?.tid)),
            name: typed.name(TypeBy::Block).full().to_owned(),
            confidence: typed.certainty().to_string(),
            stack: numbers[&block.stack],
        });
    }
    let (mut described, mut frames) = (Vec::new(), FrameNodes::default());
    for (at, &stack) in stacks.iter().enumerate() {
        let useful = labels.names.useful_frames(&found.stacks, stack);
        described.push(StackJson {
            stack: at + 1,
            declared: GroupNameJson::new(labels, &found.stacks, Key::Site(stack)),
            frame: frames.add(labels, useful),
        });
    }
    BlocksJson {
        selection: SelectionJson::of(question),
        total: amount(&found.whole),
        left_out: amount(&found.left_out),
        rows_all: found.blocks.len(),
        rows,
        stacks: described,
        frames: frames.nodes,
    }
}
