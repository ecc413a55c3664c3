//! Entry points, as far as they have to fit together.

use core::ffi::CStr;

/// By what a block was allocated or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Call {
    /// `malloc`.
    Malloc = 1,
    /// `calloc`.
    Calloc = 2,
    /// `realloc` or `reallocarray`: an allocation, and of the old block a free.
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

/// Calls that fit together: what one has allocated, any other may free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
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

    /// The call with this number.
    pub fn from_number(number: u8) -> Option<Call> {
        Call::ALL.into_iter().find(|&call| call as u8 == number)
    }

    /// Its name in the source: `operator new[]`.
    pub fn name(self) -> &'static str {
        self.c_name().to_str().unwrap_or("")
    }

    /// The same for C.
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

    pub(crate) fn family(self) -> Family {
        match self {
            Call::New | Call::Delete => Family::Single,
            Call::NewArray | Call::DeleteArray => Family::Array,
            _ => Family::C,
        }
    }
}
