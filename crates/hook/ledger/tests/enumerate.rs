//! A provider that lists its own blocks answers what a register answers.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use heapledger_core::sample::Rate;
use heapledger_core::{Blocks, Bytes, Serial, StackId, ThreadId, TypeId};
use heapledger_ledger::{Allocation, Enumerate, Key, LiveBlock, SharedLedger, Time};

/// A slab of equal cells, with a bit each that says whether the cell is in use.
struct Slab {
    start: u64,
    cell: u64,
    used: u64,
}

impl Slab {
    fn allocate(&mut self) -> u64 {
        let free = self.used.trailing_ones();
        self.used |= 1 << free;
        self.start + u64::from(free) * self.cell
    }

    fn free(&mut self, address: u64) {
        self.used &= !(1 << ((address - self.start) / self.cell));
    }
}

impl Enumerate for Slab {
    fn visit(&self, visit: &mut dyn FnMut(&LiveBlock) -> ControlFlow<()>) {
        for cell in (0..64).filter(|cell| self.used >> cell & 1 == 1) {
            let block = LiveBlock {
                key: Key(self.start + cell * self.cell),
                size: Bytes(self.cell),
                rate: Rate::EXACT,
                usable: Bytes(self.cell),
                stack: StackId::ROOT,
                serial: Serial(0),
                stamp: TypeId::NONE,
                thread: ThreadId(0),
                time: Time(0),
                backs: None,
            };
            if visit(&block).is_break() {
                return;
            }
        }
    }
}

/// Returns the number of blocks of each size, which any provider can answer.
fn sizes(provider: &dyn Enumerate) -> BTreeMap<u64, u64> {
    let mut sizes = BTreeMap::new();
    provider.visit(&mut |block| {
        *sizes.entry(block.size.0).or_default() += 1;
        ControlFlow::Continue(())
    });
    sizes
}

fn first(provider: &dyn Enumerate) -> Option<Key> {
    let mut first = None;
    provider.visit(&mut |block| {
        assert_eq!(first.replace(block.key), None, "visited after the break");
        ControlFlow::Break(())
    });
    first
}

#[test]
fn a_slab_needs_no_register() {
    let mut slab = Slab { start: 0x7000, cell: 48, used: 0 };
    let ledger = Box::new(SharedLedger::new());
    let mut addresses = Vec::new();
    for _ in 0..40 {
        let address = slab.allocate();
        addresses.push(address);
        let new = Allocation {
            key: Key(address),
            size: Bytes(48),
            rate: Rate::EXACT,
            usable: Bytes(48),
            stack: StackId::ROOT,
            thread: ThreadId(0),
            time: Time(0),
            stamp: TypeId::NONE,
        };
        assert!(ledger.allocate(&new).is_ok());
    }
    for address in addresses.iter().step_by(3) {
        slab.free(*address);
        ledger.free(ThreadId(0), Key(*address));
    }
    let providers: [&dyn Enumerate; 2] = [&slab, &*ledger];
    for provider in providers {
        assert_eq!(provider.held(), (Blocks(26), Bytes(26 * 48)));
        assert_eq!(sizes(provider), BTreeMap::from([(48, 26)]));
        assert!(first(provider).is_some());
    }
    for address in 0x6ff0..0x7000 + 48 * 41 {
        let [slab, ledger] = providers.map(|provider| provider.block_at(address).map(|block| block.key));
        assert_eq!(slab, ledger, "{address:#x}");
    }
}
