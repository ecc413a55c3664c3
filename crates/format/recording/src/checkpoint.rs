//! What is live at a moment, so that opening there needs no replay from the start.

use heapledger_core::{Bytes, Serial, StackId};

use crate::error::Error;
use crate::frame::{Compressor, EncodedChunk};
use crate::ids::{ImageId, Time};
use crate::messages::Counts;

/// A live block of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Its serial.
    pub serial: Serial,
    /// Requested bytes.
    pub size: Bytes,
    /// Where it was allocated.
    pub stack: StackId,
}

/// Turns the live blocks of an image into the chunks of one checkpoint.
#[derive(Debug)]
pub struct CheckpointEncoder {
    _private: (),
}

impl CheckpointEncoder {
    /// A checkpoint of this image: its moment, the serial that its next allocation takes, its totals so far.
    pub fn new(image: ImageId, time: Time, next_serial: Serial, counts: Counts) -> CheckpointEncoder {
        let _ = (image, time, next_serial, counts);
        todo!()
    }

    /// The chunks, to be appended one after the other. Blocks in ascending order of serials compress best, but any
    /// order will do. Fails if a block's serial is not below the next serial.
    pub fn encode(&self, blocks: &[LiveBlock], compressor: &mut Compressor) -> Result<Vec<EncodedChunk>, Error> {
        let _ = (blocks, compressor);
        todo!()
    }
}

/// A checkpoint of a recording, not yet unpacked.
#[derive(Clone, Debug)]
pub struct Checkpoint<'r> {
    _private: &'r (),
}

impl Checkpoint<'_> {
    /// Its moment.
    pub fn time(&self) -> Time {
        todo!()
    }

    /// The serial that the image's next allocation takes: replay goes on with the first event chunk whose serial range
    /// reaches beyond it.
    pub fn next_serial(&self) -> Serial {
        todo!()
    }

    /// The image's totals at that moment.
    pub fn counts(&self) -> &Counts {
        todo!()
    }

    /// The number of live blocks.
    pub fn len(&self) -> usize {
        todo!()
    }

    /// Whether nothing was live.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The live blocks, unpacked a chunk at a time: each call of `each` gets some of them.
    pub fn for_each_part(&self, each: impl FnMut(&[LiveBlock])) -> Result<(), Error> {
        let _ = each;
        todo!()
    }
}
