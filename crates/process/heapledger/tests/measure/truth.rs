//! Compares measurements with the blocks that the ledger knows to be live.

use std::hint::black_box;

use heapledger::{Bytes, HeapSize, Ledger, LedgerOptions, Meter, Reported};

/// How what is measured without a ledger relates to the truth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Without {
    /// The allocator can be asked about everything.
    Asked,
    /// Some is computed: what was requested, so slop is missing.
    Computed,
    /// Some cannot be seen: a lower bound.
    Partly,
    /// Owners cannot be told apart.
    #[allow(dead_code, reason = "of types that only some who include this file have")]
    Guessed,
}

fn live() -> (u64, u64, u64) {
    let Reported { unreported, once, twice, .. } = Ledger::get().reported();
    let held = [unreported, once, twice];
    (
        held.iter().map(|held| held.blocks.0).sum(),
        held.iter().map(|held| held.bytes.0).sum(),
        held.iter().map(|held| held.bytes_usable.0).sum(),
    )
}

/// A value that was made while the ledger looked: what it is measured to own is what became live
/// with it, block by block.
#[track_caller]
pub(crate) fn expect<T>(
    what: &str,
    without: Without,
    make: impl FnOnce() -> T,
    measure: impl Fn(&T, &mut Meter) -> Bytes,
) -> u64 {
    let ledger = Ledger::start(LedgerOptions::EXACT).unwrap();
    let before = live();
    let value = black_box(make());
    let after = live();
    let (blocks, requested, usable) = (after.0 - before.0, after.1 - before.1, after.2 - before.2);

    let mut meter = Meter::new();
    assert_eq!(measure(&value, &mut meter), Bytes(usable), "{what}: {blocks} blocks, {requested} requested");
    assert_eq!(meter.computed_bytes(), Bytes(0), "{what}: computed");
    drop(meter);
    assert_eq!(live(), after, "{what}: measuring has left something");
    assert_eq!(ledger.reported().once.blocks.0, 0, "{what}: marked");

    let mut meter = Meter::marking("explicit/test");
    assert_eq!(measure(&value, &mut meter), Bytes(usable), "{what}: marking");
    let counts = meter.mark_counts();
    drop(meter);
    let reported = ledger.reported();
    assert_eq!((counts.once, counts.again, counts.no_block, counts.inside), (blocks, 0, 0, 0), "{what}");
    assert_eq!((reported.once.blocks.0, reported.once.bytes_usable.0), (blocks, usable), "{what}");
    assert_eq!(reported.twice.blocks.0, 0, "{what}");

    ledger.stop();
    let mut meter = Meter::new();
    let measured = measure(&value, &mut meter).0;
    match without {
        Without::Asked if Meter::has_usable_size() => {
            assert_eq!((measured, meter.computed_bytes().0), (usable, 0), "{what}: without a ledger")
        }
        Without::Asked | Without::Computed => {
            assert!(meter.computed_bytes().0 > 0 || usable == 0, "{what}: computed without a ledger");
            assert!(measured >= requested && measured <= usable, "{what}: {requested} <= {measured} <= {usable}");
        }
        Without::Guessed => assert!(meter.computed_bytes().0 > 0, "{what}: computed without a ledger"),
        Without::Partly => assert!(measured <= usable, "{what}: {measured} <= {usable}"),
    }
    drop(value);
    usable
}

#[track_caller]
pub(crate) fn owns<T: HeapSize>(what: &str, without: Without, make: impl FnOnce() -> T) -> u64 {
    expect(what, without, make, |value, meter| value.heap_size(meter))
}

pub(crate) fn words(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("word {number}, longer or shorter: {}", "x".repeat(number % 37)))
}
