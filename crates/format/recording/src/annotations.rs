//! Events that are not about blocks: markers, stamps, contexts, and what later versions add.

use crate::error::{Reason, RecordingError};
use crate::frame::{CHUNK_RAW_MAX, Compressor, EncodedChunk};
use crate::head::{CHUNK_ROWS_MAX, ChunkHead, ChunkKind};
use crate::ids::ImageId;
use crate::messages::Annotation;
use crate::{proto, records};

/// Gathers annotations of one image into chunks. Reused from chunk to chunk.
#[derive(Debug)]
pub struct AnnotationsEncoder {
    head: ChunkHead,
    contents: Vec<u8>,
}

/// The size at which the chunk counts as full, so that the next annotation rarely fails to fit.
const FULL: usize = 1 << 20;

impl AnnotationsEncoder {
    /// Creates an encoder for one image.
    pub fn new(image: ImageId) -> AnnotationsEncoder {
        AnnotationsEncoder { head: ChunkHead::of(image), contents: Vec::new() }
    }

    /// Adds an annotation. Fails, and adds nothing, if it belongs to another image, or the chunk
    /// has no room for it.
    pub fn push(&mut self, annotation: &Annotation) -> Result<(), RecordingError> {
        if Some(annotation.image) != self.head.image {
            return Err(RecordingError::Unwritable("an annotation of another image"));
        }
        let message = proto::Annotation::from(annotation.clone());
        if self.head.rows as usize == CHUNK_ROWS_MAX || self.contents.len() + records::put_len(&message) > CHUNK_RAW_MAX
        {
            return Err(RecordingError::Unwritable("an annotation for which its chunk has no room"));
        }
        records::put(&mut self.contents, &message);
        self.head.add_row(annotation.time);
        Ok(())
    }

    /// True if the chunk should be finished before the next annotation.
    pub fn is_full(&self) -> bool {
        self.head.rows as usize == CHUNK_ROWS_MAX || self.contents.len() >= FULL
    }

    /// Returns the chunk of the annotations pushed so far; the encoder goes on with the next.
    /// `None` if there are none.
    pub fn finish(&mut self, compressor: &mut Compressor) -> Option<EncodedChunk> {
        let head = self.head.take()?;
        let chunk = compressor.seal(ChunkKind::Annotations, &head, &self.contents);
        self.contents.clear();
        Some(chunk)
    }
}

/// Appends the annotations of a chunk, including those before an error.
pub(crate) fn decode(contents: &[u8], rows: u32, annotations: &mut Vec<Annotation>) -> Result<(), Reason> {
    for message in records::read::<proto::Annotation>(contents) {
        annotations.push(message?.into());
    }
    if annotations.len() == rows as usize { Ok(()) } else { Err(records::WRONG_NUMBER) }
}
