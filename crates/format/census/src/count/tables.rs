//! The tables of groups that a census fills.

use std::cmp::Reverse;
use std::rc::Rc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::breakdown::Breakdown;
use crate::graph::{AllocationStack, CoarseType, Graph, Name, NodeIndex};
use crate::result::{CensusValue, Figures, FrameNumbers, ReportFrames, StackId, StackKey, sort_as_javascript};

/// All groups of a census. A group is named by its position in `groups`.
pub(super) struct Tables<'a> {
    graph: &'a Graph,
    groups: Vec<Group<'a>>,
    frames: ReportFrames,
    /// The numbers of the graph's frames, if the breakdown asks for stacks.
    frame_numbers: Option<FrameNumbers>,
}

/// A group, or the whole census.
struct Group<'a> {
    /// The breakdown within it.
    breakdown: &'a Breakdown,
    count: u64,
    id_min: u64,
    within: Within<'a>,
}

/// The inside of a group. Groups are named by their positions.
enum Within<'a> {
    Count {
        bytes: u64,
    },
    Bucket(Vec<NodeIndex>),
    /// By coarse type, in the order of the numbers of `CoarseType`.
    Coarse([u32; 5]),
    Named {
        property: fn(&Graph, NodeIndex) -> Option<Name>,
        table: Table,
        then: &'a Breakdown,
        rest: Option<u32>,
    },
    Stacks {
        table: Table,
        then: &'a Breakdown,
        rest: u32,
    },
    All(Rc<[u32]>),
}

/// Groups by the number of a name or of a stack.
type Table = HashMap<u32, u32, RandomState>;

/// The number of the empty stack. Graphs have no frame with this number.
const EMPTY_STACK: u32 = u32::MAX;

impl<'a> Tables<'a> {
    pub(super) fn new(graph: &'a Graph, breakdown: &'a Breakdown) -> Tables<'a> {
        let mut frames = ReportFrames::default();
        let frame_numbers = asks_for_stacks(breakdown).then(|| FrameNumbers::of(graph, &mut frames));
        let mut tables = Tables { graph, groups: Vec::new(), frames, frame_numbers };
        tables.add_group(breakdown);
        tables
    }

    /// Counts a node.
    pub(super) fn add(&mut self, node: NodeIndex) {
        self.add_to(0, node);
    }

    fn add_to(&mut self, mut position: u32, node: NodeIndex) {
        let graph = self.graph;
        loop {
            let group = &mut self.groups[position as usize];
            group.count += 1;
            group.id_min = group.id_min.min(graph.id(node).0);
            let (key, then) = match &mut group.within {
                Within::Count { bytes } => {
                    *bytes += graph.size(node);
                    return;
                }
                Within::Bucket(nodes) => {
                    nodes.push(node);
                    return;
                }
                Within::Coarse(inner) => {
                    position = inner[graph.coarse_type(node) as usize];
                    continue;
                }
                Within::All(inner) => {
                    for &inner in &*Rc::clone(inner) {
                        self.add_to(inner, node);
                    }
                    return;
                }
                Within::Named { property, table, then, rest } => match (property(graph, node), *rest) {
                    (Some(Name(key)), _) => match table.get(&key) {
                        Some(&known) => {
                            position = known;
                            continue;
                        }
                        None => (key, *then),
                    },
                    (None, Some(rest)) => {
                        position = rest;
                        continue;
                    }
                    // The property is one that all nodes have.
                    (None, None) => return,
                },
                Within::Stacks { table, then, rest } => match graph.stack(node) {
                    Some(stack) => {
                        let key = match (stack, &self.frame_numbers) {
                            (AllocationStack::At(frame), Some(numbers)) => numbers.of_frame(frame).0,
                            _ => EMPTY_STACK,
                        };
                        match table.get(&key) {
                            Some(&known) => {
                                position = known;
                                continue;
                            }
                            None => (key, *then),
                        }
                    }
                    None => {
                        position = *rest;
                        continue;
                    }
                },
            };
            let new = self.add_group(then);
            if let Within::Named { table, .. } | Within::Stacks { table, .. } =
                &mut self.groups[position as usize].within
            {
                table.insert(key, new);
            }
            position = new;
        }
    }

    /// Adds an empty group, with the groups within it that are always there.
    fn add_group(&mut self, breakdown: &'a Breakdown) -> u32 {
        let position = self.groups.len() as u32;
        self.groups.push(Group { breakdown, count: 0, id_min: u64::MAX, within: Within::Count { bytes: 0 } });
        let named = |property, then, rest| Within::Named { property, table: Table::default(), then, rest };
        let within = match breakdown {
            Breakdown::Count { .. } => Within::Count { bytes: 0 },
            Breakdown::Bucket => Within::Bucket(Vec::new()),
            Breakdown::CoarseType(types) => {
                let of = |coarse_type| match coarse_type {
                    CoarseType::Other => &types.other,
                    CoarseType::Object => &types.objects,
                    CoarseType::Script => &types.scripts,
                    CoarseType::String => &types.strings,
                    CoarseType::DomNode => &types.dom_node,
                };
                Within::Coarse(CoarseType::ALL.map(|coarse_type| self.add_group(of(coarse_type))))
            }
            Breakdown::ObjectClass { then, other } => named(Graph::class, then, Some(self.add_group(other))),
            Breakdown::InternalType { then } => named(|graph, node| Some(graph.type_name(node)), then, None),
            Breakdown::DescriptiveType { then, other } => {
                named(Graph::descriptive_name, then, Some(self.add_group(other)))
            }
            Breakdown::Filename { then, no_filename } => {
                named(Graph::script_file, then, Some(self.add_group(no_filename)))
            }
            Breakdown::AllocationStack { then, no_stack } => {
                Within::Stacks { table: Table::default(), then, rest: self.add_group(no_stack) }
            }
            Breakdown::All(list) => Within::All(list.iter().map(|inner| self.add_group(inner)).collect()),
        };
        self.groups[position as usize].within = within;
        position
    }

    /// Returns the value of the whole census, and the frames of its stacks.
    pub(super) fn finish(self) -> (CensusValue, ReportFrames) {
        (self.value(0), self.frames)
    }

    fn value(&self, position: u32) -> CensusValue {
        let group = &self.groups[position as usize];
        match &group.within {
            Within::Count { bytes } => CensusValue::Count(figures(group, *bytes)),
            Within::Bucket(nodes) => CensusValue::Bucket(nodes.iter().map(|&node| self.graph.id(node)).collect()),
            Within::Coarse(inner) => {
                let [other, objects, scripts, strings, dom_node] = inner.map(|inner| self.value(inner));
                let keyed = [
                    ("objects", objects),
                    ("scripts", scripts),
                    ("strings", strings),
                    ("other", other),
                    ("domNode", dom_node),
                ];
                let groups = keyed.into_iter().map(|(key, value)| (Box::from(key), value)).collect();
                CensusValue::Groups { groups, rest: None }
            }
            Within::Named { table, rest, .. } => self.named_value(group, table, *rest),
            Within::Stacks { table, rest, .. } => {
                let mut groups: Vec<(StackKey, CensusValue)> = self
                    .in_order(table)
                    .into_iter()
                    .map(|(key, inner)| {
                        let key = if key == EMPTY_STACK { StackKey::Empty } else { StackKey::Stack(StackId(key)) };
                        (key, self.value(inner))
                    })
                    .collect();
                if self.groups[*rest as usize].count > 0 {
                    groups.push((StackKey::NoStack, self.value(*rest)));
                }
                CensusValue::Stacks(groups)
            }
            Within::All(inner) => CensusValue::All(inner.iter().map(|&inner| self.value(inner)).collect()),
        }
    }

    fn named_value(&self, group: &Group<'_>, table: &Table, rest: Option<u32>) -> CensusValue {
        let mut groups: Vec<(Box<str>, CensusValue)> = self
            .in_order(table)
            .into_iter()
            .map(|(key, inner)| (Box::from(self.graph.text(Name(key))), self.value(inner)))
            .collect();
        sort_as_javascript(&mut groups);
        let rest_key = match group.breakdown {
            Breakdown::Filename { .. } => "noFilename",
            _ => "other",
        };
        // The engine has no rest by descriptive name, so there is none unless it is needed.
        let is_shown = |rest: &u32| {
            !matches!(group.breakdown, Breakdown::DescriptiveType { .. }) || self.groups[*rest as usize].count > 0
        };
        let rest = rest.filter(is_shown).map(|rest| (rest_key, Box::new(self.value(rest))));
        CensusValue::Groups { groups, rest }
    }

    /// Returns the keys and groups of a table, the one with the highest lowest id first.
    fn in_order(&self, table: &Table) -> Vec<(u32, u32)> {
        let mut groups: Vec<(u32, u32)> = table.iter().map(|(&key, &group)| (key, group)).collect();
        groups.sort_unstable_by_key(|&(_, group)| Reverse(self.groups[group as usize].id_min));
        groups
    }
}

fn figures(group: &Group<'_>, bytes_sum: u64) -> Figures {
    let signed = |sum| i64::try_from(sum).unwrap_or(i64::MAX);
    let Breakdown::Count { count, bytes, label } = group.breakdown else { return Figures::default() };
    Figures {
        count: count.then(|| signed(group.count)),
        bytes: bytes.then(|| signed(bytes_sum)),
        label: label.as_deref().map(Box::from),
    }
}

fn asks_for_stacks(breakdown: &Breakdown) -> bool {
    matches!(breakdown, Breakdown::AllocationStack { .. }) || breakdown.children().into_iter().any(asks_for_stacks)
}
