//! Walks over heaps by several threads.
//!
//! The chunks of a heap lead from one to the next, so a heap is divided where a chunk is guessed to
//! begin. The guess is checked afterwards: the walk over the segment before it has to end there.
//! Otherwise the segment is walked again, from the end of the one before. So the result is the same
//! as that of one walk.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::walk::{Extent, Walked, guess_chunk, walk};
use crate::memory::Memory;
use crate::pages::PresentPages;
use crate::reader::WordReader;

/// The number of threads and of bytes of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) threads: usize,
    pub(super) segment: u64,
}

/// The most threads: the kernel's locks for the process's memory are shared by all.
const THREADS_MAX: usize = 4;
/// The bytes of a segment. Reading them takes about 2 ms.
const SEGMENT: u64 = 16 << 20;

impl Default for Plan {
    fn default() -> Plan {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Plan { threads: processors.min(THREADS_MAX), segment: SEGMENT }
    }
}

/// A part of a heap.
struct Segment {
    /// The index of the heap.
    extent: usize,
    start: u64,
    limit: u64,
}

/// Walks heaps, which are given with the number of their arena. Returns the sums of each. Adds the
/// processor time of other threads than the caller's to `helped`.
pub(super) fn walk_all(
    memory: &dyn Memory,
    pages: &PresentPages,
    extents: &[(usize, Extent)],
    plan: Plan,
    helped: &mut Duration,
) -> Vec<Walked> {
    let segments = divide(pages, extents, plan);
    let threads = plan.threads.min(segments.len());
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        let mut reader = WordReader::new(memory, pages);
        while let Some((index, segment)) = take(&next, &segments) {
            let extent = &extents[segment.extent].1;
            let is_first = segment.start == extent.range.start;
            let start = match is_first {
                true => Some(segment.start),
                false => guess_chunk(&mut reader, extent, segment.start),
            };
            let Some(start) = start.filter(|&start| start < segment.limit) else { continue };
            let walked = walk(&mut reader, pages, extent, (start, segment.limit));
            done.lock().unwrap_or_else(PoisonError::into_inner).push((index, start, walked));
        }
    };
    let times = thread::scope(|scope| {
        let help = || {
            work();
            thread_time()
        };
        // Without a thread the others do its work.
        let helpers = (1..threads).filter_map(|_| thread::Builder::new().spawn_scoped(scope, help).ok());
        let helpers: Vec<_> = helpers.collect();
        work();
        helpers.into_iter().filter_map(|helper| helper.join().ok()).sum::<Duration>()
    });
    *helped = helped.saturating_add(times);
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(index, ..)| *index);
    join(memory, pages, extents, &segments, done)
}

/// Returns the processor time of this thread so far.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

fn take<'s>(next: &AtomicUsize, segments: &'s [Segment]) -> Option<(usize, &'s Segment)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    segments.get(index).map(|segment| (index, segment))
}

/// Divides heaps into segments, so that each has memory.
fn divide(pages: &PresentPages, extents: &[(usize, Extent)], plan: Plan) -> Vec<Segment> {
    let mut segments = Vec::new();
    for (number, (_, extent)) in extents.iter().enumerate() {
        let end = extent.range.end;
        let mut start = extent.range.start;
        while start < end {
            // No chunk begins at an address that is not in memory.
            let present = pages.within(start.saturating_add(plan.segment).min(end)..end).next();
            let limit = if plan.threads > 1 { present.map_or(end, |present| present.start) } else { end };
            segments.push(Segment { extent: number, start, limit });
            start = limit;
        }
    }
    segments
}

/// Joins the segments of each heap, and walks those again whose beginning was not right.
fn join(
    memory: &dyn Memory,
    pages: &PresentPages,
    extents: &[(usize, Extent)],
    segments: &[Segment],
    done: Vec<(usize, u64, Walked)>,
) -> Vec<Walked> {
    let mut reader = WordReader::new(memory, pages);
    let mut done = done.into_iter().peekable();
    let mut heaps: Vec<Option<Walked>> = vec![None; extents.len()];
    for (index, segment) in segments.iter().enumerate() {
        let own = done.next_if(|(done, ..)| *done == index);
        let extent = &extents[segment.extent].1;
        let heap = &mut heaps[segment.extent];
        let start = heap.as_ref().map_or(extent.range.start, |heap| heap.end);
        let is_broken = heap.as_ref().is_some_and(|heap| heap.unread.bytes > 0);
        // A chunk may be larger than a segment.
        if is_broken || start >= segment.limit {
            continue;
        }
        let walked = match own {
            Some((_, guess, walked)) if guess == start => walked,
            _ => walk(&mut reader, pages, extent, (start, segment.limit)),
        };
        match heap {
            Some(heap) => heap.append(walked),
            None => *heap = Some(walked),
        }
    }
    let empty = |extent: &Extent| Walked { range: extent.range.clone(), end: extent.range.end, ..Walked::default() };
    heaps.into_iter().zip(extents).map(|(heap, (_, extent))| heap.unwrap_or_else(|| empty(extent))).collect()
}
