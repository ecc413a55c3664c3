//! Programs that know what they allocate, against what the profile says. One process, one test
//! after the other, without the test harness: its threads allocate, too.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use heapledger_allocator::Allocator;
use heapledger_core::Bytes;
use heapledger_live_profile::formats::{Amount, Profile, Sample};
use heapledger_live_profile::{self as profile, FrameNames, ProfileEvents, ProfileOptions};
use heapledger_query::{Ledger, StartError, Totals};

#[path = "../../heapledger/tests/runner/mod.rs"]
mod runner;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

/// Small next to blocks, so that there are many samples; the default would take gigabytes to be as
/// exact.
const MEAN: Bytes = Bytes(4096);

fn main() {
    let tests: &[(&str, fn())] = &[
        ("it_begins_and_ends", it_begins_and_ends),
        ("totals_are_unbiased", totals_are_unbiased),
        ("each_function_has_its_own", each_function_has_its_own),
        ("temporary_blocks_are_estimated", temporary_blocks_are_estimated),
        ("rates_may_change", rates_may_change),
        ("types_and_contexts_are_labels", types_and_contexts_are_labels),
        ("memory_is_bounded", memory_is_bounded),
        ("events_are_balanced", events_are_balanced),
        ("a_storm_of_starts_and_profiles", a_storm_of_starts_and_profiles),
    ];
    runner::run(tests, profile::stop);
}

/// A block of which nothing is touched.
fn block(size: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(black_box(size)))
}

fn sum(profile: &Profile, of: impl Fn(&Sample) -> Amount) -> Amount {
    profile.samples.iter().map(of).fold(Amount::default(), |sum, amount| Amount {
        blocks: sum.blocks + amount.blocks,
        bytes: sum.bytes + amount.bytes,
    })
}

/// The share by which an estimate is off.
fn off(estimate: u64, truth: u64) -> f64 {
    estimate as f64 / truth as f64 - 1.0
}

fn it_begins_and_ends() {
    let before = block(100 << 20);
    assert!(!profile::is_on());
    profile::start(ProfileOptions::every(MEAN)).unwrap();
    assert_eq!(profile::start(ProfileOptions::default()), Err(StartError::Running));
    assert_eq!((profile::is_on(), profile::state().sample_every), (true, Some(MEAN)));
    let after = block(10 << 20);
    drop(before);
    let taken = profile::snapshot(FrameNames::None);
    let live = sum(&taken, |sample| sample.amounts.live);
    // Certainly sampled; what was there before is not in it, and its free changes nothing.
    assert!(off(live.bytes, 10 << 20).abs() < 0.01, "{live:?}");
    assert_eq!((taken.sampling_bytes, taken.known.live && taken.known.allocated), (Some(4096), true));
    assert!(taken.duration_ns > 0 && taken.start_unix_ns > 1_500_000_000_000_000_000);
    profile::stop();
    assert!(!profile::is_on());
    drop(after);
    let taken = profile::snapshot(FrameNames::None);
    assert!(taken.comments.iter().any(|line| line.contains("the profile is off")), "{:?}", taken.comments);
    assert_eq!(sum(&taken, |sample| sample.amounts.live).bytes, live.bytes);
}

/// Over so many seeds, each a thread of its own, that an unbiased estimate is within the bound but
/// for one time in millions: what is live and what was allocated, in bytes and in blocks.
fn totals_are_unbiased() {
    const SEEDS: usize = 64;
    const SIZES: [usize; 5] = [1_000, 2_000, 3_000, 5_000, 20_000];
    // The standard deviation of the blocks that are live is 0.37 % then, that of the bytes less.
    const ROUNDS: usize = 600;
    let (mut live, mut allocated) = (Amount::default(), Amount::default());
    let mut estimated_errors = Errors::default();
    // The list of what is kept is a block, too.
    let list = ROUNDS * SIZES.len() / 2 * size_of::<Vec<u8>>();
    let bytes_live_once = (ROUNDS / 2 * SIZES.iter().sum::<usize>() + list) as u64;
    let bytes_allocated_once = (ROUNDS * SIZES.iter().sum::<usize>() + list) as u64;
    for _ in 0..SEEDS {
        profile::start(ProfileOptions::every(MEAN)).unwrap();
        // Each second block is kept until the profile has been taken.
        let kept = std::thread::spawn(|| {
            let mut kept = Vec::with_capacity(ROUNDS * SIZES.len() / 2);
            for number in 0..ROUNDS * SIZES.len() {
                let new = block(SIZES[number / 2 % SIZES.len()]);
                if number % 2 == 0 {
                    kept.push(new);
                }
            }
            kept
        });
        let kept = kept.join().unwrap();
        let taken = profile::snapshot(FrameNames::None);
        for (sum_of_all, of) in [
            (&mut live, (|sample: &Sample| sample.amounts.live) as fn(&Sample) -> Amount),
            (&mut allocated, |sample| sample.amounts.allocated),
        ] {
            let amount = sum(&taken, of);
            (sum_of_all.blocks, sum_of_all.bytes) =
                (sum_of_all.blocks + amount.blocks, sum_of_all.bytes + amount.bytes);
        }
        estimated_errors.add(&profile::state().totals, bytes_live_once, bytes_allocated_once);
        profile::stop();
        drop(kept);
    }
    estimated_errors.check(SEEDS);
    let bytes_live = SEEDS as u64 * bytes_live_once;
    let blocks_live = (SEEDS * (ROUNDS * SIZES.len() / 2 + 1)) as u64;
    let bytes_allocated = SEEDS as u64 * bytes_allocated_once;
    let blocks_allocated = (SEEDS * (ROUNDS * SIZES.len() + 1)) as u64;
    let errors = [
        off(live.bytes, bytes_live),
        off(live.blocks, blocks_live),
        off(allocated.bytes, bytes_allocated),
        off(allocated.blocks, blocks_allocated),
    ];
    println!(
        "bias over {SEEDS} seeds: live {:+.4} {:+.4}, allocated {:+.4} {:+.4}",
        errors[0], errors[1], errors[2], errors[3]
    );
    assert!(errors.iter().all(|error| error.abs() < 0.02), "{errors:?}: {live:?} {allocated:?}");
}

/// How far estimates were off, beside what they said they might be.
#[derive(Default)]
struct Errors {
    squares: f64,
    error_squares: f64,
    covered: usize,
}

impl Errors {
    fn add(&mut self, totals: &Totals, live: u64, allocated: u64) {
        for (estimate, error, truth) in [
            (totals.bytes_live, totals.live_standard_error, live),
            (totals.bytes_allocated, totals.allocated_standard_error, allocated),
            // The peak was when all of it was live.
            (totals.bytes_live_max, totals.peak_standard_error, live),
        ] {
            let off = estimate.0 as f64 - truth as f64;
            self.squares += off * off / (truth as f64).powi(2);
            self.error_squares += (error.bytes.0 as f64 / truth as f64).powi(2);
            self.covered += usize::from(off.abs() <= 2.0 * error.bytes.0 as f64);
        }
    }

    fn check(&self, seeds: usize) {
        let (ratio, covered) = ((self.error_squares / self.squares).sqrt(), self.covered as f64 / (3 * seeds) as f64);
        println!("standard errors: {ratio:.2} of what they should be; {covered:.2} of the error bars have the truth");
        assert!((0.65..1.6).contains(&ratio) && covered > 0.85, "{ratio} {covered}");
    }
}

#[inline(never)]
fn keeps(kept: &mut Vec<Vec<u8>>) {
    (0..20_000).for_each(|_| kept.push(block(1_000)));
}

#[inline(never)]
fn drops() {
    (0..40_000).for_each(|_| drop(block(2_000)));
}

/// Sums an amount over the stacks that contain a function.
fn through(profile: &Profile, function: &str, of: impl Fn(&Sample) -> Amount) -> Amount {
    let is_it = |at: &usize| profile.locations[*at].frames.iter().any(|frame| frame.function.contains(function));
    sum(profile, |sample| if sample.locations.iter().any(is_it) { of(sample) } else { Amount::default() })
}

fn each_function_has_its_own() {
    let mut kept = Vec::with_capacity(20_000);
    profile::start(ProfileOptions::every(MEAN)).unwrap();
    keeps(&mut kept);
    drops();
    let taken = profile::snapshot(FrameNames::Known);
    // About 4,900 and 19,500 samples: five standard deviations are 8 % and 4 %.
    let of_keeps = through(&taken, "keeps", |sample| sample.amounts.live);
    assert!(off(of_keeps.bytes, 20_000_000).abs() < 0.08 && off(of_keeps.blocks, 20_000).abs() < 0.08, "{of_keeps:?}");
    let allocated = through(&taken, "keeps", |sample| sample.amounts.allocated);
    // Nothing of it has been freed.
    assert_eq!(allocated, of_keeps);
    let of_drops = through(&taken, "drops", |sample| sample.amounts.allocated);
    assert!(off(of_drops.bytes, 80_000_000).abs() < 0.05, "{of_drops:?}");
    assert_eq!(through(&taken, "drops", |sample| sample.amounts.live), Amount::default());
    // The innermost function is the program's: those that only pass the request on are left out.
    let sample = taken.samples.iter().find(|sample| sample.amounts.live.bytes > 1_000_000).unwrap();
    let location = &taken.locations[sample.locations[0]];
    assert!(!location.frames[0].function.contains("heapledger"), "{location:?}");
    let module = &taken.modules[location.module.unwrap()];
    assert!(module.path.contains("truth") && !module.build_id.is_empty());
    assert!((module.start..module.end).contains(&location.address) && module.start.is_multiple_of(4096));
    // The profile, the sites, the totals and the blocks agree.
    let ledger = Ledger::get();
    let bytes: u64 = ledger.sites().map(|site| site.bytes_allocated.0).sum();
    assert_eq!(
        (sum(&taken, |sample| sample.amounts.allocated).bytes, ledger.totals().bytes_allocated.0),
        (bytes, bytes)
    );
    let live: u64 = ledger.blocks().map(|block| block.weight.0 * block.size.0).sum();
    assert_eq!((sum(&taken, |sample| sample.amounts.live).bytes, ledger.totals().bytes_live.0), (live, live));
    assert!(
        taken.comments.iter().any(|line| line.starts_with("live ") && line.contains(" ± ")),
        "{:?}",
        taken.comments
    );
}

/// Estimates the blocks that were freed before their thread allocated anything else, in the sample
/// or not.
fn temporary_blocks_are_estimated() {
    const BLOCKS: usize = 20_000;
    let mut kept = Vec::with_capacity(BLOCKS);
    profile::start(ProfileOptions::every(MEAN)).unwrap();
    for _ in 0..BLOCKS {
        let first = block(2_000);
        kept.push(block(2_000));
        drop(first);
    }
    for kept in &mut kept {
        let first = block(2_000);
        kept.reserve_exact(2_500);
        drop(first);
    }
    assert_eq!(Ledger::get().totals().temporaries.0, 0);
    drops();
    // 15,500 samples: five standard deviations are 3 %.
    let temporaries = Ledger::get().totals().temporaries.0;
    assert!(off(temporaries, 40_000).abs() < 0.03, "{temporaries}");
    // Reallocations are estimated, too.
    let totals = Ledger::get().totals();
    assert!(off(totals.reallocations.0, BLOCKS as u64).abs() < 0.05, "{totals:?}");
}

/// Blocks that were sampled at one rate stand for as many at another.
fn rates_may_change() {
    const BLOCKS: usize = 25_000;
    let mut kept = Vec::with_capacity(2 * BLOCKS);
    profile::start(ProfileOptions::every(MEAN)).unwrap();
    (0..BLOCKS).for_each(|_| kept.push(block(1_000)));
    profile::set_rate(Bytes(MEAN.0 * 4));
    (0..BLOCKS).for_each(|_| kept.push(block(1_000)));
    let taken = profile::snapshot(FrameNames::None);
    assert_eq!(taken.sampling_bytes, Some(MEAN.0 * 4));
    // About 5,400 and 1,500 samples: standard deviations of 1.2 % and 2.5 %, of 1.4 % in all.
    for of in [(|sample: &Sample| sample.amounts.live) as fn(&Sample) -> Amount, |sample| sample.amounts.allocated] {
        let amount = sum(&taken, of);
        assert!(off(amount.bytes, 2_000 * BLOCKS as u64).abs() < 0.08, "{amount:?}");
    }
    // A block is freed with the same weight with which it was allocated.
    kept.truncate(BLOCKS);
    let left = sum(&profile::snapshot(FrameNames::None), |sample| sample.amounts.live);
    assert!(off(left.bytes, 1_000 * BLOCKS as u64).abs() < 0.08, "{left:?}");
    kept.clear();
    let left = sum(&profile::snapshot(FrameNames::None), |sample| sample.amounts.live);
    assert_eq!((left.blocks, left.bytes), (0, 0));
}

fn types_and_contexts_are_labels() {
    profile::start(ProfileOptions::every(MEAN)).unwrap();
    let large = {
        let _scope = heapledger_annotate::context!("load", page = "7");
        block(8 << 20)
    };
    assert!(Ledger::get().stamp(large.as_ptr(), "Page"));
    let taken = profile::snapshot(FrameNames::None);
    let sample = taken.samples.iter().find(|sample| sample.amounts.live.bytes >= 8 << 20).unwrap();
    let labels: Vec<(&str, &str)> = sample.labels.iter().map(|(name, text)| (&**name, &**text)).collect();
    assert_eq!(labels, [("context", "load{page=7}"), ("type", "Page")]);
    // The allocated amounts are kept without the type: a freed block has none.
    drop(large);
    let taken = profile::snapshot(FrameNames::None);
    assert!(taken.samples.iter().all(|sample| sample.amounts.live.bytes < 8 << 20));
    let sample = taken.samples.iter().find(|sample| sample.amounts.allocated.bytes >= 8 << 20).unwrap();
    assert_eq!(sample.labels.len(), 1, "{:?}", sample.labels);
}

fn memory_is_bounded() {
    const BYTES_MAX: Bytes = Bytes(256 << 10);
    profile::start(ProfileOptions { bytes_max: BYTES_MAX, ..ProfileOptions::every(Bytes(64)) }).unwrap();
    let kept: Vec<Vec<u8>> = (0..50_000).map(|_| block(1_000)).collect();
    let state = profile::state();
    assert!(state.overhead.bytes_ledger <= BYTES_MAX && state.losses.refused.0 > 1_000, "{state:?}");
    let taken = profile::snapshot(FrameNames::None);
    assert!(taken.comments.iter().any(|line| line.contains("could not be recorded")), "{:?}", taken.comments);
    drop(kept);
}

fn events_are_balanced() {
    profile::start(ProfileOptions { events: 4096, ..ProfileOptions::every(MEAN) }).unwrap();
    let mut events = ProfileEvents::new();
    let kept: Vec<Vec<u8>> = (0..200).map(|_| block(200_000)).collect();
    let grown = {
        let mut grown = block(100_000);
        grown.reserve_exact(300_000);
        grown
    };
    drop(kept);
    let all = events.read();
    assert_eq!(events.lost(), 0);
    let of = |size: u64, is_free| all.iter().filter(|event| event.size.0 == size && event.is_free == is_free).count();
    assert_eq!([of(200_000, false), of(200_000, true)], [200, 200], "a probability of 1 - exp(-48) each");
    assert_eq!([of(100_000, false), of(100_000, true), of(300_000, false), of(300_000, true)], [1, 1, 1, 0]);
    assert!(all.is_sorted_by_key(|event| event.time) && all.iter().all(|event| event.weight.0 >= 1));
    let retained = profile::retained(&all);
    assert!(retained.iter().any(|event| event.address == grown.as_ptr().addr() as u64), "{retained:?}");
    assert!(retained.iter().all(|event| event.size.0 != 200_000));
    // As the retained view of a viewer adds them up.
    let (profile_of_events, list) = profile::native_allocations(&all, FrameNames::None);
    let live = sum(&profile_of_events, |sample| sample.amounts.live);
    assert_eq!(live.bytes, retained.iter().map(|event| event.weight.0 * event.size.0).sum::<u64>());
    assert_eq!(list.len(), all.iter().filter(|event| !event.is_free).count() * 2 - retained.len());
    // More than are kept: the oldest are lost, and that is said.
    for _ in 0..5_000 {
        drop(block(100_000));
    }
    let (read, lost) = (events.read().len() as u64, events.lost());
    assert!(read == 4096 && (10_000..10_010).contains(&(read + lost)), "{read} {lost}");
}

/// Other threads allocate, hand over and free all the while.
fn a_storm_of_starts_and_profiles() {
    let is_over = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = std::sync::mpsc::channel::<Vec<u8>>();
    let mut threads = vec![std::thread::spawn(move || receiver.into_iter().for_each(drop))];
    for number in 0..3 {
        let (sender, is_over) = (sender.clone(), Arc::clone(&is_over));
        threads.push(std::thread::spawn(move || {
            let mut size = number;
            while !is_over.load(Ordering::Relaxed) {
                size = (size * 7 + 13) % 5_000;
                let _ = sender.send(block(size));
                let mut grown = block(size);
                grown.reserve(size * 3);
            }
        }));
    }
    drop(sender);
    let until = Instant::now() + Duration::from_millis(400);
    let mut rounds = 0;
    while rounds < 8 || Instant::now() < until {
        profile::start(ProfileOptions { events: 64, ..ProfileOptions::every(Bytes(256 << (rounds % 8))) }).unwrap();
        let mut events = ProfileEvents::kept();
        for _ in 0..3 {
            let taken = profile::snapshot(FrameNames::None);
            assert!(taken.samples.iter().flat_map(|sample| &sample.locations).all(|&at| at < taken.locations.len()));
            profile::set_rate(Bytes(512 << (rounds % 5)));
            black_box(events.read());
        }
        profile::stop();
        rounds += 1;
    }
    is_over.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
