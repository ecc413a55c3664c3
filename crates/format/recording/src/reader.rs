//! Opening a recording: whole, truncated or damaged.

use std::mem::size_of;
use std::ops::Range;
use std::sync::Arc;

use heapledger_core::ThreadId;

use crate::annotations::{self, Annotation};
use crate::checkpoint::{self, Checkpoint};
use crate::error::{Damage, Reason, RecordingError};
use crate::events::{Decoded, Events, EventsBuffer};
use crate::frame::{self, ChunkFrame, EncodedChunk, FILE_HEADER, NoFrame, TRAILER, Trailer, Unpacker};
use crate::head::{CHUNK_ROWS_MAX, ChunkEntry, ChunkHead, ChunkKind};
use crate::ids::{ImageId, ModuleId, TextId, Time};
use crate::memory::{self, MemorySample};
use crate::messages::{
    Counts, Departure, Footer, ImageCounts, ImageEnd, ImageOrigin, ImageStart, ImportedLocation, Mapping, Module,
    Pause, ProcessCounts, Record, Sampling, Session, Text, Thread,
};
use crate::names::Names;
use crate::nodes::{self, NodeCache, NodeTable, StackTree};
use crate::sites::{self, Site};
use crate::timeline::{self, Sample};
use crate::{proto, records};

/// The limits on the memory that a reader may take.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// The most bytes of any one table: the metadata, the nodes or the sites of an image, a
    /// timeline. 1 GiB by default.
    pub table_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { table_bytes: 1 << 30 }
    }
}

impl Limits {
    /// Returns the same limits with another [`Limits::table_bytes`].
    pub fn with_table_bytes(self, table_bytes: usize) -> Limits {
        Limits { table_bytes }
    }
}

/// An open recording. Metadata and the footer are at hand; everything else is unpacked when asked
/// for.
#[derive(Debug)]
pub struct Recording<'a> {
    file: &'a [u8],
    limits: Limits,
    version: (u8, u8),
    damage: Vec<Damage>,
    chunks: Vec<ChunkEntry>,
    /// Indices of `chunks`, ordered by kind, image and position.
    by_kind: Vec<usize>,
    footer: Option<Footer>,
    metadata: Metadata,
}

/// A table that was gathered from several chunks, and the damage that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows<T> {
    /// The rows that could be read.
    pub rows: Vec<T>,
    /// The places where rows are missing, with the reasons.
    pub damage: Vec<Damage>,
}

/// A process of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its pid.
    pub pid: u32,
    /// Its images in order: each but the first was started by `exec`.
    pub images: Vec<ImageId>,
}

impl<'a> Recording<'a> {
    /// Opens the bytes of a file. A damaged or unfinished file opens too: see
    /// [`complete`](Self::complete) and [`damage`](Self::damage). Fails only if the file is not a
    /// recording, or needs a newer version.
    pub fn open(file: &'a [u8]) -> Result<Recording<'a>, RecordingError> {
        Recording::open_with(file, Limits::default())
    }

    /// Like [`open`](Self::open), with other limits.
    pub fn open_with(file: &'a [u8], limits: Limits) -> Result<Recording<'a>, RecordingError> {
        let version = frame::read_file_header(file)?;
        let Directory { chunks, footer, mut damage } = Directory::read(file);
        let mut by_kind: Vec<usize> = (0..chunks.len()).collect();
        by_kind.sort_by_key(|&index| order(&chunks[index]));
        let metadata = Metadata::read(file, &chunks, limits, &mut damage);
        damage.sort_by_key(|damage| damage.offset);
        Ok(Recording { file, limits, version, damage, chunks, by_kind, footer, metadata })
    }

    /// Returns the file's format version: major, minor.
    pub fn version(&self) -> (u8, u8) {
        self.version
    }

    /// True if the recorder finished, saw everything to its end, and no damage was found in the
    /// file.
    pub fn complete(&self) -> bool {
        self.damage.is_empty() && self.footer.is_some_and(|footer| footer.complete)
    }

    /// Returns the damage that was found on opening, in the order of the file. Chunks that are
    /// unpacked later can still fail: [`verify`](Self::verify) tries them all.
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Unpacks every chunk, and reports all that is wrong with the file, in its order.
    pub fn verify(&self) -> Vec<Damage> {
        let mut damage = self.damage.clone();
        let mut unpacker = Unpacker::default();
        let mut events = Decoded::default();
        for chunk in &self.chunks {
            let head = &chunk.head;
            let checked = self.read(chunk, &mut unpacker, |contents| match chunk.kind {
                // Metadata was read on opening, and any damage in it is in the list.
                ChunkKind::Metadata => Ok(()),
                ChunkKind::Annotations => annotations::decode(contents, head.rows, &mut Vec::new()),
                ChunkKind::Nodes => nodes::decode(contents, head.rows, &mut Vec::new()),
                ChunkKind::Events => events.decode(contents, head),
                ChunkKind::Checkpoint if head.counts.is_none() => Err(Reason::Invalid("a checkpoint without totals")),
                ChunkKind::Checkpoint => checkpoint::decode(contents, head, &mut Vec::new()),
                ChunkKind::Sites => sites::decode(contents, head.rows, &mut Vec::new()),
                ChunkKind::Timeline => timeline::decode(contents, head.rows, &mut Vec::new()),
                ChunkKind::Memory => memory::decode(contents, head.rows, &mut Vec::new()),
                ChunkKind::Names => Names::default().add(contents, head.rows),
                ChunkKind::Index | ChunkKind::Footer | ChunkKind::Other(_) => Ok(()),
            });
            match checked {
                Err(found) if chunk.kind != ChunkKind::Metadata => damage.push(found),
                _ => {}
            }
        }
        damage.sort_by_key(|damage| damage.offset);
        damage
    }

    /// Returns every readable chunk, in the order of the file; the index and the footer are not
    /// among them.
    pub fn chunks(&self) -> &[ChunkEntry] {
        &self.chunks
    }

    /// Returns the session; `None` only if that part is damaged.
    pub fn session(&self) -> Option<&Session> {
        self.metadata.session.as_ref()
    }

    /// Returns the footer; `None` if the recorder did not finish.
    pub fn footer(&self) -> Option<&Footer> {
        self.footer.as_ref()
    }

    /// Returns the images in ascending order of ids.
    pub fn images(&self) -> &[ImageStart] {
        &self.metadata.images
    }

    /// Returns the start of one image.
    pub fn image(&self, image: ImageId) -> Option<&ImageStart> {
        one(&self.metadata.images, image, |start| start.image)
    }

    /// Returns the end of an image, if it ended.
    pub fn image_end(&self, image: ImageId) -> Option<&ImageEnd> {
        one(&self.metadata.image_ends, image, |end| end.image)
    }

    /// Returns the totals of an image: those at its end, else those of its last checkpoint.
    pub fn image_counts(&self, image: ImageId) -> Option<&Counts> {
        let at_end = one(&self.metadata.image_counts, image, |counts| counts.image).map(|counts| &counts.counts);
        at_end.or_else(|| {
            self.of_image(ChunkKind::Checkpoint, Some(image)).rev().find_map(|chunk| chunk.head.counts.as_ref())
        })
    }

    /// Returns the processes, in the order of their first images.
    pub fn processes(&self) -> &[Process] {
        &self.metadata.processes
    }

    /// Returns the totals of the processes, in the order of their first images.
    pub fn process_counts(&self) -> &[ProcessCounts] {
        &self.metadata.process_counts
    }

    /// Returns the times in which recording was paused, in order.
    pub fn pauses(&self) -> &[Pause] {
        &self.metadata.pauses
    }

    /// True if only a sample of all blocks is recorded.
    pub fn is_sample(&self) -> bool {
        self.session().is_some_and(|session| session.samples)
    }

    /// Returns the rates at which blocks were sampled, in the order of time; empty if all are
    /// recorded.
    pub fn sampling(&self) -> &[Sampling] {
        &self.metadata.sampling
    }

    /// Returns the programs and processes that ran unrecorded, in order.
    pub fn departures(&self) -> &[Departure] {
        &self.metadata.departures
    }

    /// Returns the modules in ascending order of ids.
    pub fn modules(&self) -> &[Module] {
        &self.metadata.modules
    }

    /// Returns one module.
    pub fn module(&self, module: ModuleId) -> Option<&Module> {
        one(&self.metadata.modules, module, |named| named.module)
    }

    /// Returns the names that another tool gave to places, in ascending order of modules and
    /// offsets.
    pub fn imported_locations(&self) -> &[ImportedLocation] {
        &self.metadata.imported_locations
    }

    /// Returns the name that another tool gave to this place.
    pub fn imported_location(&self, module: ModuleId, offset: u64) -> Option<&ImportedLocation> {
        one(&self.metadata.imported_locations, (module, offset), |location| (location.module, location.offset))
    }

    /// Returns the texts in ascending order of ids.
    pub fn texts(&self) -> &[Text] {
        &self.metadata.texts
    }

    /// Returns one text.
    pub fn text(&self, text: TextId) -> Option<&Text> {
        one(&self.metadata.texts, text, |named| named.text)
    }

    /// Returns the mappings of an image in the order in which they were seen.
    pub fn mappings(&self, image: ImageId) -> &[Mapping] {
        all(&self.metadata.mappings, image, |mapping| mapping.image)
    }

    /// Returns the threads of an image in ascending order of ids.
    pub fn threads(&self, image: ImageId) -> &[Thread] {
        all(&self.metadata.threads, image, |thread| thread.image)
    }

    /// Returns one thread.
    pub fn thread(&self, image: ImageId, thread: ThreadId) -> Option<&Thread> {
        one(self.threads(image), thread, |known| known.thread)
    }

    /// Returns the annotations of an image in order, unpacked one chunk at a time. After an error
    /// the iterator goes on with the next chunk.
    pub fn annotations(&self, image: ImageId) -> impl Iterator<Item = Result<Annotation, RecordingError>> + '_ {
        self.of_image(ChunkKind::Annotations, Some(image)).flat_map(|chunk| {
            let mut annotations = Vec::new();
            let read = self.read(chunk, &mut Unpacker::default(), |contents| {
                annotations::decode(contents, chunk.head.rows, &mut annotations)
            });
            annotations.into_iter().map(Ok).chain(read.err().map(|damage| Err(RecordingError::Damaged(damage))))
        })
    }

    /// Returns the nodes that an image added to its stack tree.
    pub fn nodes(&self, image: ImageId) -> NodeTable {
        let Rows { rows, damage } = self.gather(ChunkKind::Nodes, Some(image), nodes::decode);
        let offset = self.of_image(ChunkKind::Nodes, Some(image)).next().map_or(0, |chunk| chunk.offset);
        NodeTable::new(rows, self.fork_node_base(image), damage, offset)
    }

    /// Returns the whole stack tree of an image, including those of the images it was forked from.
    /// Tables that the cache has are not unpacked again.
    pub fn stack_tree(&self, image: ImageId, cache: &mut NodeCache) -> StackTree {
        let mut tree = StackTree::default();
        let mut next = Some(image);
        while let Some(image) = next {
            let table = cache.tables.entry(image).or_insert_with(|| Arc::new(self.nodes(image)));
            let base = self.fork_node_base(image);
            tree.push_level(base, Arc::clone(table));
            // A parent has a lower id, so this ends.
            next = self.image(image).and_then(|start| start.parent_image).filter(|_| base.0 > 0);
        }
        tree
    }

    /// Returns the sites of an image, in the order of the file.
    pub fn sites(&self, image: ImageId) -> Rows<Site> {
        self.gather(ChunkKind::Sites, Some(image), sites::decode)
    }

    /// Returns the session's timeline.
    pub fn timeline(&self) -> Rows<Sample> {
        self.gather(ChunkKind::Timeline, None, timeline::decode)
    }

    /// Returns an image's timeline; empty if it was not recorded.
    pub fn image_timeline(&self, image: ImageId) -> Rows<Sample> {
        self.gather(ChunkKind::Timeline, Some(image), timeline::decode)
    }

    /// Returns the system's figures for an image's memory over time; empty if they were not
    /// recorded.
    pub fn memory(&self, image: ImageId) -> Rows<MemorySample> {
        self.gather(ChunkKind::Memory, Some(image), memory::decode)
    }

    /// Returns the functions at places in modules for which the recording has names, all of them
    /// unpacked. A place that [another tool has named](Self::imported_location) is not among them.
    pub fn names(&self) -> Names {
        let mut names = Names::default();
        let mut unpacker = Unpacker::default();
        for chunk in self.of_image(ChunkKind::Names, None) {
            if names.memory() > self.limits.table_bytes {
                names.damage.push(Damage { offset: chunk.offset, reason: Reason::Limit });
                break;
            }
            if let Err(found) = self.read(chunk, &mut unpacker, |contents| names.add(contents, chunk.head.rows)) {
                names.damage.push(found);
            }
        }
        names.settle();
        names
    }

    /// Returns the event chunks of an image in order. Cheap: nothing is unpacked.
    pub fn event_chunks(&self, image: ImageId) -> impl DoubleEndedIterator<Item = EventChunk<'_>> + '_ {
        self.of_image(ChunkKind::Events, Some(image)).map(|chunk| EventChunk { recording: self, chunk })
    }

    /// Returns one of the [chunks](Self::chunks) as a chunk of events; `None` if it is of another
    /// kind.
    pub fn event_chunk<'r>(&'r self, chunk: &'r ChunkEntry) -> Option<EventChunk<'r>> {
        (chunk.kind == ChunkKind::Events).then_some(EventChunk { recording: self, chunk })
    }

    /// Returns the checkpoints of an image in time order. Cheap: nothing is unpacked. Checkpoints
    /// with a missing part are left out.
    pub fn checkpoints(&self, image: ImageId) -> Vec<Checkpoint<'_>> {
        let mut checkpoints = Vec::new();
        let mut parts: Vec<&ChunkEntry> = Vec::new();
        for chunk in self.of_image(ChunkKind::Checkpoint, Some(image)) {
            let head = &chunk.head;
            let continues = parts.last().is_some_and(|before| {
                let follows = ChunkHead { rows: head.rows, part: before.head.part.saturating_add(1), ..before.head };
                follows == *head
            });
            if !continues {
                parts.clear();
            }
            if (continues || head.part == 0) && head.counts.is_some() {
                parts.push(chunk);
            }
            if !parts.is_empty() && parts.len() == head.parts as usize {
                checkpoints.push(Checkpoint { recording: self, parts: std::mem::take(&mut parts) });
            }
        }
        checkpoints
    }

    /// Returns the blocks that were live in an image when the recording began in its middle: see
    /// [`ImageStart::carried`]. `None` if the image began later, or if the checkpoint cannot be
    /// read.
    pub fn carried(&self, image: ImageId) -> Option<Checkpoint<'_>> {
        self.image(image)?.carried?;
        let events = self.of_image(ChunkKind::Events, Some(image)).next().map_or(u64::MAX, |chunk| chunk.offset);
        self.checkpoints(image).into_iter().next().filter(|checkpoint| checkpoint.offset() < events)
    }

    /// Returns the last checkpoint of an image at or before a moment.
    pub fn checkpoint_before(&self, image: ImageId, time: Time) -> Option<Checkpoint<'_>> {
        self.checkpoints(image).into_iter().rfind(|checkpoint| checkpoint.time() <= time)
    }

    fn fork_node_base(&self, image: ImageId) -> heapledger_core::StackId {
        self.image(image).map(|start| start.fork_node_base).unwrap_or_default()
    }

    /// Returns the chunks of a kind for an image, or for the session.
    fn of_image(
        &self,
        kind: ChunkKind,
        image: Option<ImageId>,
    ) -> impl DoubleEndedIterator<Item = &ChunkEntry> + use<'_, 'a> {
        let key = (kind.number(), image);
        let Range { start, end } = range(&self.by_kind, key, |&index| order(&self.chunks[index]));
        self.by_kind[start..end].iter().map(|&index| &self.chunks[index])
    }

    /// Returns a chunk for another file, under another head: its contents are copied as they are
    /// stored. The ids and absolute times in them stay, so this is for kinds whose head alone has
    /// to change. Fails if the chunk is damaged or needs a newer version.
    pub fn copy_chunk(&self, chunk: &ChunkEntry, head: &ChunkHead) -> Result<EncodedChunk, RecordingError> {
        let bytes = usize::try_from(chunk.offset).ok().and_then(|offset| self.file.get(offset..)).unwrap_or(&[]);
        let frame = ChunkFrame::parse(bytes).map_err(|_| Reason::ChunkHeader);
        let sound = frame.and_then(|frame| frame.check().and_then(|()| frame.check_flags()).map(|()| frame));
        match sound {
            Ok(frame) => Ok(frame.with_head(head)),
            Err(reason) => Err(RecordingError::Damaged(Damage { offset: chunk.offset, reason })),
        }
    }

    /// Unpacks a chunk and hands its contents to `decode`.
    pub(crate) fn read(
        &self,
        chunk: &ChunkEntry,
        unpacker: &mut Unpacker,
        decode: impl FnOnce(&[u8]) -> Result<(), Reason>,
    ) -> Result<(), Damage> {
        read_chunk(self.file, chunk, unpacker)
            .and_then(decode)
            .map_err(|reason| Damage { offset: chunk.offset, reason })
    }

    /// Returns all readable rows of the chunks of a kind for an image, up to the limit for tables.
    fn gather<T>(
        &self,
        kind: ChunkKind,
        image: Option<ImageId>,
        decode: impl Fn(&[u8], u32, &mut Vec<T>) -> Result<(), Reason>,
    ) -> Rows<T> {
        let (mut rows, mut damage) = (Vec::new(), Vec::new());
        let mut unpacker = Unpacker::default();
        for chunk in self.of_image(kind, image) {
            if (rows.len() + chunk.head.rows as usize).saturating_mul(size_of::<T>()) > self.limits.table_bytes {
                damage.push(Damage { offset: chunk.offset, reason: Reason::Limit });
                break;
            }
            let before = rows.len();
            if let Err(found) = self.read(chunk, &mut unpacker, |raw| decode(raw, chunk.head.rows, &mut rows)) {
                rows.truncate(before);
                damage.push(found);
            }
        }
        Rows { rows, damage }
    }
}

/// A chunk of events, not yet unpacked.
#[derive(Clone, Copy, Debug)]
pub struct EventChunk<'r> {
    recording: &'r Recording<'r>,
    chunk: &'r ChunkEntry,
}

impl<'r> EventChunk<'r> {
    /// Returns the chunk's entry, which tells where it is.
    pub fn entry(&self) -> &'r ChunkEntry {
        self.chunk
    }

    /// Returns the chunk's head: the number of events, the first and last time, the first serial,
    /// and the live totals.
    pub fn head(&self) -> &'r ChunkHead {
        &self.chunk.head
    }

    /// Unpacks the events into the buffer, whose earlier contents are dropped.
    pub fn decode<'b>(&self, buffer: &'b mut EventsBuffer) -> Result<Events<'b>, RecordingError> {
        let EventsBuffer { unpacker, decoded } = buffer;
        self.recording.read(self.chunk, unpacker, |contents| decoded.decode(contents, &self.chunk.head))?;
        Ok(decoded.events())
    }
}

fn order(chunk: &ChunkEntry) -> (u16, Option<ImageId>) {
    (chunk.kind.number(), chunk.head.image)
}

/// Returns the range of the items with this key; items are in ascending order of keys.
fn range<T, K: Ord>(items: &[T], key: K, key_of: impl Fn(&T) -> K) -> Range<usize> {
    let start = items.partition_point(|item| key_of(item) < key);
    let length = items[start..].partition_point(|item| key_of(item) == key);
    start..start + length
}

fn all<T, K: Ord>(items: &[T], key: K, key_of: impl Fn(&T) -> K) -> &[T] {
    &items[range(items, key, key_of)]
}

fn one<T, K: Ord>(items: &[T], key: K, key_of: impl Fn(&T) -> K) -> Option<&T> {
    items.binary_search_by_key(&key, key_of).ok().map(|at| &items[at])
}

/// Returns the contents of a chunk, which must be the one that its entry describes.
fn read_chunk<'u, 'a: 'u>(file: &'a [u8], chunk: &ChunkEntry, unpacker: &'u mut Unpacker) -> Result<&'u [u8], Reason> {
    let bytes = usize::try_from(chunk.offset).ok().and_then(|offset| file.get(offset..)).unwrap_or(&[]);
    let frame = ChunkFrame::parse(bytes).map_err(|_| Reason::ChunkHeader)?;
    let contents = unpacker.unpack(&frame)?;
    if frame.kind != chunk.kind || frame.length() != chunk.length as usize || frame.head()? != chunk.head {
        return Err(Reason::IndexMismatch);
    }
    if chunk.head.rows as usize > CHUNK_ROWS_MAX {
        return Err(Reason::Invalid("more rows than a chunk may have"));
    }
    Ok(contents)
}

/// The chunks that a file has.
#[derive(Debug, Default)]
struct Directory {
    chunks: Vec<ChunkEntry>,
    footer: Option<Footer>,
    damage: Vec<Damage>,
}

impl Directory {
    fn read(file: &[u8]) -> Directory {
        let end = file.len().saturating_sub(TRAILER).max(FILE_HEADER);
        let Some(trailer) = file.get(end..).and_then(Trailer::from_bytes) else {
            return Directory::scan(file, Damage { offset: file.len() as u64, reason: Reason::NoTrailer });
        };
        Directory::from_index(&file[..end], trailer).unwrap_or_else(|| {
            // The trailer is not at fault, but there is no better place to point at: scanning finds
            // what is wrong.
            Directory::scan(file, Damage { offset: end as u64, reason: Reason::BadIndex })
        })
    }

    /// Reads the index. `file` ends where the trailer begins.
    fn from_index(file: &[u8], trailer: Trailer) -> Option<Directory> {
        let index = usize::try_from(trailer.index).ok()?;
        let footer = usize::try_from(trailer.footer).ok()?;
        if index < FILE_HEADER || index > footer || footer > file.len() {
            return None;
        }
        let mut unpacker = Unpacker::default();
        let mut directory =
            Directory { footer: Some(read_footer(&file[footer..], &mut unpacker)?), ..Directory::default() };
        let mut end = FILE_HEADER as u64;
        let mut rest = &file[index..footer];
        while !rest.is_empty() {
            let frame = ChunkFrame::parse(rest).ok().filter(|frame| frame.kind == ChunkKind::Index)?;
            rest = &rest[frame.length()..];
            for entry in records::read::<proto::IndexEntry>(unpacker.unpack(&frame).ok()?) {
                let proto::IndexEntry { length, kind, head } = entry.ok()?;
                let offset = end;
                end += u64::from(length);
                // This bounds the number of entries by the size of the file.
                if (length as usize) < frame::CHUNK_HEADER || end > trailer.index {
                    return None;
                }
                let kind = ChunkKind::from_number(u16::try_from(kind).ok()?);
                directory.chunks.push(ChunkEntry { offset, length, kind, head: head?.into() });
            }
        }
        // The chunks fill the file: none was left out.
        (end == trailer.index).then_some(directory)
    }

    /// Goes from chunk to chunk, and skips bytes that are not a chunk.
    fn scan(file: &[u8], why: Damage) -> Directory {
        let mut directory = Directory { damage: vec![why], ..Directory::default() };
        let mut unpacker = Unpacker::default();
        let mut astray = file.len();
        let mut at = FILE_HEADER;
        while at < file.len() {
            let rest = &file[at..];
            if rest.len() == TRAILER && Trailer::from_bytes(rest).is_some() {
                break;
            }
            let mut wrong = |reason| directory.damage.push(Damage { offset: at as u64, reason });
            let frame = match ChunkFrame::parse(rest) {
                Ok(frame) => frame,
                Err(no_frame) => {
                    let next = frame::find_chunk(file, at + 1).unwrap_or(file.len());
                    wrong(match no_frame {
                        NoFrame::Truncated if next == file.len() => Reason::Truncated,
                        NoFrame::Damaged => Reason::ChunkHeader,
                        _ => Reason::Gap { bytes: (next - at) as u64 },
                    });
                    at = next;
                    continue;
                }
            };
            let end = at + frame.length();
            let checked = frame.check();
            let next = match checked {
                // Bytes are missing from the chunk or there are too many, so its length is wrong.
                // Each byte may be looked at a second time only once, lest a hostile file take
                // forever.
                Err(_) if !is_boundary(file, end) && frame.length() <= astray => {
                    astray -= frame.length();
                    frame::find_chunk(file, at + frame::CHUNK_HEADER).unwrap_or(file.len())
                }
                _ => end,
            };
            match (frame.kind, checked.and_then(|()| frame.head())) {
                (_, Err(reason)) => wrong(reason),
                (ChunkKind::Index, Ok(_)) => {}
                (ChunkKind::Footer, Ok(_)) => match read_footer(&file[at..end], &mut unpacker) {
                    Some(footer) => directory.footer = Some(footer),
                    None => wrong(Reason::Invalid("the footer")),
                },
                (kind, Ok(head)) => {
                    // A frame is a little larger than CHUNK_RAW_MAX at most.
                    let length = frame.length() as u32;
                    directory.chunks.push(ChunkEntry { offset: at as u64, length, kind, head });
                }
            }
            at = next;
        }
        directory
    }
}

/// True if a chunk, the trailer or the end of the file is here.
fn is_boundary(file: &[u8], at: usize) -> bool {
    let rest = &file[at..];
    rest.is_empty() || ChunkFrame::parse(rest).is_ok() || Trailer::from_bytes(rest).is_some()
}

/// Returns the footer, if these bytes are exactly its chunk.
fn read_footer(bytes: &[u8], unpacker: &mut Unpacker) -> Option<Footer> {
    let frame = ChunkFrame::parse(bytes).ok().filter(|frame| frame.kind == ChunkKind::Footer)?;
    if frame.length() != bytes.len() {
        return None;
    }
    let footer: proto::Footer = records::read(unpacker.unpack(&frame).ok()?).next()?.ok()?;
    Some(footer.into())
}

/// All metadata records, by kind.
#[derive(Debug, Default)]
struct Metadata {
    session: Option<Session>,
    images: Vec<ImageStart>,
    image_ends: Vec<ImageEnd>,
    image_counts: Vec<ImageCounts>,
    process_counts: Vec<ProcessCounts>,
    modules: Vec<Module>,
    mappings: Vec<Mapping>,
    threads: Vec<Thread>,
    pauses: Vec<Pause>,
    sampling: Vec<Sampling>,
    texts: Vec<Text>,
    imported_locations: Vec<ImportedLocation>,
    departures: Vec<Departure>,
    processes: Vec<Process>,
}

impl Metadata {
    fn read(file: &[u8], chunks: &[ChunkEntry], limits: Limits, damage: &mut Vec<Damage>) -> Metadata {
        let mut metadata = Metadata::default();
        let mut unpacker = Unpacker::default();
        let mut left = limits.table_bytes;
        for chunk in chunks.iter().filter(|chunk| chunk.kind == ChunkKind::Metadata) {
            let read = read_chunk(file, chunk, &mut unpacker)
                .and_then(|contents| metadata.add_chunk(contents, chunk.head.rows, &mut left));
            if let Err(reason) = read {
                damage.push(Damage { offset: chunk.offset, reason });
            }
            if left == 0 {
                break;
            }
        }
        metadata.settle();
        metadata
    }

    fn add_chunk(&mut self, contents: &[u8], rows: u32, left: &mut usize) -> Result<(), Reason> {
        let mut taken = 0;
        let mut sound = Ok(());
        for record in records::read::<proto::Record>(contents) {
            taken += 1;
            let Some(record) = record?.known() else { continue };
            match left.checked_sub(record.memory()) {
                Some(rest) => *left = rest,
                None => {
                    *left = 0;
                    return Err(Reason::Limit);
                }
            }
            match record {
                Record::Session(session) => self.session = Some(session),
                Record::ImageStart(mut start) => {
                    if start.parent_image.is_some_and(|parent| parent >= start.image) {
                        start.parent_image = None;
                        sound = Err(Reason::Invalid("an image that is older than its parent"));
                    }
                    self.images.push(start);
                }
                Record::ImageEnd(end) => self.image_ends.push(end),
                Record::Module(module) => self.modules.push(module),
                Record::Mapping(mapping) => self.mappings.push(mapping),
                Record::Thread(thread) => self.threads.push(thread),
                Record::ImageCounts(counts) => self.image_counts.push(counts),
                Record::ProcessCounts(counts) => self.process_counts.push(counts),
                Record::Pause(pause) => self.pauses.push(pause),
                Record::Sampling(sampling) => self.sampling.push(sampling),
                Record::Text(text) => self.texts.push(text),
                Record::ImportedLocation(location) => self.imported_locations.push(location),
                Record::Departure(departure) => self.departures.push(departure),
            }
        }
        if taken == rows { sound } else { Err(records::WRONG_NUMBER) }
    }

    /// Sorts the records.
    fn settle(&mut self) {
        keep_last(&mut self.images, |start| start.image);
        keep_last(&mut self.image_ends, |end| end.image);
        keep_last(&mut self.image_counts, |counts| counts.image);
        keep_last(&mut self.process_counts, |counts| counts.first_image);
        keep_last(&mut self.pauses, |pause| pause.from);
        keep_last(&mut self.sampling, |sampling| sampling.from);
        keep_last(&mut self.texts, |text| text.text);
        keep_last(&mut self.imported_locations, |location| (location.module, location.offset));
        keep_last(&mut self.modules, |module| module.module);
        keep_last(&mut self.threads, |thread| (thread.image, thread.thread));
        self.departures.sort();
        self.mappings.sort_by_key(|mapping| mapping.image);
        self.processes = processes(&self.images);
    }
}

/// Orders by key; the last of several items with the same key stays.
fn keep_last<T, K: Ord>(items: &mut Vec<T>, key_of: impl Fn(&T) -> K) {
    items.sort_by_key(&key_of);
    items.dedup_by(|later, earlier| {
        let same = key_of(later) == key_of(earlier);
        if same {
            std::mem::swap(later, earlier);
        }
        same
    });
}

fn processes(images: &[ImageStart]) -> Vec<Process> {
    let mut processes: Vec<Process> = Vec::new();
    // The index of each image's process.
    let mut indices: Vec<usize> = Vec::with_capacity(images.len());
    for start in images {
        let before = start
            .parent_image
            .filter(|_| start.how == ImageOrigin::Exec)
            .and_then(|parent| images.binary_search_by_key(&parent, |start| start.image).ok())
            .map(|parent| indices[parent])
            .filter(|&index| processes[index].pid == start.pid);
        let index = before.unwrap_or(processes.len());
        match processes.get_mut(index) {
            Some(process) => process.images.push(start.image),
            None => processes.push(Process { pid: start.pid, images: vec![start.image] }),
        }
        indices.push(index);
    }
    processes
}

impl Record {
    /// Returns roughly how much memory a record takes.
    fn memory(&self) -> usize {
        let many =
            |strings: &[Vec<u8>]| -> usize { strings.iter().map(|string| size_of::<Vec<u8>>() + string.len()).sum() };
        let behind = match self {
            Record::Session(Session { tool_version, command, directory, options, .. }) => {
                tool_version.len() + many(command) + directory.len() + options.len()
            }
            Record::ImageStart(ImageStart { executable, argv, .. }) => executable.len() + many(argv),
            Record::Module(Module { path, build_id, .. }) => path.len() + build_id.len(),
            Record::Thread(Thread { name, .. }) => name.len(),
            Record::Text(Text { bytes, category, .. }) => bytes.len() + category.len(),
            Record::ImportedLocation(ImportedLocation { functions, .. }) => many(functions),
            Record::Departure(Departure { path, .. }) => path.len(),
            Record::ImageEnd(_)
            | Record::Mapping(_)
            | Record::ImageCounts(_)
            | Record::ProcessCounts(_)
            | Record::Pause(_)
            | Record::Sampling(_) => 0,
        };
        size_of::<Record>() + behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If each byte were looked at again for each of the headers, this would take hours.
    #[test]
    fn a_file_full_of_misleading_headers_is_read_in_linear_time() {
        let mut file = frame::file_header(0).to_vec();
        // Each header claims some megabytes, which fail the checksum and do not end where another
        // chunk begins.
        let contents = vec![0; 8 << 20];
        let header = |at: usize| {
            let length = (4 << 20) + 32 * (at % 1000) + 8;
            frame::unchecked_chunk(ChunkKind::Events, &[], &contents[..length])[..frame::CHUNK_HEADER].to_vec()
        };
        let headers: Vec<Vec<u8>> = (0..20).map(header).collect();
        for at in 0..600_000 {
            file.extend_from_slice(&headers[at % headers.len()]);
        }
        let recording = Recording::open(&file).unwrap();
        assert_eq!(recording.chunks(), []);
        assert!(recording.damage().iter().any(|damage| damage.reason == Reason::Checksum));
    }
}
