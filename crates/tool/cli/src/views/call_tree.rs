//! Trees of calls: their levels, the limits on what is shown of them, and their JSON.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use heapledger_analysis::{
    Amount, CallId, CallTree, Direction, Frame, Layer, Metric, PartBy, PartSplit, Profile, RankBy,
};
use serde::Serialize;

use crate::args::{By, Rows};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::json::amounts::AmountJson;
use crate::json::document::Document;
use crate::json::names::FrameJson;
use crate::json::selection::SelectionJson;
use crate::question::Question;
use crate::views::parts::part_labels;

/// The levels of a tree, from the outermost to the innermost.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    /// The levels, each once.
    pub(crate) layers: Vec<Layer>,
    /// Their names, as the command line has them.
    names: Vec<&'static str>,
    /// The parts among the levels, which only events provide.
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
                levels.names.push(word.name());
            }
        }
        Ok(levels)
    }

    /// Returns the shape of a tree with these levels.
    pub(crate) fn shape(&self, is_bottom_up: bool) -> TreeShape {
        TreeShape { is_bottom_up, by: self.names.clone() }
    }

    /// Returns the tree with these levels, and the profile that it is of. With `least`, calls may
    /// be missing in it that have less than this share of the whole, and the profile's sites.
    pub(crate) fn tree(
        &self,
        question: &mut Question<'_, '_>,
        direction: Direction,
        least: Option<f64>,
    ) -> Result<(Profile, CallTree)> {
        let is_of_stacks = self.layers == [Layer::Stack] && direction == Direction::TopDown;
        let least = least.filter(|_| is_of_stacks);
        let mut profile = if least.is_some() { question.sums()? } else { self.profile(question)? };
        if let (Some((table, set)), Some(least)) = (question.kept_sites(), least) {
            if let Some(tree) = table.call_tree(&set, question.selection.moment, question.metric, least) {
                return Ok((profile, tree));
            }
            profile = self.profile(question)?;
        }
        let tree = CallTree::new(&profile, &mut question.labels.names, &self.layers, direction, question.metric);
        Ok((profile, tree))
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

/// The direction and the levels of a tree.
#[derive(Debug)]
pub(crate) struct TreeShape {
    is_bottom_up: bool,
    by: Vec<&'static str>,
}

/// The limits on the nodes that are shown.
#[derive(Debug)]
pub(crate) struct Limits {
    /// The most levels.
    pub(crate) depth: usize,
    /// The least share of the whole that a node must have.
    pub(crate) least: f64,
    /// True if the middle of long chains is shown, too.
    pub(crate) unfold: bool,
    /// The only nodes that are shown, if not all are.
    pub(crate) shown: Option<HashSet<CallId>>,
}

impl Limits {
    /// Limits that leave nothing out.
    pub(crate) const NONE: Limits = Limits { depth: usize::MAX, least: 0.0, unfold: true, shown: None };

    /// Limits the tree to this many rows, the largest ones. A row is a chain of calls.
    pub(crate) fn keep_rows(&mut self, rows: usize, tree: &CallTree, metric: Metric) {
        if rows == 0 {
            return;
        }
        let (mut shown, mut open) = (HashSet::new(), BinaryHeap::new());
        let offer = |id: CallId, depth: usize, open: &mut BinaryHeap<_>| {
            let mut items = Vec::new();
            Shown { tree, limits: self, metric }.expand(id, depth, &mut items);
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

/// A tree, and what is shown of it.
#[derive(Clone, Copy)]
pub(crate) struct Shown<'t> {
    pub(crate) tree: &'t CallTree,
    pub(crate) limits: &'t Limits,
    pub(crate) metric: Metric,
}

impl Shown<'_> {
    /// Pushes the children of a node onto the list, the first one last.
    pub(crate) fn expand(&self, id: CallId, depth: usize, open: &mut Vec<(usize, Item)>) {
        let Shown { tree, limits, metric } = *self;
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
}

/// A row of a tree that is still to be printed.
pub(crate) enum Item {
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

/// Returns a node and the chain of only children below it through which its whole amount goes.
pub(crate) fn chain(tree: &CallTree, top: CallId) -> Vec<CallId> {
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

/// The object that `--json` prints: a list, because deep stacks make a tree that few parsers would
/// take.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TreeJson {
    direction: &'static str,
    /// The levels above the functions, the outermost first: the words of `--by`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    by: Vec<&'static str>,
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

/// Returns the document that `--json` prints.
pub(crate) fn json(
    question: &Question<'_, '_>,
    profile: &Profile,
    tree: &CallTree,
    limits: &Limits,
    shape: TreeShape,
) -> TreeJson {
    let (labels, metric, moment) = (&question.labels, question.metric, question.selection.moment);
    let shown = Shown { tree, limits, metric };
    let whole = tree.node(CallId::ROOT).amount;
    let mut nodes = Vec::new();
    let mut open: Vec<(usize, Option<usize>, CallId)> = Vec::new();
    let children = |id: CallId, depth: usize, parent: Option<usize>, open: &mut Vec<_>| {
        let mut items = Vec::new();
        shown.expand(id, depth, &mut items);
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
            let frame = Frame { function, location: node.location.clone(), inlined: node.inlined };
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
        direction: if shape.is_bottom_up { "bottom-up" } else { "top-down" },
        by: shape.by,
        selection: SelectionJson::of(question),
        total: AmountJson::new(&whole, moment),
        left_out: AmountJson::new(&profile.left_out, moment),
        nodes,
    }
}
