//! A tree of calls as columns. The viewer's server has the encoder for the bytes that pages take.

use crate::amount::Metric;
use crate::functions::{FunctionId, Location};
use crate::layers::Direction;
use crate::moment::Moment;

/// The tree of calls that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnRequest {
    /// The moment, which the table must [know](super::SiteTable::knows).
    pub moment: Moment,
    /// The figures of each call. The first one also orders the calls, and is the one that `least`
    /// is a share of. With none, the answer is empty.
    pub metrics: Vec<Metric>,
    /// The least share of the whole, from 0 to 1, that a call must have to be in the tree.
    pub least: f64,
    /// The direction of the tree.
    pub direction: Direction,
}

/// A tree of calls in columns, with a row for each call. A call comes before those inside of it,
/// the largest of which comes first. Row 0 is the root.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallColumns {
    /// The metrics, as they were asked for.
    pub metrics: Vec<Metric>,
    /// The number of calls that each call is inside of; 0 for the root alone.
    pub depths: Vec<u32>,
    /// The index in `names` of each call.
    pub names_of: Vec<u32>,
    /// For each metric, the figure of the stacks that end at each call.
    pub own: Vec<Vec<u64>>,
    /// The names, each once. The first one is the root's.
    pub names: Vec<ColumnName>,
    /// The figures of all calls together, for each metric.
    pub total: Vec<u64>,
    /// The calls that are not in the tree because they are too small.
    pub cut: Cut,
}

/// The name of calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ColumnName {
    /// The root.
    Root,
    /// A function, and the place in it if all stacks of the table agree on it.
    Function(FunctionId, Option<Location>),
    /// Calls that were cut, in place of which their caller has one row with their sum. So the
    /// figures of a call and of all calls inside of it are not changed by the cut.
    Smaller,
}

/// Calls that were left out of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// The number of calls. Calls inside of them are not counted if the tree is bottom-up.
    pub nodes: u64,
    /// Their figures, for each metric.
    pub figures: Vec<u64>,
}
