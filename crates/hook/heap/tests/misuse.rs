//! Wrong frees end the program with a message. Each is made in a process of its own, which is this
//! test again.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::{env, hint, ptr, thread};

use heapledger_heap as heap;

#[global_allocator]
static ALLOCATOR: heap::HeapAllocator = heap::HeapAllocator;

const CASE: &str = "HEAPLEDGER_TEST_MISUSE";
const SIGABRT: i32 = 6;

/// Frees a block, whoever owns it.
fn free(block: *mut u8) {
    // SAFETY: none: the contract is broken here, so that the allocator ends the process.
    unsafe { heap::free(block) };
}

/// Allocates more blocks of a size than its free lists can have.
fn use_up(size: usize) {
    for _ in 0..20_000 {
        hint::black_box(heap::allocate(size));
    }
}

/// Frees a block twice, with so many frees between that only a check of the whole list notices it.
/// The list has no end then. If it was not checked, the block's content ends it, so that the next
/// list can be checked: one of sixteen is.
fn free_twice_sixteen_times(size: usize) {
    let blocks: Vec<_> = (0..21).map(|_| heap::allocate(size)).collect();
    for _ in 0..16 {
        blocks.iter().chain(&blocks[..1]).for_each(|&block| free(block));
        let mut times = 0;
        while times < 2 {
            let block = heap::allocate(size);
            // SAFETY: the block has at least that size.
            unsafe { block.write_bytes(0, size) };
            times += usize::from(block == blocks[0]);
        }
    }
}

fn misuse(case: &str) {
    let (first, second) = (heap::allocate(2000), heap::allocate(2000));
    let others: Vec<_> = (0..8).map(|_| heap::allocate(2000)).collect();
    match case {
        "at once" => {
            free(first);
            free(first);
            use_up(2000);
        }
        "with another between" => {
            free(first);
            free(second);
            free(first);
            use_up(2000);
        }
        "more often than there are blocks" => {
            others.iter().chain(&[first, second, first]).for_each(|&block| free(block));
            use_up(2000);
        }
        "of small blocks with many between" => free_twice_sixteen_times(64),
        "of larger blocks with many between" => free_twice_sixteen_times(2000),
        "in a run that is released" => {
            let blocks: Vec<_> = (0..64).map(|_| heap::allocate(3000)).collect();
            let slice = |block: *mut u8| block.addr() >> 16;
            let run: Vec<_> = blocks.iter().copied().filter(|&block| slice(block) == slice(blocks[30])).collect();
            // One block stays in use, and another one is counted in its place.
            run[1..].iter().chain(&run[1..2]).for_each(|&block| free(block));
            heap::trim();
        }
        "by another thread" => {
            let address = first.expose_provenance();
            let free_twice = move || (0..2).for_each(|_| free(ptr::with_exposed_provenance_mut(address)));
            thread::spawn(free_twice).join().unwrap();
            use_up(2000);
        }
        "of a huge block" => {
            let block = heap::allocate(5 << 20);
            free(block);
            free(block);
        }
        "of a large block" => {
            let blocks = [heap::allocate(300_000), heap::allocate(300_000)];
            blocks.into_iter().for_each(free);
            free(blocks[0]);
            use_up(300_000);
        }
        "of a variable" => {
            // Large enough that the header of a chunk would be in it.
            static VARIABLE: [u64; 2 << 20] = [0; 2 << 20];
            free((&raw const VARIABLE[3 << 18]).cast_mut().cast());
        }
        _ => unreachable!("{case}"),
    }
}

#[test]
fn wrong_frees_are_noticed() {
    if let Ok(case) = env::var(CASE) {
        return misuse(&case);
    }
    let cases = [
        ("at once", "double free"),
        ("with another between", "double free"),
        ("more often than there are blocks", "double free"),
        ("of small blocks with many between", "double free in the list of"),
        ("of larger blocks with many between", "double free in the list of"),
        ("in a run that is released", "double free in the run at"),
        ("by another thread", "double free"),
        ("of a huge block", "a block that was freed"),
        ("of a large block", "double free"),
        ("of a variable", "an address that is not a block"),
    ];
    for (case, message) in cases {
        let mut test = Command::new(env::current_exe().unwrap());
        let output = test.args(["--exact", "wrong_frees_are_noticed"]).env(CASE, case).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(SIGABRT), "{case}: {:?} {text}", output.status);
        assert!(text.contains("heapledger: ") && text.contains(message), "{case}: {text}");
    }
}
