//! The file of a snapshot.

use std::fs::File;
use std::path::Path;

use heapledger_census::graph::{Graph, NodeId, NodeIndex};
use heapledger_census::{ReadError, read};

use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::text::quoted;

/// Reads a snapshot.
pub(super) fn read(path: &Path) -> Result<Graph> {
    let what = format!("cannot read `{}`", path.display());
    let file = File::open(path).map_err(|error| Failure::caused(Exit::Unreadable, &what, error))?;
    read::read(file).map_err(|error| {
        let hint = match error {
            ReadError::Io(error) => return Failure::caused(Exit::Unreadable, &what, error),
            ReadError::Profile => format!("its stacks are read by: heapledger top {}", quoted(&path.to_string_lossy())),
            ReadError::Malformed { .. } => "`heapledger help heap` says which files these verbs read".to_owned(),
        };
        Failure::caused(Exit::Unreadable, &what, error).hint(hint)
    })
}

/// Returns the node with an id.
pub(super) fn find(graph: &Graph, id: u64) -> Result<NodeIndex> {
    graph.find(NodeId(id)).ok_or_else(|| {
        Failure::new(Exit::Usage, format_args!("the snapshot has no node {id}"))
            .hint("`heapledger heap find` and `heapledger heap dominators` print ids, after an @")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_refused_for_one_reason() {
        let said = read(Path::new("/")).unwrap_err().to_string();
        assert_eq!(said.matches("caused by").count(), 1, "{said}");
    }
}
