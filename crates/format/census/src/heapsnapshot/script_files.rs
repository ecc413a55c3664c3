//! The script files of functions, by the edges from closures to their scripts.

use super::meta::Layout;
use super::raw::{RawEdges, RawNodes};
use crate::graph::{ABSENT, Column, EdgeKind, Name, Names};

/// Returns the column of the files of scripts: for scripts, for what the closures
/// of a function share, and for closures.
///
/// A closure has an edge `shared`, and what it leads to has an edge to the script, which is called
/// `script_or_debug_info` since 2019. `strings` are the names of the file's strings.
pub(super) fn script_files(
    layout: &Layout,
    nodes: &RawNodes,
    edges: &RawEdges,
    strings: &[Name],
    names: &Names,
) -> Column {
    let mut files = vec![ABSENT; nodes.count()];
    let named = |texts: &[&str]| -> Vec<Name> {
        let named = names.iter().filter(|it| texts.contains(&it.1));
        named.map(|it| it.0).collect()
    };
    let of_type = |name: &str| -> Vec<bool> { layout.node_types.iter().map(|it| it == name).collect() };
    let (closures, codes) = (of_type("closure"), of_type("code"));
    let (to_shared, to_script) = (named(&["shared"]), named(&["script", "script_or_debug_info"]));
    let is = |types: &[bool], node: usize| types[usize::from(nodes.types[node])];
    let internal = |node: usize, called: &[Name]| {
        let found = nodes.edges(node).find(|&it| {
            layout.edge_types[usize::from(edges.types[it])].0 == EdgeKind::Internal
                && strings.get(edges.names[it] as usize).is_some_and(|it| called.contains(it))
        });
        found.map(|it| edges.targets[it].index())
    };
    for node in (0..nodes.count()).filter(|&it| is(&codes, it)) {
        let script = internal(node, &to_script).filter(|&it| is(&codes, it));
        if let Some(script) = script {
            let file = strings.get(nodes.names[script] as usize).copied().filter(|&it| is_path(names.text(it)));
            if let Some(file) = file {
                (files[script], files[node]) = (file.0, file.0);
            }
        }
    }
    for node in (0..nodes.count()).filter(|&it| is(&closures, it)) {
        if let Some(shared) = internal(node, &to_shared) {
            files[node] = files[shared];
        }
    }
    files
}

/// V8 names its own data in the place of scripts, such as `system / DebugInfo`.
fn is_path(name: &str) -> bool {
    !name.is_empty() && !name.starts_with("system / ") && !name.starts_with('(')
}
