//! A program whose global allocator is infallible: each way in which it ends is a process of its
//! own, which is this test again.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_int;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, hint};

use heapledger_heap::HeapAllocator;
use heapledger_infallible::{
    Infallible, OutOfMemory, fallibly, oom_size, set_oom_handler, try_box, try_push, try_string,
};

/// The number of requests for [`RARE`] bytes that fail before one succeeds.
static REFUSALS: AtomicU32 = AtomicU32::new(0);
const RARE: usize = 12_345;
const SIGABRT: i32 = 6;
const CASE: &str = "HEAPLEDGER_TEST_INFALLIBLE";

/// The system's allocator, which refuses some requests.
struct Refusing;

impl Refusing {
    fn refuses(size: usize) -> bool {
        let is_refused = |left: u32| left.checked_sub(1);
        size == RARE && REFUSALS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_refused).is_ok()
    }
}

// SAFETY: `GlobalAlloc` demands blocks of the layout that stay valid. All are those of
// `HeapAllocator`, which keeps that contract, for the same arguments.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if Refusing::refuses(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the contract of this method, passed on.
        unsafe { HeapAllocator.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the contract of this method, passed on: every block is the heap's.
        unsafe { HeapAllocator.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if Refusing::refuses(size) {
            return std::ptr::null_mut();
        }
        // SAFETY: the contract of this method, passed on: every block is the heap's.
        unsafe { HeapAllocator.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Infallible<Refusing> = Infallible::new(Refusing);

static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(size: usize) -> c_int {
    assert_eq!(size, RARE);
    // It may allocate, and come back here fallibly only.
    drop(hint::black_box(vec![1_u8; 100]));
    assert!(fallibly(|| Vec::<u8>::new().try_reserve_exact(isize::MAX as usize)).is_err());
    HANDLED.fetch_add(1, Ordering::Relaxed);
    1
}

extern "C" fn allocate_too(_: usize) -> c_int {
    drop(hint::black_box(Vec::<u8>::with_capacity(isize::MAX as usize)));
    1
}

extern "C" fn give_up(_: usize) -> c_int {
    0
}

fn end(case: &str) {
    match case {
        "without a handler" => {}
        "a handler that gives up" => drop(set_oom_handler(Some(give_up))),
        "a handler that fails" => drop(set_oom_handler(Some(allocate_too))),
        "a held standard error" => {
            let (send, receive) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let _held = std::io::stderr().lock();
                send.send(()).unwrap();
                loop {
                    std::thread::park();
                }
            });
            receive.recv().unwrap();
        }
        "reallocation" => {
            let mut vec = hint::black_box(vec![1_u8; 10]);
            vec.reserve_exact(isize::MAX as usize - 10);
            return;
        }
        _ => unreachable!("{case}"),
    }
    drop(hint::black_box(Vec::<u8>::with_capacity(isize::MAX as usize)));
}

#[test]
fn a_program_that_runs_out_of_memory_ends_with_a_message() {
    if let Ok(case) = env::var(CASE) {
        return end(&case);
    }
    let cases = [
        "without a handler",
        "a handler that gives up",
        "a handler that fails",
        "a held standard error",
        "reallocation",
    ];
    for case in cases {
        let mut test = Command::new(env::current_exe().unwrap());
        test.args(["--exact", "a_program_that_runs_out_of_memory_ends_with_a_message", "--nocapture"]);
        let output = test.env(CASE, case).output().unwrap();
        assert_eq!(output.status.signal(), Some(SIGABRT), "{case}: {:?}", output.status);
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            "out of memory: 0x7fffffffffffffff bytes requested\n",
            "{case}"
        );
    }
}

#[test]
fn a_handler_asks_for_as_many_attempts_as_it_likes() {
    let layout = Layout::array::<u8>(RARE).unwrap();
    // Fallibly, a refusal is final.
    REFUSALS.store(1, Ordering::Relaxed);
    assert!(fallibly(|| Vec::<u8>::new().try_reserve_exact(RARE)).is_err());
    assert_eq!(try_box([0_u8; RARE - 1]).map(|_| ()), Ok(()));
    assert_eq!(HANDLED.load(Ordering::Relaxed), 0);

    REFUSALS.store(1, Ordering::Relaxed);
    assert_eq!(try_box([0_u8; RARE]).map(|_| ()), Err(OutOfMemory { size: RARE }));
    assert_eq!(oom_size(), 0);

    assert!(set_oom_handler(Some(count)).is_none());
    REFUSALS.store(3, Ordering::Relaxed);
    let block = hint::black_box(vec![7_u8; RARE]);
    assert_eq!((HANDLED.load(Ordering::Relaxed), oom_size(), block[RARE - 1]), (3, RARE, 7));
    REFUSALS.store(2, Ordering::Relaxed);
    let mut grown = vec![7_u8; 5];
    grown.reserve_exact(RARE - 5);
    assert_eq!((HANDLED.load(Ordering::Relaxed), grown[4]), (5, 7));
    // SAFETY: `alloc_zeroed` demands a layout whose size is not 0, and `dealloc` the block with its
    // layout.
    unsafe {
        REFUSALS.store(1, Ordering::Relaxed);
        let zeroed = std::alloc::alloc_zeroed(layout);
        assert_eq!((HANDLED.load(Ordering::Relaxed), zeroed.read()), (6, 0));
        std::alloc::dealloc(zeroed, layout);
    }
    assert!(set_oom_handler(None).is_some());
    // A panic within ends `fallibly` too.
    let panicked = std::panic::catch_unwind(|| fallibly(|| panic!("on purpose")));
    assert!(panicked.is_err());
    let mut vec = Vec::new();
    try_push(&mut vec, try_string("text").unwrap()).unwrap();
    assert_eq!(vec, ["text"]);
}
