//! Plans for modules that the program opens while it runs, kept for the case that it closes them
//! and opens them again.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use heapledger_wire::session::MODULES_MAX;

use crate::install::MappedPlan;

/// Says if a module is loaded, by a number for its file, and the distance of its addresses from
/// those of the file.
pub type IsLoaded<'a> = &'a dyn Fn((u64, u64)) -> bool;

/// The most plans that are kept.
const KEPT_MAX: usize = 32;

/// Plans that have been installed. Used by one thread at a time.
#[derive(Debug)]
pub struct KeptPlans([Kept; KEPT_MAX]);

/// A plan, with all of its regions. They stay mapped when the modules are unloaded, since most are
/// loaded at the same address again.
#[derive(Debug)]
struct Kept {
    /// The key of [`KeptPlans::install`]; 0 in a free slot.
    key: AtomicU64,
    start: AtomicUsize,
    length: AtomicUsize,
    /// The files of the modules, and the distances of their addresses from those of the files; 0
    /// and 0 for none.
    modules: [[AtomicU64; 2]; MODULES_MAX],
}

impl Kept {
    const fn free() -> Kept {
        Kept {
            key: AtomicU64::new(0),
            start: AtomicUsize::new(0),
            length: AtomicUsize::new(0),
            modules: [const { [const { AtomicU64::new(0) }; 2] }; MODULES_MAX],
        }
    }

    /// True if a module of the plan is loaded. Its own code is not asked: another tool may have
    /// written a jump over ours, behind which it goes on at ours.
    fn is_in_use(&self, is_loaded: IsLoaded<'_>) -> bool {
        let modules = self.modules.each_ref().map(|words| words.each_ref().map(|word| word.load(Ordering::Relaxed)));
        let mut modules = modules.into_iter().filter(|module| *module != [0; 2]);
        modules.any(|[file, bias]| is_loaded((file, bias))) || self.plan().is_in_use()
    }

    fn plan(&self) -> MappedPlan {
        MappedPlan { start: self.start.load(Ordering::Relaxed), length: self.length.load(Ordering::Relaxed) }
    }
}

impl KeptPlans {
    /// Returns a table without plans.
    pub const fn new() -> KeptPlans {
        KeptPlans([const { Kept::free() }; KEPT_MAX])
    }

    /// Maps the stubs of a plan and writes its jumps as [`install`](crate::install()) does, and
    /// keeps the plan under a key that is not 0. Returns the number of entries that are redirected.
    /// A plan of which not all could be installed is not kept.
    ///
    /// `modules` are those of the plan: a number for the file, and the distance of the addresses
    /// from those of the file. `is_loaded` says if such a module is loaded; it is asked about
    /// modules of other plans, when the table is full.
    ///
    /// # Safety
    ///
    /// See [`install`](crate::install()). The key is that of these modules at these addresses, and
    /// nobody else uses the table meanwhile. `is_loaded` returns true for each module that is
    /// loaded.
    pub unsafe fn install(
        &self,
        key: u64,
        modules: &[(u64, u64); MODULES_MAX],
        fd: i32,
        length: usize,
        is_loaded: IsLoaded<'_>,
    ) -> usize {
        let Some(plan) = MappedPlan::map(fd, length) else { return 0 };
        // SAFETY: the contract of `MappedPlan::install` is that of `install`, which this function's
        // `# Safety` gives.
        let installed = unsafe { plan.install(fd) };
        if installed == plan.entries()
            // SAFETY: `free_slot` requires what this function's `# Safety` says of `is_loaded`.
            && let Some(slot) = unsafe { self.free_slot(is_loaded) }
        {
            for (words, &(file, bias)) in slot.modules.iter().zip(modules) {
                words.iter().zip([file, bias]).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
            }
            slot.start.store(plan.start, Ordering::Relaxed);
            slot.length.store(plan.length, Ordering::Relaxed);
            slot.key.store(key, Ordering::Relaxed);
        } else {
            plan.unmap();
        }
        installed
    }

    /// Writes the jumps of a kept plan again. `None` if none is kept under the key; false if not
    /// all jumps could be written.
    ///
    /// # Safety
    ///
    /// The dynamic linker has just mapped the modules of the key, at its addresses: no thread is in
    /// one of the entries or can get there. Nobody else uses the table meanwhile.
    pub unsafe fn install_again(&self, key: u64) -> Option<bool> {
        let kept = self.0.iter().find(|kept| kept.key.load(Ordering::Relaxed) == key)?;
        let plan = kept.plan();
        // SAFETY: the slot has a plan whose regions `install` has mapped, all of them, and which
        // only `free_slot` unmaps, with the slot. The rest is this function's `# Safety`.
        Some(unsafe { plan.install_again() } == plan.entries())
    }

    /// Returns a slot without a plan, or that of modules that are unloaded, whose stubs it unmaps.
    ///
    /// # Safety
    ///
    /// `is_loaded` returns true for each module that is loaded.
    unsafe fn free_slot(&self, is_loaded: IsLoaded<'_>) -> Option<&Kept> {
        if let Some(free) = self.0.iter().find(|kept| kept.key.load(Ordering::Relaxed) == 0) {
            return Some(free);
        }
        let unused = self.0.iter().find(|kept| !kept.is_in_use(is_loaded))?;
        unused.key.store(0, Ordering::Relaxed);
        let plan = unused.plan();
        // SAFETY: `unmap_regions` requires mapped regions, to which no entry leads, and in which no
        // thread is. Plans are kept only with all of their regions. The modules are unloaded, by
        // this function's `# Safety`: so no entry is there, nor code that another tool has put
        // before one, and no thread can be in a call of them.
        unsafe { plan.unmap_regions() };
        plan.unmap();
        Some(unused)
    }
}

impl Default for KeptPlans {
    fn default() -> KeptPlans {
        KeptPlans::new()
    }
}

#[cfg(test)]
mod tests;
