//! Comparison with `/proc/PID/maps`.
//!
//! The file is read at a moment up to which not all calls have been merged. So what it said is kept
//! until a call comes that was made later, or all earlier ones are known to be merged. Ranges that
//! calls changed at about the time of reading are left out: a later check compares them.

use std::time::{Duration, Instant};

use heapledger_core::Bytes;
use heapledger_inject::Mapping;
use heapledger_recording::{
    AddressSpace, MappedPiece, MappingChange, MappingFlags, MappingKind, MappingSerial, TextId, Time,
};

use super::{Call, Cause, Mappings, New, WAITING_MAX, kind_of};
use crate::mapped::Object;
use crate::proc_maps::{self, protection};
use crate::process;
use crate::session_state::Shared;

/// The beginning of the names of the recorder's own libraries.
const LIBRARY_STEM: &str = "libheapledger";
/// The shortest time between two checks. It is doubled while nothing changes, up to the longest.
pub(super) const INTERVAL_MIN: Duration = Duration::from_millis(250);
const INTERVAL_MAX: Duration = Duration::from_secs(8);
/// The part of the time that checks may take.
const SHARE: u32 = 100;
/// The time after which a move that has not ended counts as lost.
const MOVE_MAX: u64 = 10_000_000_000;
/// The time by which stamps and the clock of readings may differ.
const SLACK: u64 = 1_000_000;
/// The time by which a call may be stamped later than it was made: its thread may have to wait for
/// a processor in between.
const STAMP_DELAY: u64 = 100_000_000;

/// An image whose first mappings are not known yet.
#[derive(Debug)]
pub(super) struct Opening {
    /// The time when the image began, or this file.
    pub(super) start: Time,
    /// The calls so far.
    pub(super) calls: Vec<Call>,
    /// The regions that were mapped, and the time at which reading them had ended.
    found: Option<(Vec<Mapping>, Time)>,
}

impl Opening {
    pub(super) fn new(start: Time) -> Opening {
        Opening { start, calls: Vec::new(), found: None }
    }
}

/// The regions that were mapped at a moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    regions: Vec<Mapping>,
    begin: Time,
    end: Time,
    /// The ranges that were changed at about that time.
    touched: Vec<(u64, Bytes)>,
}

impl Snapshot {
    /// Notes a call that was made before or while the snapshot was taken, and is merged after that.
    pub(super) fn touch(&mut self, call: &Call) {
        if call.time.0.saturating_add(SLACK) >= self.begin.0 {
            self.touched.extend(call.ranges().into_iter().filter(|(_, bytes)| bytes.0 > 0));
        }
    }

    fn is_touched(&self, start: u64, bytes: Bytes) -> bool {
        let end = start.saturating_add(bytes.0);
        self.touched.iter().any(|(from, length)| *from < end && start < from.saturating_add(length.0))
    }
}

impl Mappings {
    /// Reads what is mapped, if that is due. After an exec, also of a program that is not recorded,
    /// it is another program's, whose identity is not `identity`.
    pub(super) fn check(&mut self, now: Time, identity: Option<u64>, shared: &mut Shared) {
        let is_waiting = self.opening.as_ref().is_some_and(|opening| opening.found.is_none());
        let due = if is_waiting { self.earliest_check } else { self.next_check };
        if !self.is_recorded || self.snapshot.is_some() || now < due {
            return;
        }
        let begun = Instant::now();
        let regions = proc_maps::read(self.pid);
        let took = begun.elapsed();
        let after = |time: Time, duration: Duration| Time(time.0.saturating_add(duration.as_nanos() as u64));
        let end = after(now, took);
        let is_quiet = self.rows.is_empty() && !is_waiting;
        self.interval = if is_quiet { (self.interval * 2).min(INTERVAL_MAX) } else { INTERVAL_MIN };
        self.earliest_check = after(end, (took * SHARE).max(INTERVAL_MIN));
        self.next_check = self.earliest_check.max(after(end, self.interval));
        let Some(regions) = regions else { return };
        if process::image_identity(self.pid) != identity {
            if let Some(opening) = &mut self.opening {
                opening.found.get_or_insert((Vec::new(), end));
            }
            return;
        }
        self.name(&regions, shared);
        match &mut self.opening {
            Some(opening) => {
                opening.found.get_or_insert((regions, end));
            }
            None => self.snapshot = Some(Snapshot { regions, begin: now, end, touched: Vec::new() }),
        }
    }

    /// Brings the next check forward, as far as checks take no more than their share.
    pub(super) fn check_soon(&mut self) {
        self.next_check = self.next_check.min(self.earliest_check);
    }

    /// Takes what was mapped when the image began, before any call.
    pub(super) fn begin(&mut self, regions: Vec<Mapping>, start: Time, shared: &mut Shared) {
        if self.opening.is_some() {
            return self.open(Some(regions), shared);
        }
        self.compare(Snapshot { regions, begin: start, end: start, touched: Vec::new() }, shared);
    }

    /// Notes that time has passed: all earlier calls have been taken.
    pub(super) fn pass(&mut self, time: Time, shared: &mut Shared) {
        if let Some(opening) = &mut self.opening
            && opening.found.as_ref().is_some_and(|(_, end)| *end < time)
        {
            let found = opening.found.take().map(|(regions, _)| regions);
            self.open(found, shared);
        }
        if let Some(snapshot) = self.snapshot.take_if(|snapshot| snapshot.end.0.saturating_add(STAMP_DELAY) < time.0) {
            self.compare(snapshot, shared);
        }
    }

    /// Begins with what was found, and applies the calls so far.
    pub(super) fn open(&mut self, found: Option<Vec<Mapping>>, shared: &mut Shared) {
        let Some(opening) = self.opening.take() else { return };
        let regions = found.or_else(|| opening.found.map(|(regions, _)| regions)).unwrap_or_default();
        // The image did not begin with anything that the calls have mapped since.
        let mut first = AddressSpace::default();
        for (serial, region) in (0..).zip(&regions) {
            first.map(region.range.start, Bytes(region.bytes()), MappingSerial(serial), protection(region));
        }
        for (start, bytes) in opening.calls.iter().filter_map(Call::mapped) {
            first.unmap(start, bytes);
        }
        for piece in first.pieces() {
            if let Some(region) = regions.get(piece.serial.0 as usize) {
                self.found(opening.start, region, piece.start, piece.bytes, shared);
            }
        }
        for call in &opening.calls {
            self.apply_in_turn(call);
        }
        self.name(&regions, shared);
    }

    /// Adds a range of a region, which no call told.
    fn found(&mut self, time: Time, region: &Mapping, start: u64, bytes: Bytes, shared: &mut Shared) {
        let file = text(shared, &region.name);
        let flag = |is_set: bool, flag| if is_set { flag } else { MappingFlags::NONE };
        // The call of `shmat` was seen, but not the length of the segment.
        let attached = (kind_of(region) == MappingKind::SystemV).then(|| self.attached.remove(&start)).flatten();
        let cause = attached.map_or(Cause::unseen(time), |cause| Cause { time, ..cause });
        let flags = flag(attached.is_none(), MappingFlags::FOUND)
            .with(flag(region.is_shared, MappingFlags::SHARED))
            .with(flag(is_recorders(region), MappingFlags::RECORDER));
        let offset = if region.inode == 0 { 0 } else { region.offset.wrapping_add(start - region.range.start) };
        let (kind, protection) = (kind_of(region), protection(region));
        let object = Some(Object::of(region));
        self.map(cause, New { start, bytes, kind, protection, flags, file, object, offset });
    }

    /// Writes rows for all differences between a snapshot and what the calls have told.
    fn compare(&mut self, mut snapshot: Snapshot, shared: &mut Shared) {
        // The thread has left its call by `longjmp`, or has ended.
        if self.moving.values().any(|lifted| lifted.since.0.saturating_add(MOVE_MAX) < snapshot.begin.0) {
            self.end_moves();
        }
        // A range that is being moved is nowhere at the moment, and what waits was not applied.
        snapshot.touched.extend(self.moving.values().map(|lifted| (lifted.start, lifted.bytes)));
        self.waiting.iter().for_each(|call| snapshot.touched.extend(call.ranges()));
        let cause = Cause::unseen(Time(snapshot.end.0.max(self.last_time().0)));
        let mut there = AddressSpace::default();
        for (serial, region) in (0..).zip(&snapshot.regions) {
            there.map(region.range.start, Bytes(region.bytes()), MappingSerial(serial), protection(region));
        }
        let known: Vec<MappedPiece> = self.mapped.space.pieces().collect();
        for piece in &known {
            for (start, bytes) in uncovered(piece.start, piece.bytes, &there) {
                if !snapshot.is_touched(start, bytes) {
                    self.unmap(cause, start, bytes);
                }
            }
        }
        for region in &snapshot.regions {
            self.recognize(cause, &snapshot, region, shared);
            let bytes = Bytes(region.bytes());
            for (start, bytes) in uncovered(region.range.start, bytes, &self.mapped.space) {
                if !snapshot.is_touched(start, bytes) {
                    self.found(cause.time, region, start, bytes, shared);
                }
            }
            self.compare_protection(cause, &snapshot, region);
        }
    }

    /// Compares what is known of a region's parts with what the kernel lists. A part that is of
    /// another file than before was unmapped, and something else mapped there: the dynamic linker
    /// uses the addresses of an unloaded library again. The name of a file says less, since a file
    /// that is mapped can be renamed and deleted.
    fn recognize(&mut self, cause: Cause, snapshot: &Snapshot, region: &Mapping, shared: &mut Shared) {
        let object = Object::of(region);
        for piece in self.mapped.space.within(region.range.start, Bytes(region.bytes())) {
            if snapshot.is_touched(piece.start, piece.bytes) {
                continue;
            }
            let Some(known) = self.mapped.known.get_mut(&piece.serial) else { continue };
            if *known.object.get_or_insert(object) != object {
                self.unmap(cause, piece.start, piece.bytes);
                continue;
            }
            // The row may have been written before the file's name was known. Rows that repeat it
            // in another file, or for a child, have the name.
            let is_nameless = known.kind == MappingKind::File && known.file == TextId::UNKNOWN;
            let offset = region.offset.wrapping_add(piece.start - region.range.start);
            if is_nameless && piece.start.wrapping_sub(known.base) == offset {
                (known.kind, known.file) = (kind_of(region), text(shared, &region.name));
            }
        }
    }

    fn compare_protection(&mut self, cause: Cause, snapshot: &Snapshot, region: &Mapping) {
        for piece in self.mapped.space.within(region.range.start, Bytes(region.bytes())) {
            if piece.protection != protection(region) && !snapshot.is_touched(piece.start, piece.bytes) {
                let protection = protection(region);
                self.mapped.space.protect(piece.start, piece.bytes, protection);
                self.row(cause, &piece, MappingChange::Protected { protection });
            }
        }
    }

    /// Names the files of rows that are not written yet.
    fn name(&mut self, regions: &[Mapping], shared: &mut Shared) {
        let unnamed = std::mem::take(&mut self.unnamed);
        for index in unnamed {
            let Some(row) = self.rows.get_mut(index) else { continue };
            let at = regions.partition_point(|region| region.range.end <= row.start);
            let region = regions.get(at).filter(|region| region.range.start <= row.start);
            let MappingChange::Mapped { kind, file, offset, .. } = &mut row.change else { continue };
            match region.filter(|region| region.offset.wrapping_add(row.start - region.range.start) == *offset) {
                Some(region) if !region.name.is_empty() => {
                    *kind = kind_of(region);
                    *file = text(shared, &region.name);
                    if let Some(known) = self.mapped.known.get_mut(&row.serial) {
                        (known.kind, known.file, known.object) = (*kind, *file, Some(Object::of(region)));
                    }
                }
                _ => self.unnamed.push(index),
            }
        }
    }

    /// Writes the rows so far, if there are some from before `before`, or many.
    pub(super) fn flush(&mut self, before: Time, shared: &mut Shared) {
        if !self.is_recorded {
            return;
        }
        let is_old = self.rows.first().is_some_and(|row| row.time < before);
        if is_old || self.rows.len() >= WAITING_MAX {
            self.write(shared);
        }
    }

    /// Writes the last rows, when all calls have been taken.
    pub(super) fn finish(&mut self, shared: &mut Shared) {
        if self.is_recorded {
            self.pass(Time(u64::MAX), shared);
            self.open(None, shared);
            self.end_moves();
            self.write(shared);
        }
    }

    pub(super) fn last_time(&self) -> Time {
        self.rows.last().map_or(self.written_to, |row| row.time.max(self.written_to))
    }
}

/// True if the recorder has mapped a region: a ring, or its library.
fn is_recorders(region: &Mapping) -> bool {
    let file = region.name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    region.name.starts_with(b"/memfd:heapledger") || file.starts_with(LIBRARY_STEM.as_bytes())
}

/// Returns the parts of a range that are not mapped in an address space.
fn uncovered(start: u64, bytes: Bytes, space: &AddressSpace) -> Vec<(u64, Bytes)> {
    let end = start.saturating_add(bytes.0);
    let mut at = start;
    let mut parts = Vec::new();
    for piece in space.within(start, bytes) {
        if piece.start > at {
            parts.push((at, Bytes(piece.start - at)));
        }
        at = piece.start.saturating_add(piece.bytes.0);
    }
    if at < end {
        parts.push((at, Bytes(end - at)));
    }
    parts
}

/// Returns the number of a name, which the file then has.
fn text(shared: &mut Shared, name: &[u8]) -> TextId {
    if name.is_empty() { TextId::UNKNOWN } else { shared.name_text(name) }
}
