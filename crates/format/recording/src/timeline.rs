//! Live bytes over time.

use heapledger_core::{Blocks, Bytes};

use crate::columns::{self, CODEC_DELTA, Spec};
use crate::error::{Error, Reason};
use crate::frame::{Compressor, EncodedChunk};
use crate::head::{CHUNK_ROWS_MAX, ChunkHead, ChunkKind};
use crate::ids::{ImageId, Live, Time};

/// What was live at a moment: of each interval, the moment with the most bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The moment.
    pub time: Time,
    /// What was live.
    pub live: Live,
}

const COLUMNS: [Spec; 3] = [
    Spec { id: 1, codec: CODEC_DELTA }, // time
    Spec { id: 2, codec: CODEC_DELTA }, // live.bytes
    Spec { id: 3, codec: CODEC_DELTA }, // live.blocks
];

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
        if !samples.is_sorted_by_key(|sample| sample.time) {
            return Err(Error::Unwritable("a timeline out of order"));
        }
        let encode_part = |part: &[Sample]| {
            let head = ChunkHead {
                image,
                rows: part.len() as u32,
                time_first: part.first().map_or(Time(0), |sample| sample.time),
                time_last: part.last().map_or(Time(0), |sample| sample.time),
                ..ChunkHead::default()
            };
            let rows = part.iter().map(|sample| [sample.time.0, sample.live.bytes.0, sample.live.blocks.0]);
            compressor.encode_chunk(ChunkKind::Timeline, &head, &columns::encode_table(COLUMNS, rows))
        };
        samples.chunks(CHUNK_ROWS_MAX).map(encode_part).collect()
    }
}

/// Appends the samples of a chunk.
pub(crate) fn decode(contents: &[u8], rows: u32, samples: &mut Vec<Sample>) -> Result<(), Reason> {
    columns::decode_table(contents, COLUMNS, rows, |[time, bytes, blocks]| {
        let time = Time(time);
        if samples.last().is_some_and(|before| before.time > time) {
            return Err(Reason::Invalid("a timeline out of order"));
        }
        samples.push(Sample { time, live: Live { bytes: Bytes(bytes), blocks: Blocks(blocks) } });
        Ok(())
    })
}
