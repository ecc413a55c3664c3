//! The entry point: modules by path and build id, each loaded at its first lookup.

use std::sync::Arc;

use crate::cache::{CacheEntry, MadeFrom};
use crate::extents::Extent;
use crate::find::DebugFileFinder;
use crate::frame::{Function, SymbolFrame};
use crate::hint;
use crate::module::Module;
use crate::modules::{ModuleRef, Modules};
use crate::open_module::OpenModule;
use crate::options::SymbolizerOptions;
use crate::state::ModuleState;

/// Turns addresses into functions, files and lines.
///
/// Share it freely: it is [`Send`] and [`Sync`], and lookups in different modules run in parallel;
/// those in one module take turns. A lookup may use half a mebibyte of stack, which matters for
/// threads with a small one.
#[derive(Debug)]
pub struct Symbolizer {
    finder: DebugFileFinder,
    modules: Modules<Module>,
}

impl Symbolizer {
    /// Makes a symbolizer that has loaded nothing yet.
    pub fn new(options: SymbolizerOptions) -> Self {
        Self { finder: DebugFileFinder::new(options), modules: Modules::default() }
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

    /// Calls `ask` with the debug information, the symbols and the code of `module`, for questions
    /// that names do not answer; `None` if it has no file. Opens the files if no lookup has done so
    /// yet. `ask` must not use this symbolizer.
    pub fn with_open_module<T>(
        &self,
        module: ModuleRef<'_>,
        ask: impl FnOnce(&mut OpenModule<'_, '_>) -> T,
    ) -> Option<T> {
        self.with(module, |module, finder| module.with_open(finder, ask))
    }

    /// True if answers are kept from run to run.
    pub fn keeps_answers(&self) -> bool {
        self.finder.options.cache.is_some()
    }

    /// Returns the place in the cache directory of answers about `module`; `None` if there is no
    /// such directory, or the module has no build id.
    pub fn cache_entry(&self, module: ModuleRef<'_>) -> Option<CacheEntry> {
        self.with(module, |module, _| module.cache_entry().cloned())
    }

    /// Returns the identity of the files that answers about `module` are made from.
    pub fn made_from(&self, module: ModuleRef<'_>) -> MadeFrom {
        self.with(module, |module, _| module.made_from())
    }

    /// Calls `ask` with the module, loading it first if this is the first time.
    fn with<T>(&self, module: ModuleRef<'_>, ask: impl FnOnce(&mut Module, &DebugFileFinder) -> T) -> T {
        self.modules.with(module, || Module::load(module, &self.finder), |module| ask(module, &self.finder))
    }
}

impl Drop for Symbolizer {
    fn drop(&mut self) {
        self.modules.for_each(|_, module| module.keep());
    }
}
