//! The look-up of nodes by id.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use super::NodeIndex;

/// The table of ids; it borrows the ids themselves from the array of the nodes.
#[derive(Clone, Debug)]
pub(super) enum IdTable {
    /// Ids that are evenly spaced need no table.
    Strided { stride: u64 },
    /// All others.
    Hashed(Slots),
}

/// Two nodes that have the same id, the second of which comes later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SameId(pub(super) NodeIndex, pub(super) NodeIndex);

/// Look-ups that are made at once, so that their accesses to memory overlap.
const AT_ONCE: usize = 32;

impl IdTable {
    /// Returns the table of all ids.
    pub(super) fn new(ids: &[u64]) -> Result<IdTable, SameId> {
        let stride = match ids {
            [first, second, ..] => second.checked_sub(*first).unwrap_or(0),
            _ => 0,
        };
        let is_strided = ids.windows(2).all(|it| it[0].checked_add(stride) == Some(it[1]));
        if is_strided && (stride > 0 || ids.len() < 2) {
            Ok(IdTable::Strided { stride })
        } else {
            Slots::new(ids).map(IdTable::Hashed)
        }
    }

    /// Returns the node with an id.
    pub(super) fn find(&self, ids: &[u64], id: u64) -> Option<NodeIndex> {
        let found = match self {
            IdTable::Strided { stride: 0 } => (ids.first() == Some(&id)).then_some(0)?,
            IdTable::Strided { stride } => {
                let distance = id.checked_sub(*ids.first()?)?;
                if distance % stride != 0 || distance / stride >= ids.len() as u64 {
                    return None;
                }
                (distance / stride) as u32
            }
            IdTable::Hashed(slots) => slots.find(ids, id)?,
        };
        Some(NodeIndex(found))
    }

    /// Appends the nodes with some ids to a list. Returns the position of the first id that no node
    /// has.
    pub(super) fn find_all(&self, ids: &[u64], wanted: &[u64], found: &mut Vec<NodeIndex>) -> Result<(), usize> {
        for (block, wanted) in wanted.chunks(AT_ONCE).enumerate() {
            let mut guesses = [EMPTY; AT_ONCE];
            if let IdTable::Hashed(slots) = self {
                for (guess, &id) in guesses.iter_mut().zip(wanted) {
                    *guess = slots.slots[slots.first(id)];
                }
            }
            for (at, (&guess, &id)) in guesses.iter().zip(wanted).enumerate() {
                let is_right = ids.get(guess as usize) == Some(&id);
                let node = if is_right { Some(NodeIndex(guess)) } else { self.find(ids, id) };
                found.push(node.ok_or(block * AT_ONCE + at)?);
            }
        }
        Ok(())
    }
}

/// The value of slots that no node has.
const EMPTY: u32 = u32::MAX;

/// A hash table with open addressing: the positions of nodes. At most half of it is in use.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    slots: Vec<u32>,
    /// Two odd numbers that differ from table to table.
    seeds: [u64; 2],
    shift: u32,
}

impl Slots {
    fn new(ids: &[u64]) -> Result<Slots, SameId> {
        let hasher = RandomState::default();
        let seeds = [hasher.hash_one(1) | 1, hasher.hash_one(2) | 1];
        let count = (ids.len() * 2).next_power_of_two().max(2);
        let mut slots = Slots { slots: vec![EMPTY; count], seeds, shift: u64::BITS - count.ilog2() };
        for (block, some) in ids.chunks(AT_ONCE).enumerate() {
            // All slots of the block are on their way to the cache before the first is needed.
            let touched = some.iter().fold(0, |all, &id| all ^ slots.slots[slots.first(id)]);
            std::hint::black_box(touched);
            for at in block * AT_ONCE..block * AT_ONCE + some.len() {
                slots.add(ids, at as u32)?;
            }
        }
        Ok(slots)
    }

    fn add(&mut self, ids: &[u64], new: u32) -> Result<(), SameId> {
        let id = ids[new as usize];
        let mut slot = self.first(id);
        while self.slots[slot] != EMPTY {
            let known = self.slots[slot];
            if ids[known as usize] == id {
                return Err(SameId(NodeIndex(known), NodeIndex(new)));
            }
            slot = self.next(slot);
        }
        self.slots[slot] = new;
        Ok(())
    }

    fn find(&self, ids: &[u64], id: u64) -> Option<u32> {
        let mut slot = self.first(id);
        loop {
            let known = self.slots[slot];
            if known == EMPTY {
                return None;
            }
            if ids[known as usize] == id {
                return Some(known);
            }
            slot = self.next(slot);
        }
    }

    /// The first slot that may have an id: multiplication twice, since ids are often addresses at
    /// regular distances.
    #[inline]
    fn first(&self, id: u64) -> usize {
        let mixed = id.wrapping_mul(self.seeds[0]);
        ((mixed ^ mixed >> 32).wrapping_mul(self.seeds[1]) >> self.shift) as usize
    }

    #[inline]
    fn next(&self, slot: usize) -> usize {
        (slot + 1) & (self.slots.len() - 1)
    }
}
