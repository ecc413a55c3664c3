//! The files of one module, and the sections in them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use gimli::{RunTimeEndian, SectionId};
use object::{Object, ObjectSymbol, ObjectSymbolTable, RelocationTarget};
use typed_arena::Arena;

use crate::mapped::{self, Mapped};
use crate::meter::{Meter, Metered};
use crate::state::Problem;

/// The files of a module that the finder found.
pub(crate) struct Files {
    pub(crate) module: Option<Mapped>,
    /// The separate debug file.
    pub(crate) debug: Option<Mapped>,
    /// The symbols of functions that are not exported, for a module that has no others.
    pub(crate) mini: Option<Mapped>,
    pub(crate) supplementary: Option<Mapped>,
    /// The package of split debug information.
    pub(crate) package: Option<Mapped>,
    /// The files of split debug information.
    pub(crate) split: Arena<Mapped>,
    /// Sections that had to be decompressed.
    uncompressed: Arena<Vec<u8>>,
    /// Bounds the work of reading them.
    pub(crate) meter: Meter,
}

impl Files {
    pub(crate) fn new(module: Option<Mapped>, debug: Option<Mapped>) -> Self {
        Self {
            module,
            debug,
            mini: None,
            supplementary: None,
            package: None,
            split: Arena::new(),
            uncompressed: Arena::new(),
            meter: Meter::new(),
        }
    }

    /// Returns the paths of the files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        let files = [&self.module, &self.debug, &self.supplementary, &self.package];
        files.into_iter().flatten().map(|file| file.path.as_path())
    }

    /// Returns the file whose debug information is used.
    pub(crate) fn with_dwarf(&self) -> Option<&Mapped> {
        let has_dwarf = |file: &&Mapped| file.elf().is_ok_and(|elf| mapped::has_dwarf(&elf));
        self.debug.as_ref().filter(has_dwarf).or(self.module.as_ref().filter(has_dwarf))
    }

    /// Returns the contents of a section; empty if lookups do not need it, because it would have to
    /// be decompressed.
    pub(crate) fn needed_section<'a>(
        &'a self,
        elf: &object::File<'a>,
        id: SectionId,
        name: Option<&str>,
    ) -> Result<Metered<'a>, String> {
        let needed = matches!(
            id,
            SectionId::DebugAbbrev
                | SectionId::DebugAddr
                | SectionId::DebugAranges
                | SectionId::DebugInfo
                | SectionId::DebugLine
                | SectionId::DebugLineStr
                | SectionId::DebugLoc
                | SectionId::DebugLocLists
                | SectionId::DebugRanges
                | SectionId::DebugRngLists
                | SectionId::DebugStr
                | SectionId::DebugStrOffsets
                | SectionId::DebugTypes
        );
        self.section(elf, name.filter(|_| needed))
    }

    /// Returns the contents of a section; empty if there is none.
    pub(crate) fn section<'a>(&'a self, elf: &object::File<'a>, name: Option<&str>) -> Result<Metered<'a>, String> {
        let data: &'a [u8] = match name.map(|name| mapped::section(elf, name)).transpose()?.flatten() {
            None => &[],
            Some(Cow::Borrowed(data)) => data,
            Some(Cow::Owned(data)) => self.uncompressed.alloc(data),
        };
        self.meter.grant(data.len() as u64);
        Ok(self.metered(elf, data))
    }

    /// Returns an empty section.
    pub(crate) fn empty_section(&self, elf: &object::File<'_>) -> Metered<'_> {
        self.metered(elf, &[])
    }

    fn metered<'a>(&'a self, elf: &object::File<'_>, data: &'a [u8]) -> Metered<'a> {
        let endian = if elf.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        Metered::new(data, endian, &self.meter)
    }

    /// Returns the slots into which the dynamic linker writes addresses, with the names of the
    /// functions.
    pub(crate) fn slots(&self) -> Option<HashMap<u64, &[u8]>> {
        let elf = self.module.as_ref()?.elf().ok()?;
        let symbols = elf.dynamic_symbol_table()?;
        let mut slots = HashMap::new();
        for (address, relocation) in elf.dynamic_relocations()? {
            if let RelocationTarget::Symbol(index) = relocation.target()
                && let Ok(name) = symbols.symbol_by_index(index).and_then(|symbol| symbol.name_bytes())
                && !name.is_empty()
            {
                slots.insert(address, name);
            }
        }
        Some(slots)
    }

    /// Returns the problem that an error in one of the files is.
    pub(crate) fn damaged(&self, file: &Mapped, error: String) -> Problem {
        let error = if self.meter.exceeded() {
            "it would take more work or nesting than a file of its size can need".to_owned()
        } else {
            error
        };
        Problem::Damaged { file: file.path.clone(), error }
    }
}
