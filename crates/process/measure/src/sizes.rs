//! Sizes that add.

use std::ops::AddAssign;

use heapledger_core::Bytes;

/// A struct of sizes, into which measurements are added, each into the field for its line in a report.
///
/// `#[derive(Sizes)]` implements it for a struct of [`Bytes`], or of such structs.
pub trait Sizes: AddAssign + Sized {
    /// The sum of all fields.
    fn total(&self) -> Bytes;
}

impl Sizes for Bytes {
    fn total(&self) -> Bytes {
        *self
    }
}
