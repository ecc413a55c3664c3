//! Finds the blocks around addresses in a register that is not ordered by address.

use std::collections::BTreeSet;

use heapledger_core::Bytes;
use heapledger_ledger::{Block, Key, Ledger};

/// The size in bytes from which blocks are found by an index. Smaller blocks are found by trying
/// the addresses before an address.
const WIDE: u64 = 4096;
/// The alignment of the beginnings of all blocks, in bytes.
const STEP: usize = 8;

/// An address index: finds the blocks around addresses.
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
mod tests;
