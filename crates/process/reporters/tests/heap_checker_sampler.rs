//! The reports of the heap checker in a program whose allocator samples for it: each block is in
//! the tree of the heap once.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::hint::black_box;

use heapledger_allocator::{Allocator, HeapAllocator};
use heapledger_query::{HeapChecker, PhcOptions, PhcState};
use heapledger_report_format::Reports;
use heapledger_reporters::{ReportOptions, collect};

#[global_allocator]
static ALLOCATOR: Allocator<HeapAllocator> = Allocator::heap();

const BLOCKS: i64 = 10_000;
const BYTES: i64 = 100;

fn amount(reports: &Reports, path: &str) -> i64 {
    let found = reports.reports.iter().find(|report| &*report.path == path);
    found.unwrap_or_else(|| panic!("no {path}")).amount
}

fn main() {
    let options = PhcOptions { delay_first: 1, delay_normal: 1, memory_min: 0, ..PhcOptions::default() };
    let checker = HeapChecker::start_with(&options).unwrap();
    let blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|_| black_box(vec![1; BYTES as usize])).collect();
    checker.set_state(PhcState::OnlyFree);
    let reports = collect(&ReportOptions::default());
    let of = |path: &str| amount(&reports, path);
    let sampled = of("phc/allocated");
    assert!(sampled >= BYTES && of("phc-slots/allocated") > 0 && of("phc/metadata") > 0, "{sampled} bytes");
    assert!(of("heap/committed/allocated") >= sampled);
    assert!(of("heap/committed/waste") >= of("phc/fragmentation"));
    assert!(of("heap/committed/bookkeeping") >= of("phc/metadata"));
    let is_twice = |path: &str| path.starts_with("heap/phc/") || path.starts_with("explicit/phc/");
    assert!(!reports.reports.iter().any(|report| is_twice(&report.path)));
    drop(blocks);
    println!("the heap checker's blocks are in the reports once");
}
