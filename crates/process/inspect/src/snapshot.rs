//! The live blocks of one moment.

use std::time::Duration;

use heapledger_core::Bytes;
use heapledger_ledger as ledger;
use heapledger_resident::SnapshotError;
use heapledger_resident::estimate::{self, Beyond};

use crate::{Block, Totals};

/// What is to be in a [`Snapshot`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotOptions {}

/// The ledger at one moment: see [`Ledger::snapshot`](crate::Ledger::snapshot).
#[derive(Debug)]
pub struct Snapshot {
    copy: ledger::Snapshot,
    beyond: Beyond,
}

impl Snapshot {
    pub(crate) fn take(_: &SnapshotOptions) -> Result<Snapshot, SnapshotError> {
        let copy = heapledger_resident::snapshot()?;
        Ok(Snapshot { copy, beyond: estimate::beyond() })
    }

    /// The blocks that were live, in no useful order. A block is missing that a reallocation was about to move.
    pub fn blocks(&self) -> impl Iterator<Item = Block> {
        self.copy.blocks().map(|(block, marks)| Block::marked(block, marks))
    }

    /// What had been counted, and what was live. In a ledger that samples the estimates are of the moment after.
    pub fn totals(&self) -> Totals {
        let (counts, live) = self.copy.totals();
        Totals::of(counts, live, self.beyond)
    }

    /// For how long the program was held up: whoever allocated or freed meanwhile waited.
    pub fn pause(&self) -> Duration {
        Duration::from_nanos(self.copy.pause())
    }

    /// What is mapped for the snapshot, until it is dropped.
    pub fn bytes_mapped(&self) -> Bytes {
        Bytes(self.copy.bytes_mapped() as u64)
    }
}
