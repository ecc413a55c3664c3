//! A sampler's blocks are exactly the allocations that it has asked for. One test, because a
//! process has one sampler.
#![cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]

use std::cell::Cell;
use std::sync::Mutex;

use heapledger_core::block_sampler::{self, BlockSampler, Counted, SamplerUsage};
use heapledger_core::hooks::Pointer;
use heapledger_core::sample::Random;
use heapledger_heap as heap;

thread_local! {
    /// The number of the next delay, and the bound of all; with `None`, nothing is sampled.
    static DELAYS: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
}

/// The sizes for which a block was sampled.
static SAMPLED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
/// The memory of the sampler's blocks, which are never freed.
static MEMORY: [u128; 64] = [0; 64];

/// The bytes in blocks, in the rest of pages and in tables that the sampler says it has.
const USAGE: [usize; 3] = [300, 4_000, 50_000];

static SAMPLER: BlockSampler = BlockSampler { count, allocate, free, reallocate, usable_size, owns, usage };

extern "C" fn count() -> Counted {
    match DELAYS.get() {
        Some((number, bound)) => {
            DELAYS.set(Some((number + 1, bound)));
            Counted { allocations: delay(number, bound) as u32, ends_with_sample: 1 }
        }
        None => Counted { allocations: 1000, ends_with_sample: 0 },
    }
}

/// Returns a number below a bound; with the bound 0, one from a geometric distribution with the
/// mean 100, in which every allocation has the same probability whatever was sampled before.
fn delay(number: u64, bound: u64) -> u64 {
    let word = Random::new(number).word();
    if bound > 0 { word % bound } else { (-((word >> 11) as f64 / (1_u64 << 53) as f64).ln() * 100.0) as u64 }
}

unsafe extern "C" fn allocate(size: usize, alignment: usize) -> Pointer {
    assert!(alignment >= 16);
    // The test's own vector is in another heap: that of the C library.
    SAMPLED.lock().unwrap().push(size);
    MEMORY.as_ptr().cast_mut().cast()
}

unsafe extern "C" fn free(_: Pointer) {}

unsafe extern "C" fn reallocate(_: Pointer, _: usize) -> Pointer {
    std::ptr::null_mut()
}

unsafe extern "C" fn usable_size(_: Pointer) -> usize {
    7
}

unsafe extern "C" fn owns(address: usize) -> u32 {
    u32::from(MEMORY.as_ptr_range().contains(&std::ptr::without_provenance(address)))
}

unsafe extern "C" fn usage() -> SamplerUsage {
    let [allocated, fragmentation, metadata] = USAGE;
    SamplerUsage { blocks: 3, allocated, fragmentation, metadata }
}

fn is_sampled(block: *mut u8) -> bool {
    // SAFETY: `owns` may be called with any address.
    unsafe { owns(block.addr()) != 0 }
}

#[test]
fn exactly_the_allocations_that_are_asked_for_are_sampled() {
    // Blocks that are in a list already are counted, too.
    let early: Vec<*mut u8> = (0..10).map(|_| heap::allocate(48)).collect();
    block_sampler::set_supported(heap::restart_sampling);
    let before = heap::detailed_statistics();
    // SAFETY: the sampler is static, and its blocks are nobody else's.
    assert!(unsafe { block_sampler::set(&SAMPLER) });
    its_memory_is_in_the_statistics(&before);
    // SAFETY: as above.
    assert!(!unsafe { block_sampler::set(&SAMPLER) }, "there is one sampler");
    // SAFETY: a block of this allocator.
    early.into_iter().for_each(|block| unsafe { heap::free(block) });
    blocks_of_one_class();
    blocks_that_are_taken_out_of_turn();
    every_block();
    blocks_of_several_classes();
    sizes_that_are_only_reallocated();
}

/// The statistics have the sampler's memory, each part where the allocator's own is.
fn its_memory_is_in_the_statistics(before: &heap::DetailedStatistics) {
    let (now, lite) = (heap::detailed_statistics(), heap::lite_statistics());
    let added = [now.allocated - before.allocated, now.waste - before.waste, now.bookkeeping - before.bookkeeping];
    assert_eq!((added, now.blocks - before.blocks), (USAGE, 3));
    assert_eq!(now.mapped - before.mapped, USAGE.iter().sum::<usize>());
    assert_eq!(now.waste, now.waste_tails + now.waste_guards);
    assert!(lite.allocated_max >= now.allocated && lite.mapped >= now.mapped, "{lite:?}, {now:?}");
}

/// Blocks of one class, some of which are freed, are sampled at exactly the delays.
fn blocks_of_one_class() {
    let mut number = 0;
    let mut expected = 0;
    let mut next = || {
        number += 1;
        delay(number, 100) as usize
    };
    // The first allocation makes 64 ready of those above 512 bytes, which are counted.
    let mut blocks = vec![heap::allocate(33)];
    DELAYS.set(Some((1, 100)));
    let first = next();
    let before = (0..2000).find(|_| is_sampled(heap::allocate(33))).unwrap();
    assert!((first + 900 - 64 - 128..=first + 1000).contains(&before), "{before}, delay {first}");
    expected += 1;
    let mut until = next();
    // The sampler's operations are none of the allocator's.
    let mut operations = heap::detailed_statistics().operations;
    for number in 0..20_000 {
        let block = heap::allocate(33 + number % 16);
        operations += usize::from(!is_sampled(block)) + usize::from(number % 3 == 0 && !blocks.is_empty());
        assert_eq!(is_sampled(block), until == 0, "allocation {number}");
        until = if until == 0 {
            expected += 1;
            next()
        } else {
            until - 1
        };
        if !is_sampled(block) {
            blocks.push(block);
        }
        if number % 3 == 0 && !blocks.is_empty() {
            let block = blocks.swap_remove(number * 7919 % blocks.len());
            // SAFETY: a block of this allocator, which is freed once.
            unsafe { heap::free(block) };
        }
        if number % 97 == 0 {
            assert_eq!(heap::detailed_statistics().operations, operations, "allocation {number}");
        }
    }
    assert!(expected > 350);
    let sampled = std::mem::take(&mut *SAMPLED.lock().unwrap());
    assert_eq!(sampled.len(), expected);
    assert!(sampled.iter().all(|size| (33..49).contains(size)), "the sampler is passed the size that was asked for");
}

/// Blocks of classes that are taken out of turn are sampled at exactly the delays, too.
fn blocks_that_are_taken_out_of_turn() {
    for size in [5000, 70_000] {
        DELAYS.set(Some((1, 1)));
        drain();
        (0..300).for_each(|number| assert!(is_sampled(heap::allocate(size)), "{size} bytes, allocation {number}"));
        let mut number = 4;
        DELAYS.set(Some((number + 1, 100)));
        let mut next = || {
            number += 1;
            delay(number, 100) as usize
        };
        let mut until = next();
        let mut blocks = Vec::new();
        for number in 0..20_000 {
            let block = heap::allocate(size);
            assert_eq!(is_sampled(block), until == 0, "{size} bytes, allocation {number}");
            until = if until == 0 { next() } else { until - 1 };
            if !is_sampled(block) {
                blocks.push(block);
            }
            if blocks.len() > number % 29 {
                let block = blocks.swap_remove(number * 7919 % blocks.len());
                // SAFETY: a block of this allocator, which is freed once.
                unsafe { heap::free(block) };
            }
        }
        // SAFETY: as above.
        blocks.into_iter().for_each(|block| unsafe { heap::free(block) });
    }
}

/// Every allocation can be sampled, of any size up to 1 MiB, also if it is aligned.
fn every_block() {
    DELAYS.set(Some((1, 1)));
    drain();
    // A block that is reallocated is not sampled, and the others still are.
    DELAYS.set(None);
    while is_sampled(heap::allocate(100)) {}
    let mut grown = heap::allocate(100);
    DELAYS.set(Some((1, 1)));
    drain();
    for number in 0..3000_usize {
        // SAFETY: a block of this allocator, which nobody else uses.
        grown = unsafe { heap::reallocate(grown, 16 + number * 37 % 900) };
        assert!(!is_sampled(grown));
        let size = number * number % (1 << 20);
        let block = match number % 3 {
            0 => heap::allocate(size),
            1 => heap::allocate_aligned(size, 16 << (number % 6)),
            _ => heap::allocate(size / 1000),
        };
        assert!(is_sampled(block), "{number}");
    }
    // SAFETY: a block of the sampler.
    assert_eq!(unsafe { heap::usable_size(MEMORY.as_ptr().cast()) }, 7);
}

/// Each of several classes gets its share, also those above 512 bytes.
fn blocks_of_several_classes() {
    DELAYS.set(Some((1, 0)));
    drain();
    SAMPLED.lock().unwrap().clear();
    let sizes = [24, 200, 700, 5000];
    let mut kept = Vec::new();
    for number in 0..400_000_usize {
        // A tenth of the allocations has the first size, two the second, and so on.
        let size = sizes[[0, 1, 1, 2, 2, 2, 3, 3, 3, 3][number * 7 % 10]];
        let block = heap::allocate(size);
        if !is_sampled(block) {
            kept.push(block);
        }
        if kept.len() > 300 {
            // SAFETY: a block of this allocator, which is freed once.
            unsafe { heap::free(kept.swap_remove(number * 31 % 300)) };
        }
    }
    let sampled = SAMPLED.lock().unwrap();
    for (share, size) in (1..).zip(sizes) {
        let count = sampled.iter().filter(|&&other| other == size).count();
        // The distance of two samples has a mean of 100.5; the least count a deviation of 5 %.
        let expected = 398 * share;
        assert!((expected * 8 / 10..expected * 12 / 10).contains(&count), "{size}: {count} instead of {expected}");
    }
}

/// A sample that fell to a size of which blocks are only reallocated becomes one of another size.
fn sizes_that_are_only_reallocated() {
    DELAYS.set(None);
    drain();
    let mut block = heap::allocate(100);
    let mut reallocate = |times: usize| {
        for _ in 0..times {
            for size in [300, 100] {
                // SAFETY: a block of this allocator, which nobody else uses.
                block = unsafe { heap::reallocate(block, size) };
                assert!(!is_sampled(block));
            }
        }
    };
    // From here on, both sizes wait for an allocation.
    DELAYS.set(Some((1, 100)));
    reallocate(3000);
    DELAYS.set(None);
    reallocate(100);
    assert!((0..5000).any(|_| is_sampled(heap::allocate(24))));
}

/// Makes allocations until the counts of the former delays are used up.
fn drain() {
    for _ in 0..3000 {
        for size in [24, 48, 100, 200, 700, 5000] {
            let block = heap::allocate(size);
            if !is_sampled(block) {
                // SAFETY: a block of this allocator, which is freed once.
                unsafe { heap::free(block) };
            }
        }
    }
}
