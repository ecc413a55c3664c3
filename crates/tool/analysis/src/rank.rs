//! Groups of sites, sorted by amount.

use std::collections::HashMap;

use heapledger_recording::{ModuleId, TextId};

use crate::amount::{Amount, Metric, order};
use crate::block_types::{TypeBy, TypeId};
use crate::functions::{Frame, FunctionId};
use crate::names::Names;
use crate::profile::Profile;
use crate::stacks::{ContextId, NodeId, Scope, Stacks};

/// The property by which sites are grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RankBy {
    /// No grouping: each stack by itself, apart by its context and heap.
    #[default]
    Site,
    /// The program's own function that the memory is for: see [`Owner`](crate::Owner).
    Owner,
    /// The source line in that function.
    Line,
    /// The source file of that function.
    File,
    /// The innermost function that is not an allocator.
    Function,
    /// The module of that function.
    Module,
    /// All scopes of the program that the thread was in.
    Context,
    /// The name of the innermost of these scopes.
    Scope,
    /// The innermost of these scopes that is a task.
    Task,
    /// The heap of the program's own.
    Heap,
    /// The type of the blocks.
    Type(TypeBy),
    /// The [part](crate::Part) of sites that are kept [split](crate::PartSplit).
    Part,
}

/// The property that the sites of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// The stack.
    Site(NodeId),
    /// The program's own function.
    Owner(FunctionId),
    /// The `file:line`, or the function if no line is known.
    Line(FunctionId),
    /// The source file, or the module if no file is known.
    File(FunctionId),
    /// The function.
    Function(FunctionId),
    /// The module.
    Module(ModuleId),
    /// The context.
    Context(ContextId),
    /// The name of a scope; `None` if the sites are in no scope.
    Scope(Option<TextId>),
    /// The task; `None` if the sites are in no task.
    Task(Option<Scope>),
    /// The name of the heap; `None` if the blocks are in no heap of the program's own.
    Heap(Option<TextId>),
    /// The type.
    Type(TypeId),
    /// The label of a part; `None` if parts are not kept apart.
    Part(Option<FunctionId>),
}

/// A group of sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// The property that they have in common.
    pub key: Key,
    /// The amount that they hold together.
    pub amount: Amount,
    /// The number of sites.
    pub sites: usize,
    /// The stack of the site that holds the most.
    pub largest: NodeId,
    /// The frame after which the group is named: the owner or the first useful frame of the largest
    /// site. For contexts, heaps and types, a label in its place.
    pub frame: Frame,
}

/// Returns the groups that hold something, the largest first. Of equals, the one comes first that
/// has the first site: ids of functions depend on what was looked up before.
pub fn rank(profile: &Profile, names: &mut Names<'_, '_>, by: RankBy, metric: Metric) -> Vec<Rank> {
    let mut ranks: Vec<(Rank, u64)> = Vec::new();
    let mut places: HashMap<Key, usize> = HashMap::new();
    for site in &profile.sites {
        let own = site.amount.by(metric);
        if own == 0 && metric != Metric::Bytes {
            continue;
        }
        let (key, frame) = group(names, &profile.stacks, (site.stack, site.part), by);
        let at = *places.entry(key).or_insert(ranks.len());
        if at == ranks.len() {
            let amount = Amount::default();
            ranks.push((Rank { key, amount, sites: 0, largest: site.stack, frame }, own));
        } else if own > ranks[at].1 {
            ranks[at].1 = own;
            ranks[at].0.largest = site.stack;
            ranks[at].0.frame = frame;
        }
        ranks[at].0.amount += site.amount;
        ranks[at].0.sites += 1;
    }
    let mut ranks: Vec<Rank> = ranks.into_iter().map(|(rank, _)| rank).collect();
    ranks.sort_by(|a, b| order(&b.amount, &a.amount, metric));
    ranks
}

impl Profile {
    /// Keeps only the sites of one of the groups that [`rank`] returns for the same property.
    pub fn keep_group(&mut self, names: &mut Names<'_, '_>, by: RankBy, key: Key) {
        let Profile { stacks, sites, whole, .. } = self;
        sites.retain(|site| group(names, stacks, (site.stack, site.part), by).0 == key);
        *whole = Amount::default();
        sites.iter().for_each(|site| *whole += site.amount);
    }
}

/// Returns the group of a site, which is a stack and the label of a part, and the frame after which
/// the group is named.
pub(crate) fn group(
    names: &mut Names<'_, '_>,
    stacks: &Stacks,
    (stack, part): (NodeId, Option<FunctionId>),
    by: RankBy,
) -> (Key, Frame) {
    let (key, label) = match by {
        RankBy::Owner | RankBy::Line | RankBy::File => {
            let frame = names.owner(stacks, stack).frame;
            let key = match by {
                RankBy::Owner => Key::Owner(frame.function),
                RankBy::Line => Key::Line(names.line_of(&frame)),
                _ => Key::File(names.file_of(&frame)),
            };
            return (key, frame);
        }
        RankBy::Site | RankBy::Function | RankBy::Module => {
            let frame = names.useful_frame(stacks, stack);
            let key = match by {
                RankBy::Site => Key::Site(stack),
                RankBy::Function => Key::Function(frame.function),
                _ => Key::Module(names.function(frame.function).module),
            };
            return (key, frame);
        }
        RankBy::Type(by) => {
            let (id, frame) = names.type_of(stacks, stack, by);
            return (Key::Type(id), frame);
        }
        RankBy::Part => {
            let label = part.unwrap_or_else(|| names.label("(all)").function);
            return (Key::Part(part), Frame::named(label));
        }
        RankBy::Context => {
            let context = stacks.context(stack);
            (Key::Context(context), names.context(stacks, context))
        }
        RankBy::Scope => {
            let name = stacks.scopes(stacks.context(stack)).last().map(|scope| scope.name);
            (Key::Scope(name), names.innermost(name))
        }
        RankBy::Task => {
            let task = stacks.task(names, stacks.context(stack));
            (Key::Task(task), names.task(task))
        }
        RankBy::Heap => {
            let heap = stacks.heap(stack);
            (Key::Heap(heap), names.heap(heap))
        }
    };
    (key, names.label(&label))
}
