extern crate std;

use std::boxed::Box;
use std::vec::Vec;

use heapledger_core::sample::Rate;
use heapledger_core::totals::Time;
use heapledger_core::{Bytes, StackId, ThreadId, TypeId};

use super::*;
use crate::register::Key;
use crate::shared::{Allocation, SharedLedger};

const THREAD: ThreadId = ThreadId(1);

fn ledger(blocks: u64) -> Box<SharedLedger> {
    let ledger = Box::new(SharedLedger::new());
    (0..blocks).for_each(|number| allocate(&ledger, key(number)));
    ledger
}

fn key(number: u64) -> Key {
    Key(0x1000 + number * 64)
}

/// Allocates a block of 48 bytes with 56 usable ones.
fn allocate(ledger: &SharedLedger, key: Key) {
    let (size, usable) = (Bytes(48), Bytes(56));
    let (rate, stack, thread) = (Rate::EXACT, StackId(7), THREAD);
    let new = Allocation { key, size, rate, usable, stack, thread, time: Time(0), stamp: TypeId(1) };
    let _ = ledger.allocate(&new).unwrap();
}

fn mark(reporter: u32, is_kept: bool) -> Mark {
    Mark { reporter: TypeId(reporter), stack: StackId(reporter), is_kept }
}

fn defects(ledger: &SharedLedger) -> Vec<(DefectKind, u32, u64)> {
    let defects: Vec<_> = (0..).map_while(|number| ledger.defect_by_number(number)).collect();
    let snapshot = ledger.snapshot(|| 0, None).unwrap();
    assert_eq!(
        (snapshot.defects().collect::<Vec<_>>(), snapshot.defects_count()),
        (defects.clone(), ledger.defects_count())
    );
    defects.iter().map(|defect| (defect.kind, defect.mark.reporter.0, defect.count)).collect()
}

#[test]
fn a_block_that_is_counted_for_less_than_it_is() {
    let ledger = ledger(3);
    for (number, measured) in [(0, 0), (1, 56), (2, 57), (0, 48), (1, 48), (2, 1)] {
        ledger.mark(key(number), mark(1, false), measured).unwrap();
    }
    assert_eq!(defects(&ledger), [(DefectKind::Partly, 1, 3)]);
    let defect = ledger.defect_by_number(0).unwrap();
    let block = defect.block.unwrap();
    assert_eq!((defect.address, defect.measured, block.key, block.usable.0), (key(0).0, 48, key(0), 56));
    assert_eq!(block.stack, StackId(7));
}

#[test]
fn a_mark_that_stays_is_taken_back_before_the_block_is_freed() {
    let ledger = ledger(6);
    for number in 0..6 {
        ledger.mark(key(number), mark(1, number != 5), 0).unwrap();
    }
    ledger.mark(key(1), mark(2, true), 0).unwrap();
    assert!(ledger.unmark(key(0), TypeId(1)));
    assert!(!ledger.unmark(key(0), TypeId(1)), "once");
    assert!(!ledger.unmark(key(5), TypeId(1)), "it goes by itself");
    assert!(!ledger.unmark(key(77), TypeId(1)), "there is no such block");
    for number in [0, 1, 5] {
        ledger.free(THREAD, key(number));
    }
    assert_eq!(defects(&ledger), [(DefectKind::FreedWhileReported, 1, 1), (DefectKind::FreedWhileReported, 2, 1)]);
    let pending = ledger.begin_realloc(THREAD, key(2));
    ledger.cancel_realloc(pending);
    let pending = ledger.begin_realloc(THREAD, key(2));
    ledger.finish_as_free(pending);
    assert_eq!(defects(&ledger)[0], (DefectKind::FreedWhileReported, 1, 2));
    // Defects of marks that stay are kept as long as the marks.
    ledger.misreport(3, mark(3, false), None, 0);
    ledger.clear_marks();
    ledger.free(THREAD, key(3));
    assert_eq!(defects(&ledger), [(DefectKind::FreedWhileReported, 1, 3), (DefectKind::FreedWhileReported, 2, 1)]);
    ledger.clear();
    assert_eq!(defects(&ledger), []);
}

#[test]
fn blocks_freed_while_reporters_are_asked() {
    let ledger = ledger(4);
    let mark_and_free = |number| {
        ledger.mark(key(number), mark(1, false), 0).unwrap();
        ledger.free(THREAD, key(number));
    };
    mark_and_free(0);
    ledger.begin_marks();
    assert_eq!(defects(&ledger), []);
    mark_and_free(1);
    ledger.free(THREAD, key(2));
    ledger.marks_complete();
    mark_and_free(3);
    assert_eq!(defects(&ledger), [(DefectKind::FreedWhileReported, 1, 1)]);
    ledger.begin_marks();
    assert_eq!(defects(&ledger), []);
}

#[test]
fn the_first_different_ones_are_kept_and_all_are_counted() {
    let ledger = ledger(1);
    let inside = ledger.get(key(0));
    for iteration in 0..3 {
        for reporter in 0..100 {
            let inside = inside.filter(|_| reporter % 2 == 0);
            ledger.misreport(0x1001 + iteration, mark(reporter + 1, reporter % 4 == 0), inside, 0);
        }
    }
    let found = defects(&ledger);
    assert_eq!((found.len(), ledger.defects_count()), (64, 300));
    assert_eq!(found[..2], [(DefectKind::Interior, 1, 3), (DefectKind::NoBlock, 2, 3)]);
    assert_eq!(ledger.defect_by_number(0).unwrap().address, 0x1001, "that of the first time");
    ledger.clear_marks();
    assert_eq!((defects(&ledger).len(), ledger.defects_count()), (16, 75));
}
