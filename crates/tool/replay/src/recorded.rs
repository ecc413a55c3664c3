//! The calls of a recording.

use heapledger_core::{Api, Bytes, Serial, StackId, ThreadId};
use heapledger_recording::{
    Event, EventKind, EventsBuffer, Extras, FreedBlock, ImageId, Recording, RecordingError, Time,
};

use crate::work::{Call, WorkError};

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
    /// The stack of a call that allocates.
    pub stack: StackId,
    /// The size of a block that was freed or reallocated, if the recording does not have the block
    /// but knows its size.
    pub freed_size: Option<Bytes>,
    /// Its place among the events.
    pub place: EventPlace,
}

/// A place among the events of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventPlace {
    /// The serial of the next allocation.
    pub serial: Serial,
    /// The number of frees and failed calls since the latest allocation.
    pub rows: u64,
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
    let (mut buffer, mut next) = (EventsBuffer::default(), EventPlace::default());
    for chunk in recording.event_chunks(image) {
        if next.serial < chunk.head().serial_first {
            next = EventPlace { serial: chunk.head().serial_first, rows: 0 };
        }
        let events = chunk.decode(&mut buffer)?;
        let mut extras = events.all_extras().iter().peekable();
        for (index, event) in events.as_slice().iter().enumerate() {
            let own = extras.next_if(|(at, _)| *at as usize == index).map_or(Extras::NONE, |(_, extras)| *extras);
            let place = next;
            match event.kind {
                EventKind::Alloc { serial, .. } | EventKind::Realloc { serial, .. } => {
                    next = EventPlace { serial: Serial(serial.0.saturating_add(1)), rows: 0 };
                }
                EventKind::Free { .. } | EventKind::Failed { .. } => next.rows += 1,
                EventKind::Reattributed { .. } => {}
            }
            if let Some(effect) = effect_of(event, &own) {
                let stack = match event.kind {
                    EventKind::Alloc { stack, .. } | EventKind::Realloc { stack, .. } => stack,
                    _ => StackId::ROOT,
                };
                let (thread, time, freed_size) = (event.thread, event.time, own.freed_size);
                each(RecordedCall { thread, time, effect, stack, freed_size, place })?;
            }
        }
        progress(events.as_slice().len() as u64);
    }
    Ok(())
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
