//! Encoding events into columns.

use heapledger_core::sample::Rate;
use heapledger_core::{Api, Bytes, Serial, StackId, ThreadId};

use super::marks::{self, Mark, Marks};
use super::ops::{self, *};
use super::usable::{self, UsableColumn};
use super::{EXTRA_AFTER_UNSAMPLED, EXTRA_RATE, Event, EventKind, Extras, FreedBlock, Sampled, TICK_NS};
use crate::columns::{self, CODEC_BYTES, CODEC_DELTA, CODEC_VARINT};
use crate::error::RecordingError;
use crate::frame::{Compressor, EncodedChunk, RawChunk};
use crate::head::{CHUNK_ROWS_MAX, ChunkHead, ChunkKind};
use crate::ids::{Call, ImageId, Live, Time};
use crate::varint;

/// Gathers events of one image, in time order, into chunks. Reused from chunk to chunk.
#[derive(Debug)]
pub struct EventsEncoder {
    head: ChunkHead,
    next_serial: Serial,
    live: Live,
    last_time: Time,
    last_stack: StackId,
    sources: Sources,
    recent: Recent,
    rows: usize,
    /// The current tick, and the time at which it ends.
    tick: u64,
    tick_end: u64,
    tick_index: usize,
    thread: ThreadId,
    thread_index: usize,
    extras_index: usize,
    ops: Vec<u8>,
    stacks: Vec<u8>,
    calls: Vec<u8>,
    source_numbers: Vec<u8>,
    sizes_low: Vec<u8>,
    sizes_high: Vec<u8>,
    near: Vec<u8>,
    far_low: Vec<u8>,
    far_middle: Vec<u8>,
    far_high: Vec<u8>,
    ticks: Vec<u8>,
    threads: Vec<u8>,
    extras: Vec<u8>,
    moves_index: usize,
    moves: Vec<u8>,
    marks: Marks,
    usable: UsableColumn,
    /// The memory for the contents of a chunk, empty between chunks.
    contents: Vec<u8>,
}

/// The chunk is full when its extras have grown to this. The other columns take at most 48 bytes an
/// event, 6 MiB in all, so contents stay below the limit of a chunk.
const EXTRAS_FULL: usize = 8 << 20;

impl EventsEncoder {
    /// Creates an encoder for an image whose next serial is 0 and that has nothing live.
    pub fn new(image: ImageId) -> EventsEncoder {
        EventsEncoder {
            head: ChunkHead { tick_ns: TICK_NS, ..ChunkHead::of(image) },
            next_serial: Serial(0),
            live: Live::default(),
            last_time: Time(0),
            last_stack: StackId::ROOT,
            sources: Sources::default(),
            recent: Recent::default(),
            rows: 0,
            tick: 0,
            tick_end: 0,
            tick_index: 0,
            thread: ThreadId(0),
            thread_index: 0,
            extras_index: 0,
            ops: Vec::new(),
            stacks: Vec::new(),
            calls: Vec::new(),
            source_numbers: Vec::new(),
            sizes_low: Vec::new(),
            sizes_high: Vec::new(),
            near: Vec::new(),
            far_low: Vec::new(),
            far_middle: Vec::new(),
            far_high: Vec::new(),
            ticks: Vec::new(),
            threads: Vec::new(),
            extras: Vec::new(),
            moves_index: 0,
            moves: Vec::new(),
            marks: Marks::default(),
            usable: UsableColumn::default(),
            contents: Vec::new(),
        }
    }

    /// Returns the encoder with another resolution of times than [`TICK_NS`]; at least 1.
    pub fn with_tick_ns(mut self, tick_ns: u32) -> EventsEncoder {
        self.head.tick_ns = tick_ns.max(1);
        self
    }

    /// Returns the encoder for an image whose recording begins in mid-run: with the serial of its
    /// next allocation, and its live (carried) blocks.
    pub fn starting_at(mut self, serial: Serial, live: Live) -> EventsEncoder {
        self.next_serial = serial;
        self.live = live;
        self
    }

    /// Creates an encoder that goes on where the chunk with this head began.
    pub(crate) fn resuming(head: &ChunkHead) -> EventsEncoder {
        let mut encoder = EventsEncoder::new(head.image.unwrap_or_default()).with_tick_ns(head.tick_ns);
        encoder.next_serial = head.serial_first;
        encoder
    }

    /// Adds an event, and the live amount in the image after it.
    ///
    /// A time before that of the previous event is taken as equal to it. Fails, and adds nothing,
    /// if a serial is not the image's next one, a freed block has no earlier serial, a stack id is
    /// out of range, or the chunk is full.
    #[inline(always)]
    pub fn push(&mut self, event: &Event, extras: &Extras, live_after: Live) -> Result<(), RecordingError> {
        let index = self.rows;
        self.push_event(event, live_after)?;
        // If the caller has nothing to add, the compiler sees it.
        if *extras != Extras::NONE || self.usable.is_any() {
            self.push_usable_and_extras(index, event, extras);
        }
        if event.sampled != Sampled::NOT {
            self.push_sampled(index, event);
        }
        Ok(())
    }

    #[inline]
    fn push_event(&mut self, event: &Event, live_after: Live) -> Result<(), RecordingError> {
        if self.is_full() {
            return Err(RecordingError::Unwritable("an event for which its chunk has no room"));
        }
        if let EventKind::Reattributed { block, stack } = event.kind {
            return self.push_reattribution(event, block, stack);
        }
        let index = self.rows;
        match event.kind {
            EventKind::Alloc { serial, size, stack } => {
                self.check_new_block(serial, stack)?;
                self.begin_at_first(event);
                self.push_allocation(SHAPE_ALLOC | event.call.number(), size, stack);
                self.next_serial.0 += 1;
            }
            EventKind::Free { block } => {
                self.check_freed(block)?;
                self.begin_at_first(event);
                if event.call != Call::from(Api::Free) {
                    self.ops.push(ops::CALL);
                    self.calls.push(SHAPE_FREE | event.call.number());
                }
                self.push_release(event.thread, block);
            }
            EventKind::Realloc { old, serial, size, stack } => {
                self.check_new_block(serial, stack)?;
                self.check_freed(old)?;
                self.begin_at_first(event);
                self.push_allocation(SHAPE_REALLOC | event.call.number(), size, stack);
                self.push_release(event.thread, old);
                self.next_serial.0 += 1;
            }
            EventKind::Failed { size, stack } => {
                check_stack(stack)?;
                self.begin_at_first(event);
                self.ops.push(ops::FAILED);
                self.push_stack_and_call(stack, SHAPE_FAILED | event.call.number());
                self.push_size(size);
            }
            // Moves have a column of their own.
            EventKind::Reattributed { .. } => {}
        }
        self.rows += 1;
        if event.thread != self.thread {
            self.push_thread_run(index);
            self.thread = event.thread;
        }
        self.last_time = self.last_time.max(event.time);
        if self.last_time.0 >= self.tick_end {
            self.push_tick(index);
        }
        self.live = live_after;
        self.head.bytes_live_max = self.head.bytes_live_max.max(live_after.bytes);
        Ok(())
    }

    /// Adds a mark behind the last event. A time before that of the previous event is taken as
    /// equal to it.
    ///
    /// Fails, and adds nothing, if the mark is on a block with a later serial than the last one, a
    /// stack id is out of range, or the chunk is full.
    #[cold]
    pub fn push_mark(&mut self, time: Time, mark: &Mark) -> Result<(), RecordingError> {
        if self.is_full() {
            return Err(RecordingError::Unwritable("a mark for which its chunk has no room"));
        }
        marks::check(mark, self.next_serial)?;
        if self.is_empty() {
            self.begin(time);
        }
        self.last_time = self.last_time.max(time);
        self.marks.push(self.rows, &self.head, mark);
        self.head.marks += 1;
        Ok(())
    }

    /// Returns the number of events in the unfinished chunk.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// True if the unfinished chunk has no event.
    pub fn is_empty(&self) -> bool {
        self.rows == 0 && self.has_only_rows()
    }

    /// True if the chunk must be finished before the next event.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.rows >= CHUNK_ROWS_MAX
            || self.extras.len() + self.moves.len() + self.marks.bytes.len() + self.usable.bytes.len() >= EXTRAS_FULL
            || self.head.moves as usize >= CHUNK_ROWS_MAX
            || self.head.marks as usize >= CHUNK_ROWS_MAX
    }

    /// True if the unfinished chunk has nothing but rows.
    #[inline]
    fn has_only_rows(&self) -> bool {
        self.head.moves == 0 && self.head.marks == 0
    }

    /// Returns the serial of the next allocation.
    pub fn next_serial(&self) -> Serial {
        self.next_serial
    }

    /// Returns the chunk of the events pushed so far; the encoder goes on with the next. `None` if
    /// there are none.
    pub fn finish(&mut self, compressor: &mut Compressor) -> Option<EncodedChunk> {
        let (head, mut contents) = self.take()?;
        let chunk = compressor.seal(ChunkKind::Events, &head, &contents);
        contents.clear();
        self.contents = contents;
        Some(chunk)
    }

    /// Like [`finish`](Self::finish), but leaves the compression for later.
    pub fn finish_raw(&mut self) -> Option<RawChunk> {
        let (head, contents) = self.take()?;
        Some(RawChunk { kind: ChunkKind::Events, head, contents })
    }

    /// Returns the head and the contents of the chunk.
    fn take(&mut self) -> Option<(ChunkHead, Vec<u8>)> {
        if self.is_empty() {
            return None;
        }
        if self.rows > 0 {
            self.push_thread_run(self.rows);
        }
        let head = ChunkHead {
            rows: self.rows as u32,
            time_last: self.last_time,
            // At most one for each row.
            serials: (self.next_serial.0 - self.head.serial_first.0) as u32,
            live_after: self.live,
            ..self.head
        };
        // EXTRAS_FULL keeps the contents below the limit of a chunk.
        let mut contents = std::mem::take(&mut self.contents);
        if head.moves > 0 {
            columns::put(&mut contents, COLUMN_MOVES, CODEC_VARINT, &self.moves);
            self.moves.clear();
            self.head.moves = 0;
        }
        if head.marks > 0 {
            columns::put(&mut contents, COLUMN_MARKS, CODEC_VARINT, &self.marks.bytes);
            self.marks.bytes.clear();
            self.head.marks = 0;
        }
        if self.usable.is_any() {
            columns::put(&mut contents, COLUMN_USABLE, CODEC_VARINT, &self.usable.bytes);
            self.usable.bytes.clear();
        }
        for (id, codec, column) in [
            (COLUMN_OPS, CODEC_BYTES, &mut self.ops),
            (COLUMN_STACKS, CODEC_DELTA, &mut self.stacks),
            (COLUMN_CALLS, CODEC_BYTES, &mut self.calls),
            (COLUMN_SOURCES, CODEC_VARINT, &mut self.source_numbers),
            (COLUMN_SIZES_LOW, CODEC_BYTES, &mut self.sizes_low),
            (COLUMN_SIZES_HIGH, CODEC_VARINT, &mut self.sizes_high),
            (COLUMN_NEAR, CODEC_BYTES, &mut self.near),
            (COLUMN_FAR_LOW, CODEC_BYTES, &mut self.far_low),
            (COLUMN_FAR_MIDDLE, CODEC_BYTES, &mut self.far_middle),
            (COLUMN_FAR_HIGH, CODEC_VARINT, &mut self.far_high),
            (COLUMN_TICKS, CODEC_VARINT, &mut self.ticks),
            (COLUMN_THREADS, CODEC_VARINT, &mut self.threads),
            (COLUMN_EXTRAS, CODEC_VARINT, &mut self.extras),
        ] {
            columns::put(&mut contents, id, codec, column);
            column.clear();
        }
        self.rows = 0;
        Some((head, contents))
    }

    /// Sets the starting values of a chunk, at its first event.
    #[inline]
    fn begin_at_first(&mut self, event: &Event) {
        if self.rows == 0 {
            if self.has_only_rows() {
                self.begin(event.time);
            }
            self.thread = event.thread;
        }
    }

    fn begin(&mut self, time: Time) {
        self.last_time = self.last_time.max(time);
        self.head = ChunkHead {
            image: self.head.image,
            tick_ns: self.head.tick_ns,
            time_first: self.last_time,
            serial_first: self.next_serial,
            live_before: self.live,
            ..ChunkHead::default()
        };
        self.tick = 0;
        self.tick_end = self.last_time.0.saturating_add(u64::from(self.head.tick_ns));
        self.tick_index = 0;
        self.thread_index = 0;
        self.extras_index = 0;
        self.moves_index = 0;
        self.marks.begin(self.next_serial);
        self.usable.begin();
        self.last_stack = StackId::ROOT;
        self.sources.clear();
        self.recent.reset(self.next_serial.0);
    }

    #[inline]
    fn check_new_block(&self, serial: Serial, stack: StackId) -> Result<(), RecordingError> {
        check_stack(stack)?;
        if serial == self.next_serial {
            Ok(())
        } else {
            Err(RecordingError::Unwritable("a block out of the order of serials"))
        }
    }

    #[inline]
    fn check_freed(&self, block: FreedBlock) -> Result<(), RecordingError> {
        match block {
            FreedBlock::Known(serial) if serial >= self.next_serial => {
                Err(RecordingError::Unwritable("a released block that was never allocated"))
            }
            _ => Ok(()),
        }
    }

    #[inline]
    fn push_allocation(&mut self, call: u8, size: Bytes, stack: StackId) {
        let Some((number, has_last_size)) = self.sources.find(stack, call, size) else {
            self.sources.add(stack, call, size);
            self.ops.push(ops::SOURCE_NEW);
            self.push_stack_and_call(stack, call);
            self.push_size(size);
            return;
        };
        if number < SOURCES_LOW {
            self.ops.push(number as u8 + if has_last_size { ops::SAME_SIZE } else { ops::OTHER_SIZE });
        } else {
            self.ops.push(if has_last_size { ops::SOURCE_SAME_SIZE } else { ops::SOURCE_OTHER_SIZE });
            varint::put(&mut self.source_numbers, u64::from(number - SOURCES_LOW));
        }
        if !has_last_size {
            self.push_size(size);
        }
    }

    fn push_stack_and_call(&mut self, stack: StackId, call: u8) {
        varint::put(&mut self.stacks, varint::zigzag(u64::from(self.last_stack.0), u64::from(stack.0)));
        self.calls.push(call);
        self.last_stack = stack;
    }

    #[inline]
    fn push_size(&mut self, size: Bytes) {
        self.sizes_low.push(size.0 as u8);
        varint::put(&mut self.sizes_high, size.0 >> 8);
    }

    #[inline]
    fn push_release(&mut self, thread: ThreadId, block: FreedBlock) {
        let serial = match block {
            FreedBlock::Known(serial) => serial.0,
            FreedBlock::Inherited => return self.ops.push(ops::INHERITED),
            FreedBlock::Unknown => return self.ops.push(ops::UNKNOWN),
            FreedBlock::None => return self.ops.push(ops::NONE),
        };
        let age = self.next_serial.0 - serial;
        if age <= YOUNG_MAX {
            return self.ops.push(ops::YOUNG + (age - 1) as u8);
        }
        let recent = self.recent.of(thread);
        // A reference needs an operand too, so it must be much smaller than the age.
        let Some((index, distance)) = near(recent, serial, (age / 4).min(u64::from(u8::MAX))) else {
            self.ops.push(ops::FAR);
            self.far_low.push(age as u8);
            self.far_middle.push((age >> 8) as u8);
            varint::put(&mut self.far_high, age >> 16);
            return ops::follow(recent, RECENT - 1, serial);
        };
        let is_ahead = serial >= recent[index];
        if distance == 1 {
            self.ops.push(index as u8 + if is_ahead { ops::NEXT } else { ops::PREVIOUS });
        } else {
            self.ops.push(index as u8 + if is_ahead { ops::AHEAD } else { ops::BEHIND });
            self.near.push(distance as u8);
        }
        ops::follow(recent, index, serial);
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

    #[cold]
    fn push_reattribution(&mut self, event: &Event, block: Serial, stack: StackId) -> Result<(), RecordingError> {
        check_stack(stack)?;
        self.check_freed(FreedBlock::Known(block))?;
        if self.is_empty() {
            self.begin(event.time);
        }
        let age = self.next_serial.0 - block.0;
        for number in [(self.rows - self.moves_index) as u64, age, u64::from(stack.0)] {
            varint::put(&mut self.moves, number);
        }
        self.moves_index = self.rows;
        self.head.moves += 1;
        Ok(())
    }

    /// Adds the usable size to its column, and the other extras to theirs.
    #[inline(never)]
    fn push_usable_and_extras(&mut self, index: usize, event: &Event, extras: &Extras) {
        let mut extras = *extras;
        if let EventKind::Alloc { serial, size, .. } | EventKind::Realloc { serial, size, .. } = event.kind
            && event.call != Call::from(Api::PoolAlloc)
        {
            // A usable size that the column cannot hold remains among the extras.
            let value = usable::value(size, extras.usable).inspect(|_| extras.usable = None);
            self.usable.push(event, serial.0 - self.head.serial_first.0, value.unwrap_or_default());
        }
        if extras != Extras::NONE {
            self.push_extras(index, &extras);
        }
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

    #[inline(never)]
    fn push_sampled(&mut self, index: usize, event: &Event) {
        let Sampled { rate, after_unsampled } = event.sampled;
        let rate = (rate != Rate::EXACT && event.kind.allocates()).then_some((EXTRA_RATE, u64::from(rate.logarithm())));
        let unsampled = (after_unsampled && event.kind.releases()).then_some((EXTRA_AFTER_UNSAMPLED, 1));
        for (tag, value) in [rate, unsampled].into_iter().flatten() {
            for number in [(index - self.extras_index) as u64, tag, value] {
                varint::put(&mut self.extras, number);
            }
            self.extras_index = index;
        }
    }
}

fn check_stack(stack: StackId) -> Result<(), RecordingError> {
    if stack <= StackId::MAX { Ok(()) } else { Err(RecordingError::Unwritable("a stack id out of range")) }
}

/// Returns the first of the recent blocks whose serial is at most `distance_max` away: its index,
/// and the distance.
#[inline]
fn near(recent: &[u64; RECENT], serial: u64, distance_max: u64) -> Option<(usize, u64)> {
    let distances = recent.iter().map(|&other| serial.abs_diff(other));
    distances.enumerate().find(|&(_, distance)| distance <= distance_max)
}

/// The sources of a chunk: a hash table with open addressing, so that an allocation touches one
/// cache line of it.
#[derive(Debug, Default)]
struct Sources {
    /// At least half of the slots are free, and zero.
    slots: Vec<Slot>,
    length: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// The key, which is never zero, above the number: there are no more sources than rows in a
    /// chunk.
    key_and_number: u64,
    last_size: u64,
}

const SLOTS_MIN: usize = 256;
const NUMBER_BITS: u32 = 20;
const _: () = assert!(CHUNK_ROWS_MAX < 1 << NUMBER_BITS);

impl Sources {
    fn clear(&mut self) {
        if self.slots.is_empty() {
            self.slots.resize(SLOTS_MIN, Slot::default());
        } else {
            self.slots.fill(Slot::default());
        }
        self.length = 0;
    }

    /// Returns the key of a source. Stack ids have 26 bits, so the key has 35.
    #[inline]
    fn key(stack: StackId, call: u8) -> u64 {
        1 << 34 | u64::from(stack.0) << 8 | u64::from(call)
    }

    /// Returns the slot of the key, or the free one where it belongs.
    #[inline]
    fn slot_of(&self, key: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        while self.slots[at].key_and_number >> NUMBER_BITS != key && self.slots[at].key_and_number != 0 {
            at = (at + 1) & mask;
        }
        at
    }

    /// Returns the number of a source, and true if its last size was this one; it is from now on.
    #[inline]
    fn find(&mut self, stack: StackId, call: u8, size: Bytes) -> Option<(u32, bool)> {
        let index = self.slot_of(Sources::key(stack, call));
        let slot = &mut self.slots[index];
        if slot.key_and_number == 0 {
            return None;
        }
        let had_size = std::mem::replace(&mut slot.last_size, size.0) == size.0;
        Some((slot.key_and_number as u32 & ((1 << NUMBER_BITS) - 1), had_size))
    }

    /// Adds a source that is not there.
    fn add(&mut self, stack: StackId, call: u8, size: Bytes) {
        if self.length as usize >= self.slots.len() / 2 {
            let old = std::mem::take(&mut self.slots);
            self.slots.resize(old.len() * 2, Slot::default());
            for slot in old.into_iter().filter(|slot| slot.key_and_number != 0) {
                let index = self.slot_of(slot.key_and_number >> NUMBER_BITS);
                self.slots[index] = slot;
            }
        }
        let key = Sources::key(stack, call);
        let index = self.slot_of(key);
        let key_and_number = key << NUMBER_BITS | u64::from(self.length);
        self.slots[index] = Slot { key_and_number, last_size: size.0 };
        self.length += 1;
    }
}
