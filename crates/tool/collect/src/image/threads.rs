//! The threads of an image, and which of them writes to a ring.

use std::collections::HashMap;

use heapledger_core::sample::Rate;
use heapledger_core::{Api, ThreadId};
use heapledger_ledger::Pending;
use heapledger_recording::{Call, Event as FileEvent, EventKind, ImageId, Sampled, Thread as ThreadRecord, Time};

use super::Image;
use crate::session_state::Shared;

/// The current owner of a ring, the thread that writes to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingOwner {
    pub(super) thread: Option<ThreadId>,
    /// The thread that asked for the ring; it counts as the owner until another one is announced.
    tid: u32,
}

impl RingOwner {
    pub(crate) fn new(tid: u32) -> RingOwner {
        RingOwner { thread: None, tid }
    }
}

/// The thread and the time of an event, and its relation to a sample.
#[derive(Clone, Copy)]
pub(super) struct EventHeader {
    pub(super) thread: ThreadId,
    pub(super) time: Time,
    pub(super) sampled: Sampled,
}

impl EventHeader {
    /// Returns the event, as the file has it, of a call with this effect.
    #[inline(always)]
    pub(super) fn event(self, api: Api, kind: EventKind) -> FileEvent {
        let EventHeader { thread, time, sampled } = self;
        FileEvent { time, thread, call: Call::from(api), sampled, kind }
    }
}

/// A thread of an image.
#[derive(Debug)]
struct Thread {
    tid: u32,
    name: [u8; 16],
    start: Time,
    end: Option<Time>,
    /// True if the thread has announced itself; otherwise events on its behalf have introduced it.
    is_announced: bool,
    /// True if the file does not have its latest state.
    is_changed: bool,
    /// Its reallocation that has begun and not ended.
    pending: Option<Pending>,
    /// True if it has made allocations that are not in the sample since its latest event.
    has_unsampled: bool,
}

/// The threads of an image.
#[derive(Debug, Default)]
pub(super) struct Threads {
    all: Vec<Thread>,
    /// The numbers of ended threads that are given to new ones. Used only without events, where
    /// this makes no difference.
    free: Vec<ThreadId>,
    seen: u64,
    /// The latest thread with each id.
    by_tid: HashMap<u32, ThreadId>,
}

impl Threads {
    /// True if there are several threads, or were.
    #[inline(always)]
    pub(super) fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// Returns the number of threads that were seen in this segment.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// Returns the thread and time of an event.
    #[inline(always)]
    pub(super) fn header(&mut self, ring_owner: &mut RingOwner, time: Time) -> EventHeader {
        EventHeader { thread: self.owner(ring_owner, time), time, sampled: Sampled::NOT }
    }

    /// Returns the thread and time of an event that may belong to a sample.
    pub(super) fn sampled_header(&mut self, ring_owner: &mut RingOwner, time: Time, rate: Rate) -> EventHeader {
        let thread = self.owner(ring_owner, time);
        let unsampled = self.get_mut(thread).map(|thread| std::mem::take(&mut thread.has_unsampled));
        EventHeader { thread, time, sampled: Sampled { rate, after_unsampled: unsampled.unwrap_or_default() } }
    }

    /// Returns the thread that writes to a ring.
    #[inline(always)]
    pub(super) fn owner(&mut self, ring_owner: &mut RingOwner, time: Time) -> ThreadId {
        match ring_owner.thread {
            Some(thread) => thread,
            None => self.first_contact(ring_owner, time),
        }
    }

    #[cold]
    fn first_contact(&mut self, ring_owner: &mut RingOwner, time: Time) -> ThreadId {
        let thread = self.known_or_new(ring_owner.tid, time);
        *ring_owner.thread.insert(thread)
    }

    /// Returns the thread with this id, which need not have announced itself.
    pub(super) fn known_or_new(&mut self, tid: u32, time: Time) -> ThreadId {
        let known = self.by_tid.get(&tid).copied();
        known.unwrap_or_else(|| self.add(tid, [0; 16], false, time))
    }

    /// Adds a thread that announces itself.
    pub(super) fn start(&mut self, tid: u32, name: [u8; 16], time: Time) -> ThreadId {
        // The thread was known before, without a ring.
        if let Some(&known) = self.by_tid.get(&tid)
            && let Some(thread) = self.get_mut(known)
            && !thread.is_announced
        {
            (thread.name, thread.is_announced, thread.is_changed) = (name, true, true);
            return known;
        }
        self.add(tid, name, true, time)
    }

    fn add(&mut self, tid: u32, name: [u8; 16], is_announced: bool, time: Time) -> ThreadId {
        let thread = Thread {
            tid,
            name,
            start: time,
            end: None,
            is_announced,
            is_changed: true,
            pending: None,
            has_unsampled: false,
        };
        self.seen += 1;
        let free = self.free.pop();
        let id = free.unwrap_or(ThreadId(self.all.len() as u32));
        match self.all.get_mut(id.0 as usize) {
            Some(free) => *free = thread,
            None => self.all.push(thread),
        }
        self.by_tid.insert(tid, id);
        id
    }

    /// Renames a thread.
    pub(super) fn rename(&mut self, thread: ThreadId, name: [u8; 16]) {
        if let Some(thread) = self.get_mut(thread).filter(|thread| thread.name != name) {
            thread.name = name;
            thread.is_changed = true;
        }
    }

    /// Notes that a thread has made allocations that are not in the sample.
    pub(super) fn note_unsampled(&mut self, thread: ThreadId) {
        if let Some(thread) = self.get_mut(thread) {
            thread.has_unsampled = true;
        }
    }

    /// Gives the number of an ended thread to a later one.
    fn recycle(&mut self, id: ThreadId) {
        let Some(thread) = self.all.get(id.0 as usize) else { return };
        if self.by_tid.get(&thread.tid) == Some(&id) {
            self.by_tid.remove(&thread.tid);
        }
        self.free.push(id);
    }

    /// Notes that a thread's reallocation has begun.
    pub(super) fn set_pending(&mut self, thread: ThreadId, pending: Pending) {
        if let Some(thread) = self.get_mut(thread) {
            thread.pending = Some(pending);
        }
    }

    /// Takes a thread's reallocation that has begun.
    pub(super) fn take_pending(&mut self, thread: ThreadId) -> Option<Pending> {
        self.get_mut(thread)?.pending.take()
    }

    /// Takes the reallocations of all threads that have begun.
    pub(super) fn take_all_pending(&mut self) -> impl Iterator<Item = Pending> {
        self.all.iter_mut().filter_map(|thread| thread.pending.take())
    }

    /// Returns the reallocations that have begun and not ended.
    pub(super) fn pending(&self) -> impl Iterator<Item = &Pending> {
        self.all.iter().filter_map(|thread| thread.pending.as_ref())
    }

    /// Returns the records of the threads whose latest state the file does not have. They count as
    /// written.
    pub(super) fn take_changed(&mut self, image: ImageId) -> impl Iterator<Item = ThreadRecord> {
        self.all.iter_mut().enumerate().filter(|(_, thread)| thread.is_changed).map(move |(number, thread)| {
            thread.is_changed = false;
            let name = thread.name.iter().copied().take_while(|&byte| byte != 0).collect();
            ThreadRecord {
                image,
                thread: ThreadId(number as u32),
                tid: thread.tid,
                name,
                start: thread.start,
                end: thread.end,
            }
        })
    }

    /// Begins another file, which needs the threads that have not ended.
    pub(super) fn begin_segment(&mut self) {
        self.seen = 0;
        for thread in self.all.iter_mut().filter(|thread| thread.end.is_none()) {
            self.seen += 1;
            thread.is_changed = true;
        }
    }

    fn get_mut(&mut self, thread: ThreadId) -> Option<&mut Thread> {
        self.all.get_mut(thread.0 as usize)
    }
}

impl Image {
    /// Ends a thread.
    pub(super) fn end_thread(&mut self, shared: &mut Shared, id: ThreadId, time: Time) {
        let Some(thread) = self.threads.get_mut(id) else { return };
        thread.end = Some(time);
        thread.is_changed = true;
        // The thread ended before its reallocation returned, so the block was not touched.
        if let Some(pending) = thread.pending.take() {
            self.ledger.cancel_realloc(&mut shared.session, pending);
        }
        if !shared.keeps_events {
            self.ledger.end_thread(id);
            self.threads.recycle(id);
        }
    }
}
