//! Opening a recording: whole, truncated or damaged.

use std::collections::BTreeSet;
use std::mem::size_of;
use std::ops::Range;
use std::sync::Arc;

use heapledger_core::ThreadId;

use crate::error::{Damage, Reason, RecordingError};
use crate::events::Decoded;
use crate::frame::{self, ChunkFrame, EncodedChunk, Unpacker};
use crate::head::{ChunkEntry, ChunkHead, ChunkKind};
use crate::ids::{ImageId, ModuleId, TextId, Time};
use crate::mappings::{self, MappingEvent};
use crate::memory::{self, MemorySample};
use crate::messages::{
    Annotation, Counts, Departure, Footer, ImageEnd, ImageStart, ImportedLocation, Mapping, Module, Pause,
    ProcessCounts, Sampling, Session, Text, Thread,
};
use crate::names::Names;
use crate::nodes::{self, NodeCache, NodeTable, StackTree};
use crate::resident::{self, ResidentSnapshot};
use crate::sites::{self, Site};
use crate::timeline::{self, Sample};
use crate::{annotations, checkpoint};

mod directory;
mod metadata;
mod on_demand;

use directory::{Directory, read_chunk};
use metadata::Metadata;

pub use metadata::Process;
pub use on_demand::{Checkpoint, EventChunk};

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
        let metadata = Metadata::read(file, &chunks, limits.table_bytes, &mut damage);
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
                ChunkKind::Mappings => mappings::decode(contents, head.rows, &mut Vec::new()),
                ChunkKind::Resident => resident::check(contents, head),
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

    /// Returns the process that has an image. Pids do not tell processes apart: a later process may
    /// have the pid of an earlier one.
    pub fn process_of(&self, image: ImageId) -> Option<&Process> {
        let index = self.metadata.images.binary_search_by_key(&image, |start| start.image).ok()?;
        self.metadata.processes.get(*self.metadata.process_indices.get(index)?)
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

    /// Returns the changes of an image's mappings in order, unpacked one chunk at a time; none if
    /// they were not recorded. After an error the iterator goes on with the next chunk.
    pub fn mapping_events(&self, image: ImageId) -> impl Iterator<Item = Result<MappingEvent, RecordingError>> + '_ {
        self.of_image(ChunkKind::Mappings, Some(image)).flat_map(|chunk| {
            let mut events = Vec::new();
            let read = self.read(chunk, &mut Unpacker::default(), |contents| {
                mappings::decode(contents, chunk.head.rows, &mut events)
            });
            events.into_iter().map(Ok).chain(read.err().map(|damage| Err(RecordingError::Damaged(damage))))
        })
    }

    /// Returns the texts that name what was mapped in any image ([`MappingEvent::file`]). Reads all
    /// changes of mappings; those in damaged chunks are left out.
    pub fn mapped_files(&self) -> BTreeSet<TextId> {
        let events = self.images().iter().flat_map(|start| self.mapping_events(start.image)).flatten();
        events.filter_map(|event| event.file()).collect()
    }

    /// True if changes of mappings were recorded, in any image.
    pub fn has_mapping_events(&self) -> bool {
        self.chunks.iter().any(|chunk| chunk.kind == ChunkKind::Mappings)
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

    /// Returns the resident snapshots of an image in order of time; empty if none were made. All of
    /// them are unpacked.
    pub fn resident_snapshots(&self, image: ImageId) -> Rows<ResidentSnapshot> {
        let (mut rows, mut damage) = (Vec::new(), Vec::new());
        let mut unpacker = Unpacker::default();
        let mut bytes = 0;
        for chunk in self.of_image(ChunkKind::Resident, Some(image)) {
            if bytes > self.limits.table_bytes {
                damage.push(Damage { offset: chunk.offset, reason: Reason::Limit });
                break;
            }
            let read = self.read(chunk, &mut unpacker, |contents| {
                // Rows and texts take at most so many times the memory of their bytes in the file.
                bytes = bytes.saturating_add(contents.len().saturating_mul(16));
                resident::decode(contents, &chunk.head, &mut rows)
            });
            damage.extend(read.err());
        }
        rows.sort_by_key(|snapshot| snapshot.time);
        Rows { rows, damage }
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
