//! The events that are recorded in the session's present mode.

use heapledger_core::sample::Rate;
use heapledger_core::{Api, StackId};
use heapledger_wire::event::{Extended, ReallocOutcome};
use heapledger_wire::publish::{Producer, WriteError};
use heapledger_wire::session::mode;

use crate::session;

/// The kind of an event, for [`accepts`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Allocation,
    Free,
}

/// True if events of this kind are not recorded at the moment. Asked first if the session is not in
/// its usual mode, so that a program that is not recorded yet spends next to nothing on it. Call
/// outside of the thread's gate: if the session is over, the process may leave it here.
#[inline]
pub(crate) fn is_paused(kind: Kind) -> bool {
    // One look at the mode is enough while the session goes on.
    if session::is_on() {
        let Some(page) = session::known_page() else { return false };
        let now = page.mode();
        if now & mode::OVER == 0 {
            return now & pausing(kind) != 0;
        }
    }
    session::notice_over();
    !session::is_on() || is_paused_by_mode(kind)
}

/// True if events of this kind are not recorded in the session's present mode.
fn is_paused_by_mode(kind: Kind) -> bool {
    let Some(page) = session::known_page() else { return false };
    page.mode() & pausing(kind) != 0
}

/// Returns the mode in which events of this kind are not recorded.
fn pausing(kind: Kind) -> u32 {
    if kind == Kind::Allocation { mode::PAUSED } else { mode::IDLE }
}

/// True if an event of this kind is to be written to this ring. Otherwise it has been counted, if
/// it ought to be.
///
/// While events are dropped, and while the recorder stands still, allocations leave a quarter of
/// the ring free, so that frees of recorded blocks still fit. Frees leave an eighth free, for
/// events that later ones need and that are never dropped: nodes (a deep stack has 16 KiB of them),
/// modules, threads, forks, and the ends of what has begun.
pub(crate) fn accepts(producer: &mut Producer, kind: Kind) -> Result<bool, WriteError> {
    if is_paused_by_mode(kind) {
        return Ok(false);
    }
    let free_eighths_min = if kind == Kind::Allocation { 2 } else { 1 };
    if session::page().mode() & (mode::DROPS | mode::STALLED) == 0 || producer.has_free(free_eighths_min) {
        return Ok(true);
    }
    producer.drop_event(session::page(), session::is_gone).map(|()| false)
}

/// Returns the event of a reallocation of which only the free of the old block is recorded.
pub(crate) const fn ended_as_free(api: Api) -> Extended<'static> {
    let (outcome, stack) = (ReallocOutcome::Freed, StackId::ROOT);
    Extended::ReallocEnd { api, outcome, address: 0, size: 0, stack, count: 0, usable: 0, rate: Rate::EXACT }
}

/// Returns the form in which an event is to be written in the session's present mode, if it is.
#[cold]
pub(crate) fn apply_mode<'event>(
    producer: &mut Producer,
    event: Extended<'event>,
) -> Result<Option<Extended<'event>>, WriteError> {
    let kind = match event {
        Extended::Alloc { .. } | Extended::Failed { .. } | Extended::Ignored { .. } => Kind::Allocation,
        Extended::Free { .. } | Extended::ReallocBegin { .. } => Kind::Free,
        Extended::ReallocEnd { api, outcome: ReallocOutcome::Returned, .. } => {
            return Ok(Some(if accepts(producer, Kind::Allocation)? { event } else { ended_as_free(api) }));
        }
        _ => return Ok(Some(event)),
    };
    Ok(accepts(producer, kind)?.then_some(event))
}
