//! The calls of an image in order, as columns.

use heapledger_core::{Api, Bytes, Serial, StackId, ThreadId};

use crate::columns::{self, CODEC_BYTES, CODEC_DELTA, CODEC_VARINT, Column};
use crate::error::{Error, Reason};
use crate::frame::{Compressor, EncodedChunk, RawChunk, Unpacker};
use crate::head::{CHUNK_ROWS_MAX, ChunkHead, ChunkKind};
use crate::ids::{Call, ImageId, Live, Time};
use crate::varint::{self, Varints};

/// One call that changed the heap, or failed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, at the resolution of the chunk ([`ChunkHead::tick_ns`](crate::ChunkHead::tick_ns), rounded down).
    pub time: Time,
    /// Who.
    pub thread: ThreadId,
    /// The entry point.
    pub call: Call,
    /// What happened.
    pub kind: EventKind,
}

/// What a call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A block came to be.
    Alloc {
        /// The block: always the next serial of the image.
        serial: Serial,
        /// Requested bytes.
        size: Bytes,
        /// Where from.
        stack: StackId,
    },
    /// A block went.
    Free {
        /// Which.
        block: FreedBlock,
    },
    /// A block took the place of another, wherever it lies now.
    Realloc {
        /// The block that went. [`FreedBlock::None`] for `realloc(NULL, size)`.
        old: FreedBlock,
        /// The block that came: always the next serial of the image.
        serial: Serial,
        /// Requested bytes.
        size: Bytes,
        /// Where from.
        stack: StackId,
    },
    /// A block was asked for and not given. Of a reallocation: the old block is untouched.
    Failed {
        /// Requested bytes.
        size: Bytes,
        /// Where from.
        stack: StackId,
    },
}

/// Which block a call released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreedBlock {
    /// A block of this image.
    Known(Serial),
    /// A block that was live when the image began: the parent's before a fork, or older than the attachment.
    Inherited,
    /// A block that nobody saw allocated.
    Unknown,
    /// No block: the old block of `realloc(NULL, size)`.
    None,
}

/// What a few events say in addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// The alignment that was asked for.
    pub alignment: Option<u64>,
    /// The count of `calloc` or `reallocarray`. The size of the event is the product.
    pub count: Option<u64>,
    /// The size that the allocator really provides.
    pub usable: Option<Bytes>,
    /// The bytes that a sampled block stands for.
    pub weight: Option<Bytes>,
    /// Why a call failed.
    pub errno: Option<u32>,
    /// The size of a released block that is not [`FreedBlock::Known`], where it is known nevertheless.
    pub freed_size: Option<Bytes>,
    /// The size that the caller of `free_sized` or `free_aligned_sized` stated.
    pub declared_size: Option<Bytes>,
}

impl Extras {
    /// Nothing to add.
    pub const NONE: Extras = Extras {
        alignment: None,
        count: None,
        usable: None,
        weight: None,
        errno: None,
        freed_size: None,
        declared_size: None,
    };
}

/// The resolution of times in a chunk unless the encoder is told otherwise: 100 µs.
pub const TICK_NS: u32 = 100_000;

const COLUMN_OPS: u16 = 1;
const COLUMN_STACKS: u16 = 2;
const COLUMN_SIZES: u16 = 3;
const COLUMN_FREES: u16 = 4;
const COLUMN_TICKS: u16 = 5;
const COLUMN_THREADS: u16 = 6;
const COLUMN_EXTRAS: u16 = 7;

// The op is one byte: what happened in the high two bits, the entry point in the low six.
const SHAPE: u8 = 0xc0;
const SHAPE_ALLOC: u8 = 0x00;
const SHAPE_FREE: u8 = 0x40;
const SHAPE_REALLOC: u8 = 0x80;
const SHAPE_FAILED: u8 = 0xc0;

// A released block: one of these, or the distance from the next serial back to the block's plus FREED_KNOWN.
const FREED_UNKNOWN: u64 = 0;
const FREED_INHERITED: u64 = 1;
const FREED_NONE: u64 = 2;
const FREED_KNOWN: u64 = 2;

const EXTRA_ALIGNMENT: u64 = 1;
const EXTRA_COUNT: u64 = 2;
const EXTRA_USABLE: u64 = 3;
const EXTRA_WEIGHT: u64 = 4;
const EXTRA_ERRNO: u64 = 5;
const EXTRA_FREED_SIZE: u64 = 6;
const EXTRA_DECLARED_SIZE: u64 = 7;

impl Extras {
    fn tagged(&self) -> [(u64, Option<u64>); 7] {
        [
            (EXTRA_ALIGNMENT, self.alignment),
            (EXTRA_COUNT, self.count),
            (EXTRA_USABLE, self.usable.map(|bytes| bytes.0)),
            (EXTRA_WEIGHT, self.weight.map(|bytes| bytes.0)),
            (EXTRA_ERRNO, self.errno.map(u64::from)),
            (EXTRA_FREED_SIZE, self.freed_size.map(|bytes| bytes.0)),
            (EXTRA_DECLARED_SIZE, self.declared_size.map(|bytes| bytes.0)),
        ]
    }

    /// Enters a value. Tags that this version does not know are left out.
    fn set(&mut self, tag: u64, value: u64) -> Result<(), Reason> {
        let twice = match tag {
            EXTRA_ALIGNMENT => self.alignment.replace(value).is_some(),
            EXTRA_COUNT => self.count.replace(value).is_some(),
            EXTRA_USABLE => self.usable.replace(Bytes(value)).is_some(),
            EXTRA_WEIGHT => self.weight.replace(Bytes(value)).is_some(),
            EXTRA_ERRNO => {
                let errno = u32::try_from(value).map_err(|_| Reason::Invalid("an error number"))?;
                self.errno.replace(errno).is_some()
            }
            EXTRA_FREED_SIZE => self.freed_size.replace(Bytes(value)).is_some(),
            EXTRA_DECLARED_SIZE => self.declared_size.replace(Bytes(value)).is_some(),
            _ => false,
        };
        if twice { Err(Reason::Invalid("an event says something twice")) } else { Ok(()) }
    }
}

/// Gathers events of one image, in time order, into chunks. Reused from chunk to chunk.
#[derive(Debug)]
pub struct EventsEncoder {
    head: ChunkHead,
    next_serial: Serial,
    live: Live,
    last_time: Time,
    last_stack: StackId,
    /// The tick that is in force, and the time at which it ends.
    tick: u64,
    tick_end: u64,
    tick_index: usize,
    thread: ThreadId,
    thread_index: usize,
    extras_index: usize,
    ops: Vec<u8>,
    stacks: Vec<u8>,
    sizes: Vec<u8>,
    frees: Vec<u8>,
    ticks: Vec<u8>,
    threads: Vec<u8>,
    extras: Vec<u8>,
    /// Memory for the contents of a chunk, empty between two.
    contents: Vec<u8>,
}

/// The chunk is full when its extras have grown to this. The other columns take at most 47 bytes an event, 6 MiB in
/// all, so contents stay below the limit of a chunk.
const EXTRAS_FULL: usize = 8 << 20;

impl EventsEncoder {
    /// An encoder for an image whose next serial is 0 and that has nothing live.
    pub fn new(image: ImageId) -> EventsEncoder {
        EventsEncoder {
            head: ChunkHead { tick_ns: TICK_NS, ..ChunkHead::of(image) },
            next_serial: Serial(0),
            live: Live::default(),
            last_time: Time(0),
            last_stack: StackId::ROOT,
            tick: 0,
            tick_end: 0,
            tick_index: 0,
            thread: ThreadId(0),
            thread_index: 0,
            extras_index: 0,
            ops: Vec::new(),
            stacks: Vec::new(),
            sizes: Vec::new(),
            frees: Vec::new(),
            ticks: Vec::new(),
            threads: Vec::new(),
            extras: Vec::new(),
            contents: Vec::new(),
        }
    }

    /// The same with another resolution of times than [`TICK_NS`]; at least 1.
    pub fn with_tick_ns(mut self, tick_ns: u32) -> EventsEncoder {
        self.head.tick_ns = tick_ns.max(1);
        self
    }

    /// The same for an image of which the recording begins in mid-run: the serial of its next allocation, and what is
    /// live in it (its carried blocks).
    pub fn starting_at(mut self, serial: Serial, live: Live) -> EventsEncoder {
        self.next_serial = serial;
        self.live = live;
        self
    }

    /// An encoder that goes on where the chunk with this head began.
    pub(crate) fn resuming(head: &ChunkHead) -> EventsEncoder {
        let mut encoder = EventsEncoder::new(head.image.unwrap_or_default()).with_tick_ns(head.tick_ns);
        encoder.next_serial = head.serial_first;
        encoder
    }

    /// Adds an event, and what is live in the image after it.
    ///
    /// A time before that of the event before is taken as equal to it. Fails, and adds nothing, if a serial is not the
    /// image's next one, a freed block has no earlier serial, a stack id is out of range, or the chunk is full.
    #[inline]
    pub fn push(&mut self, event: &Event, extras: &Extras, live_after: Live) -> Result<(), Error> {
        if self.is_full() {
            return Err(Error::Unwritable("an event for which its chunk has no room"));
        }
        let call = event.call.number();
        match event.kind {
            EventKind::Alloc { serial, size, stack } => {
                self.check_new_block(serial, stack)?;
                self.ops.push(SHAPE_ALLOC | call);
                self.push_request(size, stack);
                self.next_serial.0 += 1;
            }
            EventKind::Free { block } => {
                let freed = self.freed(block)?;
                self.ops.push(SHAPE_FREE | call);
                varint::put(&mut self.frees, freed);
            }
            EventKind::Realloc { old, serial, size, stack } => {
                self.check_new_block(serial, stack)?;
                let freed = self.freed(old)?;
                self.ops.push(SHAPE_REALLOC | call);
                varint::put(&mut self.frees, freed);
                self.push_request(size, stack);
                self.next_serial.0 += 1;
            }
            EventKind::Failed { size, stack } => {
                check_stack(stack)?;
                self.ops.push(SHAPE_FAILED | call);
                self.push_request(size, stack);
            }
        }
        let index = self.ops.len() - 1;
        if index == 0 {
            self.begin(event);
        }
        if event.thread != self.thread {
            self.push_thread_run(index);
            self.thread = event.thread;
        }
        self.last_time = self.last_time.max(event.time);
        if self.last_time.0 >= self.tick_end {
            self.push_tick(index);
        }
        if *extras != Extras::NONE {
            self.push_extras(index, extras);
        }
        self.live = live_after;
        self.head.bytes_live_max = self.head.bytes_live_max.max(live_after.bytes);
        Ok(())
    }

    /// The number of events in the unfinished chunk.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether the unfinished chunk has no event.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Whether the chunk must be finished before the next event.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.ops.len() >= CHUNK_ROWS_MAX || self.extras.len() >= EXTRAS_FULL
    }

    /// The serial that the next allocation takes.
    pub fn next_serial(&self) -> Serial {
        self.next_serial
    }

    /// The chunk of the events pushed so far; the encoder goes on with the next. `None` if there are none.
    pub fn finish(&mut self, compressor: &mut Compressor) -> Option<EncodedChunk> {
        let (head, mut contents) = self.take()?;
        let chunk = compressor.seal(ChunkKind::Events, &head, &contents);
        contents.clear();
        self.contents = contents;
        Some(chunk)
    }

    /// The same, with the compression left for later.
    pub fn finish_raw(&mut self) -> Option<RawChunk> {
        let (head, contents) = self.take()?;
        Some(RawChunk { kind: ChunkKind::Events, head, contents })
    }

    /// The head and the contents of the chunk.
    fn take(&mut self) -> Option<(ChunkHead, Vec<u8>)> {
        if self.is_empty() {
            return None;
        }
        self.push_thread_run(self.ops.len());
        let head = ChunkHead {
            rows: self.ops.len() as u32,
            time_last: self.last_time,
            // At most one for each row.
            serials: (self.next_serial.0 - self.head.serial_first.0) as u32,
            live_after: self.live,
            ..self.head
        };
        // EXTRAS_FULL keeps the contents below the limit of a chunk.
        let mut contents = std::mem::take(&mut self.contents);
        for (id, codec, column) in [
            (COLUMN_OPS, CODEC_BYTES, &mut self.ops),
            (COLUMN_STACKS, CODEC_DELTA, &mut self.stacks),
            (COLUMN_SIZES, CODEC_VARINT, &mut self.sizes),
            (COLUMN_FREES, CODEC_VARINT, &mut self.frees),
            (COLUMN_TICKS, CODEC_VARINT, &mut self.ticks),
            (COLUMN_THREADS, CODEC_VARINT, &mut self.threads),
            (COLUMN_EXTRAS, CODEC_VARINT, &mut self.extras),
        ] {
            columns::put(&mut contents, id, codec, column);
            column.clear();
        }
        Some((head, contents))
    }

    /// Sets what a chunk starts from, at its first event.
    fn begin(&mut self, event: &Event) {
        let serials_taken = match event.kind {
            EventKind::Alloc { .. } | EventKind::Realloc { .. } => 1,
            EventKind::Free { .. } | EventKind::Failed { .. } => 0,
        };
        self.last_time = self.last_time.max(event.time);
        self.head = ChunkHead {
            image: self.head.image,
            tick_ns: self.head.tick_ns,
            time_first: self.last_time,
            serial_first: Serial(self.next_serial.0 - serials_taken),
            live_before: self.live,
            ..ChunkHead::default()
        };
        self.tick = 0;
        self.tick_end = self.last_time.0.saturating_add(u64::from(self.head.tick_ns));
        self.tick_index = 0;
        self.thread = event.thread;
        self.thread_index = 0;
        self.extras_index = 0;
    }

    #[inline]
    fn check_new_block(&self, serial: Serial, stack: StackId) -> Result<(), Error> {
        check_stack(stack)?;
        if serial == self.next_serial { Ok(()) } else { Err(Error::Unwritable("a block out of the order of serials")) }
    }

    #[inline]
    fn freed(&self, block: FreedBlock) -> Result<u64, Error> {
        match block {
            FreedBlock::Known(serial) if serial < self.next_serial => Ok(self.next_serial.0 - serial.0 + FREED_KNOWN),
            FreedBlock::Known(_) => Err(Error::Unwritable("a released block that was never allocated")),
            FreedBlock::Inherited => Ok(FREED_INHERITED),
            FreedBlock::Unknown => Ok(FREED_UNKNOWN),
            FreedBlock::None => Ok(FREED_NONE),
        }
    }

    #[inline]
    fn push_request(&mut self, size: Bytes, stack: StackId) {
        // The first stack of a chunk is relative to the root.
        let before = if self.stacks.is_empty() { StackId::ROOT } else { self.last_stack };
        varint::put(&mut self.stacks, varint::zigzag(u64::from(before.0), u64::from(stack.0)));
        varint::put(&mut self.sizes, size.0);
        self.last_stack = stack;
    }

    fn push_thread_run(&mut self, end: usize) {
        varint::put(&mut self.threads, (end - self.thread_index) as u64);
        varint::put(&mut self.threads, u64::from(self.thread.0));
        self.thread_index = end;
    }

    fn push_tick(&mut self, index: usize) {
        let tick_ns = u64::from(self.head.tick_ns);
        let tick = (self.last_time.0 - self.head.time_first.0) / tick_ns;
        varint::put(&mut self.ticks, (index - self.tick_index) as u64);
        varint::put(&mut self.ticks, tick - self.tick);
        self.tick = tick;
        self.tick_end = (self.head.time_first.0 + tick * tick_ns).saturating_add(tick_ns);
        self.tick_index = index;
    }

    fn push_extras(&mut self, index: usize, extras: &Extras) {
        for (tag, value) in extras.tagged() {
            if let Some(value) = value {
                for number in [(index - self.extras_index) as u64, tag, value] {
                    varint::put(&mut self.extras, number);
                }
                self.extras_index = index;
            }
        }
    }
}

fn check_stack(stack: StackId) -> Result<(), Error> {
    if stack <= StackId::MAX { Ok(()) } else { Err(Error::Unwritable("a stack id out of range")) }
}

/// Memory for the events of one chunk; reused from chunk to chunk.
#[derive(Debug, Default)]
pub struct EventsBuffer {
    pub(crate) unpacker: Unpacker,
    pub(crate) decoded: Decoded,
}

/// Events and extras of a chunk.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    events: Vec<Event>,
    /// In ascending order of indices, each once.
    extras: Vec<(u32, Extras)>,
}

/// The events of one decoded chunk.
#[derive(Clone, Copy, Debug)]
pub struct Events<'b> {
    decoded: &'b Decoded,
}

impl<'b> Events<'b> {
    /// The events in order.
    pub fn as_slice(&self) -> &'b [Event] {
        &self.decoded.events
    }

    /// What the event at this index of the slice says in addition.
    pub fn extras(&self, index: usize) -> Extras {
        let extras = &self.decoded.extras;
        extras.binary_search_by_key(&index, |(at, _)| *at as usize).map_or(Extras::NONE, |at| extras[at].1)
    }

    /// All events that say something in addition, with their index, in order.
    pub fn all_extras(&self) -> &'b [(u32, Extras)] {
        &self.decoded.extras
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
        let [ops, stacks, sizes, frees, ticks, threads, extras] = columns::find(
            contents,
            [COLUMN_OPS, COLUMN_STACKS, COLUMN_SIZES, COLUMN_FREES, COLUMN_TICKS, COLUMN_THREADS, COLUMN_EXTRAS],
        )?;
        let ops = ops.with_codec(CODEC_BYTES)?;
        if ops.len() != head.rows as usize || ops.len() > CHUNK_ROWS_MAX {
            return Err(Reason::Invalid("the number of events"));
        }
        if head.serial_first.0.checked_add(u64::from(head.rows)).is_none() {
            return Err(Reason::Invalid("a serial"));
        }
        let mut columns = EventColumns {
            stacks: Varints::new(stacks.with_codec(CODEC_DELTA)?),
            sizes: varints(sizes)?,
            frees: varints(frees)?,
            last_stack: 0,
            next_serial: head.serial_first.0,
            wrong: None,
        };
        let mut times = Times::new(varints(ticks)?, head)?;
        let mut threads = Threads { runs: varints(threads)?, thread: ThreadId(0), left: 0 };
        self.events.extend(ops.iter().enumerate().map(|(index, &op)| {
            let time = times.at(index as u64, &mut columns.wrong);
            let thread = threads.next(&mut columns.wrong);
            let call = Call::from_number(op & !SHAPE).unwrap_or_else(|| {
                columns.wrong = Some(Reason::Invalid("an event without entry point"));
                Call::from(Api::Malloc)
            });
            let event = |kind| Event { time, thread, call, kind };
            match op & SHAPE {
                SHAPE_ALLOC => {
                    let (size, stack) = columns.request();
                    event(EventKind::Alloc { serial: columns.serial(), size, stack })
                }
                SHAPE_FREE => event(EventKind::Free { block: columns.freed() }),
                SHAPE_REALLOC => {
                    let old = columns.freed();
                    let (size, stack) = columns.request();
                    event(EventKind::Realloc { old, serial: columns.serial(), size, stack })
                }
                _ => {
                    let (size, stack) = columns.request();
                    event(EventKind::Failed { size, stack })
                }
            }
        }));
        if let Some(reason) = columns.wrong {
            return Err(reason);
        }
        if columns.next_serial - head.serial_first.0 != u64::from(head.serials) {
            return Err(Reason::Invalid("the number of serials"));
        }
        let rest = [&columns.stacks, &columns.sizes, &columns.frees, &times.marks, &threads.runs];
        if threads.left > 0 || times.next.is_some() || rest.iter().any(|column| !column.is_empty()) {
            return Err(columns::TOO_LONG);
        }
        self.decode_extras(varints(extras)?)
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
            match self.extras.last_mut() {
                Some((at, last)) if *at == index => last.set(tag, value)?,
                _ => {
                    let mut extras = Extras::NONE;
                    extras.set(tag, value)?;
                    // Only a tag that this version does not know leaves it empty.
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

/// The columns with a value for some of the events. What is wrong with them is kept until the end, and what is read
/// until then means nothing: that is faster than to ask after each value.
struct EventColumns<'a> {
    stacks: Varints<'a>,
    sizes: Varints<'a>,
    frees: Varints<'a>,
    last_stack: u64,
    next_serial: u64,
    wrong: Option<Reason>,
}

impl EventColumns<'_> {
    #[inline]
    fn request(&mut self) -> (Bytes, StackId) {
        let difference = next_or(&mut self.stacks, &mut self.wrong);
        self.last_stack = varint::unzigzag(self.last_stack, difference);
        if self.last_stack > u64::from(StackId::MAX.0) {
            self.wrong = Some(Reason::Invalid("a stack id"));
        }
        (Bytes(next_or(&mut self.sizes, &mut self.wrong)), StackId(self.last_stack as u32))
    }

    #[inline]
    fn serial(&mut self) -> Serial {
        // Does not overflow: there are no more than rows.
        let serial = Serial(self.next_serial);
        self.next_serial += 1;
        serial
    }

    #[inline]
    fn freed(&mut self) -> FreedBlock {
        match next_or(&mut self.frees, &mut self.wrong) {
            FREED_UNKNOWN => FreedBlock::Unknown,
            FREED_INHERITED => FreedBlock::Inherited,
            FREED_NONE => FreedBlock::None,
            distance => {
                let distance = distance - FREED_KNOWN;
                if distance > self.next_serial {
                    self.wrong = Some(Reason::Invalid("a released block that was never allocated"));
                }
                FreedBlock::Known(Serial(self.next_serial.wrapping_sub(distance)))
            }
        }
    }
}

/// The next value of a column; where there is none, that is what is wrong, and the column is over.
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
