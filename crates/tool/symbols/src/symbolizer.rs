//! The entry point: modules by path and build id, each loaded at its first lookup.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::extents::Extent;
use crate::find::Finder;
use crate::frame::{Frame, Function};
use crate::hint;
use crate::module::Module;
use crate::state::ModuleState;

/// Where to look for files.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directories with separate debug files, searched in this order; `/usr/lib/debug` by default.
    pub debug_dirs: Vec<PathBuf>,
    /// Root of the file system that the program ran in, if it was another than ours. All absolute paths are looked up
    /// below it; if nothing is there, files of our own system serve, but only with the recorded build id.
    pub sysroot: Option<PathBuf>,
    /// Files, and directories that are searched with all that is below them, for modules, debug files, and parts of split
    /// debug information: by build id, and by name where there is none. The first 100,000 files are looked at.
    pub search: Vec<PathBuf>,
    /// Directories with symbol files of Breakpad: `NAME/DEBUGID/NAME.sym`, as its tools and
    /// Mozilla's lay them out. Names come from there first.
    pub breakpad: Vec<PathBuf>,
    /// Whether to ask the servers in the environment variable `DEBUGINFOD_URLS`, by the program `debuginfod-find`, for
    /// debug information that is nowhere here. Is called with the name of the module before each time, which may take long.
    pub debuginfod: Option<fn(&str)>,
    /// A directory in which names and types are kept from run to run, by build id: of a module, at most 4 MiB of names, 32 MiB
    /// of types and 16 MiB of conclusions about stacks, and 256 MiB in all. Made if it is not there. It is written when the
    /// symbolizer is dropped.
    pub cache: Option<PathBuf>,
}

impl Default for Options {
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
    /// Build id as recorded; empty if there was none: then the file at the path is taken as it is.
    pub build_id: &'a [u8],
}

/// Turns addresses into functions, files and lines.
///
/// Share it freely: it is [`Send`] and [`Sync`], and lookups in different modules run in parallel; those in one module
/// take turns. A lookup may use half a mebibyte of stack: that is for threads with less than one to know.
#[derive(Debug)]
pub struct Symbolizer {
    finder: Finder,
    /// By path, then by build id.
    modules: Mutex<HashMap<Box<[u8]>, Vec<Slot>>>,
}

#[derive(Debug)]
struct Slot {
    build_id: Box<[u8]>,
    module: Arc<OnceLock<Mutex<Module>>>,
}

impl Symbolizer {
    /// A symbolizer that has loaded nothing yet.
    pub fn new(options: Options) -> Self {
        Self { finder: Finder::new(options), modules: Mutex::default() }
    }

    /// The functions at `offset`, innermost inlined function first; never empty. The last one is the physical function.
    ///
    /// `offset` is in the module's own ELF addresses and is looked up as it is: the caller has already subtracted 1
    /// from return addresses. Answers are kept: asking again for the same offset is cheap.
    pub fn frames(&self, module: ModuleRef<'_>, offset: u64) -> Arc<[Frame]> {
        self.with(module, |module, finder| module.frames(offset, finder))
    }

    /// Returns the physical functions that code addresses of a module are in, in the order of the addresses, by the unwind
    /// information of its file: `None` where that has nothing. Needs no names, and takes no time to speak of.
    pub fn extents(&self, module: ModuleRef<'_>, offsets: &[u64]) -> Vec<Option<Extent>> {
        self.with(module, |module, _| module.extents(offsets))
    }

    /// Returns the functions with names before and after a function without one. Neighbours are often of the same source
    /// file, so they say what a function may be about.
    pub fn neighbours(&self, module: ModuleRef<'_>, function: Extent) -> [Option<Function>; 2] {
        self.with(module, |module, _| module.neighbours(function))
    }

    /// What is known about `module`; loads it if no address of it was asked for yet. Best asked after the lookups, since
    /// the counts, and some of the problems, come with them.
    pub fn module_state(&self, module: ModuleRef<'_>) -> ModuleState {
        self.with(module, |module, _| module.state.clone())
    }

    /// One plain line on how to get better names for `module`; `None` if they are as good as they can be. Best asked
    /// after the lookups.
    pub fn hint(&self, module: ModuleRef<'_>) -> Option<String> {
        hint::hint(&self.module_state(module), module, &self.finder.options)
    }

    /// Whether answers are kept from run to run.
    pub(crate) fn keeps(&self) -> bool {
        self.finder.options.cache.is_some()
    }

    /// Calls `ask` with the module, loading it first if this is the first time.
    pub(crate) fn with<T>(&self, module: ModuleRef<'_>, ask: impl FnOnce(&mut Module, &Finder) -> T) -> T {
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

/// A panic in another thread leaves nothing half done that matters here: at worst an answer is worked out again.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
