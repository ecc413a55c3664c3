//! The allocator's statements about its blocks and its memory. The tests run one after the other:
//! only they allocate from it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use heapledger_heap::{self as heap, DetailedStatistics, PointerKind, StatisticsFormat};

/// The number of blocks of a test. Miri takes milliseconds for each.
const BLOCKS: usize = if cfg!(miri) { 100 } else { 5000 };
/// The number of blocks of 900,000 bytes that fill some chunks.
const CHUNKS_FULL: usize = if cfg!(miri) { 8 } else { 40 };
/// The number of times that something is done while other threads work.
const ROUNDS: usize = if cfg!(miri) { 2 } else { 300 };

fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn free(block: usize) {
    // SAFETY: tests free blocks of their own, once.
    unsafe { heap::free(std::ptr::with_exposed_provenance_mut(block)) };
}

fn allocate(size: usize) -> usize {
    let block = heap::allocate(size);
    assert!(!block.is_null());
    block.expose_provenance()
}

fn info(address: usize) -> heap::PointerInfo {
    heap::pointer_info(std::ptr::without_provenance(address))
}

/// Sizes of all kinds: small, large, huge.
fn size(number: usize) -> usize {
    match number % 50 {
        49 => (1 << 20) + number * 1000,
        40..49 => 70_000 + number * 31 % 900_000,
        _ => number * 37 % 20_000,
    }
}

fn walked() -> BTreeMap<usize, usize> {
    let mut blocks = BTreeMap::new();
    let flow = heap::walk(|block| {
        assert!(blocks.insert(block.start, block.size).is_none(), "twice");
        ControlFlow::Continue(())
    });
    assert!(flow.is_continue());
    blocks
}

/// Checks what holds for all statistics.
fn check(now: &DetailedStatistics) {
    assert!(now.mapped >= now.allocated + now.waste + now.dirty + now.bookkeeping, "{now:?}");
    assert_eq!(now.waste, now.waste_tails + now.waste_guards);
    assert!(now.huge <= now.allocated && now.run_headers <= now.bookkeeping);
    for bin in &now.bins {
        assert!(bin.unused + bin.blocks * bin.size <= bin.total, "{bin:?}");
        assert!(bin.runs_non_full <= bin.runs);
    }
}

#[test]
fn a_walk_visits_each_block_in_use_once() {
    let _alone = alone();
    let before = walked();
    let blocks: Vec<_> = (0..BLOCKS).map(|number| allocate(size(number))).collect();
    let (kept, freed): (Vec<_>, Vec<_>) = blocks.iter().enumerate().partition(|(number, _)| number % 3 != 0);
    // Half of them by another thread: their owner has not taken them yet.
    let (own, others) = freed.split_at(freed.len() / 2);
    own.iter().for_each(|&(_, &block)| free(block));
    thread::scope(|scope| {
        scope.spawn(|| others.iter().for_each(|&(_, &block)| free(block)));
    });
    let mut expected: BTreeMap<_, _> = before.clone();
    expected.extend(kept.iter().map(|&(number, &block)| (block, heap::good_size(size(number)).unwrap())));
    assert_eq!(walked(), expected);
    let mut seen = 0;
    let flow = heap::walk(|_| {
        seen += 1;
        if seen == 10 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(flow.is_break() && seen == 10);
    kept.iter().for_each(|&(_, &block)| free(block));
    assert_eq!(walked(), before);
}

#[test]
fn every_address_of_a_block_leads_to_it() {
    let _alone = alone();
    for size in [1, 16, 24, 100, 1000, 5000, 65_536, 65_537, 300_000, 1 << 20, (1 << 20) + 1, 9 << 20] {
        let (block, usable) = (allocate(size), heap::good_size(size).unwrap());
        for offset in [0, 1, size / 2, size - 1, usable - 1] {
            let info = info(block + offset);
            assert_eq!((info.kind, info.start, info.size), (PointerKind::Live, block, usable), "{size} + {offset}");
            assert_ne!(info.arena, 0);
        }
        free(block);
        let kind = info(block).kind;
        match size {
            ..=65_536 => assert_eq!(kind, PointerKind::Freed, "{size}"),
            65_537..=1_048_576 => assert_eq!(kind, PointerKind::FreedPage, "{size}"),
            _ => assert_eq!(kind, PointerKind::Unknown, "{size}"),
        }
    }
    heap::trim();
}

#[test]
fn addresses_that_are_not_in_blocks_are_unknown() {
    let _alone = alone();
    let block = allocate(100);
    let chunk = block & !((4 << 20) - 1);
    let local = 0_u64;
    let others = [0, 1, usize::MAX, 1 << 46, (1 << 47) - 1, 1 << 47, chunk, chunk + 65_535, (&raw const local).addr()];
    for address in others {
        assert_eq!(info(address).kind, PointerKind::Unknown, "{address:#x}");
        assert_eq!((info(address).start, info(address).size, info(address).arena), (0, 0, 0));
    }
    // The end of a run of 100 KiB behind its block of 112 KiB is not there; that of 48 bytes is.
    let run = allocate(48) & !0xFFFF;
    assert_eq!(info(run + 65_535).kind, PointerKind::Unknown);
    // Any address of the chunk has an answer.
    (chunk..chunk + (4 << 20)).step_by(4093).for_each(|address| {
        let info = info(address);
        assert!(info.start <= address && (info.size == 0 || address < info.start + info.size));
    });
    free(block);
}

#[test]
fn pointers_are_judged_while_chunks_come_and_go() {
    let _alone = alone();
    let is_over = AtomicBool::new(false);
    let (address, asked) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        let (is_over, address, asked) = (&is_over, &address, &asked);
        let asking = scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let any = address.load(Ordering::Relaxed);
                for offset in [0, 4 << 20, 8 << 20] {
                    info(any.wrapping_add(offset));
                }
                let _ = heap::walk(|_| ControlFlow::Continue(()));
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Some rounds, and as many more as it takes until the other thread has been in the middle.
        for round in 0.. {
            if round >= ROUNDS / 5 && asked.load(Ordering::Relaxed) > 1 {
                break;
            }
            let blocks: Vec<_> = (0..CHUNKS_FULL).map(|_| allocate(900_000)).collect();
            address.store(blocks[CHUNKS_FULL - 1], Ordering::Relaxed);
            blocks.into_iter().for_each(free);
            heap::trim();
        }
        is_over.store(true, Ordering::Relaxed);
        asking.join().unwrap();
    });
}

use std::sync::atomic::AtomicUsize;

#[test]
fn a_good_size_is_the_usable_size() {
    let _alone = alone();
    let sizes = (0..=20_000).chain((20_000..=1_200_000).step_by(509));
    let near = (0..=21).flat_map(|shift| (-1..=1).map(move |by| (1_usize << shift).saturating_add_signed(by)));
    for size in sizes.chain(near) {
        let block = allocate(size);
        // SAFETY: a block of this test's.
        let usable = unsafe { heap::usable_size(std::ptr::without_provenance(block)) };
        assert_eq!(Some(usable), heap::good_size(size), "{size}");
        free(block);
    }
}

#[test]
fn statistics_account_for_every_byte() {
    let _alone = alone();
    let before = heap::detailed_statistics();
    let blocks: Vec<_> = (0..5000).map(|number| allocate(size(number))).collect();
    let usable = |number: usize| heap::good_size(size(number)).unwrap();
    let now = heap::detailed_statistics();
    check(&now);
    assert_eq!(now.allocated - before.allocated, (0..5000).map(usable).sum::<usize>());
    assert_eq!(now.blocks - before.blocks, 5000);
    assert_eq!(now.huge_blocks - before.huge_blocks, 100);
    assert_eq!(heap::lite_statistics().mapped, now.mapped);
    assert!(heap::lite_statistics().allocated_max >= now.allocated);
    let of_bin = |bin: &heap::BinStatistics| (0..5000).filter(|&number| usable(number) == bin.size).count();
    for (bin, old) in now.bins.iter().zip(&before.bins) {
        assert_eq!(bin.blocks - old.blocks, of_bin(bin), "{bin:?}");
    }
    blocks.into_iter().for_each(free);
    let freed = heap::detailed_statistics();
    check(&freed);
    assert_eq!((freed.allocated, freed.blocks), (before.allocated, before.blocks));
    heap::trim();
    let trimmed = heap::detailed_statistics();
    check(&trimmed);
    assert_eq!(trimmed.dirty, 0);
    assert!(trimmed.madvised > 0, "{trimmed:?}");
    assert_eq!(heap::lite_statistics().mapped, trimmed.mapped);
    assert!(now.overhead_in_10_000() < 10_000);
}

#[test]
fn statistics_hold_while_threads_work() {
    let _alone = alone();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..3 {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut blocks = Vec::new();
                for number in seed.. {
                    blocks.push(allocate(size(number * 7)));
                    if blocks.len() > BLOCKS / 15 {
                        blocks.drain(..BLOCKS / 25).for_each(free);
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                }
                blocks.into_iter().for_each(free);
            });
        }
        for _ in 0..ROUNDS {
            check(&heap::detailed_statistics());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    heap::trim();
}

#[test]
fn statistics_are_written_in_three_formats() {
    let _alone = alone();
    let block = allocate(1000);
    let written = |format| {
        let mut text = String::new();
        heap::write_statistics(format, &mut text).unwrap();
        text
    };
    // The thread of the test before may still be ending: until nothing changes meanwhile.
    let (now, [text, json, metrics]) = loop {
        let before = heap::detailed_statistics();
        let formats = [StatisticsFormat::Text, StatisticsFormat::Json, StatisticsFormat::OpenMetrics];
        let texts = formats.map(written);
        if heap::detailed_statistics() == before {
            break (before, texts);
        }
    };
    assert!(text.contains(&format!("mapped {:>15}  Memory that is mapped.\n", now.mapped)), "{text}");
    assert!(json.starts_with(&format!("{{\"mapped\":{},\"allocated\":{}", now.mapped, now.allocated)), "{json}");
    assert!(json.ends_with("]}\n") && json.contains("{\"size\":1024,\"runs\":"), "{json}");
    assert!(metrics.contains(&format!("\nheapledger_allocator_allocated_bytes {}\n", now.allocated)), "{metrics}");
    assert!(metrics.contains("heapledger_allocator_bin_unused_by_size_bytes{size=\"1024\"} "), "{metrics}");
    assert!(text.contains(&format!("operations {:>15}  Alloc", now.operations)), "{text}");
    assert!(json.contains(&format!("\"operations\":{},\"bins\":[", now.operations)), "{json}");
    assert!(metrics.contains(&format!("\nheapledger_allocator_operations_total {}\n", now.operations)), "{metrics}");
    let bin = now.bins.iter().position(|bin| bin.size == 1024).unwrap();
    let heap::BinOperations { allocations, frees, .. } = now.bin_operations[bin];
    assert!(allocations > 0 && json.contains(&format!("\"allocations\":{allocations},\"frees\":{frees}}}")), "{json}");
    assert!(metrics.contains(&format!("\nheapledger_allocator_frees_by_size_total{{size=\"1024\"}} {frees}\n")));
    free(block);
}
