use std::vec::Vec;

use super::*;

/// Returns the numbers of the blocks in the order of their list.
fn order(count: usize, size: usize) -> Vec<usize> {
    let mut memory = std::vec![0_u128; count * size / 16];
    let start: *mut u8 = memory.as_mut_ptr().cast();
    // SAFETY: `count` blocks of `size` bytes, aligned to 16, which the test owns.
    let mut block = unsafe { link(Key::of(0), start, count, size) };
    let mut order = Vec::new();
    while !block.is_null() {
        order.push((block.addr() - start.addr()) / size);
        // SAFETY: a block of the list, to which nobody writes.
        block = unsafe { Block::next(block) };
        assert!(order.len() <= count);
    }
    order
}

#[test]
fn each_block_is_in_the_list_once_in_an_order_that_changes() {
    for (count, size) in [(1, 16), (2, 32), (256, 16), (COUNT_MAX + 10, 48)] {
        let (first, second) = (order(count, size), order(count, size));
        let mut sorted = first.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..count), "{count}");
        assert!(count < 200 || first != second, "{count}");
    }
}

#[test]
fn each_place_is_as_likely() {
    let mut first = [0_usize; 4];
    (0..4000).for_each(|_| first[order(4, 16)[0]] += 1);
    // Six standard deviations of 27 around 1000.
    assert!(first.iter().all(|count| (836..1164).contains(count)), "{first:?}");
}
