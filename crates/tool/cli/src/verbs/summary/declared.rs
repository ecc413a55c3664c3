//! The declarations of a program, in the summary: the contexts that hold the most, and its heaps.

use heapledger_analysis::{Amount, ContextId, Key, Metric, Moment, Profile, Rank, RankBy, rank};
use serde::Serialize;

use crate::error::Result;
use crate::format::{bytes, counted, share};
use crate::question::Question;

/// The number of contexts shown.
const CONTEXTS_MAX: usize = 3;
/// The number of heaps shown.
const HEAPS_MAX: usize = 5;

/// The contexts and heaps that a program declared for its blocks.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Declared {
    /// The contexts that hold the most at the peak; blocks without a context count as one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    contexts: Vec<Context>,
    /// The number of contexts at the peak.
    #[serde(skip)]
    contexts_all: usize,
    /// The heaps, the largest at the end first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    heaps: Vec<Heap>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Context {
    context: String,
    bytes_at_peak: u64,
    blocks_at_peak: u64,
    share: f64,
}

#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Heap {
    heap: String,
    bytes_at_peak: u64,
    blocks_at_peak: u64,
    bytes_live_end: u64,
    blocks_live_end: u64,
}

impl Declared {
    /// Finds the declarations; costs nothing if the program declared nothing.
    pub(crate) fn find(question: &mut Question<'_, '_>) -> Result<Declared> {
        if question.recording.texts().is_empty() {
            return Ok(Declared::default());
        }
        question.selection.moment = Moment::Peak;
        let peak = question.profile()?;
        question.selection.moment = Moment::End;
        let end = question.profile()?;
        let contexts = grouped(question, &peak, RankBy::Context);
        let (at_peak, at_end) = (grouped(question, &peak, RankBy::Heap), grouped(question, &end, RankBy::Heap));
        let mut found = Declared::default();
        if contexts.iter().any(|(name, _)| name.is_some()) {
            found.contexts_all = contexts.len();
            found.contexts.extend(contexts.into_iter().take(CONTEXTS_MAX).map(|(name, amount)| Context {
                context: name.unwrap_or_else(|| "(no context)".to_owned()),
                bytes_at_peak: amount.bytes.0,
                blocks_at_peak: amount.blocks.0,
                share: amount.share(&peak.whole, Metric::Bytes),
            }));
        }
        for (name, end) in at_end {
            let heap = found.heap(name);
            (heap.bytes_live_end, heap.blocks_live_end) = (end.bytes.0, end.blocks.0);
        }
        for (name, peak) in at_peak {
            let heap = found.heap(name);
            (heap.bytes_at_peak, heap.blocks_at_peak) = (peak.bytes.0, peak.blocks.0);
        }
        // Blocks in no heap have the empty name.
        found.heaps.retain(|heap| !heap.heap.is_empty());
        Ok(found)
    }

    fn heap(&mut self, name: Option<String>) -> &mut Heap {
        let heap = name.unwrap_or_default();
        let known = self.heaps.iter().position(|known| known.heap == heap);
        let at = known.unwrap_or_else(|| {
            self.heaps.push(Heap { heap, ..Heap::default() });
            self.heaps.len() - 1
        });
        &mut self.heaps[at]
    }

    /// Adds the lines of the summary.
    pub(crate) fn print(&self, fact: &mut impl FnMut(&str, String, String)) {
        for (at, context) in self.contexts.iter().enumerate() {
            let name = if at == 0 { "contexts at the peak" } else { "" };
            fact(name, bytes(context.bytes_at_peak), format!("{} {}", share(context.share), context.context));
        }
        more(self.contexts_all - self.contexts.len(), "context", fact);
        for (at, heap) in self.heaps.iter().take(HEAPS_MAX).enumerate() {
            let blocks = counted(heap.blocks_live_end, "block", "blocks");
            let note = format!("in {blocks} of {}, {} at the peak", heap.heap, bytes(heap.bytes_at_peak));
            fact(if at == 0 { "heaps at the end" } else { "" }, bytes(heap.bytes_live_end), note);
        }
        more(self.heaps.len().saturating_sub(HEAPS_MAX), "heap", fact);
    }
}

fn more(number: usize, what: &str, fact: &mut impl FnMut(&str, String, String)) {
    if number > 0 {
        fact("", format!("and {number} more"), format!("in `heapledger top --by {what}`"));
    }
}

/// Returns what groups hold, by name, the largest first; `None` names the blocks in no context or
/// heap.
fn grouped(question: &mut Question<'_, '_>, profile: &Profile, by: RankBy) -> Vec<(Option<String>, Amount)> {
    let ranks = rank(profile, &mut question.labels.names, by, Metric::Bytes);
    let labels = &question.labels;
    let group = |rank: Rank| {
        let is_none = match rank.key {
            Key::Context(context) => context == ContextId::NONE,
            key => key == Key::Heap(None),
        };
        let name = match rank.key {
            Key::Context(context) => labels.context(&profile.stacks, context),
            _ => labels.function(rank.frame.function),
        };
        ((!is_none).then_some(name), rank.amount)
    };
    ranks.into_iter().map(group).collect()
}
