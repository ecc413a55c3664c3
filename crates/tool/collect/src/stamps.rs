//! The stamps of programs on their blocks: leaves of the stack tree, under the stacks of these
//! blocks.
//!
//! A program stamps a block by its address, and does not know the block's stack. So these nodes are
//! made here. Their ids go downwards from [`StackId::MAX`], and are not used by programs.

use std::collections::HashMap;

use heapledger_core::{NodeKind, StackId};
use heapledger_recording::TextId;

use crate::nodes::NewNode;

/// The stamped stacks of an image.
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    /// The stack and the text of each leaf, in the order of ids from the last one downwards.
    /// Includes leaves from before a fork.
    leaves: Vec<(StackId, TextId)>,
    /// The leaves of this image's own.
    ids: HashMap<(StackId, TextId), StackId>,
}

impl Stamps {
    /// Returns the stamps for a child that is forked now. It knows the parent's leaves, but must
    /// make its own.
    pub(crate) fn fork(&self) -> Stamps {
        Stamps { leaves: self.leaves.clone(), ids: HashMap::new() }
    }

    /// Returns the stack without its stamp, and the stamp's text.
    #[inline(always)]
    pub(crate) fn parts(&self, stack: StackId) -> (StackId, Option<TextId>) {
        if stack < StackId::PROGRAM_END { (stack, None) } else { self.upper_parts(stack) }
    }

    fn upper_parts(&self, stack: StackId) -> (StackId, Option<TextId>) {
        let leaf = StackId::MAX.0.checked_sub(stack.0).and_then(|at| self.leaves.get(at as usize));
        leaf.map_or((StackId::ROOT, None), |&(stack, text)| (stack, Some(text)))
    }

    /// Returns the stack with this stamp, which replaces another one, and the node if it is new. If
    /// there are no more ids, the stack has no stamp.
    pub(crate) fn stamped(&mut self, stack: StackId, text: TextId) -> (StackId, Option<NewNode>) {
        let (parent, _) = self.parts(stack);
        if let Some(&id) = self.ids.get(&(parent, text)) {
            return (id, None);
        }
        let id = StackId(StackId::MAX.0 - self.leaves.len() as u32);
        if id < StackId::PROGRAM_END {
            return (parent, None);
        }
        self.leaves.push((parent, text));
        self.ids.insert((parent, text), id);
        (id, Some(NewNode { id, parent, kind: NodeKind::Stamp, address: text.0.into() }))
    }
}

#[cfg(test)]
mod tests;
