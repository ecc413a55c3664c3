//! The allocator itself, and the heap that the ledger knows.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use heapledger_inspect::{Frame, Ledger, Options, Snapshot, SnapshotOptions, Stack};
use heapledger_profiles::Amount;
use heapledger_profiles::chrome::{Heap, Level, ProcessDump};
use heapledger_report::between::{Figures, untracked};

use crate::overhead::Overhead;
use crate::provider::{DumpArgs, Failed, Provider, ProviderOptions};
use crate::registry::Entry;

/// The allocator dump of all blocks that the program has: what other allocator dumps are [parts of](ProcessDump::suballocate)
/// whose memory is allocated.
pub const MALLOC_OBJECTS: &str = "malloc/allocated_objects";

const MALLOC: &str = "malloc";
const FREE: &str = "malloc/metadata_fragmentation_caches";

/// The provider that is always there.
pub(crate) fn entry() -> Arc<Entry> {
    let background = [MALLOC, MALLOC_OBJECTS, FREE].map(str::to_owned).to_vec();
    let options = ProviderOptions { background, ..ProviderOptions::default() };
    Entry::new("Malloc".to_owned(), Box::new(Malloc::default()), options)
}

/// Starts the ledger, and says whether it did not run. Where it cannot be started there are the allocator's own figures.
pub(crate) fn start_ledger() -> bool {
    Ledger::start(Options::EXACT).is_ok()
}

#[derive(Default)]
struct Malloc {
    /// The ledger, by us.
    has_started: bool,
    functions: Functions,
}

impl Provider for Malloc {
    fn dump(&mut self, args: &DumpArgs, dump: &mut ProcessDump) -> Result<(), Failed> {
        // It is a provider like any other, but for that.
        untracked::scope(|| self.dump_heap(args, dump))
    }

    fn heap_profiling_enabled(&mut self, is_enabled: bool) {
        if is_enabled {
            self.has_started = start_ledger() || self.has_started;
        } else if std::mem::take(&mut self.has_started) {
            Ledger::get().stop();
        }
    }
}

impl Malloc {
    fn dump_heap(&mut self, args: &DumpArgs, dump: &mut ProcessDump) -> Result<(), Failed> {
        let ledger = Ledger::get();
        // Before anything is allocated for the sake of the answer.
        let figures = Figures::now();
        let is_running = ledger.is_running();
        let snapshot = if is_running && args.level == Level::Detailed {
            Some(ledger.snapshot(&SnapshotOptions::default()).map_err(|error| error.to_string())?)
        } else {
            None
        };
        let totals = snapshot.as_ref().map(Snapshot::totals).or_else(|| is_running.then(|| ledger.totals()));
        let known = totals.map(|totals| Figures { allocated: totals.bytes_live.0, mapped: totals.bytes_live.0 });
        let Some(Figures { allocated, mapped }) = figures.or(known) else { return Ok(()) };
        dump.allocator(MALLOC).set_size(mapped).set_scalar("virtual_size", "bytes", mapped);
        let objects = dump.allocator(MALLOC_OBJECTS).set_size(allocated);
        if let Some(totals) = totals {
            objects.set_scalar("shim_allocated_objects_size", "bytes", totals.bytes_live.0);
            objects.set_scalar("shim_allocated_objects_count", "objects", totals.blocks_live.0);
        }
        if let Some(free) = mapped.checked_sub(allocated).filter(|&free| free > 0) {
            dump.allocator(FREE).set_size(free);
        }
        if let Some(snapshot) = snapshot {
            for (allocator, heap) in heaps(snapshot, &mut self.functions) {
                if allocator != MALLOC {
                    let total = heap.total();
                    dump.allocator(&allocator).set_size(total.bytes).set_object_count(total.blocks);
                }
                dump.add_heap(&allocator, heap);
            }
            overhead(ledger).dump_into(MALLOC, dump);
        }
        Ok(())
    }
}

/// Mapped, all of it.
fn overhead(ledger: Ledger) -> Overhead {
    let of_ledger = ledger.overhead();
    let mut overhead = Overhead::default();
    for (purpose, bytes) in [
        ("register", of_ledger.bytes_ledger),
        ("stacks", of_ledger.bytes_stacks),
        ("rules", of_ledger.bytes_rules),
        ("threads", of_ledger.bytes_threads),
        ("filter", of_ledger.bytes_filter),
    ] {
        overhead.add(purpose, 1, 0, bytes.0);
    }
    overhead
}

/// What is live, by allocator: that of the program, and the heaps that it has declared. The ledger is not held any more.
fn heaps(snapshot: Snapshot, functions: &mut Functions) -> BTreeMap<String, Heap> {
    let mut groups: HashMap<(Stack, Option<&'static str>), Amount> = HashMap::new();
    for block in snapshot.blocks() {
        let amount = groups.entry((block.stack, block.type_name())).or_default();
        amount.blocks += block.stands_for.0;
        amount.bytes += block.stands_for.0 * block.size.0;
    }
    drop(snapshot);
    let mut heaps = BTreeMap::from([(MALLOC.to_owned(), Heap::default())]);
    for ((stack, type_name), amount) in groups {
        // A name of one part: what is below it would be taken for a part of it.
        let allocator = stack.heap().map_or_else(|| MALLOC.to_owned(), |heap| heap.replace('/', "\\"));
        heaps.entry(allocator).or_default().add(functions.frames(stack), type_name, amount);
    }
    heaps
}

/// The functions at places that have been looked up, kept from dump to dump. Memory of ours, not the program's.
#[derive(Default)]
struct Functions(HashMap<u64, Arc<[Function]>>);

struct Function {
    name: Arc<str>,
    /// Of what is between the program and its allocator.
    is_allocators: bool,
}

/// Places that are kept.
const PLACES_MAX: usize = 1 << 18;

impl Functions {
    /// The scopes of the context, then the functions, both from the outermost; without the allocator's own.
    fn frames(&mut self, stack: Stack) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = Vec::new();
        let mut is_own = true;
        for frame in stack.frames() {
            for function in self.at(frame) {
                is_own = is_own && function.is_allocators;
                if !is_own {
                    names.push(Arc::clone(&function.name));
                }
            }
        }
        names.extend(stack.context().map(|scope| scope.to_string().into()));
        names.reverse();
        names
    }

    /// The functions at a place, the innermost first.
    fn at(&mut self, frame: Frame) -> &[Function] {
        if self.0.len() >= PLACES_MAX {
            self.0.clear();
        }
        self.0.entry(frame.address).or_insert_with(|| look_up(frame))
    }
}

fn unnamed(frame: Frame) -> Function {
    Function { name: format!("pc:{:x}", frame.address).into(), is_allocators: false }
}

#[cfg(feature = "symbols")]
fn look_up(frame: Frame) -> Arc<[Function]> {
    let symbols = frame.symbols();
    if symbols.iter().all(|symbol| symbol.function.is_none()) {
        return [unnamed(frame)].into();
    }
    let named = symbols.into_iter().map(|symbol| {
        let is_allocators = symbol.is_allocator();
        Function { name: symbol.function.unwrap_or_else(|| "??".to_owned()).into(), is_allocators }
    });
    named.collect()
}

#[cfg(not(feature = "symbols"))]
fn look_up(frame: Frame) -> Arc<[Function]> {
    [unnamed(frame)].into()
}
