//! Opening a recording: whole, truncated or damaged.

use crate::annotations::Annotation;
use crate::checkpoint::Checkpoint;
use crate::error::{Damage, Error};
use crate::events::{Events, EventsBuffer};
use crate::head::{ChunkEntry, ChunkHead};
use crate::ids::ImageId;
use crate::messages::{Counts, Footer, ImageEnd, ImageStart, Mapping, Module, ProcessCounts, Session, Thread};
use crate::nodes::{NodeCache, NodeTable, StackTree};
use crate::sites::Site;
use crate::timeline::Sample;
use crate::{ModuleId, Time};

/// How much memory a reader may take.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// The most bytes of any one table: the metadata, the nodes or the sites of an image, a timeline. 1 GiB by default.
    pub table_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { table_bytes: 1 << 30 }
    }
}

impl Limits {
    /// The same with another [`Limits::table_bytes`].
    pub fn with_table_bytes(self, table_bytes: usize) -> Limits {
        Limits { table_bytes }
    }
}

/// An open recording. Metadata and the footer are at hand; everything else is unpacked when asked for.
#[derive(Debug)]
pub struct Recording<'a> {
    _bytes: &'a [u8],
}

impl<'a> Recording<'a> {
    /// Opens the bytes of a file. A damaged or unfinished file opens too: see [`complete`](Self::complete) and
    /// [`damage`](Self::damage). Fails only if it is no recording, or one that needs a newer version.
    pub fn open(bytes: &'a [u8]) -> Result<Recording<'a>, Error> {
        Recording::open_with(bytes, Limits::default())
    }

    /// The same with other limits.
    pub fn open_with(bytes: &'a [u8], limits: Limits) -> Result<Recording<'a>, Error> {
        let _ = (bytes, limits);
        todo!()
    }

    /// The file's format version: major, minor.
    pub fn version(&self) -> (u8, u8) {
        todo!()
    }

    /// Whether the recorder finished, saw everything to its end, and nothing of the file was found damaged.
    pub fn complete(&self) -> bool {
        todo!()
    }

    /// What opening found wrong, in the order of the file. Chunks that are unpacked later can still fail then:
    /// [`verify`](Self::verify) tries them all.
    pub fn damage(&self) -> &[Damage] {
        todo!()
    }

    /// Unpacks every chunk, and reports all that is wrong with the file.
    pub fn verify(&self) -> Vec<Damage> {
        todo!()
    }

    /// Every chunk that can be served, in the order of the file.
    pub fn chunks(&self) -> &[ChunkEntry] {
        todo!()
    }

    /// The session; `None` only if that part is damaged.
    pub fn session(&self) -> Option<&Session> {
        todo!()
    }

    /// The footer; `None` if the recorder did not finish.
    pub fn footer(&self) -> Option<&Footer> {
        todo!()
    }

    /// The images in ascending order of ids.
    pub fn images(&self) -> &[ImageStart] {
        todo!()
    }

    /// The start of one image.
    pub fn image(&self, image: ImageId) -> Option<&ImageStart> {
        let _ = image;
        todo!()
    }

    /// How an image ended, if it did.
    pub fn image_end(&self, image: ImageId) -> Option<&ImageEnd> {
        let _ = image;
        todo!()
    }

    /// The totals of an image: those at its end, else those of its last checkpoint.
    pub fn image_counts(&self, image: ImageId) -> Option<&Counts> {
        let _ = image;
        todo!()
    }

    /// The processes, in the order of their first images.
    pub fn processes(&self) -> &[Process] {
        todo!()
    }

    /// The totals of the processes, in the order of their first images.
    pub fn process_counts(&self) -> &[ProcessCounts] {
        todo!()
    }

    /// The modules in ascending order of ids.
    pub fn modules(&self) -> &[Module] {
        todo!()
    }

    /// One module.
    pub fn module(&self, module: ModuleId) -> Option<&Module> {
        let _ = module;
        todo!()
    }

    /// The mappings of an image in the order in which they were seen.
    pub fn mappings(&self, image: ImageId) -> &[Mapping] {
        let _ = image;
        todo!()
    }

    /// The threads of an image in ascending order of ids.
    pub fn threads(&self, image: ImageId) -> &[Thread] {
        let _ = image;
        todo!()
    }

    /// The annotations of an image in order, unpacked a chunk at a time.
    pub fn annotations(&self, image: ImageId) -> impl Iterator<Item = Result<Annotation, Error>> + '_ {
        let _ = image;
        std::iter::empty()
    }

    /// The nodes that an image added to its stack tree.
    pub fn nodes(&self, image: ImageId) -> Result<NodeTable, Error> {
        let _ = image;
        todo!()
    }

    /// The whole stack tree of an image, those of the images it was forked from included. Tables that the cache has
    /// are not unpacked again.
    pub fn stack_tree(&self, image: ImageId, cache: &mut NodeCache) -> Result<StackTree, Error> {
        let _ = (image, cache);
        todo!()
    }

    /// The sites of an image, in the order of the file.
    pub fn sites(&self, image: ImageId) -> Result<Vec<Site>, Error> {
        let _ = image;
        todo!()
    }

    /// The session's timeline.
    pub fn timeline(&self) -> Result<Vec<Sample>, Error> {
        todo!()
    }

    /// An image's timeline; empty if it was not recorded.
    pub fn image_timeline(&self, image: ImageId) -> Result<Vec<Sample>, Error> {
        let _ = image;
        todo!()
    }

    /// The event chunks of an image in order. Cheap: nothing is unpacked.
    pub fn event_chunks(&self, image: ImageId) -> impl DoubleEndedIterator<Item = EventChunk<'_>> + '_ {
        let _ = image;
        std::iter::empty()
    }

    /// The checkpoints of an image in time order. Cheap: nothing is unpacked.
    pub fn checkpoints(&self, image: ImageId) -> Vec<Checkpoint<'_>> {
        let _ = image;
        todo!()
    }

    /// The last checkpoint of an image at or before a moment.
    pub fn checkpoint_before(&self, image: ImageId, time: Time) -> Option<Checkpoint<'_>> {
        let _ = (image, time);
        todo!()
    }
}

/// A process of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its pid.
    pub pid: u32,
    /// Its images in order: each but the first was started by `exec`.
    pub images: Vec<ImageId>,
}

/// A chunk of events, not yet unpacked.
#[derive(Clone, Copy, Debug)]
pub struct EventChunk<'r> {
    _private: &'r (),
}

impl EventChunk<'_> {
    /// What the chunk says about itself: how many events, from when to when, first serial, what was live.
    pub fn head(&self) -> &ChunkHead {
        todo!()
    }

    /// Unpacks the events into the buffer, whose earlier contents go.
    pub fn decode<'b>(&self, buffer: &'b mut EventsBuffer) -> Result<Events<'b>, Error> {
        let _ = buffer;
        todo!()
    }
}
