//! The calls of a recording as the lines of a log.

use std::collections::HashMap;

use heapledger_alloc_log::{Fields, Line, Pointer, Request};
use heapledger_core::{Api, Serial, StackId, ThreadId};
use heapledger_recording::{
    Event, EventKind, EventsBuffer, Extras, FreedBlock, ImageId, ImageStart, NodeCache, NodeKind, Recording,
    RecordingError, StackTree, TextId, Time,
};

use crate::statistics_points::{StatisticsPoint, statistics_points};

/// The alignment of `valloc`, in bytes.
const PAGE: u64 = 4096;

/// The fields that are written behind calls: see [`Fields`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogFields {
    /// The time, in nanoseconds since the session began.
    pub times: bool,
    /// The usable size, if the recording has it.
    pub usable: bool,
    /// The label of the arena.
    pub arenas: bool,
}

/// Hands out the calls of an image as lines of a log, in their order, with these fields. Blocks
/// have their serials plus 1 as slots, counted on from those of earlier images with the same
/// process id: a slot is one block of the process. Blocks that the recording does not have are slot
/// 0. Returns the number of frees and reallocations of the latter. `progress` gets the number of
/// events that were read.
///
/// Left out are events of blocks of the program's own pools, which are not the allocator's. The old
/// block of a reallocation that failed is not known: it is the null pointer.
///
/// # Errors
///
/// Fails if the recording is damaged, or if `each` does.
pub fn log_lines<E: From<RecordingError>>(
    recording: &Recording<'_>,
    image: ImageId,
    choice: LogFields,
    mut progress: impl FnMut(u64),
    mut each: impl FnMut(&Line, &Fields<'_>) -> Result<(), E>,
) -> Result<u64, E> {
    let process = recording.image(image).map_or(0, |start| start.pid.into());
    let mut arenas = choice.arenas.then(|| Arenas::new(recording, image));
    let mut points = statistics_points(recording, image).into_iter().peekable();
    let mut calls = Calls { slots_before: slots_before(recording, image), unknown: 0 };
    let mut buffer = EventsBuffer::default();
    let mut at = StatisticsPoint { serial: Serial(0), rows: 0 };
    for chunk in recording.event_chunks(image) {
        if at.serial < chunk.head().serial_first {
            at = StatisticsPoint { serial: chunk.head().serial_first, rows: 0 };
        }
        let events = chunk.decode(&mut buffer)?;
        let mut extras = events.all_extras().iter().peekable();
        for (index, event) in events.as_slice().iter().enumerate() {
            let own = extras.next_if(|(at, _)| *at as usize == index).map_or(Extras::NONE, |(_, extras)| *extras);
            let time_ns = choice.times.then_some(event.time.0);
            while let Some(point) = points.next_if(|(.., point)| (point.serial, point.rows) <= (at.serial, at.rows)) {
                let (line, fields) = statistics(process, point, choice);
                each(&line, &fields)?;
            }
            at = match event.kind {
                EventKind::Alloc { serial, .. } | EventKind::Realloc { serial, .. } => {
                    StatisticsPoint { serial: Serial(serial.0 + 1), rows: 0 }
                }
                EventKind::Reattributed { .. } => continue,
                EventKind::Free { .. } | EventKind::Failed { .. } => StatisticsPoint { rows: at.rows + 1, ..at },
            };
            let Some((request, result)) = calls.call(event, &own) else { continue };
            let stack = match event.kind {
                EventKind::Alloc { stack, .. } | EventKind::Realloc { stack, .. } => Some(stack),
                _ => None,
            };
            let arena = stack.and_then(|stack| arenas.as_mut()?.label(stack));
            let usable = if choice.usable && stack.is_some() { events.extras(index).usable } else { None };
            let usable = usable.map(|bytes| bytes.0);
            let line = Line { process, thread: event.thread.0.into(), request, result };
            each(&line, &Fields { time_ns, usable, arena })?;
        }
        progress(events.as_slice().len() as u64);
    }
    for point in points {
        let (line, fields) = statistics(process, point, choice);
        each(&line, &fields)?;
    }
    Ok(calls.unknown)
}

/// Returns the line of a statistics point.
fn statistics(
    process: u64,
    (thread, time, _): (ThreadId, Time, StatisticsPoint),
    choice: LogFields,
) -> (Line, Fields<'static>) {
    let line = Line { process, thread: thread.0.into(), request: Request::JemallocStats, result: None };
    (line, Fields { time_ns: choice.times.then_some(time.0), ..Fields::default() })
}

/// Returns the number of slots that the blocks of earlier images with the same process id have. The
/// process has become another program by `exec`, or its id was given out again, and serials begin
/// again.
fn slots_before(recording: &Recording<'_>, image: ImageId) -> u64 {
    let Some(own) = recording.image(image) else { return 0 };
    let earlier = recording.images().iter().take_while(|start| start.image != image);
    let slots = |start: &ImageStart| {
        let heads = recording.event_chunks(start.image).map(|chunk| *chunk.head());
        heads.map(|head| head.serial_first.0.saturating_add(head.serials.into())).max().unwrap_or(0)
    };
    earlier.filter(|start| start.pid == own.pid).map(slots).fold(0, u64::saturating_add)
}

/// The state while events become calls.
struct Calls {
    slots_before: u64,
    /// The frees and reallocations of blocks that the recording does not have.
    unknown: u64,
}

impl Calls {
    /// Returns the call of an event, and its result. `None` if there is no line for it.
    fn call(&mut self, event: &Event, extras: &Extras) -> Option<(Request, Option<Pointer>)> {
        let slots_before = self.slots_before;
        let slot = |Serial(serial): Serial| Pointer::Slot(slots_before.saturating_add(serial).saturating_add(1));
        const NULL: Pointer = Pointer::Address(0);
        const UNKNOWN: Pointer = Pointer::Slot(0);
        let api = event.call.api().unwrap_or(Api::Malloc);
        if matches!(api, Api::PoolAlloc | Api::PoolFree | Api::PoolBack | Api::PoolReset) {
            return None;
        }
        Some(match event.kind {
            EventKind::Alloc { serial, size, .. } => (request(api, size.0, extras, NULL), Some(slot(serial))),
            EventKind::Realloc { old, serial, size, .. } => {
                let old = match old {
                    FreedBlock::Known(old) => slot(old),
                    FreedBlock::None => NULL,
                    FreedBlock::Inherited | FreedBlock::Unknown => {
                        self.unknown += 1;
                        UNKNOWN
                    }
                };
                (Request::Realloc { block: old, size: size.0 }, Some(slot(serial)))
            }
            EventKind::Failed { size, .. } => (request(api, size.0, extras, NULL), Some(NULL)),
            EventKind::Free { block } => {
                let block = match block {
                    FreedBlock::Known(serial) => slot(serial),
                    FreedBlock::Inherited | FreedBlock::Unknown => {
                        self.unknown += 1;
                        UNKNOWN
                    }
                    FreedBlock::None => return None,
                };
                match api {
                    Api::Realloc | Api::Reallocarray => (Request::Realloc { block, size: 0 }, Some(NULL)),
                    _ => (Request::Free { block }, None),
                }
            }
            EventKind::Reattributed { .. } => return None,
        })
    }
}

/// Returns the request of a call that allocates, whose size is that of the whole.
fn request(api: Api, size: u64, extras: &Extras, old: Pointer) -> Request {
    let alignment = extras.alignment.unwrap_or(PAGE);
    match api {
        Api::Calloc => {
            let count = extras.count.unwrap_or(1);
            // The size is the product; of a call that failed because it is too large, it is not.
            let each = size.checked_div(count).filter(|each| each.checked_mul(count) == Some(size));
            each.map_or(Request::Calloc { count: 1, size }, |size| Request::Calloc { count, size })
        }
        Api::Realloc | Api::Reallocarray => Request::Realloc { block: old, size },
        Api::Memalign => Request::Memalign { alignment, size },
        Api::PosixMemalign => Request::PosixMemalign { alignment, size },
        Api::AlignedAlloc => Request::AlignedAlloc { alignment, size },
        Api::Valloc | Api::Pvalloc => Request::Valloc { size },
        _ => Request::Malloc { size },
    }
}

/// The labels of the arenas of an image, by stacks.
struct Arenas<'r, 'd> {
    recording: &'r Recording<'d>,
    tree: StackTree,
    /// The label of each stack that was met; `None` outside of arenas.
    labels: HashMap<StackId, Option<TextId>>,
    /// The escaped labels that were met: most texts are no labels, and many stacks share one.
    texts: HashMap<TextId, Vec<u8>>,
}

impl<'r, 'd> Arenas<'r, 'd> {
    fn new(recording: &'r Recording<'d>, image: ImageId) -> Arenas<'r, 'd> {
        let tree = recording.stack_tree(image, &mut NodeCache::default());
        Arenas { recording, tree, labels: HashMap::new(), texts: HashMap::new() }
    }

    fn label(&mut self, stack: StackId) -> Option<&[u8]> {
        let Arenas { recording, tree, labels, texts } = self;
        let label = labels.entry(stack).or_insert_with(|| {
            let innermost = tree.frames(stack).find(|node| node.kind != NodeKind::Stamp)?;
            innermost.text().filter(|_| innermost.kind == NodeKind::Heap)
        });
        let text = (*label)?;
        let escaped = || recording.text(text).map(|text| Fields::escaped_label(&text.bytes)).unwrap_or_default();
        Some(texts.entry(text).or_insert_with(escaped))
    }
}

#[cfg(test)]
mod tests;
