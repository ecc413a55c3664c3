//! The mappings of an image over time: from the calls that its process made, and from
//! `/proc/PID/maps`.
//!
//! The file has each change with the range that it concerns. So the calls are applied to an address
//! space, in the order of their time stamps. `/proc/PID/maps` says what was mapped when recording
//! began, which files are mapped, and, from time to time, what has changed without a call that the
//! recorder sees (`check.rs`).

use std::collections::HashMap;
use std::time::Duration;

use heapledger_core::{Bytes, StackId, ThreadId};
use heapledger_inject::Mapping;
use heapledger_recording::{
    AddressSpace, ImageId, MappedPiece, MappingCall, MappingChange, MappingEvent, MappingFlags, MappingKind,
    MappingSerial, MappingsEncoder, Protection, TextId, Time,
};
use heapledger_wire::event::{MapCall, MapStep};

use super::Image;
use crate::mapped::{Known, Mapped, Object};
use crate::proc_maps::protection;
use crate::session_state::Shared;
use crate::writer::Job;

mod check;

use check::{Opening, Snapshot};

const PAGE: u64 = 4096;
/// The number of rows that wait for names of files before they are written without.
const WAITING_MAX: usize = 4096;

/// The number of calls that wait for the end of a move before it counts as lost.
const CALLS_MAX: usize = 1 << 16;

/// A call that changes mappings, as the hook has told it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) time: Time,
    pub(super) thread: ThreadId,
    pub(super) stack: StackId,
    pub(super) call: MapCall,
    pub(super) step: MapStep,
    pub(super) is_allocators: bool,
    pub(super) address: u64,
    pub(super) length: u64,
    pub(super) arguments: [u64; 3],
}

impl Call {
    /// Returns the range that memory was mapped at by the call, or may have been.
    fn mapped(&self) -> Option<(u64, Bytes)> {
        let length = match (self.call.plain(), self.step) {
            (MapCall::Mmap | MapCall::Mremap, MapStep::Done) => self.length,
            (MapCall::Brk, MapStep::Done) => {
                let before = self.arguments[0];
                return Some((before.min(self.address), pages(self.address.abs_diff(before))));
            }
            _ => return None,
        };
        Some((self.address, pages(length)))
    }

    /// Returns all ranges that the call concerns.
    fn ranges(&self) -> [(u64, Bytes); 2] {
        let other = match self.call.plain() {
            MapCall::Mremap if self.step != MapStep::Begins => (self.arguments[1], pages(self.arguments[2])),
            _ => (0, Bytes(0)),
        };
        [self.mapped().unwrap_or((self.address, pages(self.length))), other]
    }

    /// Returns the call as the file has it.
    fn named(&self) -> MappingCall {
        match self.call {
            call if call.is_syscall() => MappingCall::Syscall,
            MapCall::Munmap => MappingCall::Munmap,
            MapCall::Mremap => MappingCall::Mremap,
            MapCall::Brk => MappingCall::Brk,
            MapCall::Mprotect => MappingCall::Mprotect,
            MapCall::Madvise => MappingCall::Madvise,
            MapCall::Shmat => MappingCall::Shmat,
            MapCall::Shmdt => MappingCall::Shmdt,
            _ => MappingCall::Mmap,
        }
    }
}

/// Rounds a length up to whole pages.
fn pages(length: u64) -> Bytes {
    Bytes(length.checked_next_multiple_of(PAGE).unwrap_or(!(PAGE - 1)))
}

/// A range that a thread moves, and what was mapped there.
#[derive(Clone, Debug)]
struct Lifted {
    since: Time,
    start: u64,
    bytes: Bytes,
    space: AddressSpace,
}

impl Lifted {
    fn meets(&self, (start, bytes): (u64, Bytes)) -> bool {
        let is_empty = bytes.0 == 0 || self.bytes.0 == 0;
        let end = start.saturating_add(bytes.0);
        !is_empty && start < self.start.saturating_add(self.bytes.0) && self.start < end
    }

    /// Puts down what was lifted where it was. Nothing else is there: see [`Mappings::unmap`].
    fn put_back(&self, space: &mut AddressSpace) {
        for piece in self.space.pieces() {
            space.map(piece.start, piece.bytes, piece.serial, piece.protection);
        }
    }
}

/// Adds ranges to a set of them.
fn add(set: &mut AddressSpace, ranges: [(u64, Bytes); 2]) {
    for (start, bytes) in ranges.into_iter().filter(|(_, bytes)| bytes.0 > 0) {
        set.map(start, bytes, MappingSerial(0), Protection::NONE);
    }
}

/// True if one of the ranges has a part in a set of ranges.
fn meets(set: &AddressSpace, ranges: [(u64, Bytes); 2]) -> bool {
    ranges.iter().any(|(start, bytes)| !set.within(*start, *bytes).is_empty())
}

/// A new mapping.
#[derive(Clone, Copy, Debug)]
struct New {
    start: u64,
    bytes: Bytes,
    kind: MappingKind,
    protection: Protection,
    flags: MappingFlags,
    file: TextId,
    object: Option<Object>,
    offset: u64,
}

/// The origin of a change: its time, and the call, if there was one.
#[derive(Clone, Copy, Debug)]
struct Cause {
    time: Time,
    thread: Option<ThreadId>,
    stack: StackId,
    call: MappingCall,
}

impl Cause {
    /// Returns the cause of a change that no call told.
    fn unseen(time: Time) -> Cause {
        Cause { time, thread: None, stack: StackId::ROOT, call: MappingCall::Unseen }
    }
}

/// The mappings of an image, and their rows on the way to the file.
#[derive(Debug)]
pub(super) struct Mappings {
    is_recorded: bool,
    pid: u32,
    mapped: Mapped,
    encoder: MappingsEncoder,
    /// The rows that are not in the encoder yet, in the order of time.
    rows: Vec<MappingEvent>,
    /// The rows among these that lack the name of their file.
    unnamed: Vec<usize>,
    /// The ranges that `mremap` is moving, by thread and address, until the call has been made.
    moving: HashMap<(ThreadId, u64), Lifted>,
    /// The calls that wait for the end of a move, because they may concern what it has left.
    waiting: Vec<Call>,
    /// The ranges that these calls concern.
    awaited: AddressSpace,
    /// The calls of `shmat` whose segments have not been found yet, by address.
    attached: HashMap<u64, Cause>,
    opening: Option<Opening>,
    snapshot: Option<Snapshot>,
    next_check: Time,
    /// The time before which no check may be, so that checks take no more than their share.
    earliest_check: Time,
    /// The time from one check to the next.
    interval: Duration,
    /// The time of the last row that was written.
    written_to: Time,
}

impl Mappings {
    /// Returns the mappings of an image that begins at a time. Nothing is recorded unless
    /// `is_recorded`.
    pub(super) fn new(image: ImageId, pid: u32, start: Time, is_recorded: bool) -> Mappings {
        Mappings {
            is_recorded,
            pid,
            mapped: Mapped::default(),
            encoder: MappingsEncoder::new(image),
            rows: Vec::new(),
            unnamed: Vec::new(),
            moving: HashMap::new(),
            waiting: Vec::new(),
            awaited: AddressSpace::default(),
            attached: HashMap::new(),
            opening: is_recorded.then(|| Opening::new(start)),
            snapshot: None,
            next_check: Time(0),
            earliest_check: Time(0),
            interval: check::INTERVAL_MIN,
            written_to: start,
        }
    }

    /// Returns what is mapped now, for a child that is forked; `None` if it is not known.
    pub(super) fn fork(&self) -> Option<Mapped> {
        (self.is_recorded && self.opening.is_none()).then(|| {
            let mut mapped = self.mapped.clone();
            // The child's own thread moves nothing.
            self.moving.values().for_each(|lifted| lifted.put_back(&mut mapped.space));
            mapped
        })
    }

    /// Begins with what the parent had mapped at the fork.
    pub(super) fn inherit(&mut self, mapped: Mapped, start: Time) {
        if self.is_recorded {
            self.opening = None;
            self.mapped = mapped;
            self.repeat(start, MappingFlags::INHERITED);
        }
    }

    /// Begins another file: what is mapped is repeated.
    pub(super) fn begin_segment(&mut self, time: Time) {
        match &mut self.opening {
            Some(opening) => opening.start = time,
            None => self.repeat(time, MappingFlags::CARRIED),
        }
    }

    /// Writes rows for all that is mapped.
    fn repeat(&mut self, time: Time, flag: MappingFlags) {
        // A range that is being moved is still where it was.
        let moving = self.moving.values().flat_map(|lifted| lifted.space.pieces());
        let mut pieces: Vec<MappedPiece> = self.mapped.space.pieces().chain(moving).collect();
        pieces.sort_by_key(|piece| piece.start);
        for piece in pieces {
            let Some(known) = self.mapped.known.get_mut(&piece.serial) else { continue };
            if flag == MappingFlags::INHERITED {
                known.flags = known.flags.with(flag);
                known.thread = None;
            }
            let Known { kind, flags, file, base, stack, thread, call, .. } = *known;
            self.rows.push(MappingEvent {
                time,
                thread,
                stack,
                call,
                serial: piece.serial,
                start: piece.start,
                bytes: piece.bytes,
                change: MappingChange::Mapped {
                    kind,
                    protection: piece.protection,
                    flags: flags.with(flag),
                    file,
                    offset: if file == TextId::UNKNOWN { 0 } else { piece.start.wrapping_sub(base) },
                },
            });
        }
    }

    /// Takes a call. Calls come in the order of their times.
    fn take(&mut self, call: &Call, shared: &mut Shared) {
        if !self.is_recorded {
            return;
        }
        self.pass(call.time, shared);
        if let Some(opening) = &mut self.opening {
            opening.calls.push(*call);
            if opening.calls.len() < WAITING_MAX {
                return;
            }
            return self.open(None, shared);
        }
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.touch(call);
        }
        self.apply_in_turn(call);
    }

    /// Applies a call, or lets it wait, and applies those that have waited for it.
    fn apply_in_turn(&mut self, call: &Call) {
        let mut has_ended = self.apply_or_wait(call);
        while has_ended {
            has_ended = false;
            self.awaited = AddressSpace::default();
            for waiting in std::mem::take(&mut self.waiting) {
                has_ended |= self.apply_or_wait(&waiting);
            }
        }
        // The thread has ended in the middle of its call.
        if self.waiting.len() >= CALLS_MAX {
            self.end_moves();
        }
    }

    /// Applies a call, or lets it wait. True if it has ended a move.
    ///
    /// While a thread moves a range, others may get its old addresses before the thread says where
    /// the range is now. So calls that concern these addresses wait until it does, and so do later
    /// calls that concern ranges of waiting calls. All of them were made after the kernel had moved
    /// the range. The end of the move itself comes before them: nobody can have used the new
    /// addresses before that, and what was done to whatever was there before has been applied.
    ///
    /// Threads move ranges one at a time (`recorder/src/hook/mappings/moves.rs`). Only a signal
    /// handler moves another range in the middle of a move. The end of one waits for the other if
    /// it has got addresses that the other has left.
    fn apply_or_wait(&mut self, call: &Call) -> bool {
        let key = (call.thread, call.arguments[1]);
        let is_end = call.call.plain() == MapCall::Mremap && call.step != MapStep::Begins;
        let ends_move = is_end && self.moving.contains_key(&key) && !self.waits_for_end(key);
        let ranges = call.ranges();
        let mut others = self.moving.iter().filter(|(other, _)| !ends_move || **other != key);
        let meets_move = others.any(|(_, lifted)| ranges.iter().any(|range| lifted.meets(*range)));
        let is_later = !ends_move && meets(&self.awaited, ranges);
        if meets_move || is_later {
            self.waiting.push(*call);
            add(&mut self.awaited, ranges);
            return false;
        }
        self.apply(call);
        ends_move
    }

    /// True if a move waits that this thread has begun at this address, and has not ended: a signal
    /// handler's, in the middle of a move that has left the address to it.
    fn waits_for_end(&self, key: (ThreadId, u64)) -> bool {
        let mut is_open = false;
        for call in self.waiting.iter().filter(|call| call.call.plain() == MapCall::Mremap) {
            let begins = call.step == MapStep::Begins && (call.thread, call.address) == key;
            let ends = call.step != MapStep::Begins && (call.thread, call.arguments[1]) == key;
            is_open = begins || (is_open && !ends);
        }
        is_open
    }

    /// Gives up waiting for the ends of moves.
    fn end_moves(&mut self) {
        let mut lifted: Vec<((ThreadId, u64), Lifted)> = self.moving.drain().collect();
        lifted.sort_by_key(|(key, _)| *key);
        lifted.iter().for_each(|(_, lifted)| lifted.put_back(&mut self.mapped.space));
        self.awaited = AddressSpace::default();
        for call in std::mem::take(&mut self.waiting) {
            self.apply(&call);
        }
    }

    fn apply(&mut self, call: &Call) {
        let Call { address, length, arguments, .. } = *call;
        let bytes = pages(length);
        let cause = Cause { time: call.time, thread: Some(call.thread), stack: call.stack, call: call.named() };
        match (call.call.plain(), call.step) {
            (MapCall::Mmap, MapStep::Done) => self.map(cause, new_mapping(call)),
            (MapCall::Brk, MapStep::Done) => {
                let (now, before) = (address, arguments[0]);
                let (start, end) = (before.next_multiple_of(PAGE), now.next_multiple_of(PAGE));
                match end.checked_sub(start) {
                    Some(0) => {}
                    Some(bytes) => self.map(cause, heap_growth(call, start, Bytes(bytes))),
                    None => self.unmap(cause, end, Bytes(start - end)),
                }
            }
            (MapCall::Munmap, MapStep::Begins) => self.unmap(cause, address, bytes),
            (MapCall::Munmap | MapCall::Shmdt, MapStep::Failed) => self.check_soon(),
            (MapCall::Mremap, MapStep::Begins) => {
                let mut space = AddressSpace::default();
                for piece in self.mapped.space.unmap(address, bytes) {
                    space.map(piece.start, piece.bytes, piece.serial, piece.protection);
                }
                let lifted = Lifted { since: call.time, start: address, bytes, space };
                if let Some(before) = self.moving.insert((call.thread, address), lifted) {
                    before.put_back(&mut self.mapped.space);
                }
            }
            (MapCall::Mremap, step) => self.finish_move(cause, call, step == MapStep::Done),
            (MapCall::Mprotect, _) => {
                let protection = Protection::from_bits(arguments[0] as u8 & 7);
                for piece in self.mapped.space.protect(address, bytes, protection) {
                    self.row(cause, &piece, MappingChange::Protected { protection });
                }
            }
            (MapCall::Madvise, _) => {
                for piece in self.mapped.space.within(address, bytes) {
                    self.row(cause, &piece, MappingChange::Advised { advice: arguments[0] as u32 });
                }
            }
            // The length is not among the arguments: the next check finds the segment.
            (MapCall::Shmat, _) => {
                self.attached.insert(address, cause);
                self.check_soon();
            }
            (MapCall::Shmdt, _) => self.detach(cause, address),
            _ => {}
        }
    }

    /// Ends a move: what was lifted is put down at its new address, or where it was. A range that
    /// has grown is a new mapping behind it; one that has shrunk was unmapped in part.
    fn finish_move(&mut self, cause: Cause, call: &Call, is_done: bool) {
        let [flags, from, old_length] = call.arguments;
        let lifted = self.moving.remove(&(call.thread, from));
        let first = lifted.as_ref().and_then(|lifted| lifted.space.pieces().next());
        if let Some(lifted) = &lifted {
            lifted.put_back(&mut self.mapped.space);
        }
        let (old, new) = (pages(old_length), pages(call.length));
        if !is_done {
            return;
        }
        const DONT_UNMAP: u64 = 4;
        let kept = Bytes(old.0.min(new.0));
        let template = first.and_then(|piece| Some((*self.mapped.known.get(&piece.serial)?, piece.protection)));
        if flags & DONT_UNMAP != 0 || old_length == 0 {
            return self.map(cause, of_template(template, call, call.address, new));
        }
        if new < old {
            self.unmap(cause, from.saturating_add(new.0), Bytes(old.0 - new.0));
        }
        if call.address != from {
            self.unmap(cause, call.address, new);
            for piece in self.mapped.space.within(from, kept) {
                let to = call.address.wrapping_add(piece.start - from);
                if let Some(known) = self.mapped.known.get_mut(&piece.serial) {
                    known.base = known.base.wrapping_add(to).wrapping_sub(piece.start);
                }
                self.row(cause, &piece, MappingChange::Moved { to });
            }
            self.mapped.space.relocate(from, kept, call.address);
        }
        if new > old {
            let start = call.address.saturating_add(old.0);
            self.map(cause, of_template(template, call, start, Bytes(new.0 - old.0)));
        }
    }

    /// Unmaps a segment of System V shared memory.
    fn detach(&mut self, cause: Cause, address: u64) {
        self.attached.remove(&address);
        let Some(first) = self.mapped.space.within(address, Bytes(PAGE)).first().copied() else { return };
        let is_segment = self.mapped.known.get(&first.serial).is_some_and(|known| known.kind == MappingKind::SystemV);
        if is_segment && let Some(known) = self.mapped.known.get(&first.serial) {
            self.unmap(cause, address, Bytes(known.bytes));
        }
    }

    /// Maps a range, and writes rows for that and for what was there before.
    fn map(&mut self, cause: Cause, new: New) {
        if new.bytes.0 == 0 || new.start.checked_add(new.bytes.0).is_none() {
            return;
        }
        let serial = MappingSerial(self.mapped.next);
        self.mapped.next += 1;
        self.unmap(cause, new.start, new.bytes);
        self.mapped.space.map(new.start, new.bytes, serial, new.protection);
        let New { start, bytes, kind, protection, flags, file, object, offset } = new;
        let known = Known {
            kind,
            flags,
            file,
            object,
            base: start.wrapping_sub(offset),
            stack: cause.stack,
            thread: cause.thread,
            call: cause.call,
            bytes: bytes.0,
        };
        self.mapped.known.insert(serial, known);
        if file == TextId::UNKNOWN && kind == MappingKind::File {
            self.unnamed.push(self.rows.len());
            // Rows are written before the next check if that is far away.
            self.check_soon();
        }
        let piece = MappedPiece { serial, start, bytes, protection };
        self.row(cause, &piece, MappingChange::Mapped { kind, protection, flags, file, offset });
    }

    /// Unmaps a range, and writes rows for what was there. That may be something that is being
    /// moved, if nobody has waited for the end of that.
    fn unmap(&mut self, cause: Cause, start: u64, bytes: Bytes) {
        let mut gone = self.mapped.space.unmap(start, bytes);
        for lifted in self.moving.values_mut() {
            gone.extend(lifted.space.unmap(start, bytes));
        }
        gone.sort_by_key(|piece| piece.start);
        for piece in gone {
            if let Some(known) = self.mapped.known.get_mut(&piece.serial) {
                known.bytes = known.bytes.saturating_sub(piece.bytes.0);
                if known.bytes == 0 {
                    self.mapped.known.remove(&piece.serial);
                }
            }
            self.row(cause, &piece, MappingChange::Unmapped);
        }
    }

    fn row(&mut self, cause: Cause, piece: &MappedPiece, change: MappingChange) {
        let Cause { time, thread, stack, call } = cause;
        // A call that has waited is written with the time of the row before.
        let time = time.max(self.last_time());
        let &MappedPiece { serial, start, bytes, .. } = piece;
        self.rows.push(MappingEvent { time, thread, stack, call, serial, start, bytes, change });
    }

    /// Sends the rows to the file.
    fn write(&mut self, shared: &mut Shared) {
        self.unnamed.clear();
        for row in self.rows.drain(..) {
            self.written_to = row.time;
            if self.encoder.is_full()
                && let Some(chunk) = self.encoder.finish(&mut shared.compressor)
            {
                shared.writer.send(Job::Chunk(chunk));
            }
            if let Err(error) = self.encoder.push(&row) {
                shared.fail(error.into());
            }
        }
        if let Some(chunk) = self.encoder.finish(&mut shared.compressor) {
            shared.writer.send(Job::Chunk(chunk));
        }
    }
}

/// Returns the mapping that a call of `mmap` made.
fn new_mapping(call: &Call) -> New {
    const SHARED: u64 = 1;
    const ANONYMOUS: u64 = 0x20;
    const GROWS_DOWN: u64 = 0x100;
    const NO_RESERVE: u64 = 0x4000;
    const STACK: u64 = 0x2_0000;
    const HUGE: u64 = 0x4_0000;
    let [protection, bits, offset] = call.arguments;
    let protection = Protection::from_bits(protection as u8 & 7);
    let is_shared = bits & SHARED != 0;
    let kind = match bits {
        bits if bits & HUGE != 0 => MappingKind::Huge,
        bits if bits & ANONYMOUS == 0 => MappingKind::File,
        _ if is_shared => MappingKind::Shared,
        bits if bits & (STACK | GROWS_DOWN) != 0 => MappingKind::Stack,
        _ if protection.contains(Protection::EXECUTE) => MappingKind::Code,
        _ => MappingKind::Anonymous,
    };
    let flag = |is_set: bool, flag| if is_set { flag } else { MappingFlags::NONE };
    let flags = flag(call.is_allocators, MappingFlags::ALLOCATOR)
        .with(flag(is_shared, MappingFlags::SHARED))
        .with(flag(bits & NO_RESERVE != 0, MappingFlags::UNRESERVED));
    let offset = if kind == MappingKind::File { offset } else { 0 };
    // The kernel has a file of its own for other kinds of anonymous memory.
    let is_private = matches!(kind, MappingKind::Anonymous | MappingKind::Stack | MappingKind::Code);
    let object = is_private.then_some(Object::ANONYMOUS);
    let (start, bytes, file) = (call.address, pages(call.length), TextId::UNKNOWN);
    New { start, bytes, kind, protection, flags, file, object, offset }
}

/// Returns the mapping by which the brk heap has grown.
fn heap_growth(call: &Call, start: u64, bytes: Bytes) -> New {
    let flags = if call.is_allocators { MappingFlags::ALLOCATOR } else { MappingFlags::NONE };
    let protection = Protection::from_bits(3);
    let (kind, object) = (MappingKind::Brk, Some(Object::ANONYMOUS));
    New { start, bytes, kind, protection, flags, file: TextId::UNKNOWN, object, offset: 0 }
}

/// Returns a mapping like the one that `mremap` was called for.
fn of_template(template: Option<(Known, Protection)>, call: &Call, start: u64, bytes: Bytes) -> New {
    let allocators = if call.is_allocators { MappingFlags::ALLOCATOR } else { MappingFlags::NONE };
    let Some((known, protection)) = template else {
        let protection = Protection::from_bits(3);
        let (kind, file) = (MappingKind::Unknown, TextId::UNKNOWN);
        return New { start, bytes, kind, protection, flags: allocators, file, object: None, offset: 0 };
    };
    let kept =
        MappingFlags::from_bits(known.flags.bits() & (MappingFlags::SHARED.bits() | MappingFlags::UNRESERVED.bits()));
    let old = call.arguments[1];
    let offset = match known.kind {
        MappingKind::File => old.wrapping_sub(known.base).wrapping_add(start.wrapping_sub(call.address)),
        _ => 0,
    };
    let Known { kind, file, object, .. } = known;
    New { start, bytes, kind, protection, flags: kept.with(allocators), file, object, offset }
}

/// Returns the kind of a region that was found.
fn kind_of(region: &Mapping) -> MappingKind {
    match &region.name[..] {
        b"[heap]" => MappingKind::Brk,
        name if name.starts_with(b"[stack") => MappingKind::Stack,
        name if name.starts_with(b"/SYSV") => MappingKind::SystemV,
        name if name.starts_with(b"[anon_shmem") => MappingKind::Shared,
        name if [&b"/memfd:"[..], b"/dev/zero", b"/dev/shm/"].iter().any(|start| name.starts_with(start)) => {
            MappingKind::Shared
        }
        name if name.starts_with(b"/anon_hugepage") => MappingKind::Huge,
        name if name.starts_with(b"[anon") => MappingKind::Anonymous,
        name if name.starts_with(b"[") => MappingKind::Kernel,
        _ if region.inode != 0 => MappingKind::File,
        _ if protection(region).contains(Protection::EXECUTE) => MappingKind::Code,
        _ => MappingKind::Anonymous,
    }
}

impl Image {
    /// Takes a call that changes mappings.
    pub(super) fn change_mappings(&mut self, call: &Call, shared: &mut Shared) {
        self.mappings.take(call, shared);
    }

    /// Reads what is mapped in the process, if that is due. All calls before `merged` have been
    /// taken. `identity` is the [identity](crate::process::image_identity) of the image's program.
    pub(crate) fn check_mappings(&mut self, now: Time, merged: Time, identity: Option<u64>, shared: &mut Shared) {
        self.mappings.pass(merged, shared);
        self.mappings.check(now, identity, shared);
    }

    /// Returns what is mapped now, for a child that is forked.
    pub(crate) fn fork_mappings(&self) -> Option<Mapped> {
        self.mappings.fork()
    }

    /// Begins with what the parent had mapped at the fork, and with what was mapped when the image
    /// introduced itself, as far as both are known.
    pub(crate) fn begin_mappings(
        &mut self,
        inherited: Option<Mapped>,
        regions: Option<Vec<Mapping>>,
        start: Time,
        shared: &mut Shared,
    ) {
        if let Some(inherited) = inherited {
            self.mappings.inherit(inherited, start);
        }
        if let Some(regions) = regions {
            self.mappings.begin(regions, start, shared);
        }
    }

    /// Writes the rows of mappings, if there are some from before `before`.
    pub(super) fn flush_mappings(&mut self, before: Time, shared: &mut Shared) {
        self.mappings.flush(before, shared);
    }

    /// Writes the last rows of mappings, when all calls have been taken.
    pub(super) fn finish_mappings(&mut self, shared: &mut Shared) {
        self.mappings.finish(shared);
    }
}

#[cfg(test)]
mod tests;
