//! Facts about functions and types that have been read from the debug information.

use std::collections::HashMap;
use std::sync::Arc;

use gimli::UnitOffset;
use heapledger_symbols::EntryKey;

use crate::body::Body;
use crate::frame::Parameter;
use crate::spelled::Spelled;

/// The entries of a module that have been read so far.
#[derive(Debug, Default)]
pub(crate) struct KnownEntries {
    pub(crate) scopes: HashMap<EntryKey, Arc<[Scope]>>,
    pub(crate) functions: HashMap<EntryKey, Arc<Facts>>,
    pub(crate) classes: HashMap<EntryKey, Arc<[Parameter]>>,
    pub(crate) types: HashMap<EntryKey, Option<Spelled>>,
    pub(crate) bodies: HashMap<EntryKey, Arc<Body>>,
    /// For each function that was examined: the class that it constructs, if it is a constructor.
    pub(crate) constructors: HashMap<EntryKey, Option<Arc<Spelled>>>,
    /// The types of a unit, by their names.
    pub(crate) names: HashMap<EntryKey, Arc<Names>>,
    /// Classes with their sizes, by their names: for each file, once they are needed.
    pub(crate) definitions: HashMap<EntryKey, Arc<Definitions>>,
    /// For each unit that was examined: true if its language is C.
    pub(crate) c_units: HashMap<EntryKey, bool>,
}

/// The known facts about a function.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// `DW_AT_name`.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) linkage: Option<Arc<[u8]>>,
    pub(crate) scope: Option<Arc<str>>,
    pub(crate) parameters: Arc<[Parameter]>,
}

/// An entry that is part of the names of the entries in it.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) parent: Option<u32>,
}

/// The types of a unit, by their names without scopes.
pub(crate) type Names = HashMap<Box<[u8]>, Vec<UnitOffset>>;

/// Classes by hashes of their names without arguments: the unit, and the offset in it.
pub(crate) type Definitions = HashMap<u64, Vec<(usize, UnitOffset)>>;
