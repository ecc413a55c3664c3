//! Blocks with times as exact as there is room for.

/// A block, or several of the same stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Block {
    pub(super) process: usize,
    pub(super) sample: usize,
    /// The time at which it was allocated.
    pub(super) from_ns: u64,
    /// The time at which it was freed, if it was.
    pub(super) to_ns: Option<u64>,
    /// The thread; of several blocks, that of the first.
    pub(super) thread: u32,
    pub(super) bytes: u64,
}

/// The interval in nanoseconds to which times are rounded first, if they must be.
const INTERVAL_NS: u64 = 1_000_000;
/// The longest interval to which times are rounded.
const INTERVAL_NS_MAX: u64 = INTERVAL_NS << 40;

/// Blocks that were freed, and at the end those that were not.
#[derive(Debug)]
pub(super) struct Blocks {
    blocks: Vec<Block>,
    /// The interval to which times are rounded; 0: they are not.
    interval_ns: u64,
    most: usize,
    /// The number of blocks at which they are merged. More than `most`, if so many stacks allocate.
    limit: usize,
}

impl Blocks {
    pub(super) fn new(most: usize) -> Self {
        let most = most.max(1);
        Blocks { blocks: Vec::new(), interval_ns: 0, most, limit: most }
    }

    pub(super) fn add(&mut self, block: Block) {
        self.blocks.push(block);
        if self.blocks.len() > self.limit {
            self.make_room();
        }
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Returns the interval to which times are rounded down, if they are.
    pub(super) fn interval_ns(&self) -> Option<u64> {
        (self.interval_ns > 0).then_some(self.interval_ns)
    }

    /// Returns all blocks. There are no more after this.
    pub(super) fn finish(&mut self) -> Vec<Block> {
        if self.interval_ns > 0 {
            self.merge();
        }
        std::mem::take(&mut self.blocks)
    }

    fn make_room(&mut self) {
        self.merge();
        while self.blocks.len() > self.most / 2 && self.interval_ns < INTERVAL_NS_MAX {
            self.interval_ns = (self.interval_ns * 2).max(INTERVAL_NS);
            self.merge();
        }
        self.limit = self.most.max(self.blocks.len() * 2);
    }

    /// Rounds times, and merges blocks that are then equal.
    fn merge(&mut self) {
        let interval = self.interval_ns.max(1);
        let round = |time: u64| time - time % interval;
        for block in &mut self.blocks {
            block.from_ns = round(block.from_ns);
            block.to_ns = block.to_ns.map(round);
        }
        self.blocks.sort_unstable();
        self.blocks.dedup_by(|next, first| {
            let key = |block: &Block| (block.process, block.sample, block.from_ns, block.to_ns);
            let are_equal = key(next) == key(first);
            if are_equal {
                first.bytes = first.bytes.saturating_add(next.bytes);
            }
            are_equal
        });
    }
}
