//! An index of wide blocks, by which the one around an address is found.
//!
//! A block of at least 2ᵏ bytes and fewer than 2ᵏ⁺¹ is found by the cell of 2ᵏ addresses in which
//! it starts: no other such block starts there, and an address inside it lies in that cell or in
//! one of the two after it. So the index is a register by class and cell, and a look-up asks for
//! three cells of every class that has blocks. The index only says where to look; the register of
//! blocks says what is live.

use heapledger_core::Bytes;

use crate::mapped::OutOfMemory;
use crate::register::{Block, Key, Register};

/// The usable size from which blocks are in the index. Narrower ones are found by trying the few
/// places before an address at which one can start.
pub(crate) const WIDE: u64 = 4096;

pub(crate) struct Wide {
    /// By cell: the key of the block, stored as a size.
    pub(crate) starts: Register,
    /// By class: the number of blocks.
    classes: [u32; 64],
}

impl Wide {
    pub(crate) const fn new() -> Wide {
        Wide { starts: Register::new(), classes: [0; 64] }
    }

    /// Enters a block for which there is room.
    pub(crate) fn insert(&mut self, key: Key, extent: u64) -> Result<(), OutOfMemory> {
        let (class, cell) = cell(key, extent);
        if self.starts.insert(cell, start(key))?.is_none() {
            self.classes[class % 64] += 1;
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, key: Key, extent: u64) {
        let (class, cell) = cell(key, extent);
        if self.has(cell, key) && self.starts.remove(cell).is_some() {
            self.classes[class % 64] -= 1;
        }
    }

    /// Takes a block out that [`Wide::restore`] may put back, or that else has to be
    /// [forgotten](Register::forget). True if it was there.
    pub(crate) fn suspend(&mut self, key: Key, extent: u64) -> bool {
        let (class, cell) = cell(key, extent);
        let suspended = self.has(cell, key) && self.starts.suspend(cell).is_some();
        self.classes[class % 64] -= u32::from(suspended);
        suspended
    }

    pub(crate) fn restore(&mut self, key: Key, extent: u64) {
        let (class, cell) = cell(key, extent);
        self.classes[class % 64] += u32::from(self.starts.restore(cell, start(key), ()).is_ok());
    }

    /// Returns the classes that have blocks, a bit each.
    pub(crate) fn classes(&self) -> u64 {
        self.classes.iter().rev().fold(0, |bits, &blocks| bits << 1 | u64::from(blocks > 0))
    }

    /// Returns the blocks of a class that may be around a place.
    pub(crate) fn around(&self, key: Key, class: u32) -> [Option<Key>; 3] {
        let cell = |back| (key.0 >> class).checked_sub(back).map(|cell| of_class(class, cell));
        [0, 1, 2].map(|back| Some(Key(self.starts.get(cell(back)?)?.size.0)))
    }

    fn has(&self, cell: Key, key: Key) -> bool {
        self.starts.get(cell).is_some_and(|start| start.size.0 == key.0)
    }
}

/// Returns the class of a block, and its cell.
fn cell(key: Key, extent: u64) -> (usize, Key) {
    let class = extent.max(1).ilog2();
    (class as usize, of_class(class, key.0 >> class))
}

/// Returns the key of a cell. Classes from [`WIDE`] on leave 52 bits for the cell.
fn of_class(class: u32, cell: u64) -> Key {
    Key(u64::from(class) << 58 | cell)
}

fn start(key: Key) -> Block {
    Block { size: Bytes(key.0), ..Block::IGNORED }
}
