//! The chains of blocks that point to a block, up to blocks that no block in the heap points to.

use std::collections::VecDeque;

use crate::log::{Log, ScannedBlock};

/// The pointers of a heap, backwards: for each block, the blocks that contain an address inside it.
/// A word that looks like such an address is taken for one.
///
/// Takes 16 bytes for each block and 12 for each pointer, and a search for each word.
#[derive(Debug)]
pub struct Referrers<'log> {
    log: &'log Log,
    /// Numbers of blocks, by address.
    by_address: Vec<u32>,
    /// The index in `pointers` at which the pointers to each block begin; one more than there are
    /// blocks.
    first: Vec<usize>,
    pointers: Vec<Pointer>,
}

/// A word that is an address in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pointer {
    /// The number of the block that contains the word.
    from: u32,
    /// The index of the word in that block.
    word: u32,
}

/// The chains to a block: a tree whose root is that block, and in which the children of each block
/// are those that point to it. Each block is in it once, on one of the shortest ways.
#[derive(Clone, Debug, PartialEq)]
pub struct Chains {
    /// The offset in the block of the address that was asked for.
    pub offset: u64,
    /// The block itself, then all others, nearest first.
    pub links: Vec<Link>,
    /// True if there were more.
    pub is_cut: bool,
}

/// A block on the way to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// The number of the block: an index of the log's scanned blocks.
    pub block: usize,
    /// The link that it points to; the first has itself.
    pub to: usize,
    /// The offsets in bytes of all its pointers there, in ascending order; none for the first link.
    pub offsets: Vec<u64>,
    /// The number of pointers to this block in all of the heap, without its own: 0 for a block that
    /// is held from outside the heap, by a stack, a static or a register, or not at all.
    pub referrers: usize,
    /// The number of blocks pointing to it that are elsewhere in the tree: nearer by, or in a
    /// cycle.
    pub elsewhere: usize,
    /// The number of steps from the first link.
    pub depth: usize,
}

impl Link {
    /// True if no block in the heap points to it.
    pub fn is_root(&self) -> bool {
        self.referrers == 0
    }
}

impl<'log> Referrers<'log> {
    /// Looks at every word of a log with contents.
    pub fn of(log: &'log Log) -> Referrers<'log> {
        let blocks = &log.scanned.blocks;
        let mut by_address: Vec<u32> = (0..blocks.len() as u32).collect();
        by_address.sort_unstable_by_key(|&block| blocks[block as usize].address);
        let mut referrers = Referrers { log, by_address, first: vec![0; blocks.len() + 1], pointers: Vec::new() };
        // Counted, then placed: reading each word twice takes less memory than a list of lists.
        let mut counts = vec![0_usize; blocks.len()];
        referrers.each_pointer(|to, _| counts[to] += 1);
        let mut sum = 0;
        for (first, count) in referrers.first[1..].iter_mut().zip(&counts) {
            sum += count;
            *first = sum;
        }
        let mut next: Vec<usize> = referrers.first[..blocks.len()].to_vec();
        let mut pointers = vec![Pointer { from: 0, word: 0 }; sum];
        referrers.each_pointer(|to, pointer| {
            pointers[next[to]] = pointer;
            next[to] += 1;
        });
        referrers.pointers = pointers;
        referrers
    }

    fn each_pointer(&self, mut found: impl FnMut(usize, Pointer)) {
        let scanned = &self.log.scanned;
        let (Some(first), Some(last)) = (self.by_address.first(), self.by_address.last()) else { return };
        let lowest = scanned.blocks[*first as usize].address;
        let end = end(&scanned.blocks[*last as usize]);
        for (from, block) in scanned.blocks.iter().enumerate() {
            for (word, &value) in scanned.words[block.words.clone()].iter().enumerate() {
                if (lowest..end).contains(&value)
                    && let Some(to) = self.block_around(value)
                {
                    found(to, Pointer { from: from as u32, word: word as u32 });
                }
            }
        }
    }

    /// Returns the number of the block that an address is in.
    pub fn block_around(&self, address: u64) -> Option<usize> {
        let blocks = &self.log.scanned.blocks;
        let after = self.by_address.partition_point(|&block| blocks[block as usize].address <= address);
        let block = *self.by_address.get(after.checked_sub(1)?)? as usize;
        (address < end(&blocks[block])).then_some(block)
    }

    /// Returns all ways to the block around an address, with at most `links_max` blocks on them;
    /// `None`: there is no block there.
    pub fn chains(&self, address: u64, links_max: usize) -> Option<Chains> {
        let target = self.block_around(address)?;
        let mut link_of = vec![u32::MAX; self.log.scanned.blocks.len()];
        let first = Link { block: target, to: 0, offsets: Vec::new(), referrers: 0, elsewhere: 0, depth: 0 };
        let mut chains =
            Chains { offset: address - self.log.scanned.blocks[target].address, links: vec![first], is_cut: false };
        link_of[target] = 0;
        let mut waiting = VecDeque::from([0_usize]);
        while let Some(to) = waiting.pop_front() {
            let (block, depth) = (chains.links[to].block, chains.links[to].depth);
            let pointers = &self.pointers[self.first[block]..self.first[block + 1]];
            // Pointers from one block are adjacent: blocks were looked at one after the other.
            for same in pointers.chunk_by(|a, b| a.from == b.from) {
                let from = same[0].from as usize;
                if from == block {
                    continue;
                }
                chains.links[to].referrers += same.len();
                if link_of[from] != u32::MAX {
                    chains.links[to].elsewhere += 1;
                } else if chains.links.len() >= links_max {
                    chains.is_cut = true;
                } else {
                    link_of[from] = chains.links.len() as u32;
                    waiting.push_back(chains.links.len());
                    let offsets = same.iter().map(|pointer| u64::from(pointer.word) * 8).collect();
                    let depth = depth + 1;
                    chains.links.push(Link { block: from, to, offsets, referrers: 0, elsewhere: 0, depth });
                }
            }
        }
        Some(chains)
    }
}

/// Returns the end of a block. A block without bytes still occupies its address.
fn end(block: &ScannedBlock) -> u64 {
    block.address.saturating_add(block.requested.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Builder;
    use crate::log::{Block, Mode};

    /// Returns a log of these blocks, given by address and contents.
    fn heap(blocks: &[(u64, &[u64])]) -> Log {
        let mut builder = Builder::new(Mode::Scan);
        for &(address, contents) in blocks {
            let block = Block {
                requested: contents.len() as u64 * 8,
                slop: 0,
                count: 1,
                weight: 1.0,
                variance: 0.0,
                alloc: None,
                reports: [None; 2],
                type_name: None,
                context: None,
            };
            builder.add_scanned(&block, address, contents);
        }
        builder.finish()
    }

    #[test]
    fn whole_chains_are_found_at_once() {
        // 0x100 <- 0x200 (interior) <- 0x300, a root; 0x400 points to 0x100 twice and to 0x200, and
        // to itself.
        let log = heap(&[
            (0x300, &[7, 0x208]),
            (0x100, &[0, 0, 0]),
            (0x200, &[0, 0x110]),
            (0x400, &[0x100, 0x400, 0x117, 0x200]),
        ]);
        let chains = Referrers::of(&log).chains(0x112, 100).unwrap();
        assert_eq!((chains.offset, chains.is_cut), (0x12, false));
        let found: Vec<_> = chains
            .links
            .iter()
            .map(|link| {
                let address = log.scanned.blocks[link.block].address;
                (address, link.to, &link.offsets[..], link.elsewhere, link.depth, link.is_root())
            })
            .collect();
        assert_eq!(
            found,
            [
                (0x100, 0, &[][..], 0, 0, false),
                (0x200, 0, &[8], 1, 1, false),
                (0x400, 0, &[0, 16], 0, 1, true),
                (0x300, 1, &[8], 0, 2, true),
            ]
        );
        assert_eq!(Referrers::of(&log).chains(0x118, 100), None, "it is behind the block");
        assert_eq!(Referrers::of(&log).chains(0xff, 100), None);
    }

    #[test]
    fn cycles_end() {
        let log = heap(&[(0x10, &[0x20]), (0x20, &[0x30]), (0x30, &[0x10])]);
        let chains = Referrers::of(&log).chains(0x10, 100).unwrap();
        let ends: Vec<_> = chains.links.iter().map(|link| (link.depth, link.elsewhere, link.is_root())).collect();
        assert_eq!(ends, [(0, 0, false), (1, 0, false), (2, 1, false)]);
        let cut = Referrers::of(&log).chains(0x10, 2).unwrap();
        assert!(cut.is_cut && cut.links.len() == 2);
    }

    #[test]
    fn an_empty_heap_has_nobody() {
        assert_eq!(Referrers::of(&heap(&[])).chains(0, 9), None);
    }
}
