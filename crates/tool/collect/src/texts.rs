//! The texts of programs: the names and values of scopes, and the names of heaps.
//!
//! A program announces a text by its address, before the nodes that refer to it. In the file a text
//! has a number in the session; equal texts of all images have the same number.

use std::collections::HashMap;

use heapledger_core::context::Name;
use heapledger_recording::{Text, TextId};

/// The texts of a session.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// The texts by number, from 1, each with whether the file has it.
    all: Vec<(Text, bool)>,
    /// The numbers, by the text, whether it names a task, and its category.
    ids: HashMap<(Vec<u8>, bool, Vec<u8>), TextId>,
}

impl Texts {
    /// Returns all texts that nodes refer to.
    pub(crate) fn used(&self) -> impl Iterator<Item = Text> {
        self.all.iter().filter(|(_, is_used)| *is_used).map(|(text, _)| text.clone())
    }

    /// Marks a text as used by a node. Returns the text if this is the first use.
    pub(crate) fn use_text(&mut self, id: TextId) -> Option<Text> {
        let (text, is_used) = self.all.get_mut((id.0 as usize).checked_sub(1)?)?;
        (!std::mem::replace(is_used, true)).then(|| text.clone())
    }

    fn id(&mut self, bytes: Vec<u8>, is_task: bool, category: Vec<u8>) -> TextId {
        let next = TextId(self.all.len() as u32 + 1);
        let id = *self.ids.entry((bytes.clone(), is_task, category.clone())).or_insert(next);
        if id == next {
            self.all.push((Text { text: id, bytes, is_task, category }, false));
        }
        id
    }

    /// Returns the number of a text without a category.
    pub(crate) fn named(&mut self, bytes: &[u8]) -> TextId {
        self.id(bytes.to_vec(), false, Vec::new())
    }

    fn bytes(&self, id: TextId) -> &[u8] {
        let at = (id.0 as usize).checked_sub(1);
        at.and_then(|at| self.all.get(at)).map_or(&[], |(text, _)| &text.bytes)
    }
}

/// The texts at the addresses of an image: its own, and those from before the fork.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses(HashMap<u64, TextId>);

impl Addresses {
    /// Sets the text at an address.
    pub(crate) fn set(&mut self, texts: &mut Texts, address: u64, flags: u32, category: u64, bytes: Vec<u8>) {
        let category = texts.bytes(self.get(category)).to_vec();
        self.0.insert(address, texts.id(bytes, flags & Name::TASK != 0, category));
    }

    pub(crate) fn get(&self, address: u64) -> TextId {
        self.0.get(&address).copied().unwrap_or(TextId::UNKNOWN)
    }
}

#[cfg(test)]
mod tests;
