//! Live bytes over time.

use crate::error::Error;
use crate::frame::{Compressor, EncodedChunk};
use crate::ids::{ImageId, Live, Time};

/// What was live at a moment: of each interval, the moment with the most bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The moment.
    pub time: Time,
    /// What was live.
    pub live: Live,
}

/// Turns samples into chunks.
#[derive(Debug)]
pub struct TimelineEncoder;

impl TimelineEncoder {
    /// The chunks of the session's timeline, or of one image's. Samples must be in time order.
    pub fn encode(
        image: Option<ImageId>,
        samples: &[Sample],
        compressor: &mut Compressor,
    ) -> Result<Vec<EncodedChunk>, Error> {
        let _ = (image, samples, compressor);
        todo!()
    }
}
