//! Advice on resident memory: what would make less of it resident, and how much less.
//!
//! All of it is computed from the account. Nothing is tried in the process.

use crate::account::ResidentMemory;
use crate::allocators::Allocator;
use crate::glibc::{GlibcArena, Piece};

/// The least bytes that advice is given for: this many, and this percentage of resident memory.
pub(crate) const BYTES_MIN: u64 = 1 << 20;
pub(crate) const RESIDENT_PERCENT: u64 = 5;
/// The number of arenas that advice would leave to the threads: fewer cost time if many threads
/// allocate at once.
const ARENAS_LEFT: usize = 2;
/// The least part of the arenas that is free, in percent: threads that use their arenas need them.
const ARENAS_FREE_PERCENT: u64 = 50;
/// The bytes that glibc keeps at the end of each heap that it makes smaller (`M_TOP_PAD`).
const TOP_PAD: u64 = 128 << 10;

/// A change that would make less memory resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResidentAdvice {
    /// The bytes that would not be resident. The same bytes may be in several pieces of advice.
    pub bytes: u64,
    /// The change, with its evidence.
    pub finding: ResidentFinding,
}

/// A change, with the figures that are the evidence for it. Amounts are in resident bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResidentFinding {
    /// Calling `malloc_trim(0)`.
    Trim {
        /// The freed chunks in bins.
        free: Piece,
        /// The ends of heaps.
        top: Piece,
    },
    /// Fewer arenas of glibc's malloc (`M_ARENA_MAX`).
    Arenas {
        /// The arenas, the main one included.
        arenas: u64,
        /// The number of arenas that would be left.
        arenas_left: u64,
        /// The memory of all arenas.
        resident: u64,
        /// The part of it that is free.
        free: u64,
    },
    /// No caches of threads (`glibc.malloc.tcache_count`).
    ThreadCaches {
        /// The number of caches.
        caches: u64,
        /// The chunks in them.
        cached: Piece,
    },
    /// Small pages in place of huge ones.
    HugePages(crate::HugePages),
    /// Free pages that are given back sooner: jemalloc's decay, and the like.
    FreePages {
        /// The allocator.
        allocator: Allocator,
        /// The free pages that it keeps, and those that the system may take.
        free: [Piece; 2],
        /// The memory of its heap.
        heap: u64,
    },
    /// Doing without mappings of private memory that nobody touches.
    Idle {
        /// The time for which they were watched.
        milliseconds: u64,
        /// The number of mappings.
        mappings: u64,
        /// The address of the one with the most untouched memory.
        largest: u64,
        /// The untouched memory of that one.
        largest_idle: u64,
    },
}

impl ResidentFinding {
    /// Returns the name of the rule.
    pub fn rule(&self) -> &'static str {
        match self {
            ResidentFinding::Trim { .. } => "trim",
            ResidentFinding::Arenas { .. } => "arenas",
            ResidentFinding::ThreadCaches { .. } => "thread-caches",
            ResidentFinding::HugePages(_) => "huge-pages",
            ResidentFinding::FreePages { .. } => "free-pages",
            ResidentFinding::Idle { .. } => "idle",
        }
    }
}

impl ResidentMemory {
    /// Returns the advice on this memory, in descending order of bytes. A rule says nothing about
    /// less than 1 MiB or 5 % of resident memory.
    pub fn advice(&self) -> Vec<ResidentAdvice> {
        let least = BYTES_MIN.max(self.kernel.resident / 100 * RESIDENT_PERCENT);
        let found = [self.trim(), self.arenas(), self.thread_caches(), self.huge_pages_off()];
        let mut advice: Vec<ResidentAdvice> = found.into_iter().flatten().chain(self.free_pages()).collect();
        advice.retain(|advice| advice.bytes >= least);
        advice.sort_by_key(|advice| std::cmp::Reverse(advice.bytes));
        advice
    }

    fn trim(&self) -> Option<ResidentAdvice> {
        let total = self.glibc.as_ref()?.total();
        let finding = ResidentFinding::Trim { free: total.free, top: total.top };
        Some(ResidentAdvice { bytes: total.trimmable, finding })
    }

    /// Compares the free memory of all arenas with that of the largest ones: this is what would be
    /// left if the threads needed their memory one after the other.
    fn arenas(&self) -> Option<ResidentAdvice> {
        let arenas = &self.glibc.as_ref()?.arenas;
        let mut frees: Vec<u64> = arenas.iter().map(free).collect();
        frees.sort_unstable_by_key(|&free| std::cmp::Reverse(free));
        let all = frees.iter().copied().fold(0, u64::saturating_add);
        let resident = arenas.iter().map(resident).fold(0, u64::saturating_add);
        if arenas.len() <= 2 * ARENAS_LEFT || all < resident / 100 * ARENAS_FREE_PERCENT {
            return None;
        }
        let bytes = frees[ARENAS_LEFT..].iter().copied().fold(0, u64::saturating_add);
        let arenas = arenas.len() as u64;
        let finding = ResidentFinding::Arenas { arenas, arenas_left: ARENAS_LEFT as u64, resident, free: all };
        Some(ResidentAdvice { bytes, finding })
    }

    /// Counts what an arena has in caches beyond that which it would keep at the end of its heap.
    fn thread_caches(&self) -> Option<ResidentAdvice> {
        let heap = self.glibc.as_ref()?;
        let finding = ResidentFinding::ThreadCaches { caches: heap.caches, cached: heap.total().cached };
        let given_back = |arena: &GlibcArena| arena.cached.resident.saturating_sub(TOP_PAD);
        Some(ResidentAdvice { bytes: heap.arenas.iter().map(given_back).fold(0, u64::saturating_add), finding })
    }

    fn free_pages(&self) -> impl Iterator<Item = ResidentAdvice> {
        self.allocators.iter().map(|heap| {
            let free = [heap.dirty, heap.lazy];
            let bytes = free.iter().map(|piece| piece.resident).fold(0, u64::saturating_add);
            let finding = ResidentFinding::FreePages { allocator: heap.allocator, free, heap: heap.total().resident };
            ResidentAdvice { bytes, finding }
        })
    }

    fn huge_pages_off(&self) -> Option<ResidentAdvice> {
        let huge = self.huge_pages?;
        Some(ResidentAdvice { bytes: huge.empty, finding: ResidentFinding::HugePages(huge) })
    }
}

/// Returns the free bytes of an arena that every thread of it could use.
fn free(arena: &GlibcArena) -> u64 {
    [arena.fast, arena.free, arena.top].iter().map(|piece| piece.resident).fold(0, u64::saturating_add)
}

fn resident(arena: &GlibcArena) -> u64 {
    arena.pieces().iter().map(|piece| piece.resident).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::glibc::GlibcHeap;

    const MIB: u64 = 1 << 20;

    fn piece(resident: u64) -> Piece {
        Piece { chunks: 10, bytes: resident, resident }
    }

    fn memory(resident: u64, arenas: Vec<GlibcArena>) -> ResidentMemory {
        let mut memory = ResidentMemory::default();
        memory.glibc = Some(GlibcHeap { arenas, caches: 3, ..GlibcHeap::default() });
        memory.kernel.resident = resident;
        memory
    }

    fn found(memory: &ResidentMemory) -> Vec<(&'static str, u64)> {
        memory.advice().iter().map(|advice| (advice.finding.rule(), advice.bytes)).collect()
    }

    #[test]
    fn the_free_memory_of_all_but_the_largest_arenas() {
        let arena = |free, used| GlibcArena { free: piece(free), used: piece(used), ..GlibcArena::default() };
        let many: Vec<_> = (1..=8).map(|free| arena(free * MIB, MIB)).collect();
        assert_eq!(found(&memory(60 * MIB, many.clone())), [("arenas", 21 * MIB)]);
        // Four arenas are few; and threads that use what their arenas have need them.
        assert_eq!(found(&memory(60 * MIB, many[..4].to_vec())), []);
        assert_eq!(found(&memory(160 * MIB, (0..8).map(|_| arena(MIB, 10 * MIB)).collect())), []);
    }

    #[test]
    fn little_is_not_worth_advice() {
        let arena = |bytes| GlibcArena { trimmable: bytes, cached: piece(2 * bytes), ..GlibcArena::default() };
        let caches = ("thread-caches", 2 * MIB - TOP_PAD);
        assert_eq!(found(&memory(10 * MIB, vec![arena(MIB)])), [caches, ("trim", MIB)]);
        assert_eq!(found(&memory(30 * MIB, vec![arena(MIB)])), [caches]);
        assert_eq!(found(&memory(10 * MIB, vec![arena(MIB / 4)])), []);
        assert_eq!(found(&ResidentMemory::default()), []);
    }
}
