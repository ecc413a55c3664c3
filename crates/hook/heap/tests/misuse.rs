//! Wrong frees end the program with a message. Each is made in a process of its own, which is this
//! test again.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::{OnceLock, mpsc};
use std::{env, hint, process, ptr, thread};

use heapledger_heap as heap;
use heapledger_heap::arenas::{self, Arena, ArenaId};

#[global_allocator]
static ALLOCATOR: heap::HeapAllocator = heap::HeapAllocator;

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
}

const CASE: &str = "HEAPLEDGER_TEST_MISUSE";
const SIGABRT: i32 = 6;

/// Frees a block, whoever owns it.
fn free(block: *mut u8) {
    // SAFETY: none: the contract is broken here, so that the allocator ends the process.
    unsafe { heap::free(block) };
}

/// Returns an arena that is the same for each call.
fn arena() -> ArenaId {
    static ARENA: OnceLock<Arena> = OnceLock::new();
    ARENA.get_or_init(|| Arena::builder().label("other").create().unwrap()).id()
}

/// Allocates in an arena that the test keeps, or of which it disposes in the same thread.
fn allocate_in(arena: ArenaId, size: usize) -> *mut u8 {
    // SAFETY: no test disposes of an arena while a thread allocates there.
    unsafe { arenas::allocate_in(arena, size) }
}

fn free_in(arena: ArenaId, block: *mut u8) {
    // SAFETY: none: the contract is broken here.
    unsafe { arenas::free_in(arena, block) };
}

fn dispose(arena: ArenaId) {
    // SAFETY: no other thread uses it.
    unsafe { arenas::dispose(arena) };
}

/// Allocates more blocks of a size than its free lists can have.
fn use_up(size: usize) {
    for _ in 0..20_000 {
        hint::black_box(heap::allocate(size));
    }
}

/// Frees a block twice, with so many frees between that only a check of the whole list notices it.
/// The list has no end then. If it was not checked, the block's content ends it, so that the next
/// list can be checked: one of sixteen is, or one in as many allocations as `rounds`, if that has
/// no divisor in common with those of a round.
fn free_twice(size: usize, blocks: usize, rounds: usize) {
    let blocks: Vec<_> = (0..blocks).map(|_| heap::allocate(size)).collect();
    for _ in 0..rounds {
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

/// Disposes of an arena in the child of a fork, which has a block in it.
fn dispose_in_child() -> ! {
    let arena = Arena::builder().label("of the parent").create().unwrap();
    let id = arena.id();
    // The child does not have this thread, whose blocks do not matter there.
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        hint::black_box(allocate_in(id, 100));
        sender.send(()).unwrap();
        thread::park();
    });
    receiver.recv().unwrap();
    // SAFETY: the child calls functions of the allocator only, and is aborted by them.
    unsafe {
        let child = fork();
        if child == 0 {
            hint::black_box(allocate_in(id, 100));
            arenas::dispose(id);
            process::exit(1);
        }
        let mut status = 0;
        assert_eq!(waitpid(child, &raw mut status, 0), child);
        assert_eq!(status & 0x7F, SIGABRT);
    }
    process::abort();
}

/// Wrong uses of arenas. True if the case is one of those.
fn misuse_arenas(case: &str) -> bool {
    match case {
        "of an arena's block" => {
            let block = allocate_in(arena(), 2000);
            free(block);
            free(block);
            // Its heap takes the list.
            for _ in 0..20_000 {
                hint::black_box(allocate_in(arena(), 2000));
            }
        }
        "of a block of another arena" => free_in(arena(), allocate_in(arenas::main_arena(), 100)),
        "of a huge block of another arena" => free_in(arena(), heap::allocate(5 << 20)),
        "in an arena that does not exist" => free_in(ArenaId::from_raw(5), heap::allocate(100)),
        "reallocation in another arena" => {
            // SAFETY: none: the contract is broken here.
            hint::black_box(unsafe { arenas::reallocate_in(arena(), heap::allocate(100), 10) });
        }
        "reallocation of a variable" => {
            static VARIABLE: [u64; 2 << 20] = [0; 2 << 20];
            // SAFETY: none: the contract is broken here.
            hint::black_box(unsafe { heap::reallocate((&raw const VARIABLE[3 << 18]).cast_mut().cast(), 1 << 20) });
        }
        "disposal with a block" => {
            let arena = Arena::builder().label("with blocks").create().unwrap();
            let blocks: Vec<_> = (0..100).map(|_| allocate_in(arena.id(), 100)).collect();
            blocks.into_iter().skip(1).for_each(free);
        }
        "disposal with blocks in full runs and of other threads" => {
            let arena = Arena::builder().label("with blocks").create().unwrap();
            let fill = || {
                for _ in 0..3000 {
                    hint::black_box(allocate_in(arena.id(), 1000));
                }
            };
            thread::scope(|scope| drop(scope.spawn(fill).join()));
            fill();
        }
        "disposal of a private arena with a block" => {
            let arena = Arena::builder().label("secret").private().create().unwrap();
            hint::black_box(allocate_in(arena.id(), 100));
        }
        "disposal with a huge block" => {
            let arena = Arena::builder().label("with a huge block").create().unwrap();
            hint::black_box(allocate_in(arena.id(), 5 << 20));
        }
        "disposal with a block in the child of a fork" => {
            dispose_in_child();
        }
        "disposal of the main arena" => dispose(arenas::main_arena()),
        "disposal of an arena twice" => (0..2).for_each(|_| dispose(arena())),
        "single thread, another allocates" => {
            let arena = Arena::builder().label("mine").single_thread().create().unwrap();
            let id = arena.id();
            drop(thread::spawn(move || hint::black_box(allocate_in(id, 10)).addr()).join());
        }
        "single thread, another frees" | "single thread, another frees a huge block" => {
            let arena = Arena::builder().label("mine").single_thread().create().unwrap();
            let size = if case.ends_with("block") { 5 << 20 } else { 100 };
            let address = allocate_in(arena.id(), size).expose_provenance();
            drop(thread::spawn(move || free(ptr::with_exposed_provenance_mut(address))).join());
        }
        _ => return false,
    }
    true
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
        "of small blocks with many between" => free_twice(64, 21, 16),
        "of larger blocks with many between" => free_twice(2000, 20, 128),
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
        _ => assert!(misuse_arenas(case), "{case}"),
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
        ("of an arena's block", "double free"),
        ("of a block of another arena", "(main) was passed as one of arena 0x"),
        ("of a huge block of another arena", "(main) was passed as one of arena 0x"),
        ("in an arena that does not exist", "no arena has the id 0x5"),
        ("reallocation in another arena", "(main) was passed as one of arena 0x"),
        ("reallocation of a variable", "reallocation of an address that is not a block"),
        ("disposal with a block", "(with blocks) was disposed of with 1 live blocks of 112 bytes"),
        (
            "disposal with blocks in full runs and of other threads",
            "(with blocks) was disposed of with 6000 live blocks of 6144000 bytes",
        ),
        ("disposal of a private arena with a block", "heapledger: private arena (secret) was disposed of with 1 live"),
        ("disposal with a huge block", "(with a huge block) was disposed of with 1 live blocks of 5242880 bytes"),
        ("disposal with a block in the child of a fork", "(of the parent) was disposed of with 2 live blocks"),
        ("disposal of the main arena", "the main arena was disposed of"),
        ("disposal of an arena twice", "or it was disposed of"),
        ("single thread, another allocates", "(mine) by another thread"),
        ("single thread, another frees", "(mine) by another thread"),
        ("single thread, another frees a huge block", "(mine) by another thread"),
    ];
    for (case, message) in cases {
        let mut test = Command::new(env::current_exe().unwrap());
        let output = test.args(["--exact", "wrong_frees_are_noticed"]).env(CASE, case).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(SIGABRT), "{case}: {:?} {text}", output.status);
        assert!(text.contains("heapledger: ") && text.contains(message), "{case}: {text}");
    }
}
