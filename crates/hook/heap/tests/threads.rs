//! Threads that begin and end, and allocate while they end: their memory is used again.
//!
//! `HEAPLEDGER_THREADS=10000 cargo test -p heapledger-heap --release --test threads` makes as many.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::{env, fs, mem, ptr, thread};

use heapledger_heap as heap;

#[global_allocator]
static ALLOCATOR: heap::HeapAllocator = heap::HeapAllocator;

/// The number of threads without the environment variable, one after the other.
const THREADS: usize = 2000;

unsafe extern "C" {
    fn pthread_key_create(key: *mut u32, destructor: Option<unsafe extern "C" fn(*mut c_void)>) -> c_int;
    fn pthread_getspecific(key: u32) -> *mut c_void;
    fn pthread_setspecific(key: u32, value: *const c_void) -> c_int;
}

/// A value of a thread that allocates when the thread ends.
struct AllocatesAtTheEnd(Vec<Vec<u8>>);

impl Drop for AllocatesAtTheEnd {
    fn drop(&mut self) {
        let more: Vec<Vec<u8>> = (0..20).map(|each| vec![1; each * 50 + 1]).collect();
        self.0.extend(more);
        assert!(self.0.iter().all(|block| block.iter().all(|&byte| byte == 1)));
    }
}

thread_local! {
    static KEPT: RefCell<AllocatesAtTheEnd> = const { RefCell::new(AllocatesAtTheEnd(Vec::new())) };
}

static KEY: AtomicU32 = AtomicU32::new(0);

/// Frees the value, and sets another one until the second call of the thread. The allocator's own
/// destructor may run before, between and after.
unsafe extern "C" fn destructor(value: *mut c_void) {
    // SAFETY: the key's values are blocks of 100 bytes, which nobody else uses.
    let round = unsafe { value.cast::<u8>().read() };
    // SAFETY: as before; a block is freed once, since the C library has cleared the value.
    unsafe { heap::free(value.cast()) };
    if round < 2 {
        set(round + 1);
    }
}

fn set(round: u8) {
    let block = heap::allocate(100);
    assert!(!block.is_null());
    // SAFETY: `write` demands room for a byte, and `pthread_setspecific` a key that exists.
    unsafe {
        block.write(round);
        assert_eq!(pthread_setspecific(KEY.load(Ordering::Relaxed), block.cast()), 0);
    }
}

/// Runs threads, each after the end of the one before, and lets each free a block of the last one.
fn run(threads: usize, is_ending_late: bool) {
    let mut left: Vec<u8> = Vec::new();
    for number in 0..threads {
        let from_before = std::mem::take(&mut left);
        left = thread::spawn(move || {
            if is_ending_late {
                KEPT.with_borrow_mut(|kept| kept.0.push(vec![1; 3000]));
                set(1);
            }
            drop(from_before);
            let blocks: Vec<Vec<u8>> = (0..30).map(|each| vec![7; each * (number % 40) + 1]).collect();
            assert!(blocks.iter().all(|block| block.iter().all(|&byte| byte == 7)));
            vec![7; number % 5000]
        })
        .join()
        .unwrap();
    }
}

/// Returns the resident bytes of this process.
fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Runs bursts of threads, each of which leaves one block in twenty. Frees half of what is left
/// after each burst. Returns the rest.
fn burst(bursts: usize, threads: usize) -> Vec<Vec<u8>> {
    let mut left: Vec<Vec<u8>> = Vec::new();
    for _ in 0..bursts {
        let barrier = Arc::new(Barrier::new(threads));
        let running: Vec<_> = (0..threads)
            .map(|_| {
                let barrier = barrier.clone();
                thread::spawn(move || {
                    // All threads have a heap at the same time.
                    barrier.wait();
                    let mut blocks: Vec<Vec<u8>> = (0..300).map(|each| vec![7; each * 7 % 700 + 1]).collect();
                    blocks.iter_mut().step_by(20).map(mem::take).collect::<Vec<_>>()
                })
            })
            .collect();
        left.extend(running.into_iter().flat_map(|thread| thread.join().unwrap()));
        left = left.into_iter().enumerate().filter_map(|(at, block)| (at % 2 == 0).then_some(block)).collect();
    }
    left
}

/// All kinds in one test: no other thread of the test may allocate meanwhile.
#[test]
fn thousands_of_threads_need_no_more_memory_than_a_few() {
    let threads = env::var("HEAPLEDGER_THREADS").map_or(THREADS, |number| number.parse().expect("HEAPLEDGER_THREADS"));
    let mut key = 0;
    // SAFETY: `key` can be written to, and the destructor stays where it is.
    assert_eq!(unsafe { pthread_key_create(ptr::from_mut(&mut key), Some(destructor)) }, 0);
    KEY.store(key, Ordering::Relaxed);
    // The allocator's own key is the last one that another C library of the process would hand out.
    assert!(key < 31);
    // SAFETY: any number may be asked for.
    assert!(!unsafe { pthread_getspecific(31) }.is_null());
    for is_ending_late in [false, true] {
        run(500, is_ending_late);
        let (before, resident_before) = (heap::statistics(), resident());
        run(threads, is_ending_late);
        let (after, resident_after) = (heap::statistics(), resident());
        assert!(after.chunk_bytes <= before.chunk_bytes, "{before:?}\n{after:?}");
        assert!(after.run_bytes <= before.run_bytes + (1 << 20), "{before:?}\n{after:?}");
        assert!(resident_after < resident_before + (2 << 20), "{resident_before} {resident_after}");
    }
    let first = burst(1, 100);
    let before = heap::statistics().run_bytes;
    let last = burst(20, 100);
    let after = heap::statistics().run_bytes;
    // After each burst, 20 KiB of it are live, in 45 classes. Heaps that keep the runs of their
    // threads would have some hundred more runs after each burst: 200 MiB and more. How many there
    // are depends on when the threads run: up to 26 MB were seen on a machine with much other work.
    println!("{before} bytes of runs after one burst, {after} after twenty");
    assert!(after < 48 << 20, "{before} {after}");
    drop(first);
    drop(last);
    heap::trim();
    let end = heap::statistics().run_bytes;
    println!("{end} at the end");
    assert!(end < 4 << 20, "{end}");
}
