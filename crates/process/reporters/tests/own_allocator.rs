//! The reports of a program that uses Heapledger's allocator.

use heapledger_heap::HeapAllocator;
use heapledger_reporters::{ReportOptions, collect};

#[global_allocator]
static ALLOCATOR: HeapAllocator = HeapAllocator;

#[test]
fn the_allocator_reports_what_it_has() {
    let blocks: Vec<Vec<u8>> = (0..1000).map(|_| vec![1; 1000]).collect();
    let half: Vec<Vec<u8>> = blocks.into_iter().step_by(2).collect();
    let huge = vec![1_u8; 5 << 20];
    let reports = collect(&ReportOptions::default());
    let amount = |path: &str| {
        let report = reports.reports.iter().find(|report| &*report.path == path);
        report.unwrap_or_else(|| panic!("no {path}")).amount
    };
    let allocated = amount("heap/committed/allocated");
    assert!((500 * 1000 + (5 << 20)..7 << 20).contains(&allocated), "{allocated}");
    // 500 blocks of 1,024 bytes are free.
    let unused = amount("heap/committed/bin-unused/bin-1024");
    assert!((450 * 1024..600 * 1024).contains(&unused), "{unused}");
    for path in ["waste", "bookkeeping", "unused-pages/dirty"] {
        amount(&format!("heap/committed/{path}"));
    }
    for path in ["fresh", "madvised"] {
        amount(&format!("heap/decommitted/unused-pages/{path}"));
    }
    assert_eq!(amount("heap-chunksize"), 4 << 20);
    assert!((0..10_000).contains(&amount("heap-overhead-fraction")));
    // The C library's allocator has blocks, too.
    assert!(amount("heap-allocated") >= allocated);
    drop((half, huge));
}
