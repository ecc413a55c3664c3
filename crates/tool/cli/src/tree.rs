//! `heapledger tree`: the amounts held or allocated, as a tree of calls.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use heapledger_analysis::{Amount, CallId, CallTree, Direction, Layer, Metric, PartBy, PartSplit, Profile, RankBy};
use heapledger_report_format::Row;
use serde::Serialize;

use crate::args::{By, Rows, Tree};
use crate::document::Document;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::format::counted;
use crate::label::{FrameJson, Labels};
use crate::output::Output;
use crate::parts::part_labels;
use crate::question::{Question, SelectionJson};
use crate::ranks::{AmountJson, Columns};

pub(crate) fn run(arguments: &Tree, out: &mut Output) -> Result<()> {
    let (selection, metric) = arguments.what.resolve(arguments.input.at())?;
    let input = arguments.input.find(out)?;
    let recording = input.open()?;
    let mut question = Question::new(&input, &recording, &arguments.symbols, selection, metric).expect_something()?;
    let levels = Levels::new(&arguments.by)?;
    let profile = levels.profile(&mut question)?;
    let direction = if arguments.bottom_up { Direction::BottomUp } else { Direction::TopDown };
    let tree = CallTree::new(&profile, &mut question.labels.names, &levels.layers, direction, metric);
    let mut limits = Limits {
        depth: arguments.depth.map_or(usize::MAX, |depth| depth as usize),
        least: arguments.threshold / 100.0,
        unfold: arguments.unfold,
        shown: None,
    };
    limits.keep_rows(arguments.rows, &tree, metric);
    if let Some(form) = arguments.input.form() {
        return out.document(&json(&question, &profile, &tree, &limits, arguments.bottom_up), form);
    }
    question.headline(&profile.whole, &profile.left_out, out)?;
    question.allocated(profile.allocated, out)?;
    let columns = Columns::new(metric, question.selection.moment);
    print(&question.labels, &tree, &limits, columns, metric, out)
}

/// The levels of a tree, from the outermost to the innermost.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    /// The levels, each once.
    pub(crate) layers: Vec<Layer>,
    /// The parts (threads, processes or sizes) among the levels, which only events provide.
    parts: Option<PartBy>,
}

impl Levels {
    pub(crate) fn new(words: &[By]) -> Result<Levels> {
        let mut levels = Levels::default();
        for word in words {
            let layer = match word.rows() {
                Rows::Sites(RankBy::Site, _) => Layer::Stack,
                Rows::Sites(RankBy::Context, _) => Layer::Context,
                Rows::Sites(by, _) => Layer::Group(by),
                Rows::Events(parts) if levels.parts.is_some_and(|other| other != parts) => {
                    return Err(Failure::new(Exit::Usage, "threads, processes and sizes cannot be levels of one tree")
                        .hint(
                            "make one of them a level, and select one of another: --by thread,owner --process 1234",
                        ));
                }
                Rows::Events(parts) => {
                    levels.parts = Some(parts);
                    Layer::Part
                }
            };
            if !levels.layers.contains(&layer) {
                levels.layers.push(layer);
            }
        }
        Ok(levels)
    }

    /// Returns the amount that every site holds. If one of the levels is of parts, sites are
    /// separate for each part.
    pub(crate) fn profile(&self, question: &mut Question<'_, '_>) -> Result<Profile> {
        let Some(by) = self.parts else { return question.profile() };
        let label = part_labels(question.recording);
        let split = PartSplit { by, label: &label };
        let profile =
            question.answer(|names, selection, progress| Profile::load_split(names, selection, &split, progress))?;
        question.input.warn_of(&profile.damage);
        question.expect_match(profile.whole.is_nothing())?;
        Ok(profile)
    }
}

/// The limits on the nodes that are shown.
#[derive(Debug)]
pub(crate) struct Limits {
    /// The most levels.
    depth: usize,
    /// The least share of the whole that a node must have.
    least: f64,
    /// True if the middle of long chains is shown, too.
    unfold: bool,
    /// The only nodes that are shown, if not all are.
    shown: Option<HashSet<CallId>>,
}

impl Limits {
    /// Limits that leave nothing out.
    pub(crate) const NONE: Limits = Limits { depth: usize::MAX, least: 0.0, unfold: true, shown: None };

    /// Limits the tree to this many rows, the largest ones. A row is a chain of calls.
    fn keep_rows(&mut self, rows: usize, tree: &CallTree, metric: Metric) {
        if rows == 0 {
            return;
        }
        let (mut shown, mut open) = (HashSet::new(), BinaryHeap::new());
        let offer = |id: CallId, depth: usize, open: &mut BinaryHeap<_>| {
            let mut items = Vec::new();
            expand(tree, id, depth, self, metric, &mut items);
            open.extend(items.into_iter().filter_map(|(depth, item)| match item {
                Item::Node(child) => Some((tree.node(child).amount.by(metric), Reverse((child, depth)))),
                Item::LeftOut { .. } | Item::Deeper { .. } => None,
            }));
        };
        offer(CallId::ROOT, 0, &mut open);
        for _ in 0..rows {
            let Some((_, Reverse((top, depth)))) = open.pop() else { break };
            let chain = chain(tree, top);
            shown.extend(&chain);
            offer(chain.last().copied().unwrap_or(top), depth + 1, &mut open);
        }
        self.shown = Some(shown);
    }
}

/// The numbers of lines kept at the start and at the end of a long chain, and the least number of
/// lines that shortening must save.
const CHAIN_START: usize = 5;
const CHAIN_END: usize = 4;
const CHAIN_SAVED: usize = 4;

fn print(
    labels: &Labels<'_, '_>,
    tree: &CallTree,
    limits: &Limits,
    columns: Columns,
    metric: Metric,
    out: &mut Output,
) -> Result<()> {
    let whole = tree.node(CallId::ROOT).amount;
    let mut text = columns.table();
    // The items still to be printed, the next one last: nodes, or a summary of siblings that were
    // left out.
    let mut open: Vec<(usize, Item)> = Vec::new();
    let mut shown = Vec::new();
    expand(tree, CallId::ROOT, 0, limits, metric, &mut open);
    while let Some((depth, item)) = open.pop() {
        match item {
            Item::Node(top) => {
                let chain = chain(tree, top);
                shown.extend(chain.iter().filter_map(|id| tree.node(*id).function));
                let bottom = chain.last().copied().unwrap_or(top);
                text.push(
                    depth,
                    chain_row(labels, tree, &chain, limits).cells(columns.cells(&tree.node(top).amount, &whole)),
                );
                expand(tree, bottom, depth + 1, limits, metric, &mut open);
            }
            Item::LeftOut { nodes, amount } => {
                let row = Row::default().line("", format!("… {}", counted(nodes, "smaller one", "smaller ones")));
                text.push(depth, row.cells(columns.cells(&amount, &whole)));
            }
            Item::Deeper { nodes } => {
                text.push(depth, Row::default().line("", format!("… {} deeper", counted(nodes, "call", "calls"))));
            }
        }
    }
    out.line("")?;
    out.tree(&text)?;
    out.hint(labels.hint_for_unnamed(shown));
    Ok(())
}

enum Item {
    Node(CallId),
    /// Children below the threshold.
    LeftOut {
        nodes: u64,
        amount: Amount,
    },
    /// Children below the deepest level.
    Deeper {
        nodes: u64,
    },
}

/// Pushes the children of a node onto the list, the first one last.
fn expand(tree: &CallTree, id: CallId, depth: usize, limits: &Limits, metric: Metric, open: &mut Vec<(usize, Item)>) {
    let children = tree.children(id);
    if depth >= limits.depth {
        if !children.is_empty() {
            open.push((depth, Item::Deeper { nodes: children.len() as u64 }));
        }
        return;
    }
    let whole = tree.node(CallId::ROOT).amount;
    let is_large = |child: &&CallId| {
        let amount = &tree.node(**child).amount;
        amount.by(metric) > 0
            && amount.share(&whole, metric) >= limits.least
            && limits.shown.as_ref().is_none_or(|shown| shown.contains(child))
    };
    let (large, small): (Vec<&CallId>, Vec<&CallId>) = children.iter().partition(is_large);
    let mut amount = Amount::default();
    small.iter().for_each(|&&child| amount += tree.node(child).amount);
    if amount.by(metric) > 0 {
        open.push((depth, Item::LeftOut { nodes: small.len() as u64, amount }));
    }
    open.extend(large.into_iter().rev().map(|&child| (depth, Item::Node(child))));
}

/// Returns a node and the chain of only children below it through which its whole amount goes.
fn chain(tree: &CallTree, top: CallId) -> Vec<CallId> {
    let mut chain = vec![top];
    let mut at = top;
    while let [only] = tree.children(at)
        && tree.node(*only).amount == tree.node(top).amount
    {
        at = *only;
        chain.push(at);
    }
    chain
}

/// Returns a row with a line for each function of a chain, shortened if it is too long.
fn chain_row(labels: &Labels<'_, '_>, tree: &CallTree, chain: &[CallId], limits: &Limits) -> Row {
    let mut lines: Vec<(String, String)> = Vec::new();
    let mut at = 0;
    while at < chain.len() {
        let mut functions = chain[at..].iter().filter_map(|id| tree.node(*id).function);
        // The functions at both ends of a chain are not folded: the tree branches there, or the
        // last one allocates.
        let inner = functions.clone().take((chain.len() - at).saturating_sub(1));
        if !limits.unfold
            && at > 0
            && let Some((name, length)) = labels.unnamed(inner)
        {
            lines.push((String::new(), name));
            at += length;
            continue;
        }
        if let Some(function) = functions.next() {
            let location = tree.node(chain[at]).location.as_ref();
            lines.push((labels.function(function), labels.place(function, location)));
        }
        at += 1;
    }
    if !limits.unfold && lines.len() > CHAIN_START + CHAIN_END + CHAIN_SAVED {
        let end = lines.len() - CHAIN_END;
        lines.splice(CHAIN_START..end, [(String::new(), format!("⋮ {} more", end - CHAIN_START))]);
    }
    lines.into_iter().fold(Row::default(), |row, (text, note)| row.line(text, note))
}

/// The object that `--json` prints: a list, because deep stacks make a tree that few parsers would
/// take.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TreeJson {
    direction: &'static str,
    #[serde(flatten)]
    selection: SelectionJson,
    total: AmountJson,
    /// The amount that the selection leaves out.
    left_out: AmountJson,
    /// The nodes in preorder.
    nodes: Vec<NodeJson>,
}

impl Document for TreeJson {
    const SCHEMA: &'static str = "tree";
    const ROWS: Option<&'static str> = Some("nodes");
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct NodeJson {
    id: usize,
    /// The parent's `id`; `null` for the outermost nodes.
    parent: Option<usize>,
    depth: usize,
    #[serde(flatten)]
    amount: AmountJson,
    share: f64,
    /// The amount held by stacks that end here.
    own: AmountJson,
    #[serde(flatten)]
    frame: FrameJson,
}

pub(crate) fn json(
    question: &Question<'_, '_>,
    profile: &Profile,
    tree: &CallTree,
    limits: &Limits,
    bottom_up: bool,
) -> TreeJson {
    let (labels, metric, moment) = (&question.labels, question.metric, question.selection.moment);
    let whole = tree.node(CallId::ROOT).amount;
    let mut nodes = Vec::new();
    let mut open: Vec<(usize, Option<usize>, CallId)> = Vec::new();
    let children = |id: CallId, depth: usize, parent: Option<usize>, open: &mut Vec<_>| {
        let mut items = Vec::new();
        expand(tree, id, depth, limits, metric, &mut items);
        open.extend(items.into_iter().filter_map(|(depth, item)| match item {
            Item::Node(child) => Some((depth, parent, child)),
            Item::LeftOut { .. } | Item::Deeper { .. } => None,
        }));
    };
    children(CallId::ROOT, 0, None, &mut open);
    while let Some((depth, parent, at)) = open.pop() {
        let node = tree.node(at);
        let id = nodes.len();
        if let Some(function) = node.function {
            let frame = heapledger_analysis::Frame { function, location: node.location.clone(), inlined: node.inlined };
            nodes.push(NodeJson {
                id,
                parent,
                depth,
                amount: AmountJson::new(&node.amount, moment),
                share: node.amount.share(&whole, metric),
                own: AmountJson::new(&node.own, moment),
                frame: labels.frame(&frame),
            });
        }
        children(at, depth + 1, Some(id), &mut open);
    }
    TreeJson {
        direction: if bottom_up { "bottom-up" } else { "top-down" },
        selection: SelectionJson::new(&question.selection, metric),
        total: AmountJson::new(&whole, moment),
        left_out: AmountJson::new(&profile.left_out, moment),
        nodes,
    }
}
