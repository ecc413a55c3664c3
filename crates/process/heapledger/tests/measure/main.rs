//! Compares measurements with the ledger. Runs without the test harness, whose threads allocate,
//! too.

mod derived;
mod marks;
mod moments;
mod owned;
#[path = "../runner/mod.rs"]
mod runner;
mod shared;
mod truth;

use heapledger::{Allocator, Ledger};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

fn main() {
    for tests in [owned::TESTS, shared::TESTS, derived::TESTS, marks::TESTS, moments::TESTS] {
        runner::run(tests, || Ledger::get().stop());
    }
}
