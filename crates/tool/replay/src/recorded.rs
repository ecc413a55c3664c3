//! The calls of a recording.

use heapledger_core::{Api, ThreadId};
use heapledger_recording::{Event, EventKind, EventsBuffer, Extras, FreedBlock, ImageId, Recording, RecordingError};

use crate::work::{Call, WorkError, WorkWriter};

/// The reason why the calls of a recording cannot be played.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordedError {
    /// The work cannot be written.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] RecordingError),
}

/// Adds the calls of an image of a recording to a work, with their times. `progress` gets the
/// number of events that were read.
///
/// Calls that failed are left out, and so are blocks of the program's own pools, which are not the
/// allocator's.
///
/// # Errors
///
/// Fails if the recording is damaged, or if the work cannot be written.
pub fn recorded(
    recording: &Recording<'_>,
    image: ImageId,
    work: &mut WorkWriter,
    mut progress: impl FnMut(u64),
) -> Result<(), RecordedError> {
    let mut buffer = EventsBuffer::default();
    let begins = recording.image(image).map_or(0, |start| start.time.0);
    for chunk in recording.event_chunks(image) {
        let events = chunk.decode(&mut buffer)?;
        let mut extras = events.all_extras().iter().peekable();
        for (index, event) in events.as_slice().iter().enumerate() {
            let own = extras.next_if(|(at, _)| *at as usize == index).map_or(Extras::NONE, |(_, extras)| *extras);
            if let Some(call) = call_of(event, &own) {
                let ThreadId(thread) = event.thread;
                work.wait(thread.into(), event.time.0.saturating_sub(begins))?;
                add(event, call, work)?;
            }
        }
        progress(events.as_slice().len() as u64);
    }
    Ok(())
}

/// Returns the function of an event, `Malloc` for frees; `None` if the allocator was not called.
fn call_of(event: &Event, extras: &Extras) -> Option<Call> {
    let alignment = extras.alignment.unwrap_or(1);
    Some(match event.call.api()? {
        _ if matches!(event.kind, EventKind::Failed { .. } | EventKind::Reattributed { .. }) => return None,
        Api::PoolAlloc | Api::PoolFree | Api::PoolBack | Api::PoolReset => return None,
        Api::Calloc => Call::Calloc,
        Api::Memalign => Call::Memalign { alignment },
        Api::PosixMemalign => Call::PosixMemalign { alignment },
        Api::AlignedAlloc => Call::AlignedAlloc { alignment },
        Api::Valloc | Api::Pvalloc => Call::Valloc,
        _ => Call::Malloc,
    })
}

fn add(event: &Event, call: Call, work: &mut WorkWriter) -> Result<(), WorkError> {
    let thread = u64::from(event.thread.0);
    match event.kind {
        EventKind::Alloc { serial, size, .. } | EventKind::Realloc { old: FreedBlock::None, serial, size, .. } => {
            work.allocate(thread, call, serial.0, size.0)
        }
        EventKind::Realloc { old: FreedBlock::Known(old), serial, size, .. } => {
            work.reallocate(thread, old.0, serial.0, size.0)
        }
        // A block that is not in the recording: its memory comes from nowhere.
        EventKind::Realloc { serial, size, .. } => work.reallocate(thread, u64::MAX, serial.0, size.0),
        EventKind::Free { block: FreedBlock::Known(block) } => work.free(thread, block.0),
        EventKind::Free { .. } => work.free(thread, u64::MAX),
        EventKind::Failed { .. } | EventKind::Reattributed { .. } => Ok(()),
    }
}
