//! The rows whose names contain a text.

use std::collections::BTreeSet;

use super::{CensusTree, Row};

impl<'a> CensusTree<'a> {
    /// Returns the rows whose names, as [labels](CensusTree::label), contain a text, with all rows
    /// below and above them. Figures stay as they are.
    ///
    /// Capital letters count. With an empty text, nothing is left out.
    pub fn filter(&self, text: &str) -> CensusTree<'a> {
        let count = self.rows.len();
        let mut is_kept = self.matches(text);
        for index in (1..count).rev() {
            if let (true, Some(parent)) = (is_kept[index], self.rows[index].parent) {
                is_kept[parent] = true;
            }
        }
        is_kept[0] = true;
        let mut places = vec![0; count];
        let mut kept = 0;
        for index in 0..count {
            places[index] = kept;
            kept += usize::from(is_kept[index]);
        }
        let rows = (0..count).filter(|&index| is_kept[index]).map(|index| {
            let row = &self.rows[index];
            let children = row.children.iter().filter(|&&child| is_kept[child]).map(|&child| places[child]).collect();
            Row { parent: row.parent.map(|parent| places[parent]), children, ..row.clone() }
        });
        CensusTree { frames: self.frames, rows: rows.collect() }
    }

    /// Returns the positions of all leaves of the rows whose names contain a text, and of the rows
    /// below these, for [`individuals`](super::individuals). With an empty text, those are all.
    pub fn leaves_with(&self, text: &str) -> Vec<usize> {
        let matching = self.rows.iter().zip(self.matches(text)).filter(|(_, matches)| *matches);
        let leaves: BTreeSet<usize> = matching.flat_map(|(row, _)| row.leaves.iter().copied()).collect();
        leaves.into_iter().collect()
    }

    /// Returns for each row: true if its name, or that of a row above it, contains a text. The root
    /// has no name: it contains only the empty text.
    fn matches(&self, text: &str) -> Vec<bool> {
        let mut matches: Vec<bool> = Vec::with_capacity(self.rows.len());
        // A row comes after its parent.
        for row in &self.rows {
            matches.push(match row.parent {
                Some(parent) => matches[parent] || self.label(&row.name).contains(text),
                None => text.is_empty(),
            });
        }
        matches
    }
}
