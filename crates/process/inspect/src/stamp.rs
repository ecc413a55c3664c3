//! What blocks were stamped with.

use std::fmt;

use heapledger_core::TypeId;
use heapledger_resident::stamp_of;

/// What the program said that a block is, and where it said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Stamp {
    /// The type's name. Of the stamps beyond 4,094 different ones it is `(other)`.
    pub type_name: &'static str,
    /// The source file, where that is known.
    pub file: Option<&'static str>,
    /// The line in it; 0: not known.
    pub line: u32,
    /// What else it said.
    pub label: Option<&'static str>,
}

/// The type of a block without stamp, and the file.
pub(crate) const UNKNOWN: &str = "[unknown]";

impl Stamp {
    /// What a block with this entry in the ledger was stamped with.
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

/// `type at file:line, label`.
impl fmt::Display for Stamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.type_name)?;
        if let Some(file) = self.file {
            write!(out, " at {file}:{}", self.line)?;
        }
        self.label.map_or(Ok(()), |label| write!(out, ", {label}"))
    }
}

/// A text as far as it is UTF-8: programs in C may give anything, and what is too long is cut.
pub(crate) fn valid(text: &'static [u8]) -> &'static str {
    let valid = std::str::from_utf8(text).map_err(|error| text.get(..error.valid_up_to()).unwrap_or(&[]));
    valid.unwrap_or_else(|valid| std::str::from_utf8(valid).unwrap_or(""))
}
