//! Mappings of an image over time: memory that it maps, unmaps, moves, protects and advises on.

use heapledger_core::{Bytes, StackId, ThreadId};

use crate::columns::{self, CODEC_BYTES, CODEC_DELTA, CODEC_VARINT, Spec};
use crate::error::{Reason, RecordingError};
use crate::frame::{Compressor, EncodedChunk};
use crate::head::{CHUNK_ROWS_MAX, ChunkHead, ChunkKind};
use crate::ids::{ImageId, TextId, Time};

mod address_space;
mod kinds;

pub use address_space::{AddressSpace, MappedPiece};
pub use kinds::{MappingCall, MappingFlags, MappingKind, Protection};

/// The ordinal of a mapping in its image, from 0 in the order in which mappings were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MappingSerial(pub u64);

/// A change of an image's mappings, about one range of one mapping.
///
/// A call that concerns several mappings, or several parts of one, is as many events, all with the
/// same time, thread, stack and call. [`AddressSpace::apply`] is the meaning of each event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingEvent {
    /// The moment after the call.
    pub time: Time,
    /// The thread that made the call; `None` if no call was seen.
    pub thread: Option<ThreadId>,
    /// The stack of the call; the root if no call was seen or no stack captured.
    pub stack: StackId,
    /// The function or system call that made the change.
    pub call: MappingCall,
    /// The mapping.
    pub serial: MappingSerial,
    /// The first address of the range; of a moved one, before it was moved.
    pub start: u64,
    /// The length of the range, in whole pages.
    pub bytes: Bytes,
    /// The change of the range.
    pub change: MappingChange,
}

/// A change of a range of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MappingChange {
    /// The range was mapped: a new mapping with a serial of its own. Memory that was mapped there
    /// before has been unmapped by events before this one.
    Mapped {
        /// The use of the memory, as far as the call says.
        kind: MappingKind,
        /// The access that is allowed.
        protection: Protection,
        /// Further facts.
        flags: MappingFlags,
        /// The path of the file, or the name that `/proc/PID/maps` has in its place;
        /// [`TextId::UNKNOWN`] without one.
        file: TextId,
        /// The position in the file that the first byte has.
        offset: u64,
    },
    /// The range was unmapped. A mapping is over when all of it has been unmapped.
    Unmapped,
    /// The range was moved, as a whole and with its contents.
    Moved {
        /// Its first address from now on.
        to: u64,
    },
    /// The access that the range allows has changed.
    Protected {
        /// The access that is allowed from now on.
        protection: Protection,
    },
    /// The program told the kernel about its use of the range.
    Advised {
        /// The advice: a number of madvise(2), such as 4 for `MADV_DONTNEED`.
        advice: u32,
    },
    /// A change that this version does not know.
    Other {
        /// Its number.
        number: u8,
    },
}

const COLUMNS: [Spec; 14] = [
    Spec { id: 1, codec: CODEC_DELTA },   // time
    Spec { id: 2, codec: CODEC_BYTES },   // change
    Spec { id: 3, codec: CODEC_DELTA },   // serial
    Spec { id: 4, codec: CODEC_DELTA },   // start
    Spec { id: 5, codec: CODEC_VARINT },  // bytes
    Spec { id: 6, codec: CODEC_DELTA },   // stack
    Spec { id: 7, codec: CODEC_VARINT },  // thread + 1; 0: none
    Spec { id: 8, codec: CODEC_BYTES },   // call
    Spec { id: 9, codec: CODEC_BYTES },   // kind
    Spec { id: 10, codec: CODEC_BYTES },  // protection
    Spec { id: 11, codec: CODEC_VARINT }, // flags
    Spec { id: 12, codec: CODEC_VARINT }, // file: a text
    Spec { id: 13, codec: CODEC_VARINT }, // offset in the file
    Spec { id: 14, codec: CODEC_VARINT }, // moved: new address less the old one; advised: the advice
];

const MAPPED: u8 = 1;
const UNMAPPED: u8 = 2;
const MOVED: u8 = 3;
const PROTECTED: u8 = 4;
const ADVISED: u8 = 5;

impl MappingEvent {
    /// Returns the text that names what the event maps: the path of a file, or the name that
    /// `/proc/PID/maps` has in its place. `None` without one, and if the event maps nothing.
    pub fn file(&self) -> Option<TextId> {
        match self.change {
            MappingChange::Mapped { file, .. } => Some(file).filter(|file| *file != TextId::UNKNOWN),
            _ => None,
        }
    }

    fn to_row(self) -> [u64; 14] {
        let MappingEvent { time, thread, stack, call, serial, start, bytes, change } = self;
        let thread = thread.map_or(0, |thread| u64::from(thread.0) + 1);
        let (number, rest) = match change {
            MappingChange::Mapped { kind, protection, flags, file, offset } => {
                let kind = kind.number().into();
                (MAPPED, [kind, protection.bits().into(), flags.bits().into(), file.0.into(), offset, 0])
            }
            MappingChange::Unmapped => (UNMAPPED, [0; 6]),
            MappingChange::Moved { to } => (MOVED, [0, 0, 0, 0, 0, to.wrapping_sub(start)]),
            MappingChange::Protected { protection } => (PROTECTED, [0, protection.bits().into(), 0, 0, 0, 0]),
            MappingChange::Advised { advice } => (ADVISED, [0, 0, 0, 0, 0, advice.into()]),
            MappingChange::Other { number } => (number, [0; 6]),
        };
        let [kind, protection, flags, file, offset, detail] = rest;
        let (number, stack, call) = (number.into(), stack.0.into(), call.number().into());
        let call_columns = [time.0, number, serial.0, start, bytes.0, stack, thread, call];
        let [time, number, serial, start, bytes, stack, thread, call] = call_columns;
        [time, number, serial, start, bytes, stack, thread, call, kind, protection, flags, file, offset, detail]
    }

    fn from_row(row: [u64; 14]) -> Result<MappingEvent, Reason> {
        let [time, number, serial, start, bytes, stack, thread, call, kind, protection, flags, file, offset, detail] =
            row;
        let byte = |value: u64, what| u8::try_from(value).map_err(|_| Reason::Invalid(what));
        let word = |value: u64, what| u32::try_from(value).map_err(|_| Reason::Invalid(what));
        if start.checked_add(bytes).is_none() || bytes == 0 {
            return Err(Reason::Invalid("a range of addresses"));
        }
        let stack = StackId(word(stack, "the stack of a mapping")?);
        if stack > StackId::MAX {
            return Err(Reason::Invalid("the stack of a mapping"));
        }
        let thread = match thread.checked_sub(1) {
            Some(thread) => Some(ThreadId(word(thread, "the thread of a mapping")?)),
            None => None,
        };
        let protection = Protection::from_bits(byte(protection, "the protection of a mapping")?);
        let change = match byte(number, "the change of a mapping")? {
            MAPPED => MappingChange::Mapped {
                kind: MappingKind::from_number(byte(kind, "the kind of a mapping")?),
                protection,
                flags: MappingFlags::from_bits(word(flags, "the flags of a mapping")?),
                file: TextId(word(file, "the file of a mapping")?),
                offset,
            },
            UNMAPPED => MappingChange::Unmapped,
            MOVED => {
                let to = start.wrapping_add(detail);
                if to.checked_add(bytes).is_none() {
                    return Err(Reason::Invalid("a range of addresses"));
                }
                MappingChange::Moved { to }
            }
            PROTECTED => MappingChange::Protected { protection },
            ADVISED => MappingChange::Advised { advice: word(detail, "an advice about a mapping")? },
            number => MappingChange::Other { number },
        };
        Ok(MappingEvent {
            time: Time(time),
            thread,
            stack,
            call: MappingCall::from_number(byte(call, "the call of a mapping")?),
            serial: MappingSerial(serial),
            start,
            bytes: Bytes(bytes),
            change,
        })
    }
}

/// Gathers the mapping events of one image into chunks. Reused from chunk to chunk.
#[derive(Debug)]
pub struct MappingsEncoder {
    head: ChunkHead,
    rows: Vec<[u64; 14]>,
}

/// The number of rows at which a chunk is full: little is unpacked for a moment, and the columns
/// are long enough to compress well.
const FULL: usize = CHUNK_ROWS_MAX / 8;

impl MappingsEncoder {
    /// Creates an encoder for one image.
    pub fn new(image: ImageId) -> MappingsEncoder {
        MappingsEncoder { head: ChunkHead::of(image), rows: Vec::new() }
    }

    /// Adds an event.
    ///
    /// # Errors
    ///
    /// Fails, and adds nothing, if the event is earlier than the one before in the chunk, if its
    /// range is empty or goes beyond the last address, if its change is
    /// [not known](MappingChange::Other), or if the chunk [is full](Self::is_full) eight times
    /// over.
    pub fn push(&mut self, event: &MappingEvent) -> Result<(), RecordingError> {
        let refuse = |why| Err(RecordingError::Unwritable(why));
        if self.head.rows > 0 && event.time < self.head.time_last {
            return refuse("events of mappings out of order");
        }
        if self.rows.len() == CHUNK_ROWS_MAX {
            return refuse("an event of a mapping for which its chunk has no room");
        }
        if matches!(event.change, MappingChange::Other { .. }) || event.stack > StackId::MAX {
            return refuse("an event of a mapping with an unknown change or stack");
        }
        let row = event.to_row();
        if MappingEvent::from_row(row).is_err() {
            return refuse("a mapping with an impossible range of addresses");
        }
        self.rows.push(row);
        self.head.add_row(event.time);
        Ok(())
    }

    /// True if the chunk should be finished before the next event.
    pub fn is_full(&self) -> bool {
        self.rows.len() >= FULL
    }

    /// Returns the chunk of the events pushed so far; the encoder goes on with the next. `None` if
    /// there are none.
    pub fn finish(&mut self, compressor: &mut Compressor) -> Option<EncodedChunk> {
        let head = self.head.take()?;
        let contents = columns::encode_table(COLUMNS, self.rows.drain(..));
        Some(compressor.seal(ChunkKind::Mappings, &head, &contents))
    }
}

/// Appends the events of a chunk, including those before an error.
pub(crate) fn decode(contents: &[u8], rows: u32, events: &mut Vec<MappingEvent>) -> Result<(), Reason> {
    let mut before = Time(0);
    columns::decode_table(contents, COLUMNS, rows, |row| {
        let event = MappingEvent::from_row(row)?;
        if event.time < before {
            return Err(Reason::Invalid("events of mappings out of order"));
        }
        before = event.time;
        events.push(event);
        Ok(())
    })
}

#[cfg(test)]
mod tests;
