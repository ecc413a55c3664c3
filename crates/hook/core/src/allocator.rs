//! The allocators whose usable sizes are known.

/// The allocator of a program: the one that its malloc functions lead to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum AllocatorKind {
    /// It was not recorded.
    #[default]
    Unknown = 0,
    /// None of the following.
    Other = 1,
    /// The malloc of the GNU C library.
    Glibc = 2,
    /// jemalloc, from version 4 on.
    Jemalloc = 3,
    /// tcmalloc of gperftools.
    Tcmalloc = 4,
    /// mimalloc.
    Mimalloc = 5,
    /// Heapledger's own.
    Heapledger = 6,
}

impl AllocatorKind {
    /// Returns the kind with this number; `Unknown` for a number of a newer version.
    pub const fn from_number(number: u32) -> AllocatorKind {
        match number {
            1 => AllocatorKind::Other,
            2 => AllocatorKind::Glibc,
            3 => AllocatorKind::Jemalloc,
            4 => AllocatorKind::Tcmalloc,
            5 => AllocatorKind::Mimalloc,
            6 => AllocatorKind::Heapledger,
            _ => AllocatorKind::Unknown,
        }
    }
}

/// The version of an allocator: its three numbers, each at most 255. All are 0 if it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AllocatorVersion(pub u32);

impl AllocatorVersion {
    /// Returns the version `major.minor.patch`; numbers above 255 count as 255.
    pub const fn new(major: u32, minor: u32, patch: u32) -> AllocatorVersion {
        const fn limited(number: u32) -> u32 {
            if number > 255 { 255 } else { number }
        }
        AllocatorVersion(limited(major) << 16 | limited(minor) << 8 | limited(patch))
    }

    /// Returns the three numbers.
    pub const fn numbers(self) -> (u32, u32, u32) {
        (self.0 >> 16, self.0 >> 8 & 0xff, self.0 & 0xff)
    }
}
