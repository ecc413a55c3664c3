//! The document of `rss --json`.

use heapledger_resident::{
    AllocatorHeap, GlibcArena, GlibcHeap, IdleMapping, IdleMemory, Piece, ResidentMemory, ResidentPart,
};
use serde::Serialize;

use super::advice::{self, AdviceJson};
use crate::json::document::Document;
use crate::verbs::heap_map::PageUseJson;

/// The document of `--json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RssJson {
    process: u32,
    /// The name of the program, at most 15 bytes of it.
    command: String,
    threads: u64,
    /// Resident memory, as the kernel counts it (the sum of `smaps`, and so of `smaps_rollup`).
    bytes_resident: u64,
    /// The sum of the parts.
    bytes_found: u64,
    /// The bytes that the kernel counts beyond that sum; negative if the parts are more.
    bytes_difference: i64,
    /// All mapped addresses, resident or not.
    bytes_mapped: u64,
    /// The mappings that may neither be read nor written to.
    bytes_reserved: u64,
    /// The resident memory that belongs to no file.
    bytes_anonymous: u64,
    /// The part of this that is in huge pages.
    bytes_huge: u64,
    /// The bytes of these that are zeroes: padding, if the program has not written zeroes itself.
    /// An estimate if more than 256 MiB are in huge pages; missing if the kernel does not tell
    /// which are.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_huge_zeroes: Option<u64>,
    /// Pages of hugetlbfs, which are not among the resident ones.
    bytes_huge_tlb: u64,
    /// Memory in swap, which is not among the resident one.
    bytes_swapped: u64,
    /// Page tables, which are not among the resident ones.
    bytes_page_tables: u64,
    /// False if pages of zeroes in heaps are counted, because the kernel does not tell them apart.
    knows_zeroes: bool,
    /// The time from the first look at the process to the last. It was not stopped.
    read_seconds: f64,
    /// The parts, by kind; within a kind, the largest first.
    rows: Vec<PartJson>,
    /// The heap of glibc's malloc, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    glibc: Option<GlibcJson>,
    /// The heaps of other allocators: jemalloc, and so on.
    allocators: Vec<AllocatorJson>,
    /// The allocators that the program has, but whose heap was not found.
    allocators_unread: Vec<&'static str>,
    /// The memory that was not touched for a while: with `--idle`.
    #[serde(skip_serializing_if = "Option::is_none")]
    idle: Option<IdleJson>,
    /// The changes that would make less memory resident, in descending order of bytes.
    advice: Vec<AdviceJson>,
}

/// The memory that the process did not touch for a while.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct IdleJson {
    /// The time for which it was watched.
    seconds: f64,
    /// All resident memory at the end of that.
    bytes_resident: u64,
    /// The part of it that was not touched.
    bytes_idle: u64,
    /// The mappings with such memory, those with the most first.
    rows: Vec<IdleMappingJson>,
}

/// A mapping with memory that was not touched.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct IdleMappingJson {
    /// The first address; hexadecimal.
    start: String,
    /// One past the last address; hexadecimal.
    end: String,
    /// The path of the file, or a name such as `[heap]`; empty if it has none.
    name: String,
    /// True for memory of this process alone that belongs to no file.
    private: bool,
    bytes_resident: u64,
    bytes_idle: u64,
}

/// A part of resident memory.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PartJson {
    /// The use of the memory, such as `glibc-used`, `file`, `thread-stack` or `anonymous`.
    kind: &'static str,
    /// The path of a file, or the name of private memory; empty if it has none.
    name: String,
    /// The number of chunks, blocks, stacks or mappings.
    count: u64,
    bytes_mapped: u64,
    bytes_resident: u64,
    /// The resident bytes of this process alone that were written to; of parts that are mappings.
    bytes_private_dirty: u64,
    /// The resident bytes that other processes map, too; of parts that are mappings.
    bytes_shared: u64,
}

/// The heap of glibc's malloc.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct GlibcJson {
    /// The number of threads whose caches were found. If it is 0, cached chunks count as used.
    caches: u64,
    /// The blocks with a mapping of their own.
    mapped: PieceJson,
    /// The resident pages of the arenas' heaps, by what keeps them.
    pages: PageUseJson,
    /// The arenas; the main one comes first.
    arenas: Vec<ArenaJson>,
}

/// An arena.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ArenaJson {
    /// Hexadecimal.
    address: String,
    main: bool,
    /// The number of its heaps, of up to 64 MiB each.
    heaps: u32,
    /// The memory that it has from the system: the sum of the following.
    bytes_system: u64,
    used: PieceJson,
    /// The freed chunks in the caches of threads.
    cached: PieceJson,
    /// The freed chunks in fastbins.
    fast: PieceJson,
    /// All other freed chunks.
    free: PieceJson,
    /// The ends of heaps, from which new chunks are cut.
    top: PieceJson,
    bookkeeping: PieceJson,
    /// Memory that could not be walked.
    unread: PieceJson,
    /// The resident bytes that `malloc_trim(0)` would give back.
    bytes_trimmable: u64,
}

/// The heap of another allocator. Its memory is the sum of the pieces.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AllocatorJson {
    /// Its name, such as `jemalloc`.
    allocator: &'static str,
    /// The number of arenas, or of heaps of threads, that have blocks.
    arenas: u64,
    /// The number of caches of threads. If it is 0, cached blocks count as used.
    caches: u64,
    /// The blocks in use, by their usable sizes.
    used: PieceJson,
    /// Freed blocks in the caches of threads and in lists.
    cached: PieceJson,
    /// The rest of the runs that are divided into blocks, and the padding of large blocks.
    free: PieceJson,
    /// Free pages that the allocator keeps.
    dirty: PieceJson,
    /// Free pages that the system may take.
    lazy: PieceJson,
    /// Free addresses, whose pages were given back or never used.
    returned: PieceJson,
    bookkeeping: PieceJson,
    /// Memory whose description makes no sense.
    unread: PieceJson,
}

/// An amount of memory of a heap. Chunks of glibc have 8 bytes more than their blocks.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PieceJson {
    chunks: u64,
    bytes: u64,
    bytes_resident: u64,
}

impl Document for RssJson {
    const SCHEMA: &'static str = "rss";
}

impl RssJson {
    pub(crate) fn new(process: u32, memory: &ResidentMemory, idle: Option<&IdleMemory>) -> RssJson {
        RssJson {
            process,
            command: memory.command.clone(),
            threads: memory.threads,
            bytes_resident: memory.kernel.resident,
            bytes_found: memory.found(),
            bytes_difference: memory.difference(),
            bytes_mapped: memory.mapped,
            bytes_reserved: memory.reserved,
            bytes_anonymous: memory.kernel.anonymous,
            bytes_huge: memory.kernel.anonymous_huge,
            bytes_huge_zeroes: match memory.huge_pages {
                Some(huge) => Some(huge.empty),
                None => (memory.kernel.anonymous_huge == 0).then_some(0),
            },
            bytes_huge_tlb: memory.kernel.huge_tlb,
            bytes_swapped: memory.kernel.swapped,
            bytes_page_tables: memory.page_tables,
            knows_zeroes: memory.knows_zeroes,
            read_seconds: memory.duration.as_secs_f64(),
            rows: memory.parts.iter().map(part).collect(),
            glibc: memory.glibc.as_ref().map(heap),
            allocators: memory.allocators.iter().map(allocator).collect(),
            allocators_unread: memory.allocators_unread.iter().map(|allocator| allocator.name()).collect(),
            idle: idle.map(untouched),
            advice: advice::document(memory, idle),
        }
    }
}

fn untouched(idle: &IdleMemory) -> IdleJson {
    let row = |mapping: &IdleMapping| IdleMappingJson {
        start: format!("{:#x}", mapping.start),
        end: format!("{:#x}", mapping.end),
        name: mapping.name.clone(),
        private: mapping.is_private,
        bytes_resident: mapping.resident,
        bytes_idle: mapping.idle,
    };
    IdleJson {
        seconds: idle.duration.as_secs_f64(),
        bytes_resident: idle.resident,
        bytes_idle: idle.idle,
        rows: idle.mappings.iter().map(row).collect(),
    }
}

fn part(part: &ResidentPart) -> PartJson {
    PartJson {
        kind: part.kind.word(),
        name: part.name.clone(),
        count: part.count,
        bytes_mapped: part.mapped,
        bytes_resident: part.resident,
        bytes_private_dirty: part.private_dirty,
        bytes_shared: part.shared,
    }
}

fn heap(heap: &GlibcHeap) -> GlibcJson {
    let arena = |arena: &GlibcArena| ArenaJson {
        address: format!("{:#x}", arena.address),
        main: arena.is_main,
        heaps: arena.heaps,
        bytes_system: arena.system_bytes(),
        used: piece(arena.used),
        cached: piece(arena.cached),
        fast: piece(arena.fast),
        free: piece(arena.free),
        top: piece(arena.top),
        bookkeeping: piece(arena.bookkeeping),
        unread: piece(arena.unread),
        bytes_trimmable: arena.trimmable,
    };
    GlibcJson {
        caches: heap.caches,
        mapped: piece(heap.mapped),
        pages: heap.page_use.into(),
        arenas: heap.arenas.iter().map(arena).collect(),
    }
}

fn allocator(heap: &AllocatorHeap) -> AllocatorJson {
    AllocatorJson {
        allocator: heap.allocator.name(),
        arenas: heap.arenas,
        caches: heap.caches,
        used: piece(heap.used),
        cached: piece(heap.cached),
        free: piece(heap.free),
        dirty: piece(heap.dirty),
        lazy: piece(heap.lazy),
        returned: piece(heap.returned),
        bookkeeping: piece(heap.bookkeeping),
        unread: piece(heap.unread),
    }
}

fn piece(piece: Piece) -> PieceJson {
    PieceJson { chunks: piece.chunks, bytes: piece.bytes, bytes_resident: piece.resident }
}
