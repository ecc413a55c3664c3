//! Reports from the heap checker, if this process has started it.

use heapledger_core::block_sampler;
use heapledger_query::{HeapChecker, PhcStats};
use heapledger_report_format::{Kind, Report, Unit};

use super::{add, add_kind};

/// The figures of the checker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checker {
    pub(super) stats: PhcStats,
    /// True if the checker is the sampler of Heapledger's allocator, whose figures have the
    /// checker's blocks, the rests of their pages, and its table.
    is_counted: bool,
}

/// Returns the figures of the checker. `None` if it does not run.
pub(super) fn statistics() -> Option<Checker> {
    let checker = HeapChecker::get();
    let stats = checker.is_running().then(|| checker.stats())?;
    Some(Checker { stats, is_counted: block_sampler::get().is_some() })
}

impl Checker {
    /// Returns the bytes of its live blocks that no allocator counts.
    pub(super) fn uncounted(&self) -> u64 {
        if self.is_counted { 0 } else { self.stats.bytes_allocated as u64 }
    }

    /// Reports the figures. The live blocks are part of `heap-allocated`.
    pub(super) fn report(&self, reports: &mut Vec<Report>) {
        let stats = &self.stats;
        let blocks = "Blocks that the program has, and that the heap checker has sampled.";
        let parts = [
            ("fragmentation", stats.bytes_fragmentation, "The rest of the pages of the heap checker's live blocks."),
            ("metadata", stats.bytes_metadata, "The heap checker's table of slots. Its stacks are not counted."),
        ];
        if self.is_counted {
            // The trees of the heap and of explicit memory have these bytes in other places.
            for (name, bytes, description) in [("allocated", stats.bytes_allocated, blocks)].iter().chain(&parts) {
                add(reports, &format!("phc/{name}"), Unit::Bytes, *bytes as u64, description);
            }
        } else {
            add(reports, "heap/phc/allocated", Unit::Bytes, stats.bytes_allocated as u64, blocks);
            for (name, bytes, description) in parts {
                let path = format!("explicit/phc/{name}");
                add_kind(reports, &path, Kind::NonHeap, Unit::Bytes, bytes as u64, description);
            }
        }
        let parts = [
            ("allocated", stats.slots_allocated, "The heap checker's slots whose blocks are live."),
            ("freed", stats.slots_freed, "Those whose blocks were freed."),
            ("unused", stats.slots_unused, "Those within its limit of memory that were never used."),
        ];
        for (name, slots, description) in parts {
            add(reports, &format!("phc-slots/{name}"), Unit::Count, slots.into(), description);
        }
    }
}
