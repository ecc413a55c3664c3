//! The cost of a provider's own accounting.

use std::collections::BTreeMap;

use heapledger_profile_formats::chrome::ProcessDump;
use heapledger_reporters::internal::untracked;

/// The memory that a provider needs for its accounting of blocks, by purpose. It belongs in the
/// same dump as the heap, since viewers subtract it from the memory that the program holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderOverhead(BTreeMap<String, Cost>);

/// The cost of one purpose: of some tables or the like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The number of tables.
    pub count: u64,
    /// Bytes of the tables that are allocated by `malloc`.
    pub bytes_allocated: u64,
    /// Bytes that the tables have mapped in addition, touched or not.
    pub bytes_mapped: u64,
    /// Bytes of both that are in physical memory; 0 if that is not known.
    pub bytes_resident: u64,
}

impl ProviderOverhead {
    /// Adds the cost of some tables.
    pub fn add(&mut self, purpose: &str, cost: Cost) {
        let sum = untracked::scope(|| self.0.entry(purpose.to_owned()).or_default());
        sum.count += cost.count;
        sum.bytes_allocated += cost.bytes_allocated;
        sum.bytes_mapped += cost.bytes_mapped;
        sum.bytes_resident += cost.bytes_resident;
    }

    /// Adds the overhead to a dump: `tracing/heap_profiler_ALLOCATOR`.
    pub fn dump_into(&self, allocator: &str, dump: &mut ProcessDump) {
        let _untracked = untracked::enter();
        for (purpose, cost) in &self.0 {
            let said = dump.allocator(&format!("tracing/heap_profiler_{allocator}/{purpose}"));
            // Viewers take a dump with a size for memory of malloc.
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
