//! The uses of memory, the words for them, and their groups.

/// The use of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PartKind {
    /// Chunks of glibc's malloc that are in use.
    GlibcUsed,
    /// Blocks of glibc's malloc with a mapping of their own.
    GlibcMapped,
    /// Freed chunks in the caches of threads.
    GlibcCached,
    /// Freed chunks in fastbins.
    GlibcFast,
    /// Other freed chunks.
    GlibcFree,
    /// The ends of heaps, from which new chunks are cut.
    GlibcTop,
    /// Descriptions of arenas, heaps and caches.
    GlibcBookkeeping,
    /// Parts of heaps that could not be walked.
    GlibcUnread,
    /// Blocks of Heapledger's allocator that are in use.
    HeapledgerUsed,
    /// The rest of the runs of Heapledger's allocator.
    HeapledgerUnused,
    /// Slices without a run.
    HeapledgerFree,
    /// The headers of chunks.
    HeapledgerBookkeeping,
    /// Blocks of another allocator that are in use. The name of this part and of the following is
    /// that of the allocator.
    AllocatorUsed,
    /// Freed blocks in the caches of threads and in lists.
    AllocatorCached,
    /// The rest of the memory that is divided into blocks.
    AllocatorFree,
    /// Free pages that the allocator keeps.
    AllocatorDirty,
    /// Free pages that the system may take when it needs memory.
    AllocatorLazy,
    /// Free addresses, whose pages were given back or never used.
    AllocatorReturned,
    /// The allocator's own descriptions.
    AllocatorBookkeeping,
    /// Memory whose description makes no sense.
    AllocatorUnread,
    /// Pages of a file, with the process's own copies of them, and data of a program or library
    /// that begins as zeroes.
    File,
    /// The stack of the main thread.
    MainStack,
    /// The stacks of other threads.
    ThreadStack,
    /// Stacks of threads that have ended, which the C library keeps.
    EndedStack,
    /// Other private memory.
    Anonymous,
    /// Memory that processes share, without a file on a disk.
    Shared,
    /// Pages of the kernel, such as the vdso.
    Kernel,
}

/// The group of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartGroup {
    /// The heap of an allocator.
    Heap(HeapOwner, HeapUse),
    /// Other private memory.
    Private,
    /// Stacks.
    Stacks,
    /// Files.
    Files,
    /// Memory that processes share, without a file on a disk.
    Shared,
    /// Pages of the kernel.
    Kernel,
}

/// The allocator of a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapOwner {
    /// glibc's malloc.
    Glibc,
    /// Heapledger's allocator.
    Heapledger,
    /// The allocator that the part names.
    Other,
}

/// The use of memory of a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapUse {
    /// Blocks that are in use.
    Used,
    /// Memory that the allocator can give out or back.
    Free,
    /// The allocator's own descriptions.
    Bookkeeping,
    /// Memory that could not be walked, or whose description makes no sense.
    Unread,
}

/// The kinds of parts, with their words in files and in JSON, and their groups.
const KINDS: [(PartKind, &str, PartGroup); 27] = [
    (PartKind::GlibcUsed, "glibc-used", heap(HeapOwner::Glibc, HeapUse::Used)),
    (PartKind::GlibcMapped, "glibc-mapped", heap(HeapOwner::Glibc, HeapUse::Used)),
    (PartKind::GlibcCached, "glibc-cached", heap(HeapOwner::Glibc, HeapUse::Free)),
    (PartKind::GlibcFast, "glibc-fast", heap(HeapOwner::Glibc, HeapUse::Free)),
    (PartKind::GlibcFree, "glibc-free", heap(HeapOwner::Glibc, HeapUse::Free)),
    (PartKind::GlibcTop, "glibc-top", heap(HeapOwner::Glibc, HeapUse::Free)),
    (PartKind::GlibcBookkeeping, "glibc-bookkeeping", heap(HeapOwner::Glibc, HeapUse::Bookkeeping)),
    (PartKind::GlibcUnread, "glibc-unread", heap(HeapOwner::Glibc, HeapUse::Unread)),
    (PartKind::HeapledgerUsed, "heapledger-used", heap(HeapOwner::Heapledger, HeapUse::Used)),
    (PartKind::HeapledgerUnused, "heapledger-unused", heap(HeapOwner::Heapledger, HeapUse::Free)),
    (PartKind::HeapledgerFree, "heapledger-free", heap(HeapOwner::Heapledger, HeapUse::Free)),
    (PartKind::HeapledgerBookkeeping, "heapledger-bookkeeping", heap(HeapOwner::Heapledger, HeapUse::Bookkeeping)),
    (PartKind::AllocatorUsed, "allocator-used", heap(HeapOwner::Other, HeapUse::Used)),
    (PartKind::AllocatorCached, "allocator-cached", heap(HeapOwner::Other, HeapUse::Free)),
    (PartKind::AllocatorFree, "allocator-free", heap(HeapOwner::Other, HeapUse::Free)),
    (PartKind::AllocatorDirty, "allocator-dirty", heap(HeapOwner::Other, HeapUse::Free)),
    (PartKind::AllocatorLazy, "allocator-lazy", heap(HeapOwner::Other, HeapUse::Free)),
    (PartKind::AllocatorReturned, "allocator-returned", heap(HeapOwner::Other, HeapUse::Free)),
    (PartKind::AllocatorBookkeeping, "allocator-bookkeeping", heap(HeapOwner::Other, HeapUse::Bookkeeping)),
    (PartKind::AllocatorUnread, "allocator-unread", heap(HeapOwner::Other, HeapUse::Unread)),
    (PartKind::File, "file", PartGroup::Files),
    (PartKind::MainStack, "main-stack", PartGroup::Stacks),
    (PartKind::ThreadStack, "thread-stack", PartGroup::Stacks),
    (PartKind::EndedStack, "ended-stack", PartGroup::Stacks),
    (PartKind::Anonymous, "anonymous", PartGroup::Private),
    (PartKind::Shared, "shared", PartGroup::Shared),
    (PartKind::Kernel, "kernel", PartGroup::Kernel),
];

const fn heap(owner: HeapOwner, used: HeapUse) -> PartGroup {
    PartGroup::Heap(owner, used)
}

impl PartKind {
    /// Returns the word for the kind, such as `glibc-used`.
    pub fn word(self) -> &'static str {
        self.entry().map_or("anonymous", |(_, word, _)| word)
    }

    /// Returns the group of the kind.
    pub fn group(self) -> PartGroup {
        self.entry().map_or(PartGroup::Private, |(_, _, group)| *group)
    }

    /// Returns the kind that a word stands for.
    pub fn from_word(word: &str) -> Option<PartKind> {
        KINDS.iter().find(|(_, known, _)| *known == word).map(|(kind, ..)| *kind)
    }

    fn entry(self) -> Option<&'static (PartKind, &'static str, PartGroup)> {
        KINDS.iter().find(|(kind, ..)| *kind == self)
    }
}
