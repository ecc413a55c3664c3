extern crate std;

use std::collections::HashMap;
use std::vec::Vec;

use proptest::prelude::*;

use super::header::OVERFLOW;
use super::*;
use crate::mapped::source::standard::with_mappings;

fn block(size: u64) -> Block {
    Block {
        size: Bytes(size >> 1),
        stack: StackId(size as u32 & StackId::MAX.0),
        serial: Serial(size.wrapping_mul(77) % SERIAL_MAX.0),
        inherited: size.is_multiple_of(5),
        untracked: false,
        rate: Rate::EXACT,
    }
}

/// Any keys, but often the same ones; close together; with the same home as many others; and the
/// extremes.
fn key() -> impl Strategy<Value = Key> {
    let home = |hash: u64| {
        // The key of this hash, by undoing each step of `hash`.
        let inverse = |odd: u64| (0..6).fold(odd, |x, _| x.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(x))));
        let mixed = hash.wrapping_mul(inverse(0xd6e8_feb8_6659_fd93));
        let mixed = mixed ^ mixed >> 32;
        let key = Key(mixed.wrapping_mul(inverse(0x9e37_79b9_7f4a_7c15)).rotate_left(4));
        assert_eq!(super::hash(key), hash);
        key
    };
    prop_oneof![
        8 => (0_u64..300).prop_map(|n| Key(0x5555_5555_0000 + n * 16)),
        2 => (0_u64..300).prop_map(Key),
        6 => (0_u64..100).prop_map(home),
        2 => (0_u64..100).prop_map(move |n| home(!n)),
        1 => any::<u64>().prop_map(Key),
        1 => prop_oneof![Just(Key(0)), Just(Key(u64::MAX)), Just(Key(1 << 63))],
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Key, u64),
    /// Inserts a number of neighbours.
    InsertMany(Key, u8),
    Remove(Key),
    RemoveMany(Key, u8),
    Suspend(Key),
    Settle(usize, bool),
    Copy,
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => (key(), any::<u64>()).prop_map(|(key, size)| Step::Insert(key, size)),
        4 => (key(), any::<u8>()).prop_map(|(key, count)| Step::InsertMany(key, count)),
        10 => key().prop_map(Step::Remove),
        3 => (key(), any::<u8>()).prop_map(|(key, count)| Step::RemoveMany(key, count)),
        3 => key().prop_map(Step::Suspend),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(which, back)| Step::Settle(which, back)),
        1 => Just(Step::Copy),
        1 => Just(Step::Clear),
    ]
}

fn neighbours(key: Key, count: u8) -> impl Iterator<Item = Key> {
    (0..u64::from(count)).map(move |n| Key(key.0.wrapping_add(n * 16)))
}

/// Checks all that must hold between two calls.
fn check(register: &Register, model: &HashMap<Key, Block>) {
    assert_eq!(register.len(), model.len());
    assert_eq!(register.iter().collect::<HashMap<_, _>>(), *model);
    assert_eq!(register.iter().count(), model.len());
    let chunks = register.headers.len();
    assert_eq!(register.chunks.len(), chunks);
    assert!(register.length + register.reserved <= register.length_max);
    assert!(register.length_max < chunks * SLOTS || chunks == 0);
    // A full chunk's count is that of the entries that stand after it and belong before.
    let mut passed = std::vec![0_u64; chunks];
    for (&key, &block) in model {
        assert_eq!(register.get(key), Some(block));
        let home = register.home(key);
        let (chunk, _) = register.find(key, home).unwrap();
        let mut at = home.chunk;
        while at != chunk {
            passed[at] += 1;
            at = register.after(at);
        }
    }
    for (header, passed) in register.headers.iter().zip(passed) {
        let count = u64::from(header.bytes[OVERFLOW]);
        assert!(count == passed || count == 255, "{count} for {passed}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 512 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn is_a_map(steps in prop::collection::vec(step(), 1..if cfg!(miri) { 40 } else { 200 })) {
        let mut register = Register::new();
        let mut model = HashMap::new();
        let mut suspended: Vec<(Key, Block)> = Vec::new();
        for step in steps {
            match step {
                Step::Insert(key, size) => {
                    prop_assert_eq!(register.insert(key, block(size)), Ok(model.insert(key, block(size))));
                }
                Step::InsertMany(key, count) => {
                    for (n, key) in neighbours(key, count).enumerate() {
                        let block = block(n as u64);
                        prop_assert_eq!(register.insert(key, block), Ok(model.insert(key, block)));
                    }
                }
                Step::Remove(key) => prop_assert_eq!(register.remove(key), model.remove(&key)),
                Step::RemoveMany(key, count) => {
                    for key in neighbours(key, count) {
                        register.prefetch(key);
                        prop_assert_eq!(register.remove(key), model.remove(&key));
                    }
                }
                Step::Suspend(key) => {
                    let block = register.suspend(key).map(|(block, ())| block);
                    prop_assert_eq!(block, model.remove(&key));
                    suspended.extend(block.map(|block| (key, block)));
                }
                Step::Settle(which, back) => {
                    if suspended.is_empty() {
                        continue;
                    }
                    let (key, block) = suspended.swap_remove(which % suspended.len());
                    if !back {
                        register.forget();
                    } else if with_mappings(0, || register.restore(key, block, ())).is_ok() {
                        prop_assert_eq!(model.insert(key, block), None);
                    } else {
                        prop_assert!(model.contains_key(&key));
                    }
                }
                Step::Copy => {
                    let copy = register.copy().unwrap();
                    let inherited = |(&key, &block)| (key, Block { inherited: true, ..block });
                    check(&copy, &model.iter().map(inherited).collect());
                }
                Step::Clear => {
                    // Suspended blocks do not come back.
                    suspended.clear();
                    register.clear();
                    model.clear();
                }
            }
            check(&register, &model);
        }
    }

    #[test]
    fn blocks_keep_every_bit(
        size: u64, stack in 0..=StackId::MAX.0, serial in 0..=SERIAL_MAX.0, inherited: bool, untracked: bool,
        key: u64, rate in 0..=40_u64,
    ) {
        let serial = Serial(if untracked { 0 } else { serial });
        let inherited = inherited | untracked;
        let rate = Rate::from_logarithm(rate);
        let size = Bytes(size >> if rate == Rate::EXACT { 1 } else { 7 });
        let block = Block { size, stack: StackId(stack), serial, rate, inherited, untracked };
        let mut register = Register::new();
        prop_assert_eq!(register.insert(Key(key), block), Ok(None));
        prop_assert_eq!(register.get(Key(key)), Some(block));
        prop_assert_eq!(register.remove(Key(key)), Some(block));
    }
}

#[test]
fn an_entry_is_24_bytes_and_a_header_16() {
    assert_eq!((size_of::<Entry<()>>(), size_of::<Chunk<()>>(), size_of::<Header>()), (24, 360, 16));
}

#[test]
fn values_beyond_their_bits_are_cut() {
    let mut register = Register::new();
    let (stack, serial) = (StackId(u32::MAX), Serial(u64::MAX));
    let large = Block { size: Bytes(1), stack, serial, inherited: false, untracked: false, rate: Rate::EXACT };
    register.insert(Key(1), large).unwrap();
    assert_eq!(register.get(Key(1)), Some(Block { stack: StackId::MAX, serial: SERIAL_MAX, ..large }));
}

#[test]
fn no_memory_leaves_it_unchanged() {
    let mut register = Register::new();
    let mut model = HashMap::new();
    assert_eq!(with_mappings(0, || register.insert(Key(1), block(1))), Err(OutOfMemory));
    assert_eq!(with_mappings(1, || register.insert(Key(1), block(1))), Err(OutOfMemory));
    let mut refused = 0;
    for n in 0..1000 {
        let key = Key(n * 16);
        for mappings in 0..2 {
            match with_mappings(mappings, || register.insert(key, block(n))) {
                Ok(displaced) => assert_eq!(displaced, model.insert(key, block(n))),
                Err(OutOfMemory) => refused += 1,
            }
        }
        if !model.contains_key(&key) {
            check(&register, &model);
            assert_eq!(register.insert(key, block(n)), Ok(None));
            model.insert(key, block(n));
        }
    }
    check(&register, &model);
    assert!(refused > 10);
    assert!(with_mappings(1, || register.copy().is_err()));
    check(&register.copy().unwrap(), &model.iter().map(|(&key, &b)| (key, Block { inherited: true, ..b })).collect());
}

#[test]
fn suspended_blocks_come_back_without_memory() {
    let mut register = Register::new();
    let mut suspended = Vec::new();
    for n in 0..2000_u64 {
        register.insert(Key(n * 16), block(n)).unwrap();
        if n % 3 == 0 {
            suspended.push((Key(n * 16), register.suspend(Key(n * 16)).unwrap().0));
        }
    }
    with_mappings(0, || {
        // Take all the room there is.
        let mut key = 1 << 40;
        while register.insert(Key(key), block(1)).is_ok() {
            key += 16;
        }
        for (key, block) in &suspended {
            assert!(register.restore(*key, *block, ()).is_ok());
        }
    });
    assert_eq!(register.reserved, 0);
    for (key, block) in suspended {
        assert_eq!(register.get(key), Some(block));
    }
}

#[test]
fn a_count_that_was_too_high_to_keep_costs_time_only() {
    // 300 keys of one home pass the chunk more often than it can count.
    let mut register = Register::new();
    register.insert(Key(1 << 50), block(0)).unwrap();
    while register.length_max < 1000 {
        register.grow().unwrap();
    }
    let home = register.home(Key(0)).chunk;
    let keys: Vec<Key> = (0..).map(Key).filter(|&key| register.home(key).chunk == home).take(300).collect();
    let mut model = HashMap::from([(Key(1 << 50), block(0))]);
    for &key in &keys {
        assert_eq!(register.insert(key, block(key.0)), Ok(model.insert(key, block(key.0))));
    }
    assert_eq!(register.headers[home].bytes[OVERFLOW], 255);
    check(&register, &model);
    for key in keys {
        assert_eq!(register.remove(key), model.remove(&key));
        check(&register, &model);
    }
    assert_eq!(register.headers[home].bytes[OVERFLOW], 255);
    register.grow().unwrap();
    assert!(register.headers.iter().all(|header| header.bytes[OVERFLOW] == 0));
}

#[test]
fn stays_dense() {
    let mut register = Register::new();
    let mut bytes = Vec::new();
    let blocks = if cfg!(miri) { 1_000 } else { 1_000_000 };
    for n in 0..blocks {
        register.insert(Key(0x7f00_0000_0000 + n * 48), block(n)).unwrap();
        if n >= 100_000 && n % 1000 == 0 {
            bytes.push(register.bytes_mapped() as f64 / n as f64);
        }
    }
    if !cfg!(miri) {
        let mean = bytes.iter().sum::<f64>() / bytes.len() as f64;
        assert!(mean < 33.0 && bytes.iter().all(|&bytes| bytes < 37.0), "{mean}");
    }
}
