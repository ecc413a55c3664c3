//! The allocator calls that Heapledger distinguishes.

/// An allocator entry point. The numbers are part of the ring protocol and of the recording format:
/// they are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum Api {
    /// `malloc(size)`.
    Malloc = 1,
    /// `calloc(count, size)`.
    Calloc = 2,
    /// `realloc(old, size)`.
    Realloc = 3,
    /// `reallocarray(old, count, size)`.
    Reallocarray = 4,
    /// `memalign(alignment, size)`.
    Memalign = 5,
    /// C11 `aligned_alloc(alignment, size)`.
    AlignedAlloc = 6,
    /// `posix_memalign(out, alignment, size)`.
    PosixMemalign = 7,
    /// `valloc(size)`.
    Valloc = 8,
    /// `pvalloc(size)`.
    Pvalloc = 9,
    /// `free(block)`.
    Free = 16,
    /// The historical `cfree(block)`.
    Cfree = 17,
    /// C23 `free_sized(block, size)`.
    FreeSized = 18,
    /// C23 `free_aligned_sized(block, alignment, size)`.
    FreeAlignedSized = 19,
    /// A user pool gave out a block.
    PoolAlloc = 32,
    /// A user pool took a block back.
    PoolFree = 33,
    /// A block became the backing memory of a user pool: its memory is not freed, but from here on
    /// the pool's blocks are counted instead of it.
    PoolBack = 34,
    /// A user pool took all its blocks back at once.
    PoolReset = 35,
}

impl Api {
    /// Every entry point, in the order of the numbers.
    pub const ALL: [Api; 17] = [
        Api::Malloc,
        Api::Calloc,
        Api::Realloc,
        Api::Reallocarray,
        Api::Memalign,
        Api::AlignedAlloc,
        Api::PosixMemalign,
        Api::Valloc,
        Api::Pvalloc,
        Api::Free,
        Api::Cfree,
        Api::FreeSized,
        Api::FreeAlignedSized,
        Api::PoolAlloc,
        Api::PoolFree,
        Api::PoolBack,
        Api::PoolReset,
    ];

    /// Returns the entry point with this number, if this version knows it.
    pub const fn from_number(number: u8) -> Option<Api> {
        let mut at = 0;
        while at < Api::ALL.len() {
            if Api::ALL[at] as u8 == number {
                return Some(Api::ALL[at]);
            }
            at += 1;
        }
        None
    }

    /// Returns the name of the C function, or a name of that style for events of user pools.
    pub const fn name(self) -> &'static str {
        match self {
            Api::Malloc => "malloc",
            Api::Calloc => "calloc",
            Api::Realloc => "realloc",
            Api::Reallocarray => "reallocarray",
            Api::Memalign => "memalign",
            Api::AlignedAlloc => "aligned_alloc",
            Api::PosixMemalign => "posix_memalign",
            Api::Valloc => "valloc",
            Api::Pvalloc => "pvalloc",
            Api::Free => "free",
            Api::Cfree => "cfree",
            Api::FreeSized => "free_sized",
            Api::FreeAlignedSized => "free_aligned_sized",
            Api::PoolAlloc => "pool_alloc",
            Api::PoolFree => "pool_free",
            Api::PoolBack => "pool_back",
            Api::PoolReset => "pool_reset",
        }
    }

    /// True if the call may move an existing block.
    pub const fn is_realloc(self) -> bool {
        matches!(self, Api::Realloc | Api::Reallocarray)
    }
}

#[cfg(test)]
mod tests;
