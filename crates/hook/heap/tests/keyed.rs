//! Keyed free lists: links of free blocks are unreadable, and forged ones end the program. Each
//! case is made in a process of its own, which is this test again.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::{env, hint, ptr, thread};

use heapledger_heap::arenas::{self, Arena};
use heapledger_heap::{self as heap, PointerKind};

const CASE: &str = "HEAPLEDGER_TEST_KEYED";
const SIGABRT: i32 = 6;

/// Memory that is not the allocator's, and that a forged link names.
static VICTIM: [u64; 1024] = [0; 1024];

fn victim() -> *mut u8 {
    (&raw const VICTIM[512]).cast_mut().cast()
}

fn free(block: *mut u8) {
    // SAFETY: a block of the test's; or none, in cases that break the contract so that the
    // allocator ends the process.
    unsafe { heap::free(block) };
}

fn free_in_thread(block: *mut u8) {
    let address = block.expose_provenance();
    thread::spawn(move || free(ptr::with_exposed_provenance_mut(address))).join().unwrap();
}

/// Returns blocks of a size, and the address of the word in the third one that is to be changed
/// after the frees of the first five.
fn freed(size: usize) -> [*mut u64; 5] {
    let blocks: [*mut u8; 8] = std::array::from_fn(|_| heap::allocate(size));
    blocks.into_iter().take(5).for_each(free);
    std::array::from_fn(|at| blocks[at].cast())
}

/// Allocates all free blocks of a size, and more. Prints if one is wild.
fn use_up(size: usize) {
    for _ in 0..5000 {
        let block = hint::black_box(heap::allocate(size));
        if block == victim() {
            println!("a wild address was handed out");
            return;
        }
    }
}

fn run(case: &str) {
    match case {
        "forged, small" | "forged, larger" => {
            let size = if case.ends_with("small") { 64 } else { 2000 };
            let [.., block, _] = freed(size);
            // SAFETY: none: the block was freed, but its memory is there.
            unsafe { block.write(victim().addr() as u64) };
            use_up(size);
        }
        "a bit of the link" | "a byte of the link" | "the check" => {
            let [_, block, ..] = freed(100);
            // SAFETY: as above.
            unsafe {
                match case {
                    "a bit of the link" => *block ^= 0x40,
                    "a byte of the link" => block.cast::<u8>().write(block.cast::<u8>().read().wrapping_add(0x70)),
                    _ => *block.add(1) ^= 1 << 63,
                }
            }
            use_up(100);
        }
        "copied from another block" => {
            let [_, to, from, ..] = freed(100);
            // SAFETY: as above.
            unsafe { ptr::copy_nonoverlapping(from, to, 2) };
            use_up(100);
        }
        "freed by another thread" => {
            let blocks = [heap::allocate(700), heap::allocate(700)];
            blocks.into_iter().for_each(free_in_thread);
            // SAFETY: as above.
            unsafe { blocks[1].cast::<u64>().write(victim().addr() as u64) };
            use_up(700);
        }
        "in an arena" => {
            let arena = Arena::builder().label("keyed").create().unwrap();
            // SAFETY: the arena stays, and nobody else frees the blocks; the write breaks the
            // contract.
            unsafe {
                let blocks: [*mut u8; 3] = std::array::from_fn(|_| arenas::allocate_in(arena.id(), 48));
                blocks.into_iter().for_each(|block| arenas::free_in(arena.id(), block));
                blocks[1].cast::<u64>().write(victim().addr() as u64);
                for _ in 0..5000 {
                    hint::black_box(arenas::allocate_in(arena.id(), 48));
                }
            }
        }
        "in a run that is released" => {
            let [block, ..] = freed(30_000);
            // SAFETY: as above.
            unsafe { block.write(0) };
            free(heap::allocate(30_000));
            use_up(30_000);
        }
        "double free" | "double free by another thread" => {
            let blocks: Vec<_> = (0..100).map(|_| heap::allocate(64)).collect();
            blocks.iter().for_each(|&block| free(block));
            println!("once");
            if case.ends_with("thread") {
                free_in_thread(blocks[50])
            } else {
                free(blocks[50])
            }
            println!("not noticed");
        }
        "nothing wrong" => nothing_wrong(),
        "links can be read" => println!("{}", links()),
        _ => panic!("{case}"),
    }
}

/// Counts the words of free blocks that are addresses near these blocks.
fn links() -> usize {
    let blocks: Vec<_> = (0..200).map(|_| heap::allocate(64)).collect();
    blocks.iter().for_each(|&block| free(block));
    let words = blocks.iter().flat_map(|&block| {
        // SAFETY: the memory of a free block can be read; nobody else uses it.
        let read = |at| unsafe { block.cast::<u64>().add(at).read() };
        [read(0), read(1)].map(|word| word.abs_diff(block.addr() as u64))
    });
    words.filter(|&distance| distance < 4 << 20).count()
}

/// Uses blocks rightly, and what the allocator says about them.
fn nothing_wrong() {
    // Freed without having been written to, more than once.
    for size in [1, 16, 40, 500, 3000, 40_000, 300_000, 3 << 20] {
        for round in 0..((1 << 20) / size).clamp(2, 300) {
            let blocks: Vec<_> = (0..8).map(|_| heap::allocate(size)).collect();
            for (number, &block) in blocks.iter().enumerate() {
                let info = heap::pointer_info(block.wrapping_add(size / 2));
                assert_eq!((info.kind, info.start), (PointerKind::Live, block.addr()));
                if number == 5 && round % 50 == 0 {
                    free_in_thread(block)
                } else {
                    free(block)
                }
                if size < 65_536 {
                    assert_eq!(heap::pointer_info(block).kind, PointerKind::Freed, "{size}");
                }
            }
        }
        let zeroed = heap::allocate_zeroed(size);
        // SAFETY: a block of that size.
        assert!((0..size).all(|at| unsafe { zeroed.add(at).read() } == 0));
        free(zeroed);
    }
    let now = heap::detailed_statistics();
    assert_eq!((now.option_keyed, now.blocks), (1, 0));
    heap::trim();
    println!("right");
}

fn in_process(case: &str, options: &str) -> Output {
    let mut test = Command::new(env::current_exe().unwrap());
    test.args(["--exact", "links_are_keyed", "--nocapture"]).env(CASE, case);
    test.env("HEAPLEDGER_ALLOCATOR_OPTIONS", options).output().unwrap()
}

#[test]
fn links_are_keyed() {
    if let Ok(case) = env::var(CASE) {
        return run(&case);
    }
    let overwritten = "heapledger: a free block was overwritten, or freed twice: 0x";
    let cases = [
        ("forged, small", overwritten),
        ("forged, larger", overwritten),
        ("a bit of the link", overwritten),
        ("a byte of the link", overwritten),
        ("the check", overwritten),
        ("copied from another block", overwritten),
        ("freed by another thread", overwritten),
        ("in an arena", overwritten),
        ("in a run that is released", overwritten),
        ("double free", "heapledger: double free: 0x"),
        ("double free by another thread", "heapledger: double free: 0x"),
    ];
    for (case, message) in cases {
        for options in ["keyed", "keyed junk poison random"] {
            let output = in_process(case, options);
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.signal(), Some(SIGABRT), "{case}: {:?} {text}", output.status);
            assert!(text.contains(message), "{case}: {text}");
            let printed = String::from_utf8_lossy(&output.stdout);
            assert!(!printed.contains("handed out") && !printed.contains("not noticed"), "{case}: {printed}");
        }
    }
}

#[test]
fn without_keys_a_forged_link_is_followed() {
    // So the cases of above would fail.
    let output = in_process("forged, small", "");
    assert!(String::from_utf8_lossy(&output.stdout).contains("a wild address was handed out"), "{output:?}");
}

#[test]
fn links_are_unreadable() {
    let counted = |options: &str| {
        let output = in_process("links can be read", options);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().find_map(|line| line.parse::<usize>().ok()).unwrap()
    };
    assert!(counted("") > 100);
    assert_eq!(counted("keyed"), 0);
}

#[test]
fn right_programs_run_with_keys() {
    for options in ["keyed", "keyed junk poison=1 random", "keyed zero guard 2P"] {
        let output = in_process("nothing wrong", options);
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && printed.contains("right"), "{options}: {output:?}");
    }
}
