//! Stamps of blocks.

use std::fmt;

use heapledger_core::TypeId;
use heapledger_inprocess::stamp_of;

/// The stamp of a block: the type that the program declared for it, and the source location of that
/// declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Stamp {
    /// The type's name. Stamps beyond 4,094 different ones are `(other)`.
    pub type_name: &'static str,
    /// The source file, if it is known.
    pub file: Option<&'static str>,
    /// The line in the source file; 0 if it is not known.
    pub line: u32,
    /// The label that the program added, if any.
    pub label: Option<&'static str>,
}

/// The type and the file of a block without stamp.
pub(crate) const UNKNOWN: &str = "[unknown]";

impl Stamp {
    /// Returns the stamp of a block with this entry in the ledger.
    #[doc(hidden)]
    pub fn of(entry: TypeId) -> Option<Stamp> {
        let stamp = stamp_of(entry)?;
        let given = |text: &'static [u8]| Some(valid(text)).filter(|text| !text.is_empty());
        let place = stamp.place();
        Some(Stamp {
            type_name: valid(stamp.type_name()),
            file: place.and_then(|place| given(place.file())),
            line: place.map_or(0, |place| place.line),
            label: place.and_then(|place| given(place.label())),
        })
    }
}

/// Prints `type at file:line, label`.
impl fmt::Display for Stamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.type_name)?;
        if let Some(file) = self.file {
            write!(out, " at {file}:{}", self.line)?;
        }
        self.label.map_or(Ok(()), |label| write!(out, ", {label}"))
    }
}

/// Returns the part of a text that is valid UTF-8: programs in C may pass any bytes, and long texts
/// are cut.
pub(crate) fn valid(text: &'static [u8]) -> &'static str {
    let valid = std::str::from_utf8(text).map_err(|error| text.get(..error.valid_up_to()).unwrap_or(&[]));
    valid.unwrap_or_else(|valid| std::str::from_utf8(valid).unwrap_or(""))
}
