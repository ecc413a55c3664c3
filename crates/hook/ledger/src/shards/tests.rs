extern crate std;

use std::boxed::Box;
use std::collections::BTreeMap;
use std::vec::Vec;

use heapledger_core::sample::Rate;
use heapledger_core::totals::Time;
use heapledger_core::{Serial, StackId, ThreadId, TypeId};
use proptest::prelude::*;

use super::live_blocks::{BATCH, Batch};
use super::*;
use crate::mapped::source::standard::with_mappings;

fn block(key: Key, usable: u64, serial: u64) -> LiveBlock {
    LiveBlock {
        key,
        size: Bytes(usable - (usable / 2).min(1000)),
        rate: Rate::EXACT,
        usable: Bytes(usable),
        stack: StackId(serial as u32 % 1000),
        serial: Serial(serial),
        stamp: TypeId(serial as u32),
        thread: ThreadId(serial as u32 % 5),
        time: Time(serial << TIME),
        backs: None,
    }
}

const TIME: u32 = LiveBlock::TIME_STEP.ilog2();

/// The semantics that a register of allocations must have.
#[test]
fn a_map_of_addresses() {
    static REGISTER: SharedRegister = SharedRegister::new();
    let (null, key) = (Key(0), Key(0x7f00_0000_1230));
    // Removing what is absent, the null pointer, and twice.
    assert_eq!((REGISTER.remove(key), REGISTER.remove(null)), (None, None));
    assert_eq!(REGISTER.insert(&block(key, 48, 1)), Ok(None));
    assert_eq!(REGISTER.remove(key), Some(block(key, 48, 1)));
    assert_eq!(REGISTER.remove(key), None);
    // Entering again overwrites; blocks of no bytes are stored.
    assert_eq!(REGISTER.insert(&block(key, 48, 2)), Ok(None));
    assert_eq!(REGISTER.insert(&block(key, 0, 3)), Ok(Some(block(key, 48, 2))));
    assert_eq!((REGISTER.len(), REGISTER.get(key)), (1, Some(block(key, 0, 3))));
    assert_eq!(REGISTER.block_at(key.0), Some(block(key, 0, 3)));
    assert_eq!(REGISTER.block_at(key.0 + 1), None);
    REGISTER.clear();
    assert!(REGISTER.is_empty());
    // Cells are used again: memory does not grow with the number of calls.
    let iterations = if cfg!(miri) { 1_000 } else { 100_000 };
    for iteration in 0..iterations {
        REGISTER.insert(&block(Key(iteration % 1000 * 16), 16, iteration)).unwrap();
        REGISTER.remove(Key((iteration + 500) % 1000 * 16));
    }
    assert!(REGISTER.bytes_mapped().0 <= SHARDS as u64 * 5 * PAGE, "{:?}", REGISTER.bytes_mapped());
}

/// A condition decides under the lock whether a block leaves, narrow or wide.
#[test]
fn a_block_leaves_if_the_condition_says_so() {
    let register = Box::new(SharedRegister::new());
    let key = Key(0x7f00_0000_1230);
    assert_eq!(register.remove_if(key, |_| true), None);
    for usable in [48, 1 << 20] {
        register.insert(&block(key, usable, 1)).unwrap();
        assert_eq!(register.remove_if(key, |found| found.serial != Serial(1)), Some((block(key, usable, 1), false)));
        assert_eq!(register.block_at(key.0 + usable - 1), Some(block(key, usable, 1)));
        assert_eq!(register.remove_if(key, |found| found.serial == Serial(1)), Some((block(key, usable, 1), true)));
        assert_eq!((register.block_at(key.0 + usable - 1), register.len()), (None, 0));
    }
}

#[test]
fn the_innermost_block_is_found() {
    let register = Box::new(SharedRegister::new());
    let memory = Key(0x10_0000);
    register.insert(&LiveBlock { backs: Some(5), ..block(memory, 1 << 16, 0) }).unwrap();
    let inner = block(Key::in_pool(5, 0x10_0000), 100, 2);
    register.insert(&inner).unwrap();
    // A pool within a block of the pool.
    register.insert(&LiveBlock { backs: Some(6), ..block(Key::in_pool(5, 0x10_2000), 8192, 3) }).unwrap();
    let innermost = block(Key::in_pool(6, 0x10_2001), 7, 4);
    register.insert(&innermost).unwrap();
    // A pool that has its memory from elsewhere.
    let elsewhere = block(Key::in_pool(65_535, 0x90_0000), 10, 5);
    register.insert(&elsewhere).unwrap();

    let at = |address| register.block_at(address).map(|block| block.key);
    assert_eq!(at(0x10_0000), Some(inner.key));
    assert_eq!(at(0x10_0063), Some(inner.key));
    // Memory of the pool in which it has no block.
    assert_eq!(register.block_at(0x10_0064).and_then(|block| block.backs), Some(5));
    assert_eq!(register.block_at(0x10_2000).and_then(|block| block.backs), Some(6));
    assert_eq!(at(0x10_2007), Some(innermost.key));
    assert_eq!(at(0x90_0009), Some(elsewhere.key));
    assert_eq!(at(0x90_000a), None);
    // A look-up may be limited to the heap.
    assert_eq!(register.block_in(0, 0x10_0000).map(|block| block.key), Some(memory));
    assert_eq!(register.block_in(5, 0x10_0000), Some(inner));
    assert_eq!(register.block_in(7, 0x10_0000), None);
    // Backing memory of pools is not a live block.
    assert_eq!(register.blocks().count(), 3);
}

/// Blocks that do not overlap, as an allocator hands them out: gap before, extent, and whether it
/// is freed in the end.
fn blocks(alignment: u64) -> impl Strategy<Value = Vec<(u64, u64, bool)>> {
    let extent = prop_oneof![
        10 => 0_u64..300,
        4 => 4000_u64..4200,
        2 => 4096_u64..100_000,
        1 => (12_u32..40, -1_i64..2).prop_map(|(bits, more)| (1_u64 << bits).wrapping_add_signed(more)),
    ];
    let gap = prop_oneof![4 => Just(0), 4 => 0_u64..100, 1 => 0_u64..20_000];
    prop::collection::vec(
        (gap.prop_map(move |gap| gap * alignment), extent, prop::bool::weighted(0.3)),
        1..if cfg!(miri) { 6 } else { 60 },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 128 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Any address: in a block, at its ends, between two.
    #[test]
    fn blocks_are_found_from_within(
        (pool, alignment, blocks) in prop_oneof![
            3 => Just((0_u32, 16_u64)), 1 => Just((0, 8)), 1 => Just((0, 1)), 1 => Just((9, 1)),
        ].prop_flat_map(|(pool, alignment)| (Just(pool), Just(alignment), blocks(alignment))),
        places in prop::collection::vec((any::<prop::sample::Index>(), 0_u64..1 << 41), if cfg!(miri) { 2 } else { 100 }),
    ) {
        let register = Box::new(SharedRegister::new());
        let mut model: BTreeMap<u64, LiveBlock> = BTreeMap::new();
        let mut next = 0x5000;
        let mut edges = Vec::new();
        for (serial, &(gap, extent, _)) in blocks.iter().enumerate() {
            let start = (next + gap).next_multiple_of(alignment);
            let block = block(Key::in_pool(pool, start), extent, serial as u64);
            prop_assert_eq!(register.insert(&block), Ok(None));
            model.insert(start, block);
            edges.extend([start.wrapping_sub(1), start, start + extent / 2, start + extent.max(1) - 1, start + extent.max(1)]);
            next = start + extent.max(1);
        }
        let starts: Vec<u64> = model.keys().copied().collect();
        for (start, (_, _, freed)) in starts.into_iter().zip(&blocks) {
            if *freed {
                prop_assert_eq!(register.remove(Key::in_pool(pool, start)), model.remove(&start));
            }
        }
        let random = places.iter().map(|(index, offset)| index.get(&edges).wrapping_add(offset >> (offset % 41)));
        for address in edges.iter().copied().chain(random) {
            let expected = model.range(..=address).next_back().map(|(_, block)| *block);
            let expected = expected.filter(|block| block.contains(address));
            prop_assert_eq!(register.block_at(address), expected, "{:#x}", address);
            prop_assert_eq!(register.block_in(pool, address), expected);
        }
        let mut found: Vec<LiveBlock> = register.blocks().collect();
        found.sort_by_key(|block| block.key);
        prop_assert_eq!(found, model.into_values().collect::<Vec<_>>());
        // Freed blocks leave nothing behind.
        register.clear();
        prop_assert_eq!((register.len(), register.bytes_mapped()), (0, Bytes(0)));
    }

    /// Blocks that are live all the while are found exactly once, whatever else happens between two
    /// pieces.
    #[test]
    fn an_iteration_goes_on(churn in prop::collection::vec((0_usize..400, 0_u64..2000, any::<bool>()), 0..200)) {
        let register = Box::new(SharedRegister::new());
        // Every third number is a block that stays.
        let key = |n: u64| Key(0x7f00_0000 + n * 1008);
        let stays = if cfg!(miri) { 50 } else { 1500 };
        for n in 0..stays {
            register.insert(&block(key(n * 3), 100, n)).unwrap();
        }
        let mut churn = churn.into_iter();
        let mut found = BTreeMap::new();
        let mut wait = 0;
        for block in register.blocks() {
            prop_assert_eq!(found.insert(block.key, ()), None);
            wait -= 1;
            while wait < 0 && let Some((more, n, enter)) = churn.next() {
                wait = (more % 50) as i64;
                if enter {
                    // Many, so that tables grow.
                    for n in n..n + 200 {
                        register.insert(&self::block(key(n * 3 + 1), 100, n)).unwrap();
                    }
                } else {
                    register.remove(key(n * 3 + 1));
                }
            }
        }
        prop_assert!((0..stays).all(|n| found.contains_key(&key(n * 3))));
    }
}

/// Far more blocks of one hash range than fit in a piece.
#[test]
fn crowded_batches_are_split() {
    let mut register = Register::<Details>::new();
    register.grow().unwrap();
    let mut keys = Vec::new();
    while !register.is_full() {
        let key = Key(keys.len() as u64 * 16);
        let position = register.position(key);
        register.fill(position, key, Block::IGNORED, Details::default());
        keys.push(key);
    }
    assert!(keys.len() > BATCH);
    let (mut batch, mut from, mut found) = (Batch::new(), Some(0), Vec::new());
    let mut pieces = 0;
    while let Some(hash) = from {
        from = batch.fill(&register, hash);
        found.extend(batch.entries[..batch.length].iter().map(|entry| entry.0));
        pieces += 1;
    }
    found.sort();
    assert_eq!(found, keys);
    assert!(pieces > 1);
}

#[test]
fn no_memory_changes_nothing() {
    let register = Box::new(SharedRegister::new());
    let (narrow, wide) = (block(Key(0x1000), 16, 1), block(Key(0x2000), 1 << 20, 2));
    assert_eq!(with_mappings(0, || register.insert(&narrow)), Err(OutOfMemory));
    // Two for the shard, none for the index.
    assert_eq!(with_mappings(2, || register.insert(&wide)), Err(OutOfMemory));
    assert_eq!((register.len(), register.block_at(0x2100)), (0, None));
    assert_eq!(register.insert(&wide), Ok(None));
    assert_eq!(register.block_at(0x2100), Some(wide));
    let mapped = register.bytes_mapped();
    register.set_bytes_max(mapped);
    let refused = (0..).map(|n| block(Key(0x2010 + n * 16), 16, n)).find(|block| register.insert(block).is_err());
    // A block that is there already can be entered again; a freed one makes room.
    let refused = refused.unwrap();
    assert_eq!(register.insert(&block(wide.key, 8192, 3)), Ok(Some(wide)));
    assert_eq!(
        (register.block_at(0x2000 + 8191).map(|block| block.serial), register.block_at(0x2000 + 8192)),
        (Some(Serial(3)), None)
    );
    assert!(register.remove(wide.key).is_some());
    assert_eq!(register.insert(&refused), Ok(None));
    assert_eq!(register.bytes_mapped(), mapped);
}

/// A decision under the lock keeps a block, changes it, or takes it out; its sizes stay.
#[test]
fn a_block_is_resolved() {
    let register = Box::new(SharedRegister::new());
    let key = Key(0x7f00_0000_1230);
    assert_eq!(register.resolve(key, |_| (Resolution::Remove, ())), None);
    for usable in [64, 3 * WIDE] {
        register.insert(&block(key, usable, 1)).unwrap();
        assert_eq!(register.resolve(key, |found| (Resolution::Keep, *found)), Some(block(key, usable, 1)));
        let other = block(Key(16), 32, 2);
        assert_eq!(register.resolve(key, |found| (Resolution::Change(other), found.serial)), Some(Serial(1)));
        let (old, new) = (block(key, usable, 1), block(key, usable, 2));
        let changed = LiveBlock { size: old.size, ..new };
        assert_eq!(register.get(key), Some(changed));
        assert_eq!(register.block_at(key.0 + usable - 1), Some(changed));
        assert_eq!(register.get(Key(16)), None);
        assert_eq!(register.resolve(key, |found| (Resolution::Remove, *found)), Some(changed));
        assert_eq!((register.get(key), register.block_at(key.0 + usable - 1)), (None, None));
    }
}
