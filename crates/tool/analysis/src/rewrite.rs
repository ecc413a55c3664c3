//! Recordings made of recordings: [`merge`], [`trim`], [`anonymize`].
//!
//! All of them write a [`Draft`]: metadata, nodes and events, which is what a recorder leaves that did not come to its
//! end. Where that changes totals, the draft is then replayed like any unfinished recording, and gets the totals, sites
//! and timelines that the replay found: they are counted in one place only.
//!
//! Memory: the metadata, the nodes of one image, and what a replay takes. Chunks pass one at a time.

use std::io::{self, Write};

use heapledger_recording::{
    CodeExtent, Compressor, EncodedChunk, Error as RecordingError, Footer, ImageCounts, ImageId, NamedPlace,
    NamesEncoder, Node, NodesEncoder, ProcessCounts, Record, Recording, RecordingWriter, SitesEncoder, TimelineEncoder,
    encode_records,
};

use crate::moment::Selection;
use crate::overview::recounted;
use crate::replay::{Origin, Progress, Span, replay};

mod anonymize;
mod merge;
mod segments;
#[cfg(test)]
mod tests;
mod totals;
mod trim;

pub use anonymize::{Kept, anonymize};
pub use merge::{Merged, merge};
pub use trim::trim;

/// Why a recording could not be made of others.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The recordings cannot be read, or what was asked for is not in them.
    #[error(transparent)]
    Analysis(#[from] crate::Error),
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
        /// The recording behind it.
        at: usize,
        /// The first segment that is missing.
        number: u32,
    },
    /// The recording of this number is one of several segments, and another recording has totals
    /// only.
    #[error("segments of a session cannot be merged with a recording without events")]
    SegmentsBesideTotals(usize),
    /// The recording of this number has totals only, and those are missing.
    #[error("its end is missing, where its totals are, and it has no events to count them again")]
    TotalsMissing(usize),
    /// The new one cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

impl From<heapledger_recording::Error> for Error {
    fn from(error: heapledger_recording::Error) -> Error {
        Error::Analysis(error.into())
    }
}

/// A recording on its way to a file. Until it is finished it is one whose recorder did not come to its end.
#[derive(Debug)]
pub struct Draft<W> {
    out: W,
    writer: RecordingWriter,
    compressor: Compressor,
    /// The names of functions, which come last.
    names: Vec<EncodedChunk>,
}

impl<W: Write> Draft<W> {
    /// A draft with nothing in it.
    pub fn new(out: W) -> Draft<W> {
        Draft { out, writer: RecordingWriter::new(), compressor: Compressor::new(), names: Vec::new() }
    }

    /// Before all else: whether it is one of a sample.
    fn begin(&mut self, is_sample: bool) {
        if is_sample {
            self.writer = RecordingWriter::of_sample();
        }
    }

    /// Everything so far has reached `out`, and can be read from there.
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

    /// Ends the recording with what a replay of it finds: totals of images, processes and of the session, sites and
    /// timelines. `so_far` is what has been written, read back. The counts in the footer are filled in. Returns the
    /// length in bytes.
    pub fn count_and_finish(
        mut self,
        so_far: &Recording<'_>,
        mut footer: Footer,
        progress: Progress<'_>,
    ) -> Result<u64, Error> {
        let images: Vec<ImageId> = so_far.images().iter().map(|start| start.image).collect();
        let memory_max = Selection::default().memory_max;
        let mut replayed =
            replay(so_far, &images, Span::default(), memory_max, |origin: Origin| origin.stack, progress)?;
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

    /// Names of functions.
    pub(crate) fn names(&mut self, places: &[NamedPlace<'_>]) -> Result<(), Error> {
        self.names.extend(NamesEncoder::encode(places, &mut self.compressor)?);
        Ok(())
    }

    /// Where functions are, in ascending order.
    pub(crate) fn extents(&mut self, extents: &[CodeExtent<'_>]) -> Result<(), Error> {
        self.names.extend(NamesEncoder::encode_extents(extents, &mut self.compressor)?);
        Ok(())
    }

    /// Nodes of an image.
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
