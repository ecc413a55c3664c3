//! Memory dumps: the parts of a program say what they hold, all at one moment, in all its processes. The file is a trace as
//! Chrome's `memory-infra` makes them, which `about:tracing` shows.
//!
//! A [`Provider`] is asked by each dump and answers with allocator dumps: names, sizes, who owns what, heaps by stack and type.
//! [`register`] has it asked. A [`Session`] makes dumps at intervals, when it is told to, and when more is live than ever before,
//! and writes them to a file; [`dump`] makes one for whoever wants the numbers. What the allocator holds, what the
//! [memory reporters](heapledger_report) say and what the kernel counts is in it without anybody's doing.
//!
//! ```
//! use heapledger_dump::{self as dump, DumpArgs, Failed, Level, ProcessDump, Provider};
//! use std::sync::{Arc, Mutex};
//!
//! struct Pages(Arc<Mutex<Vec<[u8; 4096]>>>);
//!
//! impl Provider for Pages {
//!     fn dump(&mut self, args: &DumpArgs, dump: &mut ProcessDump) -> Result<(), Failed> {
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
//! let made = dump::dump(&dump::Options { level: Level::Light, ..dump::Options::default() });
//! assert_eq!(made.own().size_of("cache/pages"), Some(4096));
//! ```
//!
//! # Heaps
//!
//! [`set_heap_profiling`] has providers keep account of their blocks, so that dumps have heaps; that of `malloc` starts the
//! ledger. It is to be called first of all, since what was allocated before is not known; or `HEAPLEDGER_HEAP_PROFILING=1` is
//! in the environment, which is seen to before `main`.
//!
//! # Costs
//!
//! Nothing, until there is a dump. A light one takes as long as its providers and reporters. A detailed one with the heap of
//! `malloc` holds the program up while the ledger is copied, and no longer: everything else is done beside it. What profiling
//! itself needs is in the dumps: `tracing/heap_profiler_malloc`.
//!
//! # Threads, forks, libraries
//!
//! All functions may be called in any thread, except in signal handlers and providers. A child made by `fork` has the providers
//! of its parent, but no session; it is a part of its parent's dumps when it [listens](heapledger_report::listen). Providers of a
//! library with a copy of this crate of its own are that copy's.

mod early;
mod inbox;
mod kernel;
mod made;
mod malloc;
mod names;
mod overhead;
mod process;
mod profiling;
mod provider;
mod register;
mod registry;
mod reports;
mod schedule;
mod session;

pub use heapledger_ledger::{Enumerate, LiveBlock};
pub use heapledger_profiles::Amount;
pub use heapledger_profiles::chrome::{
    AllocatorDump, Attribute, Cut, Edge, Guid, Heap, HeapFormat, Kind, Level, ProcessDump, Region, Totals, UNKNOWN_TYPE,
};
pub use inbox::Inbox;
pub use made::{GlobalDump, Options, dump};
pub use malloc::MALLOC_OBJECTS;
pub use overhead::{Cost, Overhead};
pub use process::Failure;
pub use profiling::{is_heap_profiling, set_heap_profiling};
pub use provider::{DumpArgs, Failed, Provider, ProviderOptions};
pub use register::{AllocationContext, AllocationRegister, heap_of};
pub use registry::{Registration, register, register_with};
pub use schedule::{InvalidSchedule, Schedule, Trigger};
pub use session::{Config, Peak, Session, StartError, Summary};
