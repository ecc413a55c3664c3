//! The totals of all mappings, for a summary.

use std::collections::BTreeMap;

use heapledger_core::{Blocks, Bytes};
use heapledger_recording::{Damage, ImageEndReason, Live, Recording, Time};

use super::{AnalysisError, MappedUse, TICK_NS, fragments_of};

/// The memory that the processes of a recording had mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MappedTotals {
    /// The most bytes that were mapped at once.
    pub bytes_max: Bytes,
    /// The first moment with so many, in whole microseconds.
    pub bytes_max_time: Time,
    /// The memory that was mapped at the end, or at the end of a process, by use, the largest
    /// first. A mapping that was unmapped in parts counts as its parts.
    pub end: Vec<(MappedUse, Live)>,
    /// Parts of the recording that could not be read, and are missing here.
    pub damage: Vec<Damage>,
}

/// Returns what was mapped, from the events of mappings alone. `None` if they were not recorded.
///
/// Memory: as for [`mappings`](super::super::mappings), with 24 bytes more for each mapping.
///
/// # Errors
///
/// Fails if an image has more than 16 million changes of its mappings.
pub fn mapped_totals(recording: &Recording<'_>) -> Result<Option<MappedTotals>, AnalysisError> {
    if !recording.has_mapping_events() {
        return Ok(None);
    }
    let mut totals = MappedTotals::default();
    let mut end: BTreeMap<MappedUse, Live> = BTreeMap::new();
    let mut steps: Vec<(Time, bool, u64)> = Vec::new();
    for start in recording.images() {
        let fragments = fragments_of(recording, start.image, &mut totals.damage)?;
        let ended = recording.image_end(start.image);
        for fragment in &fragments.fragments {
            let unmapped = fragment.end.map(|(when, _)| when.time);
            let gone = unmapped.or(ended.map(|end| end.time));
            steps.push((fragment.begin.0.time, true, fragment.bytes));
            steps.extend(gone.map(|time| (time, false, fragment.bytes)));
            if unmapped.is_none() && !ended.is_some_and(|end| end.reason == ImageEndReason::Exec) {
                let live = end.entry(fragments.last_use(fragment)).or_default();
                live.bytes = Bytes(live.bytes.0.saturating_add(fragment.bytes));
                live.blocks = Blocks(live.blocks.0 + 1);
            }
        }
    }
    // At the same moment, memory is given back first.
    steps.sort_unstable_by_key(|&(time, begins, _)| (time, begins));
    let mut bytes = 0_u64;
    for (time, begins, size) in steps {
        bytes = if begins { bytes.saturating_add(size) } else { bytes.saturating_sub(size) };
        if bytes > totals.bytes_max.0 {
            (totals.bytes_max, totals.bytes_max_time) = (Bytes(bytes), Time(time.0 - time.0 % u64::from(TICK_NS)));
        }
    }
    totals.end = end.into_iter().collect();
    totals.end.sort_by_key(|(mapped_use, live)| (std::cmp::Reverse(live.bytes), *mapped_use));
    Ok(Some(totals))
}
