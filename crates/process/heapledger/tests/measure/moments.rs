//! All blocks of one moment; stacks of some of them; those that are gone.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use heapledger::{Bytes, Ledger, LedgerOptions, Marked, STACK_PROBABILITY, SnapshotOptions, context};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("a_snapshot_is_of_one_moment", a_snapshot_is_of_one_moment),
    ("contents_are_those_of_the_moment", contents_are_those_of_the_moment),
    ("freed_blocks_are_counted", freed_blocks_are_counted),
    ("some_stacks_estimate_the_whole", some_stacks_estimate_the_whole),
];

#[inline(never)]
fn block(size: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(black_box(size)))
}

/// Threads move a block from hand to hand, so that there always is exactly one of its size; and a
/// reader is never in between.
fn a_snapshot_is_of_one_moment() {
    const THREADS: usize = 2;
    const SIZE: usize = 4_321;
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    let kept: Vec<_> = (0..2_000).map(|number| block(number + 1)).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut held = block(SIZE);
                while !is_over.load(Ordering::Relaxed) {
                    let next = block(SIZE);
                    held = next;
                }
                drop(held);
            });
        }
        for _ in 0..50 {
            let snapshot = ledger.snapshot(&SnapshotOptions::default()).unwrap();
            let (mut blocks, mut bytes, mut moved) = (0, 0, 0);
            for block in snapshot.blocks() {
                blocks += 1;
                bytes += block.size.0;
                moved += usize::from(block.size.0 == SIZE as u64);
            }
            let totals = snapshot.totals();
            assert_eq!((blocks, bytes), (totals.blocks_live.0, totals.bytes_live.0));
            // Between an allocation and a free each thread has two.
            assert!(moved <= 2 * THREADS, "{moved}");
            assert!(!snapshot.pause().is_zero() && snapshot.bytes_mapped() >= Bytes(40 * blocks), "{snapshot:?}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    // It stays as it was.
    assert_eq!(ledger.mark(kept[7].as_ptr(), "explicit/kept"), Marked::Once);
    let snapshot = ledger.snapshot(&SnapshotOptions::default()).unwrap();
    let address = kept[7].as_ptr().addr() as u64;
    let before = ledger.block_at(kept[7].as_ptr()).unwrap();
    drop(kept);
    ledger.clear_marks();
    ledger.stop();
    let found = snapshot.blocks().find(|block| block.address == address).unwrap();
    assert_eq!(
        (found.size, found.usable, found.stack, found.serial),
        (before.size, before.usable, before.stack, before.serial)
    );
    assert_eq!((found.marks, found.marks[0].unwrap().reporter), (before.marks, "explicit/kept"));
    assert_eq!(found.allocated_at(), Some(before.stack));
}

/// Also of blocks that nobody may read.
fn contents_are_those_of_the_moment() {
    const PAGE: usize = 4096;
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    let mut lists: Vec<Vec<u64>> = (0..3_000_u64).map(|number| (number..number + number % 60).collect()).collect();
    let hidden = vec![7_u64; 64 * PAGE / 8];
    let beyond = vec![9_u64; 64 * PAGE / 8];
    let inner = hidden.as_ptr().wrapping_byte_add(PAGE).map_addr(|address| address.next_multiple_of(PAGE));
    // SAFETY: whole pages within the vector's block, to which nobody refers meanwhile.
    let protect = |rights| assert_eq!(unsafe { libc::mprotect(inner.cast_mut().cast(), PAGE, rights) }, 0);
    protect(libc::PROT_NONE);
    let options = SnapshotOptions { contents_max: Some(Bytes(1 << 30)) };
    let snapshot = ledger.snapshot(&options).unwrap();
    protect(libc::PROT_READ | libc::PROT_WRITE);
    let find = |list: &[u64]| snapshot.blocks().find(|block| block.address == list.as_ptr().addr() as u64).unwrap();
    let before = lists.clone();
    let addresses: Vec<_> = lists.iter().map(|list| list.as_ptr().addr() as u64).collect();
    let blocks: std::collections::HashMap<_, _> = snapshot.blocks().map(|block| (block.address, block)).collect();
    lists.iter_mut().flatten().for_each(|word| *word = 0);
    for (list, address) in before.iter().zip(addresses).filter(|(list, _)| !list.is_empty()) {
        let contents = snapshot.contents(&blocks[&address]).unwrap();
        assert_eq!((&contents[..list.len()], contents.len()), (&**list, blocks[&address].size.0 as usize / 8));
    }
    assert_eq!(snapshot.contents(&find(&hidden)), None);
    assert_eq!(snapshot.contents(&find(&beyond)), Some(&*beyond));
    assert!(snapshot.bytes_mapped().0 > snapshot.totals().bytes_live.0);
    // Nothing was asked for, or little.
    let none = ledger.snapshot(&SnapshotOptions::default()).unwrap();
    assert_eq!(none.contents(&find(&beyond)), None);
    let little = ledger.snapshot(&SnapshotOptions { contents_max: Some(Bytes(PAGE as u64)) }).unwrap();
    let bytes: usize = little.blocks().filter_map(|block| little.contents(&block)).map(size_of_val).sum();
    assert!((PAGE / 2..=PAGE).contains(&bytes), "{bytes}");
}

fn freed_blocks_are_counted() {
    for keep_freed in [false, true] {
        let ledger = Ledger::start(LedgerOptions { keep_freed, ..LedgerOptions::EXACT }).unwrap();
        for number in 0..100 {
            let mut growing = block(if number % 2 == 0 { 333 } else { 555 });
            if number % 4 == 0 {
                growing.reserve_exact(777);
            }
        }
        let snapshot = ledger.snapshot(&SnapshotOptions::default()).unwrap();
        let count = |size: u64| -> u64 {
            let of_size: Vec<_> = snapshot.freed().filter(|freed| freed.size.0 == size).collect();
            for freed in &of_size {
                assert!(freed.usable.0 >= size && freed.weight == freed.blocks);
                let stack = freed.allocated_at().unwrap().to_string();
                assert!(stack.contains("freed_blocks_are_counted"), "{stack}");
            }
            of_size.iter().map(|freed| freed.blocks.0).sum()
        };
        assert_eq!([333, 555, 777].map(count), if keep_freed { [50, 50, 25] } else { [0; 3] });
        assert_eq!((snapshot.freed().next().is_some(), snapshot.freed_lost().0), (keep_freed, 0));
        if keep_freed {
            let all: u64 = snapshot.freed().map(|freed| freed.blocks.0).sum();
            assert_eq!(all, snapshot.totals().frees.0, "every block that was freed");
        }
        ledger.stop();
    }
}

/// All blocks are known, with what they are; where they come from is an estimate.
fn some_stacks_estimate_the_whole() {
    const P: f64 = STACK_PROBABILITY;
    #[inline(never)]
    fn many(count: usize, size: usize) -> Vec<Vec<u8>> {
        (0..count).map(|_| block(size)).collect()
    }
    let ledger = Ledger::start(LedgerOptions { stack_probability: Some(P), ..LedgerOptions::EXACT }).unwrap();
    assert_eq!(ledger.stack_probability(), Some(P));
    let small = many(20_000, 40);
    let large = {
        let _scope = context!("Large");
        many(2_000, 1_000)
    };
    let snapshot = ledger.snapshot(&SnapshotOptions::default()).unwrap();
    assert_eq!(snapshot.stack_probability(), Some(P));
    let expected_stack = |bytes: u64| 1.0 - (1.0 - P).powf(bytes as f64);
    for (size, count) in [(40, small.len()), (1_000, large.len())] {
        let blocks: Vec<_> = snapshot.blocks().filter(|block| block.size.0 == size).collect();
        assert_eq!(blocks.len(), count, "every block is known");
        let with_stack = blocks.iter().filter(|block| block.allocated_at().is_some()).count() as f64;
        let (p, count) = (expected_stack(blocks[0].usable.0), count as f64);
        // Five standard deviations.
        let error = 5.0 * (count * p * (1.0 - p)).sqrt();
        assert!((with_stack - count * p).abs() <= error, "{with_stack} of {count} have stacks, {p}");
        let stacks = blocks.iter().filter_map(|block| block.allocated_at());
        assert!({ stacks }.take(10).all(|stack| stack.to_string().contains("many")));
        // The context is that of each, with a stack or without.
        let contexts = blocks.iter().filter(|block| block.stack.context().any(|scope| scope.name == "Large")).count();
        assert_eq!(contexts, if size == 1_000 { blocks.len() } else { 0 });
    }
    // The sites with most are found, with about what they have: all of it is not in the chosen
    // ones.
    let sites = ledger.top_sites(2, heapledger::SiteOrder::BytesLive);
    for (site, bytes) in sites.iter().zip([2_000.0 * 1_000.0, 20_000.0 * 40.0]) {
        assert!((site.bytes_live.0 as f64 / bytes - 1.0).abs() < 0.15, "{site:?}, not {bytes}");
    }
    // A mark has a stack whatever the block has.
    let without = snapshot.blocks().find(|block| block.size.0 == 40 && block.allocated_at().is_none()).unwrap();
    let address = std::ptr::without_provenance::<u8>(without.address as usize);
    assert_eq!(ledger.mark(address, "explicit/small"), Marked::Once);
    let marks = ledger.block_at(address).unwrap().marks;
    assert!(marks[0].unwrap().stack.to_string().contains("some_stacks_estimate_the_whole"));
    ledger.stop();
    drop((small, large, snapshot));

    // Each start begins with the same trials.
    let chosen = || -> Vec<bool> {
        let ledger = Ledger::start(LedgerOptions { stack_probability: Some(0.01), ..LedgerOptions::EXACT }).unwrap();
        let mut kept = Vec::with_capacity(500);
        kept.extend((0..500).map(|_| block(50)));
        let chosen =
            kept.iter().map(|block| ledger.block_at(block.as_ptr()).unwrap().allocated_at().is_some()).collect();
        ledger.stop();
        chosen
    };
    let first = chosen();
    assert_eq!(first, chosen());
    assert!((50..450).contains(&first.iter().filter(|is_chosen| **is_chosen).count()));

    // Without a probability every block has a stack again.
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    let kept = many(100, 40);
    assert!(kept.iter().all(|block| ledger.block_at(block.as_ptr()).unwrap().stack.frames().count() > 2));
}
