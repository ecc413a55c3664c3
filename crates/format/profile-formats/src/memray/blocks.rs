//! Turns calls into events of blocks and mapped ranges.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::allocator::Effect;
use super::ranges::Ranges;
use crate::profile::{Event, EventKind};

/// The live blocks and ranges at the current time.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    pub(super) time_ns: u64,
    /// By address.
    blocks: HashMap<u64, Block, RandomState>,
    ranges: Ranges<Block>,
    next: u64,
}

/// A block, or a range.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// The address in events. Real addresses are not unique: a block may begin where a range does.
    number: u64,
    bytes: u64,
    sample: usize,
}

/// The thread of a call, and the function that takes its events.
pub(super) struct Caller<'t> {
    pub(super) thread: u32,
    pub(super) take: &'t mut dyn FnMut(Event),
}

impl Caller<'_> {
    fn event(&mut self, time_ns: u64, block: Block, is_free: bool) {
        let Block { number, bytes, sample } = block;
        let kind = if is_free { EventKind::Freed { bytes, sample } } else { EventKind::Allocated { bytes, sample } };
        (self.take)(Event { time_ns, process: 0, thread: self.thread, address: number, kind });
    }
}

impl Blocks {
    /// Applies a call; `sample` is the stack of a new block.
    pub(super) fn call(&mut self, effect: Effect, address: u64, bytes: u64, sample: usize, mut caller: Caller<'_>) {
        let time_ns = self.time_ns;
        match effect {
            Effect::Allocates => {
                let block = self.block(bytes, sample);
                // The free of a block was missed: memray does not see all of the interpreter's own.
                if let Some(before) = self.blocks.insert(address, block) {
                    caller.event(time_ns, before, true);
                }
                caller.event(time_ns, block, false);
            }
            Effect::Frees => {
                if let Some(block) = self.blocks.remove(&address) {
                    caller.event(time_ns, block, true);
                }
            }
            Effect::Maps => {
                // A mapping replaces earlier ones at its addresses.
                self.unmap(address, bytes, &mut caller);
                if bytes > 0 {
                    self.map(address, bytes, sample, &mut caller);
                }
            }
            Effect::Unmaps => self.unmap(address, bytes, &mut caller),
        }
    }

    fn block(&mut self, bytes: u64, sample: usize) -> Block {
        self.next += 1;
        Block { number: self.next, bytes, sample }
    }

    fn map(&mut self, start: u64, bytes: u64, sample: usize, caller: &mut Caller<'_>) {
        let block = self.block(bytes, sample);
        self.ranges.insert(start, bytes, block);
        caller.event(self.time_ns, block, false);
    }

    /// Frees the ranges that overlap a part of the address space. Their remaining parts are
    /// allocated again, by the same stacks.
    fn unmap(&mut self, start: u64, bytes: u64, caller: &mut Caller<'_>) {
        while let Some(cut) = self.ranges.cut(start, bytes) {
            caller.event(self.time_ns, cut.was, true);
            for (start, bytes) in cut.left.into_iter().flatten() {
                self.map(start, bytes, cut.was.sample, caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_parts_of_ranges() {
        let (mut blocks, mut live, mut all) = (Blocks::default(), std::collections::BTreeMap::new(), 0);
        let mut calls = |effect, address, bytes, sample| {
            let take = &mut |event: Event| match event.kind {
                EventKind::Allocated { bytes, sample } => {
                    all += 1;
                    assert_eq!(live.insert(event.address, (bytes, sample)), None);
                }
                EventKind::Freed { bytes, sample } => {
                    assert_eq!(live.remove(&event.address), Some((bytes, sample)));
                }
            };
            blocks.call(effect, address, bytes, sample, Caller { thread: 1, take });
        };
        calls(Effect::Allocates, 8, 100, 0);
        calls(Effect::Maps, 8, 4096, 1);
        calls(Effect::Allocates, 8, 60, 2);
        calls(Effect::Frees, 16, 0, 0);
        calls(Effect::Unmaps, 1008, 1000, 0);
        calls(Effect::Maps, 4000, 200, 3);
        let bytes: Vec<(u64, usize)> = live.into_values().collect();
        assert_eq!((bytes, all), (vec![(60, 2), (1000, 1), (1992, 1), (200, 3)], 7));
    }
}
