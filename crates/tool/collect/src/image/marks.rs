//! Marks of memory reporters on blocks. Reporters name a block by its address, a recording by its
//! serial.

use std::collections::HashMap;

use heapledger_core::{Bytes, Serial, StackId};
use heapledger_inject::Mapping;
use heapledger_ledger::{Block, Key};
use heapledger_recording::{EventKind, FreedBlock, Mark, MarkedBlocks, Reported, TextId, Time};
use heapledger_wire::event::Extended;

use super::Image;
use super::threads::EventHeader;
use crate::proc_maps;
use crate::session_state::Shared;

/// The reports of an image.
#[derive(Debug)]
pub(super) struct Reports {
    pid: u32,
    /// The marks that hold, if they have to be repeated in another file.
    marked: MarkedBlocks,
    /// For each stack that reported an address outside of all blocks: true if the memory there is
    /// of another kind.
    stacks: HashMap<StackId, bool>,
}

/// The maximum number of stacks for which this is found out, because it reads the mappings of the
/// process.
const STACKS_MAX: usize = 64;

impl Reports {
    pub(super) fn new(pid: u32) -> Reports {
        Reports { pid, marked: MarkedBlocks::default(), stacks: HashMap::new() }
    }

    /// Removes the marks of a block that is freed.
    #[inline(always)]
    pub(super) fn on_event(&mut self, kind: &EventKind) {
        if !self.marked.is_empty() {
            self.forget(kind);
        }
    }

    #[cold]
    fn forget(&mut self, kind: &EventKind) {
        if let EventKind::Free { block: FreedBlock::Known(block) }
        | EventKind::Realloc { old: FreedBlock::Known(block), .. } = *kind
        {
            self.marked.free(block);
        }
    }
}

impl Image {
    /// Records the report of a block, or of another address, by a reporter.
    pub(super) fn add_mark(&mut self, shared: &mut Shared, header: EventHeader, event: &Extended<'_>) {
        let Extended::Marked { address, reporter, stack, is_kept, is_on_stack, is_around, measured } = *event else {
            return;
        };
        let Some(by) = self.reporter(shared, stack, reporter) else { return };
        let what = if is_around {
            self.block_of(address).map(Reported::Block)
        } else {
            self.reported(shared, address, is_on_stack, by)
        };
        if let Some(what) = what {
            let measured = Bytes(measured);
            self.push_mark(shared, header.time, &Mark::Reported { what, by, is_kept, measured });
        }
    }

    /// Takes back the report of a block by a reporter.
    pub(super) fn remove_mark(&mut self, shared: &mut Shared, header: EventHeader, address: u64, reporter: u64) {
        let Some(by) = self.reporter(shared, StackId::ROOT, reporter) else { return };
        if let Some(block) = self.block_of(address) {
            self.push_mark(shared, header.time, &Mark::Removed { block, by });
        }
    }

    /// Returns the block at, or around, an address, if the recording has it.
    fn block_of(&mut self, address: u64) -> Option<Serial> {
        let in_index = || self.address_index.find(&self.ledger, address).map(|(_, block)| block);
        let block = self.ledger.get(Key(address)).or_else(in_index)?;
        (!block.inherited).then_some(block.serial)
    }

    /// Returns a leaf of the stack that names the reporter; `None` if its name was not announced or
    /// is not needed.
    fn reporter(&mut self, shared: &mut Shared, stack: StackId, name: u64) -> Option<StackId> {
        if !shared.keeps_events {
            return None;
        }
        let name = self.tree.texts.get(name);
        (name != TextId::UNKNOWN).then(|| self.stamped(shared, stack, name))
    }

    /// Returns what is at an address; `None` for a block that is not in the recording, or may not
    /// be.
    fn reported(&mut self, shared: &Shared, address: u64, is_on_stack: bool, by: StackId) -> Option<Reported> {
        let known = |block: Block| (!block.inherited).then_some(block.serial);
        if let Some(block) = self.ledger.get(Key(address)) {
            return known(block).map(Reported::Block);
        }
        if let Some((key, block)) = self.address_index.find(&self.ledger, address) {
            let is_whole = key.address() == address;
            let named = |block| if is_whole { Reported::Block(block) } else { Reported::Inside { block, address } };
            return known(block).map(named);
        }
        // The block may have been allocated in a pause, or not be in the sample.
        if self.ledger.is_untracked(Key(address)) || shared.paused_from.is_some() || shared.is_sample {
            return None;
        }
        let is_in_module =
            || self.tree.mappings(self.id).any(|mapping| (mapping.start..mapping.end).contains(&address));
        if is_on_stack || is_in_module() {
            return Some(Reported::NotHeap { address });
        }
        let is_other = match self.reports.stacks.get(&by) {
            Some(&known) => known,
            None if self.reports.stacks.len() >= STACKS_MAX => false,
            None => {
                let found = self.is_outside_heap(address);
                self.reports.stacks.insert(by, found);
                found
            }
        };
        Some(if is_other { Reported::NotHeap { address } } else { Reported::Nothing { address } })
    }

    /// True if an address is in a mapping without blocks. The program has continued since, and may
    /// have ended.
    #[cold]
    fn is_outside_heap(&self, address: u64) -> bool {
        let mappings = proc_maps::read(self.reports.pid).unwrap_or_default();
        let Some(mapping) = mappings.iter().find(|mapping| mapping.range.contains(&address)) else { return false };
        let is_in = |key: Key| key.pool() == 0 && mapping.range.contains(&key.address());
        is_for_other_use(mapping) || !self.ledger.blocks().any(|(key, _)| is_in(key))
    }

    pub(super) fn push_mark(&mut self, shared: &mut Shared, time: Time, mark: &Mark) {
        if !shared.keeps_events {
            return;
        }
        if shared.keeps_nodes {
            let stamps = &self.tree.stamps;
            let reporter = |by| stamps.parts(by).1;
            self.reports.marked.apply(mark, |one, other| reporter(one) == reporter(other));
        }
        if self.chunks.events.is_empty() {
            self.chunks.events_begin = time;
        }
        if let Err(error) = self.chunks.events.push_mark(time, mark) {
            shared.fail(error.into());
        }
        if self.chunks.events.is_full() {
            self.flush_events(shared);
        }
    }

    /// Repeats the marks that hold at the beginning of another file.
    pub(super) fn repeat_marks(&mut self, shared: &mut Shared, time: Time) {
        let marks = self.reports.marked.as_marks();
        self.reports.marked = MarkedBlocks::default();
        for mark in marks {
            self.push_mark(shared, time, &mark);
        }
    }
}

/// True for a mapping of a file, or for another purpose than a heap.
fn is_for_other_use(mapping: &Mapping) -> bool {
    // An allocator may name its anonymous mappings.
    !mapping.name.is_empty() && mapping.name != b"[heap]" && !mapping.name.starts_with(b"[anon")
}

#[cfg(test)]
mod tests;
