//! The open files of one module, and the tables over them.

use std::fmt;

use self_cell::self_cell;

use crate::answer::Answer;
use crate::demangle;
use crate::extents::Extent;
use crate::files::Files;
use crate::find::DebugFileFinder;
use crate::mapped::Mapped;
use crate::open_module::OpenModule;
use crate::state::{DebugInfo, Problem};
use crate::symtab::unversioned;
use crate::tables::Tables;

self_cell! {
    struct Cell {
        owner: Files,
        #[not_covariant]
        dependent: Tables,
    }
}

/// A module with its tables, ready for lookups.
pub(crate) struct Image(Cell);

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Image")
    }
}

impl Image {
    pub(crate) fn new(files: Files, problems: &mut Vec<Problem>) -> Self {
        Self(Cell::new(files, |files| Tables::new(files, problems)))
    }

    pub(crate) fn debug_info(&self) -> DebugInfo {
        self.0.with_dependent(|_, tables| tables.debug_info())
    }

    /// Returns the file that the program ran.
    pub(crate) fn file(&self) -> Option<&Mapped> {
        self.0.borrow_owner().module.as_ref()
    }

    /// Returns the names of the functions before and after one that has none.
    pub(crate) fn neighbours(&self, function: Extent) -> [Option<Vec<u8>>; 2] {
        self.0.with_dependent(|_, tables| {
            let symbols = tables.symbols.as_ref();
            let around = symbols.map(|symbols| symbols.around(function.start)).unwrap_or_default();
            around.map(|name| name.map(|name| unversioned(name).to_vec()))
        })
    }

    pub(crate) fn lookup(&self, address: u64, finder: &DebugFileFinder, problems: &mut Vec<Problem>) -> Answer {
        self.0.with_dependent(|files, tables| {
            let symbol = tables.symbol(address);
            let frames = tables.frames(address, files, finder, problems);
            let name = frames.last().and_then(|frame| frame.name.as_deref());
            let public_name = name.and_then(|name| public_name(name, &symbol.as_ref()?.aliases));
            Answer { frames, symbol: symbol.map(|symbol| (symbol.name.to_vec(), symbol.source)), public_name }
        })
    }

    /// Calls `ask` with the tables.
    pub(crate) fn with_open<T>(
        &self,
        finder: &DebugFileFinder,
        problems: &mut Vec<Problem>,
        ask: impl FnOnce(&mut OpenModule<'_, '_>) -> T,
    ) -> T {
        self.0.with_dependent(|files, tables| ask(&mut OpenModule::new(tables, files, finder, problems)))
    }
}

/// Returns the shortest of `aliases` that is a suffix of `name`, if `name` is a reserved one and an
/// alias itself.
fn public_name(name: &[u8], aliases: &[&[u8]]) -> Option<Vec<u8>> {
    if !name.starts_with(b"_") || demangle::is_mangled(name) {
        return None;
    }
    let aliases = || aliases.iter().map(|alias| unversioned(alias));
    let known = aliases().any(|alias| alias == name);
    aliases().filter(|alias| known && name.ends_with(alias)).min_by_key(|alias| alias.len()).map(<[u8]>::to_vec)
}
