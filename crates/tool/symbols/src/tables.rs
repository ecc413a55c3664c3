//! The tables over a module's files: debug information, symbols, code.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::{Context, LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::{AbbreviationsCacheStrategy, AttributeValue, Dwarf, DwarfPackage, SectionId, UnitOffset};
use object::elf::SHF_EXECINSTR;
use object::{Object, ObjectSection, SectionFlags};

use crate::answer::RawFrame;
use crate::demangle;
use crate::files::Files;
use crate::find::DebugFileFinder;
use crate::mapped::Mapped;
use crate::meter::Metered;
use crate::state::{DebugInfo, Problem};
use crate::symtab::{Symbol, Symbols};
use crate::units::Units;

/// The maximum number of frames per address; those between this and the physical function are left
/// out.
const FRAMES_MAX: usize = 512;
/// The maximum number of references followed from a function to the one that has the name.
const REFERENCES_MAX: usize = 8;
/// The maximum number of files of split debug information of one module.
const SPLIT_FILES_MAX: usize = 1 << 16;

/// The tables over a module's files.
pub(crate) struct Tables<'a> {
    pub(crate) symbols: Option<Symbols<'a>>,
    /// Exported functions, if `symbols` has only the others.
    exports: Option<Symbols<'a>>,
    pub(crate) dwarf: Option<Context<Metered<'a>>>,
    package: Option<DwarfPackage<Metered<'a>>>,
    /// The units of debug information that references have led to.
    pub(crate) units: Units<'a>,
    /// The code, by the addresses at which it begins.
    code: Vec<(u64, &'a [u8])>,
    /// The slots into which the dynamic linker writes the addresses of other modules' functions.
    slots: OnceCell<HashMap<u64, &'a [u8]>>,
}

impl<'a> Tables<'a> {
    pub(crate) fn new(files: &'a Files, problems: &mut Vec<Problem>) -> Self {
        let module = files.module.as_ref().and_then(|file| file.elf().ok());
        let debug = files.debug.as_ref().and_then(|file| file.elf().ok());
        let mini = files.mini.as_ref().and_then(|file| file.elf().ok());
        let exports = files.module.as_ref().and_then(|file| Symbols::new(file.elf().ok()?, true));
        let all = module.and_then(|module| Symbols::new(module, false)).or_else(|| Symbols::new(debug?, false));
        let (symbols, exports) = match (all, mini.and_then(|mini| Symbols::new(mini, false))) {
            (Some(all), _) => (Some(all), None),
            (None, Some(mini)) => (Some(mini), exports),
            (None, None) => (exports, None),
        };
        let code = files.module.as_ref().and_then(|file| file.elf().ok()).map(|elf| code(&elf)).unwrap_or_default();
        let mut tables = Self {
            symbols,
            exports,
            dwarf: None,
            package: None,
            units: Units::default(),
            code,
            slots: OnceCell::new(),
        };
        if let Some(file) = files.with_dwarf() {
            match dwarf(file, files) {
                Ok(dwarf) => tables.dwarf = Some(dwarf),
                Err(error) => problems.push(files.damaged(file, error)),
            }
        }
        if tables.dwarf.is_some()
            && let Some(file) = &files.package
        {
            match package(file, files) {
                Ok(package) => tables.package = Some(package),
                Err(error) => problems.push(files.damaged(file, error)),
            }
        }
        tables
    }

    pub(crate) fn debug_info(&self) -> DebugInfo {
        match (&self.dwarf, &self.symbols) {
            (Some(_), _) => DebugInfo::Full,
            (None, Some(symbols)) if symbols.is_dynamic() => DebugInfo::ExportsOnly,
            (None, Some(_)) => DebugInfo::SymbolsOnly,
            (None, None) => DebugInfo::Missing,
        }
    }

    /// Returns the symbol at an address: one that covers it, if any does.
    pub(crate) fn symbol(&self, address: u64) -> Option<Symbol<'a>> {
        let tables = [&self.symbols, &self.exports];
        let found = tables.into_iter().flatten().filter_map(|symbols| symbols.lookup(address));
        found.min_by_key(|symbol| symbol.source)
    }

    /// Returns the functions at an address according to the debug information, innermost first.
    pub(crate) fn frames(
        &self,
        address: u64,
        files: &'a Files,
        finder: &DebugFileFinder,
        problems: &mut Vec<Problem>,
    ) -> Vec<RawFrame> {
        let each = |dwarf: &Context<Metered<'a>>, frame: addr2line::Frame<'_, Metered<'a>>| {
            let (file, line, column) = place(frame.location);
            let name = frame.function.map(|function| function.name.bytes());
            let untyped = name.is_some_and(demangle::is_legacy_rust);
            let entry = frame.dw_die_offset.filter(|_| untyped);
            let plain = entry.and_then(|entry| self.plain_name(dwarf, address, entry));
            RawFrame { name: name.map(<[u8]>::to_vec), plain, file, line, column }
        };
        self.each_frame(address, files, finder, problems, each)
    }

    /// Returns the code from an address on.
    pub(crate) fn code_at(&self, address: u64) -> &'a [u8] {
        let found = self.code.iter().find_map(|(start, code)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            code.get(at..).filter(|code| !code.is_empty())
        });
        found.unwrap_or_default()
    }

    /// Returns the name of the function whose address the dynamic linker writes into a slot.
    pub(crate) fn function_in_slot(&self, slot: u64, files: &'a Files) -> Option<&'a [u8]> {
        self.slots.get_or_init(|| files.slots().unwrap_or_default()).get(&slot).copied()
    }

    /// Returns the results of `each` for the frames at an address, or for the source location alone
    /// if the debug information is damaged.
    pub(crate) fn each_frame<F>(
        &self,
        address: u64,
        files: &'a Files,
        finder: &DebugFileFinder,
        problems: &mut Vec<Problem>,
        mut each: impl FnMut(&Context<Metered<'a>>, addr2line::Frame<'_, Metered<'a>>) -> F,
    ) -> Vec<F> {
        let mut raw = Vec::new();
        // The last address would overflow inside addr2line, and no code can be there.
        let Some(dwarf) = self.dwarf.as_ref().filter(|_| address != u64::MAX) else { return raw };
        files.meter.start();
        let mut lookup = dwarf.find_frames(address);
        let found = loop {
            match lookup {
                LookupResult::Output(output) => break output,
                LookupResult::Load { load, continuation } => {
                    lookup = continuation.resume(self.split(load, files, finder, problems));
                }
            }
        };
        let result = found.and_then(|mut frames| {
            while let Some(frame) = frames.next()? {
                if raw.len() == FRAMES_MAX {
                    raw.pop();
                }
                raw.push(each(dwarf, frame));
            }
            Ok(())
        });
        if let Err(error) = result {
            if let Some(file) = files.with_dwarf()
                && !problems.iter().any(|problem| matches!(problem, Problem::Damaged { .. }))
            {
                problems.push(files.damaged(file, error.to_string()));
            }
            // The line table may still be valid.
            raw.clear();
            if let Ok(location @ Some(_)) = dwarf.find_location(address) {
                raw.push(each(dwarf, addr2line::Frame { dw_die_offset: None, function: None, location }));
            }
        }
        raw
    }

    /// Returns `DW_AT_name` of a function that was found at `address`.
    fn plain_name(&self, dwarf: &Context<Metered<'a>>, address: u64, entry: UnitOffset) -> Option<Vec<u8>> {
        let unit = dwarf.find_dwarf_and_unit(address).skip_all_loads()?;
        let mut entry = entry;
        for _ in 0..REFERENCES_MAX {
            let die = unit.entry(entry).ok()?;
            if let Some(name) = die.attr_value(gimli::DW_AT_name) {
                return Some(unit.attr_string(name).ok()?.bytes().to_vec());
            }
            let origin = die.attr_value(gimli::DW_AT_abstract_origin);
            entry = match origin.or_else(|| die.attr_value(gimli::DW_AT_specification))? {
                AttributeValue::UnitRef(entry) => entry,
                _ => return None,
            };
        }
        None
    }

    /// Loads the split part of a unit.
    fn split(
        &self,
        load: SplitDwarfLoad<Metered<'a>>,
        files: &'a Files,
        finder: &DebugFileFinder,
        problems: &mut Vec<Problem>,
    ) -> Option<Arc<Dwarf<Metered<'a>>>> {
        if let Some(package) = &self.package
            && let Ok(Some(dwarf)) = package.find_cu(load.dwo_id, &load.parent)
        {
            return Some(Arc::new(dwarf));
        }
        let path = |part: &Option<Metered<'a>>| part.map(|part| PathBuf::from(OsStr::from_bytes(part.bytes())));
        let path = path(&load.comp_dir).unwrap_or_default().join(path(&load.path)?);
        let found = (files.split.len() < SPLIT_FILES_MAX).then(|| split_file(&path, &load, files, finder)).flatten();
        if found.is_none() && !problems.iter().any(|problem| matches!(problem, Problem::SplitMissing { .. })) {
            problems.push(Problem::SplitMissing { file: path });
        }
        found
    }
}

fn split_file<'a>(
    path: &Path,
    load: &SplitDwarfLoad<Metered<'a>>,
    files: &'a Files,
    finder: &DebugFileFinder,
) -> Option<Arc<Dwarf<Metered<'a>>>> {
    let file: &'a Mapped = files.split.alloc(finder.split(path)?);
    let elf = file.elf().ok()?;
    let mut dwarf = Dwarf::load(|id| files.needed_section(&elf, id, id.dwo_name())).ok()?;
    let header = dwarf.units().next().ok()??;
    if dwarf.unit(header).ok()?.dwo_id != Some(load.dwo_id) {
        return None;
    }
    dwarf.make_dwo(&load.parent);
    Some(Arc::new(dwarf))
}

fn dwarf<'a>(file: &'a Mapped, files: &'a Files) -> Result<Context<Metered<'a>>, String> {
    files.meter.start();
    let elf = file.elf()?;
    let mut dwarf = Dwarf::load(|id| files.needed_section(&elf, id, Some(id.name())))?;
    if let Some(file) = &files.supplementary {
        let elf = file.elf()?;
        dwarf.load_sup(|id| files.needed_section(&elf, id, Some(id.name())))?;
    }
    dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
    Context::from_dwarf(dwarf).map_err(|error| error.to_string())
}

fn package<'a>(file: &'a Mapped, files: &'a Files) -> Result<DwarfPackage<Metered<'a>>, String> {
    files.meter.start();
    let elf = file.elf()?;
    let empty = files.empty_section(&elf);
    // All sections, because each unit is a piece of each of them.
    let load = |id: SectionId| files.section(&elf, id.dwo_name()).map_err(PackageError);
    DwarfPackage::load(load, empty).map_err(|error: PackageError| error.0)
}

struct PackageError(String);

impl From<gimli::Error> for PackageError {
    fn from(error: gimli::Error) -> Self {
        Self(error.to_string())
    }
}

/// Returns the file, the line and the column of a location, as far as they are known.
pub(crate) fn place(location: Option<addr2line::Location<'_>>) -> (Option<String>, Option<u32>, Option<u32>) {
    let Some(location) = location else { return (None, None, None) };
    let file = location.file.filter(|file| !file.is_empty()).map(str::to_owned);
    // Line 0 is "no line", column 0 is "the left edge", or unknown.
    (file, location.line.filter(|&line| line > 0), location.column.filter(|&column| column > 0))
}

/// Returns the code of an ELF file.
fn code<'a>(elf: &object::File<'a>) -> Vec<(u64, &'a [u8])> {
    let is_code = |flags| matches!(flags, SectionFlags::Elf { sh_flags, .. } if sh_flags.contains(SHF_EXECINSTR));
    let sections = elf.sections().filter(|section| is_code(section.flags()));
    sections.filter_map(|section| Some((section.address(), section.data().ok()?))).collect()
}
