//! Memory dumps: the parts of a program report their memory, all at one moment, in all its
//! processes. The file is a trace in the format of Chrome's `memory-infra`, which `about:tracing`
//! shows.
//!
//! A [`Provider`] is asked by each dump and answers with allocator dumps: names, sizes, ownership,
//! heaps by stack and type. [`register`] registers it. A [`TraceSession`] makes dumps at intervals,
//! on demand, and at peaks of the live bytes, and writes them to a file; [`dump`] makes one dump
//! and returns its numbers. Every dump includes the figures of the allocator, the [memory
//! reporters](heapledger_reporters) and the kernel without further set-up.
//!
//! ```
//! use heapledger_dump::{self as dump, DumpArgs, ProviderError, Level, ProcessDump, Provider};
//! use std::sync::{Arc, Mutex};
//!
//! struct Pages(Arc<Mutex<Vec<[u8; 4096]>>>);
//!
//! impl Provider for Pages {
//!     fn dump(&mut self, args: &DumpArgs, dump: &mut ProcessDump) -> Result<(), ProviderError> {
//!         let count = self.0.lock().map_err(|_| "the pages are damaged")?.len() as u64;
//!         let pages = dump.allocator("cache/pages").set_size(count * 4096).set_object_count(count).guid;
//!         // They are blocks of malloc.
//!         dump.suballocate(pages, dump::MALLOC_OBJECTS);
//!         Ok(())
//!     }
//! }
//!
//! let pages = Arc::new(Mutex::new(vec![[0; 4096]]));
//! let _registration = dump::register("Pages", Pages(pages));
//! let made = dump::dump(&dump::DumpOptions { level: Level::Light, ..dump::DumpOptions::default() });
//! assert_eq!(made.own().size_of("cache/pages"), Some(4096));
//! ```
//!
//! # Heaps
//!
//! [`set_heap_profiling`] has providers keep account of their blocks, so that dumps have heaps; for
//! `malloc` it starts the ledger. Call it first of all, since earlier allocations are not known; or
//! set `HEAPLEDGER_HEAP_PROFILING=1` in the environment, which takes effect before `main`.
//!
//! # Costs
//!
//! Nothing, until there is a dump. A light dump takes as long as its providers and reporters. A
//! detailed one with the heap of `malloc` holds the program up only while the ledger is copied;
//! everything else is done in the background. The cost of profiling itself is in the dumps:
//! `tracing/heap_profiler_malloc`.
//!
//! # Threads, forks, libraries
//!
//! All functions may be called in any thread, except in signal handlers and providers. A child made
//! by `fork` has the providers of its parent, but no session; it is a part of its parent's dumps if
//! it [listens](heapledger_reporters::listen). If a library has its own copy of this crate, its
//! providers are registered in that copy.

mod call_queue;
mod early;
mod global_dump;
mod kernel;
mod malloc;
mod names;
mod overhead;
mod process;
mod profiling;
mod provider;
mod register;
mod registration;
mod registry;
mod reporter;
mod reports;
mod schedule;
mod session;

pub use call_queue::CallQueue;
pub use global_dump::{DumpOptions, GlobalDump, dump};
pub use heapledger_ledger::{Enumerate, LiveBlock};
pub use heapledger_profile_formats::Amount;
pub use heapledger_profile_formats::chrome::{
    AllocatorDump, Attribute, Cut, Edge, Guid, Heap, HeapFormat, Kind, Level, ProcessDump, Region, Totals, UNKNOWN_TYPE,
};
pub use malloc::MALLOC_OBJECTS;
pub use overhead::{Cost, ProviderOverhead};
pub use process::DumpFailure;
pub use profiling::{is_heap_profiling, set_heap_profiling};
pub use provider::{DumpArgs, Provider, ProviderError, ProviderOptions};
pub use register::{AllocationContext, AllocationRegister, heap_of};
pub use registration::{ProviderRegistration, register, register_with};
pub use schedule::{InvalidSchedule, Schedule, Trigger};
pub use session::{PeakTrigger, TraceConfig, TraceError, TraceSession, TraceSummary};
