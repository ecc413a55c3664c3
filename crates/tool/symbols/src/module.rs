//! One module: loading it, and the answers given so far.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use object::{Object, ObjectSegment};

use crate::answer::{Answer, RawFrame};
use crate::breakpad::Breakpad;
use crate::cache::{self, CacheEntry, MadeFrom, names};
use crate::demangle;
use crate::extents::{self, Extent};
use crate::files::Files;
use crate::find::DebugFileFinder;
use crate::frame::{Function, NameSource, SymbolFrame};
use crate::image::Image;
use crate::mapped::{self, Mapped};
use crate::modules::ModuleRef;
use crate::open_module::OpenModule;
use crate::state::{DebugInfo, ModuleState, NameCounts, Problem};

#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) state: ModuleState,
    source: Source,
    breakpad: Option<Breakpad>,
    answers: HashMap<u64, Arc<[SymbolFrame]>>,
    functions: HashMap<Box<[u8]>, Function>,
    files: HashSet<Arc<str>>,
    cache: Option<CacheEntry>,
    /// The identity of the files that answers are made from.
    fingerprint: Arc<[u8]>,
    /// Answers of earlier runs that have not been asked for in this one.
    kept: HashMap<u64, Arc<[SymbolFrame]>>,
    /// True if there are answers that no earlier run had.
    is_new: bool,
}

/// The source of answers.
enum Source {
    Nothing,
    /// Files whose tables are made when an address is asked for that is not in the cache.
    Files(Box<Files>),
    Image(Image),
}

impl Module {
    pub(crate) fn load(module: ModuleRef<'_>, finder: &DebugFileFinder) -> Self {
        let mut state = ModuleState {
            name: name(module.path),
            file: None,
            debug_file: None,
            debug: DebugInfo::Missing,
            problems: Vec::new(),
            names: NameCounts::default(),
        };
        let (build_id, files) = find(module, finder, &mut state);
        let breakpad = find_breakpad(module, &build_id, files.as_ref(), finder, &mut state);
        let paths = || files.iter().flat_map(Files::paths).chain(breakpad.as_ref().map(Breakpad::path));
        let fingerprint = paths().next().map(|_| cache::fingerprint(paths()));
        let directory = finder.options.cache.as_deref();
        let cache = directory.and_then(|directory| CacheEntry::new(directory, &build_id));
        let kept = cache.as_ref().and_then(|cache| names::read(cache, fingerprint.as_deref()));
        let mut module = Self {
            state,
            source: files.map_or(Source::Nothing, |files| Source::Files(Box::new(files))),
            breakpad,
            answers: HashMap::new(),
            functions: HashMap::new(),
            files: HashSet::new(),
            cache,
            fingerprint: fingerprint.map(Arc::from).unwrap_or_default(),
            kept: HashMap::new(),
            is_new: false,
        };
        match kept {
            Some(kept) => (module.state.debug, module.kept) = (kept.debug, kept.places),
            None => {
                module.open();
                // The kind of debug information is worth keeping in itself: the next run need not
                // open the file for it.
                module.is_new = matches!(module.source, Source::Image(_));
            }
        }
        module
    }

    pub(crate) fn frames(&mut self, offset: u64, finder: &DebugFileFinder) -> Arc<[SymbolFrame]> {
        if let Some(frames) = self.answers.get(&offset) {
            return frames.clone();
        }
        let frames = match self.kept.remove(&offset) {
            Some(frames) if frames.is_empty() => self.render(Answer::default(), offset),
            Some(frames) => frames,
            None => {
                self.is_new = true;
                self.open();
                let mut told = self.breakpad.as_mut().map(|file| file.lookup(offset)).unwrap_or_default();
                if told.frames.is_empty() {
                    let answer = match &self.source {
                        Source::Image(image) => image.lookup(offset, finder, &mut self.state.problems),
                        Source::Files(_) | Source::Nothing => Answer::default(),
                    };
                    if !answer.frames.is_empty() || answer.symbol.is_some() {
                        told = answer;
                    }
                }
                self.render(told, offset)
            }
        };
        match frames.last().map(|frame| frame.source) {
            Some(NameSource::Debug) => self.state.names.debug += 1,
            Some(NameSource::SymbolTable | NameSource::Nearest) => self.state.names.symbols += 1,
            Some(NameSource::None) | None => self.state.names.none += 1,
        }
        self.answers.insert(offset, frames.clone());
        frames
    }

    /// Returns the physical functions at these addresses, if the file is there.
    pub(crate) fn extents(&self, offsets: &[u64]) -> Vec<Option<Extent>> {
        let file = match &self.source {
            Source::Files(files) => files.module.as_ref(),
            Source::Image(image) => image.file(),
            Source::Nothing => None,
        };
        file.map_or_else(|| vec![None; offsets.len()], |file| extents::extents(file, offsets))
    }

    /// Returns the functions with names before and after one that has none.
    pub(crate) fn neighbours(&mut self, function: Extent) -> [Option<Function>; 2] {
        self.open();
        let Source::Image(image) = &self.source else { return [None, None] };
        image.neighbours(function).map(|name| name.map(|name| self.function(&name)))
    }

    /// Calls `ask` with the tables; `None` if there are none.
    pub(crate) fn with_open<T>(
        &mut self,
        finder: &DebugFileFinder,
        ask: impl FnOnce(&mut OpenModule<'_, '_>) -> T,
    ) -> Option<T> {
        self.open();
        let Source::Image(image) = &self.source else { return None };
        Some(image.with_open(finder, &mut self.state.problems, ask))
    }

    /// Returns the place of answers in the cache directory.
    pub(crate) fn cache_entry(&self) -> Option<&CacheEntry> {
        self.cache.as_ref()
    }

    /// Returns the identity of the files that answers are made from.
    pub(crate) fn made_from(&self) -> MadeFrom {
        let is_lasting = |problem: &Problem| match problem {
            Problem::NotFound { .. } | Problem::BuildIdMismatch { .. } | Problem::SearchCut { .. } => true,
            problem => *problem == Problem::NotAFile,
        };
        let is_final = self.state.problems.iter().all(is_lasting);
        MadeFrom { fingerprint: self.fingerprint.clone(), is_final }
    }

    /// Keeps the answers for the next run if there are new ones, and if no better ones may be
    /// possible later.
    pub(crate) fn keep(&mut self) {
        let is_read = matches!(self.source, Source::Image(_));
        if let Some(cache) = self.cache.as_ref().filter(|_| is_read && self.is_new && self.made_from().is_final) {
            let places = self.answers.iter().chain(&self.kept).map(|(&offset, frames)| (offset, &**frames));
            names::write(cache, &self.fingerprint, self.state.debug, places);
            self.is_new = false;
        }
    }

    /// Makes the tables.
    fn open(&mut self) {
        let mut files = match mem::replace(&mut self.source, Source::Nothing) {
            Source::Files(files) => *files,
            image @ Source::Image(_) => {
                self.source = image;
                return;
            }
            Source::Nothing => {
                // The names of earlier runs are all that there is.
                self.state.debug = self.breakpad.as_ref().map_or(DebugInfo::Missing, Breakpad::debug_info);
                return;
            }
        };
        let module = files.module.as_ref().filter(|_| files.debug.is_none() && files.with_dwarf().is_none());
        files.mini = match module.and_then(|module| Some((module.path.clone(), module.mini_debug()?))) {
            Some((_, Ok(mini))) => Some(mini),
            Some((file, Err(error))) => {
                self.state.problems.push(Problem::Damaged { file, error });
                None
            }
            None => None,
        };
        let image = Image::new(files, &mut self.state.problems);
        let told = self.breakpad.as_ref().map(Breakpad::debug_info);
        self.state.debug = told.map_or(image.debug_info(), |told| told.max(image.debug_info()));
        self.source = Source::Image(image);
    }

    fn render(&mut self, answer: Answer, offset: u64) -> Arc<[SymbolFrame]> {
        let mut raw = answer.frames;
        if raw.is_empty() {
            raw.push(RawFrame { name: None, plain: None, file: None, line: None, column: None });
        }
        let last = raw.len() - 1;
        let mut frames = Vec::with_capacity(raw.len());
        for (at, frame) in raw.into_iter().enumerate() {
            let symbol = answer.symbol.as_ref().filter(|_| at == last);
            let (function, source) = match (frame.name, symbol) {
                (Some(name), Some((symbol, NameSource::SymbolTable))) if is_local(&name, symbol) => {
                    (self.scoped(&name, symbol), NameSource::Debug)
                }
                (Some(name), _) => {
                    let name = answer.public_name.as_ref().filter(|_| at == last).unwrap_or(&name);
                    (self.typed(name, frame.plain.as_deref()), NameSource::Debug)
                }
                (None, Some((symbol, source))) => (self.function(symbol), *source),
                (None, None) => (self.unnamed(offset), NameSource::None),
            };
            let file = frame.file.map(|file| self.file(&file));
            let inlined = at < last;
            frames.push(SymbolFrame { function, file, line: frame.line, column: frame.column, inlined, source });
        }
        frames.into()
    }

    /// Returns the function with its scope. Some names lack it: those of local functions in C++,
    /// and all in line tables of Rust. If the symbol is the same function, it has the scope.
    fn scoped(&mut self, name: &[u8], symbol: &[u8]) -> Function {
        let (plain, scoped) = (self.function(name), self.function(symbol));
        let last = |name: &str| name.rsplit("::").next().unwrap_or_default().trim_matches(['{', '}']).to_owned();
        let (inner, outer) = (last(plain.short()), last(scoped.short()));
        if inner.starts_with("async_") && outer == "closure" {
            let scope = scoped.full().split("::{{closure}}").next().unwrap_or_default();
            return self.function(format!("{scope}::{}", plain.full()).as_bytes());
        }
        let same = inner == outer || (inner.starts_with("closure") && outer == "closure");
        if same { self.typed(symbol, Some(name)) } else { plain }
    }

    fn typed(&mut self, name: &[u8], plain: Option<&[u8]>) -> Function {
        let Some(plain) = plain.filter(|_| demangle::is_legacy_rust(name)) else { return self.function(name) };
        let key = [name, plain].join(&0);
        self.functions.entry(key.into()).or_insert_with(|| demangle::typed_function(name, plain)).clone()
    }

    fn function(&mut self, name: &[u8]) -> Function {
        if let Some(function) = self.functions.get(name) {
            return function.clone();
        }
        let function = demangle::function(name);
        self.functions.insert(name.into(), function.clone());
        function
    }

    fn file(&mut self, file: &str) -> Arc<str> {
        if let Some(file) = self.files.get(file) {
            return file.clone();
        }
        let file: Arc<str> = file.into();
        self.files.insert(file.clone());
        file
    }

    fn unnamed(&self, offset: u64) -> Function {
        let mut name = self.state.name.clone();
        let start = self.extents(&[offset]).pop().flatten().map_or(offset, |function| function.start);
        let _ = write!(name, "+{start:#x}");
        Function::new(&name, &name, None)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Nothing => "Nothing",
            Source::Files(_) => "Files",
            Source::Image(_) => "Image",
        })
    }
}

/// Returns the build id of a module, and its files, if there are any.
fn find(module: ModuleRef<'_>, finder: &DebugFileFinder, state: &mut ModuleState) -> (Box<[u8]>, Option<Files>) {
    if !is_file(module.path) {
        state.problems.push(Problem::NotAFile);
        return (Box::default(), None);
    }
    let path = Path::new(OsStr::from_bytes(module.path));
    let file = finder.module(path, module.build_id, &mut state.problems);
    let elf = file.as_ref().and_then(|file| file.elf().ok());
    let own_id = elf.as_ref().and_then(|elf| elf.build_id().ok().flatten()).unwrap_or_default();
    let build_id: Box<[u8]> = if module.build_id.is_empty() { own_id.into() } else { module.build_id.into() };
    let complete = elf.as_ref().is_some_and(mapped::has_dwarf);
    let debug = if complete { None } else { finder.debug(file.as_ref(), &build_id, &mut state.problems) };
    let debug = debug.or_else(|| if complete { None } else { finder.download(&state.name, &build_id) });
    drop(elf);
    if file.is_none() && debug.is_none() {
        return (build_id, None);
    }
    let path_of = |file: &Option<Mapped>| file.as_ref().map(|file| file.path.clone());
    (state.file, state.debug_file) = (path_of(&file), path_of(&debug));
    let mut files = Files::new(file, debug);
    if let Some(dwarf) = files.with_dwarf() {
        let supplementary = finder.supplementary(dwarf, &mut state.problems);
        let package = files.module.iter().chain(&files.debug).find_map(|file| finder.package(&file.path));
        (files.supplementary, files.package) = (supplementary, package);
    }
    (build_id, Some(files))
}

/// Finds the symbol file of Breakpad for a module, if there is one.
fn find_breakpad(
    module: ModuleRef<'_>,
    build_id: &[u8],
    files: Option<&Files>,
    finder: &DebugFileFinder,
    state: &mut ModuleState,
) -> Option<Breakpad> {
    if finder.options.breakpad.is_empty() || !is_file(module.path) {
        return None;
    }
    // Addresses in these files are relative to the beginning of the module. The module's file tells
    // its lowest address: 0 if it can be loaded anywhere.
    let files = files.into_iter().flat_map(|files| files.module.iter().chain(&files.debug));
    let base = files.filter_map(|file| file.elf().ok()?.segments().map(|segment| segment.address()).min()).next();
    let path = Path::new(OsStr::from_bytes(module.path));
    let found = finder.breakpad(path, build_id, base.unwrap_or(0), &mut state.problems)?;
    if state.debug_file.is_none() {
        state.debug_file = Some(found.path().to_path_buf());
    }
    Some(found)
}

/// True if `name` is not mangled although the symbol is.
fn is_local(name: &[u8], symbol: &[u8]) -> bool {
    !demangle::is_mangled(name) && demangle::is_mangled(symbol)
}

/// False for the kernel's names for mappings that are not files.
fn is_file(path: &[u8]) -> bool {
    let special: [&[u8]; 6] = [b"[", b"linux-vdso.so", b"linux-gate.so", b"/memfd:", b"/SYSV", b"anon_inode:"];
    !path.is_empty() && !special.iter().any(|prefix| path.starts_with(prefix))
}

/// Returns the name of a module in `module+0xoffset`.
fn name(path: &[u8]) -> String {
    if path.starts_with(b"linux-vdso.so") || path.starts_with(b"linux-gate.so") {
        return "[vdso]".to_owned();
    }
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let name = path.rsplit(|&byte| byte == b'/').find(|part| !part.is_empty()).unwrap_or(b"[unknown]");
    String::from_utf8_lossy(name).into_owned()
}
