//! The uses of mapped memory, by which a recording of mappings tells them apart.

use heapledger_recording::{MappingFlags, MappingKind, Protection};

/// The use of mapped memory: its kind, and who mapped it. In a recording of
/// [mappings](super::mappings), each use is a heap of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MappedUse {
    /// Private memory without a file that the program mapped.
    Anonymous,
    /// A file or a device that the program mapped.
    File,
    /// Memory that processes share, without a file on a disk; System V's, too.
    Shared,
    /// The stacks of threads.
    Stack,
    /// Memory of hugetlbfs.
    Huge,
    /// Private memory without a file that is executable, or was: code made at run time.
    Code,
    /// The brk heap, if the program itself grows it.
    Brk,
    /// Address space that may not be accessed: reservations and guards.
    Reserved,
    /// Memory that an allocator mapped for its blocks.
    Allocator,
    /// Address space that an allocator has reserved.
    AllocatorReserved,
    /// The files of the program and its libraries, which the dynamic linker maps.
    Modules,
    /// Private memory that was there without a call that was seen: data of the program and its
    /// libraries that begin as zeroes, and what was mapped before the recording began.
    Unseen,
    /// Pages of the kernel's own.
    Kernel,
    /// Memory that Heapledger mapped in the program.
    Recorder,
    /// A kind of memory that this version does not know.
    Unknown,
}

impl MappedUse {
    /// All uses.
    pub const ALL: [MappedUse; 15] = [
        MappedUse::Anonymous,
        MappedUse::File,
        MappedUse::Shared,
        MappedUse::Stack,
        MappedUse::Huge,
        MappedUse::Code,
        MappedUse::Brk,
        MappedUse::Reserved,
        MappedUse::Allocator,
        MappedUse::AllocatorReserved,
        MappedUse::Modules,
        MappedUse::Unseen,
        MappedUse::Kernel,
        MappedUse::Recorder,
        MappedUse::Unknown,
    ];

    /// Returns its name, which is that of the heap.
    pub const fn name(self) -> &'static str {
        match self {
            MappedUse::Anonymous => "anonymous",
            MappedUse::File => "file",
            MappedUse::Shared => "shared",
            MappedUse::Stack => "stack",
            MappedUse::Huge => "huge",
            MappedUse::Code => "code",
            MappedUse::Brk => "brk",
            MappedUse::Reserved => "reserved",
            MappedUse::Allocator => "allocator",
            MappedUse::AllocatorReserved => "allocator, reserved",
            MappedUse::Modules => "program and libraries",
            MappedUse::Unseen => "not seen",
            MappedUse::Kernel => "kernel",
            MappedUse::Recorder => "heapledger",
            MappedUse::Unknown => "unknown",
        }
    }

    /// Returns the use with this name.
    pub fn from_name(name: &str) -> Option<MappedUse> {
        MappedUse::ALL.into_iter().find(|it| it.name() == name)
    }

    /// True if the program's own code did not ask for it: an allocator, the dynamic linker, the
    /// kernel or the recorder did, or nobody was seen to. It is no leak if it stays mapped.
    pub const fn is_apart(self) -> bool {
        matches!(
            self,
            MappedUse::Allocator
                | MappedUse::AllocatorReserved
                | MappedUse::Modules
                | MappedUse::Unseen
                | MappedUse::Kernel
                | MappedUse::Recorder
        )
    }

    /// Returns the use of a mapping with a protection.
    pub(super) fn of(kind: MappingKind, flags: MappingFlags, protection: Protection) -> MappedUse {
        let is = |flag| flags.contains(flag);
        let (found, none) = (is(MappingFlags::FOUND), protection.is_none());
        match kind {
            _ if is(MappingFlags::RECORDER) => MappedUse::Recorder,
            MappingKind::Kernel => MappedUse::Kernel,
            _ if is(MappingFlags::ALLOCATOR) && none => MappedUse::AllocatorReserved,
            _ if is(MappingFlags::ALLOCATOR) => MappedUse::Allocator,
            MappingKind::File if found => MappedUse::Modules,
            _ if none => MappedUse::Reserved,
            MappingKind::Anonymous if found => MappedUse::Unseen,
            MappingKind::Anonymous if protection.contains(Protection::EXECUTE) => MappedUse::Code,
            MappingKind::Anonymous => MappedUse::Anonymous,
            MappingKind::File => MappedUse::File,
            MappingKind::Shared | MappingKind::SystemV => MappedUse::Shared,
            MappingKind::Stack => MappedUse::Stack,
            MappingKind::Brk => MappedUse::Brk,
            MappingKind::Huge => MappedUse::Huge,
            MappingKind::Code => MappedUse::Code,
            _ => MappedUse::Unknown,
        }
    }

    /// Returns the use of memory from now on that gets a protection. Code that can be written to
    /// for a moment stays code.
    pub(super) fn next(self, kind: MappingKind, flags: MappingFlags, protection: Protection) -> MappedUse {
        match MappedUse::of(kind, flags, protection) {
            MappedUse::Anonymous if self == MappedUse::Code => MappedUse::Code,
            next => next,
        }
    }
}
