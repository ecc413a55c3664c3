//! Questions to the files of an open module that names do not answer.

use std::fmt;

use addr2line::Context;
use gimli::{AttributeValue, DwLang, UnitOffset, UnitRef};

use crate::files::Files;
use crate::find::DebugFileFinder;
use crate::meter::Metered;
use crate::state::Problem;
use crate::symtab::{Symbol, unversioned};
use crate::tables::{Tables, place};
use crate::units::Units;

/// An open module: its debug information, its symbols and its code, for questions that names do not
/// answer. Addresses are the module's own ELF addresses.
///
/// The bounds on work are those of [names](crate::Symbolizer::frames): reading fails once too much
/// was read in relation to the size of the files, or once the stack of the thread grew too deep.
pub struct OpenModule<'m, 'a> {
    tables: &'m Tables<'a>,
    files: &'a Files,
    finder: &'m DebugFileFinder,
    problems: &'m mut Vec<Problem>,
}

/// One function at an address, in the debug information.
#[derive(Debug)]
pub struct DebugFrame<'u, 'a> {
    /// The entry of the function, or of the call that was inlined.
    pub entry: Option<(UnitRef<'u, Metered<'a>>, UnitOffset)>,
    /// The language of its unit.
    pub language: Option<DwLang>,
    /// The source file.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: Option<u32>,
    /// The column, from 1.
    pub column: Option<u32>,
}

impl<'m, 'a> OpenModule<'m, 'a> {
    pub(crate) fn new(
        tables: &'m Tables<'a>,
        files: &'a Files,
        finder: &'m DebugFileFinder,
        problems: &'m mut Vec<Problem>,
    ) -> Self {
        files.meter.start();
        Self { tables, files, finder, problems }
    }

    /// Returns the results of `each` for the functions at an address, innermost first, or for the
    /// source location alone if the debug information is damaged. Empty without debug information.
    pub fn each_frame<F>(&mut self, address: u64, mut each: impl FnMut(DebugFrame<'_, 'a>) -> F) -> Vec<F> {
        let each = |dwarf: &Context<Metered<'a>>, frame: addr2line::Frame<'_, Metered<'a>>| {
            let (file, line, column) = place(frame.location);
            // Its unit was loaded when the frame was found.
            let unit = dwarf.find_dwarf_and_unit(address).skip_all_loads();
            let language = frame.function.as_ref().and_then(|function| function.language);
            // With split debug information, only the split part has the language.
            let language = language.or_else(|| language_of(unit?));
            each(DebugFrame { entry: unit.zip(frame.dw_die_offset), language, file, line, column })
        };
        self.tables.each_frame(address, self.files, self.finder, self.problems, each)
    }

    /// Returns the unit of the code at an address, as far as it is loaded.
    pub fn unit_at(&self, address: u64) -> Option<UnitRef<'m, Metered<'a>>> {
        self.dwarf(address)?.find_dwarf_and_unit(address).skip_all_loads()
    }

    /// Returns the entry of the physical function at an address, as far as its unit is loaded.
    pub fn function_at(&self, address: u64) -> Option<(UnitRef<'m, Metered<'a>>, UnitOffset)> {
        let unit = self.unit_at(address);
        let mut entry = None;
        if let Ok(mut frames) = self.dwarf(address)?.find_frames(address).skip_all_loads() {
            while let Ok(Some(frame)) = frames.next() {
                entry = frame.dw_die_offset;
            }
        }
        unit.zip(entry)
    }

    /// Returns the line and the column of the code at an address.
    pub fn location_at(&self, address: u64) -> (Option<u32>, Option<u32>) {
        let location = self.dwarf(address).and_then(|dwarf| dwarf.find_location(address).ok());
        let (_, line, column) = place(location.flatten());
        (line, column)
    }

    /// Returns the units that references between entries lead to.
    pub fn units(&self) -> &'m Units<'a> {
        &self.tables.units
    }

    /// Returns the symbol at an address: one that covers it, if any does. Names are without the
    /// versions that those of shared libraries may have.
    pub fn symbol(&self, address: u64) -> Option<Symbol<'a>> {
        let mut symbol = self.tables.symbol(address)?;
        symbol.name = unversioned(symbol.name);
        symbol.aliases.iter_mut().for_each(|alias| *alias = unversioned(alias));
        Some(symbol)
    }

    /// Returns the code from an address to the end of its section; empty if there is none.
    pub fn code_at(&self, address: u64) -> &'a [u8] {
        self.tables.code_at(address)
    }

    /// Returns the name of the function whose address the dynamic linker writes to this address.
    pub fn function_in_slot(&self, slot: u64) -> Option<&'a [u8]> {
        self.tables.function_in_slot(slot, self.files)
    }

    /// Returns the debug information, unless no code can be at the address.
    fn dwarf(&self, address: u64) -> Option<&'m Context<Metered<'a>>> {
        // The last address would overflow inside addr2line.
        self.tables.dwarf.as_ref().filter(|_| address != u64::MAX)
    }
}

impl fmt::Debug for OpenModule<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenModule")
    }
}

fn language_of(unit: UnitRef<'_, Metered<'_>>) -> Option<DwLang> {
    match unit.entry(unit.header.root_offset()).ok()?.attr_value(gimli::DW_AT_language)? {
        AttributeValue::Language(language) => Some(language),
        _ => None,
    }
}
