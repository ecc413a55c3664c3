//! The heap checker in a Rust program: each error ends the program, so each is committed in a
//! process of its own, which is this program again.

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use heapledger::{Allocator, HeapChecker, PhcOptions, PhcPageKind, PhcStartError, PhcState};

#[cfg(not(feature = "heap"))]
#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

/// The allocator that counts at its refills.
#[cfg(feature = "heap")]
#[global_allocator]
static ALLOCATOR: Allocator<heapledger::HeapAllocator> = Allocator::heap();

const ALL: PhcOptions = PhcOptions {
    delay_first: 1,
    delay_normal: 1,
    delay_reuse: 256 << 10,
    bytes_max: 16 << 20,
    memory_min: 0,
    placement: heapledger::PhcPlacement::End,
    is_adaptive: false,
    prints: true,
};

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("use-after-free") => use_after_free(),
        Some("overflow") => overflow(),
        Some("double-free") => double_free(),
        _ => {
            answers();
            for (error, signal) in [("use-after-free", 11), ("overflow", 11), ("double-free", 11)] {
                let Output { status, stderr, .. } =
                    Command::new(std::env::current_exe().unwrap()).arg(error).output().unwrap();
                let said = String::from_utf8(stderr).unwrap();
                assert_eq!(status.signal(), Some(signal), "{error}: {said}");
                assert!(said.starts_with("heapledger: heap error in process "), "{said}");
                assert!(said.contains(error) && said.contains("\n  allocated in thread "), "{said}");
                assert!(said.contains(", in parsing{file=a.txt} > values at\n"), "{said}");
            }
            println!("the heap checker caught what was done, and nothing else");
        }
    }
}

/// The checker answers queries, and a correct program is not disturbed.
fn answers() {
    let before = Box::new(1);
    assert_eq!(HeapChecker::get().lookup(&raw const *before as *const u8).kind, PhcPageKind::Unknown);
    let checker = HeapChecker::start_with(&ALL).unwrap();
    assert_eq!(HeapChecker::start().unwrap_err(), PhcStartError::Running);

    let block = black_box(vec![7_u8; 100]);
    let found = checker.lookup(block.as_ptr().wrapping_add(99));
    let (kind, known) = (found.kind, found.block.unwrap());
    assert_eq!((kind, known.base, known.size), (PhcPageKind::InUsePage, block.as_ptr() as usize, 100));
    let stats = checker.stats();
    assert!(stats.slots_allocated >= 1 && stats.bytes_allocated >= 100, "{stats:?}");
    assert_eq!(stats.bytes_fragmentation, stats.slots_allocated as usize * 4096 - stats.bytes_allocated, "{stats:?}");

    let address = block.as_ptr();
    drop(block);
    let freed = checker.lookup(address);
    assert!(freed.kind == PhcPageKind::FreedPage && freed.block.unwrap().freed.is_some(), "{freed:?}");
    // The halves of the page behind it belong to this block and to the next one.
    let guard = checker.lookup(address.wrapping_add(112));
    assert!(guard.kind == PhcPageKind::GuardPage && guard.is_overflow, "{guard:?}");

    let excepted = checker.without(|| black_box(vec![1_u8; 100]));
    assert_eq!(checker.lookup(excepted.as_ptr()).kind, PhcPageKind::Unknown);
    // Exceptions nest.
    let nested = checker.without(|| {
        checker.without(|| ());
        black_box(vec![1_u8; 100])
    });
    assert_eq!(checker.lookup(nested.as_ptr()).kind, PhcPageKind::Unknown);
    let grown = checker.without(|| {
        let mut block = black_box(vec![1_u8; 10]);
        block.reserve_exact(5000);
        block
    });
    assert_eq!(checker.lookup(grown.as_ptr()).kind, PhcPageKind::Unknown);

    let sampled = checker.stats().blocks_sampled;
    let texts: Vec<String> = (0..200).map(|number| format!("text {number}")).collect();
    assert!(texts.iter().enumerate().all(|(number, text)| *text == format!("text {number}")));
    assert!(checker.stats().blocks_sampled >= sampled + 100);
    checker.set_state(PhcState::OnlyFree);
    drop((before, excepted, nested, grown, texts));
}

#[inline(never)]
fn make(bytes: usize) -> *mut u8 {
    let _outer = heapledger::context!("parsing", file = "a.txt");
    let _inner = heapledger::context!("values");
    black_box(vec![1_u8; bytes].leak().as_mut_ptr())
}

#[inline(never)]
fn release(block: *mut u8, bytes: usize) {
    // SAFETY: the error that is tested: the block may have been freed before.
    drop(unsafe { Vec::from_raw_parts(block, bytes, bytes) });
}

fn use_after_free() {
    HeapChecker::start_with(&ALL).unwrap();
    let block = make(64);
    release(block, 64);
    // SAFETY: the error that is tested.
    black_box(unsafe { block.read_volatile() });
}

fn overflow() {
    HeapChecker::start_with(&ALL).unwrap();
    // SAFETY: the error that is tested.
    black_box(unsafe { make(64).wrapping_add(64).read_volatile() });
}

fn double_free() {
    HeapChecker::start_with(&ALL).unwrap();
    let block = make(64);
    release(block, 64);
    release(block, 64);
}
