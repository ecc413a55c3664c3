//! The names of entry points, by the public headers of each allocator.

use heapledger_wire::entries::EntryKind::{self, *};

use crate::allocator::Family;

/// The names of one kind of allocator.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) family: Family,
    /// Names that only this allocator has. Functions under a prefix count as its entries if
    /// `markers_min` of these are among them.
    pub(super) markers: &'static [&'static str],
    pub(super) markers_min: usize,
    pub(super) entries: &'static [(&'static str, EntryKind)],
}

/// The allocators that are known by names of their own. Wrappers such as `xmalloc` and `g_malloc`
/// are none of them: they call on malloc, which is seen.
pub(super) const FAMILIES: [Names; 7] = [
    Names {
        family: Family::Jemalloc,
        markers: &["mallocx", "rallocx", "xallocx", "sallocx", "dallocx", "sdallocx", "nallocx", "mallctl"],
        markers_min: 2,
        entries: JEMALLOC,
    },
    Names {
        family: Family::Mimalloc,
        markers: &["mi_malloc", "mi_malloc_aligned", "mi_zalloc_aligned", "mi_heap_malloc", "mi_realloc_aligned"],
        markers_min: 1,
        entries: MIMALLOC,
    },
    Names { family: Family::Tcmalloc, markers: &["tc_malloc", "tc_new"], markers_min: 1, entries: GPERFTOOLS },
    Names {
        family: Family::Tcmalloc,
        markers: &["TCMallocInternalMalloc", "TCMallocInternalNew"],
        markers_min: 1,
        entries: TCMALLOC,
    },
    Names { family: Family::Rpmalloc, markers: &["rpmalloc", "rpaligned_alloc"], markers_min: 1, entries: RPMALLOC },
    Names { family: Family::Snmalloc, markers: &["sn_malloc", "sn_rust_alloc"], markers_min: 1, entries: SNMALLOC },
    Names {
        family: Family::Mozjemalloc,
        markers: &["moz_arena_malloc", "moz_arena_free"],
        markers_min: 1,
        entries: MOZJEMALLOC,
    },
];

/// Functions that tell whose a malloc without a prefix is. None of them is an entry.
pub(super) const MALLOC_MARKERS: [(&str, Family); 9] = [
    ("__malloc_fork_lock_parent", Family::Glibc),
    ("__libc_mallinfo", Family::Glibc),
    ("_int_malloc", Family::Glibc),
    ("__libc_freeres", Family::Glibc),
    ("__malloc_donate", Family::Musl),
    ("__malloc_alloc_meta", Family::Musl),
    ("__bin_chunk", Family::Musl),
    ("__expand_heap", Family::Musl),
    ("jemalloc_free_dirty_pages", Family::Mozjemalloc),
];

/// Functions by which a sanitizer's runtime is known: its malloc must not be patched.
pub(super) const SANITIZERS: [&str; 5] = ["__asan_init", "__hwasan_init", "__tsan_init", "__msan_init", "__lsan_init"];

/// Names in programs whose allocator notifies the recorder itself.
pub(super) const LINKED: [&str; 2] = ["heapledger_ledger_v1", "heapledger_hooks_v1"];

/// Functions of the C library of which the standard library's allocator of Rust calls one at least.
pub(super) const SYSTEM_ALLOCATOR: [&str; 3] = ["calloc", "posix_memalign", "aligned_alloc"];

/// The longest name that is looked up. Those of Rust's shims are longer, and end with theirs.
pub(super) const LENGTH_MAX: usize = 64;

/// The C library's functions. Without a prefix they are an allocator by themselves, and so may any
/// other family be called.
pub(super) const MALLOC: &[(&str, EntryKind)] = &[
    ("malloc", Malloc),
    ("calloc", Calloc),
    ("realloc", Realloc),
    ("reallocarray", Reallocarray),
    ("reallocf", Reallocf),
    ("free", Free),
    ("cfree", Free),
    ("vfree", Free),
    ("free_sized", FreeSized),
    ("free_aligned_sized", FreeAlignedSized),
    ("memalign", Memalign),
    ("aligned_alloc", AlignedAlloc),
    ("posix_memalign", PosixMemalign),
    ("valloc", Valloc),
    ("pvalloc", Pvalloc),
    ("malloc_usable_size", UsableSize),
    ("malloc_size", UsableSize),
    ("__libc_malloc", Malloc),
    ("__libc_calloc", Calloc),
    ("__libc_realloc", Realloc),
    ("__libc_reallocarray", Reallocarray),
    ("__libc_free", Free),
    ("__libc_cfree", Free),
    ("__libc_memalign", Memalign),
    ("__libc_valloc", Valloc),
    ("__libc_pvalloc", Pvalloc),
    ("__libc_malloc_impl", Malloc),
    ("__posix_memalign", PosixMemalign),
];

/// C++'s operators: `new`, `new[]`, `delete` and `delete[]`, in the names of the Itanium ABI.
pub(super) const OPERATORS: &[(&str, EntryKind)] = &[
    ("_Znwm", New),
    ("_ZnwmRKSt9nothrow_t", NewNothrow),
    ("_ZnwmSt11align_val_t", NewAligned),
    ("_ZnwmSt11align_val_tRKSt9nothrow_t", NewAlignedNothrow),
    ("_Znam", NewArray),
    ("_ZnamRKSt9nothrow_t", NewArrayNothrow),
    ("_ZnamSt11align_val_t", NewArrayAligned),
    ("_ZnamSt11align_val_tRKSt9nothrow_t", NewArrayAlignedNothrow),
    ("_ZdlPv", Delete),
    ("_ZdlPvRKSt9nothrow_t", Delete),
    ("_ZdlPvm", DeleteSized),
    ("_ZdlPvSt11align_val_t", DeleteAligned),
    ("_ZdlPvSt11align_val_tRKSt9nothrow_t", DeleteAligned),
    ("_ZdlPvmSt11align_val_t", DeleteSizedAligned),
    ("_ZdaPv", Delete),
    ("_ZdaPvRKSt9nothrow_t", Delete),
    ("_ZdaPvm", DeleteSized),
    ("_ZdaPvSt11align_val_t", DeleteAligned),
    ("_ZdaPvSt11align_val_tRKSt9nothrow_t", DeleteAligned),
    ("_ZdaPvmSt11align_val_t", DeleteSizedAligned),
];

/// The function `handleOOM` of jemalloc's own operators (`jemalloc_cpp.cpp`). It is not an entry.
pub(super) const JEMALLOC_OPERATORS: &str = "_ZL9handleOOMmb";

/// The ends of the names of Rust's shims.
pub(super) const SHIMS: &[(&str, EntryKind)] = &[
    ("___rust_alloc", RustAlloc),
    ("___rust_alloc_zeroed", RustAlloc),
    ("___rust_realloc", RustRealloc),
    ("___rust_dealloc", RustDealloc),
];

/// jemalloc's functions: <https://jemalloc.net/jemalloc.3.html>.
const JEMALLOC: &[(&str, EntryKind)] = &[
    ("malloc", Malloc),
    ("calloc", Calloc),
    ("realloc", Realloc),
    ("free", Free),
    ("free_sized", FreeSized),
    ("free_aligned_sized", FreeAlignedSized),
    ("memalign", Memalign),
    ("aligned_alloc", AlignedAlloc),
    ("posix_memalign", PosixMemalign),
    ("valloc", Valloc),
    ("pvalloc", Pvalloc),
    ("malloc_usable_size", UsableSize),
    ("mallocx", Mallocx),
    ("rallocx", Rallocx),
    ("xallocx", Xallocx),
    ("dallocx", Dallocx),
    ("sdallocx", Sdallocx),
];

/// mimalloc's functions: `mimalloc.h` of versions 1 to 3, where version 3 calls a thread's heap
/// `theap`. `mi_strdup` and its like are not entries.
const MIMALLOC: &[(&str, EntryKind)] = &[
    ("mi_malloc", Malloc),
    ("mi_zalloc", Malloc),
    ("mi_malloc_small", Malloc),
    ("mi_zalloc_small", Malloc),
    ("mi_umalloc", Malloc),
    ("mi_uzalloc", Malloc),
    ("mi_umalloc_small", Malloc),
    ("mi_uzalloc_small", Malloc),
    ("mi_calloc", Calloc),
    ("mi_mallocn", Calloc),
    ("mi_ucalloc", Calloc),
    ("mi_realloc", Realloc),
    ("mi_rezalloc", Realloc),
    ("mi_urealloc", Realloc),
    ("mi_reallocn", Reallocarray),
    ("mi_reallocarray", Reallocarray),
    ("mi_recalloc", Reallocarray),
    ("mi_reallocf", Reallocf),
    ("mi_free", Free),
    ("mi_cfree", Free),
    ("mi_ufree", Free),
    ("mi_free_small", Free),
    ("mi_free_size", FreeSized),
    ("mi_free_size_aligned", FreeAlignedSized),
    ("mi_free_aligned", DeleteAligned),
    ("mi_memalign", Memalign),
    ("mi_aligned_alloc", AlignedAlloc),
    ("mi_posix_memalign", PosixMemalign),
    ("mi_valloc", Valloc),
    ("mi_pvalloc", Pvalloc),
    ("mi_usable_size", UsableSize),
    ("mi_malloc_size", UsableSize),
    ("mi_malloc_usable_size", UsableSize),
    ("mi_malloc_aligned", MallocAligned),
    ("mi_malloc_aligned_at", MallocAligned),
    ("mi_zalloc_aligned", MallocAligned),
    ("mi_zalloc_aligned_at", MallocAligned),
    ("mi_umalloc_aligned", MallocAligned),
    ("mi_uzalloc_aligned", MallocAligned),
    ("mi_calloc_aligned", CallocAligned),
    ("mi_calloc_aligned_at", CallocAligned),
    ("mi_realloc_aligned", ReallocAligned),
    ("mi_realloc_aligned_at", ReallocAligned),
    ("mi_rezalloc_aligned", ReallocAligned),
    ("mi_rezalloc_aligned_at", ReallocAligned),
    ("mi_recalloc_aligned", ReallocarrayAligned),
    ("mi_recalloc_aligned_at", ReallocarrayAligned),
    ("mi_aligned_recalloc", ReallocarrayAligned),
    ("mi_aligned_offset_recalloc", ReallocarrayAligned),
    ("mi_expand", Expand),
    ("mi__expand", Expand),
    ("mi_new", New),
    ("mi_new_nothrow", NewNothrow),
    ("mi_new_aligned", NewAligned),
    ("mi_new_aligned_nothrow", NewAlignedNothrow),
    ("mi_new_n", NewN),
    ("mi_new_realloc", NewRealloc),
    ("mi_new_reallocn", NewReallocn),
    ("mi_heap_malloc", ArenaMalloc),
    ("mi_heap_zalloc", ArenaMalloc),
    ("mi_heap_malloc_small", ArenaMalloc),
    ("mi_heap_zalloc_small", ArenaMalloc),
    ("mi_heap_calloc", ArenaCalloc),
    ("mi_heap_mallocn", ArenaCalloc),
    ("mi_heap_realloc", ArenaRealloc),
    ("mi_heap_rezalloc", ArenaRealloc),
    ("mi_heap_reallocn", ArenaReallocarray),
    ("mi_heap_recalloc", ArenaReallocarray),
    ("mi_heap_reallocf", ArenaReallocf),
    ("mi_heap_malloc_aligned", ArenaMallocAligned),
    ("mi_heap_malloc_aligned_at", ArenaMallocAligned),
    ("mi_heap_zalloc_aligned", ArenaMallocAligned),
    ("mi_heap_zalloc_aligned_at", ArenaMallocAligned),
    ("mi_heap_calloc_aligned", ArenaCallocAligned),
    ("mi_heap_calloc_aligned_at", ArenaCallocAligned),
    ("mi_heap_realloc_aligned", ArenaReallocAligned),
    ("mi_heap_realloc_aligned_at", ArenaReallocAligned),
    ("mi_heap_rezalloc_aligned", ArenaReallocAligned),
    ("mi_heap_rezalloc_aligned_at", ArenaReallocAligned),
    ("mi_heap_recalloc_aligned", ArenaReallocarrayAligned),
    ("mi_heap_recalloc_aligned_at", ArenaReallocarrayAligned),
    ("mi_heap_alloc_new", ArenaNew),
    ("mi_heap_alloc_new_n", ArenaNewN),
    ("mi_theap_malloc", ArenaMalloc),
    ("mi_theap_zalloc", ArenaMalloc),
    ("mi_theap_malloc_small", ArenaMalloc),
    ("mi_theap_zalloc_small", ArenaMalloc),
    ("mi_theap_calloc", ArenaCalloc),
    ("mi_theap_mallocn", ArenaCalloc),
    ("mi_theap_realloc", ArenaRealloc),
    ("mi_theap_rezalloc", ArenaRealloc),
    ("mi_theap_reallocn", ArenaReallocarray),
    ("mi_theap_recalloc", ArenaReallocarray),
    ("mi_theap_reallocf", ArenaReallocf),
    ("mi_theap_malloc_aligned", ArenaMallocAligned),
    ("mi_theap_malloc_aligned_at", ArenaMallocAligned),
    ("mi_theap_zalloc_aligned", ArenaMallocAligned),
    ("mi_theap_zalloc_aligned_at", ArenaMallocAligned),
    ("mi_theap_calloc_aligned", ArenaCallocAligned),
    ("mi_theap_calloc_aligned_at", ArenaCallocAligned),
    ("mi_theap_realloc_aligned", ArenaReallocAligned),
    ("mi_theap_realloc_aligned_at", ArenaReallocAligned),
    ("mi_theap_rezalloc_aligned", ArenaReallocAligned),
    ("mi_theap_rezalloc_aligned_at", ArenaReallocAligned),
    ("mi_theap_recalloc_aligned", ArenaReallocarrayAligned),
    ("mi_theap_recalloc_aligned_at", ArenaReallocarrayAligned),
    ("mi_theap_alloc_new", ArenaNew),
    ("mi_theap_alloc_new_n", ArenaNewN),
];

/// The functions of gperftools' tcmalloc: `gperftools/tcmalloc.h`.
const GPERFTOOLS: &[(&str, EntryKind)] = &[
    ("tc_malloc", Malloc),
    ("tc_malloc_skip_new_handler", Malloc),
    ("tc_free", Free),
    ("tc_free_sized", FreeSized),
    ("tc_realloc", Realloc),
    ("tc_calloc", Calloc),
    ("tc_cfree", Free),
    ("tc_memalign", Memalign),
    ("tc_posix_memalign", PosixMemalign),
    ("tc_valloc", Valloc),
    ("tc_pvalloc", Pvalloc),
    ("tc_malloc_size", UsableSize),
    ("tc_new", New),
    ("tc_new_nothrow", NewNothrow),
    ("tc_newarray", NewArray),
    ("tc_newarray_nothrow", NewArrayNothrow),
    ("tc_new_aligned", NewAligned),
    ("tc_new_aligned_nothrow", NewAlignedNothrow),
    ("tc_newarray_aligned", NewArrayAligned),
    ("tc_newarray_aligned_nothrow", NewArrayAlignedNothrow),
    ("tc_delete", Delete),
    ("tc_delete_nothrow", Delete),
    ("tc_deletearray", Delete),
    ("tc_deletearray_nothrow", Delete),
    ("tc_delete_sized", DeleteSized),
    ("tc_deletearray_sized", DeleteSized),
    ("tc_delete_aligned", DeleteAligned),
    ("tc_delete_aligned_nothrow", DeleteAligned),
    ("tc_deletearray_aligned", DeleteAligned),
    ("tc_deletearray_aligned_nothrow", DeleteAligned),
    ("tc_delete_sized_aligned", DeleteSizedAligned),
    ("tc_deletearray_sized_aligned", DeleteSizedAligned),
];

/// The functions of Google's tcmalloc: `tcmalloc/libc_override.h`.
const TCMALLOC: &[(&str, EntryKind)] = &[
    ("TCMallocInternalMalloc", Malloc),
    ("TCMallocInternalFree", Free),
    ("TCMallocInternalFreeSized", FreeSized),
    ("TCMallocInternalFreeAlignedSized", FreeAlignedSized),
    ("TCMallocInternalRealloc", Realloc),
    ("TCMallocInternalCalloc", Calloc),
    ("TCMallocInternalCfree", Free),
    ("TCMallocInternalSdallocx", Sdallocx),
    ("TCMallocInternalMemalign", Memalign),
    ("TCMallocInternalAlignedAlloc", AlignedAlloc),
    ("TCMallocInternalPosixMemalign", PosixMemalign),
    ("TCMallocInternalValloc", Valloc),
    ("TCMallocInternalPvalloc", Pvalloc),
    ("TCMallocInternalMallocSize", UsableSize),
    ("TCMallocInternalNew", New),
    ("TCMallocInternalNewNothrow", NewNothrow),
    ("TCMallocInternalNewArray", NewArray),
    ("TCMallocInternalNewArrayNothrow", NewArrayNothrow),
    ("TCMallocInternalNewAligned", NewAligned),
    ("TCMallocInternalNewAlignedNothrow", NewAlignedNothrow),
    ("TCMallocInternalNewArrayAligned", NewArrayAligned),
    ("TCMallocInternalNewArrayAlignedNothrow", NewArrayAlignedNothrow),
    ("TCMallocInternalDelete", Delete),
    ("TCMallocInternalDeleteNothrow", Delete),
    ("TCMallocInternalDeleteArray", Delete),
    ("TCMallocInternalDeleteArrayNothrow", Delete),
    ("TCMallocInternalDeleteSized", DeleteSized),
    ("TCMallocInternalDeleteArraySized", DeleteSized),
    ("TCMallocInternalDeleteAligned", DeleteAligned),
    ("TCMallocInternalDeleteArrayAligned", DeleteAligned),
    ("TCMallocInternalDeleteSizedAligned", DeleteSizedAligned),
    ("TCMallocInternalDeleteArraySizedAligned", DeleteSizedAligned),
];

/// rpmalloc's functions: `rpmalloc.h`.
const RPMALLOC: &[(&str, EntryKind)] = &[
    ("rpmalloc", Malloc),
    ("rpzalloc", Malloc),
    ("rpfree", Free),
    ("rpcalloc", Calloc),
    ("rprealloc", Realloc),
    ("rpaligned_realloc", AlignedRealloc),
    ("rpaligned_alloc", AlignedAlloc),
    ("rpaligned_zalloc", AlignedAlloc),
    ("rpaligned_calloc", AlignedCalloc),
    ("rpmemalign", Memalign),
    ("rpposix_memalign", PosixMemalign),
    ("rpmalloc_usable_size", UsableSize),
    ("rpmalloc_heap_alloc", ArenaMalloc),
    ("rpmalloc_heap_aligned_alloc", ArenaMemalign),
    ("rpmalloc_heap_calloc", ArenaCalloc),
    ("rpmalloc_heap_realloc", ArenaRealloc),
    ("rpmalloc_heap_free", ArenaFree),
];

/// snmalloc's functions: `override/malloc.cc` and `override/rust.cc` with the prefix `sn_`.
const SNMALLOC: &[(&str, EntryKind)] = &[
    ("sn_malloc", Malloc),
    ("sn_calloc", Calloc),
    ("sn_realloc", Realloc),
    ("sn_reallocarray", Reallocarray),
    ("sn_free", Free),
    ("sn_cfree", Free),
    ("sn_memalign", Memalign),
    ("sn_aligned_alloc", AlignedAlloc),
    ("sn_posix_memalign", PosixMemalign),
    ("sn_valloc", Valloc),
    ("sn_pvalloc", Pvalloc),
    ("sn_malloc_usable_size", UsableSize),
    ("sn_rust_alloc", Memalign),
    ("sn_rust_alloc_zeroed", Memalign),
    ("sn_rust_dealloc", FreeAlignedSized),
    ("sn_rust_realloc", SnRustRealloc),
    ("sn_rust_usable_size", UsableSize),
];

/// mozjemalloc's functions for arenas: `memory/build/malloc_decls.h`; and the C library's that it
/// defines itself (`memory/build/mozjemalloc.cpp`), which do not call its malloc by an entry.
const MOZJEMALLOC: &[(&str, EntryKind)] = &[
    ("moz_arena_malloc", ArenaMalloc),
    ("moz_arena_calloc", ArenaCalloc),
    ("moz_arena_realloc", ArenaRealloc),
    ("moz_arena_free", ArenaFree),
    ("moz_arena_memalign", ArenaMemalign),
    ("strdup", Strdup),
    ("strndup", Strdup),
];
