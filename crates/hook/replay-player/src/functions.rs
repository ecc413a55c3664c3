//! The functions that are called: those of the allocator, or those that do nothing.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_dynsym::{Objects, Scope};
use heapledger_wire::replay::{OWN_BIN, OWN_BINS, OWN_STATISTICS};

type Block = *mut c_void;

/// The malloc functions. `unsafe extern "C"` ones, through pointers in both cases, so that both
/// cost the same besides what they do.
#[derive(Clone, Copy)]
pub(crate) struct Functions {
    pub(crate) malloc: unsafe extern "C" fn(usize) -> Block,
    pub(crate) calloc: unsafe extern "C" fn(usize, usize) -> Block,
    pub(crate) realloc: unsafe extern "C" fn(Block, usize) -> Block,
    pub(crate) free: unsafe extern "C" fn(Block),
    pub(crate) memalign: unsafe extern "C" fn(usize, usize) -> Block,
    pub(crate) posix_memalign: unsafe extern "C" fn(*mut Block, usize, usize) -> c_int,
    pub(crate) aligned_alloc: unsafe extern "C" fn(usize, usize) -> Block,
    pub(crate) valloc: unsafe extern "C" fn(usize) -> Block,
    pub(crate) usable_size: unsafe extern "C" fn(Block) -> usize,
}

mod allocator {
    use super::{Block, c_int};

    unsafe extern "C" {
        pub(super) fn malloc(size: usize) -> Block;
        pub(super) fn calloc(count: usize, each: usize) -> Block;
        pub(super) fn realloc(old: Block, size: usize) -> Block;
        pub(super) fn free(block: Block);
        pub(super) fn memalign(alignment: usize, size: usize) -> Block;
        pub(super) fn posix_memalign(out: *mut Block, alignment: usize, size: usize) -> c_int;
        pub(super) fn aligned_alloc(alignment: usize, size: usize) -> Block;
        pub(super) fn valloc(size: usize) -> Block;
        pub(super) fn malloc_usable_size(block: Block) -> usize;
    }
}

/// The allocator of the process.
pub(crate) const ALLOCATOR: Functions = Functions {
    malloc: allocator::malloc,
    calloc: allocator::calloc,
    realloc: allocator::realloc,
    free: allocator::free,
    memalign: allocator::memalign,
    posix_memalign: allocator::posix_memalign,
    aligned_alloc: allocator::aligned_alloc,
    valloc: allocator::valloc,
    usable_size: allocator::malloc_usable_size,
};

/// Functions that do nothing, and return the same address each time.
pub(crate) const NOTHING: Functions = Functions {
    malloc: nothing::malloc,
    calloc: nothing::calloc,
    realloc: nothing::realloc,
    free: nothing::free,
    memalign: nothing::calloc,
    posix_memalign: nothing::posix_memalign,
    aligned_alloc: nothing::calloc,
    valloc: nothing::malloc,
    usable_size: nothing::usable_size,
};

mod nothing {
    use super::{Block, c_int, ptr};

    /// An address that is not null, and that nobody follows.
    const SOMEWHERE: Block = ptr::without_provenance_mut(16);

    pub(super) extern "C" fn malloc(_: usize) -> Block {
        SOMEWHERE
    }

    pub(super) extern "C" fn calloc(_: usize, _: usize) -> Block {
        SOMEWHERE
    }

    pub(super) extern "C" fn realloc(_: Block, _: usize) -> Block {
        SOMEWHERE
    }

    pub(super) extern "C" fn free(_: Block) {}

    pub(super) unsafe extern "C" fn posix_memalign(out: *mut Block, _: usize, _: usize) -> c_int {
        // SAFETY: `out` is a variable of the caller, as for posix_memalign(3).
        unsafe { *out = SOMEWHERE };
        0
    }

    pub(super) extern "C" fn usable_size(_: Block) -> usize {
        0
    }
}

/// The functions that few allocators have.
#[derive(Clone, Copy)]
pub(crate) struct Extras {
    pub(crate) arenas: Option<Arenas>,
    purge_all: Option<extern "C" fn() -> usize>,
    purge_excess: Option<extern "C" fn() -> usize>,
    trim: Option<extern "C" fn(usize) -> c_int>,
    statistics: Option<unsafe extern "C" fn(*mut [usize; STATISTICS]) -> c_int>,
}

/// The functions about arenas: see `heapledger/arena.h`.
#[derive(Clone, Copy)]
pub(crate) struct Arenas {
    pub(crate) create: unsafe extern "C" fn(*const ArenaParameters) -> u64,
    pub(crate) dispose: unsafe extern "C" fn(u64),
    pub(crate) malloc: unsafe extern "C" fn(u64, usize) -> Block,
    pub(crate) calloc: unsafe extern "C" fn(u64, usize, usize) -> Block,
    pub(crate) memalign: unsafe extern "C" fn(u64, usize, usize) -> Block,
}

/// The beginning of `heapledger_arena_params`, up to the label.
#[repr(C)]
pub(crate) struct ArenaParameters {
    pub(crate) size: u32,
    pub(crate) flags: u32,
    pub(crate) label: *const c_char,
}

/// The words of `heapledger_allocator_stats` in front of its bins, and up to their end.
const BINS_AT: usize = 31;
const STATISTICS: usize = BINS_AT + OWN_BINS * OWN_BIN;
/// The places of those that are read, in the order of [`heapledger_wire::replay::Sample::own`].
const READ: [usize; OWN_STATISTICS] = [15, 16, 18, 21, 22, 23, 24, 25, 8, 9, 10];

impl Extras {
    /// No function.
    pub(crate) const NONE: Extras =
        Extras { arenas: None, purge_all: None, purge_excess: None, trim: None, statistics: None };

    /// Finds the functions of the allocator, without the dynamic linker's functions, which may
    /// allocate.
    pub(crate) fn find() -> Extras {
        // SAFETY: `at_start` requires that no other thread loads or unloads an object meanwhile:
        // this is called by an initialiser, in the only thread.
        let objects = unsafe { Objects::at_start() };
        let find = |name: &CStr| Some(objects.lookup(Scope::Next, name)).filter(|&address| address != 0);
        // SAFETY: `transmute` requires a value of the type: these are the addresses of functions of
        // these names, whose types `heapledger/arena.h`, `heapledger/allocator.h` and
        // malloc_trim(3) give. No other library has functions of the first names.
        unsafe {
            let arenas = || {
                Some(Arenas {
                    create: transmute::<usize, unsafe extern "C" fn(*const ArenaParameters) -> u64>(find(
                        c"heapledger_arena_create",
                    )?),
                    dispose: transmute::<usize, unsafe extern "C" fn(u64)>(find(c"heapledger_arena_dispose")?),
                    malloc: transmute::<usize, unsafe extern "C" fn(u64, usize) -> Block>(find(
                        c"heapledger_arena_malloc",
                    )?),
                    calloc: transmute::<usize, unsafe extern "C" fn(u64, usize, usize) -> Block>(find(
                        c"heapledger_arena_calloc",
                    )?),
                    memalign: transmute::<usize, unsafe extern "C" fn(u64, usize, usize) -> Block>(find(
                        c"heapledger_arena_memalign",
                    )?),
                })
            };
            let purge = |name| find(name).map(|it| transmute::<usize, extern "C" fn() -> usize>(it));
            Extras {
                arenas: arenas(),
                purge_all: purge(c"heapledger_purge_all"),
                purge_excess: purge(c"heapledger_purge_excess"),
                trim: find(c"malloc_trim").map(|it| transmute::<usize, extern "C" fn(usize) -> c_int>(it)),
                statistics: find(c"heapledger_stats")
                    .map(|it| transmute::<usize, unsafe extern "C" fn(*mut [usize; STATISTICS]) -> c_int>(it)),
            }
        }
    }

    /// Gives unused memory back.
    pub(crate) fn purge_all(&self) {
        match (self.purge_all, self.trim) {
            (Some(purge), _) => {
                purge();
            }
            (None, Some(trim)) => {
                trim(0);
            }
            (None, None) => {}
        }
    }

    /// Gives the memory back that the allocator has too much.
    pub(crate) fn purge_excess(&self) {
        if let Some(purge) = self.purge_excess {
            purge();
        }
    }

    /// Returns the allocator's own statistics; zeroes if it has none.
    pub(crate) fn statistics(&self) -> [u64; OWN_STATISTICS] {
        let Some(words) = self.words() else { return [0; OWN_STATISTICS] };
        READ.map(|place| words.get(place).copied().unwrap_or(0) as u64)
    }

    /// Copies the bins of the allocator's own statistics, if it has some.
    pub(crate) fn copy_bins(&self, bins: &[[AtomicU64; OWN_BIN]; OWN_BINS]) {
        let words = self.words();
        let words = words.iter().flat_map(|words| words.iter().skip(BINS_AT));
        bins.iter().flatten().zip(words).for_each(|(to, word)| to.store(*word as u64, Ordering::Relaxed));
    }

    fn words(&self) -> Option<[usize; STATISTICS]> {
        let statistics = self.statistics?;
        let mut words = [0; STATISTICS];
        words[0] = size_of_val(&words);
        // SAFETY: the function writes as many bytes as the first word says, which the array has.
        (unsafe { statistics(&raw mut words) } == 0).then_some(words)
    }
}
