//! The result of a census: a value for each breakdown, in the shape that the engine gives it.
//!
//! Written as JSON, a result is as the engine's after `JSON.stringify`, except for maps by stack,
//! which become arrays of pairs: the frames, innermost first, and the value of that stack.

mod frames;
mod json;
#[cfg(test)]
mod tests;

pub(crate) use frames::FrameNumbers;
pub use frames::{ReportFrame, ReportFrames, StackId};

use crate::breakdown::Breakdown;
use crate::graph::NodeId;

/// The result of a census.
#[derive(Clone, Debug)]
pub struct Census {
    /// The breakdown, which says how to read the value.
    pub breakdown: Breakdown,
    /// The value of the whole breakdown.
    pub value: CensusValue,
    /// The frames of the stacks in the value.
    pub frames: ReportFrames,
    /// The number of nodes that were counted.
    pub count: u64,
    /// The number of counted nodes whose size is not known. Their sizes count as 0.
    pub sizes_unknown: u64,
}

/// The value of a breakdown.
///
/// Groups are in the engine's order: the group whose lowest id is the highest comes first. Keys
/// that are indexes of arrays come before all others, in numeric order, as in every JavaScript
/// object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CensusValue {
    /// The figures of a group.
    Count(Figures),
    /// The ids of the nodes, in the order of the census.
    Bucket(Vec<NodeId>),
    /// Groups by a text, and the nodes that belong to none of them.
    Groups {
        /// The groups.
        groups: Vec<(Box<str>, CensusValue)>,
        /// The rest, with its key.
        rest: Option<(&'static str, Box<CensusValue>)>,
    },
    /// Groups by stack.
    Stacks(Vec<(StackKey, CensusValue)>),
    /// The values of an array of breakdowns.
    All(Vec<CensusValue>),
}

/// The figures of a group, as far as its breakdown asks for them.
///
/// They are negative in differences. Sums of 2^63 bytes and more are given as 2^63 - 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The number of nodes.
    pub count: Option<i64>,
    /// The sum of their sizes in bytes.
    pub bytes: Option<i64>,
    /// The label of the breakdown.
    pub label: Option<Box<str>>,
}

/// The key of a group by stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StackKey {
    /// A stack of the result's frames.
    Stack(StackId),
    /// The empty stack: no function was running. Its key in JSON is `null`.
    Empty,
    /// No stack was recorded. Its key in JSON is `"noStack"`.
    NoStack,
}

/// A reference to a value in a result, with the way that leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKey<'a> {
    /// The key of a group.
    Group(&'a str),
    /// The key of the nodes that belong to no group.
    Rest(&'static str),
    /// A stack, or none.
    Stack(StackKey),
    /// A position in an array of breakdowns.
    Position(usize),
}

impl CensusValue {
    /// Iterates over the values of the groups, in order.
    pub fn children(&self) -> Vec<(ValueKey<'_>, &CensusValue)> {
        match self {
            CensusValue::Count(_) | CensusValue::Bucket(_) => Vec::new(),
            CensusValue::Groups { groups, rest } => {
                let groups = groups.iter().map(|(key, value)| (ValueKey::Group(key), value));
                groups.chain(rest.iter().map(|(key, value)| (ValueKey::Rest(key), &**value))).collect()
            }
            CensusValue::Stacks(groups) => groups.iter().map(|(key, value)| (ValueKey::Stack(*key), value)).collect(),
            CensusValue::All(values) => {
                values.iter().enumerate().map(|(at, value)| (ValueKey::Position(at), value)).collect()
            }
        }
    }

    /// Returns the values without groups, in the order of a depth-first walk.
    pub fn leaves(&self) -> Vec<&CensusValue> {
        let mut leaves = Vec::new();
        // The depth is bounded, as that of breakdowns is.
        fn walk<'a>(value: &'a CensusValue, leaves: &mut Vec<&'a CensusValue>) {
            match value {
                CensusValue::Count(_) | CensusValue::Bucket(_) => leaves.push(value),
                _ => value.children().into_iter().for_each(|(_, child)| walk(child, leaves)),
            }
        }
        walk(self, &mut leaves);
        leaves
    }

    /// True if all figures are 0 and all lists of ids empty.
    pub fn is_zero(&self) -> bool {
        self.leaves().into_iter().all(|leaf| match leaf {
            CensusValue::Count(figures) => figures.count.unwrap_or(0) == 0 && figures.bytes.unwrap_or(0) == 0,
            CensusValue::Bucket(ids) => ids.is_empty(),
            _ => true,
        })
    }
}

/// Moves keys that are indexes of arrays to the front, as in every JavaScript object. All others
/// stay in their order.
pub(crate) fn sort_as_javascript(groups: &mut [(Box<str>, CensusValue)]) {
    groups.sort_by_key(|(key, _)| array_index(key).map_or((true, 0), |index| (false, index)));
}

/// Returns the place of a key among the keys of a JavaScript object that come first: the number, if
/// the text is the canonical form of an index of arrays.
pub(crate) fn array_index(key: &str) -> Option<u32> {
    let is_canonical = key == "0" || (key.len() <= 10 && !key.starts_with('0'));
    let is_number = !key.is_empty() && key.bytes().all(|it| it.is_ascii_digit());
    let number = if is_canonical && is_number { key.parse().ok()? } else { return None };
    (number != u32::MAX).then_some(number)
}
