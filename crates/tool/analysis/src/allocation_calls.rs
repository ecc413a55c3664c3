//! The calls that allocated blocks: their threads and times, which checkpoints do not contain.

use heapledger_core::{Serial, ThreadId};
use heapledger_recording::{Damage, EventKind, EventsBuffer, ImageId, Recording, RecordingError, Time};

use crate::error::Error;

/// Returns the thread and the time of the allocation of each of these blocks of an image; `None`
/// for a block that was there before the recording begins. `serials` are in ascending order.
/// Decodes only the chunks of events in which one of them was allocated: the chunk heads tell which
/// serials they contain.
pub(crate) fn allocation_calls(
    recording: &Recording<'_>,
    image: ImageId,
    serials: &[Serial],
    damage: &mut Vec<Damage>,
) -> Result<Vec<Option<(ThreadId, Time)>>, Error> {
    let mut calls = vec![None; serials.len()];
    let mut buffer = EventsBuffer::default();
    for chunk in recording.event_chunks(image) {
        let head = chunk.head();
        let first = serials.partition_point(|serial| *serial < head.serial_first);
        let is_here = |serial: &Serial| serial.0 - head.serial_first.0 < u64::from(head.serials);
        let last = first + serials[first..].partition_point(is_here);
        if first == last {
            continue;
        }
        let events = match chunk.decode(&mut buffer) {
            Ok(events) => events,
            Err(RecordingError::Damaged(found)) => {
                damage.push(found);
                continue;
            }
            Err(other) => return Err(other.into()),
        };
        let mut wanted = serials[first..last].iter().zip(&mut calls[first..last]).peekable();
        for event in events.as_slice() {
            // Serials are taken in ascending order.
            if let EventKind::Alloc { serial, .. } | EventKind::Realloc { serial, .. } = event.kind
                && let Some((_, call)) = wanted.next_if(|(wanted, _)| **wanted == serial)
            {
                *call = Some((event.thread, event.time));
            }
        }
    }
    Ok(calls)
}
