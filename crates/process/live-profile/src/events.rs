//! Sampled allocations and their frees, one by one.

use std::collections::HashMap;
use std::time::Duration;

use heapledger_core::{Blocks, Bytes, ThreadId};
use heapledger_inprocess::{events, overhead};
use heapledger_profile_formats as formats;
use heapledger_query::{Stack, Stamp};

use crate::builder::ProfileBuilder;
use crate::names::FrameNames;

/// A sampled allocation, or its free. A reallocation is both.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ProfileEvent {
    /// The time since the profile was started.
    pub time: Duration,
    /// The address at which the block begins.
    pub address: u64,
    /// The requested size.
    pub size: Bytes,
    /// The weight: the number of blocks of its size and stack that it counts for.
    pub weight: Blocks,
    /// The stack that allocated the block.
    pub stack: Stack,
    /// The block's stamp at the time of the event.
    pub type_name: Option<&'static str>,
    /// The thread that allocated or freed the block.
    pub thread: ThreadId,
    /// True for a free, false for an allocation.
    pub is_free: bool,
}

/// A reader of the profile's events, in order, from the time when the reader was made.
///
/// The last [`ProfileOptions::events`](crate::ProfileOptions::events) are kept. A reader that reads
/// too seldom loses the oldest ones, and can ask how many. Events are *balanced*: each free is that
/// of an allocation at the same address, unless that allocation was lost or earlier.
///
/// ```
/// # use heapledger_live_profile::{self as profile, ProfileEvents, ProfileOptions};
/// # use heapledger_core::Bytes;
/// # #[global_allocator]
/// # static ALLOCATOR: heapledger_allocator::Allocator = heapledger_allocator::Allocator::system();
/// profile::start(ProfileOptions { events: 1000, ..ProfileOptions::every(Bytes(4096)) })?;
/// let mut events = ProfileEvents::new();
/// let block = || std::hint::black_box(Vec::<u8>::with_capacity(1 << 20));
/// let kept = block();
/// drop(block());
/// let all = events.read();
/// assert!(all.iter().filter(|event| event.size.0 == 1 << 20).map(|event| event.is_free).eq([false, false, true]));
/// let retained = profile::retained(&all);
/// assert!(retained.iter().any(|event| event.address == kept.as_ptr().addr() as u64));
/// # Ok::<(), profile::StartError>(())
/// ```
#[derive(Debug)]
pub struct ProfileEvents {
    next: u64,
    lost: u64,
}

/// The number of events that are read at a time.
const BATCH: usize = 256;

impl ProfileEvents {
    /// Reads the events that happen from now on.
    #[expect(clippy::new_without_default, reason = "it depends on when it is made")]
    pub fn new() -> ProfileEvents {
        ProfileEvents { next: events::next(), lost: 0 }
    }

    /// Reads the past events that are kept, too.
    pub fn kept() -> ProfileEvents {
        let mut none = [];
        let oldest = events::read(0, &mut none);
        ProfileEvents { next: oldest.map_or(0, |reading| reading.next), lost: 0 }
    }

    /// Returns the events since the last reading.
    pub fn read(&mut self) -> Vec<ProfileEvent> {
        let _untracked = heapledger_annotate::untracked::enter();
        let (mut all, mut batch) = (Vec::new(), [events::Event::NONE; BATCH]);
        let (until, clock) = (events::next(), overhead::Clock::now());
        // Reads no further than the events at the beginning of this call: otherwise it would not
        // end while the program keeps allocating.
        while self.next < until {
            let Some(reading) = events::read(self.next, &mut batch) else { break };
            (self.next, self.lost) = (reading.next, self.lost + reading.lost);
            all.extend(batch[..reading.count].iter().map(|event| ProfileEvent::of(event, clock)));
            if reading.count == 0 {
                break;
            }
        }
        all
    }

    /// Returns the number of events that were overwritten before they were read.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl ProfileEvent {
    fn of(event: &events::Event, clock: overhead::Clock) -> ProfileEvent {
        ProfileEvent {
            time: Duration::from_nanos(clock.since_start(event.time.0)),
            address: event.key.address(),
            size: event.size,
            weight: event.weight,
            stack: Stack::of(event.stack),
            type_name: Stamp::of(event.stamp).map(|stamp| stamp.type_name),
            thread: event.thread,
            is_free: event.is_free,
        }
    }
}

/// Returns the allocations among these events whose blocks are not freed in them: allocated in that
/// time and still live at its end.
pub fn retained(events: &[ProfileEvent]) -> Vec<ProfileEvent> {
    let _untracked = heapledger_annotate::untracked::enter();
    let mut live: HashMap<u64, usize> = HashMap::new();
    for (at, event) in events.iter().enumerate() {
        if event.is_free {
            live.remove(&event.address);
        } else {
            live.insert(event.address, at);
        }
    }
    let mut at: Vec<usize> = live.into_values().collect();
    at.sort_unstable();
    at.into_iter().filter_map(|at| events.get(at).copied()).collect()
}

/// Converts events for formats with individual events, such as Firefox's: returns the stacks that
/// allocated, and the events with their weights. Frees of blocks that were not allocated in these
/// events are left out.
///
/// ```
/// # use heapledger_live_profile::formats::{EventWriter, firefox};
/// # use heapledger_live_profile::{self as profile, ProfileEvents, FrameNames, ProfileOptions};
/// # #[global_allocator]
/// # static ALLOCATOR: heapledger_allocator::Allocator = heapledger_allocator::Allocator::system();
/// profile::start(ProfileOptions { events: 100_000, ..ProfileOptions::default() })?;
/// // … and after a while:
/// # let kept = std::hint::black_box(Vec::<u8>::with_capacity(64 << 20));
/// let (profile, events) = profile::native_allocations(&ProfileEvents::kept().read(), FrameNames::Known);
/// let mut file = Vec::new();
/// let mut writer = firefox::Writer::new(&mut file, 100_000);
/// events.iter().try_for_each(|event| writer.event(&profile, event))?;
/// writer.finish(&profile)?; // for profiler.firefox.com
/// # drop(writer);
/// # assert!(String::from_utf8(file)?.contains("67108864"), "{profile:?}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn native_allocations(events: &[ProfileEvent], names: FrameNames) -> (formats::Profile, Vec<formats::Event>) {
    let _untracked = heapledger_annotate::untracked::enter();
    let mut builder = ProfileBuilder::new(names);
    let (mut samples, mut index) = (Vec::<formats::Sample>::new(), HashMap::new());
    // By address: the bytes with their weight, and the sample.
    let mut live: HashMap<u64, (u64, usize)> = HashMap::new();
    let mut found = Vec::new();
    for event in events {
        let kind = if event.is_free {
            let Some((bytes, sample)) = live.remove(&event.address) else { continue };
            let sum = &mut samples[sample].amounts.live;
            (sum.blocks, sum.bytes) = (sum.blocks.saturating_sub(event.weight.0), sum.bytes.saturating_sub(bytes));
            formats::EventKind::Freed { bytes, sample }
        } else {
            let key = builder.stack(event.stack);
            let sample = *index.entry(key).or_insert_with_key(|(locations, labels)| {
                let (locations, labels) = (locations.clone(), labels.clone());
                samples.push(formats::Sample { locations, labels, ..formats::Sample::default() });
                samples.len() - 1
            });
            let bytes = event.weight.0 * event.size.0;
            live.insert(event.address, (bytes, sample));
            let formats::Amounts { allocated, live: held, .. } = &mut samples[sample].amounts;
            for sum in [allocated, held] {
                (sum.blocks, sum.bytes) = (sum.blocks + event.weight.0, sum.bytes + bytes);
            }
            formats::EventKind::Allocated { bytes, sample }
        };
        let (time_ns, address) = (event.time.as_nanos() as u64, event.address);
        found.push(formats::Event { time_ns, process: 0, thread: event.thread.0, address, kind });
    }
    (builder.profile(samples), found)
}
