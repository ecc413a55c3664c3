//! The source of an arena's memory: the system, or functions of the program's.

use core::ffi::{c_int, c_void};
use core::ptr;

use crate::{os, readers};

/// The functions that give an arena its memory, in the layout of C's `heapledger_chunk_callbacks`.
///
/// They are called with locks of the allocator held, so they must not allocate or free, by malloc
/// either, and must not call functions of arenas or purges: the thread would wait for itself. Any
/// thread of the process may call them, more than one at a time: a thread that purges, or that runs
/// out of memory, does so in all arenas. All lengths are multiples of
/// [`page_size`](crate::page_size). The memory's content
/// does not matter.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ChunkCallbacks {
    /// The first argument of each function.
    pub context: *mut c_void,
    /// Returns memory that can be read and written, aligned to `alignment` (a power of two from
    /// 4 MiB on); null if there is none. Required.
    pub map: Option<unsafe extern "C" fn(context: *mut c_void, length: usize, alignment: usize) -> *mut c_void>,
    /// Takes memory back, with the address and the length of the call of `map`. Required.
    pub unmap: Option<unsafe extern "C" fn(context: *mut c_void, start: *mut c_void, length: usize)>,
    /// Makes a decommitted range usable again. Returns 0 if that succeeds. Null if nothing has to
    /// be done.
    pub commit: Option<unsafe extern "C" fn(context: *mut c_void, start: *mut c_void, length: usize) -> c_int>,
    /// Takes the physical memory of a range, which is not used until `commit` is called for parts
    /// of it. Returns 0 if that succeeds; the range is in use as before otherwise. Null if that is
    /// not possible: then the arena returns whole chunks only.
    pub decommit: Option<unsafe extern "C" fn(context: *mut c_void, start: *mut c_void, length: usize) -> c_int>,
}

/// The source of an arena's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// Private anonymous mappings, which are zero.
    System,
    /// Functions of the program's, of which `map` and `unmap` are there.
    Callbacks(ChunkCallbacks),
}

impl Source {
    /// True if new memory, and memory that was decommitted, is zero.
    pub(crate) fn is_system(&self) -> bool {
        matches!(self, Source::System)
    }

    /// True if [`Source::decommit`] may succeed.
    pub(crate) fn can_decommit(&self) -> bool {
        match self {
            Source::System => true,
            Source::Callbacks(callbacks) => callbacks.decommit.is_some(),
        }
    }

    /// Maps memory, aligned to `alignment`, a power of two of at least a page. `hint` is an aligned
    /// address that is probably free, or 0. Null if there is no memory.
    pub(crate) fn map(&self, length: usize, alignment: usize, hint: usize) -> *mut u8 {
        let Source::Callbacks(ChunkCallbacks { context, map: Some(map), .. }) = self else {
            return os::map_guarded(length, alignment, hint);
        };
        // SAFETY: the function is one for this purpose, and gets its own context: the contract of
        // those who gave the arena its callbacks.
        let start: *mut u8 = unsafe { map(*context, length, alignment) }.cast();
        if start.is_null() || start.addr() & (alignment - 1) != 0 {
            os::refuse();
        }
        if start.addr() & (alignment - 1) == 0 {
            return start;
        }
        // SAFETY: `unmap` demands memory of this source that nobody uses: it was mapped just now.
        unsafe { self.unmap(start, length) };
        ptr::null_mut()
    }

    /// Unmaps memory.
    ///
    /// # Safety
    ///
    /// [`Source::map`] returned it for this length, and nobody uses it any more. It may have been
    /// resized by mremap(2) if the source is the system.
    pub(crate) unsafe fn unmap(&self, start: *mut u8, length: usize) {
        match self {
            Source::Callbacks(ChunkCallbacks { context, unmap: Some(unmap), .. }) => {
                // SAFETY: as in `map`; the range is that of a call of `map`, by this function's
                // `# Safety`.
                unsafe { unmap(*context, start.cast(), length) };
            }
            // SAFETY: `unmap_guarded` demands what this function's `# Safety` does: memory with a
            // guard page is not resized.
            _ => unsafe { os::unmap_guarded(start, length) },
        }
    }

    /// Makes a range usable that was decommitted. False if that fails.
    ///
    /// # Safety
    ///
    /// The range is of whole pages in memory of this source, and nobody else uses it.
    pub(crate) unsafe fn commit(&self, start: *mut u8, length: usize) -> bool {
        match self {
            // SAFETY: as in `map`; the range is of this source, by this function's `# Safety`.
            Source::Callbacks(ChunkCallbacks { context, commit: Some(commit), .. }) => unsafe {
                commit(*context, start.cast(), length) == 0
            },
            _ => true,
        }
    }

    /// Gives the physical memory of a range back. False if that fails: then the content is as it
    /// was.
    ///
    /// # Safety
    ///
    /// The range is of whole pages in memory of this source. Nobody uses it, and its content is not
    /// needed.
    pub(crate) unsafe fn decommit(&self, start: *mut u8, length: usize) -> bool {
        match self {
            // SAFETY: `discard` demands whole pages of ours whose content is not needed, as this
            // function's `# Safety` does.
            Source::System => unsafe { os::discard(start, length) },
            Source::Callbacks(ChunkCallbacks { context, decommit: Some(decommit), .. }) => {
                // The function may make the range inaccessible, and a reader without a lock may be
                // following the list of a run there that was released just now.
                if !readers::wait() {
                    return false;
                }
                // SAFETY: as in `map`; the range is of this source, by this function's `# Safety`.
                unsafe { decommit(*context, start.cast(), length) == 0 }
            }
            Source::Callbacks(_) => false,
        }
    }
}
