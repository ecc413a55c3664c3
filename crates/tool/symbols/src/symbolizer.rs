//! The entry point: modules by path and build id, each loaded at its first lookup.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::extents::Extent;
use crate::find::DebugFileFinder;
use crate::frame::{Function, SymbolFrame};
use crate::hint;
use crate::module::Module;
use crate::state::ModuleState;

/// The places to look for files.
#[derive(Debug, Clone)]
pub struct SymbolizerOptions {
    /// Directories with separate debug files, searched in this order; `/usr/lib/debug` by default.
    pub debug_dirs: Vec<PathBuf>,
    /// Root of the file system that the program ran in, if it was not this system's. All absolute
    /// paths are looked up below it; if nothing is there, files of this system are used, but only
    /// with the recorded build id.
    pub sysroot: Option<PathBuf>,
    /// Files, and directories that are searched recursively, for modules, debug files, and parts of
    /// split debug information: by build id, and by name if there is none. The first 100,000 files
    /// are examined.
    pub search: Vec<PathBuf>,
    /// Directories with symbol files of Breakpad: `NAME/DEBUGID/NAME.sym`, as its tools and
    /// Mozilla's lay them out. They are the first source of names.
    pub breakpad: Vec<PathBuf>,
    /// Asks the servers in the environment variable `DEBUGINFOD_URLS`, by the program
    /// `debuginfod-find`, for debug information that is not found locally. The function is called
    /// with the name of the module before each request, which may take long.
    pub debuginfod: Option<fn(&str)>,
    /// A directory in which names and types are kept from run to run, by build id: for each module,
    /// at most 4 MiB of names, 32 MiB of types and 16 MiB of conclusions about stacks, and 256 MiB
    /// in all. Made if it does not exist. It is written when the symbolizer is dropped.
    pub cache: Option<PathBuf>,
}

impl Default for SymbolizerOptions {
    fn default() -> Self {
        Self {
            debug_dirs: vec![PathBuf::from("/usr/lib/debug")],
            sysroot: None,
            search: Vec::new(),
            breakpad: Vec::new(),
            debuginfod: None,
            cache: None,
        }
    }
}

/// A module as recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ModuleRef<'a> {
    /// Path as recorded.
    pub path: &'a [u8],
    /// Build id as recorded; empty if there was none: then the file at the path is used unchecked.
    pub build_id: &'a [u8],
}

/// Turns addresses into functions, files and lines.
///
/// Share it freely: it is [`Send`] and [`Sync`], and lookups in different modules run in parallel;
/// those in one module take turns. A lookup may use half a mebibyte of stack, which matters for
/// threads with a small one.
#[derive(Debug)]
pub struct Symbolizer {
    finder: DebugFileFinder,
    /// Keyed by path, then by build id.
    modules: Mutex<HashMap<Box<[u8]>, Vec<Slot>>>,
}

#[derive(Debug)]
struct Slot {
    build_id: Box<[u8]>,
    module: Arc<OnceLock<Mutex<Module>>>,
}

impl Symbolizer {
    /// Makes a symbolizer that has loaded nothing yet.
    pub fn new(options: SymbolizerOptions) -> Self {
        Self { finder: DebugFileFinder::new(options), modules: Mutex::default() }
    }

    /// Returns the functions at `offset`, innermost inlined function first; never empty. The last
    /// one is the physical function.
    ///
    /// `offset` is in the module's own ELF addresses and is looked up as it is: the caller has
    /// already subtracted 1 from return addresses. Answers are kept: asking again for the same
    /// offset is cheap.
    pub fn frames(&self, module: ModuleRef<'_>, offset: u64) -> Arc<[SymbolFrame]> {
        self.with(module, |module, finder| module.frames(offset, finder))
    }

    /// Returns the physical functions that contain code addresses of a module, in the order of the
    /// addresses, by the unwind information of its file: `None` if that has none. Needs no names,
    /// and takes hardly any time.
    pub fn extents(&self, module: ModuleRef<'_>, offsets: &[u64]) -> Vec<Option<Extent>> {
        self.with(module, |module, _| module.extents(offsets))
    }

    /// Returns the functions with names before and after a function without one. Neighbours are
    /// often from the same source file, so they hint at the purpose of a function.
    pub fn neighbours(&self, module: ModuleRef<'_>, function: Extent) -> [Option<Function>; 2] {
        self.with(module, |module, _| module.neighbours(function))
    }

    /// Returns the state of `module`; loads it if no address of it was asked for yet. Best called
    /// after the lookups, because the counts and some of the problems come with them.
    pub fn module_state(&self, module: ModuleRef<'_>) -> ModuleState {
        self.with(module, |module, _| module.state.clone())
    }

    /// Returns one plain line on how to get better names for `module`; `None` if they are as good
    /// as possible. Best called after the lookups.
    pub fn hint(&self, module: ModuleRef<'_>) -> Option<String> {
        hint::hint(&self.module_state(module), module, &self.finder.options)
    }

    /// True if answers are kept from run to run.
    pub(crate) fn keeps(&self) -> bool {
        self.finder.options.cache.is_some()
    }

    /// Calls `ask` with the module, loading it first if this is the first time.
    pub(crate) fn with<T>(&self, module: ModuleRef<'_>, ask: impl FnOnce(&mut Module, &DebugFileFinder) -> T) -> T {
        // Loading may take long, so not under the lock of the table.
        let slot = self.slot(module);
        let loaded = slot.get_or_init(|| Mutex::new(Module::load(module, &self.finder)));
        ask(&mut lock(loaded), &self.finder)
    }

    fn slot(&self, module: ModuleRef<'_>) -> Arc<OnceLock<Mutex<Module>>> {
        let mut modules = lock(&self.modules);
        let slots = match modules.get_mut(module.path) {
            Some(slots) => slots,
            None => modules.entry(module.path.into()).or_default(),
        };
        if let Some(slot) = slots.iter().find(|slot| *slot.build_id == *module.build_id) {
            return slot.module.clone();
        }
        let loading = Arc::<OnceLock<_>>::default();
        slots.push(Slot { build_id: module.build_id.into(), module: loading.clone() });
        loading
    }
}

impl Drop for Symbolizer {
    fn drop(&mut self) {
        let Some(directory) = &self.finder.options.cache else { return };
        let modules = lock(&self.modules);
        let loaded = || modules.values().flatten().filter_map(|slot| slot.module.get()).map(lock);
        if !loaded().any(|module| module.has_new()) {
            return;
        }
        let mut there = HashMap::new();
        loaded().for_each(|mut module| module.lacking(&mut there));
        let lacking: Vec<_> = there.into_iter().filter_map(|(file, is_there)| (!is_there).then_some(file)).collect();
        loaded().for_each(|mut module| module.keep(directory, &lacking));
    }
}

/// Locks a mutex. A panic in another thread leaves no harmful state: at worst an answer is computed
/// again.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
