//! The nodes of a graph by the stack that allocated them, their type, and their script.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::count::{CensusOptions, walk};
use crate::graph::{AllocationStack, CoarseType, Graph, Name, NodeIndex};

/// The nodes that have the same stack, type and script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The stack that allocated them, if it was recorded.
    pub stack: Option<AllocationStack>,
    /// Their coarse type.
    pub coarse_type: CoarseType,
    /// Their class; of DOM nodes their name; of others, the engine's name for their type.
    pub type_name: Name,
    /// Their script, if the source knows it.
    pub script_file: Option<Name>,
    /// The number of nodes.
    pub count: u64,
    /// The sum of their sizes in bytes.
    pub bytes: u64,
}

/// Returns the nodes that a census counts, by stack, type and script, in the order in which a
/// census meets the first of each.
///
/// Takes O(nodes + edges) time, and memory for each result beside that of a census.
pub fn sites(graph: &Graph) -> Vec<Site> {
    let mut sites: Vec<Site> = Vec::new();
    let mut known: HashMap<_, usize, RandomState> = HashMap::default();
    walk(graph, CensusOptions::default(), |node| {
        let (stack, coarse_type) = (graph.stack(node), graph.coarse_type(node));
        let (type_name, script_file) = (type_of(graph, node), graph.script_file(node));
        let at = *known.entry((stack, coarse_type, type_name, script_file)).or_insert(sites.len());
        if at == sites.len() {
            sites.push(Site { stack, coarse_type, type_name, script_file, count: 0, bytes: 0 });
        }
        sites[at].count += 1;
        sites[at].bytes += graph.size(node);
    });
    sites
}

fn type_of(graph: &Graph, node: NodeIndex) -> Name {
    let name = match graph.coarse_type(node) {
        CoarseType::Object => graph.class(node),
        CoarseType::DomNode => graph.descriptive_name(node),
        CoarseType::Script | CoarseType::String | CoarseType::Other => None,
    };
    name.unwrap_or_else(|| graph.type_name(node))
}

#[cfg(test)]
mod tests;
