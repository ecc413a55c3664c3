//! The allocator that the program uses: the object that defines the next `malloc` says so by
//! another symbol of its own.

use core::ffi::{CStr, c_char, c_int};

use heapledger_core::allocator::{AllocatorKind, AllocatorVersion};
use heapledger_interpose::next::Objects;

/// Returns the kind and the version of the next allocator. Calls functions of it that return
/// constants.
pub(crate) fn next_allocator(objects: &Objects<'_>) -> (AllocatorKind, AllocatorVersion) {
    let mut first = None;
    objects.definitions(c"malloc", |definition| {
        first.get_or_insert(definition);
    });
    let Some(malloc) = first else { return (AllocatorKind::Other, AllocatorVersion::default()) };
    let own = |name: &CStr| definition_in(objects, malloc.object, name);
    if own(c"heapledger_set_purge_hook") != 0 {
        return (AllocatorKind::Heapledger, AllocatorVersion::default());
    }
    let mi_version = own(c"mi_version");
    if mi_version != 0 {
        return (AllocatorKind::Mimalloc, mimalloc(mi_version));
    }
    let tc_version = own(c"tc_version");
    if tc_version != 0 {
        return (AllocatorKind::Tcmalloc, tcmalloc(tc_version));
    }
    if own(c"mallctl") != 0 && own(c"nallocx") != 0 {
        return (AllocatorKind::Jemalloc, AllocatorVersion::default());
    }
    // The sizes of an allocator that is linked into the program are not the C library's.
    if malloc.is_of_c_library && heapledger_redirect::nesting::is_active() {
        return (AllocatorKind::Other, AllocatorVersion::default());
    }
    if malloc.is_of_c_library {
        return (AllocatorKind::Glibc, glibc(own(c"gnu_get_libc_version")));
    }
    (AllocatorKind::Other, AllocatorVersion::default())
}

/// Returns the address of a symbol in the object at this address; 0 if it defines none.
#[inline(never)]
fn definition_in(objects: &Objects<'_>, object: usize, name: &CStr) -> usize {
    let mut address = 0;
    objects.definitions(name, |definition| {
        if definition.object == object {
            address = definition.address;
        }
    });
    address
}

/// Returns mimalloc's version: `int mi_version(void)`, 209 for 2.0.9, 20302 for 2.3.2.
fn mimalloc(function: usize) -> AllocatorVersion {
    // SAFETY: mimalloc's function of this name, whose type this is. It returns a constant.
    let version = unsafe { core::mem::transmute::<usize, unsafe extern "C" fn() -> c_int>(function)() };
    let version = u32::try_from(version).unwrap_or(0);
    // From 2.3 on, each of the three numbers has two digits.
    if version >= 10_000 {
        return AllocatorVersion::new(version / 10_000, version / 100 % 100, version % 100);
    }
    AllocatorVersion::new(version / 100, version / 10 % 10, version % 10)
}

/// Returns tcmalloc's version, by `tc_version(int* major, int* minor, const char** patch)`.
fn tcmalloc(function: usize) -> AllocatorVersion {
    type TcVersion = unsafe extern "C" fn(*mut c_int, *mut c_int, *mut *const c_char) -> *const c_char;
    let (mut major, mut minor, mut patch) = (0, 0, core::ptr::null());
    // SAFETY: gperftools' function of this name, whose type this is. It stores three constants
    // where these pointers lead: to variables of these types.
    unsafe { core::mem::transmute::<usize, TcVersion>(function)(&raw mut major, &raw mut minor, &raw mut patch) };
    AllocatorVersion::new(u32::try_from(major).unwrap_or(0), u32::try_from(minor).unwrap_or(0), 0)
}

/// Returns the C library's version: `const char* gnu_get_libc_version(void)`, such as `2.36`.
fn glibc(function: usize) -> AllocatorVersion {
    if function == 0 {
        return AllocatorVersion::default();
    }
    // SAFETY: glibc's function of this name, whose type this is. It returns a constant text, with a
    // NUL at its end, which stays as long as the library.
    let text =
        unsafe { CStr::from_ptr(core::mem::transmute::<usize, unsafe extern "C" fn() -> *const c_char>(function)()) };
    let mut numbers = text.to_bytes().split(|&byte| byte == b'.').map(|digits| {
        let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0_u32, |number, digit| number.saturating_mul(10).saturating_add(u32::from(digit - b'0')))
    });
    let mut next = || numbers.next().unwrap_or(0);
    AllocatorVersion::new(next(), next(), next())
}
