//! Programs that know what they allocate, against what the ledger says. One process, one test after
//! the other, without the test harness: its threads allocate, too.

mod runner;

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use heapledger::{Allocator, Bytes, Ledger, LedgerOptions, SiteOrder, Stacks, StartError};
use heapledger_core::sample::Random;

#[cfg(not(feature = "heap"))]
#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

#[cfg(feature = "heap")]
#[global_allocator]
static ALLOCATOR: Allocator<heapledger::HeapAllocator> = Allocator::heap();

/// Blocks of this size are the tests' own: nothing else asks for it.
const SIZE: usize = 1_237;

fn block(size: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(black_box(size)))
}

fn main() {
    let tests: &[(&str, fn())] = &[
        ("nothing_is_seen_before_the_start", nothing_is_seen_before_the_start),
        ("counts_are_exact", counts_are_exact),
        ("reallocations_and_temporaries", reallocations_and_temporaries),
        ("any_pointer_into_a_block_finds_it", any_pointer_into_a_block_finds_it),
        ("stacks_lead_to_the_function", stacks_lead_to_the_function),
        ("stacks_can_be_left_out", stacks_can_be_left_out),
        ("a_pause_records_frees_only", a_pause_records_frees_only),
        ("bounded_memory_is_counted_not_crashed", bounded_memory_is_counted_not_crashed),
        ("threads_come_and_go", threads_come_and_go),
        ("storms_while_it_starts_and_stops", storms_while_it_starts_and_stops),
        ("samples_estimate_what_there_was", samples_estimate_what_there_was),
        ("the_rate_changes_while_it_runs", the_rate_changes_while_it_runs),
        ("a_child_goes_on_with_what_was_live", a_child_goes_on_with_what_was_live),
        ("forks_in_a_storm", forks_in_a_storm),
        ("a_signal_handler_may_allocate", a_signal_handler_may_allocate),
        ("printing_allocates_nothing", printing_allocates_nothing),
        ("the_ledger_says_what_it_costs", the_ledger_says_what_it_costs),
    ];
    runner::run(tests, || Ledger::get().stop());
}

/// How many live blocks of the tests' own there are.
fn live_blocks() -> u64 {
    Ledger::get().blocks().filter(|block| block.size == Bytes(SIZE as u64)).count() as u64
}

fn nothing_is_seen_before_the_start() {
    let ledger = Ledger::get();
    let kept = block(SIZE);
    assert!(!ledger.is_running());
    assert_eq!((ledger.totals().allocations.0, ledger.block_at(kept.as_ptr()).map(|block| block.size)), (0, None));
    let started = Ledger::start(LedgerOptions::EXACT).unwrap();
    assert_eq!(Ledger::start(LedgerOptions::EXACT).unwrap_err(), StartError::Running);
    assert!(started.block_at(kept.as_ptr()).is_none());
    drop(kept);
    let totals = started.totals();
    assert_eq!((totals.frees_unknown.0, totals.frees.0, totals.blocks_live.0), (1, 0, 0), "{totals:?}");
}

fn counts_are_exact() {
    const BLOCKS: usize = 1_000;
    let mut kept: Vec<Vec<u8>> = Vec::with_capacity(BLOCKS);
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    for number in 0..BLOCKS {
        kept.push(block(16 + number));
    }
    let bytes: u64 = (0..BLOCKS as u64).map(|number| 16 + number).sum();
    let totals = ledger.totals();
    assert_eq!((totals.allocations.0, totals.bytes_allocated.0), (BLOCKS as u64, bytes));
    assert_eq!((totals.blocks_live.0, totals.bytes_live.0, totals.bytes_live_max.0), (BLOCKS as u64, bytes, bytes));
    kept.truncate(BLOCKS / 2);
    let left: u64 = (0..BLOCKS as u64 / 2).map(|number| 16 + number).sum();
    let totals = ledger.totals();
    assert_eq!((totals.frees.0, totals.bytes_live.0, totals.bytes_live_max.0), (BLOCKS as u64 / 2, left, bytes));
    assert_eq!((totals.frees_unknown.0, totals.frees_missing.0, totals.is_estimate), (0, 0, false));
    // Zeroed and aligned blocks are blocks.
    let zeroed = black_box(vec![0_u8; SIZE]);
    #[repr(align(256))]
    struct Aligned(#[expect(dead_code, reason = "it is there for its size")] [u8; 512]);
    let aligned = black_box(Box::new(Aligned([1; 512])));
    let found = ledger.block_at(&raw const *aligned).unwrap();
    assert_eq!((found.size.0, found.address % 256), (512, 0));
    assert_eq!(ledger.block_at(zeroed.as_ptr()).unwrap().size.0, SIZE as u64);
    drop((zeroed, aligned));
    assert_eq!(ledger.totals().bytes_live.0, left);
}

fn reallocations_and_temporaries() {
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    let mut growing = block(100);
    growing.resize(100, 1);
    growing.reserve_exact(100_000);
    growing.reserve_exact(200_000);
    let totals = ledger.totals();
    assert_eq!((totals.allocations.0, totals.reallocations.0, totals.blocks_live.0), (3, 2, 1), "{totals:?}");
    assert_eq!(totals.bytes_live.0, growing.capacity() as u64);
    assert_eq!(ledger.block_at(growing.as_ptr()).unwrap().size.0, growing.capacity() as u64);
    // Each reallocation directly follows the allocation of its block: two temporaries, and a third
    // one.
    drop(growing);
    let totals = ledger.totals();
    assert_eq!((totals.temporaries.0, totals.frees.0, totals.bytes_live.0), (3, 3, 0), "{totals:?}");
}

fn any_pointer_into_a_block_finds_it() {
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    for size in [1, 24, 1_000, 5_000, 300_000, 5 << 20] {
        let kept = block(size);
        let start = kept.as_ptr();
        for offset in [0, 1, size / 2, size - 1] {
            let found = ledger.block_at(start.wrapping_add(offset)).unwrap();
            assert_eq!((found.address, found.size.0), (start.addr() as u64, size as u64), "{size} + {offset}");
            assert_eq!(found.offset_of(start.wrapping_add(offset)), offset as u64);
            assert!(found.usable.0 >= size as u64 && found.age < Duration::from_secs(60));
            assert_ne!(found.thread.0, 0);
        }
        let past = start.wrapping_add(ledger.block_at(start).unwrap().usable.0 as usize);
        assert!(ledger.block_at(past).is_none_or(|found| found.address != start.addr() as u64));
        assert!(ledger.stamp(start.wrapping_add(size / 2), "Packet"));
        assert_eq!(ledger.block_at(start).unwrap().type_name(), Some("Packet"));
        drop(kept);
        assert!(ledger.block_at(start).is_none_or(|found| found.size.0 != size as u64));
    }
    let local = 5;
    assert!(ledger.block_at(&raw const local).is_none() && !ledger.stamp(&raw const local, "nothing"));
    assert!(ledger.block_at::<u8>(std::ptr::null()).is_none());
}

#[inline(never)]
fn allocates_here() -> Vec<u8> {
    let kept = block(SIZE);
    black_box(&kept);
    kept
}

fn stacks_lead_to_the_function() {
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    let kept: Vec<Vec<u8>> = (0..10).map(|_| allocates_here()).collect();
    let found = ledger.block_at(kept[0].as_ptr()).unwrap();
    assert!(found.stack.frames().count() >= 4, "{} frames", found.stack.frames().count());
    assert!(!found.stack.is_cut() && found.stack.heap().is_none() && found.stack.context().next().is_none());
    let names: Vec<String> =
        found.stack.frames().flat_map(|frame| frame.symbols()).filter_map(|symbol| symbol.function).collect();
    let own = names.iter().position(|name| name.ends_with("allocates_here")).expect("the function is in the stack");
    let outer = names.iter().position(|name| name.contains("stacks_lead_to_the_function")).unwrap();
    assert!(own < outer && names.iter().any(|name| name.ends_with("main")), "{names:#?}");
    let shown = found.to_string();
    assert!(shown.contains("1237 bytes") && shown.contains("truth.rs:"), "{shown}");
    assert!(!shown.contains("alloc_hooked") && !shown.contains("with_caller"), "{shown}");
    let top = ledger.top_sites(1, SiteOrder::BytesLive);
    assert_eq!((top[0].stack, top[0].blocks_live.0, top[0].bytes_live.0), (found.stack, 10, 10 * SIZE as u64));
    assert_eq!(top[0].allocations.0, 10);
}

fn stacks_can_be_left_out() {
    let ledger = Ledger::start(LedgerOptions { stacks: Stacks::None, ..LedgerOptions::EXACT }).unwrap();
    let without = allocates_here();
    assert_eq!(ledger.block_at(without.as_ptr()).unwrap().stack.frames().count(), 0);
    ledger.set_stacks(Stacks::Native);
    let with = allocates_here();
    assert!(ledger.block_at(with.as_ptr()).unwrap().stack.frames().count() > 0);
}

fn a_pause_records_frees_only() {
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    let (first, second) = (block(SIZE), block(SIZE));
    ledger.pause();
    let unseen = block(SIZE);
    drop(first);
    assert_eq!((live_blocks(), ledger.totals().frees.0), (1, 1));
    ledger.resume();
    let third = block(SIZE);
    assert_eq!(live_blocks(), 2);
    drop((unseen, second, third));
    assert_eq!((live_blocks(), ledger.totals().frees_unknown.0), (0, 1));
}

fn bounded_memory_is_counted_not_crashed() {
    const BLOCKS: u64 = 100_000;
    let bytes_max = Bytes(2 << 20);
    let ledger = Ledger::start(LedgerOptions { bytes_max, ..LedgerOptions::EXACT }).unwrap();
    let kept: Vec<Vec<u8>> = (0..BLOCKS).map(|_| block(SIZE)).collect();
    let (totals, losses, overhead) = (ledger.totals(), ledger.losses(), ledger.overhead());
    assert!(losses.refused.0 > 0 && totals.blocks_live.0 > 1_000, "{losses:?} {totals:?}");
    assert_eq!(live_blocks() + losses.refused.0, BLOCKS);
    assert!(overhead.bytes_ledger <= bytes_max, "{overhead:?}");
    drop(kept);
    let totals = ledger.totals();
    assert_eq!((totals.bytes_live.0, totals.blocks_live.0, live_blocks()), (0, 0, 0));
}

fn threads_come_and_go() {
    const THREADS: u64 = 200;
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    let kept: Vec<Vec<u8>> = (0..THREADS)
        .map(|_| {
            std::thread::spawn(|| {
                drop(block(SIZE));
                block(SIZE)
            })
            .join()
            .unwrap()
        })
        .collect();
    assert_eq!(live_blocks(), THREADS);
    let numbers: std::collections::BTreeSet<u32> =
        ledger.blocks().filter(|block| block.size.0 == SIZE as u64).map(|block| block.thread.0).collect();
    assert!(numbers.len() <= 8, "numbers of ended threads are used again: {numbers:?}");
    let sites: u64 =
        ledger.sites().filter(|site| site.bytes_live.0 == THREADS * SIZE as u64).map(|site| site.blocks_live.0).sum();
    assert_eq!(sites, THREADS, "one site for all threads");
    // Blocks are freed by another thread than allocated them.
    drop(kept);
    assert_eq!(live_blocks(), 0);
    assert_eq!((ledger.totals().frees_missing.0, ledger.losses().nested.0), (0, 0));
}

/// Threads that allocate, free and reallocate until they are told to stop.
fn storm<R>(threads: usize, during: impl FnOnce() -> R) -> R {
    /// Also when the test fails.
    struct Ends<'done>(&'done AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&done);
        for seed in 0..threads as u64 {
            let done = &done;
            scope.spawn(move || {
                let mut kept: Vec<Vec<u8>> = (0..64).map(|_| Vec::new()).collect();
                let mut random = Random::new(seed);
                while !done.load(Ordering::Relaxed) {
                    let word = random.word();
                    let place = &mut kept[word as usize % 64];
                    match word >> 8 & 3 {
                        0 => *place = block((word >> 16) as usize % 3_000 + 1),
                        1 => *place = Vec::new(),
                        2 => place.reserve_exact((word >> 16) as usize % 3_000 + 1),
                        _ => place.push(1),
                    }
                }
            });
        }
        during()
    })
}

fn storms_while_it_starts_and_stops() {
    storm(3, || {
        for rounds in 0..12_u64 {
            let sample_every = if rounds % 3 == 0 { None } else { Some(Bytes(64 << (rounds % 10))) };
            let ledger = Ledger::start(LedgerOptions { sample_every, ..LedgerOptions::EXACT }).unwrap();
            for step in 0..20 {
                match step % 5 {
                    0 => ledger.set_sampling((step > 10).then_some(Bytes(1_000))),
                    1 => ledger.pause(),
                    2 => ledger.resume(),
                    3 => ledger.set_stacks(if step > 10 { Stacks::None } else { Stacks::Mixed }),
                    _ => {
                        for block in ledger.blocks() {
                            assert!(block.size.0 <= 1 << 30 && block.usable >= block.size);
                        }
                    }
                }
                std::thread::yield_now();
            }
            ledger.stop();
        }
    });
    // When all is over the ledger is as good as new.
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    let kept = block(SIZE);
    assert_eq!((live_blocks(), ledger.totals().blocks_live.0), (1, 1));
    drop(kept);
    assert_eq!(ledger.totals().blocks_live.0, 0);
}

/// The difference, in parts of the truth.
fn error(estimate: u64, truth: u64) -> f64 {
    (estimate as f64 - truth as f64).abs() / truth as f64
}

fn samples_estimate_what_there_was() {
    const BLOCKS: u64 = 200_000;
    const EVERY: u64 = 16 << 10;
    let mut kept = Vec::with_capacity(BLOCKS as usize);
    let ledger = Ledger::start(LedgerOptions { sample_every: Some(Bytes(EVERY)), ..LedgerOptions::EXACT }).unwrap();
    assert_eq!(ledger.sampling(), Some(Bytes(EVERY)));
    for number in 0..BLOCKS {
        kept.push(block(if number % 100 == 0 { 20_000 } else { 200 }));
    }
    let bytes = BLOCKS / 100 * 20_000 + BLOCKS / 100 * 99 * 200;
    let totals = ledger.totals();
    // About 4,800 samples: five standard deviations are 7 % of the bytes; of the blocks, most of
    // which are small, 11 %.
    assert!(totals.is_estimate && error(totals.bytes_live.0, bytes) < 0.08, "{totals:?}, not {bytes}");
    assert!(error(totals.blocks_live.0, BLOCKS) < 0.15, "{totals:?}");
    let sampled = ledger.blocks().count() as u64;
    assert!((2_000..8_000).contains(&sampled), "{sampled} samples");
    let top = ledger.top_sites(1, SiteOrder::BytesLive);
    assert!(error(top[0].bytes_live.0, bytes) < 0.08, "{top:?}");
    kept.truncate(BLOCKS as usize / 2);
    let totals = ledger.totals();
    assert!(error(totals.bytes_live.0, bytes / 2) < 0.12, "{totals:?}");
    assert!(error(totals.bytes_live_max.0, bytes) < 0.08, "{totals:?}");
    kept.clear();
    assert_eq!((ledger.blocks().count(), ledger.totals().blocks_live.0), (0, 0));
    assert_eq!(ledger.totals().frees_unknown.0, 0);
}

fn the_rate_changes_while_it_runs() {
    const BLOCKS: usize = 20_000;
    let mut kept = Vec::with_capacity(4 * BLOCKS);
    let ledger = Ledger::start(LedgerOptions { sample_every: Some(Bytes(1 << 40)), ..LedgerOptions::EXACT }).unwrap();
    // The rate of an earlier ledger is a thread's for a millisecond's allocations, at most 2 MiB.
    (0..3_000).for_each(|_| drop(block(1_000)));
    let mut phase = |sample_every| {
        ledger.set_sampling(sample_every);
        let before = ledger.blocks().count();
        kept.extend((0..BLOCKS).map(|_| block(1_000)));
        ledger.blocks().count() - before
    };
    assert_eq!(phase(Some(Bytes(1 << 40))), 0);
    let sampled = phase(Some(Bytes(10_000)));
    assert!((1_500..2_900).contains(&sampled), "a mean of 8,192: {sampled} of {BLOCKS}");
    assert_eq!(phase(None), BLOCKS);
    let truth = 2 * BLOCKS as u64 * 1_000;
    assert!(error(ledger.totals().bytes_live.0, truth) < 0.08, "{:?}", ledger.totals());
    drop(kept);
    assert_eq!((ledger.blocks().count(), ledger.totals().bytes_live.0), (0, 0));
}

/// Runs something in a forked child, which must end well.
fn in_child(run: impl FnOnce() -> bool) {
    // SAFETY: what the child does is what this program does elsewhere; it leaves by `_exit`.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::alarm(20);
            let is_well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or(false);
            libc::_exit(if is_well { 0 } else { 1 });
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child ended with {status:#x}");
    }
}

fn a_child_goes_on_with_what_was_live() {
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    let kept = block(SIZE);
    let before = ledger.totals();
    in_child(|| {
        assert_eq!(ledger.block_at(kept.as_ptr()).unwrap().size.0, SIZE as u64);
        let own = allocates_here();
        assert_eq!(live_blocks(), 2);
        assert!(ledger.block_at(own.as_ptr()).unwrap().stack.frames().count() > 0);
        drop(own);
        std::thread::spawn(|| drop(block(SIZE))).join().unwrap();
        ledger.stop();
        Ledger::start(LedgerOptions::EXACT).unwrap();
        let own = block(SIZE);
        live_blocks() == 1 && own.capacity() >= SIZE
    });
    assert_eq!(ledger.totals(), before, "the child has a ledger of its own");
    drop(kept);
    assert_eq!(live_blocks(), 0);
}

fn forks_in_a_storm() {
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    storm(2, || {
        for _ in 0..40 {
            in_child(|| {
                let own: Vec<Vec<u8>> = (0..200).map(|_| allocates_here()).collect();
                live_blocks() >= own.len() as u64
            });
        }
    });
    assert_eq!((ledger.totals().frees_missing.0, ledger.losses().nested.0), (0, 0));
}

fn a_signal_handler_may_allocate() {
    static HANDLED: AtomicU64 = AtomicU64::new(0);
    extern "C" fn handler(_: libc::c_int) {
        // Not through the C library, whose allocator is not for signal handlers: what a hook is
        // told is all that counts.
        Ledger::get().block_at(&raw const HANDLED);
        let _ = Ledger::get().totals();
        HANDLED.fetch_add(1, Ordering::Relaxed);
    }
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    // SAFETY: the handler only asks the ledger, which is made for it; the timer is stopped before
    // the test ends.
    unsafe {
        libc::signal(libc::SIGALRM, handler as *const () as libc::sighandler_t);
        let every = libc::timeval { tv_sec: 0, tv_usec: 200 };
        let timer = libc::itimerval { it_interval: every, it_value: every };
        libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(500) {
            drop(block(SIZE));
        }
        libc::setitimer(libc::ITIMER_REAL, &std::mem::zeroed(), std::ptr::null_mut());
    }
    assert!(HANDLED.load(Ordering::Relaxed) > 100);
    assert_eq!((live_blocks(), ledger.losses().nested.0), (0, 0));
}

fn printing_allocates_nothing() {
    let path = std::env::temp_dir().join(format!("heapledger-truth-{}", std::process::id()));
    let file = std::fs::File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    let kept: Vec<Vec<u8>> = (0..3).map(|_| allocates_here()).collect();
    let other = block(10 * SIZE);
    for stamped in &kept {
        assert!(ledger.stamp(stamped.as_ptr(), std::any::type_name::<Vec<u8>>()));
    }
    let before = ledger.totals();
    ledger.print_blocks(&file).unwrap();
    ledger.print_types(&file).unwrap();
    ledger.print_sites(&file, 5, SiteOrder::BytesLive).unwrap();
    ledger.print_totals(&file).unwrap();
    assert_eq!(ledger.totals(), before);
    drop(other);
    let text = {
        use std::io::{Read, Seek};
        let (mut file, mut text) = (file, String::new());
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    };
    let line =
        |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {text}"));
    let words = |line: &str| line.split_whitespace().map(str::to_string).collect::<Vec<String>>();
    assert_eq!(words(line("alloc::vec::Vec<u8>"))[1..4], ["3", "60.0%", "3711"]);
    assert_eq!(words(line("[unknown]"))[1], "2");
    assert!(line("12370 bytes live in 1 blocks").contains("12370 bytes allocated in 1 blocks"));
    assert!(line("live ").contains(&format!("{} bytes", before.bytes_live.0)));
    let address = format!("{:#014x}", kept[0].as_ptr().addr());
    assert!(line(&address).contains("1237") && line(&address).contains("thread "), "{text}");
    drop(kept);
}

fn the_ledger_says_what_it_costs() {
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    let began = Instant::now();
    for _ in 0..100_000 {
        drop(block(SIZE));
    }
    let (elapsed, overhead) = (began.elapsed().as_nanos() as u64, ledger.overhead());
    assert!(overhead.nanoseconds > elapsed / 50 && overhead.nanoseconds < 2 * elapsed, "{overhead:?} of {elapsed}");
    assert!(overhead.bytes_threads.0 > 0 && overhead.bytes_stacks.0 > 0 && overhead.bytes_ledger.0 > 0);
    let sum = overhead.bytes_ledger.0 + overhead.bytes_stacks.0 + overhead.bytes_rules.0 + overhead.bytes_threads.0;
    assert_eq!(overhead.bytes().0, sum + overhead.bytes_filter.0);
}
