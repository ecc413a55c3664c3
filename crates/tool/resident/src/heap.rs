//! The chunks and runs of a heap.

use std::collections::{BTreeMap, HashMap};

use crate::error::{HeapMapError, Result};
use crate::layout::Layout;
use crate::memory::{Memory, bytes, word, word_at};

#[cfg(test)]
mod tests;

/// The most chunks that are read: 1 TiB of 4 MiB each.
const CHUNKS_MAX: usize = 1 << 18;
/// The words of the radix tree for nothing and for a chunk.
const NOTHING: u64 = 0;
const CHUNK: u64 = 1;

/// The memory of an allocator at about one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapMap {
    /// The size of a chunk in bytes.
    pub chunk_size: u64,
    /// The size of a slice in bytes: chunks are divided into slices.
    pub slice_size: u64,
    /// The unit of the system's memory in bytes.
    pub page_size: u64,
    /// The arenas that have chunks, in the order of the first chunk of each.
    pub arenas: Vec<Arena>,
    /// The chunks, by address.
    pub chunks: Vec<Chunk>,
    /// The blocks with a mapping of their own, by address.
    pub huge: Vec<HugeBlock>,
}

/// An arena.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arena {
    /// Its id; 0 if it is not known.
    pub id: u64,
    /// Its label: empty if it has none, or if that is not known.
    pub label: String,
}

/// A chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Chunk {
    /// Its address.
    pub address: u64,
    /// The number of its arena in [`HeapMap::arenas`].
    pub arena: u32,
    /// Its slices, without the first one, which has the metadata. The slices of a run are one
    /// entry.
    pub slices: Vec<Slice>,
}

/// A slice, or the slices of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slice {
    /// A slice without a run. So many of its pages may have memory.
    Free(u8),
    /// A run.
    Run(Run),
}

/// A run: blocks of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Run {
    /// The number of its slices.
    pub slices: u8,
    /// The size of a block in bytes.
    pub block_size: u32,
    /// The number of blocks that it has room for.
    pub capacity: u16,
    /// The number of blocks that have been used.
    pub touched: u16,
    /// The number of blocks in use. Those that another thread has freed count until the run's own
    /// thread takes them back.
    pub used: u16,
    /// The heap of a thread that has the run, as a number from 0 in the order of addresses.
    pub heap: u32,
}

/// A block with a mapping of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HugeBlock {
    /// Its address.
    pub address: u64,
    /// Its usable size in bytes.
    pub bytes: u64,
}

/// The runs of one block size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BinUse {
    /// The size of a block in bytes.
    pub block_size: u32,
    /// The number of runs.
    pub runs: u64,
    /// The bytes of the runs.
    pub run_bytes: u64,
    /// The number of blocks that there is room for.
    pub capacity: u64,
    /// The number of blocks in use.
    pub used: u64,
}

impl BinUse {
    /// Returns the bytes of runs that are not in blocks in use.
    pub fn unused_bytes(&self) -> u64 {
        self.run_bytes.saturating_sub(self.used * u64::from(self.block_size))
    }
}

/// The sums over a heap, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// The chunks and the huge blocks.
    pub mapped: u64,
    /// The blocks in use.
    pub used: u64,
    /// The runs.
    pub runs: u64,
    /// The pages of free slices that may have memory.
    pub dirty: u64,
    /// The huge blocks.
    pub huge: u64,
}

impl HeapMap {
    /// Reads the heap of the first allocator that has memory, by the addresses of the allocators'
    /// layouts. Returns one without memory if there is no other, and `None` if no address has a
    /// layout.
    ///
    /// # Errors
    ///
    /// Fails if that heap cannot be read, or if no heap has memory and a layout makes no sense: the
    /// memory may be in the heap of that one.
    pub(crate) fn read_used(memory: &dyn Memory, addresses: impl Iterator<Item = u64>) -> Result<Option<HeapMap>> {
        let (mut empty, mut corrupt) = (None, None);
        for address in addresses {
            let layout = match Layout::read(memory, address) {
                Ok(Some(layout)) => layout,
                Err(error @ HeapMapError::Corrupt { .. }) => {
                    corrupt = Some(error);
                    continue;
                }
                // A file may have been replaced since it was mapped: then other contents are there.
                Ok(None) | Err(_) => continue,
            };
            let map = HeapMap::read(memory, &layout)?;
            if !map.chunks.is_empty() || !map.huge.is_empty() {
                return Ok(Some(map));
            }
            empty = Some(map);
        }
        corrupt.map_or(Ok(empty), Err)
    }

    /// Reads a heap by the layout of its memory.
    pub(crate) fn read(memory: &dyn Memory, layout: &Layout) -> Result<HeapMap> {
        let mut reader = Reader {
            memory,
            layout,
            current: HashMap::new(),
            map: HeapMap::default(),
            ranges: 0,
            heaps: HashMap::new(),
            arenas: HashMap::new(),
        };
        reader.read()?;
        let mut map = reader.map;
        (map.chunk_size, map.slice_size) = (1 << layout.chunk_shift, layout.slice_size());
        map.page_size = layout.page_size as u64;
        map.number_heaps(&reader.heaps);
        Ok(map)
    }

    /// Gives the heaps numbers in the order of their addresses.
    fn number_heaps(&mut self, heaps: &HashMap<u64, u32>) {
        let sorted: BTreeMap<u64, u32> = heaps.iter().map(|(&address, &number)| (address, number)).collect();
        let mut numbers = vec![0; heaps.len()];
        for (new, (_, &old)) in (0..).zip(&sorted) {
            numbers[old as usize] = new;
        }
        for slice in self.chunks.iter_mut().flat_map(|chunk| &mut chunk.slices) {
            if let Slice::Run(run) = slice {
                run.heap = numbers[run.heap as usize];
            }
        }
    }

    /// Returns all runs.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.chunks.iter().flat_map(|chunk| &chunk.slices).filter_map(|slice| match slice {
            Slice::Run(run) => Some(run),
            Slice::Free(_) => None,
        })
    }

    /// Returns the block sizes that there are, the smallest first.
    pub fn bins(&self) -> Vec<BinUse> {
        let mut bins = BTreeMap::new();
        for run in self.runs() {
            let bin: &mut BinUse = bins.entry(run.block_size).or_default();
            bin.block_size = run.block_size;
            bin.runs += 1;
            bin.run_bytes += u64::from(run.slices) * self.slice_size;
            bin.capacity += u64::from(run.capacity);
            bin.used += u64::from(run.used);
        }
        bins.into_values().collect()
    }

    /// Returns the number of heaps of threads that have runs.
    pub fn heaps(&self) -> u32 {
        self.runs().map(|run| run.heap + 1).max().unwrap_or(0)
    }

    /// Returns the sums.
    pub fn totals(&self) -> Totals {
        let mut totals =
            Totals { huge: self.huge.iter().map(|huge| huge.bytes).fold(0, u64::saturating_add), ..Totals::default() };
        totals.mapped = (self.chunks.len() as u64 * self.chunk_size).saturating_add(totals.huge);
        totals.used = totals.huge;
        for slice in self.chunks.iter().flat_map(|chunk| &chunk.slices) {
            match slice {
                Slice::Free(pages) => totals.dirty += u64::from(*pages) * self.page_size,
                Slice::Run(run) => {
                    totals.runs += u64::from(run.slices) * self.slice_size;
                    totals.used = totals.used.saturating_add(u64::from(run.used) * u64::from(run.block_size));
                }
            }
        }
        totals
    }
}

/// A read in progress.
struct Reader<'a> {
    memory: &'a dyn Memory,
    layout: &'a Layout,
    /// The current runs of heaps, by heap and class.
    current: HashMap<(u64, u8), u64>,
    map: HeapMap,
    /// The number of chunks and huge blocks so far, those that could not be read included.
    ranges: usize,
    /// The heaps, numbered as they were found.
    heaps: HashMap<u64, u32>,
    /// The arenas' numbers, by the addresses of their descriptions.
    arenas: HashMap<u64, u32>,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<()> {
        let mut root = vec![0; self.layout.root_count * 8];
        self.memory.read(self.layout.root, &mut root)?;
        let mut leaf = vec![0; self.layout.leaf_count * 8];
        for (number, address) in words(&root).enumerate().filter(|(_, address)| *address != 0) {
            self.memory.read(address, &mut leaf)?;
            for (at, entry) in words(&leaf).enumerate().filter(|(_, entry)| *entry != NOTHING) {
                let range = (number * self.layout.leaf_count + at) as u64;
                let Some(start) = range.checked_mul(1 << self.layout.chunk_shift) else { continue };
                if self.ranges >= CHUNKS_MAX {
                    return Err(HeapMapError::TooLarge(CHUNKS_MAX));
                }
                self.ranges += 1;
                self.read_range(start, entry);
            }
        }
        Ok(())
    }

    /// Adds the chunk or the huge block at an address. It is left out if it cannot be read: it may
    /// have been unmapped since the leaf was read.
    fn read_range(&mut self, start: u64, entry: u64) {
        let layout = self.layout;
        if entry != CHUNK {
            if let Ok(bytes) = word_at(self.memory, entry.wrapping_add(layout.huge_length)) {
                self.map.huge.push(HugeBlock { address: start, bytes });
            }
            return;
        }
        let page = (start >> layout.chunk_shift) % layout.header_pages;
        let header = start + page * layout.page_size as u64;
        let mut metadata = vec![0; layout.run_size * layout.slices()];
        if self.memory.read(header, &mut metadata).is_ok() {
            let slices = self.slices(header, &metadata);
            let arena = self.arena(word(&metadata, layout.chunk_arena).unwrap_or(0));
            self.map.chunks.push(Chunk { address: start, arena, slices });
        }
    }

    /// Returns the number of the arena whose description is at an address.
    fn arena(&mut self, address: u64) -> u32 {
        let (memory, layout, arenas) = (self.memory, self.layout, &mut self.map.arenas);
        *self.arenas.entry(address).or_insert_with(|| {
            let mut label = vec![0; layout.label_size];
            let is_there = memory.read(address.wrapping_add(layout.arena_label), &mut label).is_ok();
            let length = label.iter().position(|&byte| byte == 0).unwrap_or(0);
            let label = if is_there { String::from_utf8_lossy(&label[..length]).into_owned() } else { String::new() };
            let id = word_at(memory, address.wrapping_add(layout.arena_id)).unwrap_or(0);
            arenas.push(Arena { id, label });
            arenas.len() as u32 - 1
        })
    }

    /// Returns the slices of a chunk behind the first.
    fn slices(&mut self, header: u64, metadata: &[u8]) -> Vec<Slice> {
        let (layout, mut slices, mut slice) = (self.layout, Vec::new(), 1);
        let free = word(metadata, layout.chunk_free).unwrap_or(0);
        while slice < layout.slices() {
            let (offset, is_free) = (slice * layout.run_size, free & 1 << slice != 0);
            let line = metadata.get(offset..offset + layout.run_size).unwrap_or(&[]);
            let run = if is_free { None } else { self.run(header + offset as u64, line, layout.slices() - slice) };
            slice += match run {
                Some(run) => usize::from(run.slices),
                None => 1,
            };
            let pages_max = (layout.slice_size() / layout.page_size as u64).min(255) as u8;
            let touched = line.get(layout.run[7]).map_or(0, |touched| touched & 0x1f).min(pages_max);
            // The highest bit: the slice was given back to the arena's own source of memory.
            let is_gone = line.get(layout.run[7]).is_some_and(|touched| touched & 0x80 != 0);
            let touched = if is_gone { 0 } else { touched };
            slices.push(run.map_or(Slice::Free(touched), Slice::Run));
        }
        slices
    }

    /// Returns the run whose metadata begins at an address. `None` if there is none, or if the
    /// numbers make no sense because it is just changing. `slices_max` are left in the chunk.
    fn run(&mut self, address: u64, line: &[u8], slices_max: usize) -> Option<Run> {
        let [owner, used, size, capacity, carved, class, slices, _] = self.layout.run;
        let heap = word(line, owner)? & !self.layout.owner_tags;
        let used = u32::from_le_bytes(bytes(line, used)?);
        let block_size = u32::from_le_bytes(bytes(line, size)?);
        let capacity = u16::from_le_bytes(bytes(line, capacity)?);
        let touched = u16::from_le_bytes(bytes(line, carved)?).min(capacity);
        let (class, slices) = (*line.get(class)?, *line.get(slices)?);
        let room = u64::from(slices) * self.layout.slice_size();
        let is_sound = heap != 0 && slices > 0 && usize::from(slices) <= slices_max && block_size > 0;
        if !is_sound || u64::from(block_size) * u64::from(capacity) > room {
            return None;
        }
        let is_current = self.current_of(heap, class) == address;
        let used = used.saturating_sub(u32::from(is_current)).min(u32::from(touched)) as u16;
        let next = self.heaps.len() as u32;
        let heap = *self.heaps.entry(heap).or_insert(next);
        Some(Run { slices, block_size, capacity, touched, used, heap })
    }

    /// Returns the address of the metadata of a heap's current run of a class; 0 if it has none.
    fn current_of(&mut self, heap: u64, class: u8) -> u64 {
        let (memory, layout) = (self.memory, self.layout);
        *self.current.entry((heap, class)).or_insert_with(|| {
            let bin = heap.wrapping_add(layout.heap_bins).wrapping_add(u64::from(class) * layout.bin_size);
            word_at(memory, bin.wrapping_add(layout.bin_current)).unwrap_or(0)
        })
    }
}

/// Returns the words of 8 bytes.
fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or([0; 8])))
}
