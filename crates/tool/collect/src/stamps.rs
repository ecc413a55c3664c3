//! The stamps of programs on their blocks: leaves of the stack tree, under the stacks of these
//! blocks.
//!
//! A program stamps a block by its address, and does not know the block's stack. So these nodes are
//! made here. Their ids go downwards from [`StackId::MAX`], and are not used by programs.

use std::collections::{BTreeSet, HashMap};

use heapledger_core::{Bytes, NodeKind, StackId};
use heapledger_ledger::{Block, Key, Ledger};
use heapledger_recording::TextId;

use crate::tree::NewNode;

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

/// The size in bytes from which blocks are found by an index. Smaller blocks are found by trying
/// the addresses before an address.
const WIDE: u64 = 4096;
/// The alignment of the beginnings of all blocks, in bytes.
const STEP: usize = 8;

/// An address index: finds the blocks around addresses in a register that is not ordered by
/// address.
#[derive(Debug)]
pub(crate) struct AddressIndex {
    /// The size from which blocks must be passed to [`AddressIndex::insert`].
    pub(crate) indexed_from: Bytes,
    /// The addresses at which wide blocks begin, or once began.
    wide: BTreeSet<Key>,
    /// The pools that ever had a block.
    pools: BTreeSet<u32>,
}

impl AddressIndex {
    /// Returns an index that has not been used yet, and is filled at its first use.
    pub(crate) fn new() -> AddressIndex {
        AddressIndex { indexed_from: Bytes(u64::MAX), wide: BTreeSet::new(), pools: BTreeSet::new() }
    }

    /// Notes that a block of this size, or in a pool, was entered.
    #[cold]
    pub(crate) fn insert(&mut self, key: Key, size: Bytes) {
        if self.indexed_from.0 == u64::MAX {
            return;
        }
        if size.0 >= WIDE {
            self.wide.insert(key);
        }
        if key.pool() != 0 {
            self.pools.insert(key.pool());
        }
    }

    /// Returns the block at, or around, an address: that of a pool if one has a block there, else
    /// the allocator's.
    pub(crate) fn find(&mut self, ledger: &Ledger, address: u64) -> Option<(Key, Block)> {
        if self.indexed_from.0 == u64::MAX || self.wide.len() as u64 > ledger.live().blocks_live.0 + (1 << 20) {
            self.index_all(ledger);
        }
        // Addresses that are too large are in no pool.
        let in_pools = if Key(address).pool() == 0 { &self.pools } else { &BTreeSet::new() };
        let found = in_pools.iter().find_map(|&pool| find_in(&self.wide, ledger, Key::in_pool(pool, address)));
        found.or_else(|| find_in(&self.wide, ledger, Key(address)))
    }

    /// Indexes the wide blocks and pools of the whole ledger.
    fn index_all(&mut self, ledger: &Ledger) {
        self.indexed_from = Bytes(WIDE);
        self.wide.clear();
        for (key, block) in ledger.blocks() {
            if block.size.0 >= WIDE || key.pool() != 0 {
                self.insert(key, block.size);
            }
        }
    }
}

fn find_in(wide: &BTreeSet<Key>, ledger: &Ledger, key: Key) -> Option<(Key, Block)> {
    let covers = |&(start, block): &(Key, Block)| key.0 - start.0 < block.size.0.max(1);
    let at = |start: Key| ledger.get(start).map(|block| (start, block));
    let first = key.0 & !(STEP as u64 - 1);
    let narrow = (0..WIDE).step_by(STEP).map_while(|back| first.checked_sub(back)).map(Key);
    // Blocks of one heap do not overlap, so the nearest beginning decides.
    if let Some(found) = at(key).or_else(|| narrow.take_while(|start| start.pool() == key.pool()).find_map(at)) {
        return Some(found).filter(covers);
    }
    wide.range(..=key).rev().find_map(|&start| at(start)).filter(covers)
}

#[cfg(test)]
mod tests {
    use heapledger_core::ThreadId;
    use heapledger_ledger::{Session, Time};

    use super::*;

    #[test]
    fn stamps_take_the_place_of_others() {
        let mut stamps = Stamps::default();
        let (first, node) = stamps.stamped(StackId(7), TextId(1));
        assert_eq!((first, node.map(|node| node.parent)), (StackId::MAX, Some(StackId(7))));
        assert!(stamps.stamped(StackId(7), TextId(1)).1.is_none());
        let (second, _) = stamps.stamped(first, TextId(2));
        assert_eq!((stamps.parts(second), second.0), ((StackId(7), Some(TextId(2))), StackId::MAX.0 - 1));
        assert_eq!(stamps.parts(StackId(7)), (StackId(7), None));
        // A child makes its own leaves, with ids that its parent had not used.
        let mut child = stamps.fork();
        assert_eq!(child.parts(first), (StackId(7), Some(TextId(1))));
        let (third, node) = child.stamped(first, TextId(1));
        assert_eq!((third.0, node.is_some()), (StackId::MAX.0 - 2, true));
    }

    #[test]
    fn blocks_are_found_by_any_address_in_them() {
        let (mut ledger, mut session) = (Ledger::new(), Session::new());
        let mut address_index = AddressIndex::new();
        let mut enter = |ledger: &mut Ledger, address_index: &mut AddressIndex, key: Key, size: u64| {
            let entered = ledger.allocate(&mut session, Time(0), ThreadId(0), key, Bytes(size), StackId(1));
            assert_eq!(entered.unwrap().displaced, None);
            address_index.insert(key, Bytes(size));
        };
        enter(&mut ledger, &mut address_index, Key(0x1000), 24);
        enter(&mut ledger, &mut address_index, Key(0x10_0000), 1 << 20);
        let starts = |address_index: &mut AddressIndex, ledger: &Ledger, address| {
            address_index.find(ledger, address).map(|(key, _)| key.0)
        };
        for (address, expected) in [
            (0x1000, Some(0x1000)),
            (0x1017, Some(0x1000)),
            (0x1018, None),
            (0xfff, None),
            (0, None),
            (u64::MAX, None),
            (0x10_0000, Some(0x10_0000)),
            (0x10_0fff, Some(0x10_0000)),
            (0x1f_ffff, Some(0x10_0000)),
            (0x20_0000, None),
        ] {
            assert_eq!(starts(&mut address_index, &ledger, address), expected, "{address:#x}");
        }
        // A block entered after the first question; then a block of a pool inside of it.
        enter(&mut ledger, &mut address_index, Key(0x40_0000), 10_000);
        assert_eq!(starts(&mut address_index, &ledger, 0x40_2000), Some(0x40_0000));
        let pooled = Key::in_pool(3, 0x40_2000);
        enter(&mut ledger, &mut address_index, pooled, 5000);
        assert_eq!(starts(&mut address_index, &ledger, 0x40_2000), Some(pooled.0));
        assert_eq!(starts(&mut address_index, &ledger, 0x40_2000 + 4999), Some(pooled.0));
        assert_eq!(starts(&mut address_index, &ledger, 0x40_1000), Some(0x40_0000));
        // A block that was freed is not found.
        let _ = ledger.free(&mut Session::new(), ThreadId(0), Key(0x40_0000));
        assert_eq!(starts(&mut address_index, &ledger, 0x40_1000), None);
    }
}
