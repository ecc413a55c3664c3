//! The usable sizes of an image's live blocks, for its checkpoints.

use std::collections::HashMap;

use heapledger_core::{Bytes, Serial};
use heapledger_recording::{EventKind, FreedBlock};

/// The usable sizes of live blocks: one for each requested size, and those of blocks that have
/// another one, or none. Allocators round a size up the same way nearly always, so the second table
/// is short.
#[derive(Debug, Default)]
pub(super) struct UsableSizes {
    by_size: HashMap<Bytes, Bytes>,
    others: HashMap<Serial, Option<Bytes>>,
    /// The first block with a usable size; blocks before it are in neither table.
    first: Option<Serial>,
}

/// The maximum number of requested sizes in the first table.
const SIZES_MAX: usize = 1 << 16;

impl UsableSizes {
    /// True if there was a block with a usable size: from then on, all events are needed.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.first.is_some()
    }

    /// Handles an event.
    pub(super) fn on_event(&mut self, kind: &EventKind, usable: Option<Bytes>) {
        if let EventKind::Free { block: FreedBlock::Known(old) }
        | EventKind::Realloc { old: FreedBlock::Known(old), .. } = *kind
            && !self.others.is_empty()
        {
            self.others.remove(&old);
        }
        if let EventKind::Alloc { serial, size, .. } | EventKind::Realloc { serial, size, .. } = *kind {
            if usable.is_some() {
                self.first.get_or_insert(serial);
            }
            let has_room = self.by_size.len() < SIZES_MAX;
            let expected = match (self.by_size.get(&size), usable) {
                (None, Some(usable)) if has_room => Some(*self.by_size.entry(size).or_insert(usable)),
                (expected, _) => expected.copied(),
            };
            // A block without a usable size always has an entry: its size may become known later.
            if usable.is_none() || expected != usable {
                self.others.insert(serial, usable);
            }
        }
    }

    /// Returns the usable size of a live block; `None` if it is not known.
    pub(super) fn get(&self, serial: Serial, size: Bytes) -> Option<Bytes> {
        self.first.filter(|&first| first <= serial)?;
        self.others.get(&serial).copied().unwrap_or_else(|| self.by_size.get(&size).copied())
    }
}

#[cfg(test)]
mod tests;
