//! The cost of an event: `cargo run --release -p heapledger-ledger --example bench [rounds]`.
//!
//! Takes traces from the real allocator (its addresses, in the order in which it hands them out),
//! then plays them: first fills up to a number of live blocks, then one free and one allocation in
//! turn. *random* frees any live block, the hardest case for a table; *young* frees one of the
//! latest 64 blocks nine times of ten, as programs do; *serials* is random with serials for keys,
//! as in a replay. *straight* plays event by event, *ahead* prefetches the key of the 16th event to
//! come, as the collector does. Every figure is the best of the rounds. The traces have 5,000
//! sites, some much busier than others.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::time::Instant;

use heapledger_core::sample::Rate;
use heapledger_core::{Bytes, Serial, StackId, ThreadId};
use heapledger_ledger::{Block, Key, Ledger, Register, Session, Time};
use multiply::Multiply;

mod multiply;

const AHEAD: usize = 16;
const SITES: u64 = 5_000;

#[derive(Clone, Copy)]
struct Event {
    key: u64,
    /// The size of an allocation; `u64::MAX` for a free.
    size: u64,
    stack: u32,
}

impl Event {
    fn is_free(&self) -> bool {
        self.size == u64::MAX
    }
}

struct Trace {
    fill: usize,
    events: Vec<Event>,
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)) * u128::from(n)) >> 64) as u64
    }
}

fn trace(live_blocks: usize, pairs: usize, young: bool, serials: bool) -> Trace {
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut live: Vec<(*mut u8, Layout, u64)> = Vec::with_capacity(live_blocks + 1);
    let mut events = Vec::with_capacity(live_blocks + 2 * pairs);
    let mut serial = 0;
    let mut allocate = |random: &mut Random, live: &mut Vec<_>, events: &mut Vec<Event>| {
        // Squared, so that some sites are much busier than others.
        let stack = random.below(SITES) * random.below(SITES) / SITES;
        let size = match random.below(100) {
            0..60 => 8 + stack % 13 * 8,
            60..90 => 1 + random.below(256),
            90..99 => 1 + random.below(2048),
            _ => 1 + random.below(16_384),
        };
        let layout = Layout::from_size_align(size as usize, 16).unwrap();
        // SAFETY: `alloc` requires a layout whose size is not zero. Every arm of the `match` above
        // gives at least 1.
        let address = unsafe { alloc(layout) };
        let key = if serials { serial } else { address as u64 };
        serial += 1;
        live.push((address, layout, key));
        events.push(Event { key, size, stack: (stack * 7 + 1) as u32 });
    };
    for _ in 0..live_blocks {
        allocate(&mut random, &mut live, &mut events);
    }
    for _ in 0..pairs {
        let victim = if young && random.below(10) > 0 {
            live.len() - 1 - random.below(live.len().min(64) as u64) as usize
        } else {
            random.below(live.len() as u64) as usize
        };
        let (address, layout, key) = if young { live.remove_near_end(victim) } else { live.swap_remove(victim) };
        // SAFETY: allocated above with this layout, and out of the list now.
        unsafe { dealloc(address, layout) };
        events.push(Event { key, size: u64::MAX, stack: 0 });
        allocate(&mut random, &mut live, &mut events);
    }
    for (address, layout, _) in live {
        // SAFETY: allocated above with this layout, and each is freed once: those freed before are
        // out of the list.
        unsafe { dealloc(address, layout) };
    }
    Trace { fill: live_blocks, events }
}

trait RemoveNearEnd<T> {
    fn remove_near_end(&mut self, index: usize) -> T;
}

impl<T> RemoveNearEnd<T> for Vec<T> {
    /// Keeps the young ones last, cheaply.
    fn remove_near_end(&mut self, index: usize) -> T {
        if self.len() - index <= 64 { self.remove(index) } else { self.swap_remove(index) }
    }
}

/// Returns the nanoseconds per event while filling and afterwards, and the bytes per live block.
fn play<T: Table + Default>(trace: &Trace, prefetch: bool) -> [f64; 3] {
    let mut table = T::default();
    let (fill, rest) = trace.events.split_at(trace.fill);
    let start = Instant::now();
    for event in fill {
        table.event(event);
    }
    let filling = start.elapsed().as_nanos() as f64 / fill.len() as f64;
    let start = Instant::now();
    for (at, event) in rest.iter().enumerate() {
        if prefetch && let Some(ahead) = rest.get(at + AHEAD) {
            table.prefetch(ahead.key);
        }
        table.event(event);
    }
    let playing = start.elapsed().as_nanos() as f64 / rest.len() as f64;
    [filling, playing, table.bytes_mapped() as f64 / fill.len() as f64]
}

fn best<T: Table + Default>(trace: &Trace, prefetch: bool, rounds: usize) -> [f64; 3] {
    let mut best = [f64::INFINITY; 3];
    for _ in 0..rounds {
        for (best, value) in best.iter_mut().zip(play::<T>(trace, prefetch)) {
            *best = best.min(value);
        }
    }
    best
}

trait Table {
    fn event(&mut self, event: &Event);
    fn prefetch(&self, key: u64);
    fn bytes_mapped(&self) -> usize;
}

#[derive(Default)]
struct WholeLedger(Ledger, Session, u64);

impl Table for WholeLedger {
    fn event(&mut self, event: &Event) {
        let WholeLedger(ledger, session, now) = self;
        *now += 1;
        if event.is_free() {
            ledger.free(session, ThreadId(0), Key(event.key));
        } else {
            let stack = StackId(event.stack);
            let _ =
                ledger.allocate(session, Time(*now), ThreadId(0), Key(event.key), Bytes(event.size), stack).unwrap();
        }
    }
    fn prefetch(&self, key: u64) {
        self.0.prefetch(Key(key));
    }
    fn bytes_mapped(&self) -> usize {
        self.0.bytes_mapped().0 as usize
    }
}

#[derive(Default)]
struct RegisterAlone(Register);

fn block(event: &Event) -> Block {
    Block {
        size: Bytes(event.size),
        stack: StackId(event.stack),
        serial: Serial(1),
        inherited: false,
        untracked: false,
        rate: Rate::EXACT,
    }
}

impl Table for RegisterAlone {
    fn event(&mut self, event: &Event) {
        if event.is_free() {
            assert!(self.0.remove(Key(event.key)).is_some());
        } else {
            assert!(self.0.insert(Key(event.key), block(event)).unwrap().is_none());
        }
    }
    fn prefetch(&self, key: u64) {
        self.0.prefetch(Key(key));
    }
    fn bytes_mapped(&self) -> usize {
        self.0.bytes_mapped()
    }
}

/// For comparison: std's table with a multiplying hash.
#[derive(Default)]
struct Std(HashMap<u64, (u64, u64), Multiply>);

impl Table for Std {
    fn event(&mut self, event: &Event) {
        if event.is_free() {
            assert!(self.0.remove(&event.key).is_some());
        } else {
            assert!(self.0.insert(event.key, (event.size, u64::from(event.stack))).is_none());
        }
    }
    fn prefetch(&self, _: u64) {}
    fn bytes_mapped(&self) -> usize {
        (self.0.capacity() * 8 / 7).next_power_of_two() * 25
    }
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    println!("ns per event, best of {rounds}   -- ledger --    -- register --   std's  filling  bytes per block");
    println!("live blocks           straight  ahead  straight  ahead   table register  register  std's");
    for (live, pairs) in [(2_000, 2_000_000), (100_000, 2_000_000), (400_000, 2_000_000), (1_000_000, 2_000_000)] {
        for (name, young, serials) in [("random", false, false), ("young", true, false), ("serials", false, true)] {
            let trace = trace(live, pairs, young, serials);
            let ledger = [false, true].map(|ahead| best::<WholeLedger>(&trace, ahead, rounds)[1]);
            let [filling, straight, bytes] = best::<RegisterAlone>(&trace, false, rounds);
            let ahead = best::<RegisterAlone>(&trace, true, rounds)[1];
            let std = best::<Std>(&trace, false, rounds);
            println!(
                "{live:>9} {name:<9} {:>10.1} {:>6.1} {straight:>9.1} {ahead:>6.1} {:>7.1} {filling:>8.1} {bytes:>9.1} {:>6.1}",
                ledger[0], ledger[1], std[1], std[2],
            );
        }
    }
}
