//! The calls of a recording.

use heapledger_core::{Api, Bytes, Serial, ThreadId};
use heapledger_recording::{
    Event, EventKind, EventsBuffer, Extras, FreedBlock, ImageId, Recording, RecordingError, Time,
};

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

/// A call of the allocator in a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    /// Its thread.
    pub thread: ThreadId,
    /// Its time, at the resolution of the recording.
    pub time: Time,
    /// Its effect.
    pub effect: Effect,
}

/// The effect of a call. Blocks are named by their serials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A block was allocated.
    Allocated {
        /// The function.
        call: Call,
        /// The block.
        block: Serial,
        /// Its requested size.
        size: Bytes,
    },
    /// A block was reallocated.
    Reallocated {
        /// The old block; `None` if the recording does not have it.
        old: Option<Serial>,
        /// The new block.
        block: Serial,
        /// Its requested size.
        size: Bytes,
    },
    /// A block was freed: `None` if the recording does not have it.
    Freed(Option<Serial>),
}

/// Hands out the calls of an image, in their order. `progress` gets the number of events that were
/// read.
///
/// Calls that failed are left out, and so are those about blocks of the program's own pools, which
/// are not the allocator's.
///
/// # Errors
///
/// Fails if the recording is damaged, or if `each` does.
pub fn recorded_calls<E: From<RecordingError>>(
    recording: &Recording<'_>,
    image: ImageId,
    mut progress: impl FnMut(u64),
    mut each: impl FnMut(RecordedCall) -> Result<(), E>,
) -> Result<(), E> {
    let mut buffer = EventsBuffer::default();
    for chunk in recording.event_chunks(image) {
        let events = chunk.decode(&mut buffer)?;
        let mut extras = events.all_extras().iter().peekable();
        for (index, event) in events.as_slice().iter().enumerate() {
            let own = extras.next_if(|(at, _)| *at as usize == index).map_or(Extras::NONE, |(_, extras)| *extras);
            if let Some(effect) = effect_of(event, &own) {
                each(RecordedCall { thread: event.thread, time: event.time, effect })?;
            }
        }
        progress(events.as_slice().len() as u64);
    }
    Ok(())
}

/// Adds the calls of an image of a recording to a work, with their times, as [`recorded_calls`]
/// hands them out.
///
/// # Errors
///
/// Fails if the recording is damaged, or if the work cannot be written.
pub fn recorded(
    recording: &Recording<'_>,
    image: ImageId,
    work: &mut WorkWriter,
    progress: impl FnMut(u64),
) -> Result<(), RecordedError> {
    /// A number that no block has: its memory comes from nowhere.
    const NONE: u64 = u64::MAX;
    let begins = recording.image(image).map_or(0, |start| start.time.0);
    recorded_calls(recording, image, progress, |call| {
        let thread = u64::from(call.thread.0);
        work.wait(thread, call.time.0.saturating_sub(begins))?;
        match call.effect {
            Effect::Allocated { call, block, size } => work.allocate(thread, call, block.0, size.0)?,
            Effect::Reallocated { old, block, size } => {
                work.reallocate(thread, old.map_or(NONE, |old| old.0), block.0, size.0)?;
            }
            Effect::Freed(block) => work.free(thread, block.map_or(NONE, |block| block.0))?,
        }
        Ok(())
    })
}

/// Returns the effect of an event; `None` if the allocator did nothing.
fn effect_of(event: &Event, extras: &Extras) -> Option<Effect> {
    let alignment = extras.alignment.unwrap_or(1);
    let call = match event.call.api()? {
        Api::PoolAlloc | Api::PoolFree | Api::PoolBack | Api::PoolReset => return None,
        Api::Calloc => Call::Calloc,
        Api::Memalign => Call::Memalign { alignment },
        Api::PosixMemalign => Call::PosixMemalign { alignment },
        Api::AlignedAlloc => Call::AlignedAlloc { alignment },
        Api::Valloc | Api::Pvalloc => Call::Valloc,
        _ => Call::Malloc,
    };
    let known = |block: FreedBlock| if let FreedBlock::Known(serial) = block { Some(serial) } else { None };
    Some(match event.kind {
        EventKind::Alloc { serial, size, .. } | EventKind::Realloc { old: FreedBlock::None, serial, size, .. } => {
            Effect::Allocated { call, block: serial, size }
        }
        EventKind::Realloc { old, serial, size, .. } => Effect::Reallocated { old: known(old), block: serial, size },
        EventKind::Free { block } => Effect::Freed(known(block)),
        EventKind::Failed { .. } | EventKind::Reattributed { .. } => return None,
    })
}
