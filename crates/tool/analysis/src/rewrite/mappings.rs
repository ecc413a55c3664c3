//! Copies the changes of mappings into other recordings.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::RangeInclusive;

use heapledger_recording::{
    AddressSpace, Damage, ImageId, MappingChange, MappingEvent, MappingFlags, MappingSerial, MappingsEncoder,
    Recording, RecordingError, TextId, Time,
};

use super::{Draft, Error};

/// Writes the changes of an image, which are in the order of time.
pub(super) fn write<W: Write>(
    image: ImageId,
    events: impl IntoIterator<Item = MappingEvent>,
    draft: &mut Draft<W>,
) -> Result<(), Error> {
    let mut encoder = MappingsEncoder::new(image);
    for event in events {
        if encoder.is_full() {
            draft.put(|compressor| Ok(encoder.finish(compressor)))?;
        }
        encoder.push(&event)?;
    }
    draft.put(|compressor| Ok(encoder.finish(compressor)))
}

/// Returns the changes of an image that this version knows.
pub(super) fn all(recording: &Recording<'_>, image: ImageId, damage: &mut Vec<Damage>) -> Vec<MappingEvent> {
    let mut events = Vec::new();
    for event in recording.mapping_events(image) {
        match event {
            Ok(event) if !matches!(event.change, MappingChange::Other { .. }) => events.push(event),
            Err(RecordingError::Damaged(found)) => damage.push(found),
            Ok(_) | Err(_) => {}
        }
    }
    events
}

/// True if an event repeats what was mapped before its recording begins.
pub(super) fn is_carried(event: &MappingEvent) -> bool {
    matches!(event.change, MappingChange::Mapped { flags, .. } if flags.contains(MappingFlags::CARRIED))
}

/// Returns the changes in a part of the time, with what was mapped before as carried mappings.
pub(super) fn of_part(events: Vec<MappingEvent>, part: &RangeInclusive<Time>) -> Vec<MappingEvent> {
    let begin = *part.start();
    let mut space = AddressSpace::default();
    let mut made: BTreeMap<MappingSerial, MappingEvent> = BTreeMap::new();
    let inside = events.partition_point(|event| event.time < begin);
    for event in &events[..inside] {
        match event.change {
            MappingChange::Mapped { .. } => _ = made.entry(event.serial).or_insert(*event),
            MappingChange::Moved { to } => {
                if let Some(known) = made.get_mut(&event.serial) {
                    // Offsets in a file count from here.
                    known.start = known.start.wrapping_add(to).wrapping_sub(event.start);
                }
            }
            _ => {}
        }
        space.apply(event);
    }
    let carried = space.pieces().filter_map(|piece| {
        let event = made.get(&piece.serial)?;
        let MappingChange::Mapped { kind, flags, file, offset, .. } = event.change else { return None };
        let distance = piece.start.wrapping_sub(event.start);
        let offset = if file == TextId::UNKNOWN { offset } else { offset.wrapping_add(distance) };
        let (protection, flags) = (piece.protection, flags.with(MappingFlags::CARRIED));
        let change = MappingChange::Mapped { kind, protection, flags, file, offset };
        Some(MappingEvent { time: begin, start: piece.start, bytes: piece.bytes, change, ..*event })
    });
    let within = events[inside..].iter().take_while(|event| event.time <= *part.end());
    carried.chain(within.copied()).collect()
}

#[cfg(test)]
mod tests;
