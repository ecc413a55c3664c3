//! Totals per site: what was allocated from each stack of an image.

use heapledger_core::{Blocks, Bytes, StackId};

use crate::error::Error;
use crate::frame::{Compressor, EncodedChunk};
use crate::ids::{ImageId, Live};

/// The totals of one site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// The stack.
    pub stack: StackId,
    /// Allocations and reallocations from it that returned a block.
    pub allocations: Blocks,
    /// Their requested bytes.
    pub bytes_allocated: Bytes,
    /// How many were freed before the same thread allocated again.
    pub temporaries: Blocks,
    /// What was live of them at the end of the image.
    pub live_end: Live,
    /// What was live of them at the image's own peak.
    pub live_at_image_peak: Live,
    /// What was live of them at the session's peak.
    pub live_at_session_peak: Live,
}

/// Turns the sites of an image into chunks.
#[derive(Debug)]
pub struct SitesEncoder;

impl SitesEncoder {
    /// The chunks, to be appended one after the other. Sites in ascending order of stacks compress best.
    pub fn encode(image: ImageId, sites: &[Site], compressor: &mut Compressor) -> Result<Vec<EncodedChunk>, Error> {
        let _ = (image, sites, compressor);
        todo!()
    }
}
