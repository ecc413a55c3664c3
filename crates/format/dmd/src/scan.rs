//! Clamping: turning words of blocks into pointers to blocks, or 0.

use std::fmt;

use crate::log::{Log, ScannedBlock};

/// The result of [clamping](Log::clamp).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClampStats {
    /// Words that were the address of a block's beginning.
    pub starts: u64,
    /// Words that pointed into a block, and now point to its beginning.
    pub clamped: u64,
    /// Words that pointed into no block, and are 0 now.
    pub cleared: u64,
    /// Words that were 0.
    pub nulls: u64,
}

/// Formats the statistics as Mozilla's script does.
impl fmt::Display for ClampStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Results:")?;
        writeln!(f, "  Number of pointers already pointing to start of blocks: {}", self.starts)?;
        writeln!(f, "  Number of pointers clamped to start of blocks: {}", self.clamped)?;
        let cleared = self.cleared;
        writeln!(f, "  Number of non-null pointers not pointing into blocks clamped to null: {cleared}")?;
        write!(f, "  Number of null pointers: {}", self.nulls)
    }
}

/// Two blocks that share memory, or one at address 0: the log is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap(pub u64, pub u64);

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Overlap(0, _) => f.write_str("a block is at address 0"),
            Overlap(first, second) => write!(f, "the blocks at 0x{first:x} and 0x{second:x} overlap"),
        }
    }
}

impl std::error::Error for Overlap {}

impl Log {
    /// Replaces each word of a block that points into a block by the address of that block's
    /// beginning, and every other word by 0. Zeros at the end of a block's contents are left out.
    ///
    /// # Errors
    ///
    /// Fails if blocks overlap.
    pub fn clamp(&mut self) -> Result<ClampStats, Overlap> {
        let map = Map::of(self);
        map.check(self)?;
        let mut stats = ClampStats::default();
        let blocks = std::mem::take(&mut self.scanned.blocks);
        for word in &mut self.scanned.words {
            let block = map.at(&blocks, *word).map(|at| blocks[at].address);
            match block {
                _ if *word == 0 => stats.nulls += 1,
                Some(address) if address == *word => stats.starts += 1,
                Some(_) => stats.clamped += 1,
                None => stats.cleared += 1,
            }
            *word = block.unwrap_or(0);
        }
        self.scanned.blocks = blocks;
        for block in &mut self.scanned.blocks {
            let words = &self.scanned.words[block.words.clone()];
            let zeros = words.iter().rev().take_while(|word| **word == 0).count();
            block.words.end -= zeros;
        }
        Ok(stats)
    }
}

/// Blocks by address.
pub(crate) struct Map {
    /// Indices of blocks, sorted by their addresses.
    sorted: Vec<u32>,
}

impl Map {
    pub(crate) fn of(log: &Log) -> Map {
        let mut sorted: Vec<u32> = (0..log.scanned.blocks.len() as u32).collect();
        sorted.sort_by_key(|at| log.scanned.blocks[*at as usize].address);
        Map { sorted }
    }

    fn check(&self, log: &Log) -> Result<(), Overlap> {
        let block = |at: u32| &log.scanned.blocks[at as usize];
        if self.sorted.first().is_some_and(|first| block(*first).address == 0) {
            return Err(Overlap(0, 0));
        }
        for pair in self.sorted.windows(2) {
            let (first, second) = (block(pair[0]), block(pair[1]));
            if first.address.saturating_add(first.requested) > second.address {
                return Err(Overlap(first.address, second.address));
            }
        }
        Ok(())
    }

    /// Returns the block around an address, which has as many bytes as were requested.
    pub(crate) fn at(&self, blocks: &[ScannedBlock], address: u64) -> Option<usize> {
        let after = self.sorted.partition_point(|at| blocks[*at as usize].address <= address);
        let at = self.sorted[after.checked_sub(1)?] as usize;
        (address - blocks[at].address < blocks[at].requested).then_some(at)
    }
}
