//! The types in one module: the answers so far, and those of earlier runs.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use heapledger_symbols::cache::CacheEntry;
use heapledger_symbols::{ModuleRef, Symbolizer};

use crate::cache::sites::{self, Sites};
use crate::cache::types::{self, Types};
use crate::frame::TypedFrame;
use crate::known_entries::KnownEntries;
use crate::rendering::Rendering;
use crate::source::Sources;
use crate::typed_answer::TypedAnswer;

/// The types in a module that were asked for.
#[derive(Debug)]
pub(crate) struct Module {
    typed: HashMap<u64, Arc<[TypedFrame]>>,
    rendering: Rendering,
    /// The debug information read so far.
    entries: KnownEntries,
    sources: Sources,
    cache: Option<CacheEntry>,
    /// Types that an earlier run found; outer `None`: not read yet.
    kept: Option<Option<Types>>,
    /// True if there are types that no earlier run had.
    has_new_types: bool,
    /// The conclusions about stacks that begin here; `None`: those of earlier runs have not been
    /// read yet.
    sites: Option<Sites>,
}

impl Module {
    /// Returns a module about which nothing was asked yet.
    pub(crate) fn new(cache: Option<CacheEntry>) -> Self {
        Self {
            typed: HashMap::new(),
            rendering: Rendering::default(),
            entries: KnownEntries::default(),
            sources: Sources::default(),
            cache,
            kept: None,
            has_new_types: false,
            sites: None,
        }
    }

    pub(crate) fn typed_frames(
        &mut self,
        offset: u64,
        module: ModuleRef<'_>,
        symbolizer: &Symbolizer,
    ) -> Arc<[TypedFrame]> {
        if let Some(frames) = self.typed.get(&offset) {
            return frames.clone();
        }
        let kept = self.kept(module, symbolizer).and_then(|kept| kept.take(offset));
        let frames = kept.unwrap_or_else(|| {
            let answer = symbolizer
                .with_open_module(module, |open| TypedAnswer::read(offset, &mut self.entries, &mut self.sources, open));
            // Without a file, there is nothing worth keeping.
            self.has_new_types |= answer.is_some();
            self.rendering.frames(answer.unwrap_or_default())
        });
        self.typed.insert(offset, frames.clone());
        frames
    }

    fn kept(&mut self, module: ModuleRef<'_>, symbolizer: &Symbolizer) -> Option<&mut Types> {
        let read = || {
            let cache = self.cache.as_ref()?;
            let fingerprint = symbolizer.made_from(module).fingerprint;
            types::read(cache, (!fingerprint.is_empty()).then_some(&*fingerprint))
        };
        self.kept.get_or_insert_with(read).as_mut()
    }

    /// Returns the conclusions about stacks that begin here.
    pub(crate) fn sites(&mut self) -> &mut Sites {
        let read = || self.cache.as_ref().and_then(sites::read).unwrap_or_default();
        self.sites.get_or_insert_with(read)
    }

    /// Adds the source files that were asked for and are missing, unless `there` knows that they
    /// exist.
    pub(crate) fn lacking(&mut self, there: &mut HashMap<Arc<str>, bool>) {
        if let Some(Some(kept)) = &mut self.kept {
            there.extend(kept.lacking().into_iter().map(|file| (file, false)));
        }
        for frame in self.typed.values().flat_map(|frames| frames.iter()) {
            if let Some(file) = frame.file.as_ref().filter(|_| frame.has_source())
                && !there.contains_key(file)
            {
                there.insert(file.clone(), Path::new(&**file).is_file());
            }
        }
    }

    /// True if there is something new to keep.
    pub(crate) fn has_new(&self) -> bool {
        self.has_new_types || self.sites.as_ref().is_some_and(Sites::has_new)
    }

    /// Keeps what is new for the next run, types only if no better ones may be possible later.
    /// `lacking` are the source files that were missing.
    pub(crate) fn keep(&mut self, lacking: &[Arc<str>], module: ModuleRef<'_>, symbolizer: &Symbolizer) {
        let Some(cache) = &self.cache else { return };
        if let Some(sites) = self.sites.as_mut().filter(|sites| sites.has_new()) {
            sites::write(cache, lacking, sites);
        }
        if !self.has_new_types {
            return;
        }
        let made_from = symbolizer.made_from(module);
        if !made_from.is_final {
            return;
        }
        if let Some(Some(kept)) = &mut self.kept {
            for offset in kept.offsets() {
                let frames = kept.take(offset);
                self.typed.extend(frames.map(|frames| (offset, frames)));
            }
        }
        let places = self.typed.iter().map(|(&offset, frames)| (offset, &**frames));
        types::write(cache, &made_from.fingerprint, lacking.iter(), places);
        self.has_new_types = false;
    }
}
