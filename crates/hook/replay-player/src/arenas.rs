//! The arenas of the work, each created when it is first used.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::files::Files;
use crate::functions::{ArenaParameters, Arenas};

unsafe extern "C" {
    fn sched_yield() -> c_int;
}

/// In place of an arena that a thread is about to create.
const BUSY: u64 = u64::MAX;

/// The arenas.
pub(crate) struct ArenaTable {
    files: Files,
    /// The allocator's functions, if it has arenas.
    functions: Option<Arenas>,
    /// The arenas of the allocator; 0 for those that do not exist.
    arenas: *const AtomicU64,
}

impl ArenaTable {
    /// Makes a table. `arenas` are as many zeroes as the work has arenas.
    pub(crate) fn new(files: &Files, functions: Option<Arenas>, arenas: *const AtomicU64) -> ArenaTable {
        ArenaTable { files: *files, functions, arenas }
    }

    /// Returns an arena of the work, and the functions for it. `None` if the allocator has no
    /// arenas, or has no memory for this one.
    pub(crate) fn get(&self, number: usize) -> Option<(Arenas, u64)> {
        let functions = self.functions?;
        let known = self.known(number);
        loop {
            match known.load(Ordering::Acquire) {
                0 => {
                    if known.compare_exchange(0, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                        let arena = self.create(functions, number);
                        known.store(arena, Ordering::Release);
                        return Some((functions, arena)).filter(|_| arena != 0);
                    }
                }
                // SAFETY: lets others run; no memory is involved.
                BUSY => unsafe {
                    sched_yield();
                },
                arena => return Some((functions, arena)),
            }
        }
    }

    /// Creates an arena; 0 if there is no memory.
    #[cold]
    fn create(&self, functions: Arenas, number: usize) -> u64 {
        let label = self.files.label(number);
        let parameters = ArenaParameters { size: size_of::<ArenaParameters>() as u32, flags: 0, label };
        // SAFETY: the function demands parameters whose label is a string: it ends with a zero, by
        // the work's contract.
        unsafe { (functions.create)(&raw const parameters) }
    }

    /// Disposes of an arena, which has no blocks, if it exists.
    pub(crate) fn dispose(&self, number: usize) {
        let arena = self.known(number).swap(0, Ordering::AcqRel);
        if let Some(functions) = self.functions.filter(|_| arena != 0) {
            // SAFETY: the function demands that no other thread uses the arena: the work orders it
            // with one thread only, when all blocks have been freed.
            unsafe { (functions.dispose)(arena) };
        }
    }

    fn known(&self, number: usize) -> &AtomicU64 {
        // SAFETY: the work names no arena beyond its number of arenas, and the mapping stays.
        unsafe { &*self.arenas.add(number) }
    }
}
