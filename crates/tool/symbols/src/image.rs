//! The files of one module, and the tables over them.

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::{Context, LookupContinuation, LookupResult, SplitDwarfLoad};
use gimli::{AbbreviationsCacheStrategy, AttributeValue, Dwarf, DwarfPackage, RunTimeEndian, SectionId, UnitOffset};
use object::elf::SHF_EXECINSTR;
use object::{Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationTarget, SectionFlags};
use self_cell::self_cell;
use typed_arena::Arena;

use crate::demangle;
use crate::extents::Extent;
use crate::find::DebugFileFinder;
use crate::frame::NameSource;
use crate::mapped::{self, Mapped};
use crate::meter::{Meter, Metered};
use crate::state::{DebugInfo, Problem};
use crate::symtab::{Symbol, Symbols};
use crate::types::call_site::{self, Body};
use crate::types::{Constructed, Entries, Facts, Language, Pointee, Received, Sources, TypeName, Written};

/// The maximum number of frames per address; those between this and the physical function are left
/// out.
const FRAMES_MAX: usize = 512;
/// The maximum number of references followed from a function to the one that has the name.
const REFERENCES_MAX: usize = 8;
/// The maximum number of files of split debug information of one module.
const SPLIT_FILES_MAX: usize = 1 << 16;

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
    split: Arena<Mapped>,
    /// Sections that had to be decompressed.
    uncompressed: Arena<Vec<u8>>,
    meter: Meter,
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
}

struct Tables<'a> {
    symbols: Option<Symbols<'a>>,
    /// Exported functions, if `symbols` has only the others.
    exports: Option<Symbols<'a>>,
    dwarf: Option<Context<Metered<'a>>>,
    package: Option<DwarfPackage<Metered<'a>>>,
    /// The type information read so far.
    entries: RefCell<Entries<'a>>,
    sources: RefCell<Sources>,
    /// The code, by the addresses at which it begins.
    code: Vec<(u64, &'a [u8])>,
    /// The slots into which the dynamic linker writes the addresses of other modules' functions.
    slots: OnceCell<HashMap<u64, &'a [u8]>>,
}

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

/// One function at an address, from the tables.
pub(crate) struct RawFrame {
    /// The linkage name if there is one.
    pub(crate) name: Option<Vec<u8>>,
    /// The unmangled name, needed only if `name` leaves out type arguments.
    pub(crate) plain: Option<Vec<u8>>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
}

/// All that the tables contain about an address.
#[derive(Default)]
pub(crate) struct Answer {
    /// From the debug information, innermost first.
    pub(crate) frames: Vec<RawFrame>,
    /// From the symbol table.
    pub(crate) symbol: Option<(Vec<u8>, NameSource)>,
    /// An exported name of the last frame in the symbol table, besides its own: `malloc` for
    /// `__GI___libc_malloc`.
    pub(crate) public_name: Option<Vec<u8>>,
}

/// One function at an address, with the type information of its entry.
#[derive(Default)]
pub(crate) struct RawTyped {
    pub(crate) facts: Option<Arc<Facts>>,
    pub(crate) language: Option<Language>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
    pub(crate) written: Vec<Written>,
    pub(crate) returns: Option<Pointee>,
}

/// All that the tables contain about the types at an address.
#[derive(Default)]
pub(crate) struct TypedAnswer {
    /// From the debug information, innermost first.
    pub(crate) frames: Vec<RawTyped>,
    /// From the symbol table.
    pub(crate) symbol: Option<Vec<u8>>,
    /// All symbols at the address of the physical function.
    pub(crate) aliases: Vec<Vec<u8>>,
    pub(crate) constructed: Arc<[Constructed]>,
    /// The use that the physical function makes of the result of the call.
    pub(crate) received: Option<Received>,
    /// The function of another module that is called there.
    pub(crate) called: Option<Vec<u8>>,
}

impl Image {
    pub(crate) fn new(files: Files, problems: &mut Vec<Problem>) -> Self {
        Self(Cell::new(files, |files| Tables::new(files, problems)))
    }

    pub(crate) fn debug_info(&self) -> DebugInfo {
        self.0.with_dependent(|_, tables| match (&tables.dwarf, &tables.symbols) {
            (Some(_), _) => DebugInfo::Full,
            (None, Some(symbols)) if symbols.is_dynamic() => DebugInfo::ExportsOnly,
            (None, Some(_)) => DebugInfo::SymbolsOnly,
            (None, None) => DebugInfo::Missing,
        })
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

    pub(crate) fn typed(&self, address: u64, finder: &DebugFileFinder, problems: &mut Vec<Problem>) -> TypedAnswer {
        self.0.with_dependent(|files, tables| {
            let symbol = tables.symbol(address);
            let aliases =
                symbol.iter().flat_map(|symbol| &symbol.aliases).map(|name| unversioned(name).to_vec()).collect();
            let (frames, body) = tables.typed(address, files, finder, problems);
            let (constructed, received) = tables.call_site(address, &frames, body.as_deref());
            let symbol = symbol.map(|symbol| unversioned(symbol.name).to_vec());
            let called = tables.called(address, files).map(<[u8]>::to_vec);
            TypedAnswer { frames, symbol, aliases, constructed: constructed.into(), received, called }
        })
    }
}

impl<'a> Tables<'a> {
    fn new(files: &'a Files, problems: &mut Vec<Problem>) -> Self {
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
            entries: RefCell::default(),
            sources: RefCell::default(),
            slots: OnceCell::new(),
            code,
        };
        if let Some(file) = files.with_dwarf() {
            match dwarf(file, files) {
                Ok(dwarf) => tables.dwarf = Some(dwarf),
                Err(error) => problems.push(damaged(file, files, error)),
            }
        }
        if tables.dwarf.is_some()
            && let Some(file) = &files.package
        {
            match package(file, files) {
                Ok(package) => tables.package = Some(package),
                Err(error) => problems.push(damaged(file, files, error)),
            }
        }
        tables
    }

    /// Returns the symbol at an address: one that covers it, if any does.
    fn symbol(&self, address: u64) -> Option<Symbol<'a>> {
        let tables = [&self.symbols, &self.exports];
        let found = tables.into_iter().flatten().filter_map(|symbols| symbols.lookup(address));
        found.min_by_key(|symbol| symbol.source)
    }

    fn frames(
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

    /// Returns the functions at an address, and the body of the physical one if that is C or C++.
    fn typed(
        &self,
        address: u64,
        files: &'a Files,
        finder: &DebugFileFinder,
        problems: &mut Vec<Problem>,
    ) -> (Vec<RawTyped>, Option<Arc<Body>>) {
        let mut entries = self.entries.borrow_mut();
        let mut sources = self.sources.borrow_mut();
        let mut last = None;
        let each = |dwarf: &Context<Metered<'a>>, frame: addr2line::Frame<'_, Metered<'a>>| {
            let (file, line, column) = place(frame.location);
            // Its unit was loaded when the frame was found.
            let unit = dwarf.find_dwarf_and_unit(address).skip_all_loads();
            let language = frame.function.as_ref().and_then(|function| function.language);
            // With split debug information, only the split part has the language.
            let language = language.or_else(|| language_of(unit?)).map(Language::of_unit);
            let known = language.unwrap_or(Language::Other);
            let entry = unit.zip(frame.dw_die_offset);
            let facts = entry.and_then(|(unit, entry)| entries.function(unit, entry, known));
            let (mut written, mut returns) = (Vec::new(), None);
            last = None;
            if let Some((unit, entry)) = entry
                && matches!(known, Language::C | Language::Cxx)
            {
                if let (Some(file), Some(line)) = (&file, line) {
                    let texts = sources.text(file, line, column, known == Language::Cxx);
                    written = texts.iter().filter_map(|text| entries.written(unit, entry, known, line, text)).collect();
                }
                let pointee = entries.returned(unit, entry);
                returns = pointee.map(|(name, size)| Pointee { type_name: TypeName::new(known, &name), size });
                last = Some(entry);
            }
            RawTyped { facts, language, file, line, column, written, returns }
        };
        let frames = self.each_frame(address, files, finder, problems, each);
        let body = last
            .zip(self.dwarf.as_ref())
            .and_then(|(function, dwarf)| entries.body(dwarf.find_dwarf_and_unit(address).skip_all_loads()?, function));
        (frames, body)
    }

    /// Returns the use that the code after a call at `address` (an address in the call) makes of
    /// the result.
    fn call_site(
        &self,
        address: u64,
        frames: &[RawTyped],
        body: Option<&Body>,
    ) -> (Vec<Constructed>, Option<Received>) {
        let language = frames.last().map_or(Some(Language::Cxx), |frame| frame.language);
        let Some(language) = language.filter(|language| matches!(language, Language::C | Language::Cxx)) else {
            return (Vec::new(), None);
        };
        let Some(after) = address.checked_add(1) else { return (Vec::new(), None) };
        let code = self.code_at(after);
        let code = &code[..code.len().min(call_site::WINDOW as usize)];
        let received = body.and_then(|body| body.received(after, code, language));
        let mut constructed = body.map(|body| body.constructed(after)).unwrap_or_default();
        if language == Language::Cxx {
            constructed.extend(self.constructors_called(after, code));
        }
        constructed.sort_by_key(|found| found.distance);
        (constructed, received)
    }

    /// Returns the code from an address on.
    fn code_at(&self, address: u64) -> &'a [u8] {
        let found = self.code.iter().find_map(|(start, code)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            code.get(at..).filter(|code| !code.is_empty())
        });
        found.unwrap_or_default()
    }

    /// Returns the name of another module's function that a call at `address` (an address in the
    /// call) calls through the table of addresses that the dynamic linker fills.
    fn called(&self, address: u64, files: &'a Files) -> Option<&'a [u8]> {
        const LONGEST: u64 = 6;
        let after = address.checked_add(1)?;
        let call = self.code_at(after.checked_sub(LONGEST)?).first_chunk::<{ LONGEST as usize }>()?;
        let slot = call_site::slot_of_call(call, after, |stub| self.code_at(stub))?;
        self.slots.get_or_init(|| slots(files).unwrap_or_default()).get(&slot).copied()
    }

    fn constructors_called(&self, after: u64, code: &[u8]) -> Vec<Constructed> {
        let mut found = Vec::new();
        for (at, distance) in call_site::calls(code) {
            let Some(target) = after.checked_add_signed(distance).filter(|&target| target != u64::MAX) else {
                continue;
            };
            let Some(symbol) = self.symbol(target).filter(|symbol| symbol.start == target) else { continue };
            let class = symbol.aliases.iter().find_map(|name| call_site::class_of_symbol(unversioned(name)));
            let Some(class) = class else { continue };
            let class = TypeName::new(Language::Cxx, &class.full());
            let (mut size, mut line, mut column) = (None, None, None);
            if let Some(dwarf) = &self.dwarf {
                let mut entries = self.entries.borrow_mut();
                let unit = dwarf.find_dwarf_and_unit(target).skip_all_loads();
                let frames = dwarf.find_frames(target).skip_all_loads().ok();
                let mut entry = None;
                if let Some(mut frames) = frames {
                    while let Ok(Some(frame)) = frames.next() {
                        entry = frame.dw_die_offset;
                    }
                }
                let known = unit.zip(entry).and_then(|(unit, entry)| entries.constructed_class(unit, entry));
                size = known.and_then(|known| known.1);
                if let Ok(location) = dwarf.find_location(after.saturating_add(u64::from(at)).min(u64::MAX - 1)) {
                    (_, line, column) = place(location);
                }
            }
            found.push(Constructed { class, size, distance: at, line, column });
        }
        found
    }

    /// Returns the results of `each` for the frames at an address, or for the source location alone
    /// if the debug information is damaged.
    fn each_frame<F>(
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
                problems.push(damaged(file, files, error.to_string()));
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
    let mut dwarf = Dwarf::load(|id| needed_section(&elf, id, id.dwo_name(), files)).ok()?;
    let header = dwarf.units().next().ok()??;
    if dwarf.unit(header).ok()?.dwo_id != Some(load.dwo_id) {
        return None;
    }
    dwarf.make_dwo(&load.parent);
    Some(Arc::new(dwarf))
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

/// Returns a symbol without its version, which those of shared libraries may have:
/// `fopen@@GLIBC_2.2.5`.
fn unversioned(name: &[u8]) -> &[u8] {
    name.split(|&byte| byte == b'@').next().unwrap_or(name)
}

fn language_of(unit: gimli::UnitRef<'_, Metered<'_>>) -> Option<gimli::DwLang> {
    match unit.entry(unit.header.root_offset()).ok()?.attr_value(gimli::DW_AT_language)? {
        AttributeValue::Language(language) => Some(language),
        _ => None,
    }
}

fn place(location: Option<addr2line::Location<'_>>) -> (Option<String>, Option<u32>, Option<u32>) {
    let Some(location) = location else { return (None, None, None) };
    let file = location.file.filter(|file| !file.is_empty()).map(str::to_owned);
    // Line 0 is "no line", column 0 is "the left edge", or unknown.
    (file, location.line.filter(|&line| line > 0), location.column.filter(|&column| column > 0))
}

fn dwarf<'a>(file: &'a Mapped, files: &'a Files) -> Result<Context<Metered<'a>>, String> {
    files.meter.start();
    let elf = file.elf()?;
    let mut dwarf = Dwarf::load(|id| needed_section(&elf, id, Some(id.name()), files))?;
    if let Some(file) = &files.supplementary {
        let elf = file.elf()?;
        dwarf.load_sup(|id| needed_section(&elf, id, Some(id.name()), files))?;
    }
    dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
    Context::from_dwarf(dwarf).map_err(|error| error.to_string())
}

fn package<'a>(file: &'a Mapped, files: &'a Files) -> Result<DwarfPackage<Metered<'a>>, String> {
    files.meter.start();
    let elf = file.elf()?;
    let empty = Metered::new(&[], endian(&elf), &files.meter);
    // All sections, because each unit is a piece of each of them.
    let load = |id: SectionId| section(&elf, id.dwo_name(), files).map_err(PackageError);
    DwarfPackage::load(load, empty).map_err(|error: PackageError| error.0)
}

struct PackageError(String);

impl From<gimli::Error> for PackageError {
    fn from(error: gimli::Error) -> Self {
        Self(error.to_string())
    }
}

/// Returns the contents of a section; empty if lookups do not need it, because it would have to be
/// decompressed.
fn needed_section<'a>(
    elf: &object::File<'a>,
    id: SectionId,
    name: Option<&str>,
    files: &'a Files,
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
    section(elf, name.filter(|_| needed), files)
}

/// Returns the contents of a section; empty if there is none.
fn section<'a>(elf: &object::File<'a>, name: Option<&str>, files: &'a Files) -> Result<Metered<'a>, String> {
    let data: &'a [u8] = match name.map(|name| mapped::section(elf, name)).transpose()?.flatten() {
        None => &[],
        Some(Cow::Borrowed(data)) => data,
        Some(Cow::Owned(data)) => files.uncompressed.alloc(data),
    };
    files.meter.grant(data.len() as u64);
    Ok(Metered::new(data, endian(elf), &files.meter))
}

/// Returns the slots into which the dynamic linker writes addresses, with the names of the
/// functions.
fn slots(files: &Files) -> Option<HashMap<u64, &[u8]>> {
    let elf = files.module.as_ref()?.elf().ok()?;
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

/// Returns the code of an ELF file.
fn code<'a>(elf: &object::File<'a>) -> Vec<(u64, &'a [u8])> {
    let is_code = |flags| matches!(flags, SectionFlags::Elf { sh_flags, .. } if sh_flags.contains(SHF_EXECINSTR));
    let sections = elf.sections().filter(|section| is_code(section.flags()));
    sections.filter_map(|section| Some((section.address(), section.data().ok()?))).collect()
}

fn endian(elf: &object::File<'_>) -> RunTimeEndian {
    if elf.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big }
}

fn damaged(file: &Mapped, files: &Files, error: String) -> Problem {
    let error = if files.meter.exceeded() {
        "it would take more work or nesting than a file of its size can need".to_owned()
    } else {
        error
    };
    Problem::Damaged { file: file.path.clone(), error }
}
