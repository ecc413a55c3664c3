//! Memory that the system refuses, by real limits. Each case is a process of its own, which is this
//! test again, because limits are a process's.

use std::ffi::c_int;
use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, io, ptr, thread};

use heapledger_heap as heap;
use heapledger_heap::{ShortageCause, StallSpecs};

#[global_allocator]
static ALLOCATOR: heap::HeapAllocator = heap::HeapAllocator;

const CASE: &str = "HEAPLEDGER_TEST_LOW_MEMORY";
const HUGE: usize = 64 << 20;
/// A minute in all, so that a thread of a busy machine can do its part meanwhile.
const PATIENT: StallSpecs = StallSpecs { attempts_max: 6000, delay_milliseconds: 10 };

const RLIMIT_DATA: c_int = 2;
const RLIMIT_AS: c_int = 9;

#[repr(C)]
struct Limit {
    soft: u64,
    hard: u64,
}

unsafe extern "C" {
    fn setrlimit(resource: c_int, limit: *const Limit) -> c_int;
    fn mmap(at: *mut u8, length: usize, protection: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut u8;
    fn munmap(at: *mut u8, length: usize) -> c_int;
    fn fork() -> c_int;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
}

fn set_limit(resource: c_int, soft: u64, hard: u64) {
    // SAFETY: `setrlimit` reads a live structure of its layout.
    assert_eq!(unsafe { setrlimit(resource, &Limit { soft, hard }) }, 0);
}

/// Returns a figure of `/proc/self/status` in bytes.
fn figure(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Limits the process to 16 MiB more than it has now: less than a block of [`HUGE`] bytes, enough
/// for chunks.
fn limit_to_now(resource: c_int, can_rise: bool) {
    let now = figure(if resource == RLIMIT_AS { "VmSize:" } else { "VmData:" });
    let soft = now + (16 << 20);
    set_limit(resource, soft, if can_rise { u64::MAX } else { soft });
}

fn free(block: *mut u8) {
    // SAFETY: tests free a block once, and use it no more.
    unsafe { heap::free(block) };
}

/// True as soon as a request has come to the handler.
static IS_SHORT: AtomicBool = AtomicBool::new(false);
/// The block that a handler frees.
static RESERVE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

extern "C" fn notice(_: usize) -> c_int {
    IS_SHORT.store(true, Ordering::Release);
    0
}

extern "C" fn free_reserve(size: usize) -> c_int {
    assert_eq!(size, HUGE);
    // Its own requests fail at once, and do not call it again.
    assert!(heap::allocate(HUGE).is_null());
    let reserve = RESERVE.swap(ptr::null_mut(), Ordering::Relaxed);
    free(reserve);
    c_int::from(!reserve.is_null())
}

/// The status of the child that [`fork_in_handler`] made.
static CHILD: AtomicI32 = AtomicI32::new(-1);

/// Forks. The child is in the handler as well, so its requests fail at once.
extern "C" fn fork_in_handler(_: usize) -> c_int {
    static DEPTH: AtomicI32 = AtomicI32::new(0);
    let is_called_again = DEPTH.fetch_add(1, Ordering::Relaxed) > 0;
    // SAFETY: the child has no other thread, calls functions of the allocator only, and leaves by
    // `_exit`.
    unsafe {
        if is_called_again {
            _exit(1);
        }
        let child = fork();
        if child == 0 {
            _exit(if heap::allocate(HUGE).is_null() { 0 } else { 2 });
        }
        let mut status = -1;
        assert_eq!(waitpid(child, &raw mut status, 0), child);
        CHILD.store(status, Ordering::Relaxed);
    }
    0
}

/// Another thread raises the limit as soon as a request waits.
fn limit_that_rises(resource: c_int) {
    heap::set_low_memory_handler(Some(notice));
    heap::set_stall(PATIENT);
    let raiser = thread::spawn(move || {
        while !IS_SHORT.load(Ordering::Acquire) {
            thread::yield_now();
        }
        set_limit(resource, u64::MAX, u64::MAX);
    });
    limit_to_now(resource, true);
    let block = heap::allocate(HUGE);
    assert!(!block.is_null(), "{:?}", heap::shortages());
    raiser.join().unwrap();
    free(block);
    let shortages = heap::shortages();
    assert_eq!(
        (shortages.after_stall, shortages.failed_after_stall, shortages.failed_at_once),
        (1, 0, 0),
        "{shortages:?}"
    );
}

fn limit_that_cannot_rise(resource: c_int, cause: ShortageCause) {
    limit_to_now(resource, false);
    for failures in 1..=50 {
        assert!(heap::allocate(HUGE).is_null());
        let shortages = heap::shortages();
        assert_eq!((shortages.failed_at_once, shortages.failed_after_stall), (failures, 0), "{shortages:?}");
        assert_eq!(shortages.last_cause, Some(cause));
    }
    // A block that cannot grow is as it was, and one that shrinks does not fail.
    let block = heap::allocate(2 << 20);
    // SAFETY: the block has that many bytes; the result is the only address that is used.
    unsafe {
        block.write_bytes(7, 2 << 20);
        assert!(heap::reallocate(block, HUGE).is_null());
        assert_eq!(block.add((2 << 20) - 1).read(), 7);
        let block = heap::reallocate(block, 100);
        assert_eq!(block.add(99).read(), 7);
        free(block);
    }
    // Small blocks: until no chunk can be had. All can be freed then.
    let mut last: *mut *mut u8 = ptr::null_mut();
    let count = (0..).take_while(|_| {
        let block = heap::allocate(1000).cast::<*mut u8>();
        let is_there = !block.is_null();
        if is_there {
            // SAFETY: a new block, which holds an address.
            unsafe { block.write(last.cast()) };
            last = block;
        }
        is_there
    });
    assert!(count.count() > 1000);
    while !last.is_null() {
        // SAFETY: the block holds the address of the one before.
        let next = unsafe { last.read() };
        free(last.cast());
        last = next.cast();
    }
    assert!(!heap::allocate(1000).is_null());
    assert_eq!(heap::shortages().failed_after_stall, 0);
}

/// A soft limit that nobody raises: the process waits, and then does not wait again for a while.
fn limit_that_does_not_rise() {
    limit_to_now(RLIMIT_AS, true);
    let begin = Instant::now();
    assert!(heap::allocate(HUGE).is_null());
    assert!(begin.elapsed() >= Duration::from_millis(500));
    assert_eq!(heap::shortages().failed_after_stall, 1);
    assert_eq!(heap::shortages().last_cause, Some(ShortageCause::AddressSpace(true)));
    let rest = Instant::now();
    assert!(heap::allocate(HUGE).is_null());
    // Nine times half a second, unless this machine was asleep.
    if rest.elapsed() < Duration::from_secs(4) {
        assert_eq!(heap::shortages().failed_at_once, 1);
    }
    assert_eq!(heap::set_stall(StallSpecs::NONE), StallSpecs::MAIN);
    assert!(heap::allocate(HUGE).is_null());
}

fn run(case: &str) {
    match case {
        "data that rises" => limit_that_rises(RLIMIT_DATA),
        "address space that rises" => limit_that_rises(RLIMIT_AS),
        "data that cannot rise" => limit_that_cannot_rise(RLIMIT_DATA, ShortageCause::Data(false)),
        "address space that cannot rise" => limit_that_cannot_rise(RLIMIT_AS, ShortageCause::AddressSpace(false)),
        "address space that does not rise" => limit_that_does_not_rise(),
        "what is free is given back" => {
            // The mapping of a block that comes again and again is kept.
            const KEPT: usize = 24 << 20;
            (0..3).for_each(|_| free(heap::allocate(KEPT)));
            limit_to_now(RLIMIT_AS, false);
            assert!(!heap::allocate(KEPT + 4096).is_null());
            assert_eq!(heap::shortages().after_purge, 1);
        }
        "the handler frees" => {
            RESERVE.store(heap::allocate(HUGE), Ordering::Relaxed);
            limit_to_now(RLIMIT_AS, false);
            heap::set_low_memory_handler(Some(free_reserve));
            assert!(!heap::allocate(HUGE).is_null());
            assert_eq!(heap::shortages().after_handler, 1);
            assert!(heap::allocate(HUGE).is_null());
            assert_eq!(heap::shortages().failed_at_once, 1);
        }
        "the handler forks" => {
            limit_to_now(RLIMIT_AS, false);
            heap::set_low_memory_handler(Some(fork_in_handler));
            assert!(heap::allocate(HUGE).is_null());
            assert_eq!(CHILD.load(Ordering::Relaxed), 0);
        }
        "requests that no process can have" => {
            for size in [usize::MAX, usize::MAX / 2, isize::MAX as usize - 4096, 1 << 62, 1 << 47] {
                assert!(heap::allocate(size).is_null());
                assert!(heap::allocate_zeroed(size).is_null());
                assert!(heap::allocate_aligned(size, 1 << 20).is_null());
            }
            let shortages = heap::shortages();
            assert_eq!((shortages.failed_at_once, shortages.last_cause), (15, None), "{shortages:?}");
        }
        "mappings" => mappings(),
        _ => unreachable!("{case}"),
    }
}

/// Maps single pages until the process has as many mappings as it may have. Neighbours differ in
/// their protection, so that the kernel does not merge them.
fn use_up_mappings() -> Vec<*mut u8> {
    const MAP_PRIVATE_ANONYMOUS: c_int = 2 | 0x20;
    let pages = (0..).map(|number: usize| {
        // SAFETY: without MAP_FIXED no memory of others is affected.
        unsafe { mmap(ptr::null_mut(), 4096, (number % 2) as c_int, MAP_PRIVATE_ANONYMOUS, -1, 0) }
    });
    let mut all = Vec::with_capacity(MAPPINGS_MAX);
    all.extend(pages.take_while(|page| page.addr() != usize::MAX));
    all
}

fn unmap(page: *mut u8) {
    // SAFETY: `use_up_mappings` mapped the page, and nobody uses it.
    assert_eq!(unsafe { munmap(page, 4096) }, 0);
}

/// The largest `vm.max_map_count` with which the test does not take long.
const MAPPINGS_MAX: usize = 100_000;

fn mappings() {
    let mappings_max: usize = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().unwrap();
    if mappings_max > MAPPINGS_MAX {
        let _ = writeln!(io::stderr(), "skipped: vm.max_map_count is {mappings_max}, so the test would take long");
        return;
    }
    let mut pages = use_up_mappings();
    assert!(pages.len() > mappings_max / 2, "{} pages", pages.len());
    assert!(heap::allocate(HUGE).is_null());
    let shortages = heap::shortages();
    assert_eq!((shortages.last_cause, shortages.failed_at_once), (Some(ShortageCause::Mappings), 1), "{shortages:?}");
    // With room for a few, blocks can be had: what cannot be unmapped around them stays.
    pages.drain(pages.len() - 3..).for_each(unmap);
    let blocks: Vec<_> = (0..20).map(|_| heap::allocate(2 << 20)).take_while(|block| !block.is_null()).collect();
    assert!(!blocks.is_empty());
    let left = heap::shortages().left_mapped_bytes;
    assert!(left > 0);
    for &block in &blocks {
        // SAFETY: a block of that size, which nobody else uses.
        unsafe { block.write_bytes(1, 2 << 20) };
    }
    blocks.into_iter().for_each(free);
    // As soon as there is room again, all of it is unmapped.
    pages.into_iter().for_each(unmap);
    heap::trim();
    assert_eq!(heap::shortages().left_mapped_bytes, 0, "{left} bytes before");
    assert_eq!(heap::shortages().failed_after_stall, 0);
}

fn run_cases(test: &str, cases: &[&str]) {
    if let Ok(case) = env::var(CASE) {
        return run(&case);
    }
    for case in cases {
        let mut child = Command::new(env::current_exe().unwrap());
        // A backtrace would need more memory than there is.
        child.args(["--exact", test, "--nocapture"]).env(CASE, case).env("RUST_BACKTRACE", "0");
        let output = child.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{case}: {:?} {text}", output.status);
        if let Some(skipped) = text.lines().find(|line| line.starts_with("skipped: ")) {
            let _ = writeln!(io::stderr(), "{skipped}");
        }
    }
}

#[test]
fn limits_that_can_rise_are_waited_for() {
    let cases = ["data that rises", "address space that rises", "address space that does not rise"];
    run_cases("limits_that_can_rise_are_waited_for", &cases);
}

#[test]
fn limits_that_cannot_rise_are_not() {
    let cases = ["data that cannot rise", "address space that cannot rise", "requests that no process can have"];
    run_cases("limits_that_cannot_rise_are_not", &cases);
}

#[test]
fn memory_that_is_given_back_is_used_at_once() {
    let cases = ["what is free is given back", "the handler frees", "the handler forks"];
    run_cases("memory_that_is_given_back_is_used_at_once", &cases);
}

#[test]
fn a_process_may_run_out_of_mappings() {
    run_cases("a_process_may_run_out_of_mappings", &["mappings"]);
}

/// Sets how the whole machine overcommits, so only whoever asks for it gets it.
#[test]
fn memory_that_others_have_is_waited_for() {
    const MODE: &str = "/proc/sys/vm/overcommit_memory";
    if env::var_os("HEAPLEDGER_MAY_SET_OVERCOMMIT").is_none() {
        let _ =
            writeln!(io::stderr(), "skipped: vm.overcommit_memory is left alone without HEAPLEDGER_MAY_SET_OVERCOMMIT");
        return;
    }
    let before = fs::read_to_string(MODE).unwrap();
    fs::write(MODE, "2").unwrap();
    heap::set_stall(StallSpecs { attempts_max: 2, delay_milliseconds: 1 });
    let blocks: Vec<_> = std::iter::repeat_with(|| heap::allocate(HUGE)).take_while(|block| !block.is_null()).collect();
    let cause = heap::shortages().last_cause;
    fs::write(MODE, before.trim()).unwrap();
    blocks.into_iter().for_each(free);
    assert_eq!(cause, Some(ShortageCause::Commit));
    assert!(heap::shortages().failed_after_stall > 0);
}
