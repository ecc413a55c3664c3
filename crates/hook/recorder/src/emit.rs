//! Writes events to a ring, with the time since the one before.

use heapledger_wire::event::{self, Extended, units};
use heapledger_wire::publish::{Producer, WriteError};

use crate::session;

/// Returns the time before an event at `ticks`, and the step to it. If the step is too large, a
/// sync event is written first, and the step is 0.
pub(crate) fn synchronise(producer: &mut Producer, ticks: u64) -> Result<(u64, u64), WriteError> {
    let before = producer.last;
    if let Some(step) = producer.step(ticks) {
        return Ok((before, step));
    }
    let now = units(ticks);
    producer.write(session::page(), session::is_gone, &event::sync(now))?;
    producer.last = now;
    Ok((now, 0))
}

/// Writes an extended event at `ticks`. `words` is room for it.
pub(crate) fn write_extended(
    producer: &mut Producer,
    ticks: u64,
    event: &Extended<'_>,
    words: &mut [u64],
) -> Result<(), WriteError> {
    let before = producer.last;
    producer.last = producer.last.max(units(ticks));
    match event::extended(producer.last, event, words) {
        Some(words) => producer.write(session::page(), session::is_gone, words).inspect_err(|_| producer.last = before),
        // Longer than an event may be: annotations are bounded by the bridge, paths by
        // `EventWriter::module`.
        None => Ok(()),
    }
}
