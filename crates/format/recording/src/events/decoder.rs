//! Decoding columns into events.

use heapledger_core::sample::Rate;
use heapledger_core::{Api, Bytes, Serial, StackId, ThreadId};

use super::marks::{self, Mark};
use super::ops::{self, *};
use super::usable::{self, Predictions};
use super::{EXTRA_AFTER_UNSAMPLED, EXTRA_RATE, Event, EventKind, Extras, FreedBlock, Sampled};
use crate::columns::{self, CODEC_BYTES, CODEC_DELTA, CODEC_VARINT, Column};
use crate::error::Reason;
use crate::frame::Unpacker;
use crate::head::{CHUNK_ROWS_MAX, ChunkHead};
use crate::ids::{Call, Time};
use crate::varint::{self, Varints};

/// Memory for the events of one chunk; reused from chunk to chunk.
#[derive(Debug, Default)]
pub struct EventsBuffer {
    pub(crate) unpacker: Unpacker,
    pub(crate) decoded: Decoded,
}

impl EventsBuffer {
    /// Takes the events that were decoded last, in exchange for other memory, whose contents are
    /// dropped.
    pub fn take_events(&mut self, events: &mut Vec<Event>) {
        std::mem::swap(&mut self.decoded.events, events);
        self.decoded.events.clear();
    }

    /// Takes the [usable sizes](Events::usable_sizes) of the events that were decoded last, as
    /// [`EventsBuffer::take_events`] does the events.
    pub fn take_usable_sizes(&mut self, sizes: &mut Vec<u64>) {
        std::mem::swap(&mut self.decoded.usable_sizes, sizes);
        self.decoded.usable_sizes.clear();
    }
}

/// The columns that every chunk has.
const COLUMNS: [u16; 13] = [
    COLUMN_OPS,
    COLUMN_STACKS,
    COLUMN_CALLS,
    COLUMN_SOURCES,
    COLUMN_SIZES_LOW,
    COLUMN_SIZES_HIGH,
    COLUMN_NEAR,
    COLUMN_FAR_LOW,
    COLUMN_FAR_MIDDLE,
    COLUMN_FAR_HIGH,
    COLUMN_TICKS,
    COLUMN_THREADS,
    COLUMN_EXTRAS,
];

/// Events and extras of a chunk.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    events: Vec<Event>,
    /// In ascending order of indices, each once.
    extras: Vec<(u32, Extras)>,
    /// In the order of the indices of the events that they stand before.
    marks: Vec<(u32, Mark)>,
    /// The sizes of [`Events::usable_sizes`].
    usable_sizes: Vec<u64>,
    predictions: Predictions,
    /// The serial of the first allocation.
    serial_first: u64,
    /// The sources of the chunk that is being decoded, by number.
    sources: Vec<Source>,
    recent: Recent,
}

/// The source of allocations.
#[derive(Clone, Copy, Debug)]
struct Source {
    stack: StackId,
    call: Call,
    /// True if the allocations are reallocations.
    is_realloc: bool,
    last_size: Bytes,
}

/// The events of one decoded chunk.
#[derive(Clone, Copy, Debug)]
pub struct Events<'b> {
    decoded: &'b Decoded,
}

impl<'b> Events<'b> {
    /// Returns the events in order.
    pub fn as_slice(&self) -> &'b [Event] {
        &self.decoded.events
    }

    /// Returns the additional fields of the event at this index of the slice.
    pub fn extras(&self, index: usize) -> Extras {
        let all = &self.decoded.extras;
        let found = all.binary_search_by_key(&index, |(at, _)| *at as usize);
        let extras = found.map_or(Extras::NONE, |at| all[at].1);
        Extras { usable: extras.usable.or_else(|| self.usable(index)), ..extras }
    }

    /// Returns the usable size of the block that the event at this index allocates.
    fn usable(&self, index: usize) -> Option<Bytes> {
        let (EventKind::Alloc { serial, .. } | EventKind::Realloc { serial, .. }) =
            self.decoded.events.get(index)?.kind
        else {
            return None;
        };
        let at = usize::try_from(serial.0.checked_sub(self.decoded.serial_first)?).ok()?;
        self.decoded.usable_sizes.get(at)?.checked_sub(1).map(Bytes)
    }

    /// Returns the usable sizes of the blocks that the events allocate, in the order of serials: 0
    /// if one is not known, else the size in bytes plus 1. Empty if none was recorded.
    pub fn usable_sizes(&self) -> &'b [u64] {
        &self.decoded.usable_sizes
    }

    /// Returns all events with additional fields other than usable sizes, by their index, in order.
    pub fn all_extras(&self) -> &'b [(u32, Extras)] {
        &self.decoded.extras
    }

    /// Returns all marks in order, each with the index of the event that it stands before: the
    /// number of events, if it stands behind the last one.
    pub fn marks(&self) -> &'b [(u32, Mark)] {
        &self.decoded.marks
    }
}

impl Decoded {
    pub(crate) fn events(&self) -> Events<'_> {
        Events { decoded: self }
    }

    /// Replaces what was decoded before by the events of a chunk.
    pub(crate) fn decode(&mut self, contents: &[u8], head: &ChunkHead) -> Result<(), Reason> {
        self.events.clear();
        self.extras.clear();
        self.marks.clear();
        self.usable_sizes.clear();
        self.serial_first = head.serial_first.0;
        let [
            ops,
            stacks,
            calls,
            sources,
            sizes_low,
            sizes_high,
            near,
            far_low,
            far_middle,
            far_high,
            ticks,
            threads,
            extras,
        ] = columns::find(contents, COLUMNS)?;
        if head.rows as usize > CHUNK_ROWS_MAX || ops.bytes.len() < head.rows as usize {
            return Err(Reason::Invalid("the number of events"));
        }
        if head.serial_first.0.checked_add(u64::from(head.rows)).is_none() {
            return Err(Reason::Invalid("a serial"));
        }
        self.sources.clear();
        self.recent.reset(head.serial_first.0);
        let mut columns = EventColumns {
            ops: bytes(ops)?,
            stacks: Varints::new(stacks.with_codec(CODEC_DELTA)?),
            calls: bytes(calls)?,
            source_numbers: varints(sources)?,
            sizes_low: bytes(sizes_low)?,
            sizes_high: varints(sizes_high)?,
            near: bytes(near)?,
            far_low: bytes(far_low)?,
            far_middle: bytes(far_middle)?,
            far_high: varints(far_high)?,
            sources: &mut self.sources,
            recent: &mut self.recent,
            last_stack: 0,
            next_serial: head.serial_first.0,
            wrong: None,
        };
        let mut times = Times::new(varints(ticks)?, head)?;
        let mut threads = Threads { runs: varints(threads)?, thread: ThreadId(0), left: 0 };
        self.events.extend((0..u64::from(head.rows)).map(|index| {
            let time = times.at(index, &mut columns.wrong);
            let thread = threads.next(&mut columns.wrong);
            let (call, kind) = columns.event(thread);
            Event { time, thread, call, sampled: Sampled::NOT, kind }
        }));
        if let Some(reason) = columns.wrong {
            return Err(reason);
        }
        if columns.next_serial - head.serial_first.0 != u64::from(head.serials) {
            return Err(Reason::Invalid("the number of serials"));
        }
        if threads.left > 0
            || times.next.is_some()
            || !times.marks.is_empty()
            || !threads.runs.is_empty()
            || !columns.are_empty()
        {
            return Err(columns::TOO_LONG);
        }
        self.decode_extras(varints(extras)?)?;
        self.decode_usable_sizes(contents)?;
        if let Some(column) = marks::find(contents, head)? {
            marks::decode(varints(column)?, head, &self.events, &mut self.marks)?;
        }
        match columns::find_optional(contents, COLUMN_MOVES)? {
            Some(moves) => self.decode_reattributions(varints(moves)?, head),
            None if head.moves > 0 => Err(Reason::Invalid("a column is missing")),
            None => Ok(()),
        }
    }

    fn decode_usable_sizes(&mut self, contents: &[u8]) -> Result<(), Reason> {
        let Some(column) = columns::find_optional(contents, COLUMN_USABLE)? else { return Ok(()) };
        usable::decode(varints(column)?, &self.events, &mut self.predictions, &mut self.usable_sizes)
    }

    /// Inserts the moves between the events, which are all decoded.
    #[cold]
    fn decode_reattributions(&mut self, mut moves: Varints<'_>, head: &ChunkHead) -> Result<(), Reason> {
        if head.moves as usize > CHUNK_ROWS_MAX {
            return Err(Reason::Invalid("the number of moves"));
        }
        let events = std::mem::take(&mut self.events);
        let mut extras = std::mem::take(&mut self.extras).into_iter().peekable();
        let mut marks = self.marks.iter_mut().peekable();
        let mut next_serial = head.serial_first.0;
        // The index at which the next move stands.
        let mut at = 0_u64;
        for left in (0..=head.moves).rev() {
            let mut number = || moves.next().ok_or(columns::TOO_SHORT);
            let mut next = None;
            if left > 0 {
                at = at.saturating_add(number()?);
                next = Some((number()?, number()?));
            }
            let taken = (self.events.len() as u64).saturating_sub(u64::from(head.moves - left));
            let until = if left > 0 { at } else { events.len() as u64 };
            if until > events.len() as u64 {
                return Err(Reason::Invalid("a move behind the last event"));
            }
            for index in taken..until {
                let event = events[index as usize];
                if matches!(event.kind, EventKind::Alloc { .. } | EventKind::Realloc { .. }) {
                    next_serial += 1;
                }
                if let Some((_, extras)) = extras.next_if(|(at, _)| u64::from(*at) == index) {
                    self.extras.push((self.events.len() as u32, extras));
                }
                while let Some((at, _)) = marks.next_if(|(at, _)| u64::from(*at) == index) {
                    *at = self.events.len() as u32;
                }
                self.events.push(event);
            }
            let Some((age, stack)) = next else { break };
            let block = next_serial.checked_sub(age).filter(|&serial| serial < next_serial).map(Serial);
            let stack = u32::try_from(stack).map(StackId).ok().filter(|&stack| stack <= StackId::MAX);
            let (Some(block), Some(stack)) = (block, stack) else { return Err(Reason::Invalid("a move")) };
            let first = Event {
                time: head.time_first,
                thread: ThreadId(0),
                call: Call::from(Api::Free),
                sampled: Sampled::NOT,
                kind: EventKind::Free { block: FreedBlock::None },
            };
            let before = self.events.last().copied().unwrap_or(first);
            let kind = EventKind::Reattributed { block, stack };
            self.events.push(Event { kind, sampled: Sampled::NOT, ..before });
        }
        marks.for_each(|(at, _)| *at = self.events.len() as u32);
        if moves.is_empty() { Ok(()) } else { Err(columns::TOO_LONG) }
    }

    fn decode_extras(&mut self, mut extras: Varints<'_>) -> Result<(), Reason> {
        let mut index = 0u64;
        while !extras.is_empty() {
            let mut next = || extras.next().ok_or(columns::TOO_SHORT);
            let (step, tag, value) = (next()?, next()?, next()?);
            index = index.saturating_add(step);
            if index >= self.events.len() as u64 {
                return Err(Reason::Invalid("extras of an event that is not there"));
            }
            let index = index as u32;
            if matches!(tag, EXTRA_RATE | EXTRA_AFTER_UNSAMPLED) {
                let event = &mut self.events[index as usize];
                // For an event of another kind, it means nothing.
                if tag == EXTRA_RATE && event.kind.allocates() {
                    event.sampled.rate = Rate::from_logarithm(value);
                }
                if tag == EXTRA_AFTER_UNSAMPLED && event.kind.releases() {
                    event.sampled.after_unsampled = value != 0;
                }
                continue;
            }
            match self.extras.last_mut() {
                Some((at, last)) if *at == index => last.set(tag, value)?,
                _ => {
                    let mut extras = Extras::NONE;
                    extras.set(tag, value)?;
                    // It is empty only if there was nothing but a tag that this version does not
                    // know.
                    if extras != Extras::NONE {
                        self.extras.push((index, extras));
                    }
                }
            }
        }
        Ok(())
    }
}

fn varints(column: Column<'_>) -> Result<Varints<'_>, Reason> {
    column.with_codec(CODEC_VARINT).map(Varints::new)
}

fn bytes(column: Column<'_>) -> Result<&[u8], Reason> {
    column.with_codec(CODEC_BYTES)
}

/// The columns with a value for some of the events. An error in them is kept until the end, and
/// values read until then mean nothing: that is faster than a check after each value.
struct EventColumns<'a> {
    ops: &'a [u8],
    stacks: Varints<'a>,
    calls: &'a [u8],
    source_numbers: Varints<'a>,
    sizes_low: &'a [u8],
    sizes_high: Varints<'a>,
    near: &'a [u8],
    far_low: &'a [u8],
    far_middle: &'a [u8],
    far_high: Varints<'a>,
    sources: &'a mut Vec<Source>,
    recent: &'a mut Recent,
    last_stack: u64,
    next_serial: u64,
    wrong: Option<Reason>,
}

const NO_OPERATION: Reason = Reason::Invalid("an operation");
const NEVER_ALLOCATED: Reason = Reason::Invalid("a released block that was never allocated");

impl EventColumns<'_> {
    #[inline]
    fn event(&mut self, thread: ThreadId) -> (Call, EventKind) {
        let op = next_byte(&mut self.ops, &mut self.wrong);
        match op {
            SAME_SIZE.. => {
                let (number, has_last_size) =
                    if op < OTHER_SIZE { (op - SAME_SIZE, true) } else { (op - OTHER_SIZE, false) };
                self.allocation(u64::from(number), has_last_size, thread)
            }
            ops::SOURCE_SAME_SIZE | ops::SOURCE_OTHER_SIZE => {
                let number = next_or(&mut self.source_numbers, &mut self.wrong);
                let number = number.saturating_add(u64::from(SOURCES_LOW));
                self.allocation(number, op == ops::SOURCE_SAME_SIZE, thread)
            }
            ops::SOURCE_NEW => {
                let (stack, shape, call) = self.stack_and_call();
                if shape != SHAPE_ALLOC && shape != SHAPE_REALLOC {
                    self.wrong = Some(NO_OPERATION);
                }
                let source = Source { stack, call, is_realloc: shape == SHAPE_REALLOC, last_size: Bytes(0) };
                self.sources.push(source);
                self.allocation(self.sources.len() as u64 - 1, false, thread)
            }
            ops::FAILED => {
                let (stack, shape, call) = self.stack_and_call();
                if shape != SHAPE_FAILED {
                    self.wrong = Some(NO_OPERATION);
                }
                (call, EventKind::Failed { size: self.size(), stack })
            }
            ops::CALL => {
                let (shape, call) = self.call();
                if shape != SHAPE_FREE {
                    self.wrong = Some(NO_OPERATION);
                }
                let op = next_byte(&mut self.ops, &mut self.wrong);
                (call, EventKind::Free { block: self.release(op, thread) })
            }
            _ => (Call::from(Api::Free), EventKind::Free { block: self.release(op, thread) }),
        }
    }

    #[inline]
    fn allocation(&mut self, number: u64, has_last_size: bool, thread: ThreadId) -> (Call, EventKind) {
        let other_size = (!has_last_size).then(|| self.size());
        let source = usize::try_from(number).ok().and_then(|number| self.sources.get_mut(number));
        let Some(source) = source else {
            self.wrong = Some(Reason::Invalid("the number of a source"));
            return (Call::from(Api::Free), EventKind::Free { block: FreedBlock::None });
        };
        source.last_size = other_size.unwrap_or(source.last_size);
        let Source { stack, call, is_realloc, last_size: size } = *source;
        let old = is_realloc.then(|| {
            let op = next_byte(&mut self.ops, &mut self.wrong);
            self.release(op, thread)
        });
        // Does not overflow: there are no more allocations than rows.
        let serial = Serial(self.next_serial);
        self.next_serial += 1;
        let kind = match old {
            None => EventKind::Alloc { serial, size, stack },
            Some(old) => EventKind::Realloc { old, serial, size, stack },
        };
        (call, kind)
    }

    #[inline]
    fn release(&mut self, op: u8, thread: ThreadId) -> FreedBlock {
        let (serial, index) = match op {
            YOUNG..SAME_SIZE => {
                let serial = self.next_serial.checked_sub(u64::from(op - YOUNG) + 1);
                return self.known(serial);
            }
            AHEAD..YOUNG => {
                let index = usize::from(op) % RECENT;
                let distance = if op < NEXT { next_byte(&mut self.near, &mut self.wrong) } else { 1 };
                let recent = self.recent.of(thread)[index];
                let is_ahead = op < BEHIND || (NEXT..PREVIOUS).contains(&op);
                let serial = if is_ahead {
                    recent.checked_add(u64::from(distance))
                } else {
                    recent.checked_sub(u64::from(distance))
                };
                (serial, index)
            }
            ops::FAR => {
                let low = u64::from(next_byte(&mut self.far_low, &mut self.wrong));
                let middle = u64::from(next_byte(&mut self.far_middle, &mut self.wrong));
                let high = next_or(&mut self.far_high, &mut self.wrong);
                if high >= 1 << 48 {
                    self.wrong = Some(NEVER_ALLOCATED);
                }
                (self.next_serial.checked_sub(high << 16 | middle << 8 | low), RECENT - 1)
            }
            ops::UNKNOWN => return FreedBlock::Unknown,
            ops::INHERITED => return FreedBlock::Inherited,
            ops::NONE => return FreedBlock::None,
            _ => {
                self.wrong = Some(NO_OPERATION);
                return FreedBlock::None;
            }
        };
        let block = self.known(serial);
        if let FreedBlock::Known(serial) = block {
            ops::follow(self.recent.of(thread), index, serial.0);
        }
        block
    }

    #[inline]
    fn known(&mut self, serial: Option<u64>) -> FreedBlock {
        match serial {
            Some(serial) if serial < self.next_serial => FreedBlock::Known(Serial(serial)),
            _ => {
                self.wrong = Some(NEVER_ALLOCATED);
                FreedBlock::None
            }
        }
    }

    fn stack_and_call(&mut self) -> (StackId, u8, Call) {
        let difference = next_or(&mut self.stacks, &mut self.wrong);
        self.last_stack = varint::unzigzag(self.last_stack, difference);
        if self.last_stack > u64::from(StackId::MAX.0) {
            self.wrong = Some(Reason::Invalid("a stack id"));
        }
        let (shape, call) = self.call();
        (StackId(self.last_stack as u32), shape, call)
    }

    fn call(&mut self) -> (u8, Call) {
        let byte = next_byte(&mut self.calls, &mut self.wrong);
        let call = Call::from_number(byte & !SHAPE).unwrap_or_else(|| {
            self.wrong = Some(Reason::Invalid("an event without entry point"));
            Call::from(Api::Malloc)
        });
        (byte & SHAPE, call)
    }

    #[inline]
    fn size(&mut self) -> Bytes {
        let low = u64::from(next_byte(&mut self.sizes_low, &mut self.wrong));
        let high = next_or(&mut self.sizes_high, &mut self.wrong);
        if high >= 1 << 56 {
            self.wrong = Some(Reason::Invalid("a size"));
        }
        Bytes(high << 8 | low)
    }

    fn are_empty(&self) -> bool {
        let bytes = [self.ops, self.calls, self.sizes_low, self.near, self.far_low, self.far_middle];
        let varints = [&self.stacks, &self.source_numbers, &self.sizes_high, &self.far_high];
        bytes.iter().all(|column| column.is_empty()) && varints.iter().all(|column| column.is_empty())
    }
}

/// Returns the next byte of a column. Sets `wrong` if there is none.
#[inline]
fn next_byte(column: &mut &[u8], wrong: &mut Option<Reason>) -> u8 {
    match column.split_first() {
        Some((&byte, rest)) => {
            *column = rest;
            byte
        }
        None => {
            *wrong = Some(columns::TOO_SHORT);
            0
        }
    }
}

/// Returns the next value of a column. Sets `wrong` if there is none; the column is then over.
#[inline]
fn next_or(column: &mut Varints<'_>, wrong: &mut Option<Reason>) -> u64 {
    column.next().unwrap_or_else(|| {
        *wrong = Some(columns::TOO_SHORT);
        *column = Varints::new(&[]);
        0
    })
}

struct Times<'a> {
    marks: Varints<'a>,
    /// The index at which the next mark takes effect, and by how many ticks.
    next: Option<(u64, u64)>,
    time: u64,
    time_last: u64,
    tick_ns: u64,
}

impl<'a> Times<'a> {
    fn new(marks: Varints<'a>, head: &ChunkHead) -> Result<Times<'a>, Reason> {
        if head.tick_ns == 0 || head.time_first > head.time_last {
            return Err(Reason::Invalid("the times of a chunk"));
        }
        let (time, time_last) = (head.time_first.0, head.time_last.0);
        let mut times = Times { marks, next: None, time, time_last, tick_ns: u64::from(head.tick_ns) };
        let mut wrong = None;
        times.read_mark(0, &mut wrong);
        wrong.map_or(Ok(times), Err)
    }

    #[inline]
    fn at(&mut self, index: u64, wrong: &mut Option<Reason>) -> Time {
        while let Some((at, ticks)) = self.next
            && at == index
        {
            let step = ticks.checked_mul(self.tick_ns).and_then(|step| self.time.checked_add(step));
            match step.filter(|&time| time <= self.time_last) {
                Some(time) => self.time = time,
                None => *wrong = Some(Reason::Invalid("the time of an event")),
            }
            self.read_mark(at, wrong);
        }
        Time(self.time)
    }

    fn read_mark(&mut self, from: u64, wrong: &mut Option<Reason>) {
        self.next = None;
        if !self.marks.is_empty() {
            let step = next_or(&mut self.marks, wrong);
            self.next = Some((from.saturating_add(step), next_or(&mut self.marks, wrong)));
        }
    }
}

struct Threads<'a> {
    runs: Varints<'a>,
    thread: ThreadId,
    left: u64,
}

impl Threads<'_> {
    #[inline]
    fn next(&mut self, wrong: &mut Option<Reason>) -> ThreadId {
        if self.left == 0 {
            self.next_run(wrong);
        }
        self.left = self.left.saturating_sub(1);
        self.thread
    }

    fn next_run(&mut self, wrong: &mut Option<Reason>) {
        self.left = next_or(&mut self.runs, wrong);
        let thread = next_or(&mut self.runs, wrong);
        match u32::try_from(thread) {
            Ok(thread) if self.left > 0 => self.thread = ThreadId(thread),
            Ok(_) => *wrong = Some(Reason::Invalid("a run of no events")),
            Err(_) => *wrong = Some(Reason::Invalid("a thread id")),
        }
    }
}
