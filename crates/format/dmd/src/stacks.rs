//! Stacks, each once.

use std::hash::BuildHasher;

use crate::hash::{Map, Seeded};
use crate::log::FrameId;

/// Numbers stacks, from 0, in the order in which they come first.
#[derive(Default)]
pub(crate) struct Stacks {
    /// The index at which the frames of each stack begin in `frames`; those of the stack before end
    /// there.
    first: Vec<u32>,
    frames: Vec<FrameId>,
    /// The stacks by their hashes; those with equal hashes are in a chain.
    numbers: Map<u64, u32>,
    next: Vec<u32>,
    seed: Seeded,
}

/// The end of a chain.
const LAST: u32 = u32::MAX;

impl Stacks {
    /// Returns the number of the stack with these frames.
    pub(crate) fn number(&mut self, frames: &[FrameId]) -> u32 {
        let new = self.count();
        let mut number = *self.numbers.entry(self.seed.hash_one(frames)).or_insert(new);
        while number != new && self.frames(number) != frames {
            let next = &mut self.next[number as usize];
            if *next == LAST {
                *next = new;
            }
            number = *next;
        }
        if number == new {
            self.next.push(LAST);
            self.first.push(self.frames.len() as u32);
            self.frames.extend_from_slice(frames);
        }
        number
    }

    /// Returns the number of stacks.
    pub(crate) fn count(&self) -> u32 {
        self.first.len() as u32
    }

    pub(crate) fn frames(&self, number: u32) -> &[FrameId] {
        let at = number as usize;
        let end = self.first.get(at + 1).map_or(self.frames.len(), |end| *end as usize);
        &self.frames[self.first[at] as usize..end]
    }
}
