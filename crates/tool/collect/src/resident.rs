//! Resident snapshots: when one is due, and the thread that makes them.
//!
//! The collector copies its list of live blocks, and hands it to this thread. Everything else is
//! done here, while the program and the collector go on: reading the process's page maps and heaps,
//! sorting the blocks, and putting them onto pages.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use heapledger_core::{Blocks, Bytes, StackId};
use heapledger_recording::{
    ImageId, Live, ResidentFigures, ResidentSnapshot, SNAPSHOT_PARTS_MAX, SnapshotCause, SnapshotPart, SnapshotSite,
    Time,
};
use heapledger_resident::{PlacedBlock, ResidentMemory, SearchedFiles, SiteFold};

use crate::exiting::Exiting;
use crate::memory::thread_time;
use crate::options::ResidentSnapshots;
use crate::process;

/// The time that an image must have run before its first snapshot, in nanoseconds, so that commands
/// of a moment cost nothing.
const AGE_MIN: u64 = 50_000_000;
/// The least change of resident memory, in bytes, that makes a snapshot due, and its least share of
/// the memory at the snapshot before: a tenth.
const CHANGE_MIN: u64 = 1 << 20;
const CHANGE_DIVISOR: u64 = 10;
/// The share of the image's age after which a snapshot is due though nothing has changed, a fifth,
/// and the least such time in nanoseconds.
const AGE_DIVISOR: u64 = 5;
const PAUSE_MIN: u64 = 1_000_000_000;
/// The share of the image's age that must be between two snapshots, unless memory is higher than
/// ever before: a fiftieth. So there are at most some 700 in a day, whatever memory does.
const PAUSE_DIVISOR: u64 = 50;
/// The share of a process's time that its automatic snapshots may take as processor time, and of
/// the session's time, all together: a fiftieth. With the one at its exit, it is a twenty-fifth.
const ALLOWANCE_DIVISOR: u64 = 50;
const EXIT_ALLOWANCE_DIVISOR: u64 = 25;
/// The processor time that the first snapshot of a process is expected to take: this much, and for
/// each GiB resident. Measured with a release build: 3 ms for `sleep`, 14 ms for python3 (13 MiB),
/// 0.6 s for 1.08 GiB with 5 million blocks.
const COST_FIRST: Duration = Duration::from_millis(5);
const COST_OF_GIB: Duration = Duration::from_millis(500);
/// The number of failures after which no more snapshots of an image are tried.
const FAILURES_MAX: u8 = 3;
/// The most bytes of a name that are kept.
const NAME_MAX: usize = 240;

/// The resident snapshots of an image so far.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// The moment of the latest one, and the resident bytes then.
    last: Option<(Time, u64)>,
    /// The most resident bytes of any.
    highest: u64,
    /// The resident bytes by the latest sample.
    resident: u64,
    /// The latest snapshot's cost, with the resident bytes then.
    cost: Option<(Cost, u64)>,
    /// The processor time that automatic snapshots have taken.
    spent: Duration,
    failures: u8,
    /// The reason for which one is due.
    pub(crate) due: Option<SnapshotCause>,
}

/// The time that it takes to make a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// The processor time of all.
    pub(crate) processor: Duration,
    /// The time for which the process's memory is read.
    pub(crate) reading: Duration,
}

impl Cost {
    /// Returns the cost of a snapshot of so much more memory, in hundredths.
    fn scaled(self, percent: u64) -> Cost {
        let scaled = |time: Duration| Duration::from_nanos((time.as_nanos() as u64).saturating_mul(percent) / 100);
        Cost { processor: scaled(self.processor), reading: scaled(self.reading) }
    }
}

impl Schedule {
    /// Handles a new figure of resident memory in an image that has begun at `begun`.
    pub(crate) fn on_sample(&mut self, options: ResidentSnapshots, begun: Time, now: Time, resident: u64) {
        let age = now.0.saturating_sub(begun.0);
        self.resident = resident;
        if self.failures >= FAILURES_MAX || age < AGE_MIN {
            return;
        }
        let Some((time, before)) = self.last else {
            self.due = match (options.every, options.automatic) {
                (Some(_), _) => Some(SnapshotCause::Schedule),
                (None, true) => Some(SnapshotCause::Growth),
                (None, false) => None,
            };
            return;
        };
        // One that is due for another reason may have to wait until there is time for it.
        let since = now.0.saturating_sub(time.0);
        if options.every.is_some_and(|every| u128::from(since) >= every.as_nanos()) {
            self.due = Some(SnapshotCause::Schedule);
        } else if options.automatic && self.due.is_none() {
            let change = (before / CHANGE_DIVISOR).max(CHANGE_MIN);
            let is_new_height = resident > self.highest.saturating_add(self.highest / CHANGE_DIVISOR);
            let has_paused = since >= age / PAUSE_DIVISOR;
            if resident > before.saturating_add(change) && (is_new_height || has_paused) {
                self.due = Some(SnapshotCause::Growth);
            } else if resident.saturating_add(change) < before && has_paused {
                self.due = Some(SnapshotCause::Fall);
            } else if since >= (age / AGE_DIVISOR).max(PAUSE_MIN) {
                self.due = Some(SnapshotCause::Schedule);
            }
        }
    }

    /// Returns the moment at which the latest snapshot was begun.
    pub(crate) fn begun(&self) -> Option<Time> {
        self.last.map(|(time, _)| time)
    }

    /// Notes that a snapshot has been begun.
    pub(crate) fn on_begun(&mut self, now: Time) {
        self.due = None;
        self.last = Some((now, self.last.map_or(0, |(_, resident)| resident)));
    }

    /// Returns the cost that the next snapshot is expected to have.
    pub(crate) fn expected_cost(&self) -> Cost {
        match self.cost {
            Some((cost, before)) => cost.scaled((self.resident.saturating_mul(100) / before.max(1)).max(100)),
            None => {
                let of_size = COST_OF_GIB.as_nanos() as u64 / 1024 * (self.resident >> 20);
                let processor = COST_FIRST + Duration::from_nanos(of_size);
                Cost { processor, reading: processor }
            }
        }
    }

    /// True if the image, which has run for `age`, may have another automatic snapshot.
    pub(crate) fn has_allowance(&self, age: Duration, cause: SnapshotCause) -> bool {
        self.spent + self.expected_cost().processor <= allowance(age, cause)
    }

    /// Notes the outcome of a snapshot.
    pub(crate) fn on_outcome(&mut self, made: &Made) {
        if made.is_limited {
            self.spent += made.spent;
        }
        match (&made.snapshot, &mut self.last) {
            (Some(ResidentSnapshot { figures, .. }), Some((_, before))) => {
                let reading = Duration::from_nanos(figures.read_ns);
                self.cost = Some((Cost { processor: made.spent, reading }, figures.resident.0));
                (*before, self.failures) = (figures.resident.0, 0);
                self.highest = self.highest.max(figures.resident.0);
            }
            _ => self.failures = self.failures.saturating_add(1),
        }
    }
}

/// Returns the processor time that automatic snapshots may take of a time.
fn allowance(time: Duration, cause: SnapshotCause) -> Duration {
    let divisor = if cause == SnapshotCause::End { EXIT_ALLOWANCE_DIVISOR } else { ALLOWANCE_DIVISOR };
    Duration::from_nanos(time.as_nanos() as u64 / divisor)
}

/// A snapshot that is to be made.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) image: ImageId,
    pub(crate) pid: u32,
    /// The [identity](process::image_identity) of the image's program.
    pub(crate) identity: Option<u64>,
    pub(crate) time: Time,
    pub(crate) cause: SnapshotCause,
    /// True if its processor time is on the account of automatic snapshots.
    pub(crate) is_limited: bool,
    /// The live blocks. Empty in a recording of a sample, or if there are too many.
    pub(crate) blocks: Vec<PlacedBlock>,
    pub(crate) has_sites: bool,
    pub(crate) live: Live,
    pub(crate) copy_ns: u64,
    /// The requester, who is to be notified.
    pub(crate) done: Option<SyncSender<()>>,
    /// The process itself, if it waits.
    pub(crate) exiting: Option<Exiting>,
}

/// A snapshot that was made, or failed: the process has ended, runs another program, or may not be
/// read.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) image: ImageId,
    pub(crate) snapshot: Option<ResidentSnapshot>,
    /// The processor time that it took.
    pub(crate) spent: Duration,
    /// True if that is on the account of automatic snapshots.
    pub(crate) is_limited: bool,
    pub(crate) done: Option<SyncSender<()>>,
}

/// The thread that makes snapshots, one after the other. It is started with the first one, and ends
/// when this is dropped, after the snapshot that it is at.
#[derive(Debug, Default)]
pub(crate) struct Snapshooter {
    channels: Option<(SyncSender<Request>, Receiver<Made>)>,
    is_busy: bool,
    /// The processor time that automatic snapshots have taken.
    spent: Duration,
}

impl Snapshooter {
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// True if the session may have an automatic snapshot that is expected to take this processor
    /// time.
    pub(crate) fn has_allowance(&self, now: Time, expected: Duration, cause: SnapshotCause) -> bool {
        self.spent + expected <= allowance(Duration::from_nanos(now.0), cause)
    }

    /// Begins a snapshot. Only while the thread is not busy; then this does not wait.
    pub(crate) fn begin(&mut self, request: Request) {
        if self.channels.is_none() {
            let (requests, received) = sync_channel::<Request>(1);
            let (sender, made) = sync_channel(1);
            let mut searched = SearchedFiles::default();
            let run = move || received.into_iter().all(|request| sender.send(make(request, &mut searched)).is_ok());
            // Without a thread there are no snapshots: the requester sees that nobody notifies it.
            let Ok(_) = std::thread::Builder::new().name("resident".into()).spawn(run) else { return };
            self.channels = Some((requests, made));
        }
        if let Some((requests, _)) = &self.channels {
            self.is_busy = requests.try_send(request).is_ok();
        }
    }

    /// Returns a snapshot that has been made since. Waits for it for at most `timeout`.
    pub(crate) fn take(&mut self, timeout: Duration) -> Option<Made> {
        let (_, made) = self.channels.as_ref().filter(|_| self.is_busy)?;
        let made = match timeout {
            Duration::ZERO => made.try_recv().map_err(|error| error == TryRecvError::Disconnected),
            _ => made.recv_timeout(timeout).map_err(|error| error == RecvTimeoutError::Disconnected),
        };
        match made {
            Ok(made) => {
                self.is_busy = false;
                if made.is_limited {
                    self.spent += made.spent;
                }
                Some(made)
            }
            Err(is_over) => {
                if is_over {
                    (self.is_busy, self.channels) = (false, None);
                }
                None
            }
        }
    }
}

fn make(request: Request, searched: &mut SearchedFiles) -> Made {
    let start = thread_time();
    let Request { image, pid, identity, time, cause, is_limited, mut blocks, has_sites, live, copy_ns, done, exiting } =
        request;
    let memory = ResidentMemory::of_process_with(pid, searched).ok();
    let helped = memory.as_ref().map_or(Duration::ZERO, |memory| memory.helped);
    // After an exec, also of a program that is not recorded, and while the process ends, it does
    // not have the memory of the blocks.
    let memory = memory.filter(|memory| memory.kernel.resident > 0 && process::image_identity(pid) == identity);
    let resident_max = process::resident_max(pid).unwrap_or(0);
    // It goes on: its memory has been read.
    drop(exiting);
    let snapshot = memory.map(|memory| {
        let figures = ResidentFigures {
            cause,
            copy_ns,
            live,
            has_sites,
            resident_max: Bytes(resident_max.max(memory.kernel.resident)),
            page_size: Bytes(rustix::param::page_size() as u64),
            ..ResidentFigures::default()
        };
        snapshot(time, figures, &memory, &mut blocks)
    });
    let spent = thread_time().saturating_sub(start) + helped + Duration::from_nanos(copy_ns);
    Made { image, snapshot, spent, is_limited, done }
}

/// Returns a snapshot: figures that are given, completed by those of the process's memory.
fn snapshot(
    time: Time,
    figures: ResidentFigures,
    memory: &ResidentMemory,
    blocks: &mut [PlacedBlock],
) -> ResidentSnapshot {
    let fold = memory.fold(blocks);
    let parts = memory.parts.iter().zip(&fold.parts_live).map(|(part, &live)| SnapshotPart {
        kind: part.kind.word().to_owned(),
        name: shortened(&part.name),
        count: part.count,
        mapped: Bytes(part.mapped),
        resident: Bytes(part.resident),
        private_dirty: Bytes(part.private_dirty),
        shared: Bytes(part.shared),
        live: Bytes(live),
    });
    let kernel = memory.kernel;
    let figures = ResidentFigures {
        read_ns: memory.duration.as_nanos() as u64,
        resident: Bytes(kernel.resident),
        anonymous: Bytes(kernel.anonymous),
        huge: Bytes(kernel.anonymous_huge),
        swapped: Bytes(kernel.swapped),
        huge_tlb: Bytes(kernel.huge_tlb),
        page_tables: Bytes(memory.page_tables),
        mapped: Bytes(memory.mapped),
        reserved: Bytes(memory.reserved),
        trimmable: Bytes(memory.glibc.as_ref().map_or(0, |heap| heap.total().trimmable)),
        threads: memory.threads,
        knows_zeroes: memory.knows_zeroes,
        heap_pages: fold.heap_pages,
        pages_by_fill: fold.pages_by_fill,
        pages_alone: fold.pages_alone,
        arenas: memory.glibc.as_ref().map_or(0, |heap| heap.arenas.len() as u64),
        caches: memory.glibc.as_ref().map_or(0, |heap| heap.caches),
        ..figures
    };
    let sites = fold.sites.iter().map(site).collect();
    ResidentSnapshot { time, figures, parts: with_fewer(parts.collect()), sites }
}

fn site(site: &SiteFold) -> SnapshotSite {
    SnapshotSite {
        stack: StackId(site.site),
        blocks: Blocks(site.blocks),
        bytes: Bytes(site.bytes),
        resident: Bytes(site.resident),
        slop: Bytes(site.slop),
        kept: Bytes(site.kept),
        pages_alone: site.pages_alone,
        pages_sparse: site.pages_sparse,
    }
}

/// Returns the end of a name that is too long: of a path, the end says the most.
fn shortened(name: &str) -> String {
    match name.char_indices().rev().nth(NAME_MAX) {
        Some((at, _)) => format!("…{}", &name[at..]),
        None => name.to_owned(),
    }
}

/// Joins the smallest parts of each kind until a snapshot has room for all.
fn with_fewer(mut parts: Vec<SnapshotPart>) -> Vec<SnapshotPart> {
    const KEPT: usize = 4096;
    const { assert!(KEPT < SNAPSHOT_PARTS_MAX) };
    if parts.len() <= KEPT {
        return parts;
    }
    parts.sort_by_key(|part| std::cmp::Reverse(part.resident));
    for part in parts.split_off(KEPT) {
        match parts.iter_mut().find(|joined| joined.kind == part.kind && joined.name.is_empty()) {
            Some(joined) => {
                joined.count += part.count;
                let sums = [
                    (&mut joined.mapped, part.mapped),
                    (&mut joined.resident, part.resident),
                    (&mut joined.private_dirty, part.private_dirty),
                    (&mut joined.shared, part.shared),
                    (&mut joined.live, part.live),
                ];
                sums.into_iter().for_each(|(sum, bytes)| sum.0 = sum.0.saturating_add(bytes.0));
            }
            None => parts.push(SnapshotPart { name: String::new(), ..part }),
        }
    }
    parts
}

#[cfg(test)]
mod tests;
