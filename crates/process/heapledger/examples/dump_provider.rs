//! Heap profiling for an allocator of the program's own, as Chrome's documentation has it: a
//! provider that keeps account of blocks, and groups them by context and type when there is a dump:
//! `dump_provider [TRACE [aggregated]]`, where the word is for heaps as viewers have them from 2017
//! on. Prints what the trace has to hold; `.ci/trace-viewer TRACE` prints what a viewer finds in
//! it.

use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use heapledger::dump::{
    self, AllocationContext, AllocationRegister, DumpArgs, Enumerate, HeapFormat, Level, ProcessDump, Provider,
    ProviderError, ProviderOverhead, Schedule, TraceConfig, TraceSession,
};
use heapledger::{Allocator, context};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

/// An allocator: it cuts its blocks from one piece of memory, and never uses any twice.
struct Foo {
    memory: Vec<u8>,
    used: usize,
    /// `None` until heaps are profiled: nothing is kept, then.
    register: Option<Arc<AllocationRegister>>,
}

impl Foo {
    fn allocate<T>(&mut self) -> Option<u64> {
        let at = self.used.next_multiple_of(align_of::<T>());
        self.used = Some(at + size_of::<T>()).filter(|&end| end <= self.memory.len())?;
        let address = (self.memory.as_ptr().addr() + at) as u64;
        if let Some(register) = &self.register {
            let type_name = Some(std::any::type_name::<T>());
            let context = AllocationContext { type_name, ..AllocationContext::current() };
            register.insert(address, size_of::<T>() as u64, &context);
        }
        Some(address)
    }

    fn free(&mut self, address: u64) {
        if let Some(register) = &self.register {
            register.remove(address);
        }
    }
}

struct FooDumpProvider(Arc<Mutex<Foo>>);

impl Provider for FooDumpProvider {
    fn heap_profiling_enabled(&mut self, is_enabled: bool) {
        // From now on it hears of every allocation and every free.
        lock(&self.0).register = is_enabled.then(Arc::default);
    }

    fn dump(&mut self, args: &DumpArgs, dump: &mut ProcessDump) -> Result<(), ProviderError> {
        let allocator = self.0.lock().map_err(|_| "somebody panicked in the allocator")?;
        // The regular dump.
        let memory = dump.allocator("foo_allocator").set_size(allocator.memory.len() as u64).guid;
        dump.suballocate(memory, dump::MALLOC_OBJECTS);
        dump.allocator("foo_allocator/allocated_objects").set_size(allocator.used as u64);
        let register = allocator.register.clone();
        drop(allocator);

        // The heap, in detailed dumps only. The register needs no lock of the allocator's.
        if let Some(register) = register.filter(|_| args.level == Level::Detailed) {
            dump.add_heap("foo_allocator", register.heap());
            let mut overhead = ProviderOverhead::default();
            overhead.add("AllocationRegister", register.cost());
            overhead.dump_into("foo_allocator", dump);
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).unwrap_or_else(|| "foo.trace.json".into());
    let is_aggregated = std::env::args_os().nth(2).is_some_and(|word| word == "aggregated");
    let heaps = if is_aggregated { HeapFormat::Aggregated } else { HeapFormat::default() };
    // As early as possible: what was allocated before is in no heap.
    dump::set_heap_profiling(true);
    let allocator = Foo { memory: vec![0; 1 << 20], used: 0, register: None };
    let allocator = Arc::new(Mutex::new(allocator));
    // It is told at once that heaps are profiled.
    let _registration = dump::register("Foo", FooDumpProvider(Arc::clone(&allocator)));

    // Blocks of before the trace are in its dumps, too.
    let kept = render(&allocator, 100)?;
    let session =
        TraceSession::to_file(&path, TraceConfig { schedule: Schedule::never(), heaps, ..TraceConfig::default() })?;
    session.dump(Level::Light)?;
    session.dump(Level::Detailed)?;
    let at_first: u64 = live(&allocator);
    // Every second one.
    kept.iter().step_by(2).for_each(|&address| lock(&allocator).free(address));
    session.dump(Level::Detailed)?;
    let summary = session.finish()?;
    summary.failures.iter().for_each(|failure| eprintln!("{failure}"));
    println!("{{\"dumps\": {}, \"foo_allocator\": [{at_first}, {}]}}", summary.dumps, live(&allocator));
    Ok(())
}

/// Draws something.
fn render(allocator: &Mutex<Foo>, widgets: usize) -> Result<Vec<u64>, &'static str> {
    let _scope = context!("render");
    let mut kept = Vec::new();
    for widget in 0..widgets {
        let address = if widget % 4 == 0 {
            let _scope = context!("layout");
            lock(allocator).allocate::<[u64; 16]>()
        } else {
            let _scope = context!("paint");
            lock(allocator).allocate::<[u8; 24]>()
        };
        kept.push(address.ok_or("the memory is full")?);
    }
    Ok(kept)
}

fn live(allocator: &Mutex<Foo>) -> u64 {
    lock(allocator).register.as_ref().map_or(0, |register| register.held().1.0)
}

fn lock(allocator: &Mutex<Foo>) -> MutexGuard<'_, Foo> {
    allocator.lock().unwrap_or_else(PoisonError::into_inner)
}
