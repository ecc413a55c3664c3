//! The entry point: types at addresses, and of the blocks that stacks allocate.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use heapledger_symbols::{ModuleRef, Modules, Symbolizer};

use crate::cache::sites::{self, Concluded};
use crate::conclude::conclude;
use crate::frame::TypedFrame;
use crate::module::Module;
use crate::places::InnermostPlaces;
use crate::rust;
use crate::site_type::SiteType;
use crate::sizes::SiteSizes;

/// The maximum number of places that are examined.
const PLACES_MAX: usize = 64;
/// The maximum number of functions of a program's own allocator that are skipped.
const ALLOCATOR_MAX: usize = 16;

/// Finds the types of blocks, in the files that a symbolizer uses.
///
/// Share it freely, like the symbolizer: questions about different modules run in parallel.
/// If the symbolizer has a directory for answers, types are kept there, too: for each module at
/// most 32 MiB of types and 16 MiB of conclusions about stacks. They are written when the finder is
/// dropped.
#[derive(Debug)]
pub struct TypeFinder {
    symbolizer: Arc<Symbolizer>,
    modules: Modules<Module>,
}

impl TypeFinder {
    /// Makes a finder that has examined nothing yet.
    pub fn new(symbolizer: impl Into<Arc<Symbolizer>>) -> Self {
        Self { symbolizer: symbolizer.into(), modules: Modules::default() }
    }

    /// Returns the functions at an address with their types, innermost inlined function first;
    /// never empty. The last one is the physical function.
    ///
    /// `offset` is as for [`frames`](Symbolizer::frames). Answers are kept, and like names they
    /// come from the cache if an earlier run has left them there.
    pub fn typed_frames(&self, module: ModuleRef<'_>, offset: u64) -> Arc<[TypedFrame]> {
        self.with(module, |known| known.typed_frames(offset, module, &self.symbolizer))
    }

    /// Returns the type of the blocks that a stack allocates.
    ///
    /// `stack` has the places innermost first, with offsets as for [`frames`](Symbolizer::frames):
    /// inside the call. Only the innermost 64 places are examined. `sizes` are those of the
    /// allocations there, if known.
    ///
    /// Conclusions are in the cache, too: the same question in a later run takes a few
    /// microseconds.
    pub fn site_type(&self, stack: &[(ModuleRef<'_>, u64)], sizes: SiteSizes) -> SiteType {
        let stack = &stack[..stack.len().min(PLACES_MAX)];
        let Some(&(innermost, _)) = stack.first().filter(|_| self.symbolizer.keeps_answers()) else {
            return self.conclude(stack, sizes).0;
        };
        let key = sites::key(stack, sizes);
        let known = self.with(innermost, |module| module.sites().find(key));
        if let Some(known) = known
            && let Some(looked_at) = stack.get(..known.places as usize)
            && self.made_from(looked_at) == Some(known.made_from)
        {
            return known.site;
        }
        let (site, places) = self.conclude(stack, sizes);
        if let Some(made_from) = self.made_from(&stack[..places]) {
            let concluded = Concluded { site: site.clone(), places: places as u32, made_from };
            self.with(innermost, |module| module.sites().add(key, concluded));
        }
        site
    }

    /// Returns the type, and the number of places that were examined for it.
    fn conclude(&self, stack: &[(ModuleRef<'_>, u64)], sizes: SiteSizes) -> (SiteType, usize) {
        let mut places: Vec<Arc<[TypedFrame]>> = Vec::new();
        let (mut is_asked, mut own) = (false, 0);
        for &(module, offset) in stack {
            let frames = self.typed_frames(module, offset);
            is_asked |= frames.iter().any(rust::is_entry);
            let asks = frames.last().is_some_and(rust::asks);
            places.push(frames);
            // In Rust, the functions beyond the one that asks a library for memory do not matter.
            // Functions before the allocator's entry point belong to the allocator.
            own += usize::from(asks && !is_asked);
            if asks && is_asked || own > ALLOCATOR_MAX {
                break;
            }
        }
        (conclude(&places, InnermostPlaces::of(stack, &places), sizes), places.len())
    }

    /// Returns a hash of the files that the modules of these places are read from. `None` if better
    /// answers may be possible later.
    fn made_from(&self, places: &[(ModuleRef<'_>, u64)]) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        let mut last = None;
        for &(module, _) in places {
            if last.replace(module) != Some(module) {
                let made_from = self.symbolizer.made_from(module);
                made_from.is_final.then(|| made_from.fingerprint.hash(&mut hasher))?;
            }
        }
        Some(hasher.finish())
    }

    /// Calls `ask` with what is known of the module.
    fn with<T>(&self, module: ModuleRef<'_>, ask: impl FnOnce(&mut Module) -> T) -> T {
        self.modules.with(module, || Module::new(self.symbolizer.cache_entry(module)), ask)
    }
}

impl Drop for TypeFinder {
    fn drop(&mut self) {
        let mut has_new = false;
        self.modules.for_each(|_, module| has_new |= module.has_new());
        if !has_new {
            return;
        }
        let mut there = HashMap::new();
        self.modules.for_each(|_, module| module.lacking(&mut there));
        let lacking: Vec<_> = there.into_iter().filter_map(|(file, is_there)| (!is_there).then_some(file)).collect();
        self.modules.for_each(|reference, module| module.keep(&lacking, reference, &self.symbolizer));
    }
}
