//! Reads the events of one image after another, for questions in which images do not depend on each
//! other.

use std::collections::HashMap;

use heapledger_recording::{Damage, Event, Events, EventsBuffer, ImageId, Recording, RecordingError};

use crate::error::Error;

/// Threads from this number on count as one: a damaged file could otherwise ask for any amount of
/// memory.
pub(crate) const THREADS_MAX: u32 = 1 << 20;

/// Fails if the recorder kept no events.
pub(crate) fn expect_events(recording: &Recording<'_>) -> Result<(), Error> {
    if recording.session().is_some_and(|session| session.totals_only) { Err(Error::NoEvents) } else { Ok(()) }
}

/// Hands out the events of an image in order, a chunk at a time. Chunks that cannot be read are
/// left out and added to `damage`.
pub(crate) fn for_each_chunk(
    recording: &Recording<'_>,
    image: ImageId,
    damage: &mut Vec<Damage>,
    mut each: impl FnMut(&[Event]) -> Result<(), Error>,
) -> Result<(), Error> {
    for_each_chunk_with_extras(recording, image, damage, |events| each(events.as_slice()))
}

/// Calls `each` as [`for_each_chunk`] does, with the additional fields of the events.
pub(crate) fn for_each_chunk_with_extras(
    recording: &Recording<'_>,
    image: ImageId,
    damage: &mut Vec<Damage>,
    mut each: impl FnMut(Events<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut buffer = EventsBuffer::default();
    for chunk in recording.event_chunks(image) {
        match chunk.decode(&mut buffer) {
            Ok(events) => each(events)?,
            Err(RecordingError::Damaged(found)) => damage.push(found),
            Err(other) => return Err(other.into()),
        }
    }
    Ok(())
}

/// Returns the number of events of these images.
pub(crate) fn events_in(recording: &Recording<'_>, images: &[ImageId]) -> u64 {
    images.iter().flat_map(|&image| recording.event_chunks(image)).map(|chunk| u64::from(chunk.head().rows)).sum()
}

/// A hash table with a fast hash function, for a lookup at every event.
pub(crate) type EventMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Returns the memory of a table in bytes, including the table of twice the size that replaces it
/// when it is full.
pub(crate) fn bytes_of<K, V, S>(table: &HashMap<K, V, S>) -> u64 {
    // At most seven of eight slots are used, and each has a control byte.
    let places = table.capacity() as u64 * 8 / 7;
    places * (size_of::<(K, V)>() as u64 + 1) * 3
}
