//! Plays the events of one image into its ledger.

use std::collections::HashMap;

use heapledger_core::{Api, Blocks, Bytes, Serial, StackId, ThreadId};
use heapledger_ledger::{self as ledger, Key, Ledger};
use heapledger_recording::{
    Counts, Event, EventChunk, EventKind, EventsBuffer, FreedBlock, ImageEndReason, ImageId, LiveBlock, Mark,
    NodeCache, NodeKind, Recording, RecordingError, Site, StackTree, Time, Timeline,
};

use super::results::{ReplayedBlock, ReplayedImage};
use super::span::{Marks, Span};
use super::visitor::{BlockEnd, BlockVisitor, EndReason, Origin};
use crate::amount::Amount;
use crate::error::Error;
use crate::events::{EventMap, THREADS_MAX, bytes_of};
use crate::reports::{Reports, times_complete};

/// One image under replay.
pub(super) struct Player<'r> {
    pub(super) image: ImageId,
    span: Span,
    /// True if blocks were sampled. Frees of unknown blocks are then not counted.
    is_sample: bool,
    /// True if the visitor is notified of blocks that are no longer live.
    wants_frees: bool,
    ledger: Ledger,
    chunks: std::iter::Peekable<std::vec::IntoIter<EventChunk<'r>>>,
    /// The events of the chunk that is being played.
    events: Vec<Event>,
    /// The sizes and weights of inherited blocks that were freed, by index of the event.
    freed_sizes: Vec<(u32, Bytes, Blocks)>,
    /// The usable sizes that the chunk has among its extras, by index of the event.
    usable_sizes: Vec<(u32, Bytes)>,
    /// The sizes of all others: see [`heapledger_recording::Events::usable_sizes`].
    usable_by_serial: Vec<u64>,
    /// The serial of the first of these.
    chunk_first: Serial,
    position: usize,
    /// The marks of the chunk that is being played, each with the index of the event that follows
    /// it. The first `marks_position` of them have been played.
    marks: Vec<(u32, Mark)>,
    marks_position: usize,
    reports: Reports,
    /// The number of times that reporters still have to be asked until the span is over.
    collections_left: Option<u32>,
    freed: HashMap<(StackId, Bytes, Option<Bytes>), u64>,
    /// The first serial after the checkpoint; allocations before it are in the checkpoint.
    first: Serial,
    /// The time when the image ends, if that is still to come.
    end: Option<Time>,
    /// True if the image was still running when the recording ended; `end` is then right after that
    /// time.
    runs_on: bool,
    pub(super) ended: bool,
    /// The counts that the ledger does not keep.
    counts: Counts,
    threads: Vec<bool>,
    /// The calls that allocated the live blocks. Kept only if some blocks are reattributed later,
    /// or if calls or usable sizes are asked for.
    calls: Option<EventMap<Serial, AllocationCall>>,
    /// The stacks that the blocks of the checkpoint are attributed to, and their usable sizes. Kept
    /// only if some blocks are reattributed later, or if usable sizes are asked for.
    carried: EventMap<Serial, (StackId, Option<Bytes>)>,
    /// The image's stacks. Kept only if blocks are reattributed or marks are followed.
    tree: Option<StackTree>,
    /// The memory of the ledger when it was last checked, in bytes.
    pub(super) memory: u64,
    /// The time when recording was paused for the first time; later frees of unknown blocks are
    /// attributed to the pause.
    paused_from: Time,
    timeline: Timeline,
}

/// A key that is not used by any block.
const NO_BLOCK: Key = Key(u64::MAX - 1);
/// The number of events ahead for which memory is prefetched.
const PREFETCH_DISTANCE: usize = 12;

impl<'r> Player<'r> {
    /// Returns `None` if nothing of the image is in the span.
    pub(super) fn new(
        recording: &'r Recording<'_>,
        image: ImageId,
        span: Span,
        session: &mut ledger::Session,
        visitor: &mut dyn BlockVisitor,
    ) -> Result<Option<Player<'r>>, Error> {
        let until = span.until.unwrap_or(Time(u64::MAX));
        let start = recording.image(image);
        let end = recording.image_end(image);
        // An image that still runs when the recording ends is live at that very time, so it ends 1
        // ns later.
        let runs_on = end.is_some_and(|end| end.reason == ImageEndReason::Detached);
        let end = end.map(|end| Time(end.time.0.saturating_add(runs_on.into())));
        let is_over = |from: Time| end.is_some_and(|end| end < from);
        if start.is_some_and(|start| start.time > until) || span.from.is_some_and(is_over) {
            return Ok(None);
        }
        let has_reattributions = recording.event_chunks(image).any(|chunk| chunk.head().moves > 0);
        let follows = span.marks != Marks::Ignored;
        let mut player = Player {
            image,
            span,
            is_sample: recording.is_sample(),
            wants_frees: visitor.wants_frees(),
            ledger: Ledger::new(),
            chunks: Vec::new().into_iter().peekable(),
            events: Vec::new(),
            freed_sizes: Vec::new(),
            usable_sizes: Vec::new(),
            usable_by_serial: Vec::new(),
            chunk_first: Serial(0),
            position: 0,
            marks: Vec::new(),
            marks_position: 0,
            reports: Reports::default(),
            collections_left: (span.marks == Marks::UpToTheLast).then(|| times_complete(recording, image)),
            freed: HashMap::new(),
            first: Serial(0),
            end,
            runs_on,
            ended: false,
            counts: recorded_counts(recording, image),
            threads: Vec::new(),
            calls: (span.wants_usable() || has_reattributions || visitor.wants_calls()).then(EventMap::default),
            carried: EventMap::default(),
            tree: (has_reattributions || follows).then(|| recording.stack_tree(image, &mut NodeCache::default())),
            memory: 0,
            paused_from: recording
                .pauses()
                .iter()
                .find(|pause| !pause.is_stall)
                .map_or(Time(u64::MAX), |pause| pause.from),
            timeline: Timeline::new(),
        };
        let from = player.enter_checkpoint(recording, has_reattributions, session, visitor)?;
        // Times in a chunk are rounded down, so the chunk before may have events from after the
        // checkpoint.
        let chunks = recording.event_chunks(image).filter(|chunk| {
            let head = chunk.head();
            head.time_last.0.saturating_add(head.tick_ns.into()) >= from.0
        });
        player.chunks = chunks.collect::<Vec<_>>().into_iter().peekable();
        Ok(Some(player))
    }

    /// Enters the blocks of the checkpoint with which the span begins. Returns its time; 0 if there
    /// is none.
    fn enter_checkpoint(
        &mut self,
        recording: &Recording<'_>,
        has_reattributions: bool,
        session: &mut ledger::Session,
        visitor: &mut dyn BlockVisitor,
    ) -> Result<Time, Error> {
        let image = self.image;
        let carried = || recording.checkpoints(image).into_iter().next();
        let checkpoint = match self.span.from {
            Some(from) => recording.checkpoint_before(image, from),
            None if recording.image(image).is_some_and(|start| start.carried.is_some()) => carried(),
            None => None,
        };
        let Some(checkpoint) = checkpoint else { return Ok(Time(0)) };
        let mut blocks: Vec<LiveBlock> = Vec::with_capacity(checkpoint.len());
        // A checkpoint that cannot be read is treated as if there were none.
        if checkpoint.for_each_part(|part| blocks.extend_from_slice(part)).is_err() {
            return Ok(Time(0));
        }
        let from = checkpoint.time();
        self.first = checkpoint.next_serial();
        if has_reattributions || self.span.wants_usable() {
            self.carried.extend(blocks.iter().map(|block| (block.serial, (block.stack, block.usable))));
        }
        for LiveBlock { serial, size, rate, stack, usable } in blocks {
            let group = visitor.on_alloc(Origin { image, serial, call: None, size, rate, stack, usable });
            self.allocate(session, (from, ThreadId(0)), serial, ledger::Sampled { size, rate }, group)?;
        }
        Ok(from)
    }

    /// Resets the counts: the live blocks were carried into this recording.
    pub(super) fn restart(&mut self, begins: Time) {
        self.ledger.restart(ledger::Time(begins.0));
        add_to_timeline(&mut self.timeline, begins, self.ledger.live());
    }

    /// True if the next event is a stamp on a live block. A stamp belongs to the event before it,
    /// and is played with it even if the span is over.
    pub(super) fn is_before_a_stamp(&self) -> bool {
        let Some(&Event { kind: EventKind::Reattributed { block, stack }, .. }) = self.events.get(self.position) else {
            return false;
        };
        self.is_stamp(self.stack_of(block), stack)
    }

    pub(super) fn events_left(&self) -> u64 {
        self.chunks.clone().map(|chunk| u64::from(chunk.head().rows)).sum()
    }

    /// Returns the memory of the register, of the sites and of the calls, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.ledger.bytes_mapped().0 + self.calls.as_ref().map_or(0, bytes_of) + bytes_of(&self.carried)
    }

    /// Returns the time when the next step is due; `None` if nothing more happens in the span.
    pub(super) fn next_time(&mut self) -> Option<Time> {
        if self.collections_left == Some(0) {
            return None;
        }
        let time = match self.events.get(self.position) {
            Some(event) => Some(event.time),
            None => match self.chunks.peek() {
                Some(chunk) => Some(chunk.head().time_first),
                None => self.end,
            },
        };
        time.filter(|&time| self.span.until.is_none_or(|until| time <= until))
    }

    pub(super) fn needs_chunk(&mut self) -> bool {
        self.position == self.events.len() && self.chunks.peek().is_some()
    }

    /// Decodes the next chunk. Returns the number of its events.
    pub(super) fn load_chunk(&mut self, buffer: &mut EventsBuffer) -> Result<u64, RecordingError> {
        self.events.clear();
        self.freed_sizes.clear();
        self.usable_sizes.clear();
        self.marks.clear();
        (self.position, self.marks_position) = (0, 0);
        let Some(chunk) = self.chunks.next() else { return Ok(0) };
        let events = chunk.decode(buffer)?;
        let sizes = events
            .all_extras()
            .iter()
            .filter_map(|(index, extras)| Some((*index, extras.freed_size?, extras.weight.unwrap_or(Blocks(1)))));
        self.freed_sizes.extend(sizes);
        let sizes = events.all_extras().iter().filter_map(|(index, extras)| Some((*index, extras.usable?)));
        self.usable_sizes.extend(sizes);
        if self.span.marks != Marks::Ignored {
            self.marks.extend(events.marks());
        }
        self.chunk_first = chunk.head().serial_first;
        buffer.take_usable_sizes(&mut self.usable_by_serial);
        buffer.take_events(&mut self.events);
        self.play_marks();
        Ok(self.events.len() as u64)
    }

    /// Plays the events that are due, or the end of the image.
    pub(super) fn play(
        &mut self,
        session: &mut ledger::Session,
        timeline: &mut Timeline,
        visitor: &mut dyn BlockVisitor,
        is_due: impl Fn(Time) -> bool,
    ) -> Result<(), Error> {
        if self.position == self.events.len() {
            let end = self.end.take().unwrap_or_default();
            let end = Time(end.0.saturating_sub(self.runs_on.into()));
            self.ended = true;
            self.notify_ends(end, EndReason::ImageEnded, visitor);
            self.ledger.end(session);
            add_to_timeline(timeline, end, session.live());
            return Ok(());
        }
        while self.collections_left != Some(0)
            && let Some(&event) = self.events.get(self.position)
            && self.span.until.is_none_or(|until| event.time <= until)
            && is_due(event.time)
            && (!self.span.is_over(session.live()) || self.is_before_a_stamp())
        {
            self.position += 1;
            if let Some(ahead) = self.events.get(self.position + PREFETCH_DISTANCE) {
                self.prefetch(&ahead.kind);
            }
            self.play_event(session, visitor, &event)?;
            self.play_marks();
            add_to_timeline(&mut self.timeline, event.time, self.ledger.live());
            add_to_timeline(timeline, event.time, session.live());
        }
        Ok(())
    }

    /// Plays the marks that come before the next event.
    #[inline]
    fn play_marks(&mut self) {
        while let Some(&(at, mark)) = self.marks.get(self.marks_position)
            && at as usize <= self.position
            && self.collections_left != Some(0)
        {
            self.marks_position += 1;
            self.play_mark(&mark);
        }
    }

    #[cold]
    fn play_mark(&mut self, mark: &Mark) {
        let tree = self.tree.as_ref();
        let usable = |serial| usable_of(self.calls.as_ref(), &self.carried, serial);
        self.reports.on_mark(mark, &self.ledger, tree, usable);
        if let (Mark::Complete { .. }, Some(left)) = (mark, &mut self.collections_left) {
            *left -= 1;
        }
    }

    /// Notifies the visitor and the reports that a block, which is still in the ledger, is about
    /// to be freed.
    #[cold]
    fn notify_free(&mut self, serial: Serial, by: &Event, visitor: &mut dyn BlockVisitor) {
        let Some(block) = self.ledger.get(Key::from(serial)) else { return };
        if self.wants_frees {
            visitor.on_free(self.block_end(serial, &block, by.time, EndReason::Freed(by.thread)));
        }
        let usable = usable_of(self.calls.as_ref(), &self.carried, serial);
        self.reports.on_free(serial, &block, usable);
        if self.span.wants_freed {
            let count = self.freed.entry((block.stack, block.size, usable)).or_default();
            *count = count.saturating_add(block.weight().0);
        }
    }

    /// Notifies the visitor that no block is live any more.
    pub(super) fn notify_ends(&self, at: Time, reason: EndReason, visitor: &mut dyn BlockVisitor) {
        if self.wants_frees {
            self.ledger
                .blocks()
                .for_each(|(key, block)| visitor.on_free(self.block_end(Serial(key.0), &block, at, reason)));
        }
    }

    fn block_end(&self, serial: Serial, block: &ledger::Block, at: Time, reason: EndReason) -> BlockEnd {
        let call = self.calls.as_ref().and_then(|calls| calls.get(&serial));
        let call = call.map(|call| (call.thread, call.time));
        let amount = Amount::of_block(block.size, block.weight());
        BlockEnd { image: self.image, serial, at, call, amount, group: block.stack, reason }
    }

    /// Prefetches the memory that an event will need.
    #[inline]
    fn prefetch(&self, event: &EventKind) {
        let freed = |block: &FreedBlock| {
            if let FreedBlock::Known(serial) = *block {
                self.ledger.prefetch(Key::from(serial));
            }
        };
        match event {
            EventKind::Alloc { serial, .. } => self.ledger.prefetch(Key::from(*serial)),
            EventKind::Free { block } => freed(block),
            EventKind::Realloc { old, serial, .. } => {
                freed(old);
                self.ledger.prefetch(Key::from(*serial));
            }
            EventKind::Reattributed { block, .. } => self.ledger.prefetch(Key::from(*block)),
            EventKind::Failed { .. } => {}
        }
    }

    /// Returns the usable size of the block that the current event allocates, if it was recorded.
    #[inline]
    fn usable_size(&self, event: &Event) -> Option<Bytes> {
        let (EventKind::Alloc { serial, size, .. } | EventKind::Realloc { serial, size, .. }) = event.kind else {
            return None;
        };
        // A pool cuts its blocks itself: the allocator's slop is that of the pool's memory.
        if event.call == Api::PoolAlloc.into() {
            return Some(size);
        }
        let at = serial.0.wrapping_sub(self.chunk_first.0) as usize;
        let in_column = self.usable_by_serial.get(at).and_then(|usable| usable.checked_sub(1)).map(Bytes);
        if self.usable_sizes.is_empty() {
            return in_column;
        }
        let index = (self.position - 1) as u32;
        let in_extras = self.usable_sizes.binary_search_by_key(&index, |(at, _)| *at).ok();
        in_extras.map(|at| self.usable_sizes[at].1).or(in_column)
    }

    fn play_event(
        &mut self,
        session: &mut ledger::Session,
        visitor: &mut dyn BlockVisitor,
        event: &Event,
    ) -> Result<(), Error> {
        if (self.span.wants_freed || self.wants_frees || !self.reports.is_empty())
            && let EventKind::Free { block: FreedBlock::Known(old) }
            | EventKind::Realloc { old: FreedBlock::Known(old), .. } = event.kind
        {
            self.notify_free(old, event, visitor);
        }
        let usable = self.usable_size(event);
        if let Some(calls) = &mut self.calls {
            update_calls(calls, event, usable);
        }
        let thread = ThreadId(event.thread.0.min(THREADS_MAX));
        // A reattribution is not a call of a thread.
        if !matches!(event.kind, EventKind::Reattributed { .. }) {
            self.count_thread(thread);
        }
        if event.sampled.after_unsampled {
            self.ledger.end_thread(thread);
        }
        let (image, rate) = (self.image, event.sampled.rate);
        let call = Some((event.thread, event.time));
        let origin = |serial, size, stack| Origin { image, serial, call, size, rate, stack, usable };
        match event.kind {
            EventKind::Alloc { serial, size, stack }
            | EventKind::Realloc { old: FreedBlock::None, serial, size, stack } => {
                if serial >= self.first {
                    let group = visitor.on_alloc(origin(serial, size, stack));
                    self.allocate(session, (event.time, thread), serial, ledger::Sampled { size, rate }, group)?;
                }
            }
            EventKind::Free { block } => {
                let key = self.freed(event.time, block);
                if event.call == Api::PoolBack.into() {
                    self.ledger.withdraw(session, thread, key);
                } else {
                    self.ledger.free(session, thread, key);
                }
            }
            EventKind::Realloc { old: FreedBlock::Unknown, serial, size, stack } if self.is_sample => {
                if serial >= self.first {
                    let (stack, time) = (visitor.on_alloc(origin(serial, size, stack)), ledger::Time(event.time.0));
                    self.ledger.set_next_serial(serial);
                    let (size, key) = (ledger::Sampled { size, rate }, Key::from(serial));
                    let _ = self.ledger.reallocate_unsampled(session, time, thread, key, size, stack)?;
                }
            }
            EventKind::Realloc { old, serial, size, stack } => {
                if serial >= self.first {
                    let key = self.freed(event.time, old);
                    let pending = self.ledger.begin_realloc(thread, key);
                    let stack = visitor.on_alloc(origin(serial, size, stack));
                    let (time, size) = (ledger::Time(event.time.0), ledger::Sampled { size, rate });
                    self.ledger.set_next_serial(serial);
                    let _ = self.ledger.finish_realloc(session, time, pending, Key::from(serial), size, stack)?;
                }
            }
            EventKind::Failed { .. } => self.ledger.fail(),
            EventKind::Reattributed { block, stack } => {
                self.reattribute(session, visitor, event.time, (block, stack))?;
            }
        }
        Ok(())
    }

    /// Counts a live block under the group of another stack.
    #[inline]
    fn reattribute(
        &mut self,
        session: &mut ledger::Session,
        visitor: &mut dyn BlockVisitor,
        time: Time,
        (block, stack): (Serial, StackId),
    ) -> Result<(), Error> {
        let Some(live) = self.ledger.get(Key::from(block)) else { return Ok(()) };
        let call = self.calls.as_ref().and_then(|calls| calls.get(&block));
        let is_stamp = self.is_stamp(self.stack_of(block), stack);
        let by = call.map(|call| (call.thread, call.time));
        if self.wants_frees {
            visitor.on_free(self.block_end(block, &live, time, EndReason::Reattributed));
        }
        let to = visitor.on_alloc(Origin {
            image: self.image,
            serial: block,
            call: by,
            size: live.size,
            rate: live.rate,
            stack,
            usable: usable_of(self.calls.as_ref(), &self.carried, block),
        });
        let (ledger, key) = (&mut self.ledger, Key::from(block));
        let _ =
            if is_stamp { ledger.stamp_block(session, key, to) } else { ledger.reattribute_block(session, key, to) }?;
        if let Some(call) = self.calls.as_mut().and_then(|calls| calls.get_mut(&block)) {
            call.stack = stack;
        } else if let Some(carried) = self.carried.get_mut(&block) {
            carried.0 = stack;
        }
        Ok(())
    }

    /// Returns the stack that a live block is attributed to; `None` if it is not known.
    fn stack_of(&self, block: Serial) -> Option<StackId> {
        let call = self.calls.as_ref().and_then(|calls| calls.get(&block));
        call.map(|call| call.stack).or_else(|| self.carried.get(&block).map(|(stack, _)| *stack))
    }

    /// True if a block is reattributed because the program stamped it. It then counts as if it had
    /// been allocated with the stamp.
    fn is_stamp(&self, from: Option<StackId>, to: StackId) -> bool {
        let node =
            |stack| self.tree.as_ref().and_then(|tree| tree.get(stack)).filter(|node| node.kind == NodeKind::Stamp);
        let Some(to) = node(to) else { return false };
        from.is_none_or(|from| node(from).map_or(from, |stamp| stamp.parent) == to.parent)
    }

    fn allocate(
        &mut self,
        session: &mut ledger::Session,
        (time, thread): (Time, ThreadId),
        serial: Serial,
        size: ledger::Sampled,
        stack: StackId,
    ) -> Result<(), Error> {
        self.ledger.set_next_serial(serial);
        // A block under the same serial is there only if the file is damaged; the ledger has then
        // freed it.
        let _ = self.ledger.allocate(session, ledger::Time(time.0), thread, Key::from(serial), size, stack)?;
        Ok(())
    }

    /// Returns the key of the block that the current event frees. Counts the frees of blocks that
    /// the ledger does not know.
    fn freed(&mut self, time: Time, block: FreedBlock) -> Key {
        match block {
            FreedBlock::Known(serial) => return Key::from(serial),
            FreedBlock::Inherited => {
                let index = (self.position - 1) as u32;
                let known = self.freed_sizes.binary_search_by_key(&index, |(at, ..)| *at);
                let (_, size, blocks) = known.map_or((index, Bytes(0), Blocks(1)), |at| self.freed_sizes[at]);
                let counts = &mut self.counts;
                counts.frees_inherited.0 = counts.frees_inherited.0.saturating_add(blocks.0);
                counts.blocks_inherited_live_end.0 = counts.blocks_inherited_live_end.0.saturating_sub(blocks.0);
                let bytes = &mut counts.bytes_inherited_live_end.0;
                *bytes = bytes.saturating_sub(size.0.saturating_mul(blocks.0));
            }
            FreedBlock::Unknown if self.is_sample => {}
            _ if time >= self.paused_from => self.counts.frees_paused.0 += 1,
            FreedBlock::Unknown | FreedBlock::None => self.counts.frees_unknown.0 += 1,
        }
        NO_BLOCK
    }

    fn count_thread(&mut self, thread: ThreadId) {
        let at = thread.0 as usize;
        if at >= self.threads.len() {
            self.threads.resize(at + 1, false);
        }
        self.counts.threads += u64::from(!std::mem::replace(&mut self.threads[at], true));
    }

    pub(super) fn finish(self, session: &ledger::Session) -> ReplayedImage {
        let mut counts = self.counts;
        counts.enter_ledger(self.ledger.counts(), self.ledger.live(), self.ledger.variances());
        let mut sites: Vec<Site> = self.ledger.sites(session).map(Site::from).collect();
        sites.sort_unstable_by_key(|site| site.stack);
        let session_peak = session.live().bytes_live_max;
        let blocks = self.blocks();
        let timeline = self.timeline.finish();
        let (image, ended, reports, freed) = (self.image, self.ended, self.reports, self.freed);
        ReplayedImage { image, ended, counts, sites, blocks, reports, freed, timeline, session_peak }
    }

    fn blocks(&self) -> Vec<ReplayedBlock> {
        if !self.span.wants_blocks || (self.ended && !self.span.reaches_the_end()) {
            return Vec::new();
        }
        let block = |(key, block): (Key, ledger::Block)| {
            let serial = Serial(key.0);
            let usable = usable_of(self.calls.as_ref(), &self.carried, serial);
            let (rate, weight) = (block.rate, block.weight());
            ReplayedBlock { serial, size: block.size, rate, weight, usable, group: block.stack }
        };
        self.ledger.blocks().map(block).collect()
    }
}

/// The call that allocated a live block.
#[derive(Clone, Copy)]
struct AllocationCall {
    thread: ThreadId,
    time: Time,
    /// The stack that the block is attributed to.
    stack: StackId,
    /// Its usable size, if it was recorded.
    usable: Option<Bytes>,
}

/// Returns the usable size of a live block, if it was recorded.
fn usable_of(
    calls: Option<&EventMap<Serial, AllocationCall>>,
    carried: &EventMap<Serial, (StackId, Option<Bytes>)>,
    serial: Serial,
) -> Option<Bytes> {
    match calls.and_then(|calls| calls.get(&serial)) {
        Some(call) => call.usable,
        None => carried.get(&serial).and_then(|(_, usable)| *usable),
    }
}

/// Updates the calls that allocated the live blocks.
fn update_calls(calls: &mut EventMap<Serial, AllocationCall>, event: &Event, usable: Option<Bytes>) {
    if let EventKind::Free { block: FreedBlock::Known(old) } | EventKind::Realloc { old: FreedBlock::Known(old), .. } =
        event.kind
    {
        calls.remove(&old);
    }
    if let EventKind::Alloc { serial, stack, .. } | EventKind::Realloc { serial, stack, .. } = event.kind {
        calls.insert(serial, AllocationCall { thread: event.thread, time: event.time, stack, usable });
    }
}

/// Adds the live amount to a timeline. A damaged file may have times that go backwards.
pub(super) fn add_to_timeline(timeline: &mut Timeline, time: Time, live: ledger::Live) {
    timeline.add(time.max(timeline.last_time()), live.into());
}

/// Returns the counts of an image that events do not tell.
fn recorded_counts(recording: &Recording<'_>, image: ImageId) -> Counts {
    let start = recording.image(image);
    let recorded = recording.image_counts(image).copied().unwrap_or_default();
    Counts {
        blocks_inherited_live_end: start.map_or(Blocks(0), |start| start.inherited_blocks),
        bytes_inherited_live_end: start.map_or(Bytes(0), |start| start.inherited_bytes),
        events_lost: recorded.events_lost,
        events_lost_full: recorded.events_lost_full,
        events_lost_nested: recorded.events_lost_nested,
        events_lost_no_ring: recorded.events_lost_no_ring,
        events_lost_unreadable: recorded.events_lost_unreadable,
        events_lost_pools: recorded.events_lost_pools,
        frees_missed: recorded.frees_missed,
        events_late: recorded.events_late,
        events_reordered: recorded.events_reordered,
        stamps_unknown: recorded.stamps_unknown,
        stacks: recorded.stacks,
        ..Counts::default()
    }
}
