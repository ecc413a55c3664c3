//! What keeping account of blocks costs itself.

use std::collections::BTreeMap;

use heapledger_profiles::chrome::ProcessDump;
use heapledger_report::between::untracked;

/// What a provider needs for its account of blocks, by purpose: to be said in the same dump as the heap, since viewers take it off
/// what the program holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overhead(BTreeMap<String, Part>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    count: u64,
    allocated: u64,
    mapped: u64,
}

impl Overhead {
    /// Adds some tables or the like: how many there are, what of them is allocated by `malloc`, and what they have mapped
    /// beside that, touched or not.
    pub fn add(&mut self, purpose: &str, count: u64, bytes_allocated: u64, bytes_mapped: u64) {
        let part = untracked::scope(|| self.0.entry(purpose.to_owned()).or_default());
        part.count += count;
        part.allocated += bytes_allocated;
        part.mapped += bytes_mapped;
    }

    /// Says it in a dump: `tracing/heap_profiler_ALLOCATOR`.
    pub fn dump_into(&self, allocator: &str, dump: &mut ProcessDump) {
        let _untracked = untracked::enter();
        for (purpose, part) in &self.0 {
            let said = dump.allocator(&format!("tracing/heap_profiler_{allocator}/{purpose}"));
            // As viewers see it, what has a size is of malloc.
            said.set_size(part.allocated).set_object_count(part.count);
            if part.mapped > 0 {
                said.set_scalar("virtual_size", "bytes", part.mapped);
            }
        }
    }
}
