//! What keeping account of blocks costs itself.

use std::collections::BTreeMap;

use heapledger_profiles::chrome::ProcessDump;
use heapledger_report::between::untracked;

/// What a provider needs for its account of blocks, by purpose: to be said in the same dump as the heap, since viewers take it off
/// what the program holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overhead(BTreeMap<String, Cost>);

/// What a purpose costs: some tables or the like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The number of tables.
    pub count: u64,
    /// Bytes of them that are allocated by `malloc`.
    pub bytes_allocated: u64,
    /// Bytes that they have mapped beside that, touched or not.
    pub bytes_mapped: u64,
    /// Bytes of both that are in physical memory, if that is known; 0 otherwise.
    pub bytes_resident: u64,
}

impl Overhead {
    /// Adds what some tables cost.
    pub fn add(&mut self, purpose: &str, cost: Cost) {
        let sum = untracked::scope(|| self.0.entry(purpose.to_owned()).or_default());
        sum.count += cost.count;
        sum.bytes_allocated += cost.bytes_allocated;
        sum.bytes_mapped += cost.bytes_mapped;
        sum.bytes_resident += cost.bytes_resident;
    }

    /// Says it in a dump: `tracing/heap_profiler_ALLOCATOR`.
    pub fn dump_into(&self, allocator: &str, dump: &mut ProcessDump) {
        let _untracked = untracked::enter();
        for (purpose, cost) in &self.0 {
            let said = dump.allocator(&format!("tracing/heap_profiler_{allocator}/{purpose}"));
            // As viewers see it, what has a size is of malloc.
            said.set_size(cost.bytes_allocated).set_object_count(cost.count);
            if cost.bytes_mapped > 0 {
                said.set_scalar("virtual_size", "bytes", cost.bytes_mapped);
            }
            if cost.bytes_resident > 0 {
                said.set_scalar("resident_size", "bytes", cost.bytes_resident);
            }
        }
    }
}
