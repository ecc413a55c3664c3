//! The marks of an image's blocks by reporters, and the defects of their reports.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use heapledger_core::{Bytes, Serial, StackId};
use heapledger_dmd::DefectKind;
use heapledger_ledger::{Block, Key, Ledger};
use heapledger_recording::{
    BlockMark, EventsBuffer, ImageId, Mark, MarkedBlocks, Recording, Reported, StackTree, TextId,
};

/// The reports of an image so far.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    marked: MarkedBlocks,
    /// The defects, in the order of the first of each kind and place.
    pub(crate) defects: Vec<ReportDefect>,
    places: HashMap<(DefectKind, StackId), usize>,
    /// The number of all defects.
    pub(crate) defects_count: u64,
}

/// The first report with a defect of one kind from one place, and the number of all such reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportDefect {
    pub(crate) kind: DefectKind,
    /// The stack that made the report; its leaf names the reporter.
    pub(crate) by: StackId,
    /// The address that was reported, if it is not that of a block; else 0.
    pub(crate) address: u64,
    /// The group of the block that the report is about.
    pub(crate) group: Option<StackId>,
    pub(crate) measured: Bytes,
    pub(crate) usable: Bytes,
    pub(crate) count: u64,
}

/// The number of kinds and places that are kept apart; reports of further ones are only counted.
const PLACES_MAX: usize = 4096;

impl Reports {
    /// True if no block is marked.
    pub(crate) fn is_empty(&self) -> bool {
        self.marked.is_empty()
    }

    /// Returns the marks of a block.
    pub(crate) fn of(&self, block: Serial) -> [Option<BlockMark>; 2] {
        self.marked.of(block)
    }

    /// Applies a mark. `usable` returns the usable size of a block, if it is known.
    pub(crate) fn on_mark(
        &mut self,
        mark: &Mark,
        ledger: &Ledger,
        tree: Option<&StackTree>,
        usable: impl Fn(Serial) -> Option<Bytes>,
    ) {
        let reporter = |by: StackId| tree.and_then(|tree| tree.get(by)?.text()).unwrap_or(TextId::UNKNOWN);
        self.marked.apply(mark, |one, other| reporter(one) == reporter(other));
        let Mark::Reported { what, by, measured, .. } = *mark else { return };
        let known = |serial| Some((ledger.get(Key::from(serial))?, usable(serial)));
        let (kind, address, block) = match what {
            Reported::Block(serial) => match known(serial) {
                Some((block, usable)) if measured.0 > 0 && measured < usable.unwrap_or(block.size) => {
                    (DefectKind::Partly, 0, Some((block, usable)))
                }
                _ => return,
            },
            Reported::Inside { block, address } => (DefectKind::Interior, address, known(block)),
            Reported::Nothing { address } => (DefectKind::NoBlock, address, None),
            Reported::NotHeap { address } => (DefectKind::NotHeap, address, None),
        };
        self.count(kind, by, address, measured, block);
    }

    /// Removes the marks of a block that is freed, and counts those that should have lasted as
    /// defects.
    pub(crate) fn on_free(&mut self, serial: Serial, block: &Block, usable: Option<Bytes>) {
        let is_collecting = self.marked.is_collecting();
        for mark in self.marked.free(serial).into_iter().flatten().flatten() {
            if mark.is_kept || is_collecting {
                self.count(DefectKind::FreedWhileReported, mark.by, 0, mark.measured, Some((*block, usable)));
            }
        }
    }

    fn count(
        &mut self,
        kind: DefectKind,
        by: StackId,
        address: u64,
        measured: Bytes,
        block: Option<(Block, Option<Bytes>)>,
    ) {
        self.defects_count += 1;
        let is_full = self.places.len() >= PLACES_MAX;
        match self.places.entry((kind, by)) {
            Entry::Occupied(place) => self.defects[*place.get()].count += 1,
            Entry::Vacant(_) if is_full => {}
            Entry::Vacant(place) => {
                place.insert(self.defects.len());
                let group = block.map(|(block, _)| block.stack);
                let usable = block.map_or(Bytes(0), |(block, usable)| usable.unwrap_or(block.size));
                self.defects.push(ReportDefect { kind, by, address, group, measured, usable, count: 1 });
            }
        }
    }
}

/// Returns how often all reporters of an image were asked. Only chunks with marks are read; one
/// that cannot be read is skipped.
pub(crate) fn times_complete(recording: &Recording<'_>, image: ImageId) -> u32 {
    let mut buffer = EventsBuffer::default();
    let mut times = 0;
    for chunk in recording.event_chunks(image).filter(|chunk| chunk.head().marks > 0) {
        if let Ok(events) = chunk.decode(&mut buffer) {
            let complete = events.marks().iter().filter(|(_, mark)| matches!(mark, Mark::Complete { .. }));
            times += complete.count() as u32;
        }
    }
    times
}
