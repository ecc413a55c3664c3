//! The properties of mappings and of the calls that change them, as numbers and bits of the file.

/// The use of a mapping, as far as the call that made it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MappingKind {
    /// A kind that this version does not know.
    #[default]
    Unknown,
    /// Private memory without a file.
    Anonymous,
    /// A file, or a device: private or shared.
    File,
    /// Shared memory without a name: `MAP_SHARED | MAP_ANONYMOUS`, a memfd, or a file of a file
    /// system in memory.
    Shared,
    /// A segment of System V shared memory.
    SystemV,
    /// The stack of a thread.
    Stack,
    /// The heap that `brk` and `sbrk` grow. Each growth is a mapping of its own.
    Brk,
    /// Memory without a file in huge pages: `MAP_HUGETLB`. Transparent huge pages are
    /// [`Anonymous`](Self::Anonymous).
    Huge,
    /// Private memory without a file that was executable from the beginning, such as that of
    /// compilers at run time. Memory that becomes executable later is
    /// [`Anonymous`](Self::Anonymous), and a [`Protected`](crate::MappingChange::Protected) says
    /// so.
    Code,
    /// Memory of the kernel's own in the address space: `[vdso]`, `[vvar]` and the like.
    Kernel,
}

impl MappingKind {
    /// All kinds that this version knows.
    pub const ALL: [MappingKind; 9] = [
        MappingKind::Anonymous,
        MappingKind::File,
        MappingKind::Shared,
        MappingKind::SystemV,
        MappingKind::Stack,
        MappingKind::Brk,
        MappingKind::Huge,
        MappingKind::Code,
        MappingKind::Kernel,
    ];

    /// Returns the number in the file; 0 for [`Unknown`](Self::Unknown).
    pub const fn number(self) -> u8 {
        match self {
            MappingKind::Unknown => 0,
            MappingKind::Anonymous => 1,
            MappingKind::File => 2,
            MappingKind::Shared => 3,
            MappingKind::SystemV => 4,
            MappingKind::Stack => 5,
            MappingKind::Brk => 6,
            MappingKind::Huge => 7,
            MappingKind::Code => 8,
            MappingKind::Kernel => 9,
        }
    }

    /// Returns the kind with this number.
    pub fn from_number(number: u8) -> MappingKind {
        MappingKind::ALL.into_iter().find(|kind| kind.number() == number).unwrap_or_default()
    }

    /// Returns the name for people and for JSON.
    pub const fn name(self) -> &'static str {
        match self {
            MappingKind::Unknown => "unknown",
            MappingKind::Anonymous => "anonymous",
            MappingKind::File => "file",
            MappingKind::Shared => "shared",
            MappingKind::SystemV => "system-v",
            MappingKind::Stack => "stack",
            MappingKind::Brk => "brk",
            MappingKind::Huge => "huge",
            MappingKind::Code => "code",
            MappingKind::Kernel => "kernel",
        }
    }
}

/// The call that changed a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum MappingCall {
    /// No call was seen: the change was found in `/proc/PID/maps`, or has no call.
    #[default]
    Unseen,
    /// `mmap`.
    Mmap,
    /// `munmap`.
    Munmap,
    /// `mremap`.
    Mremap,
    /// `brk`.
    Brk,
    /// `sbrk`.
    Sbrk,
    /// `mprotect`, or `pkey_mprotect`.
    Mprotect,
    /// `madvise`, or `posix_madvise`.
    Madvise,
    /// `shmat`.
    Shmat,
    /// `shmdt`.
    Shmdt,
    /// The function `syscall`, with the number of one of these calls.
    Syscall,
    /// A call that this version does not know.
    Other(u8),
}

impl MappingCall {
    /// All calls that this version knows, [`Unseen`](Self::Unseen) included.
    pub const ALL: [MappingCall; 11] = [
        MappingCall::Unseen,
        MappingCall::Mmap,
        MappingCall::Munmap,
        MappingCall::Mremap,
        MappingCall::Brk,
        MappingCall::Sbrk,
        MappingCall::Mprotect,
        MappingCall::Madvise,
        MappingCall::Shmat,
        MappingCall::Shmdt,
        MappingCall::Syscall,
    ];

    /// Returns the number in the file.
    pub const fn number(self) -> u8 {
        match self {
            MappingCall::Unseen => 0,
            MappingCall::Mmap => 1,
            MappingCall::Munmap => 2,
            MappingCall::Mremap => 3,
            MappingCall::Brk => 4,
            MappingCall::Sbrk => 5,
            MappingCall::Mprotect => 6,
            MappingCall::Madvise => 7,
            MappingCall::Shmat => 8,
            MappingCall::Shmdt => 9,
            MappingCall::Syscall => 10,
            MappingCall::Other(number) => number,
        }
    }

    /// Returns the call with this number.
    pub fn from_number(number: u8) -> MappingCall {
        let known = MappingCall::ALL.into_iter().find(|call| call.number() == number);
        known.unwrap_or(MappingCall::Other(number))
    }

    /// Returns the name of the function; `unseen` without one.
    pub const fn name(self) -> &'static str {
        match self {
            MappingCall::Unseen => "unseen",
            MappingCall::Mmap => "mmap",
            MappingCall::Munmap => "munmap",
            MappingCall::Mremap => "mremap",
            MappingCall::Brk => "brk",
            MappingCall::Sbrk => "sbrk",
            MappingCall::Mprotect => "mprotect",
            MappingCall::Madvise => "madvise",
            MappingCall::Shmat => "shmat",
            MappingCall::Shmdt => "shmdt",
            MappingCall::Syscall => "syscall",
            MappingCall::Other(_) => "unknown",
        }
    }
}

/// The access that a mapping allows: the bits of mmap(2), of which others than these three are
/// kept as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Protection(u8);

impl Protection {
    /// No access: address space that is only reserved.
    pub const NONE: Protection = Protection(0);
    /// The memory can be read.
    pub const READ: Protection = Protection(1);
    /// The memory can be written.
    pub const WRITE: Protection = Protection(2);
    /// The memory can be executed.
    pub const EXECUTE: Protection = Protection(4);

    /// Returns the protection with these bits, as in mmap(2).
    pub const fn from_bits(bits: u8) -> Protection {
        Protection(bits)
    }

    /// Returns the bits, as in mmap(2).
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// True if all accesses of `other` are allowed.
    pub const fn contains(self, other: Protection) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if no access is allowed: the memory is only reserved.
    pub const fn is_none(self) -> bool {
        self.0 & 7 == 0
    }
}

/// Further facts about a mapping, from the moment at which it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MappingFlags(u32);

impl MappingFlags {
    /// No flags.
    pub const NONE: MappingFlags = MappingFlags(0);
    /// An allocator made it, while it served a call of one of the malloc functions: its blocks lie
    /// in it, and are counted by the events of blocks.
    pub const ALLOCATOR: MappingFlags = MappingFlags(1);
    /// Changes of its contents are shared with other processes: `MAP_SHARED`.
    pub const SHARED: MappingFlags = MappingFlags(2);
    /// No call was seen that made it. It was there when recording of mappings began, or code made
    /// it that the recorder does not see, such as the dynamic linker's.
    pub const FOUND: MappingFlags = MappingFlags(4);
    /// The image was forked, and its parent had made the mapping before. The stack is that of the
    /// parent's call.
    pub const INHERITED: MappingFlags = MappingFlags(8);
    /// The mapping was made before this recording begins, which is a later segment of its session.
    pub const CARRIED: MappingFlags = MappingFlags(16);
    /// No swap space is reserved for it: `MAP_NORESERVE`.
    pub const UNRESERVED: MappingFlags = MappingFlags(32);
    /// The recorder made it, in the program.
    pub const RECORDER: MappingFlags = MappingFlags(64);

    /// Returns the flags with these bits, among them bits that this version does not know.
    pub const fn from_bits(bits: u32) -> MappingFlags {
        MappingFlags(bits)
    }

    /// Returns the bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// True if all flags of `other` are set.
    pub const fn contains(self, other: MappingFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the flags of both.
    #[must_use]
    pub const fn with(self, other: MappingFlags) -> MappingFlags {
        MappingFlags(self.0 | other.0)
    }
}
