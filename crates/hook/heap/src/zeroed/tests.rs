use super::*;
use crate::{allocate, allocate_zeroed, free};

fn is_zero(block: *const u8, size: usize) -> bool {
    // SAFETY: the callers have a block of that size, to which nobody writes meanwhile.
    unsafe { core::slice::from_raw_parts(block, size) }.iter().all(|&byte| byte == 0)
}

#[test]
fn blocks_are_zero_whatever_was_there_and_whatever_the_credit() {
    for credit in [-1, 0, 1] {
        // Blocks of runs, and mappings that are kept because the size repeats.
        for size in [LARGE, (1 << 20) - 100, 3 << 20] {
            for round in 0..4 {
                let block = allocate(size);
                // A content that the samples show, and one that they do not.
                let (from, count) = if round % 2 == 0 { (0, size) } else { (size / 2 + 9, size / 3) };
                // SAFETY: the part lies in the block, which is ours until it is freed.
                unsafe {
                    block.add(from).write_bytes(7, count);
                    free(block);
                }
                CREDIT.store(credit, Ordering::Relaxed);
                let block = allocate_zeroed(size);
                assert!(is_zero(block, size), "{size} bytes, credit {credit}, round {round}");
                // SAFETY: our block.
                unsafe { free(block) };
            }
        }
    }
    CREDIT.store(0, Ordering::Relaxed);
}

#[test]
fn samples_are_in_the_block_and_show_what_was_written() {
    let size = LARGE;
    let block = allocate_zeroed(size);
    // SAFETY: the block has as many bytes and is ours.
    unsafe {
        assert!(is_zero_here_and_there(block, size));
        block.write_bytes(1, size);
        assert!(!is_zero_here_and_there(block, size));
        let last = (SAMPLES - 1) * (size / SAMPLES) + PAGE + (SAMPLES - 1) * 8 * 61 + 8;
        assert!(last <= size);
        free(block);
    }
}

#[test]
fn one_loss_ends_it_at_first_and_not_after_many_gains() {
    assert!(next_credit(0, true) < 0);
    assert!(next_credit(next_credit(0, false), true) < 0);
    let most = (0..1000).fold(0, |credit, _| next_credit(credit, false));
    assert_eq!(most, CREDIT_MAX);
    assert!(next_credit(most, true) > 0);
}
