//! A ledger as it was at one moment.
//!
//! All locks are held while its tables are copied as they are, into memory that was made ready
//! before: allocations and frees wait for as long as that takes. Everything else is done with the
//! copy.

use core::{array, fmt};

use heapledger_core::Bytes;
use heapledger_core::totals::{Counts, Live, Variances};

use crate::contents::{Contents, Read};
use crate::defects::{Defect, Defects};
use crate::details::{Details, LiveBlock};
use crate::freed::{FreedBlocks, FreedTable};
use crate::mapped::OutOfMemory;
use crate::marks::{Marks, Table};
use crate::register::{Key, Register};
use crate::shards::{SHARDS, Shard};
use crate::shared::SharedLedger;

#[cfg(all(test, not(loom)))]
mod tests;

/// The blocks and totals of a ledger at one moment: see [`SharedLedger::snapshot`].
pub struct Snapshot {
    shards: [Copied; SHARDS],
    totals: (Counts, Live, Variances),
    freed: FreedTable,
    defects: Defects,
    contents: Option<Contents>,
    pause: u64,
}

/// The tables of a shard.
struct Copied {
    register: Register<Details>,
    marks: Table,
}

impl Snapshot {
    /// Returns what [`SharedLedger::totals`] returned.
    pub fn totals(&self) -> (Counts, Live, Variances) {
        self.totals
    }

    /// Returns the time for which all events waited, by the clock given.
    pub fn pause(&self) -> u64 {
        self.pause
    }

    /// Returns the blocks that were live, with their reports, in no useful order. Backing memory of
    /// pools is left out, as is a block in a pending reallocation.
    pub fn blocks(&self) -> impl Iterator<Item = (LiveBlock, Marks)> {
        self.shards.iter().flat_map(|shard| {
            let entries = shard.register.entries().filter(|(_, block, _)| !block.untracked);
            entries.map(|(key, block, details)| (LiveBlock::new(key, block, details), shard.marks.get(key)))
        })
    }

    /// Returns the blocks that had been freed by then: the number for each size and site. Empty,
    /// unless they are [kept](SharedLedger::keep_freed).
    pub fn freed(&self) -> impl Iterator<Item = FreedBlocks> {
        self.freed.iter()
    }

    /// Returns the number of other freed blocks, for whose kinds there was no memory.
    pub fn freed_lost(&self) -> u64 {
        self.freed.lost()
    }

    /// Returns the defects of reports: the first 64 different ones, in the order of first
    /// occurrence.
    pub fn defects(&self) -> impl Iterator<Item = Defect> {
        (0..).map_while(|number| self.defects.get(number))
    }

    /// Returns the number of defects.
    pub fn defects_count(&self) -> u64 {
        self.defects.count()
    }

    /// Returns the whole words that were in a block of this requested size. `None` if they were not
    /// read, or could not be. Blocks of pools have none: the pool defines what their addresses
    /// mean.
    pub fn contents(&self, key: Key, size: Bytes) -> Option<&[u64]> {
        self.contents.as_ref()?.get(key, size)
    }

    /// Returns the bytes that are mapped for the snapshot.
    pub fn bytes_mapped(&self) -> usize {
        let shards = self.shards.iter().map(|shard| shard.register.bytes_mapped() + shard.marks.bytes_mapped());
        let contents = self.contents.as_ref().map_or(0, Contents::bytes_mapped);
        shards.sum::<usize>() + self.freed.bytes_mapped() + contents
    }

    /// Creates a snapshot with room for what a ledger has now.
    fn with_room_for(ledger: &SharedLedger, contents: Option<(Bytes, Read)>) -> Result<Snapshot, OutOfMemory> {
        let register = ledger.register();
        let mut shards = array::from_fn(|_| Copied { register: Register::new(), marks: Table::new() });
        for (number, copied) in shards.iter_mut().enumerate() {
            let (blocks, marks) = register.with_shard(number, |shard| (shard.register.chunks(), shard.marks.chunks()));
            copied.register = Register::ready(blocks)?;
            copied.marks = Table::ready(marks)?;
        }
        let freed = FreedTable::ready(ledger.freed_chunks())?;
        let live = ledger.live();
        let contents = contents
            .map(|(bytes_max, read)| Contents::ready(live.blocks_live.0, live.bytes_live, bytes_max, read))
            .transpose()?;
        Ok(Snapshot { shards, totals: Default::default(), freed, defects: Defects::new(), contents, pause: 0 })
    }

    /// Reads the contents of the blocks that have been copied.
    fn read_contents(&mut self) -> Result<(), OutOfMemory> {
        let Some(contents) = &mut self.contents else { return Ok(()) };
        for shard in &self.shards {
            shard.register.entries().try_for_each(|(key, block, _)| contents.want(key, block))?;
        }
        contents.read()
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("totals", &self.totals).field("pause", &self.pause).finish_non_exhaustive()
    }
}

impl Copied {
    /// Copies the tables. If one has grown meanwhile, more memory is mapped now.
    fn copy(&mut self, shard: &Shard) -> Result<(), OutOfMemory> {
        self.register.copy_from(&shard.register)?;
        self.marks.copy_from(&shard.marks)
    }
}

impl SharedLedger {
    /// Copies all that is live, as of one moment. `now` is a clock; signal handlers that interrupt
    /// this must not call the ledger. Takes about as much memory as the ledger has for its blocks.
    ///
    /// With `contents`, the contents of the blocks are copied too, as far as they fit in so many
    /// bytes: the first ones by address.
    ///
    /// All events wait for as long as it takes to copy the tables, and the contents: see
    /// [`Snapshot::pause`].
    pub fn snapshot(&self, now: impl Fn() -> u64, contents: Option<(Bytes, Read)>) -> Result<Snapshot, OutOfMemory> {
        let mut snapshot = Snapshot::with_room_for(self, contents)?;
        let began = now();
        self.before_fork();
        // SAFETY: `held` and `held_shard` require that this thread has called `before_fork`, as it
        // has just done, that the references end before `after_fork`, as they do with this block,
        // and that there is one to each value: each is asked for once.
        let copied = unsafe {
            let (accounting, freed, defects) = self.held();
            (snapshot.totals, snapshot.defects) = (accounting.totals(), *defects);
            let mut shards = snapshot.shards.iter_mut().enumerate();
            let copied = shards.try_for_each(|(number, copied)| copied.copy(self.register().held_shard(number)));
            copied.and_then(|()| snapshot.freed.copy_from(freed)).and_then(|()| snapshot.read_contents())
        };
        // SAFETY: this thread called `before_fork`; the references from `held` are gone.
        unsafe { self.after_fork() };
        snapshot.pause = now().saturating_sub(began);
        copied.map(|()| snapshot)
    }
}
