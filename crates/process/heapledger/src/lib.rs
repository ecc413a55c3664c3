//! A ledger of every byte of a Rust program's heap: who allocated it, where, in which context, and
//! what is live now.
//!
//! The program gets a ledger of its own, which it can start, stop and query while it runs. The
//! ledger follows the same rules as the recordings of `heapledger record`, and works where these
//! cannot: in static programs, and with allocators of the program's own. It supports Linux on
//! x86-64, with glibc or musl; [elsewhere](#elsewhere) programs with it compile, and are not
//! observed.
//!
//! # First steps
//!
//! Declare the allocator, start the ledger, query it:
//!
//! ```
//! use heapledger::{Allocator, Ledger, LedgerOptions, SiteOrder};
//!
//! #[global_allocator]
//! static ALLOCATOR: Allocator = Allocator::system();
//!
//! fn main() -> Result<(), heapledger::StartError> {
//!     let ledger = Ledger::start(LedgerOptions::EXACT)?;
//!     let page = vec![0_u8; 4096];
//!
//!     // Any pointer into a block will do.
//!     let block = ledger.block_at(&page[100]).expect("it is live");
//!     assert_eq!(block.size.0, 4096);
//!     println!("{block}"); // size, thread, age, and the functions that led here
//!
//!     println!("{}", ledger.totals());
//!     for site in ledger.top_sites(3, SiteOrder::BytesLive) {
//!         println!("{site}");
//!     }
//!     ledger.stop();
//!     Ok(())
//! }
//! ```
//!
//! Until the ledger is started, and once it has been stopped, [`Allocator`] costs three
//! instructions per call. So it may stay in programs that are shipped, and the ledger be started on
//! demand.
//!
//! # Another allocator
//!
//! [`Allocator::wrapping`] takes any other: `Allocator::wrapping(mimalloc::MiMalloc)`. Such an
//! allocator cannot be preloaded, but the ledger sees all its blocks, and so does `heapledger
//! record`, which the allocator notifies.
//!
//! ```
//! # use heapledger::Allocator;
//! # use std::alloc::{GlobalAlloc, Layout, System};
//! # struct MyAllocator;
//! # unsafe impl GlobalAlloc for MyAllocator {
//! #     unsafe fn alloc(&self, layout: Layout) -> *mut u8 { unsafe { System.alloc(layout) } }
//! #     unsafe fn dealloc(&self, block: *mut u8, layout: Layout) { unsafe { System.dealloc(block, layout) } }
//! # }
//! #[global_allocator]
//! static ALLOCATOR: Allocator<MyAllocator> = Allocator::wrapping(MyAllocator);
//! # fn main() { assert_eq!(vec![1].len(), 1); }
//! ```
//!
//! Heapledger has an allocator of its own (feature `heap`, x86-64 Linux; `docs/allocator.md` of the
//! project is about it). It is watched, and replaced by checks, as the system's is.
//!
//! ```
//! # #[cfg(all(feature = "heap", target_arch = "x86_64", target_os = "linux"))] {
//! use heapledger::{Allocator, HeapAllocator};
//!
//! #[global_allocator]
//! static ALLOCATOR: Allocator<HeapAllocator> = Allocator::heap();
//! # }
//! # assert_eq!(vec![1].len(), 1);
//! ```
//!
//! # Exact or sampled
//!
//! [`LedgerOptions::EXACT`] records every call. With [`LedgerOptions::sample_every`] every
//! allocated byte is a sample point with the same small probability, and the allocated and the live
//! amounts are estimated without bias: a block in the ledger counts with its
//! [weight](Block::weight), and amounts come with a [`StandardError`]. The rate may be changed at
//! any time.
//!
//! ```
//! use heapledger::{Bytes, Ledger, LedgerOptions};
//! # #[global_allocator]
//! # static ALLOCATOR: heapledger::Allocator = heapledger::Allocator::system();
//!
//! let ledger = Ledger::start(LedgerOptions { sample_every: Some(Bytes(512 << 10)), ..LedgerOptions::EXACT }).unwrap();
//! let large = vec![0_u8; 64 << 20];
//! assert!(ledger.block_at(large.as_ptr()).is_some(), "nearly certain: 128 times the mean");
//! ledger.set_sampling(Some(Bytes(64 << 10)));
//! assert!(ledger.totals().is_estimate);
//! ```
//!
//! # Always on: the profile
//!
//! `heapledger::profile` (feature `profile`) is sampling for a program in production: it samples in
//! bounded memory, from whenever it is switched on, and serves the requests of `go tool pprof` and
//! of scrapers of profiles. With the feature `profile-push` it sends profiles to a server.
//! `docs/profile.md` of the project is the manual.
//!
//! ```
//! # #[cfg(feature = "profile")] {
//! # #[global_allocator]
//! # static ALLOCATOR: heapledger::Allocator = heapledger::Allocator::system();
//! use heapledger::profile;
//!
//! profile::start(profile::ProfileOptions::default()).unwrap();
//! let server = profile::ProfileServer::start(profile::ProfileServerOptions::default()).unwrap();
//! eprintln!("go tool pprof {}/heap", server.url());
//! # }
//! ```
//!
//! # Why: contexts, types, pools
//!
//! [`context!`] names what the program is doing; a block has the context that it was allocated in,
//! in addition to its native stack ([`Stack::context`]). [`Ledger::stamp`] declares the type of a
//! block, [`Ledger::set_context`] moves a block to another context. A custom allocator reports its
//! own blocks through a [`Pool`].
//!
//! ```
//! use heapledger::{Ledger, LedgerOptions};
//! # #[global_allocator]
//! # static ALLOCATOR: heapledger::Allocator = heapledger::Allocator::system();
//!
//! let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
//! let body = {
//!     let _scope = heapledger::context!("render", route = "/users");
//!     vec![0_u8; 1000]
//! };
//! ledger.stamp(body.as_ptr(), "Body");
//! let block = ledger.block_at(body.as_ptr()).unwrap();
//! assert_eq!(block.type_name(), Some("Body"));
//! assert_eq!(block.stack.context().next().unwrap().name, "render");
//! ledger.print_types(std::io::stdout()).unwrap(); // type, blocks, bytes: allocates nothing
//! ```
//!
//! # What the blocks are
//!
//! [`stamp!`] declares it: the type, the source location, and a label. [`stamped`] does this for
//! the value that a function returns, and a type of your own implements [`OwnsBlocks`] to be
//! stamped. Without the feature `stamps` all of this expands to nothing.
//!
//! ```
//! # use heapledger::{Allocator, Ledger, LedgerOptions, stamp};
//! # #[global_allocator]
//! # static ALLOCATOR: Allocator = Allocator::system();
//! # let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
//! let rows = stamp!(vec![0_u32; 100], "rows of a page");
//! let block = ledger.block_at(rows.as_ptr()).unwrap();
//! # #[cfg(feature = "stamps")]
//! assert_eq!((block.type_name(), block.stamp.unwrap().label), (Some("[u32]"), Some("rows of a page")));
//! ```
//!
//! For blocks that nobody stamped, `Ledger::types` (feature `types`) asks the program's own debug
//! information, by the stack that allocated them, and says with each type how sure it is.
//!
#![cfg_attr(feature = "types", doc = "```")]
#![cfg_attr(not(feature = "types"), doc = "```ignore")]
//! # use heapledger::{Allocator, Ledger, LedgerOptions, TypeCertainty};
//! # #[global_allocator]
//! # static ALLOCATOR: Allocator = Allocator::system();
//! # let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
//! let rows = vec![String::from("a row"); 100];
//! let types = ledger.types();
//! assert!(types.rows.iter().map(|row| row.blocks.0).sum::<u64>() > 100);
//! print!("{types}"); // with debug information: 100 blocks of `[u8]`, one of `[String]`
//! # assert_eq!(rows.len(), 100);
//! ```
//!
//! # Who holds what: memory reporters
//!
//! Parts of a program report how much they hold, by walking through it: [`HeapSize`] asks the
//! allocator for the size of each block. With the feature `reports` the attribute `reporter` is
//! enough to add a part to the tree that `heapledger reports show PID` and Firefox's about:memory
//! show; unreported memory is `heap-unclassified` there. The module `reports` has the rest:
//! reporters that come and go, collecting, saving, answering other processes. Before you write a
//! reporter, read `docs/reporters.md` of the project.
//!
#![cfg_attr(feature = "reports", doc = "```")]
#![cfg_attr(not(feature = "reports"), doc = "```ignore")]
//! use heapledger::reports::{self, Collector, ReportOptions};
//! use heapledger::Allocator;
//! use std::sync::Mutex;
//!
//! #[global_allocator]
//! static ALLOCATOR: Allocator = Allocator::system();
//!
//! static CACHE: Mutex<Vec<String>> = Mutex::new(Vec::new());
//!
//! #[heapledger::reporter("explicit/cache")]
//! fn report(collector: &mut Collector) {
//!     let cache = CACHE.lock().unwrap();
//!     collector.heap("entries", collector.measure(&*cache), "Names that have been looked up.");
//!     collector.count("/cache-entries", cache.len() as u64, "How many names have been looked up.");
//! }
//!
//! CACHE.lock().unwrap().push("a name".repeat(100));
//! let _listener = reports::listen()?; // for `heapledger reports show PID`
//! let collected = reports::collect(&ReportOptions::default());
//! let cache = collected.reports.iter().find(|report| &*report.path == "explicit/cache/entries").unwrap();
//! assert!(cache.amount >= 600);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! `heapledger::serve` shows them on a page like Firefox's about:memory (feature `serve`):
//!
//! ```
//! # #[cfg(feature = "serve")] {
//! let page = heapledger::serve::PageServer::start(heapledger::serve::PageServerOptions::default()).unwrap();
//! eprintln!("about:memory at {}", page.url());
//! # }
//! ```
//!
//! # What everybody holds at one moment: memory dumps
//!
//! With the feature `dump`, parts of a program are asked all at once, in all its processes, and
//! what they say goes to a file for Chrome's `about:tracing`, with the heap by stack and type: the
//! module `dump`, and `docs/dumps.md` of the project.
//!
//! ```
//! # #[cfg(feature = "dump")] {
//! use heapledger::dump::{self, DumpOptions, Level};
//!
//! let made = dump::dump(&DumpOptions { level: Level::Light, ..DumpOptions::default() });
//! println!("{:?} bytes are allocated", made.own().size_of(dump::MALLOC_OBJECTS));
//! # }
//! ```
//!
//! # How much a value owns
//!
//! [`HeapSize`] says it, by asking the allocator about every block: slop included, the value itself
//! not. It is there for the standard library's types and, behind features of their names, for those
//! of common crates; derive it for your own. A [`Meter`] that marks tells the ledger which blocks
//! have been reported, and by whom.
//!
//! ```
//! # use heapledger::{Allocator, Ledger, LedgerOptions};
//! # #[global_allocator]
//! # static ALLOCATOR: Allocator = Allocator::system();
//! use heapledger::{HeapSize, Meter};
//! use std::collections::BTreeMap;
//! use std::sync::Arc;
//!
//! #[derive(HeapSize)]
//! struct Cache {
//!     pages: BTreeMap<u32, String>,
//!     #[heap(shared)]
//!     index: Arc<Vec<u32>>,
//! }
//!
//! let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
//! let cache = Cache { pages: (0..9).map(|page| (page, "text".repeat(99))).collect(), index: vec![1; 9].into() };
//! let bytes = cache.heap_size(&mut Meter::marking("explicit/cache"));
//! assert_eq!(ledger.reported().once.bytes_usable, bytes);
//! ```
//!
//! # Misuse
//!
//! [`Checks`] finds blocks that unsafe code frees twice, writes around, or writes to after the
//! free, and tells the stacks that belong to it. [`HeapChecker`] catches accesses out of bounds and
//! after a free, in a few sampled blocks, at hardly any cost: `HeapChecker::start()`.
//!
//! # What it costs
//!
//! Memory: about 80 bytes for each live block that is recorded (`benches/linked`), besides the
//! stacks; [`Ledger::overhead`] says how much it is, by purpose, and how much time was spent.
//! [`LedgerOptions::bytes_max`] bounds the register and the totals: what would take more is not
//! recorded, and counted in [`Ledger::losses`]; frees of recorded blocks still are. Time:
//! `docs/overhead.md` of the project.
//!
//! # Threads, signals, forks
//!
//! Everything may be called in any thread at any time. A signal handler may ask the ledger and
//! print it: where it has interrupted the ledger itself, the answer is empty, or
//! [`PrintError::Interrupted`]. A forked child goes on with a ledger of its own, in which the
//! parent's blocks are live, as they are in its memory.
//!
//! # Elsewhere
//!
//! On other systems and processors macros, derives and [`Allocator`] compile to nothing that can be
//! observed: the allocator passes calls on, stamps are the expressions they are given, pools have
//! no listener, and [`Ledger::start`] answers [`StartError::Unsupported`]. [`HeapSize`] works, with
//! computed sizes. On systems other than Linux the modules `reports`, `dump`, `serve` and `profile`
//! are not there, whatever features are on; the attribute `reporter` removes its function.
//!
//! # What it does not see
//!
//! Blocks allocated before the start; what C libraries in the program allocate by `malloc`
//! themselves (`heapledger record` sees both); what bypasses the global allocator. A program that
//! unloads shared libraries may get wrong frames for code that is loaded in their place.
#![forbid(unsafe_code)]

pub use heapledger_allocator::Allocator;
#[cfg(all(feature = "heap", target_arch = "x86_64", target_os = "linux"))]
pub use heapledger_allocator::HeapAllocator;
pub use heapledger_annotate::Arena;
#[doc(inline)]
pub use heapledger_annotate::contexts;
#[cfg(feature = "tracing")]
pub use heapledger_annotate::tracing;
#[doc(hidden)]
pub use heapledger_annotate::{__entry, __private};
pub use heapledger_annotate::{Category, Context, IgnoreGuard, InContext, OwnsBlocks, Pool, ScopeGuard, WithContext};
pub use heapledger_annotate::{category, context, ignore, set_context, stamp};
pub use heapledger_core::{Blocks, Bytes, Serial, ThreadId, hooks};
// The examples of the macros.
#[cfg(doctest)]
#[doc = include_str!("../docs/macros/heap_size.md")]
#[doc = include_str!("../docs/macros/in_context.md")]
#[doc = include_str!("../docs/macros/sizes.md")]
#[cfg_attr(feature = "reports", doc = include_str!("../docs/macros/reporter.md"))]
#[cfg_attr(feature = "stamps", doc = include_str!("../docs/macros/stamped.md"))]
pub use heapledger_derive as examples_of_macros;
#[cfg(all(feature = "reports", not(target_os = "linux")))]
pub use heapledger_derive::no_reporter as reporter;
#[cfg(all(feature = "reports", target_os = "linux"))]
pub use heapledger_derive::reporter;
pub use heapledger_derive::{HeapSize, Sizes, in_context, stamped};
#[cfg(all(feature = "dump", target_os = "linux"))]
#[doc(inline)]
pub use heapledger_dump as dump;
#[cfg(all(doctest, feature = "dump"))]
#[doc = include_str!("../docs/dumps.md")]
pub use heapledger_dump as guide_to_dumps;
#[cfg(all(feature = "profile", target_os = "linux"))]
#[doc(inline)]
pub use heapledger_live_profile as profile;
pub use heapledger_measure::{Counter, HeapContainer, HeapSize, MarkCounts, Meter, SharedHeapSize, Sizes};
pub use heapledger_query::*;
#[cfg(all(feature = "reports", target_os = "linux"))]
#[doc(inline)]
pub use heapledger_reporters as reports;
#[cfg(all(doctest, feature = "reports"))]
#[doc = include_str!("../docs/reporters.md")]
pub use heapledger_reporters as guide;
#[cfg(all(feature = "reports", target_os = "linux"))]
#[doc(hidden)]
pub use heapledger_reporters::__reporter;
#[cfg(all(feature = "serve", target_os = "linux"))]
#[doc(inline)]
pub use heapledger_serve as serve;
