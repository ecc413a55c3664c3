//! The texts of a recording: names of scopes, values, heaps and stamps.

use std::collections::HashMap;

use heapledger_recording::{Node, Recording, Text, TextId};

/// The texts of a recording, with equal texts merged.
#[derive(Debug)]
pub(crate) struct Texts {
    /// The first of the texts that are equal to this one.
    first: HashMap<TextId, TextId>,
}

impl Texts {
    pub(crate) fn new(recording: &Recording<'_>) -> Texts {
        let mut known = HashMap::new();
        let first = |text: &Text| (text.text, *known.entry((text.bytes.clone(), text.is_task)).or_insert(text.text));
        Texts { first: recording.texts().iter().map(first).collect() }
    }

    /// Returns the merged text of a scope, a value, a heap or a stamp.
    pub(crate) fn merged(&self, node: &Node) -> TextId {
        node.text().and_then(|text| self.first.get(&text).copied()).unwrap_or(TextId::UNKNOWN)
    }
}
