//! Misuse of the global allocator, found in the program itself.

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use heapledger::{Allocator, Bytes, Call, Checks, ChecksError, Ledger, LedgerOptions, MisuseKind};

#[cfg(not(feature = "heap"))]
#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

#[cfg(feature = "heap")]
#[global_allocator]
static ALLOCATOR: Allocator<heapledger::HeapAllocator> = Allocator::heap();

fn main() {
    let before = Box::new([1_u8; 50]);
    let checks = start_while_others_allocate();
    assert_eq!(Checks::start().unwrap_err(), ChecksError::Running);
    // Beside the ledger.
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    // Blocks from before the start are not checked, and freeing them is not a misuse.
    drop(before);
    what_is_allowed();
    checks.check_canaries();
    assert_eq!(checks.misuses().count(), 0);

    // From one place, not from three.
    for _ in 0..black_box(3) {
        free_twice();
    }
    write_past_the_end(40, &[40, 43]);
    let live = live_and_overwritten();
    assert_eq!(checks.misuses().count(), 2);
    checks.check_canaries();
    std::thread::spawn(free_twice).join().unwrap();

    write_before(32);
    write_after_the_free(64, 9);
    checks.check_canaries();

    let found: Vec<_> = checks.misuses().collect();
    assert_eq!(found.len(), 6, "{found:#?}");
    let [twice, overwritten, at_look, in_thread, before, after] = &found[..] else { unreachable!() };
    assert_eq!(before.kind, MisuseKind::Underwrite(-1..0), "{before}");
    assert!(before.to_string().starts_with("write in front of a block of 32 bytes: byte -1\n"), "{before}");
    assert_eq!(after.kind, MisuseKind::WriteAfterFree(9..10), "{after}");
    assert_eq!(after.to_string().matches("write_after_the_free").count(), 2, "{after}");
    for (misuse, times) in [(twice, 3), (in_thread, 1)] {
        assert!(matches!(misuse.kind, MisuseKind::DoubleFree(Call::Free, _)), "{misuse}");
        assert_eq!((misuse.size, misuse.times), (Bytes(100), times), "{misuse}");
        let text = misuse.to_string();
        assert!(text.starts_with("double free of a block of 100 bytes"), "{text}");
        assert_eq!(text.matches("free_twice").count(), 3, "{text}");
    }
    assert_ne!(twice.thread, in_thread.thread);
    assert_eq!(overwritten.kind, MisuseKind::Overwrite(0..4), "{overwritten}");
    assert_eq!(overwritten.freed.map(|(call, _)| call), Some(Call::Free));
    assert!(overwritten.to_string().contains("bytes 40 to 43\n"), "{overwritten}");
    assert!(at_look.freed.is_none() && at_look.kind == MisuseKind::Overwrite(2..3), "{at_look}");
    assert!(at_look.to_string().contains("live_and_overwritten"), "{at_look}");
    assert_eq!(at_look.address, live as u64);
    assert_eq!(checks.misuses_lost(), 0);
    ledger.stop();
    println!("the checks found what was done, and nothing else");
}

/// Starts the checks while other threads allocate blocks and free those from before.
fn start_while_others_allocate() -> Checks {
    let (ready, ends) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        let mut blocks: [_; 64] = std::array::from_fn(|_| Box::new([2_u8; 50]));
        ready.fetch_add(1, Ordering::Relaxed);
        for at in (0..blocks.len()).cycle() {
            blocks[at] = black_box(Box::new([3; 50]));
            if ends.load(Ordering::Relaxed) {
                break;
            }
        }
    };
    std::thread::scope(|scope| {
        (0..3).for_each(|_| drop(scope.spawn(work)));
        while ready.load(Ordering::Relaxed) < 3 {
            std::thread::yield_now();
        }
        let checks = Checks::start_with_quarantine(Bytes(1 << 20)).unwrap();
        ends.store(true, Ordering::Relaxed);
        checks
    })
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

fn what_is_allowed() {
    for size in 1..300_usize {
        // SAFETY: each block is used within its size, and freed once.
        unsafe {
            let block = black_box(alloc(layout(size)));
            block.write_bytes(1, size);
            let block = black_box(realloc(block, layout(size), size * 3));
            block.write_bytes(2, size * 3);
            dealloc(block, layout(size * 3));
            let wide = Layout::from_size_align(size, 128).unwrap();
            let block = black_box(std::alloc::alloc_zeroed(wide));
            assert!(block.addr().is_multiple_of(128) && (0..size).all(|at| block.add(at).read() == 0));
            block.write_bytes(3, size);
            dealloc(block, wide);
        }
    }
}

#[inline(never)]
fn free_twice() {
    // SAFETY: none; that is what is tested. The second free is not passed on.
    unsafe {
        let block = black_box(alloc(layout(100)));
        dealloc(block, layout(100));
        dealloc(black_box(block), layout(100));
    }
}

#[inline(never)]
fn write_past_the_end(size: usize, at: &[usize]) {
    // SAFETY: none for the writes behind `size`; they are what is tested. They reach memory of the
    // block only: the checks have made it 16 bytes longer, and each of `at` is below that.
    // `dealloc` gets the block and the layout of `alloc`, once.
    unsafe {
        let block = black_box(alloc(layout(size)));
        at.iter().for_each(|&at| block.add(at).write_volatile(1));
        dealloc(block, layout(size));
    }
}

#[inline(never)]
fn write_before(size: usize) {
    // SAFETY: none for the write before the block; it is what is tested. It reaches memory of the
    // block only: the checks have put 16 bytes in front. `dealloc` gets the block and the layout of
    // `alloc`, once.
    unsafe {
        let block = black_box(alloc(layout(size)));
        block.sub(1).write_volatile(1);
        dealloc(block, layout(size));
    }
}

#[inline(never)]
fn write_after_the_free(size: usize, at: usize) {
    // SAFETY: none for the write after the free; it is what is tested. The block is in quarantine,
    // so nobody else has the memory.
    unsafe {
        let block = black_box(alloc(layout(size)));
        dealloc(block, layout(size));
        block.add(at).write_volatile(1);
    }
}

#[inline(never)]
fn live_and_overwritten() -> *mut u8 {
    // SAFETY: none for the write behind the 24 bytes; it is what is tested. It reaches memory of
    // the block only: the checks have made it 16 bytes longer.
    unsafe {
        let block = black_box(alloc(layout(24)));
        block.add(26).write_volatile(1);
        block
    }
}
