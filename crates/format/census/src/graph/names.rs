//! The names of a graph: each text once.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// The number of a name in its graph. Equal texts have equal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub u32);

/// The names of a graph, each in one piece of a long text.
#[derive(Clone, Debug, Default)]
pub struct Names {
    text: String,
    ends: Vec<u64>,
}

impl Names {
    /// The number of names; all numbers below are names.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Returns the text of a name. Panics if it is not one of these names.
    #[inline]
    pub fn text(&self, name: Name) -> &str {
        let at = name.0 as usize;
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.text[start as usize..self.ends[at] as usize]
    }

    /// Iterates over all names and their texts.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Name, &str)> {
        (0..self.ends.len() as u32).map(|it| (Name(it), self.text(Name(it))))
    }
}

/// The names of a graph that is being built.
#[derive(Debug, Default)]
pub(super) struct Interner {
    names: Names,
    table: HashTable<u32>,
    hasher: RandomState,
}

impl Interner {
    /// Returns the number of a text, which may be new. Returns nothing if there are too many.
    pub(super) fn intern(&mut self, text: &str) -> Option<Name> {
        let Interner { names, table, hasher } = self;
        let hash = hasher.hash_one(text);
        if let Some(&known) = table.find(hash, |&it| names.text(Name(it)) == text) {
            return Some(Name(known));
        }
        // The highest number stands for "no name".
        let new = u32::try_from(names.count()).ok().filter(|&it| it != u32::MAX)?;
        names.text.push_str(text);
        names.ends.push(names.text.len() as u64);
        table.insert_unique(hash, new, |&it| hasher.hash_one(names.text(Name(it))));
        Some(Name(new))
    }

    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    pub(super) fn finish(self) -> Names {
        let mut names = self.names;
        names.text.shrink_to_fit();
        names.ends.shrink_to_fit();
        names
    }
}
