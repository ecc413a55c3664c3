//! The entry points, as far as the checks distinguish them.

use core::ffi::CStr;

/// The call that allocated or freed a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Call {
    /// `malloc`.
    Malloc = 1,
    /// `calloc`.
    Calloc = 2,
    /// `realloc` or `reallocarray`: an allocation, and a free of the old block.
    Realloc = 3,
    /// `aligned_alloc`, `posix_memalign` and the like.
    Aligned = 4,
    /// C++'s `operator new`.
    New = 5,
    /// C++'s `operator new[]`.
    NewArray = 6,
    /// `free`.
    Free = 7,
    /// C23's `free_sized` or `free_aligned_sized`.
    FreeSized = 8,
    /// C++'s `operator delete`.
    Delete = 9,
    /// C++'s `operator delete[]`.
    DeleteArray = 10,
}

/// A set of calls that fit together: any of them may free what another has allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllocationType {
    C,
    Single,
    Array,
}

impl Call {
    const ALL: [Call; 10] = [
        Call::Malloc,
        Call::Calloc,
        Call::Realloc,
        Call::Aligned,
        Call::New,
        Call::NewArray,
        Call::Free,
        Call::FreeSized,
        Call::Delete,
        Call::DeleteArray,
    ];

    /// Returns the call with this number.
    pub fn from_number(number: u8) -> Option<Call> {
        Call::ALL.into_iter().find(|&call| call as u8 == number)
    }

    /// Returns the name in the source, such as `operator new[]`.
    pub fn name(self) -> &'static str {
        self.c_name().to_str().unwrap_or("")
    }

    /// Returns the same name as a C string.
    pub fn c_name(self) -> &'static CStr {
        match self {
            Call::Malloc => c"malloc",
            Call::Calloc => c"calloc",
            Call::Realloc => c"realloc",
            Call::Aligned => c"aligned_alloc",
            Call::New => c"operator new",
            Call::NewArray => c"operator new[]",
            Call::Free => c"free",
            Call::FreeSized => c"free_sized",
            Call::Delete => c"operator delete",
            Call::DeleteArray => c"operator delete[]",
        }
    }

    pub(crate) fn allocation_type(self) -> AllocationType {
        match self {
            Call::New | Call::Delete => AllocationType::Single,
            Call::NewArray | Call::DeleteArray => AllocationType::Array,
            _ => AllocationType::C,
        }
    }
}
