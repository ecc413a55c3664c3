//! The history of each block, as a series of events.

use std::collections::HashSet;
use std::ops::ControlFlow;

use heapledger_core::{Blocks, Bytes, Serial, StackId, ThreadId};
use heapledger_recording::{Damage, ImageId, Recording, Time};

use crate::amount::Amount;
use crate::block_filter::{BlockFilter, SharedProgress, Verdict, each_once};
use crate::error::Error;
use crate::events::{EventMap, expect_events};
use crate::images::last_images;
use crate::moment::Moment;
use crate::names::Names;
use crate::progress::Progress;
use crate::replay::Replay;
use crate::replay::span::Span;
use crate::replay::visitor::{BlockEnd, BlockVisitor, EndReason, Origin};
use crate::selection::Selection;
use crate::stacks::{MergedStacks, NodeId, Stacks};

/// An event of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapEvent {
    /// The time of the event.
    pub time: Time,
    /// The thread of the image that made the call; `None` if no call in the recording caused the
    /// event.
    pub thread: Option<ThreadId>,
    /// The process image that holds the block.
    pub image: ImageId,
    /// The ordinal of its allocation in the image, from 0.
    pub serial: Serial,
    /// Its requested size; for a sampled block, the bytes that it counts for.
    pub size: Bytes,
    /// The weight: the number of blocks that it counts for, 1 if it was not sampled.
    pub weight: Blocks,
    /// The stack that allocated it.
    pub stack: NodeId,
    /// The kind of event.
    pub what: HeapEventKind,
    /// True for a free if its thread has allocated or freed blocks that the selection leaves out
    /// since its latest event here.
    pub is_interrupted: bool,
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapEventKind {
    /// The block was allocated, or was there already when the recording began.
    Allocated,
    /// The block was freed. A reallocation is a free followed at once by an allocation.
    Freed,
    /// The block was live when its image ended.
    ImageEnded,
}

/// The treatment of blocks that are live when an image ends. If the selection's moment is a time,
/// they are always gone then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heaps {
    /// Blocks go when their image ends, unless no other image outlives it: the blocks that stay are
    /// those live at the end of the session.
    One,
    /// Blocks go when their process runs another program. Blocks live at the end of a process stay.
    PerProcess,
}

/// Figures about the events that were handed out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapEvents {
    /// The number of blocks that [were live](HeapEventKind::ImageEnded) at the end of an image.
    pub ended_with_image: u64,
    /// Parts of the recording that could not be read, and are missing.
    pub damage: Vec<Damage>,
}

/// Hands out all events of the blocks of a selection until its moment, in time order; for
/// [`Moment::Peak`], until the first moment at which as many bytes were live as at the peak. A
/// block keeps the stack that it was allocated with, even if it is reattributed later. `each` gets
/// `names` and the stacks known so far. The replay ends soon after `each` breaks.
///
/// Replays all events until then, and for the peak once more to find it. Memory: some 150 bytes for
/// each block that is live at once.
pub fn heap_events<'r, 'a: 'r, N: AsMut<Names<'r, 'a>>>(
    names: &mut N,
    selection: &Selection,
    heaps: Heaps,
    progress: Progress<'_>,
    each: impl FnMut(&mut N, &Stacks, &HeapEvent) -> ControlFlow<()>,
) -> Result<HeapEvents, Error> {
    let recording = names.as_mut().recording();
    let (filter, memory_max) = (&selection.filter, selection.memory_max);
    expect_events(recording)?;
    selection.expect_time(recording)?;
    let images = filter.images(recording)?;
    let is_at_peak = selection.moment == Moment::Peak;
    let mut shared_progress = SharedProgress::new(progress, filter, is_at_peak);
    let block_filter = BlockFilter::new(names.as_mut(), selection, &images, true, &mut shared_progress)?;
    let mut span = Span { until: selection.moment.time(), ..Span::default() };
    if is_at_peak {
        let all = |_: Origin| OUTSIDE;
        let replay = Replay { recording, images: &images, span: Span::default(), memory_max };
        let replayed = shared_progress.pass(|progress| replay.run(all, progress))?;
        span.stop_at = Some(replayed.live.bytes_live_max);
    }
    let mut emitter = EventEmitter {
        names,
        merged: MergedStacks::new(recording),
        block_filter,
        numbers: EventMap::default(),
        nodes: Vec::new(),
        reattributed_from: None,
        interrupted: HashSet::new(),
        begins: recording.session().map_or(Time(0), |session| session.begins),
        stay_live: if selection.moment.time().is_some() {
            HashSet::new()
        } else {
            images_that_stay_live(recording, &images, heaps)
        },
        ended_with_image: 0,
        is_over: false,
        each,
    };
    let replay = Replay { recording, images: &images, span, memory_max };
    let replayed = shared_progress.pass(|progress| replay.run(&mut emitter, progress));
    let EventEmitter { merged, block_filter, ended_with_image, .. } = emitter;
    let mut damage = match replayed {
        Ok(replayed) => replayed.damage,
        Err(Error::Stopped) => Vec::new(),
        Err(other) => return Err(other),
    };
    damage.extend(block_filter.damage());
    damage.extend(merged.damage);
    Ok(HeapEvents { ended_with_image, damage: each_once(damage) })
}

/// Returns the images whose blocks stay live after their end.
fn images_that_stay_live(recording: &Recording<'_>, images: &[ImageId], heaps: Heaps) -> HashSet<ImageId> {
    let end = |image: ImageId| recording.image_end(image).map_or(Time(u64::MAX), |end| end.time);
    match heaps {
        Heaps::One => {
            let last = images.iter().map(|&image| end(image)).max();
            images.iter().copied().filter(|&image| Some(end(image)) == last).collect()
        }
        Heaps::PerProcess => last_images(recording),
    }
}

/// The group of blocks outside the selection. `nodes[n]` is group `n + 1`.
const OUTSIDE: StackId = StackId(0);

struct EventEmitter<'n, 'r, 'a, 'f, N, E> {
    names: &'n mut N,
    merged: MergedStacks<'r, 'a>,
    block_filter: BlockFilter<'f>,
    /// The groups that the replay counts blocks in, in the place of stacks.
    numbers: EventMap<NodeId, StackId>,
    nodes: Vec<NodeId>,
    /// The group of a block that is being reattributed: it stays in that group.
    reattributed_from: Option<StackId>,
    /// Threads whose latest event is not of a block of the selection.
    interrupted: HashSet<(ImageId, ThreadId)>,
    begins: Time,
    /// Images whose blocks stay live after their end.
    stay_live: HashSet<ImageId>,
    ended_with_image: u64,
    is_over: bool,
    each: E,
}

impl<N, E: FnMut(&mut N, &Stacks, &HeapEvent) -> ControlFlow<()>> EventEmitter<'_, '_, '_, '_, N, E> {
    fn emit(&mut self, event: &HeapEvent) {
        if !self.is_over {
            self.is_over = (self.each)(self.names, &self.merged.stacks, event).is_break();
        }
    }

    /// Notes that a thread's latest event is of a block of the selection. Returns true if the one
    /// before it was not.
    fn resume(&mut self, thread: (ImageId, ThreadId)) -> bool {
        !self.interrupted.is_empty() && self.interrupted.remove(&thread)
    }
}

impl<'r, 'a, N, E> BlockVisitor for &mut EventEmitter<'_, 'r, 'a, '_, N, E>
where
    N: AsMut<Names<'r, 'a>>,
    E: FnMut(&mut N, &Stacks, &HeapEvent) -> ControlFlow<()>,
{
    fn wants_frees(&self) -> bool {
        true
    }

    fn on_alloc(&mut self, origin: Origin) -> StackId {
        if let Some(from) = self.reattributed_from.take() {
            return from;
        }
        let this = &mut **self;
        let caller = origin.call.map(|(thread, _)| (origin.image, thread));
        let Verdict::Selected(stack) = this.block_filter.verdict(this.names.as_mut(), &mut this.merged, &origin) else {
            this.interrupted.extend(caller);
            return OUTSIDE;
        };
        if let Some(caller) = caller {
            this.resume(caller);
        }
        // One event for each recorded block, with the bytes and blocks that it counts for.
        let Amount { bytes: size, blocks: weight, .. } = origin.amount();
        let Origin { image, serial, call, .. } = origin;
        let (thread, time) = call.map_or((None, self.begins), |(thread, time)| (Some(thread), time));
        let (what, is_interrupted) = (HeapEventKind::Allocated, false);
        self.emit(&HeapEvent { time, thread, image, serial, size, weight, stack, what, is_interrupted });
        let nodes = &mut self.nodes;
        *self.numbers.entry(stack).or_insert_with(|| {
            nodes.push(stack);
            StackId(nodes.len() as u32)
        })
    }

    fn on_free(&mut self, block_end: BlockEnd) {
        let BlockEnd { image, serial, at: time, amount, group, reason, .. } = block_end;
        let Amount { bytes: size, blocks: weight, .. } = amount;
        let (thread, what) = match reason {
            EndReason::Freed(thread) => (Some(thread), HeapEventKind::Freed),
            EndReason::ImageEnded if !self.stay_live.contains(&image) => (None, HeapEventKind::ImageEnded),
            EndReason::ImageEnded | EndReason::ReplayEnded => return,
            EndReason::Reattributed => {
                self.reattributed_from = Some(group);
                return;
            }
        };
        let node = (group.0 as usize).checked_sub(1).and_then(|at| self.nodes.get(at));
        if let Some(&stack) = node {
            self.ended_with_image += u64::from(what == HeapEventKind::ImageEnded);
            let is_interrupted = thread.is_some_and(|thread| self.resume((image, thread)));
            self.emit(&HeapEvent { time, thread, image, serial, size, weight, stack, what, is_interrupted });
        } else {
            self.interrupted.extend(thread.map(|thread| (image, thread)));
        }
    }

    fn wants_more(&self) -> bool {
        !self.is_over
    }
}
