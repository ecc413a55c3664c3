//! Replaying events through the ledger, for what a recording's totals do not tell.
//!
//! The ledger counts per stack. A replay may put anything in the place of stacks (threads, sizes): what it then counts
//! per "stack", exact shares of the peaks included, is a breakdown by that.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use heapledger_core::sample::Rate;
use heapledger_core::{Api, Blocks, Bytes, Serial, StackId, ThreadId};
use heapledger_ledger::{self as ledger, Key, Ledger};
use heapledger_recording::{
    CountErrors, Counts, Damage, Error as RecordingError, Event, EventChunk, EventKind, EventsBuffer, FreedBlock,
    ImageEndReason, ImageId, Live, LiveBlock, Mark, NodeCache, NodeKind, Recording, Sample, Site, SiteErrors,
    StackTree, Time, Timeline,
};

use crate::amount::Amount;
use crate::error::Error;
use crate::events::{EventMap, THREADS_MAX, bytes_of, expect_events};
use crate::reports::{Reports, times_complete};

/// How far a replay is: called now and then with the number of events done, and of all.
pub type Progress<'p> = &'p mut dyn FnMut(u64, u64);

/// A block about to be entered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) image: ImageId,
    pub(crate) serial: Serial,
    /// By which thread, and when. `None` for a block that a checkpoint gave.
    pub(crate) call: Option<(ThreadId, Time)>,
    pub(crate) size: Bytes,
    /// At which rate it was sampled.
    pub(crate) rate: Rate,
    pub(crate) stack: StackId,
}

impl Origin {
    /// What it counts for.
    pub(crate) fn amount(&self) -> Amount {
        Amount::of_block(self.size, Blocks(self.rate.stands_for(self.size, self.serial)))
    }
}

/// A block that is live no longer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gone {
    pub(crate) image: ImageId,
    pub(crate) serial: Serial,
    pub(crate) at: Time,
    /// By which thread it was allocated, and when, if the follower [wants](Follower::WANTS_CALLS)
    /// to know. `None` for a block that a checkpoint gave.
    pub(crate) call: Option<(ThreadId, Time)>,
    /// What it counted for.
    pub(crate) amount: Amount,
    /// What it was counted under.
    pub(crate) group: StackId,
    pub(crate) why: Why,
}

/// Why a block is live no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// This thread freed it.
    Freed(ThreadId),
    /// It is still there: it is entered again at once, to be counted under something else.
    Moves,
    /// Its image is over.
    ImageOver,
    /// It is still there: the replay is over.
    ReplayOver,
}

/// Who says what blocks are counted under, and may want to know when they go. A function that groups them is one.
pub(crate) trait Follower {
    /// Whether it is told of blocks that go.
    const WANTS_GONE: bool = false;
    /// Whether it is told who allocated them, and when.
    const WANTS_CALLS: bool = false;

    /// What a block is counted under.
    fn enters(&mut self, origin: Origin) -> StackId;

    /// A block goes.
    fn goes(&mut self, _: Gone) {}

    /// Whether to go on: looked at now and then.
    fn wants_more(&self) -> bool {
        true
    }
}

impl<F: FnMut(Origin) -> StackId> Follower for F {
    #[inline]
    fn enters(&mut self, origin: Origin) -> StackId {
        self(origin)
    }
}

/// How much to replay.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    /// From the last checkpoints before this time. Only figures of blocks that were allocated since then are right, and
    /// what is live at the end of the span. `None`: from the beginning.
    pub(crate) from: Option<Time>,
    /// Up to this time inclusive. `None`: to the end.
    pub(crate) until: Option<Time>,
    /// Only until so many bytes are live in all images together.
    pub(crate) stop_at: Option<Bytes>,
    /// Whether the blocks are asked for that are live at the end of the span; of images that are over by then, only where
    /// nothing limits the span.
    pub(crate) wants_blocks: bool,
    /// What is asked for of the marks of reporters.
    pub(crate) marks: Marks,
    /// Whether the blocks are asked for that were freed.
    pub(crate) wants_freed: bool,
}

/// What a replay makes of the marks of reporters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Marks {
    /// Nothing.
    #[default]
    Ignored,
    /// It follows them.
    Followed,
    /// It follows them, and the span of each image is over where its reporters were asked for the last time.
    UpToTheLast,
}

impl Span {
    /// Whether it is over, with so much live.
    fn is_over(&self, live: ledger::Live) -> bool {
        self.stop_at.is_some_and(|bytes| live.bytes_live >= bytes)
    }

    /// Returns true if what may be used of blocks is asked for: by reports of them, and of what was freed.
    fn wants_usable(&self) -> bool {
        self.marks != Marks::Ignored || self.wants_freed
    }

    /// Whether images have a part in what is live at its end that were over before.
    fn goes_to_the_end(&self) -> bool {
        self.until.is_none() && self.stop_at.is_none()
    }
}

/// What a replay found.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    /// In ascending order of ids. Images that began after the span are not there.
    pub(crate) images: Vec<ReplayedImage>,
    /// What was live in all the images together.
    pub(crate) live: ledger::Live,
    /// How far that is off.
    pub(crate) errors: Option<CountErrors>,
    /// The same over time.
    pub(crate) timeline: Vec<Sample>,
    /// Parts that could not be read, and are missing in all figures.
    pub(crate) damage: Vec<Damage>,
}

/// One image of a replay.
#[derive(Debug)]
pub(crate) struct ReplayedImage {
    pub(crate) image: ImageId,
    /// Whether it was over within the span.
    pub(crate) ended: bool,
    pub(crate) counts: Counts,
    /// In ascending order of stacks.
    pub(crate) sites: Vec<Site>,
    /// What was live at the end, in no particular order, if that was asked for.
    pub(crate) blocks: Vec<ReplayedBlock>,
    /// Which of them reporters had marked, and what was wrong with what they reported.
    pub(crate) reports: Reports,
    /// Blocks that were freed, by what they were counted under and their sizes, requested and usable, if that was asked
    /// for.
    pub(crate) freed: HashMap<(StackId, Bytes, Bytes), u64>,
    /// What was live over time.
    pub(crate) timeline: Vec<Sample>,
    /// The session's peak when the sites were read: they have no part in a higher one.
    session_peak: Bytes,
}

/// A block that is live when a replay ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplayedBlock {
    pub(crate) serial: Serial,
    pub(crate) size: Bytes,
    /// At which rate it was sampled.
    pub(crate) rate: Rate,
    /// How many it stands for.
    pub(crate) stands_for: Blocks,
    /// What may be used of it, if that was recorded and [asked for](Span::wants_usable).
    pub(crate) usable: Option<Bytes>,
    /// What it is counted under.
    pub(crate) group: StackId,
}

/// Replays these images together, in the order of time. The follower says what a block is counted under.
pub(crate) fn replay(
    recording: &Recording<'_>,
    images: &[ImageId],
    span: Span,
    memory_max: Bytes,
    mut follower: impl Follower,
    progress: Progress<'_>,
) -> Result<Replayed, Error> {
    expect_events(recording)?;
    let mut session = ledger::Session::new();
    let mut replayed = Replayed::default();
    let mut players: Vec<Option<Player<'_>>> = Vec::new();
    let mut next_steps = BinaryHeap::new();
    let mut events_all = 0;
    let mut memory = Memory { taken: 0, max: memory_max.0 };
    for &image in images {
        if let Some(mut player) = Player::new(recording, image, span, &mut session, &mut follower)? {
            memory.check(&mut player)?;
            events_all += player.events_left();
            next_steps.push(Reverse((player.next_time(), image, players.len())));
            players.push(Some(player));
        }
    }

    let mut buffer = EventsBuffer::default();
    let mut timeline = Timeline::new();
    if span.from.is_none()
        && let Some(begins) = recording.session().map(|session| session.begins).filter(|begins| begins.0 > 0)
    {
        // What is in the ledgers now was there before: it is live, but no call in this recording.
        session.restart(ledger::Time(begins.0));
        note(&mut timeline, begins, session.live());
        for player in players.iter_mut().flatten() {
            player.restart(begins);
        }
    }
    let mut events_done = 0;
    while !span.is_over(session.live())
        && let Some(Reverse((_, image, at))) = next_steps.pop()
    {
        let Some(player) = players[at].as_mut() else { continue };
        // The player with the earliest step goes on until another one is earlier.
        let turn = next_steps.peek().map(|Reverse((time, other, _))| (*time, *other));
        let is_due = |time: Time| turn.is_none_or(|turn| (Some(time), image) <= (turn.0, turn.1));
        while let Some(time) = player.next_time()
            && is_due(time)
            && (!span.is_over(session.live()) || player.goes_on_with_a_stamp())
        {
            if player.needs_chunk() {
                match player.load_chunk(&mut buffer) {
                    Ok(events) => events_done += events,
                    Err(RecordingError::Damaged(damage)) => replayed.damage.push(damage),
                    Err(other) => return Err(other.into()),
                }
                memory.check(player)?;
                progress(events_done, events_all);
                if !follower.wants_more() {
                    return Err(Error::Stopped);
                }
            } else {
                player.play(&mut session, &mut timeline, &mut follower, is_due)?;
            }
        }
        match player.next_time() {
            Some(time) => next_steps.push(Reverse((Some(time), image, at))),
            // Its register is given back now: memory is for the images that run.
            None if player.ended => {
                memory.taken -= player.memory;
                replayed.images.extend(players[at].take().map(|player| player.finish(&session)));
            }
            None => {}
        }
    }
    let end = recording.footer().map_or(Time(0), |footer| footer.time).max(timeline.last_time());
    for player in players.into_iter().flatten() {
        player.let_go(end, Why::ReplayOver, &mut follower);
        replayed.images.push(player.finish(&session));
    }

    replayed.live = session.live();
    replayed.errors = count_errors(session.variances());
    replayed.timeline = timeline.finish();
    for image in &mut replayed.images {
        if image.session_peak != replayed.live.bytes_live_max {
            for site in &mut image.sites {
                (site.live_at_session_peak, site.errors.live_at_session_peak) = (Live::default(), Live::default());
            }
        }
    }
    replayed.images.sort_by_key(|image| image.image);
    Ok(replayed)
}

/// What the registers and sites of the images under replay take together, in bytes.
struct Memory {
    taken: u64,
    max: u64,
}

impl Memory {
    /// Looks at how much one image takes by now.
    fn check(&mut self, player: &mut Player<'_>) -> Result<(), Error> {
        let now =
            player.ledger.bytes_mapped().0 + player.calls.as_ref().map_or(0, bytes_of) + bytes_of(&player.carried);
        self.taken = self.taken - player.memory + now;
        player.memory = now;
        if self.taken > self.max { Err(Error::MemoryLimit(Bytes(self.max))) } else { Ok(()) }
    }
}

/// A key that no block has.
const NO_BLOCK: Key = Key(u64::MAX - 1);
/// How many events ahead memory is asked for.
const AHEAD: usize = 12;

/// One image under replay.
struct Player<'r> {
    image: ImageId,
    span: Span,
    /// Whether blocks were sampled: then blocks that nobody saw allocated are of no interest.
    is_sample: bool,
    ledger: Ledger,
    chunks: std::iter::Peekable<std::vec::IntoIter<EventChunk<'r>>>,
    /// Of the chunk that is being played.
    events: Vec<Event>,
    /// Sizes of inherited blocks, and how many they stand for.
    freed_sizes: Vec<(u32, Bytes, Blocks)>,
    usable_sizes: Vec<(u32, Bytes)>,
    position: usize,
    /// Those of the chunk that is being played, and how many of them have been.
    marks: Vec<(u32, Mark)>,
    marks_position: usize,
    reports: Reports,
    /// How often reporters still have to be asked until the span is over.
    until_over: Option<u32>,
    freed: HashMap<(StackId, Bytes, Bytes), u64>,
    /// Allocations before this serial are those of the checkpoint.
    first: Serial,
    /// When the image is over, if that is still to come.
    end: Option<Time>,
    /// Whether that is right behind the end of the recording.
    runs_on: bool,
    ended: bool,
    /// What the ledger does not count.
    counts: Counts,
    threads: Vec<bool>,
    /// Who allocated the blocks that are live, and when: only where some are put down to another stack later, or where
    /// that or what may be used of them is asked for.
    calls: Option<EventMap<Serial, Called>>,
    /// The stacks to which the blocks of the checkpoint are put down, where some are put down to
    /// another one later.
    carried: EventMap<Serial, StackId>,
    /// The image's stacks, where blocks are put down to another one.
    tree: Option<StackTree>,
    /// What the ledger took when it was last looked at, in bytes.
    memory: u64,
    /// When recording was paused for the first time: frees of unknown blocks are put down to that from then on.
    paused_from: Time,
    timeline: Timeline,
}

impl<'r> Player<'r> {
    /// `None` if nothing of the image is in the span.
    fn new<F: Follower>(
        recording: &'r Recording<'_>,
        image: ImageId,
        span: Span,
        session: &mut ledger::Session,
        follower: &mut F,
    ) -> Result<Option<Player<'r>>, Error> {
        let until = span.until.unwrap_or(Time(u64::MAX));
        let start = recording.image(image);
        let end = recording.image_end(image);
        // What is still running when the recording ends is so at that very moment: it is over only behind that.
        let runs_on = end.is_some_and(|end| end.reason == ImageEndReason::Detached);
        let end = end.map(|end| Time(end.time.0.saturating_add(runs_on.into())));
        let is_over = |from: Time| end.is_some_and(|end| end < from);
        if start.is_some_and(|start| start.time > until) || span.from.is_some_and(is_over) {
            return Ok(None);
        }
        let recorded = recording.image_counts(image).copied().unwrap_or_default();
        let has_moves = recording.event_chunks(image).any(|chunk| chunk.head().moves > 0);
        let follows = span.marks != Marks::Ignored;
        let mut player = Player {
            image,
            span,
            is_sample: recording.is_sample(),
            ledger: Ledger::new(),
            chunks: Vec::new().into_iter().peekable(),
            events: Vec::new(),
            freed_sizes: Vec::new(),
            usable_sizes: Vec::new(),
            position: 0,
            marks: Vec::new(),
            marks_position: 0,
            reports: Reports::default(),
            until_over: (span.marks == Marks::UpToTheLast).then(|| times_complete(recording, image)),
            freed: HashMap::new(),
            first: Serial(0),
            end,
            runs_on,
            ended: false,
            counts: Counts {
                blocks_inherited_live_end: start.map_or(Blocks(0), |start| start.inherited_blocks),
                bytes_inherited_live_end: start.map_or(Bytes(0), |start| start.inherited_bytes),
                // Events cannot tell these.
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
            },
            threads: Vec::new(),
            calls: (span.wants_usable() || has_moves || F::WANTS_CALLS).then(EventMap::default),
            carried: EventMap::default(),
            tree: (has_moves || follows).then(|| recording.stack_tree(image, &mut NodeCache::default())),
            memory: 0,
            paused_from: recording
                .pauses()
                .iter()
                .find(|pause| !pause.is_stall)
                .map_or(Time(u64::MAX), |pause| pause.from),
            timeline: Timeline::new(),
        };

        let mut from = Time(0);
        let carried = || recording.checkpoints(image).into_iter().next();
        let checkpoint = match span.from {
            Some(from) => recording.checkpoint_before(image, from),
            None if start.is_some_and(|start| start.carried.is_some()) => carried(),
            None => None,
        };
        if let Some(checkpoint) = checkpoint {
            let mut blocks: Vec<LiveBlock> = Vec::with_capacity(checkpoint.len());
            // One that cannot be read is as good as none.
            if checkpoint.for_each_part(|part| blocks.extend_from_slice(part)).is_ok() {
                from = checkpoint.time();
                player.first = checkpoint.next_serial();
                if has_moves {
                    player.carried.extend(blocks.iter().map(|block| (block.serial, block.stack)));
                }
                for block in blocks {
                    let origin = Origin {
                        image,
                        serial: block.serial,
                        call: None,
                        size: block.size,
                        rate: block.rate,
                        stack: block.stack,
                    };
                    let size = ledger::Sampled { size: block.size, rate: block.rate };
                    player.allocate(session, from, ThreadId(0), block.serial, size, follower.enters(origin))?;
                }
            }
        }
        // Times in a chunk are rounded down: the chunk before may have what came after the checkpoint.
        let chunks = recording.event_chunks(image).filter(|chunk| {
            let head = chunk.head();
            head.time_last.0.saturating_add(head.tick_ns.into()) >= from.0
        });
        player.chunks = chunks.collect::<Vec<_>>().into_iter().peekable();
        Ok(Some(player))
    }

    /// Counts anew: what is live was carried into this recording.
    fn restart(&mut self, begins: Time) {
        self.ledger.restart(ledger::Time(begins.0));
        note(&mut self.timeline, begins, self.ledger.live());
    }

    /// Whether what comes next says what a block is that there is.
    fn goes_on_with_a_stamp(&self) -> bool {
        let Some(&Event { kind: EventKind::Move { block, stack }, .. }) = self.events.get(self.position) else {
            return false;
        };
        self.is_stamp(self.stack_of(block), stack)
    }

    fn events_left(&self) -> u64 {
        self.chunks.clone().map(|chunk| u64::from(chunk.head().rows)).sum()
    }

    /// When the next step is due; `None` if nothing more happens in the span.
    fn next_time(&mut self) -> Option<Time> {
        if self.until_over == Some(0) {
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

    fn needs_chunk(&mut self) -> bool {
        self.position == self.events.len() && self.chunks.peek().is_some()
    }

    /// Unpacks the next chunk; returns the number of its events.
    fn load_chunk(&mut self, buffer: &mut EventsBuffer) -> Result<u64, RecordingError> {
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
            .filter_map(|(index, extras)| Some((*index, extras.freed_size?, extras.stands_for.unwrap_or(Blocks(1)))));
        self.freed_sizes.extend(sizes);
        if self.span.wants_usable() {
            let sizes = events.all_extras().iter().filter_map(|(index, extras)| Some((*index, extras.usable?)));
            self.usable_sizes.extend(sizes);
        }
        if self.span.marks != Marks::Ignored {
            self.marks.extend(events.marks());
        }
        buffer.take_events(&mut self.events);
        self.play_marks();
        Ok(self.events.len() as u64)
    }

    /// Plays the events that are due, or the end of the image.
    fn play(
        &mut self,
        session: &mut ledger::Session,
        timeline: &mut Timeline,
        follower: &mut impl Follower,
        is_due: impl Fn(Time) -> bool,
    ) -> Result<(), Error> {
        if self.position == self.events.len() {
            let end = self.end.take().unwrap_or_default();
            let end = Time(end.0.saturating_sub(self.runs_on.into()));
            self.ended = true;
            self.let_go(end, Why::ImageOver, follower);
            self.ledger.end(session);
            note(timeline, end, session.live());
            return Ok(());
        }
        while self.until_over != Some(0)
            && let Some(&event) = self.events.get(self.position)
            && self.span.until.is_none_or(|until| event.time <= until)
            && is_due(event.time)
            && (!self.span.is_over(session.live()) || self.goes_on_with_a_stamp())
        {
            self.position += 1;
            if let Some(ahead) = self.events.get(self.position + AHEAD) {
                self.prefetch(&ahead.kind);
            }
            self.play_event(session, follower, &event)?;
            self.play_marks();
            note(&mut self.timeline, event.time, self.ledger.live());
            note(timeline, event.time, session.live());
        }
        Ok(())
    }

    /// Takes the marks into account that come before the next event.
    #[inline]
    fn play_marks(&mut self) {
        while let Some(&(at, mark)) = self.marks.get(self.marks_position)
            && at as usize <= self.position
            && self.until_over != Some(0)
        {
            self.marks_position += 1;
            self.play_mark(&mark);
        }
    }

    #[cold]
    fn play_mark(&mut self, mark: &Mark) {
        let tree = self.tree.as_ref();
        let usable = |serial| self.calls.as_ref().and_then(|calls| calls.get(&serial)?.usable);
        self.reports.see(mark, &self.ledger, tree, usable);
        if let (Mark::Complete { .. }, Some(left)) = (mark, &mut self.until_over) {
            *left -= 1;
        }
    }

    /// A block goes, which is still there.
    #[cold]
    fn say_farewell<F: Follower>(&mut self, serial: Serial, by: &Event, follower: &mut F) {
        let Some(block) = self.ledger.get(Key::from(serial)) else { return };
        if F::WANTS_GONE {
            follower.goes(self.gone(serial, &block, by.time, Why::Freed(by.thread)));
        }
        let usable = self.calls.as_ref().and_then(|calls| calls.get(&serial)?.usable);
        self.reports.freed(serial, &block, usable);
        if self.span.wants_freed {
            let count = self.freed.entry((block.stack, block.size, usable.unwrap_or(block.size))).or_default();
            *count = count.saturating_add(block.stands_for().0);
        }
    }

    /// All blocks go: the image is over.
    fn let_go<F: Follower>(&self, at: Time, why: Why, follower: &mut F) {
        if F::WANTS_GONE {
            self.ledger.blocks().for_each(|(key, block)| follower.goes(self.gone(Serial(key.0), &block, at, why)));
        }
    }

    fn gone(&self, serial: Serial, block: &ledger::Block, at: Time, why: Why) -> Gone {
        let call = self.calls.as_ref().and_then(|calls| calls.get(&serial));
        let call = call.map(|call| (call.thread, call.time));
        let amount = Amount::of_block(block.size, block.stands_for());
        Gone { image: self.image, serial, at, call, amount, group: block.stack, why }
    }

    /// Asks for the memory that an event will need.
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
            EventKind::Move { block, .. } => self.ledger.prefetch(Key::from(*block)),
            EventKind::Failed { .. } => {}
        }
    }

    fn play_event<F: Follower>(
        &mut self,
        session: &mut ledger::Session,
        follower: &mut F,
        event: &Event,
    ) -> Result<(), Error> {
        if (self.span.wants_freed || F::WANTS_GONE || !self.reports.is_empty())
            && let EventKind::Free { block: FreedBlock::Known(old) }
            | EventKind::Realloc { old: FreedBlock::Known(old), .. } = event.kind
        {
            self.say_farewell(old, event, follower);
        }
        if let Some(calls) = &mut self.calls {
            let index = (self.position - 1) as u32;
            let usable = self.usable_sizes.binary_search_by_key(&index, |(at, _)| *at);
            note_call(calls, event, usable.ok().map(|at| self.usable_sizes[at].1));
        }
        let thread = ThreadId(event.thread.0.min(THREADS_MAX));
        // No call, so by nobody.
        if !matches!(event.kind, EventKind::Move { .. }) {
            self.saw(thread);
        }
        if event.sampled.after_others {
            self.ledger.end_thread(thread);
        }
        let (image, rate) = (self.image, event.sampled.rate);
        let origin =
            |serial, size, stack| Origin { image, serial, call: Some((event.thread, event.time)), size, rate, stack };
        match event.kind {
            EventKind::Alloc { serial, size, stack }
            | EventKind::Realloc { old: FreedBlock::None, serial, size, stack } => {
                if serial >= self.first {
                    let group = follower.enters(origin(serial, size, stack));
                    self.allocate(session, event.time, thread, serial, ledger::Sampled { size, rate }, group)?;
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
                    let (stack, time) = (follower.enters(origin(serial, size, stack)), ledger::Time(event.time.0));
                    self.ledger.set_next_serial(serial);
                    let (size, key) = (ledger::Sampled { size, rate }, Key::from(serial));
                    let _ = self.ledger.reallocate_unsampled(session, time, thread, key, size, stack)?;
                }
            }
            EventKind::Realloc { old, serial, size, stack } => {
                if serial >= self.first {
                    let key = self.freed(event.time, old);
                    let pending = self.ledger.begin_realloc(thread, key);
                    let stack = follower.enters(origin(serial, size, stack));
                    let (time, size) = (ledger::Time(event.time.0), ledger::Sampled { size, rate });
                    self.ledger.set_next_serial(serial);
                    let _ = self.ledger.finish_realloc(session, time, pending, Key::from(serial), size, stack)?;
                }
            }
            EventKind::Failed { .. } => self.ledger.fail(),
            EventKind::Move { block, stack } => {
                if let Some(live) = self.ledger.get(Key::from(block)) {
                    let call = self.calls.as_ref().and_then(|calls| calls.get(&block));
                    let is_stamp = self.is_stamp(self.stack_of(block), stack);
                    let by = call.map(|call| (call.thread, call.time));
                    if F::WANTS_GONE {
                        follower.goes(self.gone(block, &live, event.time, Why::Moves));
                    }
                    let to = follower.enters(Origin {
                        image,
                        serial: block,
                        call: by,
                        size: live.size,
                        rate: live.rate,
                        stack,
                    });
                    let (ledger, key) = (&mut self.ledger, Key::from(block));
                    let _ = if is_stamp {
                        ledger.stamp_block(session, key, to)
                    } else {
                        ledger.move_block(session, key, to)
                    }?;
                    if let Some(call) = self.calls.as_mut().and_then(|calls| calls.get_mut(&block)) {
                        call.stack = stack;
                    } else if let Some(carried) = self.carried.get_mut(&block) {
                        *carried = stack;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the stack to which a live block is put down; `None` if it is not known.
    fn stack_of(&self, block: Serial) -> Option<StackId> {
        let call = self.calls.as_ref().and_then(|calls| calls.get(&block));
        call.map(|call| call.stack).or_else(|| self.carried.get(&block).copied())
    }

    /// Whether a block is put down to a stack because the program says what it is: then it always was.
    fn is_stamp(&self, from: Option<StackId>, to: StackId) -> bool {
        let node =
            |stack| self.tree.as_ref().and_then(|tree| tree.get(stack)).filter(|node| node.kind == NodeKind::Stamp);
        let Some(to) = node(to) else { return false };
        from.is_none_or(|from| node(from).map_or(from, |stamp| stamp.parent) == to.parent)
    }

    fn allocate(
        &mut self,
        session: &mut ledger::Session,
        time: Time,
        thread: ThreadId,
        serial: Serial,
        size: ledger::Sampled,
        stack: StackId,
    ) -> Result<(), Error> {
        self.ledger.set_next_serial(serial);
        // A block under the same serial can only be there in a damaged file: then the ledger has freed it.
        let _ = self.ledger.allocate(session, ledger::Time(time.0), thread, Key::from(serial), size, stack)?;
        Ok(())
    }

    /// The key of a block that the event just taken freed. What the ledger cannot know of it is counted here.
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

    fn saw(&mut self, thread: ThreadId) {
        let at = thread.0 as usize;
        if at >= self.threads.len() {
            self.threads.resize(at + 1, false);
        }
        self.counts.threads += u64::from(!std::mem::replace(&mut self.threads[at], true));
    }

    fn finish(self, session: &ledger::Session) -> ReplayedImage {
        let (live, counted) = (self.ledger.live(), self.ledger.counts());
        let counts = Counts {
            allocations: counted.allocations,
            reallocations: counted.reallocations,
            frees: counted.frees,
            failed: counted.failed,
            bytes_allocated: counted.bytes_allocated,
            bytes_live_max: live.bytes_live_max,
            bytes_live_max_time: Time(live.bytes_live_max_time.0),
            blocks_at_bytes_max: live.blocks_at_bytes_max,
            blocks_live_max: live.blocks_live_max,
            bytes_live_end: live.bytes_live,
            blocks_live_end: live.blocks_live,
            temporary_allocations: counted.temporaries,
            errors: count_errors(self.ledger.variances()),
            ..self.counts
        };
        let mut sites: Vec<Site> = self.ledger.sites(session).map(site).collect();
        sites.sort_unstable_by_key(|site| site.stack);
        let session_peak = session.live().bytes_live_max;
        let blocks = self.blocks();
        let timeline = self.timeline.finish();
        let (image, ended, reports, freed) = (self.image, self.ended, self.reports, self.freed);
        ReplayedImage { image, ended, counts, sites, blocks, reports, freed, timeline, session_peak }
    }

    fn blocks(&self) -> Vec<ReplayedBlock> {
        if !self.span.wants_blocks || (self.ended && !self.span.goes_to_the_end()) {
            return Vec::new();
        }
        let block = |(key, block): (Key, ledger::Block)| {
            let serial = Serial(key.0);
            let call = self.calls.as_ref().and_then(|calls| calls.get(&serial));
            let usable = call.and_then(|call| call.usable);
            let (rate, stands_for) = (block.rate, block.stands_for());
            ReplayedBlock { serial, size: block.size, rate, stands_for, usable, group: block.stack }
        };
        self.ledger.blocks().map(block).collect()
    }
}

/// The call that allocated a live block.
#[derive(Clone, Copy)]
struct Called {
    thread: ThreadId,
    time: Time,
    /// The stack to which the block is put down.
    stack: StackId,
    /// What may be used of it, if that was recorded.
    usable: Option<Bytes>,
}

/// Keeps by whom and when the blocks that are live were allocated.
fn note_call(calls: &mut EventMap<Serial, Called>, event: &Event, usable: Option<Bytes>) {
    if let EventKind::Free { block: FreedBlock::Known(old) } | EventKind::Realloc { old: FreedBlock::Known(old), .. } =
        event.kind
    {
        calls.remove(&old);
    }
    if let EventKind::Alloc { serial, stack, .. } | EventKind::Realloc { serial, stack, .. } = event.kind {
        calls.insert(serial, Called { thread: event.thread, time: event.time, stack, usable });
    }
}

/// Enters what is live. A damaged file may have times that go backwards.
fn note(timeline: &mut Timeline, time: Time, live: ledger::Live) {
    let live = Live { bytes: live.bytes_live, blocks: live.blocks_live };
    timeline.add(time.max(timeline.last_time()), live);
}

/// A site of the ledger, as a recording has it.
fn site(site: ledger::Site) -> Site {
    let live = |bytes, blocks| Live { bytes, blocks };
    Site {
        stack: site.stack,
        allocations: site.allocations,
        bytes_allocated: site.bytes_allocated,
        temporaries: site.temporaries,
        live_end: live(site.bytes_live, site.blocks_live),
        live_at_image_peak: live(site.bytes_at_peak, site.blocks_at_peak),
        live_at_session_peak: live(site.bytes_at_session_peak, site.blocks_at_session_peak),
        errors: SiteErrors {
            allocated: errors(site.variances.allocated),
            live_end: errors(site.variances.live),
            live_at_image_peak: errors(site.variances.at_peak),
            live_at_session_peak: errors(site.variances.at_session_peak),
        },
    }
}

/// Standard errors.
fn errors(variance: ledger::Variance) -> Live {
    let (bytes, blocks) = variance.errors();
    Live { bytes, blocks }
}

/// Those of totals: nothing where all is recorded.
fn count_errors(variances: ledger::Variances) -> Option<CountErrors> {
    let ledger::Variances { allocated, live, at_peak } = variances;
    let all = CountErrors { allocated: errors(allocated), live_end: errors(live), live_at_peak: errors(at_peak) };
    (all != CountErrors::default()).then_some(all)
}
