//! Structs of sizes that can be added.

use std::ops::AddAssign;

use heapledger_core::Bytes;

/// A struct of sizes. Measurements are added to the field for their line in a report.
///
/// `#[derive(Sizes)]` implements it for a struct of [`Bytes`], or of such structs.
pub trait Sizes: AddAssign + Sized {
    /// Returns the sum of all fields.
    fn total(&self) -> Bytes;
}

impl Sizes for Bytes {
    fn total(&self) -> Bytes {
        *self
    }
}
