//! Blocks that a program reattributes to another stack, or stamps, after their allocation.

use heapledger_core::{Api, StackId};
use heapledger_ledger::{Key, Ledger, OutOfMemory};
use heapledger_recording::{EventKind, Extras, ModuleId, Record, TextId};

use super::Image;
use super::threads::EventHeader;
use crate::error::RecordError;
use crate::nodes::to_node;
use crate::session_state::Shared;

impl Image {
    /// Reattributes a block to another context; it keeps its stamp.
    pub(super) fn reattribute_block(&mut self, shared: &mut Shared, header: EventHeader, key: Key, stack: StackId) {
        let Some(block) = self.ledger.get(key) else { return };
        let to = match self.tree.stamps.parts(block.stack) {
            (_, Some(stamp)) => self.stamped(shared, stack, stamp),
            (_, None) => stack,
        };
        self.reattribute(shared, header, key, to, Ledger::reattribute_block);
    }

    /// Applies a stamp to the block at, or around, an address.
    pub(super) fn stamp(&mut self, shared: &mut Shared, header: EventHeader, address: u64, stamp: u64) {
        let stamp = self.tree.texts.get(stamp);
        match self.address_index.find(&self.ledger, address).filter(|_| stamp != TextId::UNKNOWN) {
            Some((key, block)) => {
                let to = self.stamped(shared, block.stack, stamp);
                if to != block.stack {
                    self.reattribute(shared, header, key, to, Ledger::stamp_block);
                }
            }
            // An untracked block is in no total, but it exists.
            None if self.ledger.is_untracked(Key(address)) => {}
            None if shared.is_sample => {}
            None => self.anomalies.stamps_unknown += 1,
        }
    }

    /// Returns the stack with this stamp.
    pub(super) fn stamped(&mut self, shared: &mut Shared, stack: StackId, stamp: TextId) -> StackId {
        let (stack, node) = self.tree.stamps.stamped(stack, stamp);
        if let Some(node) = node {
            shared.records.extend(shared.texts.use_text(stamp).map(Record::Text));
            self.write_node(shared, to_node(node, ModuleId::UNKNOWN, node.address));
        }
        stack
    }

    /// Reattributes a block to another stack. Recorded only if the recording has the block's
    /// allocation: not for blocks that are inherited or untracked.
    pub(super) fn reattribute(
        &mut self,
        shared: &mut Shared,
        header: EventHeader,
        key: Key,
        stack: StackId,
        how: fn(&mut Ledger, &heapledger_ledger::Session, Key, StackId) -> Result<bool, OutOfMemory>,
    ) {
        let Some(block) = self.ledger.get(key) else { return };
        match how(&mut self.ledger, &shared.session, key, stack) {
            Ok(_) if block.inherited || block.untracked => {}
            Ok(_) => {
                let kind = EventKind::Reattributed { block: block.serial, stack };
                self.push(shared, header.event(Api::Malloc, kind), &Extras::NONE);
            }
            Err(OutOfMemory) => shared.fail(RecordError::OutOfMemory),
        }
    }
}
