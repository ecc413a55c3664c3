//! The calls that allocated blocks: which thread made them, and when. Checkpoints do not tell.

use heapledger_core::{Serial, ThreadId};
use heapledger_recording::{Damage, Error as RecordingError, EventKind, EventsBuffer, ImageId, Recording, Time};

use crate::error::Error;

/// Returns who allocated each of these blocks of an image, and when; `None` for one that was there
/// before the recording begins. `serials` are in ascending order. Unpacks the chunks of events in
/// which one of them was allocated: their heads say which serials they take.
pub(crate) fn births(
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
