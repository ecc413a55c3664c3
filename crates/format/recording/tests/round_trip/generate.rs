//! Generators of values that several tests need.

use heapledger_core::{Blocks, Bytes, StackId};
use heapledger_recording::*;
use proptest::prelude::*;

pub(crate) fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..20)
}

pub(crate) fn many_bytes() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(bytes(), 0..4)
}

/// Returns numbers of all lengths.
pub(crate) fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0u32..64).prop_map(|(number, shift)| number >> shift)
}

pub(crate) fn live() -> impl Strategy<Value = Live> {
    (number(), number()).prop_map(|(bytes, blocks)| Live { bytes: Bytes(bytes), blocks: Blocks(blocks) })
}

pub(crate) fn stack() -> impl Strategy<Value = StackId> {
    (0..=StackId::MAX.0).prop_map(StackId)
}

pub(crate) fn counts() -> impl Strategy<Value = Counts> {
    prop::collection::vec(number(), 37).prop_map(|n| Counts {
        allocations: Blocks(n[0]),
        reallocations: Blocks(n[1]),
        frees: Blocks(n[2]),
        failed: Blocks(n[3]),
        bytes_allocated: Bytes(n[4]),
        bytes_live_max: Bytes(n[5]),
        bytes_live_max_time: Time(n[6]),
        blocks_at_bytes_max: Blocks(n[7]),
        blocks_live_max: Blocks(n[8]),
        bytes_live_end: Bytes(n[9]),
        blocks_live_end: Blocks(n[10]),
        temporary_allocations: Blocks(n[11]),
        frees_unknown: Blocks(n[12]),
        frees_inherited: Blocks(n[13]),
        bytes_inherited_live_end: Bytes(n[14]),
        blocks_inherited_live_end: Blocks(n[15]),
        events_lost: n[16],
        events_late: n[17],
        threads: n[18],
        events_lost_full: n[19],
        events_lost_nested: n[20],
        events_lost_no_ring: n[21],
        events_lost_unreadable: n[22],
        events_lost_pools: n[30],
        stamps_unknown: n[31],
        frees_missed: Blocks(n[33]),
        events_reordered: n[34],
        frees_paused: Blocks(n[23]),
        stacks: StackCounts {
            truncated: n[24],
            dropped: n[25],
            verified: n[26],
            mismatched: n[27],
            unasked: n[28],
            outlasting: n[29],
            missing: n[32],
            folded: n[35],
            unproven: n[36],
        },
        errors: n[29].is_multiple_of(2).then_some(CountErrors {
            allocated: Live { bytes: Bytes(n[3]), blocks: Blocks(n[4]) },
            live_end: Live { bytes: Bytes(n[5]), blocks: Blocks(n[6]) },
            live_at_peak: Live { bytes: Bytes(n[7]), blocks: Blocks(n[8]) },
        }),
    })
}
