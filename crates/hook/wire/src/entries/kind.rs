//! The calling shapes of entry points.

use heapledger_core::Api;

use super::{Argument, Effect, Layout};

/// The calling shape of an allocator's entry point: what its arguments and its result mean. The
/// numbers are part of the handshake.
///
/// Functions that differ in their names only share a kind: `mi_malloc`, `mi_zalloc` and `rpmalloc`
/// are all [`EntryKind::Malloc`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum EntryKind {
    /// `malloc(size)`.
    Malloc = 1,
    /// `calloc(count, size)`; also `mallocn`.
    Calloc = 2,
    /// `realloc(old, size)`.
    Realloc = 3,
    /// `reallocarray(old, count, size)`; also mimalloc's `recalloc`.
    Reallocarray = 4,
    /// `reallocf(old, size)`: frees the old block if it fails.
    Reallocf = 5,
    /// `free(block)`; also `cfree`.
    Free = 6,
    /// `free_sized(block, size)`; also `mi_free_size` and the sized frees of other allocators.
    FreeSized = 7,
    /// `free_aligned_sized(block, alignment, size)`; also `mi_free_size_aligned`, whose last two
    /// arguments have the other order: neither is needed for a free.
    FreeAlignedSized = 8,
    /// `memalign(alignment, size)`.
    Memalign = 9,
    /// C11 `aligned_alloc(alignment, size)`.
    AlignedAlloc = 10,
    /// `posix_memalign(out, alignment, size)`.
    PosixMemalign = 11,
    /// `valloc(size)`.
    Valloc = 12,
    /// `pvalloc(size)`.
    Pvalloc = 13,
    /// `malloc_usable_size(block)`: no event.
    UsableSize = 14,
    /// An aligned calloc with the alignment first: `rpaligned_calloc(alignment, count, size)`.
    AlignedCalloc = 15,

    /// jemalloc's `mallocx(size, flags)`.
    Mallocx = 16,
    /// jemalloc's `rallocx(old, size, flags)`.
    Rallocx = 17,
    /// jemalloc's `xallocx(block, size, extra, flags)`.
    Xallocx = 18,
    /// jemalloc's `dallocx(block, flags)`.
    Dallocx = 19,
    /// jemalloc's `sdallocx(block, size, flags)`.
    Sdallocx = 20,

    /// `mi_malloc_aligned(size, alignment)`; also `mi_malloc_aligned_at(size, alignment, offset)`.
    MallocAligned = 24,
    /// `mi_calloc_aligned(count, size, alignment)`.
    CallocAligned = 25,
    /// `mi_realloc_aligned(old, size, alignment)`.
    ReallocAligned = 26,
    /// `mi_recalloc_aligned(old, count, size, alignment)`.
    ReallocarrayAligned = 27,
    /// `mi_expand(block, size)`: resizes in place.
    Expand = 28,
    /// `rpaligned_realloc(old, alignment, size, old_size, flags)`.
    AlignedRealloc = 29,
    /// `strdup(text)` and `strndup(text, max)` of an allocator: a block as long as the text in it
    /// and its end.
    Strdup = 30,

    /// A malloc with the arena, or heap, first: `moz_arena_malloc(arena, size)`,
    /// `mi_heap_malloc(heap, size)`.
    ArenaMalloc = 32,
    /// `moz_arena_calloc(arena, count, size)`.
    ArenaCalloc = 33,
    /// `moz_arena_realloc(arena, old, size)`.
    ArenaRealloc = 34,
    /// `mi_heap_reallocn(heap, old, count, size)`.
    ArenaReallocarray = 35,
    /// `mi_heap_reallocf(heap, old, size)`.
    ArenaReallocf = 36,
    /// `moz_arena_free(arena, block)`.
    ArenaFree = 37,
    /// `moz_arena_memalign(arena, alignment, size)`.
    ArenaMemalign = 38,
    /// `mi_heap_malloc_aligned(heap, size, alignment)`.
    ArenaMallocAligned = 39,
    /// `mi_heap_calloc_aligned(heap, count, size, alignment)`.
    ArenaCallocAligned = 40,
    /// `mi_heap_realloc_aligned(heap, old, size, alignment)`.
    ArenaReallocAligned = 41,
    /// `mi_heap_recalloc_aligned(heap, old, count, size, alignment)`.
    ArenaReallocarrayAligned = 42,

    /// `operator new(size)`.
    New = 48,
    /// `operator new[](size)`.
    NewArray = 49,
    /// `operator new(size, nothrow)`.
    NewNothrow = 50,
    /// `operator new[](size, nothrow)`.
    NewArrayNothrow = 51,
    /// `operator new(size, alignment)`.
    NewAligned = 52,
    /// `operator new[](size, alignment)`.
    NewArrayAligned = 53,
    /// `operator new(size, alignment, nothrow)`.
    NewAlignedNothrow = 54,
    /// `operator new[](size, alignment, nothrow)`.
    NewArrayAlignedNothrow = 55,
    /// `operator delete(block)`, `operator delete[](block)`, and their nothrow forms.
    Delete = 56,
    /// `operator delete(block, size)` and `operator delete[](block, size)`.
    DeleteSized = 57,
    /// `operator delete(block, alignment)`, the same of arrays, and their nothrow forms.
    DeleteAligned = 58,
    /// `operator delete(block, size, alignment)` and the same of arrays.
    DeleteSizedAligned = 59,
    /// `mi_new_n(count, size)`.
    NewN = 60,
    /// `mi_new_realloc(old, size)`.
    NewRealloc = 61,
    /// `mi_new_reallocn(old, count, size)`.
    NewReallocn = 62,

    /// Rust's `__rust_alloc(size, alignment)` and `__rust_alloc_zeroed`.
    RustAlloc = 64,
    /// Rust's `__rust_realloc(old, old_size, alignment, size)`.
    RustRealloc = 65,
    /// Rust's `__rust_dealloc(block, size, alignment)`.
    RustDealloc = 66,
    /// snmalloc's `sn_rust_realloc(old, alignment, old_size, size)`.
    SnRustRealloc = 67,

    /// `mi_heap_alloc_new(heap, size)`.
    ArenaNew = 72,
    /// `mi_heap_alloc_new_n(heap, count, size)`.
    ArenaNewN = 73,
}

impl EntryKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [EntryKind; 59] = [
        EntryKind::Malloc,
        EntryKind::Calloc,
        EntryKind::Realloc,
        EntryKind::Reallocarray,
        EntryKind::Reallocf,
        EntryKind::Free,
        EntryKind::FreeSized,
        EntryKind::FreeAlignedSized,
        EntryKind::Memalign,
        EntryKind::AlignedAlloc,
        EntryKind::PosixMemalign,
        EntryKind::Valloc,
        EntryKind::Pvalloc,
        EntryKind::UsableSize,
        EntryKind::AlignedCalloc,
        EntryKind::Mallocx,
        EntryKind::Rallocx,
        EntryKind::Xallocx,
        EntryKind::Dallocx,
        EntryKind::Sdallocx,
        EntryKind::MallocAligned,
        EntryKind::CallocAligned,
        EntryKind::ReallocAligned,
        EntryKind::ReallocarrayAligned,
        EntryKind::Expand,
        EntryKind::AlignedRealloc,
        EntryKind::Strdup,
        EntryKind::ArenaMalloc,
        EntryKind::ArenaCalloc,
        EntryKind::ArenaRealloc,
        EntryKind::ArenaReallocarray,
        EntryKind::ArenaReallocf,
        EntryKind::ArenaFree,
        EntryKind::ArenaMemalign,
        EntryKind::ArenaMallocAligned,
        EntryKind::ArenaCallocAligned,
        EntryKind::ArenaReallocAligned,
        EntryKind::ArenaReallocarrayAligned,
        EntryKind::New,
        EntryKind::NewArray,
        EntryKind::NewNothrow,
        EntryKind::NewArrayNothrow,
        EntryKind::NewAligned,
        EntryKind::NewArrayAligned,
        EntryKind::NewAlignedNothrow,
        EntryKind::NewArrayAlignedNothrow,
        EntryKind::Delete,
        EntryKind::DeleteSized,
        EntryKind::DeleteAligned,
        EntryKind::DeleteSizedAligned,
        EntryKind::NewN,
        EntryKind::NewRealloc,
        EntryKind::NewReallocn,
        EntryKind::RustAlloc,
        EntryKind::RustRealloc,
        EntryKind::RustDealloc,
        EntryKind::SnRustRealloc,
        EntryKind::ArenaNew,
        EntryKind::ArenaNewN,
    ];

    /// Returns the kind with this number, if there is one.
    pub const fn from_number(number: u8) -> Option<EntryKind> {
        let mut at = 0;
        while at < EntryKind::ALL.len() {
            if EntryKind::ALL[at] as u8 == number {
                return Some(EntryKind::ALL[at]);
            }
            at += 1;
        }
        None
    }

    /// Returns the number of this kind in the handshake.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the kind that does the same and returns null on failure, with a reference to a
    /// `std::nothrow_t` as one more argument. `None` for kinds that do not throw, and for those of
    /// mimalloc (`mi_new_n` and others) that have no such function: functions of the same arguments
    /// belong to several kinds of heaps, so none of them can be called instead.
    pub const fn nothrow(self) -> Option<EntryKind> {
        match self {
            EntryKind::New => Some(EntryKind::NewNothrow),
            EntryKind::NewArray => Some(EntryKind::NewArrayNothrow),
            EntryKind::NewAligned => Some(EntryKind::NewAlignedNothrow),
            EntryKind::NewArrayAligned => Some(EntryKind::NewArrayAlignedNothrow),
            _ => None,
        }
    }

    /// True if calls are events, so that the entry is worth patching.
    pub const fn is_event(self) -> bool {
        !matches!(self, EntryKind::UsableSize)
    }

    /// Returns the meaning of the arguments and the result.
    pub const fn layout(self) -> Layout {
        use EntryKind::*;
        match self {
            Malloc => allocate(Api::Malloc, 0),
            Calloc => allocate(Api::Calloc, 1).counted(0),
            Realloc => reallocate(Api::Realloc, 0, 1),
            Reallocarray => reallocate(Api::Reallocarray, 0, 2).counted(1),
            Reallocf => reallocate(Api::Realloc, 0, 1).freeing_on_failure(),
            Free => free(Api::Free, 0),
            FreeSized => free(Api::FreeSized, 0),
            FreeAlignedSized => free(Api::FreeAlignedSized, 0),
            Memalign => allocate(Api::Memalign, 1).aligned(0),
            AlignedAlloc => allocate(Api::AlignedAlloc, 1).aligned(0),
            PosixMemalign => allocate(Api::PosixMemalign, 2).aligned(1).written_to(0),
            Valloc => allocate(Api::Valloc, 0),
            Pvalloc => allocate(Api::Pvalloc, 0),
            UsableSize => Layout { effect: Effect::UsableSize, ..free(Api::Free, 0) },
            AlignedCalloc => allocate(Api::Calloc, 2).counted(1).aligned(0),
            Mallocx => allocate(Api::Malloc, 0).flags(1),
            Rallocx => reallocate(Api::Realloc, 0, 1).flags(2),
            Xallocx => Layout { effect: Effect::ResizeInPlace, ..reallocate(Api::Realloc, 0, 1).flags(3) },
            Dallocx => free(Api::Free, 0),
            Sdallocx => free(Api::FreeSized, 0),
            MallocAligned => allocate(Api::AlignedAlloc, 0).aligned(1),
            CallocAligned => allocate(Api::Calloc, 1).counted(0).aligned(2),
            ReallocAligned => reallocate(Api::Realloc, 0, 1).aligned(2),
            ReallocarrayAligned => reallocate(Api::Reallocarray, 0, 2).counted(1).aligned(3),
            Expand => Layout { effect: Effect::Expand, ..reallocate(Api::Realloc, 0, 1) },
            AlignedRealloc => reallocate(Api::Realloc, 0, 2).aligned(1),
            Strdup => Layout { effect: Effect::AllocateText, size: None, ..allocate(Api::Malloc, 0) },
            ArenaMalloc => allocate(Api::Malloc, 1),
            ArenaCalloc => allocate(Api::Calloc, 2).counted(1),
            ArenaRealloc => reallocate(Api::Realloc, 1, 2),
            ArenaReallocarray => reallocate(Api::Reallocarray, 1, 3).counted(2),
            ArenaReallocf => reallocate(Api::Realloc, 1, 2).freeing_on_failure(),
            ArenaFree => free(Api::Free, 1),
            ArenaMemalign => allocate(Api::Memalign, 2).aligned(1),
            ArenaMallocAligned => allocate(Api::AlignedAlloc, 1).aligned(2),
            ArenaCallocAligned => allocate(Api::Calloc, 2).counted(1).aligned(3),
            ArenaReallocAligned => reallocate(Api::Realloc, 1, 2).aligned(3),
            ArenaReallocarrayAligned => reallocate(Api::Reallocarray, 1, 3).counted(2).aligned(4),
            New | NewArray => allocate(Api::Malloc, 0).throwing(),
            NewNothrow | NewArrayNothrow => allocate(Api::Malloc, 0),
            NewAligned | NewArrayAligned => allocate(Api::AlignedAlloc, 0).aligned(1).throwing(),
            NewAlignedNothrow | NewArrayAlignedNothrow => allocate(Api::AlignedAlloc, 0).aligned(1),
            Delete | DeleteAligned => free(Api::Free, 0),
            DeleteSized => free(Api::FreeSized, 0),
            DeleteSizedAligned => free(Api::FreeAlignedSized, 0),
            NewN => allocate(Api::Calloc, 1).counted(0).throwing(),
            NewRealloc => reallocate(Api::Realloc, 0, 1).throwing(),
            NewReallocn => reallocate(Api::Reallocarray, 0, 2).counted(1).throwing(),
            ArenaNew => allocate(Api::Malloc, 1).throwing(),
            ArenaNewN => allocate(Api::Calloc, 2).counted(1).throwing(),
            RustAlloc => allocate(Api::AlignedAlloc, 0).aligned(1),
            RustRealloc => reallocate(Api::Realloc, 0, 3).aligned(2),
            RustDealloc => free(Api::FreeAlignedSized, 0),
            SnRustRealloc => reallocate(Api::Realloc, 0, 3).aligned(1),
        }
    }
}

const fn allocate(api: Api, size: Argument) -> Layout {
    Layout {
        effect: Effect::Allocate,
        api,
        block: None,
        size: Some(size),
        count: None,
        alignment: None,
        out: None,
        alignment_in_flags: false,
        throws: false,
        frees_on_failure: false,
    }
}

const fn reallocate(api: Api, block: Argument, size: Argument) -> Layout {
    Layout { effect: Effect::Reallocate, block: Some(block), ..allocate(api, size) }
}

const fn free(api: Api, block: Argument) -> Layout {
    Layout { effect: Effect::Free, block: Some(block), size: None, ..allocate(api, 0) }
}

impl Layout {
    const fn counted(self, count: Argument) -> Layout {
        Layout { count: Some(count), ..self }
    }

    const fn aligned(self, alignment: Argument) -> Layout {
        Layout { alignment: Some(alignment), ..self }
    }

    const fn flags(self, flags: Argument) -> Layout {
        Layout { alignment: Some(flags), alignment_in_flags: true, ..self }
    }

    const fn written_to(self, out: Argument) -> Layout {
        Layout { effect: Effect::AllocateOut, out: Some(out), ..self }
    }

    const fn throwing(self) -> Layout {
        Layout { throws: true, ..self }
    }

    const fn freeing_on_failure(self) -> Layout {
        Layout { frees_on_failure: true, ..self }
    }
}
