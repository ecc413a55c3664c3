//! New recordings made from existing ones: [`merge`], [`trim`], [`anonymize`], [`mappings`].
//!
//! All of them write a [`Draft`]: metadata, nodes and events, like a recording whose recorder did
//! not finish. If totals change, the draft is then replayed like any unfinished recording, and gets
//! the totals, sites and timelines that the replay found. So they are counted in one place only.
//!
//! Memory: the metadata, the nodes of one image, and what a replay takes. Chunks are processed one
//! at a time.

use std::io::{self, Write};

use heapledger_recording::{
    CodeExtent, Compressor, EncodedChunk, Footer, ImageCounts, ImageId, NamedLocation, NamesEncoder, Node,
    NodesEncoder, ProcessCounts, Record, Recording, RecordingError, RecordingWriter, SitesEncoder, TimelineEncoder,
    encode_records,
};

use crate::error::Error as AnalysisError;
use crate::overview::recounted;
use crate::progress::Progress;
use crate::replay::Replay;
use crate::replay::span::Span;
use crate::replay::visitor::Origin;
use crate::selection::Selection;

mod anonymize;
mod mapped;
mod mappings;
mod merge;
mod segments;
mod source;
#[cfg(test)]
mod tests;
mod totals;
mod trim;

pub use anonymize::{Kept, anonymize};
pub use mapped::{MappedTotals, MappedUse, mapped_totals, mappings};
pub use merge::{Merged, merge};
pub use trim::trim;

/// The reason why a recording could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recordings cannot be read, or do not have what was asked for.
    #[error(transparent)]
    Analysis(#[from] AnalysisError),
    /// The recording of this number is a part of a longer one.
    #[error("a recording that begins in the middle of a run cannot be merged with others")]
    BeginsInMidRun(usize),
    /// The recording of this number, and one before, are the same segment of a session.
    #[error("segment {number} of its session is there twice")]
    SegmentTwice {
        /// The recording.
        at: usize,
        /// The segment.
        number: u32,
    },
    /// A segment of a session is missing between two that are there.
    #[error("segment {number} of its session is missing")]
    SegmentMissing {
        /// The recording before it.
        before: usize,
        /// The recording after it.
        at: usize,
        /// The first segment that is missing.
        number: u32,
    },
    /// The recording of this number is one of several segments, and another recording has totals
    /// only.
    #[error("segments of a session cannot be merged with a recording without events")]
    SegmentsBesideTotals(usize),
    /// The recording of this number has totals only, and they are missing.
    #[error("its end is missing, where its totals are, and it has no events to count them again")]
    TotalsMissing(usize),
    /// The new recording cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

impl From<heapledger_recording::RecordingError> for Error {
    fn from(error: heapledger_recording::RecordingError) -> Error {
        Error::Analysis(error.into())
    }
}

/// A recording that is being written. Until it is finished, it is like one whose recorder did not
/// finish.
#[derive(Debug)]
pub struct Draft<W> {
    out: W,
    writer: RecordingWriter,
    compressor: Compressor,
    /// The chunks with names of functions, which are written last.
    names: Vec<EncodedChunk>,
}

impl<W: Write> Draft<W> {
    /// Returns an empty draft.
    pub fn new(out: W) -> Draft<W> {
        Draft { out, writer: RecordingWriter::new(), compressor: Compressor::new(), names: Vec::new() }
    }

    /// Sets whether the recording is of a sample. Must be called before anything is written.
    fn begin(&mut self, is_sample: bool) {
        if is_sample {
            self.writer = RecordingWriter::of_sample();
        }
    }

    /// Writes everything so far to `out`, from where it can then be read.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.out.write_all(self.writer.pending())?;
        self.writer.clear_pending();
        Ok(self.out.flush()?)
    }

    /// Ends the recording. Returns its length in bytes.
    pub fn finish(mut self, footer: &Footer) -> Result<u64, Error> {
        for chunk in std::mem::take(&mut self.names) {
            self.chunk(&chunk)?;
        }
        self.writer.finish(footer, &mut self.compressor);
        self.flush()?;
        Ok(self.writer.length())
    }

    /// Ends the recording with the results of replaying it: the totals of images, processes and the
    /// session, sites and timelines. `so_far` is the draft, read back. Fills in the counts of the
    /// footer. Returns the length in bytes.
    pub fn count_and_finish(
        mut self,
        so_far: &Recording<'_>,
        mut footer: Footer,
        progress: Progress<'_>,
    ) -> Result<u64, Error> {
        let images: Vec<ImageId> = so_far.images().iter().map(|start| start.image).collect();
        let memory_max = Selection::default().memory_max;
        let replay = Replay { recording: so_far, images: &images, span: Span::default(), memory_max };
        let mut replayed = replay.run(|origin: Origin| origin.stack, progress)?;
        let mut records = Vec::new();
        for image in &mut replayed.images {
            let (sites, samples) = (std::mem::take(&mut image.sites), std::mem::take(&mut image.timeline));
            let id = image.image;
            self.put(|compressor| SitesEncoder::encode(id, &sites, compressor))?;
            self.put(|compressor| TimelineEncoder::encode(Some(id), &samples, compressor))?;
            records.push(Record::ImageCounts(ImageCounts { image: image.image, counts: image.counts }));
        }
        let samples = std::mem::take(&mut replayed.timeline);
        self.put(|compressor| TimelineEncoder::encode(None, &samples, compressor))?;
        let overview = recounted(so_far, replayed);
        for process in overview.processes {
            let Some(first) = process.images.first() else { continue };
            let counts = ProcessCounts { first_image: first.image, pid: process.pid, counts: process.counts };
            records.push(Record::ProcessCounts(counts));
        }
        self.records(&records)?;
        footer.counts = overview.counts;
        footer.complete &= overview.damage.is_empty();
        self.finish(&footer)
    }

    fn chunk(&mut self, chunk: &EncodedChunk) -> Result<(), Error> {
        self.writer.push(chunk);
        self.out.write_all(self.writer.pending())?;
        self.writer.clear_pending();
        Ok(())
    }

    pub(crate) fn put<C: IntoIterator<Item = EncodedChunk>>(
        &mut self,
        encode: impl FnOnce(&mut Compressor) -> Result<C, RecordingError>,
    ) -> Result<(), Error> {
        let chunks = encode(&mut self.compressor)?;
        chunks.into_iter().try_for_each(|chunk| self.chunk(&chunk))
    }

    pub(crate) fn records(&mut self, records: &[Record]) -> Result<(), Error> {
        self.put(|compressor| encode_records(records, compressor))
    }

    /// Adds names of functions.
    pub(crate) fn names(&mut self, places: &[NamedLocation<'_>]) -> Result<(), Error> {
        self.names.extend(NamesEncoder::encode(places, &mut self.compressor)?);
        Ok(())
    }

    /// Adds extents of functions, in ascending order.
    pub(crate) fn extents(&mut self, extents: &[CodeExtent<'_>]) -> Result<(), Error> {
        self.names.extend(NamesEncoder::encode_extents(extents, &mut self.compressor)?);
        Ok(())
    }

    /// Writes nodes of an image.
    pub(crate) fn nodes(&mut self, image: ImageId, nodes: impl IntoIterator<Item = Node>) -> Result<(), Error> {
        let mut encoder = NodesEncoder::new(image);
        for node in nodes {
            if encoder.is_full() {
                self.put(|compressor| Ok(encoder.finish(compressor)))?;
            }
            encoder.push(&node)?;
        }
        self.put(|compressor| Ok(encoder.finish(compressor)))
    }
}
