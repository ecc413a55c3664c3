//! The work of a recorded process: its calls, and what it has inherited.
//!
//! A forked process has the blocks of the one that forked it. Its work begins with all calls of
//! that one up to the fork, so that its heap is in the state that it really had; they are not
//! measured. A recording does not say which of these blocks the process frees, only their sizes:
//! the last one of this size that was allocated is taken.

use std::collections::{BTreeMap, HashMap};

use heapledger_core::{Bytes, Serial, StackId, ThreadId};
use heapledger_recording::{
    ImageId, ImageOrigin, ImageStart, NodeCache, NodeKind, Recording, RecordingError, StackTree, Time,
};

use crate::recorded::{Effect, EventPlace, RecordedCall, RecordedError, recorded_calls};
use crate::work::{ArenaNumber, WorkError, WorkWriter};

/// A name that no block has: its memory comes from nowhere.
const NONE: u64 = u64::MAX;
/// The bits of a block's name above its serial: the number of the image in the line of forks.
const LEVEL: u32 = 48;
/// The time after its beginning in which an image may say that it was forked, in nanoseconds.
const LATE: u64 = 10_000_000;

/// An act of the program that concerns its allocator, but no block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    /// The image.
    pub image: ImageId,
    /// The time.
    pub time: Time,
    /// The act.
    pub kind: ActKind,
}

/// The kind of an [`Act`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActKind {
    /// All unused memory was given back.
    PurgedAll,
    /// The unused memory that was too much was given back.
    PurgedExcess,
    /// The arena of this label was disposed of.
    Disposed(Vec<u8>),
    /// A thread asked for statistics, at this place among the events. The time does not count.
    Statistics(ThreadId, EventPlace),
}

/// Adds the calls of an image of a recording to a work, with their times and arenas. `acts` are
/// those of all images, of each in the order of time. `progress` gets the number of events that
/// were read of this image.
///
/// # Errors
///
/// Fails if the recording is damaged, or if the work cannot be written.
pub fn recorded(
    recording: &Recording<'_>,
    image: ImageId,
    acts: &[Act],
    work: &mut WorkWriter,
    progress: impl FnMut(u64),
) -> Result<(), RecordedError> {
    let line = line_of(recording, image);
    let begins = recording.image(image).map_or(0, |start| start.time.0);
    let mut heap = Heap::default();
    let forks = line.len() - 1;
    for (level, pair) in line.windows(2).enumerate() {
        let [ancestor, next] = pair else { continue };
        work.begin_inheritance();
        let calls = fork_point(recording, ancestor.image, next)?;
        let mut adder = Adder::new(recording, ancestor.image, level, acts, work);
        adder.add(&mut heap, Some(calls), None, |_| {})?;
        heap.fork();
    }
    if forks > 0 {
        work.inherit()?;
    }
    work.set_begin(begins);
    Adder::new(recording, image, forks, acts, work).add(&mut heap, None, Some(begins), progress)
}

/// Returns an image and those that it was forked from, the first one first.
fn line_of<'r>(recording: &'r Recording<'_>, image: ImageId) -> Vec<&'r ImageStart> {
    let mut line = Vec::new();
    let mut next = recording.image(image);
    while let Some(start) = next {
        line.push(start);
        // Ids fall: the line ends.
        let parent = start.parent_image.filter(|parent| start.how == ImageOrigin::Fork && *parent < start.image);
        next = parent.and_then(|parent| recording.image(parent));
    }
    line.reverse();
    line
}

/// Returns the number of calls of an image before it forked another one: the moment nearest to the
/// other one's beginning at which as much was live as that one says that it has inherited. If there
/// is none, the times decide.
fn fork_point(recording: &Recording<'_>, parent: ImageId, child: &ImageStart) -> Result<u64, RecordingError> {
    let start = recording.image(parent);
    let (mut blocks, mut bytes) = start.map_or((0, 0), |it| (it.inherited_blocks.0, it.inherited_bytes.0));
    let wanted = (child.inherited_blocks.0, child.inherited_bytes.0);
    let mut sizes: HashMap<u64, u64> = HashMap::new();
    let (mut calls, mut by_time, mut nearest) = (0, 0, None);
    let read = recorded_calls(
        recording,
        parent,
        |_| {},
        |call| {
            if call.time.0 > child.time.0.saturating_add(LATE) {
                return Err(Stop::Enough);
            }
            let mut free = |block: Option<u64>| {
                let size = block.map_or(call.freed_size.map(|size| size.0), |block| sizes.remove(&block));
                if let Some(size) = size {
                    (blocks, bytes) = (u64::saturating_sub(blocks, 1), u64::saturating_sub(bytes, size));
                }
            };
            let new = match call.effect {
                Effect::Allocated { block, size, .. } => Some((block, size)),
                Effect::Reallocated { old, block, size } => {
                    free(old.map(|old| old.0));
                    Some((block, size))
                }
                Effect::Freed(block) => {
                    free(block.map(|block| block.0));
                    None
                }
            };
            if let Some((block, size)) = new {
                sizes.insert(block.0, size.0);
                (blocks, bytes) = (blocks + 1, u64::saturating_add(bytes, size.0));
            }
            calls += 1;
            if call.time <= child.time {
                by_time = calls;
            }
            let distance = call.time.0.abs_diff(child.time.0);
            if (blocks, bytes) == wanted && nearest.is_none_or(|(least, _)| distance <= least) {
                nearest = Some((distance, calls));
            }
            Ok(())
        },
    );
    match read {
        Ok(()) | Err(Stop::Enough) => Ok(nearest.map_or(by_time, |(_, calls)| calls)),
        Err(Stop::Error(error)) => Err(error),
    }
}

/// The reason why no more calls are read.
enum Stop<E> {
    Enough,
    Error(E),
}

impl From<RecordingError> for Stop<RecordingError> {
    fn from(error: RecordingError) -> Self {
        Stop::Error(error)
    }
}

impl<E: Into<RecordedError>> From<E> for Stop<RecordedError> {
    fn from(error: E) -> Self {
        Stop::Error(error.into())
    }
}

/// The live blocks in a line of forks, as far as another process may inherit them.
#[derive(Default)]
struct Heap {
    /// The sizes of live blocks by their names, which are in the order of their allocations.
    live: BTreeMap<u64, u64>,
    /// The inherited blocks by their sizes.
    inherited: HashMap<u64, Vec<u64>>,
}

impl Heap {
    /// Makes all live blocks inherited ones.
    fn fork(&mut self) {
        self.inherited.clear();
        for (&name, &size) in &self.live {
            self.inherited.entry(size).or_default().push(name);
        }
    }

    /// Returns the name of a block that is freed, and forgets the block. `own` is its name if the
    /// image has allocated it.
    fn remove(&mut self, own: Option<u64>, size: Option<Bytes>) -> u64 {
        let found = own.or_else(|| self.inherited.get_mut(&size?.0)?.pop());
        if let Some(name) = found {
            self.live.remove(&name);
        }
        found.unwrap_or(NONE)
    }
}

/// Adds the calls of one image to a work.
struct Adder<'a, 'r> {
    recording: &'a Recording<'r>,
    image: ImageId,
    level: u64,
    acts: std::iter::Peekable<std::slice::Iter<'a, Act>>,
    /// The points at which the program asked for statistics, in their order.
    points: std::iter::Peekable<std::vec::IntoIter<(EventPlace, ThreadId)>>,
    work: &'a mut WorkWriter,
    tree: StackTree,
    /// The arenas by the stacks that allocate in them.
    arenas: HashMap<StackId, Option<ArenaNumber>>,
}

impl<'a, 'r> Adder<'a, 'r> {
    fn new(
        recording: &'a Recording<'r>,
        image: ImageId,
        level: usize,
        acts: &'a [Act],
        work: &'a mut WorkWriter,
    ) -> Adder<'a, 'r> {
        let tree = recording.stack_tree(image, &mut NodeCache::default());
        let first = acts.partition_point(|act| act.image < image);
        let own = acts[first..].iter().take_while(|act| act.image == image);
        let mut points: Vec<(EventPlace, ThreadId)> = own
            .filter_map(
                |act| if let ActKind::Statistics(thread, place) = act.kind { Some((place, thread)) } else { None },
            )
            .collect();
        points.sort_by_key(|(place, _)| *place);
        let (acts, points) = (acts[first..].iter().peekable(), points.into_iter().peekable());
        Adder { recording, image, level: level as u64, acts, points, work, tree, arenas: HashMap::new() }
    }

    /// Adds at most so many calls. With `begins`, they are those of the process itself, which began
    /// then: they have times.
    fn add(
        &mut self,
        heap: &mut Heap,
        calls_max: Option<u64>,
        begins: Option<u64>,
        progress: impl FnMut(u64),
    ) -> Result<(), RecordedError> {
        let (recording, image) = (self.recording, self.image);
        let mut left = calls_max.unwrap_or(u64::MAX);
        let read = recorded_calls(recording, image, progress, |call| {
            if left == 0 {
                return Err(Stop::Enough);
            }
            left -= 1;
            Ok(self.add_call(heap, &call, begins)?)
        });
        match read {
            Ok(()) | Err(Stop::Enough) => {}
            Err(Stop::Error(error)) => return Err(error),
        }
        // The points at the end.
        if calls_max.is_none() {
            self.add_acts(Time(u64::MAX), 0)?;
            self.add_points(EventPlace { serial: Serial(u64::MAX), rows: u64::MAX })?;
        }
        Ok(())
    }

    fn add_call(&mut self, heap: &mut Heap, call: &RecordedCall, begins: Option<u64>) -> Result<(), WorkError> {
        let thread = u64::from(call.thread.0);
        self.work.set_moment(call.time.0);
        self.add_acts(call.time, thread)?;
        if let Some(begins) = begins {
            // Points before the process began are not its own.
            self.add_points(call.place)?;
            self.work.wait(thread, call.time.0.saturating_sub(begins))?;
        }
        let name = |serial: u64| self.level << LEVEL | serial & ((1 << LEVEL) - 1);
        // Names are kept only for processes that others are forked from: nobody inherits from this
        // one if it is the last.
        let is_kept = begins.is_none();
        match call.effect {
            Effect::Allocated { call: function, block, size } => {
                let block = name(block.0);
                if is_kept {
                    heap.live.insert(block, size.0);
                }
                let arena = self.arena(call.stack);
                self.work.allocate_in(thread, arena, function, block, size.0)
            }
            Effect::Reallocated { old, block, size } => {
                let (old, block) = (heap.remove(old.map(|old| name(old.0)), call.freed_size), name(block.0));
                if is_kept {
                    heap.live.insert(block, size.0);
                }
                self.work.reallocate(thread, old, block, size.0)
            }
            Effect::Freed(block) => {
                let block = heap.remove(block.map(|block| name(block.0)), call.freed_size);
                self.work.free(thread, block)
            }
        }
    }

    /// Adds the points at which the program asked for statistics, up to a place.
    fn add_points(&mut self, until: EventPlace) -> Result<(), WorkError> {
        while let Some((_, thread)) = self.points.next_if(|(place, _)| *place <= until) {
            self.work.statistics(thread.0.into())?;
        }
        Ok(())
    }

    /// Adds what the program did before a time.
    fn add_acts(&mut self, until: Time, thread: u64) -> Result<(), WorkError> {
        let image = self.image;
        // An allocator says for each arena that it has purged it.
        let mut before = None;
        while let Some(act) = self.acts.next_if(|act| act.image == image && act.time < until) {
            if matches!(act.kind, ActKind::Statistics(..)) || before.replace(&act.kind) == Some(&act.kind) {
                continue;
            }
            match &act.kind {
                ActKind::PurgedAll => self.work.purge(thread, true)?,
                ActKind::PurgedExcess => self.work.purge(thread, false)?,
                ActKind::Disposed(label) => {
                    if let Some(arena) = self.work.arena(label) {
                        self.work.dispose(arena)?;
                    }
                }
                ActKind::Statistics(..) => {}
            }
        }
        Ok(())
    }

    /// Returns the arena that a stack allocates from.
    fn arena(&mut self, stack: StackId) -> Option<ArenaNumber> {
        if let Some(&known) = self.arenas.get(&stack) {
            return known;
        }
        let mut node = self.tree.get(stack);
        while let Some(inner) = node.filter(|node| [NodeKind::Stamp, NodeKind::Context].contains(&node.kind)) {
            node = self.tree.get(inner.parent);
        }
        let heap = node.filter(|node| node.kind == NodeKind::Heap).and_then(|node| node.text());
        let label = heap.and_then(|text| self.recording.text(text));
        let arena = label.and_then(|label| self.work.arena(&label.bytes));
        self.arenas.insert(stack, arena);
        arena
    }
}
