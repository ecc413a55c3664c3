//! The state of one process image: its ledger, its part of the file, its threads.

use std::collections::HashMap;

use heapledger_core::sample::Rate;
use heapledger_core::{Api, Blocks, Bytes, StackId, ThreadId};
use heapledger_ledger::{
    self as ledger, Allocated, Block, Freed, Key, Ledger, OutOfMemory, Pending, SiteVariances, Variance, Variances,
};
use heapledger_recording::{
    Annotation, AnnotationsEncoder, Call, CheckpointEncoder, Compressor, CountErrors, Counts, Event as FileEvent,
    EventKind, EventsEncoder, Extras, FreedBlock, ImageCounts, ImageEnd, ImageEndReason, ImageId, ImageStart, Live,
    LiveBlock, Mapping, Mark, ModuleId, Node, NodesEncoder, Record, Reported, Sampled, Site, SiteErrors, StackCounts,
    TextId, Thread as ThreadRecord, Time, Timeline,
};
use heapledger_wire::event::{Corrupt, Event, Extended, ReallocOutcome, code};

use crate::departures::{Announced, Departures};
use crate::error::RecordError;
use crate::forks::{ForkPoint, Forks};
use crate::lost::Lost;
use crate::memory::{Prober, Samples};
use crate::stamps::AddressIndex;
use crate::texts::Texts;
use crate::tree::{self, Modules, NewNode, Tree};
use crate::writer::{Job, Writer};

mod marks;

use marks::Reports;

/// The state that all images share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) session: heapledger_ledger::Session,
    pub(crate) modules: Modules,
    pub(crate) texts: Texts,
    pub(crate) forks: Forks,
    pub(crate) timeline: Timeline,
    pub(crate) compressor: Compressor,
    pub(crate) writer: Writer,
    /// The programs that may run unrecorded.
    pub(crate) departures: Departures,
    /// The metadata that are not written yet.
    pub(crate) records: Vec<Record>,
    /// True if nodes are needed again for further files.
    pub(crate) keeps_nodes: bool,
    /// True if events go to the file, not only to the ledgers.
    pub(crate) keeps_events: bool,
    /// The number of events so far.
    pub(crate) events: u64,
    /// True if the recording is of a sample; frees of unknown blocks are then not recorded.
    pub(crate) is_sample: bool,
    /// The time when recording was paused for the first time; later frees of unknown blocks are
    /// attributed to the pause.
    pub(crate) paused_from: Option<Time>,
    /// The error that ends the recording.
    pub(crate) failure: Option<RecordError>,
}

impl Shared {
    pub(crate) fn fail(&mut self, error: RecordError) {
        self.failure.get_or_insert(error);
    }

    /// Sends the metadata gathered so far to the file.
    pub(crate) fn flush_records(&mut self) {
        if !self.records.is_empty() {
            let records = std::mem::take(&mut self.records);
            self.writer.send(Job::Records(records));
        }
    }
}

/// External counters of an image: counts that are not in its events, but are kept by the program
/// and the collector elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExternalCounters {
    pub(crate) lost: Lost,
    pub(crate) stacks: StackCounts,
}

impl ExternalCounters {
    /// Returns the counts since an earlier state.
    fn since(&self, before: &ExternalCounters) -> ExternalCounters {
        let (now, then) = (&self.stacks, &before.stacks);
        let stacks = StackCounts {
            truncated: now.truncated.saturating_sub(then.truncated),
            dropped: now.dropped.saturating_sub(then.dropped),
            verified: now.verified.saturating_sub(then.verified),
            mismatched: now.mismatched.saturating_sub(then.mismatched),
            unasked: now.unasked.saturating_sub(then.unasked),
            outlasting: now.outlasting.saturating_sub(then.outlasting),
            missing: now.missing.saturating_sub(then.missing),
            folded: now.folded.saturating_sub(then.folded),
        };
        ExternalCounters { lost: self.lost.since(before.lost), stacks }
    }
}

/// A thread of an image.
#[derive(Debug)]
struct Thread {
    tid: u32,
    name: [u8; 16],
    start: Time,
    end: Option<Time>,
    /// True if the thread has announced itself; otherwise events on its behalf have introduced it.
    is_announced: bool,
    /// True if the file does not have its latest state.
    is_changed: bool,
    /// Its reallocation that has begun and not ended.
    pending: Option<Pending>,
    /// True if it has made allocations that are not in the sample since its latest event.
    has_unsampled: bool,
}

/// The current owner of a ring, the thread that writes to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingOwner {
    thread: Option<ThreadId>,
    /// The thread that asked for the ring; it counts as the owner until another one is announced.
    tid: u32,
}

impl RingOwner {
    pub(crate) fn new(tid: u32) -> RingOwner {
        RingOwner { thread: None, tid }
    }
}

/// The thread and the time of an event, and its relation to a sample.
#[derive(Clone, Copy)]
struct EventHeader {
    thread: ThreadId,
    time: Time,
    sampled: Sampled,
}

/// The minimum number of events between two checkpoints: a replay from the last one takes about a
/// second.
const CHECKPOINT_EVENTS: u64 = if cfg!(test) { 1 << 20 } else { 1 << 23 };
/// The minimum number of events per block in a checkpoint, so that checkpoints add little to the
/// file.
const CHECKPOINT_EVENTS_PER_BLOCK: u64 = 32;

/// The state of a running image.
#[derive(Debug)]
pub(crate) struct Image {
    id: ImageId,
    executable: Vec<u8>,
    ledger: Ledger,
    pub(crate) tree: Tree,
    events: EventsEncoder,
    nodes: NodesEncoder,
    annotations: AnnotationsEncoder,
    threads: Vec<Thread>,
    /// The numbers of ended threads that are given to new ones. Used only without events, where
    /// this makes no difference.
    free_threads: Vec<ThreadId>,
    threads_seen: u64,
    /// The latest thread with each id.
    by_tid: HashMap<u32, ThreadId>,
    timeline: Timeline,
    memory: Samples,
    /// The time of the first event of the unfinished chunk.
    chunk_time: Time,
    events_since_checkpoint: u64,
    has_forked: bool,
    pub(crate) events_late: u64,
    /// The number of frees that were pulled forward, before an allocation of their address.
    pub(crate) events_reordered: u64,
    frees_paused: Blocks,
    /// The number of blocks whose address was handed out again although their free was not seen.
    frees_missed: Blocks,
    address_index: AddressIndex,
    /// The number of stamps that were not on a live block.
    stamps_unknown: u64,
    reports: Reports,
    /// The external counters at the beginning of this segment.
    external_before: ExternalCounters,
}

impl Image {
    pub(crate) fn new(start: &ImageStart, ledger: Ledger, tree: Tree) -> Image {
        Image {
            id: start.image,
            executable: start.executable.clone(),
            ledger,
            tree,
            events: EventsEncoder::new(start.image),
            nodes: NodesEncoder::new(start.image),
            annotations: AnnotationsEncoder::new(start.image),
            threads: Vec::new(),
            free_threads: Vec::new(),
            threads_seen: 0,
            by_tid: HashMap::new(),
            timeline: Timeline::new(),
            memory: Samples::new(),
            chunk_time: start.time,
            events_since_checkpoint: 0,
            has_forked: false,
            events_late: 0,
            events_reordered: 0,
            frees_paused: Blocks(0),
            frees_missed: Blocks(0),
            address_index: AddressIndex::new(),
            stamps_unknown: 0,
            reports: Reports::new(start.pid),
            external_before: ExternalCounters::default(),
        }
    }

    /// True if the image has announced a fork.
    pub(crate) fn has_forked(&self) -> bool {
        self.has_forked
    }

    /// Returns the ledger for a child that is forked now, if there is memory for it.
    pub(crate) fn fork_ledger(&self) -> Result<Ledger, OutOfMemory> {
        self.ledger.fork()
    }

    /// Prefetches the memory that an event about this address will need.
    #[inline(always)]
    pub(crate) fn prefetch(&self, address: u64, stack: Option<StackId>) {
        self.ledger.prefetch(Key(address));
        if let Some(stack) = stack {
            self.ledger.prefetch_site(stack);
        }
    }

    /// True if an allocation of this address is too early: another thread's free must come first.
    #[inline(always)]
    pub(crate) fn is_too_early(&self, address: u64) -> bool {
        // The events of one thread are in the order in which it wrote them.
        self.threads.len() > 1 && self.ledger.holds(Key(address))
    }

    /// Applies an event. `Err` means that no working recorder would have written it.
    #[inline]
    pub(crate) fn apply(
        &mut self,
        shared: &mut Shared,
        ring_owner: &mut RingOwner,
        time: Time,
        event: &Event<'_>,
    ) -> Result<(), Corrupt> {
        match *event {
            Event::Free { address } => {
                let header = self.header(ring_owner, time);
                self.free(shared, header, Api::Free, address, &Extras::NONE);
            }
            Event::Malloc { address, size, stack } => {
                let header = self.header(ring_owner, time);
                self.allocate(shared, header, Api::Malloc, address, size, stack, &Extras::NONE);
            }
            Event::Calloc { address, size, stack, count, .. } => {
                let header = self.header(ring_owner, time);
                let extras = Extras { count: Some(u64::from(count)), ..Extras::NONE };
                self.allocate(shared, header, Api::Calloc, address, size, stack, &extras);
            }
            Event::ReallocBegin { address } => {
                let header = self.header(ring_owner, time);
                self.begin_realloc(shared, header, address);
            }
            Event::ReallocEnd { address, size, stack } => {
                let header = self.header(ring_owner, time);
                self.finish_realloc(shared, header, Api::Realloc, address, size, stack, &Extras::NONE);
            }
            Event::Node { id, parent, kind, address } => {
                let address = if kind.has_text() { self.text(shared, address) } else { address };
                self.add_node(shared, NewNode { id, parent, kind, address })?;
            }
            Event::Nothing => {}
            Event::Extended { code, payload } => {
                if let Some(event) = Extended::parse(code, payload)? {
                    self.apply_extended(shared, ring_owner, time, &event)?;
                }
            }
        }
        Ok(())
    }

    #[cold]
    fn apply_extended(
        &mut self,
        shared: &mut Shared,
        ring_owner: &mut RingOwner,
        time: Time,
        event: &Extended<'_>,
    ) -> Result<(), Corrupt> {
        let given = |value: u64| (value != 0).then_some(value);
        match *event {
            Extended::Alloc { api, address, size, stack, alignment, count, usable, rate } => {
                let header = self.sampled_header(ring_owner, time, rate);
                let extras = Extras {
                    alignment: given(alignment),
                    count: given(count),
                    usable: given(usable).map(Bytes),
                    ..Extras::NONE
                };
                check_address(address)?;
                self.allocate(shared, header, api, address, size, stack, &extras);
                if api == Api::PoolAlloc {
                    self.address_index.insert(Key(address), Bytes(size));
                }
            }
            Extended::Free { api, address, size, alignment } => {
                let header = self.sampled_header(ring_owner, time, Rate::EXACT);
                let says_size = matches!(api, Api::FreeSized | Api::FreeAlignedSized);
                let extras = Extras {
                    alignment: given(alignment),
                    declared_size: says_size.then_some(Bytes(size)),
                    ..Extras::NONE
                };
                match api {
                    Api::PoolBack => {
                        let key = Key(address);
                        let freed = match shared.is_sample {
                            false => self.ledger.back(&mut shared.session, header.thread, key),
                            // The later free is then one of a block that is no longer in the
                            // sample.
                            true if self.ledger.get(key).is_some() => {
                                self.ledger.withdraw(&mut shared.session, header.thread, key)
                            }
                            true => Freed::Unknown,
                        };
                        self.push_freed(shared, header, api, freed, &extras);
                    }
                    Api::PoolReset => self.reset_pool(shared, header, Key(address).pool()),
                    _ => self.free(shared, header, api, address, &extras),
                }
            }
            Extended::Reattributed { address, stack } => {
                let header = self.header(ring_owner, time);
                self.reattribute_block(shared, header, Key(address), stack);
            }
            Extended::Stamped { address, stamp } => {
                let header = self.header(ring_owner, time);
                self.stamp(shared, header, address, stamp);
            }
            Extended::Marked { address, reporter, stack, is_kept, is_on_stack, is_around, measured } => {
                let header = self.header(ring_owner, time);
                let Some(by) = self.reporter(shared, stack, reporter) else { return Ok(()) };
                let what = if is_around {
                    self.block_of(address).map(Reported::Block)
                } else {
                    self.reported(shared, address, is_on_stack, by)
                };
                if let Some(what) = what {
                    let measured = Bytes(measured);
                    self.push_mark(shared, header.time, &Mark::Reported { what, by, is_kept, measured });
                }
            }
            Extended::Unmarked { address, reporter } => {
                let header = self.header(ring_owner, time);
                self.remove_mark(shared, header, address, reporter);
            }
            Extended::MarksCleared => self.push_mark(shared, time, &Mark::Cleared),
            Extended::MarksComplete => self.push_mark(shared, time, &Mark::Complete { time }),
            Extended::Ignored { address } => {
                let header = self.header(ring_owner, time);
                match self.ledger.ignore(&mut shared.session, Key(address)) {
                    Ok(None) => {}
                    Ok(Some(block)) => {
                        self.frees_missed.0 += block.weight().0;
                        self.push_freed(shared, header, Api::Free, known(block), &Extras::NONE);
                    }
                    Err(OutOfMemory) => shared.fail(RecordError::OutOfMemory),
                }
            }
            Extended::ReallocBegin { address, .. } => {
                let header = self.header(ring_owner, time);
                self.begin_realloc(shared, header, address);
            }
            Extended::ReallocEnd { api, outcome, address, size, stack, count, rate } => {
                let header = self.sampled_header(ring_owner, time, rate);
                let extras = Extras { count: given(count), ..Extras::NONE };
                match outcome {
                    ReallocOutcome::Returned => {
                        check_address(address)?;
                        self.finish_realloc(shared, header, api, address, size, stack, &extras);
                    }
                    ReallocOutcome::Failed => {
                        if let Some(pending) = self.take_pending(header.thread) {
                            self.ledger.cancel_realloc(&mut shared.session, pending);
                        }
                        self.fail(shared, header, api, size, stack, &extras);
                    }
                    ReallocOutcome::Freed => {
                        if let Some(pending) = self.take_pending(header.thread) {
                            let freed = pending.old();
                            if freed != Freed::Unknown || !shared.is_sample {
                                self.forget_latest(header);
                                self.ledger.finish_as_free(&mut shared.session, pending);
                                self.push_freed(shared, header, api, freed, &extras);
                            }
                        }
                    }
                }
            }
            Extended::Failed { api, size, stack, alignment, count } => {
                let header = self.header(ring_owner, time);
                let extras = Extras { alignment: given(alignment), count: given(count), ..Extras::NONE };
                self.fail(shared, header, api, size, stack, &extras);
            }
            Extended::ThreadStart { thread, name } => {
                // A ring that was taken over from a thread that could not announce its end.
                if let Some(before) = ring_owner.thread {
                    self.end_thread(shared, before, time);
                }
                ring_owner.thread = Some(self.start_thread(thread, name, time));
            }
            Extended::ThreadName { name } => {
                let thread = self.thread(ring_owner, time);
                if let Some(thread) = self.threads.get_mut(thread.0 as usize).filter(|thread| thread.name != name) {
                    thread.name = name;
                    thread.is_changed = true;
                }
            }
            Extended::ThreadEnd => {
                let thread = self.thread(ring_owner, time);
                self.end_thread(shared, thread, time);
                ring_owner.thread = None;
            }
            Extended::OnBehalf { thread } => {
                let known = self.by_tid.get(&thread).copied();
                ring_owner.thread = Some(known.unwrap_or_else(|| self.new_thread(thread, [0; 16], false, time)));
            }
            Extended::Fork { sequence } => {
                self.has_forked = true;
                // If there is not enough memory, the child gets the parent's state at the time when
                // it comes.
                if let Ok(ledger) = self.ledger.fork() {
                    let tree = self.tree.snapshot();
                    shared.forks.add(ForkPoint { image: self.id, sequence, time, ledger, tree });
                }
            }
            Extended::Module { start, end, bias, epoch, build_id, path } => {
                let build_id: Vec<u8> = build_id.bytes().collect();
                let path: Vec<u8> = path.bytes().collect();
                let path = if path.is_empty() { &self.executable } else { &path };
                let (module, new) = shared.modules.id(path, &build_id);
                let mapping = Mapping { image: self.id, module, start, end, bias, time };
                shared.records.extend(new.map(Record::Module));
                shared.records.push(Record::Mapping(mapping));
                self.tree.map(mapping, epoch);
            }
            Extended::Exec { process, pid, reason, is_tight, since, path } => {
                let (image, path) = (self.id, path.bytes().collect());
                shared.departures.announce(Announced { image, process, pid, reason, is_tight, since, time, path });
            }
            Extended::ExecFailed { pid } => shared.departures.exec_failed(self.id, pid),
            Extended::Unsampled => {
                let thread = self.thread(ring_owner, time);
                if let Some(thread) = self.threads.get_mut(thread.0 as usize) {
                    thread.has_unsampled = true;
                }
            }
            Extended::Text { address, flags, category, text } => {
                let bytes = text.bytes().collect();
                self.tree.texts.set(&mut shared.texts, address, flags, category, bytes);
            }
            // Annotations of the recorder itself are few.
            Extended::Annotation { code, payload }
                if shared.keeps_events
                    || [code::STACK_MISMATCH, code::UNSEEN_LIBRARY, code::SANDBOX].contains(&code) =>
            {
                let thread = self.thread(ring_owner, time);
                let payload = payload.iter().flat_map(|word| word.to_le_bytes()).collect();
                let annotation = Annotation { image: self.id, thread, time, code: u32::from(code), payload };
                if self.annotations.is_full() {
                    self.flush_annotations(shared);
                }
                if let Err(error) = self.annotations.push(&annotation) {
                    shared.fail(error.into());
                }
            }
            // An event of a newer protocol version. Both sides are built from one version, so this
            // does not happen.
            _ => {}
        }
        Ok(())
    }

    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "an event's fields, passed on in registers")]
    fn allocate(
        &mut self,
        shared: &mut Shared,
        header: EventHeader,
        api: Api,
        address: u64,
        size: u64,
        stack: StackId,
        extras: &Extras,
    ) {
        let (time, key) = (heapledger_ledger::Time(header.time.0), Key(address));
        let (size, session) = (Bytes(size), &mut shared.session);
        let sampled = ledger::Sampled { size, rate: header.sampled.rate };
        match self.ledger.allocate(session, time, header.thread, key, sampled, stack) {
            Ok(Allocated { serial, displaced }) => {
                if let Some(block) = displaced {
                    self.push_displaced(shared, header, block, key);
                }
                if size >= self.address_index.indexed_from {
                    self.address_index.insert(key, size);
                }
                let kind = if api.is_realloc() {
                    EventKind::Realloc { old: FreedBlock::None, serial, size, stack }
                } else {
                    EventKind::Alloc { serial, size, stack }
                };
                self.push(shared, header, api, kind, extras);
            }
            Err(OutOfMemory) => shared.fail(RecordError::OutOfMemory),
        }
    }

    #[inline(always)]
    fn free(&mut self, shared: &mut Shared, header: EventHeader, api: Api, address: u64, extras: &Extras) {
        let freed = if shared.is_sample {
            self.forget_latest(header);
            self.ledger.free_if_known(&mut shared.session, header.thread, Key(address))
        } else {
            self.ledger.free(&mut shared.session, header.thread, Key(address))
        };
        self.push_freed(shared, header, api, freed, extras);
    }

    /// Forgets a thread's latest allocation if others that are not in the sample came after it: the
    /// block that is about to be freed is then not temporary.
    fn forget_latest(&mut self, header: EventHeader) {
        if header.sampled.after_unsampled {
            self.ledger.end_thread(header.thread);
        }
    }

    /// Resets a pool. For readers, this is recorded as a free of each block.
    fn reset_pool(&mut self, shared: &mut Shared, header: EventHeader, pool: u32) {
        let mut all = Vec::new();
        self.ledger.reset_pool(&mut shared.session, header.thread, pool, |freed, live| all.push((freed, live)));
        for (freed, live) in all {
            let (block, freed_size) = name(freed);
            let live = Live { bytes: live.bytes_live, blocks: live.blocks_live };
            let (kind, extras) = (EventKind::Free { block }, Extras { freed_size, ..Extras::NONE });
            self.push_with(shared, header, Api::PoolReset, kind, &extras, live);
        }
    }

    #[inline(always)]
    fn push_freed(&mut self, shared: &mut Shared, header: EventHeader, api: Api, freed: Freed, extras: &Extras) {
        let (block, freed_size) = name(freed);
        match freed {
            Freed::Unknown if shared.is_sample => return,
            Freed::Unknown => self.count_unknown(shared, header),
            Freed::Untracked => return,
            Freed::Known(_) | Freed::Inherited(_) => {}
        }
        let kind = EventKind::Free { block };
        match freed_size {
            None => self.push(shared, header, api, kind, extras),
            Some(_) => {
                let extras = Extras { freed_size, weight: weight(freed), ..*extras };
                self.push(shared, header, api, kind, &extras);
            }
        }
    }

    #[cold]
    fn count_unknown(&mut self, shared: &Shared, header: EventHeader) {
        let is_paused = shared.paused_from.is_some_and(|from| header.time >= from);
        self.frees_paused.0 += u64::from(is_paused);
    }

    fn begin_realloc(&mut self, shared: &mut Shared, header: EventHeader, address: u64) {
        self.cancel_pending(shared, header.thread);
        let pending = self.ledger.begin_realloc(header.thread, Key(address));
        if let Some(thread) = self.threads.get_mut(header.thread.0 as usize) {
            thread.pending = Some(pending);
        }
    }

    /// Cancels a pending reallocation when another one begins: the end of the first was lost, and
    /// its block stays.
    fn cancel_pending(&mut self, shared: &mut Shared, thread: ThreadId) {
        if let Some(pending) = self.take_pending(thread) {
            self.ledger.cancel_realloc(&mut shared.session, pending);
        }
    }

    /// Begins a reallocation before its thread comes to it, because the address is already free for
    /// others.
    pub(crate) fn suspend(&mut self, ring_owner: &mut RingOwner, time: Time, address: u64) -> Pending {
        let header = self.header(ring_owner, time);
        self.ledger.begin_realloc(header.thread, Key(address))
    }

    /// Continues a suspended reallocation when its thread comes to it.
    pub(crate) fn continue_realloc(
        &mut self,
        shared: &mut Shared,
        ring_owner: &mut RingOwner,
        time: Time,
        pending: Pending,
    ) {
        let header = self.header(ring_owner, time);
        self.cancel_pending(shared, header.thread);
        if let Some(thread) = self.threads.get_mut(header.thread.0 as usize) {
            thread.pending = Some(pending);
        }
    }

    fn take_pending(&mut self, thread: ThreadId) -> Option<Pending> {
        self.threads.get_mut(thread.0 as usize)?.pending.take()
    }

    #[expect(clippy::too_many_arguments, reason = "as in `allocate`")]
    fn finish_realloc(
        &mut self,
        shared: &mut Shared,
        header: EventHeader,
        api: Api,
        address: u64,
        size: u64,
        stack: StackId,
        extras: &Extras,
    ) {
        let pending = self.take_pending(header.thread);
        // Without a beginning, this is a reallocation of the null pointer, or of a block that is
        // not in the sample.
        if pending.is_none() && !shared.is_sample {
            return self.allocate(shared, header, api, address, size, stack, extras);
        }
        let freed = pending.as_ref().map_or(Freed::Unknown, Pending::old);
        if freed == Freed::Unknown && !shared.is_sample {
            self.count_unknown(shared, header);
        }
        let (old, freed_size) = name(freed);
        let (time, key) = (ledger::Time(header.time.0), Key(address));
        let size = Bytes(size);
        let sampled = ledger::Sampled { size, rate: header.sampled.rate };
        let thread = header.thread;
        let is_known = freed != Freed::Unknown || !shared.is_sample;
        self.forget_latest(header);
        let session = &mut shared.session;
        let allocated = match pending.filter(|_| is_known) {
            Some(pending) => self.ledger.finish_realloc(session, time, pending, key, sampled, stack),
            None => self.ledger.reallocate_unsampled(session, time, thread, key, sampled, stack),
        };
        match allocated {
            Ok(Allocated { serial, displaced }) => {
                if let Some(block) = displaced {
                    self.push_displaced(shared, header, block, key);
                }
                if size >= self.address_index.indexed_from {
                    self.address_index.insert(key, size);
                }
                let extras = Extras { freed_size, weight: weight(freed), ..*extras };
                self.push(shared, header, api, EventKind::Realloc { old, serial, size, stack }, &extras);
                if let Freed::Known(block) | Freed::Inherited(block) = freed
                    && let (_, Some(stamp)) = self.tree.stamps.parts(block.stack)
                {
                    let to = self.stamped(shared, stack, stamp);
                    self.reattribute(shared, header, key, to, Ledger::stamp_block);
                }
            }
            Err(OutOfMemory) => shared.fail(RecordError::OutOfMemory),
        }
    }

    /// Reattributes a block to another context; it keeps its stamp.
    fn reattribute_block(&mut self, shared: &mut Shared, header: EventHeader, key: Key, stack: StackId) {
        let Some(block) = self.ledger.get(key) else { return };
        let to = match self.tree.stamps.parts(block.stack) {
            (_, Some(stamp)) => self.stamped(shared, stack, stamp),
            (_, None) => stack,
        };
        self.reattribute(shared, header, key, to, Ledger::reattribute_block);
    }

    /// Applies a stamp to the block at, or around, an address.
    fn stamp(&mut self, shared: &mut Shared, header: EventHeader, address: u64, stamp: u64) {
        let stamp = self.tree.texts.get(stamp);
        match self.address_index.find(&self.ledger, address).filter(|_| stamp != TextId::UNKNOWN) {
            Some((key, block)) => {
                let to = self.stamped(shared, block.stack, stamp);
                if to != block.stack {
                    self.reattribute(shared, header, key, to, Ledger::stamp_block);
                }
            }
            // An untracked block is in no total, but it exists.
            None if self.ledger.is_untracked(Key(address)) => {}
            None if shared.is_sample => {}
            None => self.stamps_unknown += 1,
        }
    }

    /// Returns the stack with this stamp.
    fn stamped(&mut self, shared: &mut Shared, stack: StackId, stamp: TextId) -> StackId {
        let (stack, node) = self.tree.stamps.stamped(stack, stamp);
        if let Some(node) = node {
            shared.records.extend(shared.texts.use_text(stamp).map(Record::Text));
            self.write_node(shared, tree::to_node(node, ModuleId::UNKNOWN, node.address));
        }
        stack
    }

    /// Reattributes a block to another stack. Recorded only if the recording has the block's
    /// allocation: not for blocks that are inherited or untracked.
    fn reattribute(
        &mut self,
        shared: &mut Shared,
        header: EventHeader,
        key: Key,
        stack: StackId,
        how: fn(&mut Ledger, &heapledger_ledger::Session, Key, StackId) -> Result<bool, OutOfMemory>,
    ) {
        let Some(block) = self.ledger.get(key) else { return };
        match how(&mut self.ledger, &shared.session, key, stack) {
            Ok(_) if block.inherited || block.untracked => {}
            Ok(_) => {
                let kind = EventKind::Reattributed { block: block.serial, stack };
                self.push(shared, header, Api::Malloc, kind, &Extras::NONE);
            }
            Err(OutOfMemory) => shared.fail(RecordError::OutOfMemory),
        }
    }

    fn fail(&mut self, shared: &mut Shared, header: EventHeader, api: Api, size: u64, stack: StackId, extras: &Extras) {
        self.ledger.fail();
        self.push(shared, header, api, EventKind::Failed { size: Bytes(size), stack }, extras);
    }

    /// Records the free of a live block whose address was handed out again: the free was not seen,
    /// but must have come before.
    #[cold]
    fn push_displaced(&mut self, shared: &mut Shared, header: EventHeader, block: Block, new: Key) {
        self.frees_missed.0 += block.weight().0;
        let (block, freed_size) = name(known(block));
        // The ledger already has the new block.
        let Live { bytes, blocks } = self.live();
        let new = self.ledger.get(new).map_or((0, 0), |new| (new.size.0, new.weight().0));
        let live = Live {
            bytes: Bytes(bytes.0.wrapping_sub(new.0.wrapping_mul(new.1))),
            blocks: Blocks(blocks.0.wrapping_sub(new.1)),
        };
        let extras = Extras { freed_size, ..Extras::NONE };
        self.push_with(shared, header, Api::Free, EventKind::Free { block }, &extras, live);
    }

    #[inline(always)]
    fn push(&mut self, shared: &mut Shared, header: EventHeader, api: Api, kind: EventKind, extras: &Extras) {
        let live = self.live();
        self.push_with(shared, header, api, kind, extras, live);
    }

    #[inline(always)]
    fn push_with(
        &mut self,
        shared: &mut Shared,
        header: EventHeader,
        api: Api,
        kind: EventKind,
        extras: &Extras,
        live: Live,
    ) {
        let EventHeader { thread, time, sampled } = header;
        if self.events.is_empty() {
            self.chunk_time = time;
        }
        let event = FileEvent { time, thread, call: Call::from(api), sampled, kind };
        if shared.keeps_events
            && let Err(error) = self.events.push(&event, extras, live)
        {
            shared.fail(error.into());
        }
        self.reports.on_event(&kind);
        self.timeline.add(time, live);
        let session = shared.session.live();
        shared.timeline.add(time, Live { bytes: session.bytes_live, blocks: session.blocks_live });
        shared.events += 1;
        if self.events.is_full() {
            self.flush_events(shared);
        }
    }

    #[inline(always)]
    fn live(&self) -> Live {
        let live = self.ledger.live();
        Live { bytes: live.bytes_live, blocks: live.blocks_live }
    }

    #[inline(always)]
    fn header(&mut self, ring_owner: &mut RingOwner, time: Time) -> EventHeader {
        EventHeader { thread: self.thread(ring_owner, time), time, sampled: Sampled::NOT }
    }

    /// Returns the thread and time of an event that may belong to a sample.
    fn sampled_header(&mut self, ring_owner: &mut RingOwner, time: Time, rate: Rate) -> EventHeader {
        let thread = self.thread(ring_owner, time);
        let unsampled = self.threads.get_mut(thread.0 as usize).map(|thread| std::mem::take(&mut thread.has_unsampled));
        EventHeader { thread, time, sampled: Sampled { rate, after_unsampled: unsampled.unwrap_or_default() } }
    }

    #[inline(always)]
    fn thread(&mut self, ring_owner: &mut RingOwner, time: Time) -> ThreadId {
        match ring_owner.thread {
            Some(thread) => thread,
            None => self.first_contact(ring_owner, time),
        }
    }

    #[cold]
    fn first_contact(&mut self, ring_owner: &mut RingOwner, time: Time) -> ThreadId {
        let known = self.by_tid.get(&ring_owner.tid).copied();
        *ring_owner.thread.insert(known.unwrap_or_else(|| self.new_thread(ring_owner.tid, [0; 16], false, time)))
    }

    fn start_thread(&mut self, tid: u32, name: [u8; 16], time: Time) -> ThreadId {
        // The thread was known before, without a ring.
        if let Some(&known) = self.by_tid.get(&tid)
            && let Some(thread) = self.threads.get_mut(known.0 as usize)
            && !thread.is_announced
        {
            (thread.name, thread.is_announced, thread.is_changed) = (name, true, true);
            return known;
        }
        self.new_thread(tid, name, true, time)
    }

    fn new_thread(&mut self, tid: u32, name: [u8; 16], is_announced: bool, time: Time) -> ThreadId {
        let thread = Thread {
            tid,
            name,
            start: time,
            end: None,
            is_announced,
            is_changed: true,
            pending: None,
            has_unsampled: false,
        };
        self.threads_seen += 1;
        let free = self.free_threads.pop();
        let id = free.unwrap_or(ThreadId(self.threads.len() as u32));
        match self.threads.get_mut(id.0 as usize) {
            Some(free) => *free = thread,
            None => self.threads.push(thread),
        }
        self.by_tid.insert(tid, id);
        id
    }

    fn end_thread(&mut self, shared: &mut Shared, id: ThreadId, time: Time) {
        let Some(thread) = self.threads.get_mut(id.0 as usize) else { return };
        thread.end = Some(time);
        thread.is_changed = true;
        // The thread ended before its reallocation returned, so the block was not touched.
        if let Some(pending) = thread.pending.take() {
            self.ledger.cancel_realloc(&mut shared.session, pending);
        }
        if !shared.keeps_events {
            let tid = thread.tid;
            self.ledger.end_thread(id);
            if self.by_tid.get(&tid) == Some(&id) {
                self.by_tid.remove(&tid);
            }
            self.free_threads.push(id);
        }
    }

    /// Returns the number of a text that a node refers to by its address.
    #[cold]
    fn text(&mut self, shared: &mut Shared, address: u64) -> u64 {
        let text = self.tree.texts.get(address);
        shared.records.extend(shared.texts.use_text(text).map(Record::Text));
        text.0.into()
    }

    fn add_node(&mut self, shared: &mut Shared, node: NewNode) -> Result<(), Corrupt> {
        if let Some(node) = self.tree.add(node).map_err(|_| Corrupt)? {
            self.write_node(shared, node);
        }
        Ok(())
    }

    fn write_node(&mut self, shared: &mut Shared, node: Node) {
        if shared.keeps_nodes {
            self.tree.keep(node);
        }
        push_node(&mut self.nodes, shared, &node);
    }

    fn flush_events(&mut self, shared: &mut Shared) {
        self.flush_nodes(shared, false);
        self.events_since_checkpoint += self.events.len() as u64;
        if let Some(chunk) = self.events.finish_raw() {
            shared.writer.send(Job::Events(chunk));
        }
        let per_block = CHECKPOINT_EVENTS_PER_BLOCK.saturating_mul(self.ledger.live().blocks_live.0);
        if self.events_since_checkpoint >= per_block.max(CHECKPOINT_EVENTS) {
            self.events_since_checkpoint = 0;
            self.write_checkpoint(shared, self.events_end());
        }
    }

    fn write_checkpoint(&self, shared: &mut Shared, time: Time) {
        let blocks = self.ledger.blocks().map(|(_, block)| block);
        // A block with a pending reallocation still has its old place.
        let pending = self.threads.iter().filter_map(|thread| match thread.pending.as_ref()?.old() {
            Freed::Known(block) => Some(block),
            Freed::Inherited(_) | Freed::Untracked | Freed::Unknown => None,
        });
        let live = blocks
            .chain(pending)
            .filter(|block| !block.inherited)
            .map(|Block { serial, size, stack, rate, .. }| LiveBlock { serial, size, stack, rate })
            .collect();
        let counts = self.counts(&ExternalCounters::default());
        let checkpoint = CheckpointEncoder::new(self.id, time, self.events.next_serial(), counts);
        shared.writer.send(Job::Checkpoint(checkpoint, live));
    }

    /// Returns the time of the last event.
    fn events_end(&self) -> Time {
        self.timeline.last_time()
    }

    fn flush_nodes(&mut self, shared: &mut Shared, is_last: bool) {
        let mut resolved = Vec::new();
        self.tree.resolve(is_last, |node| resolved.push(node));
        for node in resolved {
            self.write_node(shared, node);
        }
        finish_nodes(&mut self.nodes, shared);
    }

    fn flush_annotations(&mut self, shared: &mut Shared) {
        if let Some(chunk) = self.annotations.finish(&mut shared.compressor) {
            shared.writer.send(Job::Chunk(chunk));
        }
    }

    fn flush_threads(&mut self, shared: &mut Shared) {
        if !shared.keeps_events {
            return;
        }
        for (number, thread) in self.threads.iter_mut().enumerate().filter(|(_, thread)| thread.is_changed) {
            thread.is_changed = false;
            let name = thread.name.iter().copied().take_while(|&byte| byte != 0).collect();
            shared.records.push(Record::Thread(ThreadRecord {
                image: self.id,
                thread: ThreadId(number as u32),
                tid: thread.tid,
                name,
                start: thread.start,
                end: thread.end,
            }));
        }
    }

    /// Samples the memory of its process, if a sample is due.
    pub(crate) fn sample_memory(&mut self, shared: &mut Shared, prober: &mut Prober, pid: u32, now: Time) {
        if self.memory.is_due(now)
            && let Some(sample) = prober.sample(pid, now)
            && let Some(samples) = self.memory.add(sample)
        {
            shared.writer.send(Job::Memory(self.id, samples));
        }
    }

    /// Brings the file up to date, if it lacks events from before `before`.
    pub(crate) fn flush(&mut self, shared: &mut Shared, before: Time, external: &ExternalCounters) {
        if !self.events.is_empty() && self.chunk_time < before {
            self.flush_events(shared);
            shared.records.push(Record::ImageCounts(ImageCounts { image: self.id, counts: self.counts(external) }));
        } else if self.tree.has_open() || !shared.keeps_events {
            self.flush_nodes(shared, false);
        }
        self.flush_annotations(shared);
        self.flush_threads(shared);
    }

    /// Returns the totals so far.
    pub(crate) fn counts(&self, external: &ExternalCounters) -> Counts {
        let external = external.since(&self.external_before);
        let (counts, live) = (self.ledger.counts(), self.ledger.live());
        let mut counts = Counts {
            allocations: counts.allocations,
            reallocations: counts.reallocations,
            frees: counts.frees,
            failed: counts.failed,
            bytes_allocated: counts.bytes_allocated,
            bytes_live_max: live.bytes_live_max,
            bytes_live_max_time: Time(live.bytes_live_max_time.0),
            blocks_at_bytes_max: live.blocks_at_bytes_max,
            blocks_live_max: live.blocks_live_max,
            bytes_live_end: live.bytes_live,
            blocks_live_end: live.blocks_live,
            temporary_allocations: counts.temporaries,
            frees_unknown: Blocks(counts.frees_unknown.0.saturating_sub(self.frees_paused.0)),
            frees_paused: self.frees_paused,
            frees_inherited: counts.frees_inherited,
            bytes_inherited_live_end: counts.bytes_inherited,
            blocks_inherited_live_end: counts.blocks_inherited,
            frees_missed: self.frees_missed,
            events_late: self.events_late,
            events_reordered: self.events_reordered,
            stamps_unknown: self.stamps_unknown,
            threads: self.threads_seen,
            stacks: external.stacks,
            errors: count_errors(self.ledger.variances()),
            ..Counts::default()
        };
        external.lost.enter(&mut counts);
        counts
    }

    /// Finishes an image that has ended: writes everything except the sites, which are returned
    /// with the totals.
    pub(crate) fn finish(
        mut self,
        shared: &mut Shared,
        time: Time,
        external: &ExternalCounters,
    ) -> (Counts, Vec<Site>) {
        for thread in &mut self.threads {
            if let Some(pending) = thread.pending.take() {
                self.ledger.cancel_realloc(&mut shared.session, pending);
            }
        }
        self.ledger.end(&mut shared.session);
        let session = shared.session.live();
        shared.timeline.add(time, Live { bytes: session.bytes_live, blocks: session.blocks_live });
        self.flush_nodes(shared, true);
        self.flush_events(shared);
        self.flush_annotations(shared);
        self.flush_threads(shared);
        let counts = self.counts(external);
        shared.records.push(Record::ImageCounts(ImageCounts { image: self.id, counts }));
        let sites = self.sites(shared);
        shared.writer.send(Job::Timeline(Some(self.id), self.timeline.finish()));
        shared.writer.send(Job::Memory(self.id, self.memory.take()));
        (counts, sites)
    }

    /// Ends the current file for an image that continues: writes its part of the file.
    pub(crate) fn end_segment(&mut self, shared: &mut Shared, time: Time, external: &ExternalCounters) -> Counts {
        self.flush_nodes(shared, false);
        self.flush_events(shared);
        self.flush_annotations(shared);
        self.flush_threads(shared);
        self.timeline.add(time, self.live());
        let counts = self.counts(external);
        let (reason, exit) = (ImageEndReason::Detached, None);
        shared.records.push(Record::ImageEnd(ImageEnd { image: self.id, time, reason, exit }));
        shared.records.push(Record::ImageCounts(ImageCounts { image: self.id, counts }));
        shared.writer.send(Job::Sites(self.id, self.sites(shared)));
        let timeline = std::mem::replace(&mut self.timeline, Timeline::new());
        shared.writer.send(Job::Timeline(Some(self.id), timeline.finish()));
        shared.writer.send(Job::Memory(self.id, self.memory.take()));
        counts
    }

    /// Begins another file, after [`Image::end_segment`]: writes everything that is needed to read
    /// it on its own. The session's ledger must have been restarted.
    pub(crate) fn begin_segment(
        &mut self,
        shared: &mut Shared,
        time: Time,
        start: &ImageStart,
        external: &ExternalCounters,
    ) {
        self.ledger.restart(heapledger_ledger::Time(time.0));
        self.external_before = *external;
        (self.frees_paused, self.frees_missed) = (Blocks(0), Blocks(0));
        (self.events_late, self.events_reordered, self.stamps_unknown) = (0, 0, 0);
        self.events_since_checkpoint = 0;
        self.chunk_time = time;
        self.threads_seen = self.threads.iter().filter(|thread| thread.end.is_none()).count() as u64;
        let counts = self.ledger.counts();
        shared.records.push(Record::ImageStart(ImageStart {
            fork_node_base: StackId::ROOT,
            inherited_blocks: counts.blocks_inherited,
            inherited_bytes: counts.bytes_inherited,
            carried: Some(self.live()),
            ..start.clone()
        }));
        shared.records.extend(self.tree.mappings(self.id).map(Record::Mapping));
        for thread in self.threads.iter_mut().filter(|thread| thread.end.is_none()) {
            thread.is_changed = true;
        }
        self.flush_threads(shared);
        self.write_kept_nodes(shared);
        self.write_checkpoint(shared, time);
        self.repeat_marks(shared, time);
        self.timeline.add(time, self.live());
    }

    /// Writes all nodes that its stacks may have.
    pub(crate) fn write_kept_nodes(&mut self, shared: &mut Shared) {
        shared.flush_records();
        let nodes = &mut self.nodes;
        self.tree.kept(|node| push_node(nodes, shared, &node));
        finish_nodes(nodes, shared);
    }

    /// Returns the current state of the image, for a file that is replaced later.
    pub(crate) fn snapshot(&self, shared: &Shared, external: &ExternalCounters) -> [Job; 4] {
        let counts = Record::ImageCounts(ImageCounts { image: self.id, counts: self.counts(external) });
        [
            Job::Records(vec![counts]),
            Job::Sites(self.id, self.sites(shared)),
            Job::Timeline(Some(self.id), self.timeline.clone().finish()),
            Job::Memory(self.id, self.memory.so_far().to_vec()),
        ]
    }

    fn sites(&self, shared: &Shared) -> Vec<Site> {
        let live = |bytes, blocks| Live { bytes, blocks };
        let sites = self.ledger.sites(&shared.session).map(|site| Site {
            stack: site.stack,
            allocations: site.allocations,
            bytes_allocated: site.bytes_allocated,
            temporaries: site.temporaries,
            live_end: live(site.bytes_live, site.blocks_live),
            live_at_image_peak: live(site.bytes_at_peak, site.blocks_at_peak),
            live_at_session_peak: live(site.bytes_at_session_peak, site.blocks_at_session_peak),
            errors: site_errors(&site.variances),
        });
        sites.collect()
    }
}

/// Returns the standard errors of a variance.
pub(crate) fn errors(variance: Variance) -> Live {
    let (bytes, blocks) = variance.errors();
    Live { bytes, blocks }
}

/// Returns the standard errors of totals; `None` if all are zero, as without sampling.
pub(crate) fn count_errors(variances: Variances) -> Option<CountErrors> {
    let Variances { allocated, live, at_peak } = variances;
    let all = CountErrors { allocated: errors(allocated), live_end: errors(live), live_at_peak: errors(at_peak) };
    (all != CountErrors::default()).then_some(all)
}

fn site_errors(variances: &SiteVariances) -> SiteErrors {
    let SiteVariances { allocated, live, at_peak, at_session_peak } = *variances;
    SiteErrors {
        allocated: errors(allocated),
        live_end: errors(live),
        live_at_image_peak: errors(at_peak),
        live_at_session_peak: errors(at_session_peak),
    }
}

/// Refuses an address that no allocator returns, and for which the register has no room.
fn check_address(address: u64) -> Result<(), Corrupt> {
    if address == u64::MAX { Err(Corrupt) } else { Ok(()) }
}

/// Returns the release of a known block whose free was not seen.
fn known(block: Block) -> Freed {
    if block.inherited { Freed::Inherited(block) } else { Freed::Known(block) }
}

/// Returns how the recording names a released block, and its size if the recording does not have
/// it.
#[inline(always)]
fn name(freed: Freed) -> (FreedBlock, Option<Bytes>) {
    match freed {
        Freed::Known(block) => (FreedBlock::Known(block.serial), None),
        Freed::Inherited(block) => (FreedBlock::Inherited, Some(block.size)),
        Freed::Untracked => (FreedBlock::None, None),
        Freed::Unknown => (FreedBlock::Unknown, None),
    }
}

/// Returns the weight of a sampled inherited block, which the recording does not have otherwise.
fn weight(freed: Freed) -> Option<Blocks> {
    match freed {
        Freed::Inherited(block) if block.rate != Rate::EXACT => Some(block.weight()),
        _ => None,
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
