//! Totals per site: the allocations from each stack of an image.

use heapledger_core::{Blocks, Bytes, StackId};

use crate::columns::{self, CODEC_DELTA, CODEC_VARINT, Spec};
use crate::error::{Reason, RecordingError};
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
    /// The number that were freed before the same thread allocated again.
    pub temporaries: Blocks,
    /// The part that was live at the end of the image.
    pub live_end: Live,
    /// The part that was live at the image's own peak.
    pub live_at_image_peak: Live,
    /// The part that was live at the session's peak.
    pub live_at_session_peak: Live,
    /// The standard errors of these totals. 0 if all blocks are recorded.
    pub errors: SiteErrors,
}

/// The standard errors of a site's totals, which are estimates if blocks were sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteErrors {
    /// The errors of the allocations and their bytes.
    pub allocated: Live,
    /// The errors of the blocks and bytes live at the end.
    pub live_end: Live,
    /// The errors of the blocks and bytes live at the image's peak.
    pub live_at_image_peak: Live,
    /// The errors of the blocks and bytes live at the session's peak.
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

/// Standard errors, in bytes and blocks, if blocks were sampled.
const COLUMNS_OF_SAMPLE: [Spec; 8] = [
    Spec { id: 11, codec: CODEC_VARINT }, // allocated.bytes
    Spec { id: 12, codec: CODEC_VARINT }, // allocated.blocks
    Spec { id: 13, codec: CODEC_VARINT }, // live_end.bytes
    Spec { id: 14, codec: CODEC_VARINT }, // live_end.blocks
    Spec { id: 15, codec: CODEC_VARINT }, // live_at_image_peak.bytes
    Spec { id: 16, codec: CODEC_VARINT }, // live_at_image_peak.blocks
    Spec { id: 17, codec: CODEC_VARINT }, // live_at_session_peak.bytes
    Spec { id: 18, codec: CODEC_VARINT }, // live_at_session_peak.blocks
];

/// Turns the sites of an image into chunks.
#[derive(Debug)]
pub struct SitesEncoder;

impl SitesEncoder {
    /// Returns the chunks, to be appended one after the other. Sites in ascending order of stacks
    /// compress best. Fails if a stack id is out of range.
    pub fn encode(
        image: ImageId,
        sites: &[Site],
        compressor: &mut Compressor,
    ) -> Result<Vec<EncodedChunk>, RecordingError> {
        if sites.iter().any(|site| site.stack > StackId::MAX) {
            return Err(RecordingError::Unwritable("a stack id out of range"));
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
            let mut contents = columns::encode_table(COLUMNS, rows);
            if part.iter().any(|site| site.errors != SiteErrors::default()) {
                let errors = part.iter().map(|site| {
                    let SiteErrors { allocated, live_end, live_at_image_peak, live_at_session_peak } = site.errors;
                    let mut row = [0; 8];
                    let amounts = [allocated, live_end, live_at_image_peak, live_at_session_peak];
                    for (pair, amount) in row.chunks_exact_mut(2).zip(amounts) {
                        pair.copy_from_slice(&[amount.bytes.0, amount.blocks.0]);
                    }
                    row
                });
                contents.extend(columns::encode_table(COLUMNS_OF_SAMPLE, errors));
            }
            compressor.encode_chunk(ChunkKind::Sites, &head, &contents)
        };
        sites.chunks(CHUNK_ROWS_MAX).map(encode_part).collect()
    }
}

/// Appends the sites of a chunk.
pub(crate) fn decode(contents: &[u8], rows: u32, sites: &mut Vec<Site>) -> Result<(), Reason> {
    let first = sites.len();
    let live = |row: &[u64], at: usize| Live { bytes: Bytes(row[at]), blocks: Blocks(row[at + 1]) };
    columns::decode_table(contents, COLUMNS, rows, |row| {
        sites.push(Site {
            stack: stack(row[0])?,
            allocations: Blocks(row[1]),
            bytes_allocated: Bytes(row[2]),
            temporaries: Blocks(row[3]),
            live_end: live(&row, 4),
            live_at_image_peak: live(&row, 6),
            live_at_session_peak: live(&row, 8),
            errors: SiteErrors::default(),
        });
        Ok(())
    })?;
    if columns::find_optional(contents, COLUMNS_OF_SAMPLE[0].id)?.is_some() {
        let mut sites = sites.iter_mut().skip(first);
        columns::decode_table(contents, COLUMNS_OF_SAMPLE, rows, |row| {
            let errors = SiteErrors {
                allocated: live(&row, 0),
                live_end: live(&row, 2),
                live_at_image_peak: live(&row, 4),
                live_at_session_peak: live(&row, 6),
            };
            sites.next().into_iter().for_each(|site| site.errors = errors);
            Ok(())
        })?;
    }
    Ok(())
}

/// Checks a stack id from the file.
#[inline]
pub(crate) fn stack(id: u64) -> Result<StackId, Reason> {
    if id <= u64::from(StackId::MAX.0) { Ok(StackId(id as u32)) } else { Err(Reason::Invalid("a stack id")) }
}
