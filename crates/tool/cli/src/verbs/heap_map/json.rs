//! The document of `heap-map --json`.

use heapledger_resident::{HeapMap, Slice};
use serde::Serialize;

use crate::json::document::Document;

/// The document of `--json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct HeapMapJson {
    process: u32,
    chunk_size: u64,
    slice_size: u64,
    page_size: u64,
    /// The chunks and the huge blocks.
    bytes_mapped: u64,
    /// The blocks in use.
    bytes_used: u64,
    /// The pages of free slices that may have memory.
    bytes_dirty: u64,
    /// The heaps of threads that have runs.
    heaps: u32,
    arenas: Vec<ArenaJson>,
    /// The runs by the size of their blocks.
    rows: Vec<BinJson>,
    chunks: Vec<ChunkJson>,
    /// The blocks that are mappings of their own.
    huge: Vec<HugeJson>,
}

/// The runs of one block size.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct BinJson {
    block_size: u32,
    runs: u64,
    run_bytes: u64,
    /// The number of blocks that there is room for.
    capacity: u64,
    /// The number of blocks in use.
    used: u64,
    /// The bytes of runs that are not in blocks in use.
    unused_bytes: u64,
}

/// An arena.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ArenaJson {
    /// Hexadecimal; `0x0` if it is not known.
    id: String,
    /// Empty if it has none, as the main arena.
    label: String,
    chunks: u64,
}

/// A chunk. Slices that are not listed have no run and no memory.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ChunkJson {
    /// Hexadecimal.
    address: String,
    /// The index of its arena in `arenas`.
    arena: u32,
    runs: Vec<RunJson>,
    dirty: Vec<DirtyJson>,
}

/// A run.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RunJson {
    /// The number of its first slice in the chunk.
    slice: u64,
    slices: u8,
    block_size: u32,
    /// The number of blocks that it has room for.
    capacity: u16,
    /// The number of blocks that have been used.
    touched: u16,
    /// The number of blocks in use.
    used: u16,
    /// The heap of a thread that has the run, numbered from 0.
    heap: u32,
}

/// A slice without a run.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DirtyJson {
    slice: u64,
    /// The pages that may have memory.
    pages: u8,
}

/// A huge block.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct HugeJson {
    /// Hexadecimal.
    address: String,
    bytes: u64,
}

impl HeapMapJson {
    pub(super) fn new(process: u32, map: &HeapMap) -> HeapMapJson {
        let totals = map.totals();
        let rows = map.bins().into_iter().map(|bin| BinJson {
            block_size: bin.block_size,
            runs: bin.runs,
            run_bytes: bin.run_bytes,
            capacity: bin.capacity,
            used: bin.used,
            unused_bytes: bin.unused_bytes(),
        });
        let chunks = map.chunks.iter().map(|chunk| {
            let mut shown =
                ChunkJson { address: format!("{:#x}", chunk.address), arena: chunk.arena, runs: vec![], dirty: vec![] };
            let mut slice = 1;
            for each in &chunk.slices {
                match each {
                    Slice::Free(pages) => {
                        shown.dirty.extend((*pages > 0).then_some(DirtyJson { slice, pages: *pages }));
                        slice += 1;
                    }
                    Slice::Run(run) => {
                        shown.runs.push(RunJson {
                            slice,
                            slices: run.slices,
                            block_size: run.block_size,
                            capacity: run.capacity,
                            touched: run.touched,
                            used: run.used,
                            heap: run.heap,
                        });
                        slice += u64::from(run.slices);
                    }
                }
            }
            shown
        });
        let huge = map.huge.iter().map(|huge| HugeJson { address: format!("{:#x}", huge.address), bytes: huge.bytes });
        let mut chunk_counts = vec![0; map.arenas.len()];
        map.chunks.iter().for_each(|chunk| chunk_counts[chunk.arena as usize] += 1);
        let arenas = map.arenas.iter().zip(chunk_counts).map(|(arena, chunks)| ArenaJson {
            id: format!("{:#x}", arena.id),
            label: arena.label.clone(),
            chunks,
        });
        HeapMapJson {
            process,
            chunk_size: map.chunk_size,
            slice_size: map.slice_size,
            page_size: map.page_size,
            bytes_mapped: totals.mapped,
            bytes_used: totals.used,
            bytes_dirty: totals.dirty,
            heaps: map.heaps(),
            arenas: arenas.collect(),
            rows: rows.collect(),
            chunks: chunks.collect(),
            huge: huge.collect(),
        }
    }
}

impl Document for HeapMapJson {
    const SCHEMA: &'static str = "heap-map";
}
