//! The uses of memory, and the words for them.

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

/// The words for kinds of parts, in files and in JSON.
const WORDS: [(PartKind, &str); 27] = [
    (PartKind::GlibcUsed, "glibc-used"),
    (PartKind::GlibcMapped, "glibc-mapped"),
    (PartKind::GlibcCached, "glibc-cached"),
    (PartKind::GlibcFast, "glibc-fast"),
    (PartKind::GlibcFree, "glibc-free"),
    (PartKind::GlibcTop, "glibc-top"),
    (PartKind::GlibcBookkeeping, "glibc-bookkeeping"),
    (PartKind::GlibcUnread, "glibc-unread"),
    (PartKind::HeapledgerUsed, "heapledger-used"),
    (PartKind::HeapledgerUnused, "heapledger-unused"),
    (PartKind::HeapledgerFree, "heapledger-free"),
    (PartKind::HeapledgerBookkeeping, "heapledger-bookkeeping"),
    (PartKind::AllocatorUsed, "allocator-used"),
    (PartKind::AllocatorCached, "allocator-cached"),
    (PartKind::AllocatorFree, "allocator-free"),
    (PartKind::AllocatorDirty, "allocator-dirty"),
    (PartKind::AllocatorLazy, "allocator-lazy"),
    (PartKind::AllocatorReturned, "allocator-returned"),
    (PartKind::AllocatorBookkeeping, "allocator-bookkeeping"),
    (PartKind::AllocatorUnread, "allocator-unread"),
    (PartKind::File, "file"),
    (PartKind::MainStack, "main-stack"),
    (PartKind::ThreadStack, "thread-stack"),
    (PartKind::EndedStack, "ended-stack"),
    (PartKind::Anonymous, "anonymous"),
    (PartKind::Shared, "shared"),
    (PartKind::Kernel, "kernel"),
];

impl PartKind {
    /// Returns the word for the kind, such as `glibc-used`.
    pub fn word(self) -> &'static str {
        WORDS.iter().find(|(kind, _)| *kind == self).map_or("anonymous", |(_, word)| word)
    }

    /// Returns the kind that a word stands for.
    pub fn from_word(word: &str) -> Option<PartKind> {
        WORDS.iter().find(|(_, known)| *known == word).map(|(kind, _)| *kind)
    }
}
