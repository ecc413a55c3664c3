//! Measures the cost of a ledger and of dumps of its dark matter: `dump MODE BLOCKS THREADS`, for
//! `benches/dmd-cost`. Threads allocate three times as many blocks as are to stay live, from some
//! hundred stacks. The mode is `bare`, `exact`, or `stacks` (stacks of some blocks only). Prints
//! one JSON object: nanoseconds of CPU time per event; with a ledger also those per block of a
//! collection that marks every block; and for each of five dumps the pause, the longest time that a
//! thread which allocates all the while was held up, and the duration of the dump.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heapledger::reports::dark_matter::{self, dump};
use heapledger::reports::{self, Collector};
use heapledger::{Allocator, Ledger, LedgerOptions};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

static STORE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

#[heapledger::reporter("explicit/store")]
fn report(collector: &mut Collector) {
    let store = STORE.lock().unwrap();
    collector.heap("", collector.measure(&*store), "What is stored.");
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or_default();
    let [blocks, threads] =
        [1_000_000, 2].map(|default| arguments.next().map_or(default, |number| number.parse().expect("a number")));
    let ledger = match mode.as_str() {
        "bare" => None,
        "exact" => Some(LedgerOptions::EXACT),
        "stacks" => {
            Some(LedgerOptions { stack_probability: Some(heapledger::STACK_PROBABILITY), ..LedgerOptions::EXACT })
        }
        _ => panic!("the mode is bare, exact or stacks"),
    };
    STORE.lock().unwrap().reserve(blocks);
    let ledger = ledger.map(|options| Ledger::start(options).expect("it does not run yet"));
    let before = cpu();
    let parts: Vec<_> = (0..threads).map(|_| thread::spawn(move || storm(blocks / threads))).collect();
    let parts: Vec<Vec<Vec<u8>>> = parts.into_iter().map(|part| part.join().unwrap()).collect();
    let events = 5 * blocks as u64;
    print!("{{\"ns_per_event\": {:.1}", (cpu() - before).as_nanos() as f64 / events as f64);
    STORE.lock().unwrap().extend(parts.into_iter().flatten());
    if let Some(ledger) = ledger {
        let before = cpu();
        reports::collect(&reports::ReportOptions { mark: true, ..reports::ReportOptions::default() });
        let marked = (cpu() - before).as_nanos() as f64 / blocks as f64;
        let overhead = ledger.overhead();
        print!(
            ", \"ns_per_mark\": {marked:.1}, \"ledger_bytes\": {}",
            overhead.bytes_ledger.0 + overhead.bytes_stacks.0
        );
        dumps();
    }
    println!("}}");
}

/// Nothing but the marks that there are: the pause has nothing to do with how long reporters take.
fn dumps() {
    let options = dark_matter::DarkMatterOptions { report: false, ..dark_matter::DarkMatterOptions::default() };
    let (mut pauses, mut stalls, mut walls, mut bytes) = (Vec::new(), Vec::new(), Vec::new(), 0);
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    static LONGEST: AtomicU64 = AtomicU64::new(0);
    let churning = thread::spawn(|| {
        let mut last = Instant::now();
        while !IS_OVER.load(Ordering::Relaxed) {
            drop(black_box(Vec::<u8>::with_capacity(100)));
            let now = Instant::now();
            LONGEST.fetch_max((now - last).as_nanos() as u64, Ordering::Relaxed);
            last = now;
        }
    });
    for _ in 0..5 {
        LONGEST.store(0, Ordering::Relaxed);
        let began = Instant::now();
        let log = dump(&options).unwrap();
        walls.push(began.elapsed().as_secs_f64() * 1e3);
        stalls.push(LONGEST.load(Ordering::Relaxed) as f64 / 1e6);
        pauses.push(log.about.pause_ns as f64 / 1e6);
        bytes = log.to_gzip().len();
    }
    IS_OVER.store(true, Ordering::Relaxed);
    churning.join().unwrap();
    print!(
        ", \"pause_ms\": {pauses:.1?}, \"stall_ms\": {stalls:.1?}, \"dump_ms\": {walls:.0?}, \"file_bytes\": {bytes}"
    );
}

/// Keeps every third block, so many.
fn storm(count: usize) -> Vec<Vec<u8>> {
    let mut kept = Vec::with_capacity(count);
    for round in 0..3 * count {
        // Most are small, as in most programs.
        let size = if round % 64 == 0 { 4000 } else { 16 + round % 113 };
        let block = from_a_stack(round % 7, round % 89, size);
        if round % 3 == 0 {
            kept.push(block);
        }
    }
    kept
}

/// Some hundred different stacks.
#[inline(never)]
fn from_a_stack(depth: usize, way: usize, size: usize) -> Vec<u8> {
    let block = match (depth, way % 3) {
        (0, _) => Vec::with_capacity(black_box(size)),
        (_, 0) => from_a_stack(depth - 1, way / 3, size),
        (_, 1) => black_box(from_a_stack(depth - 1, way / 3, size)),
        _ => {
            let block = from_a_stack(depth - 1, way / 3, black_box(size));
            black_box(block)
        }
    };
    black_box(block)
}

/// CPU time of this process.
fn cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `clock_gettime` requires a `timespec` that may be written, as the local is.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
