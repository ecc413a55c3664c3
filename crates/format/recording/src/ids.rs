//! Ids and amounts that only the recording needs.

use std::fmt;

use heapledger_core::{Api, Blocks, Bytes};

/// An image of the session, numbered 0, 1, 2… in the order in which images started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageId(pub u32);

/// A module (executable or shared object) of the session, numbered from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId(pub u32);

impl ModuleId {
    /// No module: an offset that goes with it is an absolute address.
    pub const UNKNOWN: ModuleId = ModuleId(0);
}

/// A text of the session (a name or a value of contexts, the name of a heap), numbered from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TextId(pub u32);

impl TextId {
    /// No text: it is not known.
    pub const UNKNOWN: TextId = TextId(0);
}

/// A moment: nanoseconds since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Time(pub u64);

/// The live amount at a moment: requested bytes, and blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Live {
    /// Requested bytes of the live blocks.
    pub bytes: Bytes,
    /// The number of live blocks.
    pub blocks: Blocks,
}

impl Live {
    /// Combines two standard errors into that of the sum: the root of the sum of their squares.
    pub fn with_error(self, other: Live) -> Live {
        let square = |error: u64| u128::from(error) * u128::from(error);
        let root =
            |one: u64, other: u64| u64::try_from(square(one).saturating_add(square(other)).isqrt()).unwrap_or(u64::MAX);
        Live { bytes: Bytes(root(self.bytes.0, other.bytes.0)), blocks: Blocks(root(self.blocks.0, other.blocks.0)) }
    }
}

/// The entry point of an event: the number of an [`Api`], possibly one that a newer version added.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Call(u8);

impl Call {
    /// The largest number that an event can carry.
    pub const MAX: u8 = 63;

    /// Returns the call with this number, if an event can carry it: 1 to [`Call::MAX`].
    pub const fn from_number(number: u8) -> Option<Call> {
        if number == 0 || number > Call::MAX { None } else { Some(Call(number)) }
    }

    /// Returns the number, as in [`Api`].
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the entry point, if this version knows it.
    pub const fn api(self) -> Option<Api> {
        Api::from_number(self.0)
    }

    /// Returns the C name, or `unknown`.
    pub const fn name(self) -> &'static str {
        match self.api() {
            Some(api) => api.name(),
            None => "unknown",
        }
    }
}

impl From<Api> for Call {
    fn from(api: Api) -> Call {
        Call(api as u8)
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.api() {
            Some(api) => write!(f, "{api:?}"),
            None => write!(f, "Call({})", self.0),
        }
    }
}

// Every entry point fits the six bits that an event has for it.
const _: () = {
    let mut at = 0;
    while at < Api::ALL.len() {
        assert!(Api::ALL[at] as u8 >= 1 && Api::ALL[at] as u8 <= Call::MAX);
        at += 1;
    }
};
