//! Boxes that are made and dropped: `stamps MODE COUNT`. What `benches/instructions` counts:
//! without stamps (`plain`), each stamped (`stamped`), twice (`twice`), or with a stamp on an
//! address inside of a map (`inside`); with `-ledger` behind it, while a ledger records everything.

use std::collections::HashMap;
use std::hint::black_box;

use heapledger::{Allocator, Ledger, LedgerOptions, stamp};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or_default();
    let count: u64 = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1_000);
    let (mode, with_ledger) = mode.strip_suffix("-ledger").map_or((&*mode, false), |mode| (mode, true));
    let map: HashMap<u64, u64> = (0..100).map(|number| (number, number)).collect();
    if with_ledger {
        Ledger::start(LedgerOptions::EXACT).expect("it does not run yet");
    }
    let map = if with_ledger { map.clone() } else { map };
    match mode {
        "stamped" => stamped(count),
        "twice" => twice(count),
        "inside" => inside(&map, count),
        _ => plain(count),
    }
}

#[inline(never)]
fn plain(count: u64) {
    for number in 0..count {
        drop(black_box(Box::new(black_box(number))));
    }
}

#[inline(never)]
fn stamped(count: u64) {
    for number in 0..count {
        drop(black_box(stamp!(Box::new(black_box(number)), "number")));
    }
}

#[inline(never)]
fn twice(count: u64) {
    for number in 0..count {
        let number = stamp!(Box::new(black_box(number)), "number");
        drop(black_box(stamp!(number, "again")));
    }
}

#[inline(never)]
fn inside(map: &HashMap<u64, u64>, count: u64) {
    for number in 0..count {
        drop(black_box(Box::new(black_box(number))));
        stamp!(black_box(map), "map");
    }
}
