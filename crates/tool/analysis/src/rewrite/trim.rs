//! Cuts a part of a recording's time out.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::RangeInclusive;

use heapledger_core::{Api, Blocks, Bytes, Serial, StackId};
use heapledger_recording::{
    AnnotationsEncoder, Checkpoint, CheckpointEncoder, Compressor, Counts, Damage, Event, EventChunk, EventKind,
    EventsBuffer, EventsEncoder, Extras, Footer, FreedBlock, ImageCounts, ImageEnd, ImageEndReason, ImageStart, Live,
    LiveBlock, MappingEvent, Mark, MarkedBlocks, MemoryEncoder, Module, ModuleId, Node, NodeCache, Record, Recording,
    RecordingError, ResidentEncoder, Session, StackTree, TextId, Time,
};

use super::{Draft, Error, mappings};
use crate::error::Error as AnalysisError;
use crate::events::expect_events;
use crate::progress::Progress;

/// Writes the events of a part of the time, both ends included, into a draft that is then to be
/// [counted](Draft::count_and_finish). Returns the footer to finish it with, and the damage that
/// opening the recording did not find.
///
/// The new recording begins in mid-run: the blocks that are live when its time begins are in it as
/// carried blocks, with the stacks that allocated them. Times, serials and ids of stacks, threads,
/// images and modules are those of the session. Images that ended before this time or began after
/// it are left out. It is not known when lost events were lost, so their numbers are those of the
/// whole recording. Chunks of a newer version are left out.
///
/// Memory: an entry of 24 bytes in a B-tree for each block of one image that is live at once, and
/// the image's nodes.
pub fn trim<W: Write>(
    recording: &Recording<'_>,
    part: RangeInclusive<Time>,
    draft: &mut Draft<W>,
    progress: Progress<'_>,
) -> Result<(Footer, Vec<Damage>), Error> {
    expect_events(recording)?;
    let (from, to) = (*part.start(), *part.end());
    let ran = |start: &&ImageStart| {
        let end = recording.image_end(start.image).map(|end| end.time);
        start.time <= to && end.is_none_or(|end| end >= from)
    };
    let images: Vec<&ImageStart> = recording.images().iter().filter(ran).collect();
    draft.begin(recording.is_sample());
    let descriptions = descriptions(recording, from, &images);
    draft.records(&descriptions)?;
    let modules: BTreeSet<ModuleId> = descriptions.iter().filter_map(module).collect();

    let all = images.iter().flat_map(|start| recording.event_chunks(start.image));
    let mut events = (0, all.map(|chunk| u64::from(chunk.head().rows)).sum());
    let mut damage = Vec::new();
    let mut cache = NodeCache::default();
    let mut texts = BTreeSet::new();
    for start in images {
        let mut cut = Trimmer::new(recording, start, (from, to));
        cut.events(draft, &mut |done| {
            events.0 += done;
            progress(events.0, events.1);
        })?;
        let changes = cut.mappings();
        let mut snapshots = recording.resident_snapshots(start.image);
        snapshots.rows.retain(|snapshot| part.contains(&snapshot.time));
        cut.stacks.extend(snapshots.rows.iter().flat_map(|snapshot| &snapshot.sites).map(|site| site.stack));
        cut.damage.append(&mut snapshots.damage);
        cut.nodes(draft, &mut cache)?;
        mappings::write(start.image, changes, draft)?;
        for snapshot in &snapshots.rows {
            draft.put(|compressor| ResidentEncoder::encode(start.image, snapshot, compressor))?;
        }
        cut.annotations(draft)?;
        let memory = recording.memory(start.image);
        cut.damage.extend(memory.damage);
        let samples: Vec<_> = memory.rows.into_iter().filter(|sample| part.contains(&sample.time)).collect();
        draft.put(|compressor| MemoryEncoder::encode(start.image, &samples, compressor))?;
        damage.append(&mut cut.damage);
        texts.append(&mut cut.texts);
    }
    let texts = texts.into_iter().filter_map(|text| recording.text(text)).cloned().map(Record::Text);
    draft.records(&texts.collect::<Vec<_>>())?;
    let mut names = recording.names();
    draft.names(&names.iter().filter(|place| modules.contains(&place.module)).collect::<Vec<_>>())?;
    draft.extents(&names.extents().filter(|extent| modules.contains(&extent.module)).collect::<Vec<_>>())?;
    damage.append(&mut names.damage);
    let exit = recording.footer().filter(|footer| footer.time <= to).and_then(|footer| footer.exit);
    let complete = recording.complete() && damage.is_empty();
    Ok((Footer { time: to, complete, exit, ..Footer::default() }, damage))
}

/// Returns the records of the session and of the modules of these images.
fn descriptions(recording: &Recording<'_>, from: Time, images: &[&ImageStart]) -> Vec<Record> {
    let begins = recording.session().map_or(Time(0), |session| session.begins).max(from);
    let session = recording.session().map(|session| Session { begins, segment: 0, ..session.clone() });
    let mut records: Vec<Record> = session.map(Record::Session).into_iter().collect();
    records.extend(recording.pauses().iter().copied().map(Record::Pause));
    records.extend(recording.sampling().iter().copied().map(Record::Sampling));
    let mapped: BTreeSet<ModuleId> =
        images.iter().flat_map(|start| recording.mappings(start.image)).map(|mapping| mapping.module).collect();
    let named: BTreeSet<ModuleId> = recording.imported_locations().iter().map(|place| place.module).collect();
    let is_kept = |module: &&Module| mapped.contains(&module.module) || named.contains(&module.module);
    records.extend(recording.modules().iter().filter(is_kept).cloned().map(Record::Module));
    records.extend(recording.imported_locations().iter().cloned().map(Record::ImportedLocation));
    records
}

fn module(record: &Record) -> Option<ModuleId> {
    match record {
        Record::Module(module) => Some(module.module),
        _ => None,
    }
}

/// An image whose part of the time is being cut out.
struct Trimmer<'r, 'a> {
    recording: &'r Recording<'a>,
    start: &'r ImageStart,
    from: Time,
    to: Time,
    /// The live blocks by serial; a B-tree, because a checkpoint lists them in order.
    live: BTreeMap<Serial, LiveBlock>,
    live_sum: Live,
    /// The marks of reporters before the part begins.
    marked: MarkedBlocks,
    /// The image's stacks, by which reporters are identified; loaded when needed.
    tree: Option<StackTree>,
    inherited: Live,
    next_serial: Serial,
    has_begun: bool,
    stacks: BTreeSet<StackId>,
    /// The texts that its nodes refer to.
    texts: BTreeSet<TextId>,
    damage: Vec<Damage>,
}

impl<'r, 'a> Trimmer<'r, 'a> {
    fn new(recording: &'r Recording<'a>, start: &'r ImageStart, (from, to): (Time, Time)) -> Trimmer<'r, 'a> {
        let inherited = Live { bytes: start.inherited_bytes, blocks: start.inherited_blocks };
        Trimmer {
            recording,
            start,
            from,
            to,
            live: BTreeMap::new(),
            live_sum: Live::default(),
            marked: MarkedBlocks::default(),
            tree: None,
            inherited,
            next_serial: Serial(0),
            has_begun: false,
            stacks: BTreeSet::new(),
            texts: BTreeSet::new(),
            damage: Vec::new(),
        }
    }

    /// True if the image began before the part.
    fn is_carried(&self) -> bool {
        self.start.time < self.from
    }

    fn events<W: Write>(&mut self, draft: &mut Draft<W>, done: &mut dyn FnMut(u64)) -> Result<(), Error> {
        let (recording, image) = (self.recording, self.start.image);
        let carried = recording.carried(image);
        // Checkpoints do not have marks.
        let has_marks = recording.event_chunks(image).any(|chunk| chunk.head().marks > 0);
        let checkpoint = recording.checkpoint_before(image, self.from).filter(|_| !has_marks).or(carried);
        let chunks = match checkpoint.filter(|checkpoint| self.resume(checkpoint)) {
            Some(checkpoint) => checkpoint.event_chunks_after().map(|chunk| chunk.entry().offset).min(),
            None => Some(0),
        };
        let first = chunks.unwrap_or(u64::MAX);
        let mut buffer = EventsBuffer::default();
        for chunk in recording.event_chunks(image) {
            done(chunk.head().rows.into());
            if chunk.entry().offset < first || chunk.head().time_first > self.to {
                continue;
            }
            match self.chunk(&chunk, &mut buffer, draft) {
                Err(Error::Analysis(AnalysisError::Recording(RecordingError::Damaged(found)))) => {
                    self.damage.push(found)
                }
                other => other?,
            }
        }
        self.begin(draft)
    }

    /// Restores the live blocks of a checkpoint. Returns false if it could not be read.
    fn resume(&mut self, checkpoint: &Checkpoint<'_>) -> bool {
        let mut blocks: Vec<LiveBlock> = Vec::with_capacity(checkpoint.len());
        if let Err(error) = checkpoint.for_each_part(|part| blocks.extend_from_slice(part)) {
            if let RecordingError::Damaged(found) = error {
                self.damage.push(found);
            }
            return false;
        }
        for block in blocks {
            self.enter(block);
        }
        self.next_serial = checkpoint.next_serial();
        let counts = checkpoint.counts();
        self.inherited = Live { bytes: counts.bytes_inherited_live_end, blocks: counts.blocks_inherited_live_end };
        true
    }

    fn chunk<W: Write>(
        &mut self,
        chunk: &EventChunk<'_>,
        buffer: &mut EventsBuffer,
        draft: &mut Draft<W>,
    ) -> Result<(), Error> {
        let events = chunk.decode(buffer)?;
        // After a missing chunk, serials do not follow on.
        self.next_serial = chunk.head().serial_first;
        // A chunk that is made from one chunk with the same ticks has the same times.
        let mut encoder = None;
        let (mut marks, mut time) = (events.marks().iter().peekable(), chunk.head().time_first);
        let all = events.as_slice().iter().map(Some).chain([None]);
        for (index, event) in all.enumerate() {
            while let Some((_, mark)) = marks.next_if(|(at, _)| *at as usize == index) {
                self.mark(mark, time, chunk, &mut encoder, draft)?;
            }
            let Some(event) = event.filter(|event| event.time <= self.to) else { break };
            time = event.time;
            let extras = events.extras(index);
            if event.time < self.from {
                self.play(event, &extras);
                continue;
            }
            self.begin(draft)?;
            let encoder = encoder.get_or_insert_with(|| self.encoder(chunk));
            self.play(event, &extras);
            self.stacks.extend(stack_of(event));
            if encoder.is_full() {
                draft.put(|compressor| Ok(encoder.finish(compressor)))?;
            }
            encoder.push(event, &extras, self.live_sum)?;
        }
        let finished = |compressor: &mut Compressor| Ok(encoder.and_then(|mut encoder| encoder.finish(compressor)));
        draft.put(finished)
    }

    /// Returns an encoder for the events of a chunk that are in the part.
    fn encoder(&self, chunk: &EventChunk<'_>) -> EventsEncoder {
        let encoder = EventsEncoder::new(self.start.image).with_tick_ns(chunk.head().tick_ns);
        encoder.starting_at(self.next_serial, self.live_sum)
    }

    /// Applies or copies a mark that follows an event of this time.
    fn mark<W: Write>(
        &mut self,
        mark: &Mark,
        time: Time,
        chunk: &EventChunk<'_>,
        encoder: &mut Option<EventsEncoder>,
        draft: &mut Draft<W>,
    ) -> Result<(), Error> {
        let time = if let Mark::Complete { time } = *mark { time } else { time };
        if time > self.to {
            return Ok(());
        }
        if time < self.from {
            let tree =
                self.tree.get_or_insert_with(|| self.recording.stack_tree(self.start.image, &mut NodeCache::default()));
            let reporter = |by| tree.get(by).and_then(Node::text);
            self.marked.apply(mark, |one, other| reporter(one) == reporter(other));
            return Ok(());
        }
        self.begin(draft)?;
        if let Mark::Reported { by, .. } | Mark::Removed { by, .. } = *mark {
            self.stacks.insert(by);
        }
        let encoder = encoder.get_or_insert_with(|| self.encoder(chunk));
        if encoder.is_full() {
            draft.put(|compressor| Ok(encoder.finish(compressor)))?;
        }
        Ok(encoder.push_mark(time, mark)?)
    }

    /// Repeats the marks that hold when the part begins.
    fn marks<W: Write>(&mut self, draft: &mut Draft<W>) -> Result<(), Error> {
        let mut encoder = EventsEncoder::new(self.start.image).starting_at(self.next_serial, self.live_sum);
        for mark in std::mem::take(&mut self.marked).as_marks() {
            if let Mark::Reported { by, .. } = mark {
                self.stacks.insert(by);
            }
            if encoder.is_full() {
                draft.put(|compressor| Ok(encoder.finish(compressor)))?;
            }
            encoder.push_mark(self.from, &mark)?;
        }
        draft.put(|compressor| Ok(encoder.finish(compressor)))
    }

    /// Begins the part: writes the state of the image at this point.
    fn begin<W: Write>(&mut self, draft: &mut Draft<W>) -> Result<(), Error> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Ok(());
        }
        let (image, is_carried) = (self.start.image, self.is_carried());
        draft.records(&self.records())?;
        if !is_carried {
            return Ok(());
        }
        let blocks: Vec<LiveBlock> = self.live.values().copied().collect();
        self.stacks.extend(blocks.iter().map(|block| block.stack));
        let Live { bytes, blocks: live_blocks } = self.live_sum;
        let counts = Counts {
            bytes_live_max: bytes,
            bytes_live_max_time: self.from,
            blocks_at_bytes_max: live_blocks,
            blocks_live_max: live_blocks,
            bytes_live_end: bytes,
            blocks_live_end: live_blocks,
            bytes_inherited_live_end: self.inherited.bytes,
            blocks_inherited_live_end: self.inherited.blocks,
            ..Counts::default()
        };
        let encoder = CheckpointEncoder::new(image, self.from, self.next_serial, counts);
        draft.put(|compressor| encoder.encode(&blocks, compressor))?;
        self.marks(draft)
    }

    fn records(&self) -> Vec<Record> {
        let (recording, image) = (self.recording, self.start.image);
        let mut records = vec![Record::ImageStart(ImageStart {
            carried: self.is_carried().then_some(self.live_sum),
            inherited_bytes: self.inherited.bytes,
            inherited_blocks: self.inherited.blocks,
            // All its nodes are copied, because those of its parent may not be in the recording.
            fork_node_base: StackId::ROOT,
            ..self.start.clone()
        })];
        let mappings = recording.mappings(image).iter().filter(|mapping| mapping.time <= self.to);
        records.extend(mappings.copied().map(Record::Mapping));
        let threads = recording.threads(image).iter();
        let threads = threads.filter(|thread| thread.start <= self.to && thread.end.is_none_or(|end| end >= self.from));
        records.extend(threads.cloned().map(Record::Thread));
        let end = recording.image_end(image).filter(|end| end.time <= self.to).copied();
        let detached = ImageEnd { image, time: self.to, reason: ImageEndReason::Detached, exit: None };
        records.push(Record::ImageEnd(end.unwrap_or(detached)));
        let departures = recording.departures().iter().filter(|departure| departure.image == image);
        let departures = departures.filter(|departure| departure.time >= self.from && departure.time <= self.to);
        records.extend(departures.cloned().map(Record::Departure));
        let lost = recording.image_counts(image).filter(|counts| counts.events_lost > 0);
        records.extend(lost.map(|counts| {
            let counts = Counts {
                events_lost: counts.events_lost,
                events_lost_full: counts.events_lost_full,
                events_lost_nested: counts.events_lost_nested,
                events_lost_no_ring: counts.events_lost_no_ring,
                events_lost_unreadable: counts.events_lost_unreadable,
                events_lost_pools: counts.events_lost_pools,
                ..Counts::default()
            };
            Record::ImageCounts(ImageCounts { image, counts })
        }));
        records
    }

    /// Applies an event to the live blocks.
    fn play(&mut self, event: &Event, extras: &Extras) {
        match event.kind {
            EventKind::Alloc { serial, size, stack } => {
                // A pool's block has no more bytes than were requested.
                let usable = if event.call == Api::PoolAlloc.into() { Some(size) } else { extras.usable };
                self.enter(LiveBlock { serial, size, stack, rate: event.sampled.rate, usable });
            }
            EventKind::Free { block } => self.release(block, extras),
            EventKind::Realloc { old, serial, size, stack } => {
                self.release(old, extras);
                self.enter(LiveBlock { serial, size, stack, rate: event.sampled.rate, usable: extras.usable });
            }
            EventKind::Failed { .. } => {}
            EventKind::Reattributed { block, stack } => {
                if let Some(LiveBlock { stack: now, .. }) = self.live.get_mut(&block) {
                    *now = stack;
                }
            }
        }
    }

    fn enter(&mut self, block: LiveBlock) {
        let LiveBlock { serial, size, rate, .. } = block;
        self.live.insert(serial, block);
        let blocks = rate.weight(size, serial);
        self.live_sum.bytes.0 = self.live_sum.bytes.0.saturating_add(size.0.saturating_mul(blocks));
        self.live_sum.blocks.0 = self.live_sum.blocks.0.saturating_add(blocks);
        self.next_serial = Serial(serial.0 + 1);
    }

    fn release(&mut self, block: FreedBlock, extras: &Extras) {
        match block {
            FreedBlock::Known(serial) => {
                self.marked.free(serial);
                if let Some(LiveBlock { size, rate, .. }) = self.live.remove(&serial) {
                    let blocks = rate.weight(size, serial);
                    let bytes = self.live_sum.bytes.0.saturating_sub(size.0.saturating_mul(blocks));
                    (self.live_sum.bytes, self.live_sum.blocks) =
                        (Bytes(bytes), Blocks(self.live_sum.blocks.0.saturating_sub(blocks)));
                }
            }
            FreedBlock::Inherited => {
                let (size, blocks) = (extras.freed_size.unwrap_or_default(), extras.weight.map_or(1, |it| it.0));
                let bytes = size.0.saturating_mul(blocks);
                self.inherited.bytes.0 = self.inherited.bytes.0.saturating_sub(bytes);
                self.inherited.blocks.0 = self.inherited.blocks.0.saturating_sub(blocks);
            }
            FreedBlock::Unknown | FreedBlock::None => {}
        }
    }

    /// Writes the nodes that the stacks of the part need.
    fn nodes<W: Write>(&mut self, draft: &mut Draft<W>, cache: &mut NodeCache) -> Result<(), Error> {
        let tree = self.recording.stack_tree(self.start.image, cache);
        self.damage.extend(tree.damage().copied());
        let mut nodes: BTreeMap<StackId, Node> = BTreeMap::new();
        for &stack in &self.stacks {
            let mut open = vec![stack];
            while let Some(id) = open.pop() {
                if let Some(node) = tree.get(id)
                    && nodes.insert(id, *node).is_none()
                {
                    open.push(node.parent);
                    open.extend(tree.path(id).next().map(|scope| scope.id));
                }
            }
        }
        self.texts.extend(nodes.values().filter_map(Node::text));
        draft.nodes(self.start.image, nodes.into_values())
    }

    /// Returns the changes of mappings, whose stacks are then among those of the part.
    fn mappings(&mut self) -> Vec<MappingEvent> {
        let events = mappings::all(self.recording, self.start.image, &mut self.damage);
        let events = mappings::of_part(events, &(self.from..=self.to));
        self.stacks.extend(events.iter().map(|event| event.stack));
        self.texts.extend(events.iter().filter_map(MappingEvent::file));
        events
    }

    fn annotations<W: Write>(&mut self, draft: &mut Draft<W>) -> Result<(), Error> {
        let mut encoder = AnnotationsEncoder::new(self.start.image);
        for annotation in self.recording.annotations(self.start.image) {
            match annotation {
                Ok(annotation) if (self.from..=self.to).contains(&annotation.time) => {
                    if encoder.is_full() {
                        draft.put(|compressor| Ok(encoder.finish(compressor)))?;
                    }
                    encoder.push(&annotation)?;
                }
                Ok(_) => {}
                Err(RecordingError::Damaged(found)) => self.damage.push(found),
                Err(error) => return Err(error.into()),
            }
        }
        draft.put(|compressor| Ok(encoder.finish(compressor)))
    }
}

/// Returns the stack of an event that has one.
fn stack_of(event: &Event) -> Option<StackId> {
    match event.kind {
        EventKind::Alloc { stack, .. }
        | EventKind::Realloc { stack, .. }
        | EventKind::Failed { stack, .. }
        | EventKind::Reattributed { stack, .. } => Some(stack),
        EventKind::Free { .. } => None,
    }
}
