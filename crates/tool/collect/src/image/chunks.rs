//! The chunks of an image: its events, nodes, annotations and checkpoints on their way to the file.

use heapledger_core::Api;
use heapledger_ledger::{Block, Freed};
use heapledger_recording::{
    Annotation, AnnotationsEncoder, CheckpointEncoder, Event as FileEvent, EventsEncoder, Extras, ImageId, Live,
    LiveBlock, Node, NodesEncoder, Record, Time,
};
use heapledger_wire::event::Corrupt;

use super::Image;
use crate::external_counters::ExternalCounters;
use crate::nodes::NewNode;
use crate::session_state::Shared;
use crate::writer::Job;

/// The minimum number of events between two checkpoints: a replay from the last one takes about a
/// second.
const CHECKPOINT_EVENTS: u64 = if cfg!(test) { 1 << 20 } else { 1 << 23 };
/// The minimum number of events per block in a checkpoint, so that checkpoints add little to the
/// file.
const CHECKPOINT_EVENTS_PER_BLOCK: u64 = 32;
/// The maximum number of damaged files with names of generated code that are reported.
const DAMAGED_MAX: usize = 16;

/// The unfinished chunks of an image.
#[derive(Debug)]
pub(super) struct Chunks {
    pub(super) events: EventsEncoder,
    /// The time of the first event of the unfinished chunk.
    pub(super) events_begin: Time,
    events_since_checkpoint: u64,
    nodes: NodesEncoder,
    annotations: AnnotationsEncoder,
}

impl Chunks {
    pub(super) fn new(image: ImageId, time: Time) -> Chunks {
        Chunks {
            events: EventsEncoder::new(image),
            events_begin: time,
            events_since_checkpoint: 0,
            nodes: NodesEncoder::new(image),
            annotations: AnnotationsEncoder::new(image),
        }
    }

    /// Adds an annotation.
    pub(super) fn annotate(&mut self, shared: &mut Shared, annotation: &Annotation) {
        if self.annotations.is_full() {
            self.flush_annotations(shared);
        }
        if let Err(error) = self.annotations.push(annotation) {
            shared.fail(error.into());
        }
    }

    pub(super) fn flush_annotations(&mut self, shared: &mut Shared) {
        if let Some(chunk) = self.annotations.finish(&mut shared.compressor) {
            shared.writer.send(Job::Chunk(chunk));
        }
    }

    /// Begins another file.
    pub(super) fn begin_segment(&mut self, time: Time) {
        self.events_since_checkpoint = 0;
        self.events_begin = time;
    }
}

impl Image {
    #[inline(always)]
    pub(super) fn push(&mut self, shared: &mut Shared, event: FileEvent, extras: &Extras) {
        let live = self.live();
        self.push_with(shared, event, extras, live);
    }

    /// Adds an event after which this is live.
    #[inline(always)]
    pub(super) fn push_with(&mut self, shared: &mut Shared, event: FileEvent, extras: &Extras, live: Live) {
        let time = event.time;
        if self.chunks.events.is_empty() {
            self.chunks.events_begin = time;
        }
        if shared.keeps_events
            && let Err(error) = self.chunks.events.push(&event, extras, live)
        {
            shared.fail(error.into());
        }
        // The usable sizes of a pool's blocks are their requested sizes.
        if (extras.usable.is_some() || self.usable_sizes.is_any()) && event.call != Api::PoolAlloc.into() {
            self.usable_sizes.on_event(&event.kind, extras.usable);
        }
        self.reports.on_event(&event.kind);
        self.timeline.add(time, live);
        shared.timeline.add(time, shared.session.live().into());
        shared.events += 1;
        if self.chunks.events.is_full() {
            self.flush_events(shared);
        }
    }

    #[inline(always)]
    pub(crate) fn live(&self) -> Live {
        self.ledger.live().into()
    }

    pub(super) fn flush_events(&mut self, shared: &mut Shared) {
        self.flush_nodes(shared, false);
        self.chunks.events_since_checkpoint += self.chunks.events.len() as u64;
        if let Some(chunk) = self.chunks.events.finish_raw() {
            shared.writer.send(Job::Events(chunk));
        }
        let per_block = CHECKPOINT_EVENTS_PER_BLOCK.saturating_mul(self.ledger.live().blocks_live.0);
        if self.chunks.events_since_checkpoint >= per_block.max(CHECKPOINT_EVENTS) {
            self.chunks.events_since_checkpoint = 0;
            // The time of the last event.
            self.write_checkpoint(shared, self.timeline.last_time());
        }
    }

    pub(crate) fn write_checkpoint(&self, shared: &mut Shared, time: Time) {
        let blocks = self.ledger.blocks().map(|(key, block)| (block, key.pool() != 0));
        // A block with a pending reallocation still has its old place.
        let pending = self.threads.pending().filter_map(|pending| match pending.old() {
            Freed::Known(block) => Some((block, false)),
            Freed::Inherited(_) | Freed::Untracked | Freed::Unknown => None,
        });
        let live = blocks
            .chain(pending)
            .filter(|(block, _)| !block.inherited)
            .map(|(Block { serial, size, stack, rate, .. }, is_pooled)| {
                let usable = if is_pooled { Some(size) } else { self.usable_sizes.get(serial, size) };
                LiveBlock { serial, size, stack, rate, usable }
            })
            .collect();
        let counts = self.counts(&ExternalCounters::default());
        let checkpoint = CheckpointEncoder::new(self.id, time, self.chunks.events.next_serial(), counts);
        shared.writer.send(Job::Checkpoint(checkpoint, live));
    }

    /// Returns the number of a text that a node refers to by its address.
    #[cold]
    pub(super) fn text(&mut self, shared: &mut Shared, address: u64) -> u64 {
        let text = self.tree.texts.get(address);
        shared.records.extend(shared.texts.use_text(text).map(Record::Text));
        text.0.into()
    }

    pub(super) fn add_node(&mut self, shared: &mut Shared, node: NewNode) -> Result<(), Corrupt> {
        if let Some(node) = self.tree.add(node).map_err(|_| Corrupt)? {
            self.write_node(shared, node);
        }
        Ok(())
    }

    pub(super) fn write_node(&mut self, shared: &mut Shared, node: Node) {
        if shared.keeps_nodes {
            self.tree.keep(node);
        }
        if self.tree.generated.module().is_some() {
            let monotonic_ns = shared.started_monotonic_ns.saturating_add(shared.timeline.last_time().0);
            self.tree.generated.note(&node, monotonic_ns);
        }
        push_node(&mut self.chunks.nodes, shared, &node);
    }

    pub(super) fn flush_nodes(&mut self, shared: &mut Shared, is_last: bool) {
        let mut resolved = Vec::new();
        self.tree.resolve(is_last, |node| resolved.push(node));
        for node in resolved {
            self.write_node(shared, node);
        }
        finish_nodes(&mut self.chunks.nodes, shared);
    }

    /// Writes all nodes that its stacks may have.
    pub(crate) fn write_kept_nodes(&mut self, shared: &mut Shared) {
        shared.flush_records();
        let nodes = &mut self.chunks.nodes;
        self.tree.kept(|node| push_node(nodes, shared, &node));
        finish_nodes(nodes, shared);
    }

    /// Has the names of its parents' code written to this file, too, if it begins without them.
    pub(crate) fn begin_with_names(&self) {
        self.tree.generated.begin_segment();
    }

    /// Writes the names of generated code, as far as the program has told them.
    pub(super) fn write_names(&mut self, shared: &mut Shared) {
        shared.records.extend(self.tree.generated.names(self.pid).into_iter().map(Record::ImportedLocation));
        for damaged in self.tree.generated.take_damaged() {
            let known = &mut shared.code_files_damaged;
            let is_known = known.iter().any(|known| (known.pid, &known.path) == (damaged.pid, &damaged.path));
            if !is_known && known.len() < DAMAGED_MAX {
                known.push(damaged);
            }
        }
    }

    pub(super) fn flush_threads(&mut self, shared: &mut Shared) {
        if shared.keeps_events {
            shared.records.extend(self.threads.take_changed(self.id).map(Record::Thread));
        }
    }
}

fn push_node(nodes: &mut NodesEncoder, shared: &mut Shared, node: &Node) {
    if nodes.is_full() {
        finish_nodes(nodes, shared);
    }
    if let Err(error) = nodes.push(node) {
        shared.fail(error.into());
    }
}

fn finish_nodes(nodes: &mut NodesEncoder, shared: &mut Shared) {
    if let Some(chunk) = nodes.finish(&mut shared.compressor) {
        shared.writer.send(Job::Chunk(chunk));
    }
}
