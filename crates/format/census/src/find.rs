//! Views that find what is suspicious in a heap: large retainers, equal strings, strings that keep
//! larger ones, closures that keep contexts, detached DOM, unreachable nodes, global objects.

mod closures;
mod dom;
mod globals;
mod kinds;
mod retainers;
mod strings;
#[cfg(test)]
mod tests;
mod unreachable;

use std::fmt;

pub use closures::{Closures, Variable, closures, context_variables};
pub use dom::{DetachedNode, detached_dom};
pub use globals::{GlobalTotals, Globals};
pub use kinds::{Kind, KindTotals, kinds};
pub use retainers::{ClassTotals, class_totals, largest_retainers};
pub use strings::{
    Concatenation, DuplicateString, KeptString, STRING_UNITS_MAX, concatenations, duplicate_strings, kept_strings,
};
pub use unreachable::unreachable;

use crate::graph::{Graph, Name};

/// A fact that the source of a graph does not give: the view has no answer, which is not an empty
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAvailable {
    /// The characters of strings.
    StringContents,
    /// The relation of DOM nodes to their documents.
    Detachedness,
    /// The contexts of closures.
    Contexts,
    /// The global objects to which nodes belong.
    Globals,
}

impl fmt::Display for NotAvailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NotAvailable::StringContents => "the snapshot does not have the characters of strings",
            NotAvailable::Detachedness => "the snapshot does not say which DOM nodes are detached",
            NotAvailable::Globals => "the snapshot does not say to which global object nodes belong",
            NotAvailable::Contexts => "the snapshot does not name the contexts of closures",
        })
    }
}

impl std::error::Error for NotAvailable {}

/// Returns the name of a text, if the graph has it. Takes O(length of all names).
fn name_of(graph: &Graph, text: &str) -> Option<Name> {
    graph.names().iter().find(|(_, it)| *it == text).map(|(name, _)| name)
}
