//! Plans for modules that the program opens while it runs, kept for the case that it closes them
//! and opens them again.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::install::MappedPlan;

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
}

impl Kept {
    fn plan(&self) -> MappedPlan {
        MappedPlan { start: self.start.load(Ordering::Relaxed), length: self.length.load(Ordering::Relaxed) }
    }
}

impl KeptPlans {
    /// Returns a table without plans.
    pub const fn new() -> KeptPlans {
        KeptPlans(
            [const { Kept { key: AtomicU64::new(0), start: AtomicUsize::new(0), length: AtomicUsize::new(0) } };
                KEPT_MAX],
        )
    }

    /// Maps the stubs of a plan and writes its jumps as [`install`](crate::install()) does, and
    /// keeps the plan under a key that is not 0. Returns the number of entries that are redirected.
    /// A plan of which not all could be installed is not kept.
    ///
    /// # Safety
    ///
    /// See [`install`](crate::install()). The key is that of these modules at these addresses, and
    /// nobody else uses the table meanwhile.
    pub unsafe fn install(&self, key: u64, fd: i32, length: usize) -> usize {
        let Some(plan) = MappedPlan::map(fd, length) else { return 0 };
        // SAFETY: the contract of `MappedPlan::install` is that of `install`, which this function's
        // `# Safety` gives.
        let installed = unsafe { plan.install(fd) };
        if installed == plan.entries()
            && let Some(slot) = self.free_slot()
        {
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
    fn free_slot(&self) -> Option<&Kept> {
        if let Some(free) = self.0.iter().find(|kept| kept.key.load(Ordering::Relaxed) == 0) {
            return Some(free);
        }
        let unused = self.0.iter().find(|kept| !kept.plan().is_in_use())?;
        unused.key.store(0, Ordering::Relaxed);
        let plan = unused.plan();
        // SAFETY: `unmap_regions` requires mapped regions, to which no entry leads, and in which no
        // thread is. Plans are kept only with all of their regions. No jump of it is in memory: the
        // modules are unmapped, and so no thread can be in a call of them.
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
