//! Compares measurements with the ledger. Runs without the test harness, whose threads allocate,
//! too.

mod derived;
mod marks;
mod moments;
mod owned;
mod shared;
mod truth;

use heapledger::Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::system();

fn main() {
    [owned::TESTS, shared::TESTS, derived::TESTS, marks::TESTS, moments::TESTS].into_iter().for_each(truth::run);
}
