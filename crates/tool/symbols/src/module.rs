//! One module: loading it, and the answers given so far.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use object::Object;

use crate::demangle;
use crate::find::Finder;
use crate::frame::{Frame, Function, NameSource};
use crate::image::{Answer, Files, Image, RawFrame};
use crate::mapped::{self, Mapped};
use crate::state::{DebugInfo, ModuleState, NameCounts, Problem};
use crate::symbolizer::ModuleRef;

#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) state: ModuleState,
    image: Option<Image>,
    answers: HashMap<u64, Arc<[Frame]>>,
    functions: HashMap<Box<[u8]>, Function>,
    files: HashSet<Arc<str>>,
}

impl Module {
    pub(crate) fn load(module: ModuleRef<'_>, finder: &Finder) -> Self {
        let mut state = ModuleState {
            name: name(module.path),
            file: None,
            debug_file: None,
            debug: DebugInfo::Missing,
            problems: Vec::new(),
            names: NameCounts::default(),
        };
        let image = load(module, finder, &mut state);
        Self { state, image, answers: HashMap::new(), functions: HashMap::new(), files: HashSet::new() }
    }

    pub(crate) fn frames(&mut self, offset: u64, finder: &Finder) -> Arc<[Frame]> {
        if let Some(frames) = self.answers.get(&offset) {
            return frames.clone();
        }
        let answer = match &self.image {
            Some(image) => image.lookup(offset, finder, &mut self.state.problems),
            None => Answer::default(),
        };
        let frames = self.render(answer, offset);
        match frames.last().map(|frame| frame.source) {
            Some(NameSource::Debug) => self.state.names.debug += 1,
            Some(NameSource::SymbolTable | NameSource::Nearest) => self.state.names.symbols += 1,
            Some(NameSource::None) | None => self.state.names.none += 1,
        }
        self.answers.insert(offset, frames.clone());
        frames
    }

    fn render(&mut self, answer: Answer, offset: u64) -> Arc<[Frame]> {
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
            frames.push(Frame { function, file, line: frame.line, column: frame.column, inlined, source });
        }
        frames.into()
    }

    /// Some functions come without their scope: local ones in C++, all of them in line tables of Rust. If the symbol is
    /// the same function, it says more.
    fn scoped(&mut self, name: &[u8], symbol: &[u8]) -> Function {
        let (plain, scoped) = (self.function(name), self.function(symbol));
        let last = |name: &str| name.rsplit("::").next().unwrap_or_default().trim_matches(['{', '}']).to_owned();
        let (inner, outer) = (last(plain.short()), last(scoped.short()));
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
        let _ = write!(name, "+{offset:#x}");
        Function::new(&name, &name, None)
    }
}

fn load(module: ModuleRef<'_>, finder: &Finder, state: &mut ModuleState) -> Option<Image> {
    if !is_file(module.path) {
        state.problems.push(Problem::NotAFile);
        return None;
    }
    let path = Path::new(OsStr::from_bytes(module.path));
    let file = finder.module(path, module.build_id, &mut state.problems);
    let elf = file.as_ref().and_then(|file| file.elf().ok());
    let own_id = elf.as_ref().and_then(|elf| elf.build_id().ok().flatten()).unwrap_or_default();
    let build_id = if module.build_id.is_empty() { own_id } else { module.build_id };
    let complete = elf.as_ref().is_some_and(mapped::has_dwarf);
    let debug = if complete { None } else { finder.debug(file.as_ref(), build_id, &mut state.problems) };
    let debug = debug.or_else(|| if complete { None } else { finder.download(&state.name, build_id) });
    drop(elf);
    if file.is_none() && debug.is_none() {
        return None;
    }
    let path_of = |file: &Option<Mapped>| file.as_ref().map(|file| file.path.clone());
    (state.file, state.debug_file) = (path_of(&file), path_of(&debug));
    let mut files = Files::new(file, debug);
    if let Some(dwarf) = files.with_dwarf() {
        let supplementary = finder.supplementary(dwarf, &mut state.problems);
        let package = files.module.iter().chain(&files.debug).find_map(|file| finder.package(&file.path));
        (files.supplementary, files.package) = (supplementary, package);
    }
    let module_alone = files.module.as_ref().filter(|_| files.debug.is_none() && !complete);
    files.mini = match module_alone.and_then(Mapped::mini_debug) {
        Some(Ok(mini)) => Some(mini),
        Some(Err(error)) => {
            let file = files.module.as_ref().map_or_else(|| path.to_path_buf(), |file| file.path.clone());
            state.problems.push(Problem::Damaged { file, error });
            None
        }
        None => None,
    };
    let image = Image::new(files, &mut state.problems);
    state.debug = image.debug_info();
    Some(image)
}

/// True if `name` is not mangled although the symbol is.
fn is_local(name: &[u8], symbol: &[u8]) -> bool {
    !demangle::is_mangled(name) && demangle::is_mangled(symbol)
}

/// The kernel's names for what is mapped but is no file.
fn is_file(path: &[u8]) -> bool {
    let special: [&[u8]; 6] = [b"[", b"linux-vdso.so", b"linux-gate.so", b"/memfd:", b"/SYSV", b"anon_inode:"];
    !path.is_empty() && !special.iter().any(|prefix| path.starts_with(prefix))
}

/// The name of a module in `module+0xoffset`.
fn name(path: &[u8]) -> String {
    if path.starts_with(b"linux-vdso.so") || path.starts_with(b"linux-gate.so") {
        return "[vdso]".to_owned();
    }
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let name = path.rsplit(|&byte| byte == b'/').find(|part| !part.is_empty()).unwrap_or(b"[unknown]");
    String::from_utf8_lossy(name).into_owned()
}
