//! The system's figures for a process's memory over time.

use heapledger_core::Bytes;

use crate::columns::{self, CODEC_DELTA, Spec};
use crate::error::{Reason, RecordingError};
use crate::frame::{Compressor, EncodedChunk};
use crate::head::{CHUNK_ROWS_MAX, ChunkHead, ChunkKind};
use crate::ids::{ImageId, Time};

/// The system's figures for a process's memory at a moment, all in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemorySample {
    /// The moment.
    pub time: Time,
    /// Resident memory: the part of all mapped memory that is in RAM.
    pub resident: Bytes,
    /// The part of it in pages of no file: heap, stacks, changed data of loaded objects.
    pub resident_anonymous: Bytes,
    /// The part of it in pages of files, and in memory that may be shared.
    pub resident_file: Bytes,
    /// The brk heap, resident or not.
    pub heap: Bytes,
    /// Writable private mappings without a file, resident or not, without the brk heap and the
    /// first thread's stack.
    pub mappings: Bytes,
    /// Swapped-out memory.
    pub swapped: Bytes,
}

const COLUMNS: [Spec; 7] = [
    Spec { id: 1, codec: CODEC_DELTA }, // time
    Spec { id: 2, codec: CODEC_DELTA }, // resident
    Spec { id: 3, codec: CODEC_DELTA }, // resident_anonymous
    Spec { id: 4, codec: CODEC_DELTA }, // resident_file
    Spec { id: 5, codec: CODEC_DELTA }, // heap
    Spec { id: 6, codec: CODEC_DELTA }, // mappings
    Spec { id: 7, codec: CODEC_DELTA }, // swapped
];

/// Turns samples into chunks.
#[derive(Debug)]
pub struct MemoryEncoder;

impl MemoryEncoder {
    /// Returns the chunks of an image's samples. Fails if these are not in time order.
    pub fn encode(
        image: ImageId,
        samples: &[MemorySample],
        compressor: &mut Compressor,
    ) -> Result<Vec<EncodedChunk>, RecordingError> {
        if !samples.is_sorted_by_key(|sample| sample.time) {
            return Err(RecordingError::Unwritable("samples of memory out of order"));
        }
        let encode_part = |part: &[MemorySample]| {
            let head = ChunkHead {
                rows: part.len() as u32,
                time_first: part.first().map_or(Time(0), |sample| sample.time),
                time_last: part.last().map_or(Time(0), |sample| sample.time),
                ..ChunkHead::of(image)
            };
            let rows = part.iter().map(|sample| {
                let MemorySample { time, resident, resident_anonymous, resident_file, heap, mappings, swapped } =
                    *sample;
                [time.0, resident.0, resident_anonymous.0, resident_file.0, heap.0, mappings.0, swapped.0]
            });
            compressor.encode_chunk(ChunkKind::Memory, &head, &columns::encode_table(COLUMNS, rows))
        };
        samples.chunks(CHUNK_ROWS_MAX).map(encode_part).collect()
    }
}

/// Appends the samples of a chunk.
pub(crate) fn decode(contents: &[u8], rows: u32, samples: &mut Vec<MemorySample>) -> Result<(), Reason> {
    columns::decode_table(contents, COLUMNS, rows, |[time, rest @ ..]| {
        let time = Time(time);
        if samples.last().is_some_and(|before| before.time > time) {
            return Err(Reason::Invalid("samples of memory out of order"));
        }
        let [resident, resident_anonymous, resident_file, heap, mappings, swapped] = rest.map(Bytes);
        samples.push(MemorySample { time, resident, resident_anonymous, resident_file, heap, mappings, swapped });
        Ok(())
    })
}
