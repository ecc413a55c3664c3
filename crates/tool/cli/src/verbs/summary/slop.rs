//! The slop of a recording that is short enough to be replayed for it.

use heapledger_analysis::{Metric, MomentAmounts, PartBy, Selection, SlopSource, parts};
use heapledger_recording::ChunkKind;
use serde::Serialize;

use crate::error::Result;
use crate::format::share;
use crate::question::Question;
use crate::views::sampled;

/// The most events for which a summary is replayed: it must not take long.
const EVENTS_MAX: u64 = 1 << 20;

/// The usable bytes beyond the requested ones.
pub(super) struct Slop {
    source: SlopSource,
    whole: MomentAmounts,
}

/// The usable bytes beyond the requested ones, in a recording of at most 1,048,576 events.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct SlopJson {
    /// `asked` if the program's allocator was asked for usable sizes, else the allocators for which
    /// they are computed.
    usable_sizes: String,
    bytes_allocated: u64,
    bytes_at_peak: u64,
    bytes_live_end: u64,
}

impl Slop {
    /// Returns the slop; `None` if it is not known, or would take long to find.
    pub(super) fn find(question: &mut Question<'_, '_>) -> Result<Option<Slop>> {
        let recording = question.recording;
        let of_events = recording.chunks().iter().filter(|chunk| chunk.kind == ChunkKind::Events);
        let events: u64 = of_events.map(|chunk| u64::from(chunk.head.rows)).sum();
        let images: Vec<_> = recording.images().iter().map(|start| start.image).collect();
        if events == 0 || events > EVENTS_MAX {
            return Ok(None);
        }
        let Ok(source) = SlopSource::of(recording, &images) else { return Ok(None) };
        let found = question.answer(|names, selection, progress| {
            let selection = Selection { counts_slop: true, ..selection.clone() };
            parts(names, PartBy::Process, &selection, progress)
        })?;
        Ok(Some(Slop { source, whole: found.whole }))
    }

    pub(super) fn print(&self, fact: &mut impl FnMut(&str, String, String)) {
        let peak = &self.whole.peak;
        let usable = peak.bytes.0.saturating_add(peak.slop.0);
        let part = share(peak.slop.0 as f64 / usable.max(1) as f64);
        let note = format!("{part} of usable sizes, {}", self.source);
        fact("slop at the peak", sampled::figure(peak, Metric::Slop), note);
    }
}

impl From<&Slop> for SlopJson {
    fn from(slop: &Slop) -> SlopJson {
        let MomentAmounts { total, peak, live } = &slop.whole;
        SlopJson {
            usable_sizes: slop.source.to_string(),
            bytes_allocated: total.slop.0,
            bytes_at_peak: peak.slop.0,
            bytes_live_end: live.slop.0,
        }
    }
}
