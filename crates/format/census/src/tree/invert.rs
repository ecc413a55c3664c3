//! The inverted tree: the innermost groups on top, and below each the groups that contain it.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use super::{CensusTree, Row, RowName, RowOrder};
use crate::result::ReportFrame;

/// The maximum depth of an inverted tree. Stacks of snapshots are cut at 60 frames by Firefox.
pub const INVERTED_DEPTH_MAX: usize = 500;

/// The name of a row among its siblings: two frames are the same if only their callers differ.
#[derive(PartialEq, Eq, Hash)]
enum Key<'a> {
    Frame(Option<&'a str>, u32, u32, Option<&'a str>),
    Other(&'a RowName),
}

impl<'a> CensusTree<'a> {
    /// Returns the inverted tree, in the order of [`RowOrder::Own`].
    ///
    /// Each row that has figures of its own becomes a row below the root. The rows below it are
    /// those that were above it, up to [`INVERTED_DEPTH_MAX`]; their totals are its figures. Rows
    /// with the same name are added up. (Firefox shows the former totals of these rows there.)
    pub fn invert(&self) -> CensusTree<'a> {
        let mut rows = vec![Row::new(RowName::Root, None)];
        let mut known: HashMap<(usize, Key<'_>), usize, RandomState> = HashMap::default();
        for row in self.rows.iter().filter(|row| row.parent.is_some() && (row.bytes, row.count) != (0, 0)) {
            let mut below = 0;
            let mut next = Some(row);
            for depth in 0..INVERTED_DEPTH_MAX {
                let Some(current) = next.filter(|it| it.parent.is_some()) else { break };
                let place = *known.entry((below, self.key(&current.name))).or_insert_with(|| {
                    let new = rows.len();
                    rows.push(Row::new(current.name.clone(), Some(below)));
                    rows[below].children.push(new);
                    new
                });
                let inverted = &mut rows[place];
                inverted.total_bytes = inverted.total_bytes.saturating_add(row.bytes);
                inverted.total_count = inverted.total_count.saturating_add(row.count);
                inverted.has_bytes |= row.has_bytes;
                inverted.has_count |= row.has_count;
                if depth == 0 {
                    inverted.bytes = inverted.bytes.saturating_add(row.bytes);
                    inverted.count = inverted.count.saturating_add(row.count);
                    inverted.leaves.extend(&row.leaves);
                }
                below = place;
                next = current.parent.map(|parent| &self.rows[parent]);
            }
        }
        rows[0] = Row { children: std::mem::take(&mut rows[0].children), ..self.rows[0].clone() };
        let mut tree = CensusTree { frames: self.frames, rows };
        tree.sort(RowOrder::Own);
        tree
    }

    fn key<'b>(&'b self, name: &'b RowName) -> Key<'b> {
        match name {
            RowName::Frame(stack) => {
                let ReportFrame { source, line, column, function, .. } = self.frames.get(*stack);
                Key::Frame(source, line, column, function)
            }
            name => Key::Other(name),
        }
    }
}
