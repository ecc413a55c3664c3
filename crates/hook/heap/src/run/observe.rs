//! The state of a run as a thread sees it that may not own it.

use super::{Run, RunPtr};
use crate::block::Block;
use crate::classes::{CLASSES, bytes_of, capacity_of, slices_of};
use crate::geometry::SLICE;
use crate::keys::Key;

/// The most blocks that a run has.
const BLOCKS_MAX: usize = SLICE / 16;

/// The state of a run at one moment. If other threads use the run meanwhile, some blocks may be
/// seen as they were just before or after.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    /// The address of the first block.
    pub(crate) start: usize,
    /// The size of a block in bytes, not 0.
    pub(crate) size: usize,
    pub(crate) class: usize,
    pub(crate) slices: usize,
    pub(crate) capacity: usize,
    /// The number of blocks that have been in use or in a list.
    pub(crate) carved: usize,
    /// The pages of the first slice that may have memory.
    pub(crate) pages: usize,
    /// The length of the list from which blocks are handed out.
    pub(crate) handed_out_next: usize,
    /// One bit for each block that is in a list of free blocks.
    free: [u64; BLOCKS_MAX / 64],
}

impl Observed {
    /// Looks at a run. `None` if it was released, or makes no sense because it is just changing.
    ///
    /// The chunk of the run stays mapped meanwhile.
    pub(crate) fn new(run: RunPtr) -> Option<Observed> {
        if run.owner().is_null() {
            return None;
        }
        // All from the class, because other fields might be those of another moment. So the blocks
        // whose first words are read lie in the first slice, which has memory while it is a run's.
        let (class, carved) = (run.class(), usize::from(run.carved.get()));
        if class >= CLASSES || carved > capacity_of(class) {
            return None;
        }
        let (size, slices, capacity) = (bytes_of(class), slices_of(class), capacity_of(class));
        let mut observed = Observed {
            start: run.start().addr(),
            size,
            class,
            slices,
            capacity,
            carved,
            pages: run.pages(),
            handed_out_next: 0,
            free: [0; BLOCKS_MAX / 64],
        };
        let key = run.key();
        observed.note(key, run.start(), run.free.get());
        observed.handed_out_next = carved - observed.live();
        observed.note(key, run.start(), run.local_free.get());
        observed.note(key, run.start(), run.remote.first());
        Some(observed)
    }

    /// Notes the blocks of a list. Ends at the first address that is not a block's, and at one that
    /// was noted before.
    fn note(&mut self, key: Key, start: *mut u8, first: *mut Block) {
        let mut block = first;
        while let Some(number) = self.number_of(block.addr()).filter(|&number| number < self.carved) {
            let (word, bit) = (&mut self.free[number / 64 % (BLOCKS_MAX / 64)], 1 << (number % 64));
            if block.addr() != self.start + number * self.size || *word & bit != 0 {
                return;
            }
            *word |= bit;
            let block_now = start.wrapping_add(number * self.size).cast::<Block>();
            // SAFETY: `peek_next` demands a block of a run whose chunk stays mapped: by the
            // contract of `new`. The address is judged before it is used.
            block = unsafe { key.peek_next(block_now) };
        }
    }

    /// Returns the number of the block that an address is in. `None` if it is not in a block.
    pub(crate) fn number_of(&self, address: usize) -> Option<usize> {
        let number = address.checked_sub(self.start)? / self.size;
        (number < self.capacity).then_some(number)
    }

    /// True if a block is in use.
    pub(crate) fn is_live(&self, number: usize) -> bool {
        let is_free = self.free.get(number / 64).is_none_or(|word| word & 1 << (number % 64) != 0);
        number < self.carved && !is_free
    }

    /// Returns the number of blocks in use.
    pub(crate) fn live(&self) -> usize {
        self.carved - self.free.iter().map(|word| word.count_ones() as usize).sum::<usize>()
    }
}

impl Run {
    /// Returns the offsets of fields in the metadata of a run, in bytes, for readers outside of the
    /// process: of `owner`, `used`, `size`, `capacity`, `carved`, `class`, `slices` and `touched`.
    pub(crate) const fn offsets() -> [u32; 8] {
        [
            core::mem::offset_of!(Run, owner) as u32,
            core::mem::offset_of!(Run, used) as u32,
            core::mem::offset_of!(Run, size) as u32,
            core::mem::offset_of!(Run, capacity) as u32,
            core::mem::offset_of!(Run, carved) as u32,
            core::mem::offset_of!(Run, class) as u32,
            core::mem::offset_of!(Run, slices) as u32,
            core::mem::offset_of!(Run, touched) as u32,
        ]
    }
}
