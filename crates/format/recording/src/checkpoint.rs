//! The live blocks at a moment, so that opening there needs no replay from the start.

use heapledger_core::sample::Rate;
use heapledger_core::{Bytes, Serial, StackId};

use crate::columns::{self, CODEC_BYTES, CODEC_DELTA, CODEC_VARINT, Spec};
use crate::error::{Reason, RecordingError};
use crate::frame::{Compressor, EncodedChunk};
use crate::head::{CHUNK_ROWS_MAX, ChunkHead, ChunkKind};
use crate::ids::{ImageId, Time};
use crate::messages::Counts;
use crate::sites;

/// A live block of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Its serial.
    pub serial: Serial,
    /// Requested bytes.
    pub size: Bytes,
    /// The stack that allocated it.
    pub stack: StackId,
    /// The rate at which it was sampled.
    pub rate: Rate,
    /// Its usable size; `None` if it was not recorded.
    pub usable: Option<Bytes>,
}

const COLUMNS: [Spec; 3] = [
    Spec { id: 1, codec: CODEC_DELTA },  // serial
    Spec { id: 2, codec: CODEC_VARINT }, // size
    Spec { id: 3, codec: CODEC_DELTA },  // stack
];

/// The rates, if blocks were sampled.
const COLUMNS_OF_SAMPLE: [Spec; 1] = [Spec { id: 4, codec: CODEC_BYTES }];

/// The usable sizes, if some were recorded: 0 if one is not known, else the usable size less the
/// requested size, plus 1.
const COLUMN_USABLE: [Spec; 1] = [Spec { id: 5, codec: CODEC_VARINT }];

/// Turns the live blocks of an image into the chunks of one checkpoint.
#[derive(Debug)]
pub struct CheckpointEncoder {
    head: ChunkHead,
}

impl CheckpointEncoder {
    /// Creates a checkpoint of this image: its moment, the serial of its next allocation, its
    /// totals so far.
    pub fn new(image: ImageId, time: Time, next_serial: Serial, counts: Counts) -> CheckpointEncoder {
        let head = ChunkHead {
            time_first: time,
            time_last: time,
            serial_first: next_serial,
            counts: Some(counts),
            ..ChunkHead::of(image)
        };
        CheckpointEncoder { head }
    }

    /// Returns the chunks, to be appended one after the other. Blocks in ascending order of serials
    /// compress best, but any order will do. Fails if a block's serial is not below the next
    /// serial, or a stack id is out of range.
    pub fn encode(
        &self,
        blocks: &[LiveBlock],
        compressor: &mut Compressor,
    ) -> Result<Vec<EncodedChunk>, RecordingError> {
        if blocks.iter().any(|block| block.serial >= self.head.serial_first || block.stack > StackId::MAX) {
            return Err(RecordingError::Unwritable("a live block with an impossible serial or stack id"));
        }
        // If nothing is live, there is one part without rows.
        let parts = blocks.len().div_ceil(CHUNK_ROWS_MAX).max(1);
        let mut chunks = Vec::with_capacity(parts);
        for part in 0..parts {
            let blocks = &blocks[part * CHUNK_ROWS_MAX..blocks.len().min((part + 1) * CHUNK_ROWS_MAX)];
            let rows = blocks.iter().map(|block| [block.serial.0, block.size.0, u64::from(block.stack.0)]);
            let mut contents = columns::encode_table(COLUMNS, rows);
            if blocks.iter().any(|block| block.rate != Rate::EXACT) {
                let rates = blocks.iter().map(|block| [u64::from(block.rate.logarithm())]);
                contents.extend(columns::encode_table(COLUMNS_OF_SAMPLE, rates));
            }
            if blocks.iter().any(|block| block.usable.is_some()) {
                let value = |block: &LiveBlock| {
                    block.usable.and_then(|usable| usable.0.checked_sub(block.size.0)?.checked_add(1)).unwrap_or(0)
                };
                contents.extend(columns::encode_table(COLUMN_USABLE, blocks.iter().map(|block| [value(block)])));
            }
            let head = ChunkHead { rows: blocks.len() as u32, part: part as u32, parts: parts as u32, ..self.head };
            chunks.push(compressor.encode_chunk(ChunkKind::Checkpoint, &head, &contents)?);
        }
        Ok(chunks)
    }
}

/// Appends the blocks of a part.
pub(crate) fn decode(contents: &[u8], head: &ChunkHead, blocks: &mut Vec<LiveBlock>) -> Result<(), Reason> {
    let first = blocks.len();
    columns::decode_table(contents, COLUMNS, head.rows, |[serial, size, stack]| {
        if serial >= head.serial_first.0 {
            return Err(Reason::Invalid("a live block that is not allocated yet"));
        }
        let (serial, size, stack) = (Serial(serial), Bytes(size), sites::stack(stack)?);
        blocks.push(LiveBlock { serial, size, stack, rate: Rate::EXACT, usable: None });
        Ok(())
    })?;
    if columns::find_optional(contents, COLUMNS_OF_SAMPLE[0].id)?.is_some() {
        let mut blocks = blocks.iter_mut().skip(first);
        columns::decode_table(contents, COLUMNS_OF_SAMPLE, head.rows, |[rate]| {
            blocks.next().into_iter().for_each(|block| block.rate = Rate::from_logarithm(rate));
            Ok(())
        })?;
    }
    if columns::find_optional(contents, COLUMN_USABLE[0].id)?.is_some() {
        let mut blocks = blocks.iter_mut().skip(first);
        columns::decode_table(contents, COLUMN_USABLE, head.rows, |[value]| {
            if let (Some(block), Some(slop)) = (blocks.next(), value.checked_sub(1)) {
                block.usable = Some(Bytes(block.size.0.saturating_add(slop)));
            }
            Ok(())
        })?;
    }
    Ok(())
}
