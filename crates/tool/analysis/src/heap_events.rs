//! What happened to each block, one event after another.

use std::collections::HashSet;
use std::ops::ControlFlow;

use heapledger_core::{Blocks, Bytes, Serial, StackId, ThreadId};
use heapledger_recording::{Damage, ImageId, Recording, Time};

use crate::amount::Amount;
use crate::error::Error;
use crate::events::{EventMap, expect_events};
use crate::moment::{Moment, Selection, last_images};
use crate::names::Names;
use crate::replay::{Follower, Gone, Origin, Progress, Span, Why, replay};
use crate::sieve::{Rounds, Sieve, Verdict, each_once};
use crate::stacks::{MergedStacks, NodeId, Stacks};

/// What happened to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapEvent {
    /// When.
    pub time: Time,
    /// By which thread of the image. `None`: by no call in the recording.
    pub thread: Option<ThreadId>,
    /// Where the block is.
    pub image: ImageId,
    /// The ordinal of its allocation in the image, from 0.
    pub serial: Serial,
    /// Its requested size; of a sample, the bytes that it stands for.
    pub size: Bytes,
    /// How many blocks it stands for: 1, unless it is one of a sample.
    pub stands_for: Blocks,
    /// Who allocated it.
    pub stack: NodeId,
    /// What.
    pub what: Happened,
    /// True of a free if its thread has allocated or freed blocks that the selection leaves out since its latest event here.
    pub is_interrupted: bool,
}

/// What can happen to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It was allocated, or was there already when the recording began.
    Allocated,
    /// It was freed. A reallocation is a free, and right behind it an allocation.
    Freed,
    /// It went when its image was over.
    Gone,
}

/// What becomes of the blocks that are live when an image is over. At a time of its own, a selection has none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heaps {
    /// They go, unless no image outlives this one: so what is live is what is live in the session.
    One,
    /// They go where a process runs another program. What is live at the end of a process stays.
    PerProcess,
}

/// What a replay could not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapEvents {
    /// How many blocks [went](Happened::Gone) at the end of a process.
    pub gone: u64,
    /// Parts of the recording that could not be read, and are missing.
    pub damage: Vec<Damage>,
}

/// Hands out all that happened to the blocks of a selection until its moment, in the order of time; of [`Moment::Peak`], until
/// the first moment at which so much was live. A block stays what it was when it was allocated, whatever was said of it
/// later. `each` is given whoever has the names, and the stacks that there are until then; soon after it breaks, the replay does.
///
/// A replay of all events until then, and for the peak another one to find it. Memory: some 150 bytes for each block that is live at
/// once.
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
    let mut rounds = Rounds::new(progress, filter, is_at_peak);
    let sieve = Sieve::new(names.as_mut(), filter, &images, true, memory_max, &mut rounds)?;
    let mut span = Span { until: selection.moment.time(), ..Span::default() };
    if is_at_peak {
        let all = |_: Origin| OUTSIDE;
        let replayed =
            rounds.round(|progress| replay(recording, &images, Span::default(), memory_max, all, progress))?;
        span.stop_at = Some(replayed.live.bytes_live_max);
    }
    let mut teller = Teller {
        names,
        merged: MergedStacks::new(recording),
        sieve,
        numbers: EventMap::default(),
        nodes: Vec::new(),
        moves_from: None,
        interrupted: HashSet::new(),
        begins: recording.session().map_or(Time(0), |session| session.begins),
        stays: if selection.moment.time().is_some() { HashSet::new() } else { staying(recording, &images, heaps) },
        gone: 0,
        is_over: false,
        each,
    };
    let replayed = rounds.round(|progress| replay(recording, &images, span, memory_max, &mut teller, progress));
    let Teller { merged, sieve, gone, .. } = teller;
    let mut damage = match replayed {
        Ok(replayed) => replayed.damage,
        Err(Error::Stopped) => Vec::new(),
        Err(other) => return Err(other),
    };
    damage.extend(sieve.damage());
    damage.extend(merged.damage);
    Ok(HeapEvents { gone, damage: each_once(damage) })
}

/// The images of which what is live at their end stays what is live.
fn staying(recording: &Recording<'_>, images: &[ImageId], heaps: Heaps) -> HashSet<ImageId> {
    let end = |image: ImageId| recording.image_end(image).map_or(Time(u64::MAX), |end| end.time);
    match heaps {
        Heaps::One => {
            let last = images.iter().map(|&image| end(image)).max();
            images.iter().copied().filter(|&image| Some(end(image)) == last).collect()
        }
        Heaps::PerProcess => last_images(recording),
    }
}

/// What is no block of the selection. Node `n` of the others is number `n + 1`.
const OUTSIDE: StackId = StackId(0);

struct Teller<'n, 'r, 'a, 'f, N, E> {
    names: &'n mut N,
    merged: MergedStacks<'r, 'a>,
    sieve: Sieve<'f>,
    /// What the replay counts under, in the place of stacks.
    numbers: EventMap<NodeId, StackId>,
    nodes: Vec<NodeId>,
    /// What a block is counted under that is put down to another stack: it stays there.
    moves_from: Option<StackId>,
    /// Threads whose latest event is not of a block of the selection.
    interrupted: HashSet<(ImageId, ThreadId)>,
    begins: Time,
    /// What is live at the end of these images stays.
    stays: HashSet<ImageId>,
    gone: u64,
    is_over: bool,
    each: E,
}

impl<N, E: FnMut(&mut N, &Stacks, &HeapEvent) -> ControlFlow<()>> Teller<'_, '_, '_, '_, N, E> {
    fn tell(&mut self, event: &HeapEvent) {
        if !self.is_over {
            self.is_over = (self.each)(self.names, &self.merged.stacks, event).is_break();
        }
    }

    /// Takes note that a thread's latest event is of a block of the selection. Returns true if the one before it was not.
    fn resume(&mut self, thread: (ImageId, ThreadId)) -> bool {
        !self.interrupted.is_empty() && self.interrupted.remove(&thread)
    }
}

impl<'r, 'a, N, E> Follower for &mut Teller<'_, 'r, 'a, '_, N, E>
where
    N: AsMut<Names<'r, 'a>>,
    E: FnMut(&mut N, &Stacks, &HeapEvent) -> ControlFlow<()>,
{
    const WANTS_GONE: bool = true;

    fn enters(&mut self, origin: Origin) -> StackId {
        if let Some(from) = self.moves_from.take() {
            return from;
        }
        let this = &mut **self;
        let caller = origin.call.map(|(thread, _)| (origin.image, thread));
        let Verdict::Selected(stack) = this.sieve.verdict(this.names.as_mut(), &mut this.merged, &origin) else {
            this.interrupted.extend(caller);
            return OUTSIDE;
        };
        if let Some(caller) = caller {
            this.resume(caller);
        }
        // One event for each recorded block, with all that it stands for.
        let Amount { bytes: size, blocks: stands_for, .. } = origin.amount();
        let Origin { image, serial, call, .. } = origin;
        let (thread, time) = call.map_or((None, self.begins), |(thread, time)| (Some(thread), time));
        let (what, is_interrupted) = (Happened::Allocated, false);
        self.tell(&HeapEvent { time, thread, image, serial, size, stands_for, stack, what, is_interrupted });
        let nodes = &mut self.nodes;
        *self.numbers.entry(stack).or_insert_with(|| {
            nodes.push(stack);
            StackId(nodes.len() as u32)
        })
    }

    fn goes(&mut self, gone: Gone) {
        let Gone { image, serial, at: time, amount, group, why, .. } = gone;
        let Amount { bytes: size, blocks: stands_for, .. } = amount;
        let (thread, what) = match why {
            Why::Freed(thread) => (Some(thread), Happened::Freed),
            Why::ImageOver if !self.stays.contains(&image) => (None, Happened::Gone),
            Why::ImageOver | Why::ReplayOver => return,
            Why::Moves => {
                self.moves_from = Some(group);
                return;
            }
        };
        let node = (group.0 as usize).checked_sub(1).and_then(|at| self.nodes.get(at));
        if let Some(&stack) = node {
            self.gone += u64::from(what == Happened::Gone);
            let is_interrupted = thread.is_some_and(|thread| self.resume((image, thread)));
            self.tell(&HeapEvent { time, thread, image, serial, size, stands_for, stack, what, is_interrupted });
        } else {
            self.interrupted.extend(thread.map(|thread| (image, thread)));
        }
    }

    fn wants_more(&self) -> bool {
        !self.is_over
    }
}
