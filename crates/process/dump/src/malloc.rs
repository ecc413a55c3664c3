//! The allocator itself, and the heap that the ledger knows: included in every dump.
//!
//! Nothing here waits for code of the program, so it runs in the calling thread, without a
//! deadline.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use heapledger_core::sys;
use heapledger_profile_formats::Amount;
use heapledger_profile_formats::chrome::{Heap, Level, ProcessDump};
use heapledger_query::{Ledger, LedgerOptions, Snapshot, SnapshotOptions, Stack};
use heapledger_reporters::internal::Figures;

use crate::names::{self, Names};
use crate::overhead::{Cost, ProviderOverhead};

/// The allocator dump of all blocks that the program has. Other allocator dumps whose memory is
/// allocated are [parts of it](ProcessDump::suballocate).
pub const MALLOC_OBJECTS: &str = "malloc/allocated_objects";

const MALLOC: &str = "malloc";
const FREE: &str = "malloc/metadata_fragmentation_caches";

/// True if the ledger runs because heaps are profiled.
static HAS_STARTED: AtomicBool = AtomicBool::new(false);

/// Starts the ledger, if it does not run; or stops it, if it was started here. If it cannot be
/// started, dumps have the allocator's own figures.
pub(crate) fn set_heap_profiling(is_enabled: bool) {
    if is_enabled {
        if Ledger::start(LedgerOptions::EXACT).is_ok() {
            HAS_STARTED.store(true, Ordering::Relaxed);
        }
    } else if HAS_STARTED.swap(false, Ordering::Relaxed) {
        Ledger::get().stop();
    }
}

/// Adds the allocator's figures, and returns the live blocks for [`Live::add_heaps`] if the dump is
/// a detailed one.
///
/// # Errors
///
/// An error if there is no memory for a copy of the ledger. The figures are in the dump
/// nevertheless.
pub(crate) fn dump(level: Level, dump: &mut ProcessDump) -> Result<Option<Live>, String> {
    let ledger = Ledger::get();
    // The figures must not include memory that is allocated for the dump.
    let figures = Figures::now();
    let is_running = ledger.is_running();
    let snapshot = (is_running && level == Level::Detailed).then(|| ledger.snapshot(&SnapshotOptions::default()));
    let snapshot = snapshot.transpose().map_err(|error| error.to_string());
    let of_snapshot = snapshot.as_ref().ok().and_then(|snapshot| snapshot.as_ref().map(Snapshot::totals));
    let totals = of_snapshot.or_else(|| is_running.then(|| ledger.totals()));
    let known = totals.map(|totals| Figures { allocated: totals.bytes_live.0, mapped: totals.bytes_live.0 });
    let Some(Figures { allocated, mapped }) = figures.or(known) else { return Ok(None) };
    dump.allocator(MALLOC).set_size(mapped).set_scalar("virtual_size", "bytes", mapped);
    let objects = dump.allocator(MALLOC_OBJECTS).set_size(allocated);
    if let Some(totals) = totals {
        objects.set_scalar("shim_allocated_objects_size", "bytes", totals.bytes_live.0);
        objects.set_scalar("shim_allocated_objects_count", "objects", totals.blocks_live.0);
    }
    if let Some(free) = mapped.checked_sub(allocated).filter(|&free| free > 0) {
        dump.allocator(FREE).set_size(free);
    }
    let Some(snapshot) = snapshot? else { return Ok(None) };
    let live = Live::new(snapshot);
    for (allocator, total) in live.heaps() {
        dump.allocator(&allocator).set_size(total.bytes).set_object_count(total.blocks);
    }
    add_overhead(ledger, dump);
    Ok(Some(live))
}

/// Adds the memory that the ledger itself has mapped, by purpose, and how much of it is resident.
fn add_overhead(ledger: Ledger, dump: &mut ProcessDump) {
    let of_ledger = ledger.overhead();
    let mut overhead = ProviderOverhead::default();
    for (purpose, bytes) in [
        ("register", of_ledger.bytes_ledger),
        ("stacks", of_ledger.bytes_stacks),
        ("rules", of_ledger.bytes_rules),
        ("threads", of_ledger.bytes_threads),
        ("filter", of_ledger.bytes_filter),
    ] {
        overhead.add(purpose, Cost { count: 1, bytes_mapped: bytes.0, ..Cost::default() });
    }
    overhead.dump_into(MALLOC, dump);
    let resident = sys::mappings::bytes_resident();
    dump.allocator("tracing/heap_profiler_malloc").set_scalar("resident_size", "bytes", resident);
}

/// The live blocks, by stack and type. The ledger is not held any more.
pub(crate) struct Live(HashMap<(Stack, Option<&'static str>), Amount>);

impl Live {
    fn new(snapshot: Snapshot) -> Live {
        let mut groups: HashMap<_, Amount> = HashMap::new();
        for block in snapshot.blocks() {
            let amount = groups.entry((block.stack, block.type_name())).or_default();
            amount.blocks += block.weight.0;
            amount.bytes += block.weight.0 * block.size.0;
        }
        Live(groups)
    }

    /// Returns the live amounts of the heaps that the program has declared.
    fn heaps(&self) -> BTreeMap<String, Amount> {
        let mut heaps: BTreeMap<String, Amount> = BTreeMap::new();
        for ((stack, _), amount) in &self.0 {
            if let Some(heap) = heap_of(*stack) {
                heaps.entry(heap).or_default().add(*amount);
            }
        }
        heaps
    }

    /// Adds a heap for the program's allocator, and one for each heap that the program has
    /// declared. Functions that have not been looked up by `end` appear as their addresses.
    pub(crate) fn add_heaps(self, end: Instant, dump: &mut ProcessDump) {
        let stacks = self.0.keys().map(|(stack, _)| *stack);
        names::look_up(stacks.flat_map(Stack::frames).collect(), end);
        let names = Names::known();
        let mut heaps = BTreeMap::from([(MALLOC.to_owned(), Heap::default())]);
        for ((stack, type_name), amount) in self.0 {
            let allocator = heap_of(stack).unwrap_or_else(|| MALLOC.to_owned());
            heaps.entry(allocator).or_default().add(names.frames(stack), type_name, amount);
        }
        heaps.into_iter().for_each(|(allocator, heap)| dump.add_heap(&allocator, heap));
    }
}

/// Returns the name of the heap of a stack's blocks, unless it is the allocator's.
fn heap_of(stack: Stack) -> Option<String> {
    // The name must be one part: what follows a slash would be taken for a part of the heap.
    stack.heap().map(|heap| heap.replace('/', "\\"))
}
