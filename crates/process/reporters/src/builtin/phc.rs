//! Reports from the heap checker, if this process has started it.

use heapledger_core::block_sampler;
use heapledger_query::{HeapChecker, PhcStats};
use heapledger_report_format::{Kind, Report, Unit};

use super::{add, add_kind};

/// Returns the figures of the checker, and the bytes of its live blocks that no allocator counts.
/// `None` if it does not run.
pub(super) fn statistics() -> Option<(PhcStats, u64)> {
    let checker = HeapChecker::get();
    let stats = checker.is_running().then(|| checker.stats())?;
    // Heapledger's allocator counts them if the checker is its sampler.
    let is_counted = block_sampler::get().is_some();
    Some((stats, if is_counted { 0 } else { stats.bytes_allocated as u64 }))
}

/// Reports the figures of the checker. Its live blocks are part of `heap-allocated`.
pub(super) fn report(stats: &PhcStats, reports: &mut Vec<Report>) {
    let description = "Blocks that the program has, and that the heap checker has sampled.";
    add(reports, "heap/phc/allocated", Unit::Bytes, stats.bytes_allocated as u64, description);
    let parts = [
        ("fragmentation", stats.bytes_fragmentation, "The rest of the pages of the heap checker's live blocks."),
        ("metadata", stats.bytes_metadata, "The heap checker's table of slots. Its stacks are not counted."),
    ];
    for (name, bytes, description) in parts {
        add_kind(reports, &format!("explicit/phc/{name}"), Kind::NonHeap, Unit::Bytes, bytes as u64, description);
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
