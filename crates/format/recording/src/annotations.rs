//! Events that are not about blocks: markers, stamps, contexts, and what later versions add.

use heapledger_core::ThreadId;

use crate::error::Error;
use crate::frame::{Compressor, EncodedChunk};
use crate::ids::{ImageId, Time};

/// An event that is not about a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotation {
    /// The image.
    pub image: ImageId,
    /// The thread.
    pub thread: ThreadId,
    /// When.
    pub time: Time,
    /// What: the code that the ring protocol has for it.
    pub code: u32,
    /// Its contents.
    pub payload: Vec<u8>,
}

/// Gathers annotations of one image into chunks. Reused from chunk to chunk.
#[derive(Debug)]
pub struct AnnotationsEncoder {
    _private: (),
}

impl AnnotationsEncoder {
    /// An encoder for one image.
    pub fn new(image: ImageId) -> AnnotationsEncoder {
        let _ = image;
        todo!()
    }

    /// Adds an annotation of that image. Fails, and adds nothing, if it is another image's, larger than a chunk, or the
    /// chunk is full.
    pub fn push(&mut self, annotation: &Annotation) -> Result<(), Error> {
        let _ = annotation;
        todo!()
    }

    /// Whether the chunk should be finished before the next annotation.
    pub fn is_full(&self) -> bool {
        todo!()
    }

    /// The chunk of the annotations pushed so far. `None` if there are none.
    pub fn finish(&mut self, compressor: &mut Compressor) -> Option<EncodedChunk> {
        let _ = compressor;
        todo!()
    }
}
