//! An arena that can walk over its own blocks needs no register: it implements `Enumerate`, and a
//! dump has its heap.

use std::error::Error;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use heapledger::dump::{
    self, AllocationContext, DumpArgs, DumpOptions, Enumerate, Level, LiveBlock, ProcessDump, Provider, ProviderError,
};
use heapledger::{Allocator, Bytes};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

/// Records of one size, one after the other; a record that is free has no value.
struct Arena(Vec<Option<[u64; 8]>>);

impl Enumerate for Arena {
    fn visit(&self, visit: &mut dyn FnMut(&LiveBlock) -> ControlFlow<()>) {
        for record in self.0.iter().flatten() {
            let address = std::ptr::from_ref(record).addr() as u64;
            if visit(&LiveBlock::at(address, Bytes(size_of_val(record) as u64))).is_break() {
                return;
            }
        }
    }
}

struct Records(Arc<Mutex<Arena>>);

impl Provider for Records {
    fn dump(&mut self, args: &DumpArgs, dump: &mut ProcessDump) -> Result<(), ProviderError> {
        let arena = self.0.lock().map_err(|_| "somebody panicked in the arena")?;
        let (blocks, bytes) = arena.held();
        let records = dump.allocator("records").set_size(bytes.0).set_object_count(blocks.0).guid;
        dump.suballocate(records, dump::MALLOC_OBJECTS);
        if args.level == Level::Detailed {
            let context = AllocationContext { type_name: Some("Record"), ..AllocationContext::default() };
            dump.add_heap("records", dump::heap_of(&*arena, |_| context.clone()));
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arena = Arena((0..100).map(|number| (number % 3 > 0).then_some([number; 8])).collect());
    let arena = Arc::new(Mutex::new(arena));
    let _registration = dump::register("Records", Records(Arc::clone(&arena)));
    let made = dump::dump(&DumpOptions { level: Level::Detailed, ..DumpOptions::default() });
    let (_, heap) = made.own().heaps().find(|(allocator, _)| *allocator == "records").ok_or("there is no heap")?;
    println!("{} records, {} bytes", heap.total().blocks, heap.total().bytes);
    Ok(())
}
