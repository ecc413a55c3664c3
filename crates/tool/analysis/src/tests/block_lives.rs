//! Every block of a random session, by plain bookkeeping.

use std::collections::BTreeMap;

use heapledger_core::StackId;
use heapledger_recording::{EventKind, EventsBuffer, FreedBlock, ImageEndReason, Node, NodeCache, NodeKind, Recording};

use crate::testing;

/// A block from its allocation to its end.
pub(super) struct BlockLife {
    pub(super) size: u64,
    pub(super) thread: u32,
    /// Its stack, and the stacks that it was reattributed to, each with the time.
    pub(super) stacks: Vec<(u64, StackProperties)>,
    pub(super) allocated_at: u64,
    pub(super) freed: Option<u64>,
    /// The number of allocations that its thread had made before it, and until it was freed.
    pub(super) made_before: u64,
    pub(super) made_until: Option<u64>,
    /// The size of the block that it replaced in a reallocation.
    pub(super) replaced: Option<u64>,
    /// The time when its image ended.
    pub(super) over: u64,
    pub(super) is_of_last_image: bool,
}

/// The properties of a stack.
#[derive(Clone)]
pub(super) struct StackProperties {
    pub(super) frames: Vec<u64>,
    pub(super) context: &'static str,
    pub(super) heap: Option<&'static str>,
    pub(super) stamp: Option<&'static str>,
}

impl BlockLife {
    /// Returns its stack after all reattributions before a time.
    pub(super) fn before(&self, time: u64) -> &StackProperties {
        let moved = self.stacks.iter().skip(1).rfind(|(moved, _)| *moved < time);
        &moved.unwrap_or(&self.stacks[0]).1
    }

    /// Returns its last stack.
    pub(super) fn properties(&self) -> &StackProperties {
        self.before(u64::MAX)
    }

    pub(super) fn is_live(&self, time: u64) -> bool {
        self.allocated_at <= time && self.freed.is_none_or(|freed| freed > time) && self.over > time
    }
}

/// Returns every block of a recording, by plain bookkeeping.
pub(super) fn block_lives(recording: &Recording<'_>) -> Vec<BlockLife> {
    let mut block_lives = Vec::new();
    for image in recording.images() {
        let tree = recording.stack_tree(image.image, &mut NodeCache::default());
        let properties = |stack: StackId| {
            let is_frame = |node: &&Node| node.kind == NodeKind::Frame;
            let frames = tree.frames(stack).filter(is_frame).map(|node| node.offset).collect::<Vec<_>>();
            let (context, heap, stamp) = (testing::context(stack), testing::heap(stack), testing::stamp(stack));
            StackProperties { frames, context, heap, stamp }
        };
        let end = recording.image_end(image.image);
        let over = end.map_or(recording.footer().unwrap().time.0 + 1, |end| end.time.0);
        let is_of_last_image = end.is_none_or(|end| end.reason != ImageEndReason::Exec);
        let mut places = BTreeMap::new();
        let mut made: BTreeMap<u32, u64> = BTreeMap::new();
        let mut buffer = EventsBuffer::default();
        for chunk in recording.event_chunks(image.image) {
            for event in chunk.decode(&mut buffer).unwrap().as_slice() {
                let (freed, allocated) = match event.kind {
                    EventKind::Alloc { serial, size, stack } => (None, Some((serial, size, stack))),
                    EventKind::Realloc { old, serial, size, stack } => (Some(old), Some((serial, size, stack))),
                    EventKind::Free { block } => (Some(block), None),
                    EventKind::Failed { .. } => (None, None),
                    EventKind::Reattributed { block, stack } => {
                        let life: &mut BlockLife = &mut block_lives[places[&block]];
                        life.stacks.push((event.time.0, properties(stack)));
                        continue;
                    }
                };
                if let Some(FreedBlock::Known(serial)) = freed {
                    let life: &mut BlockLife = &mut block_lives[places[&serial]];
                    life.freed = Some(event.time.0);
                    life.made_until = Some(made[&life.thread]);
                }
                if let Some((serial, size, stack)) = allocated {
                    places.insert(serial, block_lives.len());
                    let (size, thread, allocated_at) = (size.0, event.thread.0, event.time.0);
                    let replaced = match freed {
                        Some(FreedBlock::Known(old)) => Some(block_lives[places[&old]].size),
                        _ => None,
                    };
                    let made_before = *made.entry(thread).or_default();
                    made.insert(thread, made_before + 1);
                    let (freed, made_until) = (None, None);
                    block_lives.push(BlockLife {
                        size,
                        thread,
                        stacks: vec![(event.time.0, properties(stack))],
                        allocated_at,
                        freed,
                        made_before,
                        made_until,
                        replaced,
                        over,
                        is_of_last_image,
                    });
                }
            }
        }
    }
    block_lives
}
