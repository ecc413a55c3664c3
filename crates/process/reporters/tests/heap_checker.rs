//! The reports of the heap checker in a program that has started it.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::hint::black_box;

use heapledger_allocator::Allocator;
use heapledger_query::{HeapChecker, PhcOptions, PhcState};
use heapledger_report_format::{Kind, Reports};
use heapledger_reporters::{ReportOptions, collect};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

const BLOCKS: i64 = 50;
const BYTES: i64 = 100;

fn amount(reports: &Reports, path: &str) -> i64 {
    let found = reports.reports.iter().find(|report| &*report.path == path);
    found.unwrap_or_else(|| panic!("no {path}")).amount
}

fn main() {
    let before = collect(&ReportOptions::default());
    assert!(!before.reports.iter().any(|report| report.path.contains("phc")), "the checker does not run");

    let options = PhcOptions { delay_first: 1, delay_normal: 1, memory_min: 0, ..PhcOptions::default() };
    let checker = HeapChecker::start_with(&options).unwrap();
    let blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|_| black_box(vec![1; BYTES as usize])).collect();
    checker.set_state(PhcState::OnlyFree);
    let reports = collect(&ReportOptions::default());
    let of = |path: &str| amount(&reports, path);

    let (bytes, slots) = (of("heap/phc/allocated"), of("phc-slots/allocated"));
    assert!(bytes >= BLOCKS * BYTES && slots > BLOCKS, "{bytes} bytes in {slots} slots");
    // All blocks are on a page each.
    assert_eq!(of("explicit/phc/fragmentation"), slots * 4096 - bytes);
    assert!(of("explicit/phc/metadata") > slots * 50);
    let of_kind = reports.reports.iter().filter(|report| report.kind == Kind::NonHeap);
    assert_eq!(of_kind.filter(|report| report.path.starts_with("explicit/phc/")).count(), 2);
    // The C library does not know the checker's blocks.
    let by_c_library = of("heap/glibc/allocated/arenas") + of("heap/glibc/allocated/mapped");
    assert_eq!(of("heap-allocated"), by_c_library + bytes);

    drop(blocks);
    let after = collect(&ReportOptions::default());
    let lost = |path: &str| of(path) - amount(&after, path);
    assert!(lost("heap/phc/allocated") >= BLOCKS * BYTES && lost("phc-slots/allocated") > BLOCKS);
    assert_eq!(lost("phc-slots/allocated"), -lost("phc-slots/freed"), "freed slots are kept out of use");
    println!("the heap checker's blocks are in the reports");
}
