//! Live blocks by type: the stamp if there is one, otherwise the type that debug information gives.

#[cfg(target_os = "linux")]
mod inference;

use std::fmt;

use heapledger_core::{Blocks, Bytes};

use crate::table;

/// Live blocks by type: the answer of [`Ledger::types`](crate::Ledger::types). Displays as a table.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LiveTypes {
    /// One row for each type and certainty, the one with the most bytes first.
    pub rows: Vec<LiveType>,
}

/// The live blocks of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LiveType {
    /// The type: a stamp as the program gave it, an inferred one in short form, or `[unknown]`.
    pub name: String,
    /// How the type is known.
    pub certainty: TypeCertainty,
    /// Live blocks, estimated in a sampled ledger.
    pub blocks: Blocks,
    /// Their requested bytes, estimated as well.
    pub bytes: Bytes,
}

/// How the type of a block is known, the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TypeCertainty {
    /// The program declared it.
    Stamped,
    /// Debug information names the type and leaves no other, and no size contradicts.
    Exact,
    /// The evidence leaves room for another type, but the sizes of the blocks agree with this one.
    SizeConsistent,
    /// The evidence names several types, or a size contradicts it.
    Ambiguous,
    /// A guess, for example from source text or from the name of a C function.
    Probable,
    /// Nothing is known.
    Unknown,
}

impl TypeCertainty {
    /// The word for it that `heapledger types` uses, too.
    pub fn word(self) -> &'static str {
        match self {
            TypeCertainty::Stamped => "stamped",
            TypeCertainty::Exact => "exact",
            TypeCertainty::SizeConsistent => "size-consistent",
            TypeCertainty::Ambiguous => "ambiguous",
            TypeCertainty::Probable => "probable",
            TypeCertainty::Unknown => "unknown",
        }
    }
}

impl fmt::Display for TypeCertainty {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.word())
    }
}

impl fmt::Display for LiveTypes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows.iter().map(|row| table::Row {
            name: &row.name,
            blocks: row.blocks.0,
            bytes: row.bytes.0,
            note: row.certainty.word(),
        });
        table::write(out, "type", rows)
    }
}

/// Elsewhere nothing is observed, so there are no live blocks.
#[cfg(not(target_os = "linux"))]
impl LiveTypes {
    pub(crate) fn of_this_process() -> LiveTypes {
        LiveTypes::default()
    }
}
