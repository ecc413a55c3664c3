//! Queries of the ledger inside a program.
//!
//! [`Ledger`] starts and stops it, and answers queries: totals, sites, live blocks, the block
//! around a pointer. Printing to a descriptor ([`Ledger::print_blocks`] and the like) allocates
//! nothing; the other queries may.

mod block;
mod census;
mod checks;
mod defects;
#[doc(hidden)]
#[cfg(target_os = "linux")]
pub mod elf;
mod error;
#[cfg(target_os = "linux")]
mod forks;
#[cfg(feature = "symbols")]
mod functions;
mod heap_checker;
mod loaded;
mod maps;
mod print;
mod reported;
mod sandbox;
mod site;
mod snapshot;
mod stack;
mod stamp;
mod symbol_tables;
#[cfg(feature = "symbols")]
mod symbols;
mod table;
#[cfg(test)]
mod testing;
mod totals;
#[cfg(feature = "types")]
mod types;

use std::fmt;

use heapledger_annotate::untracked;
use heapledger_core::Bytes;
use heapledger_inprocess::{LEDGER, control, query};

pub use block::{Block, LiveBlocks};
pub use census::{DynamicType, VtableCensus};
pub use checks::{Call, Checks, ChecksError, Misuse, MisuseKind};
pub use defects::{Defect, DefectKind};
pub use error::StandardError;
#[cfg(feature = "symbols")]
pub use functions::FunctionNames;
pub use heap_checker::{
    HeapChecker, PhcBlock, PhcEvent, PhcLookup, PhcOptions, PhcPageKind, PhcPlacement, PhcSites, PhcStartError,
    PhcState, PhcStats,
};
pub use heapledger_inprocess::SnapshotError;
pub use heapledger_inprocess::control::{LedgerOptions, Losses, STACK_PROBABILITY, Stacks, StartError};
pub use heapledger_inprocess::overhead::Overhead;
pub use loaded::{Module, Modules, Segment};
pub use print::PrintError;
pub use reported::{Held, Mark, Marked, Reported};
pub use sandbox::enter_sandbox;
pub use site::{Site, SiteOrder};
pub use snapshot::{FreedBlocks, Snapshot, SnapshotOptions};
pub use stack::{Frame, Scope, Stack};
pub use stamp::Stamp;
#[cfg(feature = "symbols")]
pub use symbols::Symbol;
pub use totals::Totals;
#[cfg(feature = "types")]
pub use types::{LiveType, LiveTypes, TypeCertainty};

/// The ledger of this process: every live block of its allocator, with the stack that allocated it.
///
/// A process has one ledger, however many values of this type there are. All methods may be called
/// in any thread, at any time, while other threads allocate. An answer about one block or about the
/// totals is true of one moment; an iteration is not (see [`Ledger::blocks`]).
///
/// A ledger only sees calls that go through a [hook table](heapledger_core::hooks): in a Rust
/// program those of its `#[global_allocator]`, if that is Heapledger's.
#[derive(Clone, Copy)]
pub struct Ledger(());

impl Ledger {
    /// Starts an empty ledger. Allocations are recorded from now on, as the options say; earlier
    /// blocks are unknown to the ledger.
    ///
    /// # Errors
    ///
    /// [`StartError::Running`] if the ledger runs already; other errors if it cannot start.
    pub fn start(options: LedgerOptions) -> Result<Ledger, StartError> {
        untracked::scope(|| control::start(options)).map(|()| Ledger(()))
    }

    /// Returns the ledger, whether it runs or not. A ledger that was never started is empty.
    pub fn get() -> Ledger {
        Ledger(())
    }

    /// Stops the ledger: the program's calls go straight to its allocator again. The recorded
    /// blocks can still be queried until the ledger is started anew, but a block that is freed
    /// meanwhile stays in it.
    pub fn stop(self) {
        control::stop();
    }

    /// True if the ledger runs, paused or not.
    pub fn is_running(self) -> bool {
        control::is_running()
    }

    /// Stops recording allocations. Frees are still recorded, so that the live blocks stay right.
    pub fn pause(self) {
        control::set_recording(false);
    }

    /// Ends a [pause](Ledger::pause).
    pub fn resume(self) {
        control::set_recording(true);
    }

    /// Returns the mean number of allocated bytes from one sample to the next; `None` if all
    /// allocations are recorded.
    pub fn sampling(self) -> Option<Bytes> {
        control::sampling()
    }

    /// Samples at another rate from now on, rounded to a power of two, or records everything.
    /// Blocks that are in the ledger keep the weight with which they were sampled.
    pub fn set_sampling(self, sample_every: Option<Bytes>) {
        control::set_sampling(sample_every);
    }

    /// Changes which stacks are kept with blocks that are allocated from now on.
    pub fn set_stacks(self, stacks: Stacks) {
        control::set_stacks(stacks);
    }

    /// Returns the probability, for each usable byte, with which the native stack of its block is
    /// taken; `None` if the stacks of all blocks are taken. See
    /// [`LedgerOptions::stack_probability`].
    pub fn stack_probability(self) -> Option<f64> {
        control::stack_probability()
    }

    /// True if freed blocks are counted: see [`LedgerOptions::keep_freed`].
    pub fn keeps_freed(self) -> bool {
        LEDGER.keeps_freed()
    }

    /// Returns what has been counted since the start, and what is live.
    pub fn totals(self) -> Totals {
        Totals::now()
    }

    /// Returns what could not be recorded since the start.
    pub fn losses(self) -> Losses {
        control::losses()
    }

    /// Returns the cost of the ledger itself: memory by purpose, and time.
    pub fn overhead(self) -> Overhead {
        heapledger_inprocess::overhead::overhead()
    }

    /// Returns every site: each stack that has allocated since the start, in the order of the first
    /// allocations.
    ///
    /// In a sampled ledger the amounts are estimates of the whole program. If not every block has a
    /// stack, the live amounts of a site are not estimates here; [`Ledger::top_sites`] returns
    /// estimates.
    pub fn sites(self) -> impl Iterator<Item = Site> {
        let mut sites = LEDGER.sites();
        std::iter::from_fn(move || query(|| sites.next()).flatten()).map(Site::of)
    }

    /// Returns at most `count` sites, the largest first. Takes time in proportion to the number of
    /// sites and, if not every block has a stack, of live blocks.
    pub fn top_sites(self, count: usize, by: SiteOrder) -> Vec<Site> {
        untracked::scope(|| site::top(self, count, by))
    }

    /// Returns the live blocks, in no useful order.
    ///
    /// This is not a snapshot: a block that is live all the while is found exactly once, one that
    /// is allocated, freed or reallocated meanwhile at most once, or once before and once after. No
    /// lock is held between two blocks.
    pub fn blocks(self) -> LiveBlocks {
        LiveBlocks::new()
    }

    /// Takes a snapshot: the live blocks of one moment, with the marks of reporters.
    ///
    /// Threads that allocate or free wait while the ledger's tables are copied: [`Snapshot::pause`]
    /// returns how long. No signal handler runs in this thread meanwhile. The copy takes about as
    /// much memory as the ledger has for its blocks, until it is dropped.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::OutOfMemory`], or [`SnapshotError::Interrupted`] in a signal handler.
    pub fn snapshot(self, options: &SnapshotOptions) -> Result<Snapshot, SnapshotError> {
        untracked::scope(|| Snapshot::take(options))
    }

    /// Returns the live block around an address, which may be any address in the block. The pointer
    /// is not read through. `None` if no live block is known there.
    pub fn block_at<T: ?Sized>(self, pointer: *const T) -> Option<Block> {
        let address = pointer.cast::<u8>().addr() as u64;
        query(|| LEDGER.block_at(address).map(Block::new)).flatten()
    }

    /// Returns the live blocks that hold C++ objects with virtual functions, by their dynamic
    /// types, which are read from the objects themselves. Needs neither stamps nor debug
    /// information, and works on stripped programs; see [`VtableCensus`].
    pub fn census_by_vtable(self) -> VtableCensus {
        untracked::scope(|| VtableCensus::of(self.blocks()))
    }

    /// Returns the live blocks by type: the stamp of a block if it has one, otherwise what the
    /// program's debug information says about the stack that allocated it, checked against the
    /// sizes of that stack's live blocks. Not of one moment: see [`Ledger::blocks`].
    ///
    /// Reads the debug information of the modules on these stacks, anew each time. Time and memory
    /// are in proportion to it; the memory is in no ledger, and given back. Not for signal
    /// handlers: [`Ledger::print_types`] is for those.
    #[cfg(feature = "types")]
    pub fn types(self) -> LiveTypes {
        untracked::scope(LiveTypes::of_this_process)
    }

    /// Declares the type of the block around an address, for [`Block::type_name`] and
    /// [`Ledger::print_types`]. True if there is such a block. Up to 4,094 different names are
    /// distinguished, the rest is `(other)`.
    pub fn stamp<T: ?Sized>(self, pointer: *const T, type_name: &'static str) -> bool {
        let (address, length) = (pointer.cast::<u8>().addr() as u64, type_name.len() as u32);
        // SAFETY: `stamp` requires a static name with its length, and a static place or null. The
        // name is a `&'static str`, and the place is null.
        unsafe { heapledger_inprocess::stamp(address, type_name.as_ptr(), length, std::ptr::null()) }
    }

    /// Declares that the block around an address was allocated in the context that the calling
    /// thread is in now. Its native stack stays. True if there is such a block.
    pub fn set_context<T: ?Sized>(self, pointer: *const T) -> bool {
        heapledger_inprocess::set_context(pointer.cast::<u8>().addr() as u64)
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Ledger")
            .field("is_running", &self.is_running())
            .field("sampling", &self.sampling())
            .field("totals", &self.totals())
            .finish()
    }
}
