//! The state of one process image: its ledger, its part of the file, its threads.

use heapledger_core::StackId;
use heapledger_ledger::{Key, Ledger, OutOfMemory};
use heapledger_recording::{ImageId, ImageStart, Timeline};

use crate::address_index::AddressIndex;
use crate::external_counters::ExternalCounters;
use crate::live_pages::SerialTimes;
use crate::memory::Samples;
use crate::resident::Schedule;
use crate::tree::Tree;

mod apply;
mod blocks;
mod chunks;
mod mappings;
mod marks;
mod reattribution;
mod segments;
pub(crate) mod threads;
pub(crate) mod totals;
mod usable_sizes;

use chunks::Chunks;
use mappings::Mappings;
use marks::Reports;
use threads::Threads;
use totals::{Anomalies, Unproven};
use usable_sizes::UsableSizes;

/// The state of a running image.
#[derive(Debug)]
pub(crate) struct Image {
    id: ImageId,
    pid: u32,
    executable: Vec<u8>,
    ledger: Ledger,
    pub(crate) tree: Tree,
    chunks: Chunks,
    threads: Threads,
    timeline: Timeline,
    memory: Samples,
    has_forked: bool,
    pub(crate) anomalies: Anomalies,
    unproven: Unproven,
    address_index: AddressIndex,
    reports: Reports,
    usable_sizes: UsableSizes,
    mappings: Mappings,
    pub(crate) resident: Schedule,
    serial_times: SerialTimes,
    /// The external counters at the beginning of this segment.
    external_before: ExternalCounters,
}

impl Image {
    pub(crate) fn new(start: &ImageStart, ledger: Ledger, tree: Tree, keeps_mappings: bool) -> Image {
        Image {
            id: start.image,
            pid: start.pid,
            executable: start.executable.clone(),
            ledger,
            tree,
            chunks: Chunks::new(start.image, start.time),
            threads: Threads::default(),
            timeline: Timeline::new(),
            memory: Samples::new(),
            has_forked: false,
            anomalies: Anomalies::default(),
            unproven: Unproven::default(),
            address_index: AddressIndex::new(),
            reports: Reports::new(start.pid),
            usable_sizes: UsableSizes::default(),
            mappings: Mappings::new(start.image, start.pid, start.time, keeps_mappings),
            resident: Schedule::default(),
            serial_times: SerialTimes::default(),
            external_before: ExternalCounters::default(),
        }
    }

    /// True if the image has announced a fork.
    pub(crate) fn has_forked(&self) -> bool {
        self.has_forked
    }

    /// Returns the ledger for a child that is forked now, if there is memory for it.
    pub(crate) fn fork_ledger(&self) -> Result<Ledger, OutOfMemory> {
        self.ledger.fork()
    }

    /// Prefetches the memory that an event about this address will need.
    #[inline(always)]
    pub(crate) fn prefetch(&self, address: u64, stack: Option<StackId>) {
        self.ledger.prefetch(Key(address));
        if let Some(stack) = stack {
            self.ledger.prefetch_site(stack);
        }
    }

    /// True if an allocation of this address is too early: another thread's free must come first.
    #[inline(always)]
    pub(crate) fn is_too_early(&self, address: u64) -> bool {
        // The events of one thread are in the order in which it wrote them.
        self.threads.are_several() && self.ledger.holds(Key(address))
    }
}
