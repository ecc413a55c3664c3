//! Memory from the kernel: what the tables take, and that they give it back.
#![cfg(not(miri))]

use heapledger_core::sample::Rate;
use heapledger_core::{Bytes, Serial, StackId};
use heapledger_ledger::mapped::Vector;
use heapledger_ledger::{Block, Key, OutOfMemory, Register};

/// Returns the resident memory of this process, and its maximum.
fn resident() -> (usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kilobytes = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
    };
    (kilobytes("VmRSS:") << 10, kilobytes("VmHWM:") << 10)
}

/// One test, because it measures the process.
#[test]
fn the_register_is_dense_and_grows_in_place_of_itself() {
    let blocks = 2_000_000;
    let (before, _) = resident();
    let mut register = Register::new();
    for n in 0..blocks {
        let block = Block {
            size: Bytes(n),
            stack: StackId(1),
            serial: Serial(n),
            inherited: false,
            untracked: false,
            rate: Rate::EXACT,
        };
        assert_eq!(register.insert(Key(0x7f12_3456_0010 + n * 48), block), Ok(None));
    }
    let (after, most) = resident();
    let per_block = |bytes: usize| bytes as f64 / blocks as f64;
    assert!(per_block(after - before) < 37.0, "{} bytes per block", per_block(after - before));
    // While the table grows, it is not in memory twice.
    let slack = 8 << 20;
    assert!(most < after + slack, "{most} bytes at most, {after} in the end");

    for n in 0..blocks {
        let key = Key(0x7f12_3456_0010 + n * 48);
        assert_eq!(register.get(key).unwrap().serial, Serial(n));
        if n % 3 == 0 {
            assert_eq!(register.remove(key).unwrap().size, Bytes(n));
        }
    }
    // The copy gives a measure.
    let copy = register.copy().unwrap();
    assert_eq!(copy.len(), register.len());
    assert!(copy.bytes_mapped() < register.bytes_mapped());
    assert!(copy.iter().all(|(key, block)| block.inherited && key.0 == 0x7f12_3456_0010 + block.size.0 * 48));
    drop(copy);

    register.clear();
    assert_eq!((register.len(), register.bytes_mapped()), (0, 0));
    let (emptied, _) = resident();
    assert!(emptied < before + slack, "{emptied} bytes left");
}

#[test]
fn a_vector_grows_with_zeros() {
    let mut vector = Vector::<u32>::new();
    assert_eq!((vector.len(), vector.bytes_mapped()), (0, 0));
    for n in 0..10_000 {
        vector.push(n).unwrap();
    }
    vector.grow_to(5).unwrap();
    assert_eq!(vector.len(), 10_000);
    vector.grow_to(2_000_000).unwrap();
    assert!(vector[..10_000].iter().enumerate().all(|(n, &element)| element == n as u32));
    assert!(vector[10_000..].iter().all(|&element| element == 0));
    // More than there are addresses: refused, and nothing is lost.
    assert_eq!(vector.grow_to(usize::MAX), Err(OutOfMemory));
    assert_eq!(vector.grow_to(1 << 46), Err(OutOfMemory));
    assert_eq!((vector.len(), vector[9_999]), (2_000_000, 9_999));
    assert!(Vector::<u64>::zeroed(usize::MAX / 4).is_err());
    vector[7] = 9;
    assert_eq!(vector.iter().take(9).copied().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 9, 8]);
}

/// Touches what lies beside a vector's memory: run by the next test, in a process of its own.
#[test]
#[ignore = "dies: the next test runs it, in a process of its own"]
fn overflow() {
    let side = std::env::var("HEAPLEDGER_TEST_OVERFLOW").unwrap();
    let (pages, at) = side.split_once(' ').unwrap();
    let pages: usize = pages.parse().unwrap();
    let bytes = pages * 4096;
    let mut vector = Vector::<u64>::zeroed(bytes / 8).unwrap();
    assert_eq!(vector.bytes_mapped(), bytes);
    let start: *mut u64 = vector.as_mut_ptr();
    // The first and the last are the vector's own.
    vector[0] = 1;
    vector[bytes / 8 - 1] = 1;
    // SAFETY: none: the page there must be inaccessible, so that the process dies.
    unsafe {
        match at {
            "inside" => start.write_volatile(2),
            "before" => start.wrapping_sub(1).write_volatile(2),
            _ => start.wrapping_add(bytes / 8).write_volatile(2),
        }
    }
}

#[test]
fn running_over_either_end_faults() {
    use std::os::unix::process::ExitStatusExt;
    const SIGSEGV: i32 = 11;
    // The large vector is mapped in large pages.
    for pages in [1, 5, 4096] {
        for (at, expected) in [("inside", None), ("before", Some(SIGSEGV)), ("after", Some(SIGSEGV))] {
            let output = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "overflow", "--ignored"])
                .env("HEAPLEDGER_TEST_OVERFLOW", format!("{pages} {at}"))
                .output()
                .unwrap();
            assert_eq!(output.status.signal(), expected, "{pages} {at}: {output:?}");
        }
    }
}
