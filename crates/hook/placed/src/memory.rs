//! The functions of the C library that compilers call for copies and comparisons: there is no C
//! library to ask. They are short, because the recorder copies little.

use core::arch::asm;

/// Copies bytes between places that do not overlap, as the C function does.
///
/// # Safety
///
/// `from` is readable and `to` is writable for `count` bytes, and they do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    // SAFETY: the direction flag is clear (System V psABI), so the instruction reads `count` bytes
    // at `from` and writes as many at `to`: this function's `# Safety` allows both.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") count => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags),
        );
    }
    to
}

/// Copies bytes between places that may overlap, as the C function does.
///
/// # Safety
///
/// `from` is readable and `to` is writable for `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= count {
        // SAFETY: `memcpy` requires what this function's `# Safety` gives; a copy upwards reads no
        // byte that it has written, since `to` is not among the bytes behind `from`.
        return unsafe { memcpy(to, from, count) };
    }
    for index in (0..count).rev() {
        // SAFETY: both bytes are inside of the ranges that this function's `# Safety` names.
        // Volatile, so that the compiler does not make this loop a call of this function.
        unsafe { to.add(index).write_volatile(from.add(index).read_volatile()) };
    }
    to
}

/// Fills memory with a byte, as the C function does.
///
/// # Safety
///
/// `to` is writable for `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memset(to: *mut u8, byte: i32, count: usize) -> *mut u8 {
    // SAFETY: the direction flag is clear (System V psABI), so the instruction writes `count` bytes
    // at `to`: this function's `# Safety` allows that.
    unsafe {
        asm!(
            "rep stosb",
            inout("rcx") count => _, inout("rdi") to => _, in("al") byte as u8,
            options(nostack, preserves_flags),
        );
    }
    to
}

/// Compares memory, as the C function does.
///
/// # Safety
///
/// Both are readable for `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
    for index in 0..count {
        // SAFETY: both bytes are inside of the ranges that this function's `# Safety` names.
        // Volatile, so that the compiler does not make this loop a call of this function.
        let (one, other) = unsafe { (one.add(index).read_volatile(), other.add(index).read_volatile()) };
        if one != other {
            return i32::from(one) - i32::from(other);
        }
    }
    0
}

/// Compares memory, as the C function does.
///
/// # Safety
///
/// Both are readable for `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, count: usize) -> i32 {
    // SAFETY: `memcmp` requires what this function's `# Safety` gives.
    unsafe { memcmp(one, other, count) }
}

/// Returns the length of a string, as the C function does.
///
/// # Safety
///
/// `text` is a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut length = 0;
    // SAFETY: each byte up to the NUL is readable, by this function's `# Safety`. Volatile, so that
    // the compiler does not make this loop a call of this function.
    while unsafe { text.add(length).read_volatile() } != 0 {
        length += 1;
    }
    length
}
