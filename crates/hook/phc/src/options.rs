//! The options of the checker.

/// The place of a block in its slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PhcPlacement {
    /// At the slot's end, so that the first byte past the block (rounded up to the alignment) is on
    /// the guard page: overflows are caught.
    #[default]
    End,
    /// At the slot's beginning, so that the byte before the block is on the guard page: underflows
    /// are caught.
    Start,
    /// Either, drawn for each block.
    Drawn,
}

/// The options of the checker. Delays are mean numbers of allocations, in all threads together.
/// They are rounded up to powers of two, of at least 2 and at most 2³¹; a normal delay of 1 samples
/// every allocation.
///
/// The defaults are Mozilla's, except for `usable` sizes: see `docs/phc.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhcOptions {
    /// The allocations before the first one that is sampled.
    pub delay_first: u64,
    /// The allocations between two that are sampled.
    pub delay_normal: u64,
    /// The allocations for which the page of a freed block is kept out of reuse: at least half of
    /// this number.
    pub delay_reuse: u64,
    /// The bytes of pages for blocks. One half is for blocks of at most a page, the other for
    /// larger ones. Guard pages are not counted, since they take no memory.
    pub bytes_max: usize,
    /// The bytes of memory of the machine below which the checker does not start.
    pub memory_min: u64,
    /// The place of blocks in their slots.
    pub placement: PhcPlacement,
    /// True if a stack that was sampled often is sampled less, and others more.
    pub is_adaptive: bool,
    /// True if reports are printed to standard error.
    pub prints: bool,
}

impl Default for PhcOptions {
    fn default() -> PhcOptions {
        PhcOptions {
            delay_first: 64 << 10,
            delay_normal: 16 << 10,
            delay_reuse: 256 << 10,
            bytes_max: 16 << 20,
            memory_min: 8_000_000_000,
            placement: PhcPlacement::End,
            is_adaptive: false,
            prints: true,
        }
    }
}
