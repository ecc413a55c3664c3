//! Stacks, each once.

use std::hash::BuildHasher;

use crate::hash::{Map, Seeded};
use crate::log::FrameId;

/// Numbers stacks, from 0, in the order in which they come first. Stacks with two equal hashes of
/// 64 bits, which have random seeds, are taken to be equal.
#[derive(Default)]
pub(crate) struct Stacks {
    numbers: Map<(u64, u64), u32>,
    seeds: [Seeded; 2],
    frames: Frames,
}

/// The frames of stacks.
enum Frames {
    /// The frames of all stacks: the index at which those of each begin.
    All { first: Vec<u32>, frames: Vec<FrameId> },
    /// The frames of the stacks that are asked for.
    Some(Map<u32, Box<[FrameId]>>),
}

impl Default for Frames {
    fn default() -> Frames {
        Frames::All { first: Vec::new(), frames: Vec::new() }
    }
}

impl Stacks {
    /// Returns an empty list that keeps only [wanted](Stacks::want) frames.
    pub(crate) fn without_frames() -> Stacks {
        Stacks { frames: Frames::Some(Map::default()), ..Stacks::default() }
    }

    /// Returns the number of the stack with these frames.
    pub(crate) fn number(&mut self, frames: &[FrameId]) -> u32 {
        let new = self.count();
        let [one, two] = &self.seeds;
        let number = *self.numbers.entry((one.hash_one(frames), two.hash_one(frames))).or_insert(new);
        if let Frames::All { first, frames: all } = &mut self.frames
            && number == new
        {
            first.push(all.len() as u32);
            all.extend_from_slice(frames);
        }
        number
    }

    /// Returns the number of stacks.
    pub(crate) fn count(&self) -> u32 {
        self.numbers.len() as u32
    }

    /// Asks for the frames of a stack, which are to be [given](Stacks::give). Stacks that have
    /// their frames are not asked for.
    pub(crate) fn want(&mut self, number: u32) {
        if let Frames::Some(frames) = &mut self.frames {
            frames.entry(number).or_default();
        }
    }

    /// True if frames are to be given.
    pub(crate) fn wants_any(&self) -> bool {
        matches!(&self.frames, Frames::Some(frames) if !frames.is_empty())
    }

    /// Gives the frames of a stack, which are kept if they were asked for.
    pub(crate) fn give(&mut self, number: u32, frames: &[FrameId]) {
        if let Frames::Some(wanted) = &mut self.frames
            && let Some(wanted) = wanted.get_mut(&number)
        {
            *wanted = frames.into();
        }
    }

    /// Returns the frames of a stack; none if they are neither kept nor given.
    pub(crate) fn frames(&self, number: u32) -> &[FrameId] {
        match &self.frames {
            Frames::All { first, frames } => {
                let at = number as usize;
                let end = first.get(at + 1).map_or(frames.len(), |end| *end as usize);
                &frames[first[at] as usize..end]
            }
            Frames::Some(frames) => frames.get(&number).map_or(&[], |frames| frames),
        }
    }
}
