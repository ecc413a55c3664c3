//! Totals per site: what was allocated from each stack of an image.

use heapledger_core::{Blocks, Bytes, StackId};

use crate::columns::{self, CODEC_DELTA, CODEC_VARINT, Spec};
use crate::error::{Error, Reason};
use crate::frame::{Compressor, EncodedChunk};
use crate::head::{CHUNK_ROWS_MAX, ChunkHead, ChunkKind};
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

const COLUMNS: [Spec; 10] = [
    Spec { id: 1, codec: CODEC_DELTA },   // stack
    Spec { id: 2, codec: CODEC_VARINT },  // allocations
    Spec { id: 3, codec: CODEC_VARINT },  // bytes_allocated
    Spec { id: 4, codec: CODEC_VARINT },  // temporaries
    Spec { id: 5, codec: CODEC_VARINT },  // live_end.bytes
    Spec { id: 6, codec: CODEC_VARINT },  // live_end.blocks
    Spec { id: 7, codec: CODEC_VARINT },  // live_at_image_peak.bytes
    Spec { id: 8, codec: CODEC_VARINT },  // live_at_image_peak.blocks
    Spec { id: 9, codec: CODEC_VARINT },  // live_at_session_peak.bytes
    Spec { id: 10, codec: CODEC_VARINT }, // live_at_session_peak.blocks
];

/// Turns the sites of an image into chunks.
#[derive(Debug)]
pub struct SitesEncoder;

impl SitesEncoder {
    /// The chunks, to be appended one after the other. Sites in ascending order of stacks compress best. Fails if a stack
    /// id is out of range.
    pub fn encode(image: ImageId, sites: &[Site], compressor: &mut Compressor) -> Result<Vec<EncodedChunk>, Error> {
        if sites.iter().any(|site| site.stack > StackId::MAX) {
            return Err(Error::Unwritable("a stack id out of range"));
        }
        let encode_part = |part: &[Site]| {
            let head = ChunkHead { rows: part.len() as u32, ..ChunkHead::of(image) };
            let rows = part.iter().map(|site| {
                let [end, image_peak, session_peak] =
                    [site.live_end, site.live_at_image_peak, site.live_at_session_peak];
                [
                    u64::from(site.stack.0),
                    site.allocations.0,
                    site.bytes_allocated.0,
                    site.temporaries.0,
                    end.bytes.0,
                    end.blocks.0,
                    image_peak.bytes.0,
                    image_peak.blocks.0,
                    session_peak.bytes.0,
                    session_peak.blocks.0,
                ]
            });
            compressor.encode_chunk(ChunkKind::Sites, &head, &columns::encode_table(COLUMNS, rows))
        };
        sites.chunks(CHUNK_ROWS_MAX).map(encode_part).collect()
    }
}

/// Appends the sites of a chunk.
pub(crate) fn decode(contents: &[u8], rows: u32, sites: &mut Vec<Site>) -> Result<(), Reason> {
    columns::decode_table(contents, COLUMNS, rows, |row| {
        let live = |at: usize| Live { bytes: Bytes(row[at]), blocks: Blocks(row[at + 1]) };
        sites.push(Site {
            stack: stack(row[0])?,
            allocations: Blocks(row[1]),
            bytes_allocated: Bytes(row[2]),
            temporaries: Blocks(row[3]),
            live_end: live(4),
            live_at_image_peak: live(6),
            live_at_session_peak: live(8),
        });
        Ok(())
    })
}

/// A stack id of the file.
#[inline]
pub(crate) fn stack(id: u64) -> Result<StackId, Reason> {
    if id <= u64::from(StackId::MAX.0) { Ok(StackId(id as u32)) } else { Err(Reason::Invalid("a stack id")) }
}
