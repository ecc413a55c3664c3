//! Hostile files never make the reader panic: the body of the fuzz target as a property test.

use heapledger_recording::fuzzing::{exercise, read_everything, resealed, sample};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

#[test]
fn any_bytes() {
    fuzz(prop::collection::vec(any::<u8>(), 0..400), |data| exercise(&data));
}

#[test]
fn any_chunks() {
    fuzz(prop::collection::vec(hostile_chunk(), 0..6), |chunks| exercise(&[vec![1], chunks.concat()].concat()));
}

#[test]
fn a_few_changed_bytes() {
    let change = (0u8..18, any::<bool>(), 0u16..120, any::<u8>());
    fuzz(prop::collection::vec(change, 1..6), |mut changes| {
        changes.sort();
        let mut data = vec![2];
        for (chunk, head, at, value) in changes {
            let [low, high] = at.to_le_bytes();
            data.extend([chunk | if head { 0x80 } else { 0 }, low, high, value]);
        }
        exercise(&data);
    });
}

#[test]
fn many_changed_bytes() {
    fuzz((1u64.., 1u64..200), |(seed, density)| change_many_bytes(seed, density));
}

#[test]
fn what_was_found() {
    // A node of a forked image with an id of its parent's.
    change_many_bytes(7683138671065973486, 106);
    // An allocation with a field for releases.
    change_many_bytes(11463533849074973214, 194);
}

fn change_many_bytes(seed: u64, density: u64) {
    // The seeds above were found with this generator, xorshift64.
    let mut state = seed;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    read_everything(&resealed(&sample(), |_, head, contents| {
        for byte in head.iter_mut().chain(contents) {
            if random() % density == 0 {
                *byte = random() as u8;
            }
        }
    }));
}

fn fuzz<S: Strategy>(strategy: S, body: impl Fn(S::Value)) {
    let cases = Config::default().cases.max(2000);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let run = |value| {
        body(value);
        Ok(())
    };
    runner.run(&strategy, run).expect("no panic");
}

/// Returns a chunk that looks right from outside, with small numbers, which have a meaning more
/// often than large ones.
fn hostile_chunk() -> impl Strategy<Value = Vec<u8>> {
    let byte = || prop_oneof![0u8..12, any::<u8>()];
    let field = (
        prop_oneof![
            Just(8u8),
            Just(16),
            Just(24),
            Just(32),
            Just(40),
            Just(48),
            Just(80),
            Just(88),
            Just(96),
            Just(112)
        ],
        0u8..12,
    );
    let column = (0u8..16, 0u8..3, prop::collection::vec(byte(), 0..12)).prop_map(|(id, codec, bytes)| {
        let mut column = vec![id, 0, codec, 0, bytes.len() as u8, 0, 0, 0];
        column.extend(bytes);
        column
    });
    let columns = prop::collection::vec(column, 0..12).prop_map(|columns| columns.concat());
    let contents = prop_oneof![columns, prop::collection::vec(byte(), 0..60)];
    (0u8..12, prop::collection::vec(field, 0..8), contents).prop_map(|(kind, head, contents)| {
        let mut chunk = vec![kind, head.len() as u8 * 2];
        chunk.extend(head.into_iter().flat_map(|(key, value)| [key, value]));
        chunk.extend((contents.len() as u16).to_le_bytes());
        chunk.extend(contents);
        chunk
    })
}
