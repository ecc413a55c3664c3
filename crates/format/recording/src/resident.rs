//! Resident snapshots: where the resident memory of a process was at a moment, and which live
//! blocks kept it.

use heapledger_core::{Blocks, Bytes, StackId};

use crate::columns::{self, CODEC_BYTES, CODEC_DELTA, CODEC_VARINT, Spec};
use crate::error::{Reason, RecordingError};
use crate::frame::{Compressor, EncodedChunk};
use crate::head::{CHUNK_ROWS_MAX, ChunkHead, ChunkKind};
use crate::ids::{ImageId, Live, Time};
use crate::sites;
use crate::varint::{self, Varints};

/// The most parts of a snapshot.
pub const SNAPSHOT_PARTS_MAX: usize = 16_384;
/// The most bytes of all names of parts of a snapshot.
pub const SNAPSHOT_NAMES_MAX: usize = 4 << 20;

/// A resident snapshot of an image's process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResidentSnapshot {
    /// The moment of its live blocks. The pages were read a little later.
    pub time: Time,
    /// The figures of the whole process.
    pub figures: ResidentFigures,
    /// The parts of resident memory. Their resident bytes add up to the kernel's figure, but for
    /// what changed while they were read.
    pub parts: Vec<SnapshotPart>,
    /// The sites of the blocks that were live, in ascending order of stacks. Empty if
    /// [`ResidentFigures::has_sites`] is false.
    pub sites: Vec<SnapshotSite>,
}

/// The reason why a snapshot was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SnapshotCause {
    /// A reason that this version does not know.
    #[default]
    Unknown,
    /// Somebody asked for it.
    Asked,
    /// It was time for one.
    Schedule,
    /// Resident memory had grown since the snapshot before.
    Growth,
    /// Resident memory had begun to fall.
    Fall,
    /// The program was about to end.
    End,
}

const CAUSES: [SnapshotCause; 6] = [
    SnapshotCause::Unknown,
    SnapshotCause::Asked,
    SnapshotCause::Schedule,
    SnapshotCause::Growth,
    SnapshotCause::Fall,
    SnapshotCause::End,
];

/// The figures of a snapshot that are about the whole process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidentFigures {
    /// The reason why it was made.
    pub cause: SnapshotCause,
    /// The time for which the process was read, in nanoseconds. It ran on meanwhile.
    pub read_ns: u64,
    /// The time for which the recorder took no events, because it copied its list of live blocks,
    /// in nanoseconds. A thread whose ring became full meanwhile has waited.
    pub copy_ns: u64,
    /// Resident memory, as the kernel counts it (`Rss` in `smaps_rollup`).
    pub resident: Bytes,
    /// The part of it that belongs to no file.
    pub anonymous: Bytes,
    /// The part of it in huge pages.
    pub huge: Bytes,
    /// The most resident memory that the process ever had, as the kernel keeps it (`VmHWM`).
    pub resident_max: Bytes,
    /// Memory in swap.
    pub swapped: Bytes,
    /// Memory in hugetlbfs, which is not among the resident one.
    pub huge_tlb: Bytes,
    /// Page tables, which are not among the resident memory.
    pub page_tables: Bytes,
    /// All mapped addresses.
    pub mapped: Bytes,
    /// The mappings that may neither be read nor written to.
    pub reserved: Bytes,
    /// The resident bytes that `malloc_trim(0)` of glibc would have given back.
    pub trimmable: Bytes,
    /// The number of threads.
    pub threads: u64,
    /// True if the kernel tells pages of zeroes from others. If not, those in heaps are counted.
    pub knows_zeroes: bool,
    /// True if the live blocks are divided by site. They are not in recordings of a sample.
    pub has_sites: bool,
    /// The blocks that were live, with their requested bytes, resident or not.
    pub live: Live,
    /// The size of a page in bytes.
    pub page_size: Bytes,
    /// The number of resident pages in heaps: those of known allocators, and mappings that have a
    /// live block.
    pub heap_pages: u64,
    /// The heap pages with live bytes, by their fill: less than a quarter, less than a half, less
    /// than three quarters, more.
    pub pages_by_fill: [u64; 4],
    /// The number of resident pages that are not full and have exactly one live block, or a part of
    /// one.
    pub pages_alone: u64,
    /// The number of arenas of glibc's malloc.
    pub arenas: u64,
    /// The number of threads whose caches were found in its heap. If it is 0, cached chunks are in
    /// `glibc-used`.
    pub caches: u64,
}

/// A part of resident memory. All amounts are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotPart {
    /// The use of the memory, such as `glibc-free` or `file`; FORMAT.md has the list.
    pub kind: String,
    /// The path of a file, or the name of a mapping; empty if the kind says all.
    pub name: String,
    /// The number of chunks, blocks, stacks or mappings.
    pub count: u64,
    /// The addresses, resident or not.
    pub mapped: Bytes,
    /// The resident bytes.
    pub resident: Bytes,
    /// The resident bytes of this process alone that were written to, if the part is made of whole
    /// mappings.
    pub private_dirty: Bytes,
    /// The resident bytes that other processes map, too, if the part is made of whole mappings.
    pub shared: Bytes,
    /// The resident bytes that live blocks of the recording have in it.
    pub live: Bytes,
}

/// The live blocks of a site, and the pages that they keep. A block of 0 bytes counts as 1 byte in
/// all but `bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotSite {
    /// The stack that allocated them.
    pub stack: StackId,
    /// The number of blocks.
    pub blocks: Blocks,
    /// Their requested bytes.
    pub bytes: Bytes,
    /// The part of these that is in resident pages.
    pub resident: Bytes,
    /// The bytes by which usable sizes are larger than requested ones, of the blocks whose usable
    /// size was recorded.
    pub slop: Bytes,
    /// Their share of the resident pages that they are in: each page is divided among the live
    /// blocks that it has, by their bytes in it. The sum over all sites is the memory of all
    /// resident pages with live bytes.
    pub kept: Bytes,
    /// The number of resident pages that are not full, with one of these blocks and no other live
    /// block.
    pub pages_alone: u64,
    /// The number of resident pages that are less than a quarter full and of whose live bytes this
    /// site has the most; of several with the same, the lowest stack counts.
    pub pages_sparse: u64,
}

/// Numbers and values of figures. Numbers that are not known are skipped.
const FIGURES: [u16; 2] = [1, 2];
/// The lengths of the kind and the name of each part, and these texts.
const TEXTS: [u16; 2] = [3, 4];
const PARTS: [Spec; 6] = [
    Spec { id: 5, codec: CODEC_VARINT },  // count
    Spec { id: 6, codec: CODEC_VARINT },  // mapped
    Spec { id: 7, codec: CODEC_VARINT },  // resident
    Spec { id: 8, codec: CODEC_VARINT },  // private_dirty
    Spec { id: 9, codec: CODEC_VARINT },  // shared
    Spec { id: 10, codec: CODEC_VARINT }, // live
];
const SITES: [Spec; 8] = [
    Spec { id: 11, codec: CODEC_DELTA },  // stack
    Spec { id: 12, codec: CODEC_VARINT }, // blocks
    Spec { id: 13, codec: CODEC_VARINT }, // bytes
    Spec { id: 14, codec: CODEC_VARINT }, // resident
    Spec { id: 15, codec: CODEC_VARINT }, // slop
    Spec { id: 16, codec: CODEC_VARINT }, // kept
    Spec { id: 17, codec: CODEC_VARINT }, // pages_alone
    Spec { id: 18, codec: CODEC_VARINT }, // pages_sparse
];

/// Turns snapshots into chunks.
#[derive(Debug)]
pub struct ResidentEncoder;

impl ResidentEncoder {
    /// Returns the chunks of a snapshot, usually one. Fails if the sites are not in ascending order
    /// of stacks, a stack id is out of range, or there are too many parts or too long names.
    pub fn encode(
        image: ImageId,
        snapshot: &ResidentSnapshot,
        compressor: &mut Compressor,
    ) -> Result<Vec<EncodedChunk>, RecordingError> {
        let sites = &snapshot.sites;
        if !sites.is_sorted_by(|a, b| a.stack < b.stack) || sites.last().is_some_and(|site| site.stack > StackId::MAX) {
            return Err(RecordingError::Unwritable("sites of a snapshot out of order"));
        }
        let names: usize = snapshot.parts.iter().map(|part| part.kind.len() + part.name.len()).sum();
        if snapshot.parts.len() > SNAPSHOT_PARTS_MAX || names > SNAPSHOT_NAMES_MAX {
            return Err(RecordingError::Unwritable("a snapshot with too many parts"));
        }
        // Without sites, there is one chunk without rows.
        let parts = sites.len().div_ceil(CHUNK_ROWS_MAX).max(1);
        let mut chunks = Vec::with_capacity(parts);
        for part in 0..parts {
            let rows = &sites[part * CHUNK_ROWS_MAX..sites.len().min((part + 1) * CHUNK_ROWS_MAX)];
            let mut contents = if part == 0 { snapshot.encode_whole() } else { Vec::new() };
            contents.extend(columns::encode_table(SITES, rows.iter().map(SnapshotSite::row)));
            let head = ChunkHead {
                rows: rows.len() as u32,
                time_first: snapshot.time,
                time_last: snapshot.time,
                part: part as u32,
                parts: parts as u32,
                ..ChunkHead::of(image)
            };
            chunks.push(compressor.encode_chunk(ChunkKind::Resident, &head, &contents)?);
        }
        Ok(chunks)
    }
}

impl ResidentSnapshot {
    /// Returns the number of resident pages with live bytes.
    pub fn pages_live(&self) -> u64 {
        self.figures.pages_by_fill.iter().fold(0, |sum, pages| sum.saturating_add(*pages))
    }

    /// Returns the sum of the parts in bytes.
    pub fn found(&self) -> Bytes {
        Bytes(self.parts.iter().fold(0, |sum, part| sum.saturating_add(part.resident.0)))
    }

    /// Encodes everything except the sites.
    fn encode_whole(&self) -> Vec<u8> {
        let (mut numbers, mut values) = (Vec::new(), Vec::new());
        for (number, value) in self.figures.numbered() {
            varint::put(&mut numbers, number);
            varint::put(&mut values, value);
        }
        let mut contents = Vec::new();
        columns::put(&mut contents, FIGURES[0], CODEC_VARINT, &numbers);
        columns::put(&mut contents, FIGURES[1], CODEC_VARINT, &values);
        let (mut lengths, mut texts) = (Vec::new(), Vec::new());
        for text in self.parts.iter().flat_map(|part| [&part.kind, &part.name]) {
            varint::put(&mut lengths, text.len() as u64);
            texts.extend_from_slice(text.as_bytes());
        }
        columns::put(&mut contents, TEXTS[0], CODEC_VARINT, &lengths);
        columns::put(&mut contents, TEXTS[1], CODEC_BYTES, &texts);
        let rows = self.parts.iter().map(|part| {
            let SnapshotPart { count, mapped, resident, private_dirty, shared, live, .. } = part;
            [*count, mapped.0, resident.0, private_dirty.0, shared.0, live.0]
        });
        contents.extend(columns::encode_table(PARTS, rows));
        contents
    }
}

impl ResidentFigures {
    /// Returns the figures with their numbers in the file.
    fn numbered(&self) -> [(u64, u64); 27] {
        let cause = CAUSES.iter().position(|cause| *cause == self.cause).unwrap_or(0) as u64;
        let [sparse, half, most, full] = self.pages_by_fill;
        [
            (1, cause),
            (2, self.read_ns),
            (3, self.copy_ns),
            (4, self.resident.0),
            (5, self.anonymous.0),
            (6, self.huge.0),
            (7, self.resident_max.0),
            (8, self.swapped.0),
            (9, self.huge_tlb.0),
            (10, self.page_tables.0),
            (11, self.mapped.0),
            (12, self.reserved.0),
            (13, self.trimmable.0),
            (14, self.threads),
            (15, self.knows_zeroes.into()),
            (16, self.has_sites.into()),
            (17, self.live.bytes.0),
            (18, self.live.blocks.0),
            (19, self.page_size.0),
            (20, self.heap_pages),
            (21, sparse),
            (22, half),
            (23, most),
            (24, full),
            (25, self.pages_alone),
            (26, self.arenas),
            (27, self.caches),
        ]
    }

    fn set(&mut self, number: u64, value: u64) {
        let bytes = match number {
            1 => {
                self.cause = usize::try_from(value).ok().and_then(|at| CAUSES.get(at)).copied().unwrap_or_default();
                return;
            }
            15 => return self.knows_zeroes = value != 0,
            16 => return self.has_sites = value != 0,
            2 => return self.read_ns = value,
            3 => return self.copy_ns = value,
            14 => return self.threads = value,
            18 => return self.live.blocks = Blocks(value),
            20 => return self.heap_pages = value,
            21..=24 => return self.pages_by_fill[(number - 21) as usize] = value,
            25 => return self.pages_alone = value,
            26 => return self.arenas = value,
            27 => return self.caches = value,
            4 => &mut self.resident,
            5 => &mut self.anonymous,
            6 => &mut self.huge,
            7 => &mut self.resident_max,
            8 => &mut self.swapped,
            9 => &mut self.huge_tlb,
            10 => &mut self.page_tables,
            11 => &mut self.mapped,
            12 => &mut self.reserved,
            13 => &mut self.trimmable,
            17 => &mut self.live.bytes,
            19 => &mut self.page_size,
            // A figure of a later version.
            _ => return,
        };
        *bytes = Bytes(value);
    }
}

impl SnapshotSite {
    fn row(&self) -> [u64; 8] {
        let SnapshotSite { stack, blocks, bytes, resident, slop, kept, pages_alone, pages_sparse } = *self;
        [u64::from(stack.0), blocks.0, bytes.0, resident.0, slop.0, kept.0, pages_alone, pages_sparse]
    }
}

/// Appends the snapshot of a chunk, or the sites of a further chunk to the last snapshot.
pub(crate) fn decode(contents: &[u8], head: &ChunkHead, snapshots: &mut Vec<ResidentSnapshot>) -> Result<(), Reason> {
    let mut rows = Vec::new();
    columns::decode_table(contents, SITES, head.rows, |[stack, blocks, bytes, rest @ ..]| {
        let [resident, slop, kept, pages_alone, pages_sparse] = rest;
        rows.push(SnapshotSite {
            stack: sites::stack(stack)?,
            blocks: Blocks(blocks),
            bytes: Bytes(bytes),
            resident: Bytes(resident),
            slop: Bytes(slop),
            kept: Bytes(kept),
            pages_alone,
            pages_sparse,
        });
        Ok(())
    })?;
    if head.part > 0 {
        let last = snapshots.last_mut().filter(|last| last.time == head.time_first);
        let last = last.ok_or(Reason::Invalid("the beginning of a snapshot is missing"))?;
        last.sites.append(&mut rows);
        return Ok(());
    }
    let parts = decode_parts(contents)?;
    let figures = decode_figures(contents)?;
    snapshots.push(ResidentSnapshot { time: head.time_first, figures, parts, sites: rows });
    Ok(())
}

/// Checks a chunk without those before it.
pub(crate) fn check(contents: &[u8], head: &ChunkHead) -> Result<(), Reason> {
    let before = ResidentSnapshot { time: head.time_first, ..ResidentSnapshot::default() };
    decode(contents, head, &mut vec![before])
}

fn decode_figures(contents: &[u8]) -> Result<ResidentFigures, Reason> {
    let mut figures = ResidentFigures::default();
    let [numbers, values] = columns::find(contents, FIGURES)?;
    let mut numbers = Varints::new(numbers.with_codec(CODEC_VARINT)?);
    let mut values = Varints::new(values.with_codec(CODEC_VARINT)?);
    while !numbers.is_empty() {
        let number = numbers.next().ok_or(columns::TOO_SHORT)?;
        figures.set(number, values.next().ok_or(columns::TOO_SHORT)?);
    }
    if values.is_empty() { Ok(figures) } else { Err(columns::TOO_LONG) }
}

fn decode_parts(contents: &[u8]) -> Result<Vec<SnapshotPart>, Reason> {
    let [lengths, texts] = columns::find(contents, TEXTS)?;
    let mut lengths = Varints::new(lengths.with_codec(CODEC_VARINT)?);
    let mut rest = Varints::new(texts.with_codec(CODEC_BYTES)?);
    let mut texts: Vec<&[u8]> = Vec::new();
    while !lengths.is_empty() {
        if texts.len() >= 2 * SNAPSHOT_PARTS_MAX {
            return Err(Reason::Limit);
        }
        texts.push(lengths.next().and_then(|length| rest.take(length)).ok_or(columns::TOO_SHORT)?);
    }
    if !rest.is_empty() {
        return Err(columns::TOO_LONG);
    }
    let (pairs, odd) = texts.as_chunks::<2>();
    if !odd.is_empty() {
        return Err(Reason::Invalid("a part without a name"));
    }
    let mut names = pairs.iter();
    let mut parts = Vec::new();
    columns::decode_table(contents, PARTS, pairs.len() as u32, |[count, rest @ ..]| {
        let [kind, name] = names.next().copied().unwrap_or_default().map(String::from_utf8_lossy);
        let (kind, name) = (kind.into_owned(), name.into_owned());
        let [mapped, resident, private_dirty, shared, live] = rest.map(Bytes);
        parts.push(SnapshotPart { kind, name, count, mapped, resident, private_dirty, shared, live });
        Ok(())
    })?;
    Ok(parts)
}
