//! x86-64, which always has SSE2.

use core::arch::x86_64::{
    _MM_HINT_T0, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_prefetch, _mm_set1_epi8,
};

/// Returns a mask of the bytes that equal `byte`: a bit each, from the first.
#[inline(always)]
pub(crate) fn equal_bytes(bytes: [u8; 16], byte: u8) -> u32 {
    // SAFETY: SSE2, all that these need, is part of x86-64; the load takes 16 bytes at any
    // alignment.
    unsafe {
        let bytes = _mm_loadu_si128(bytes.as_ptr().cast());
        _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte.cast_signed()))).cast_unsigned()
    }
}

/// Starts to bring the memory at an address into the cache.
#[inline(always)]
pub(crate) fn prefetch<T>(at: *const T) {
    if !cfg!(miri) {
        // SAFETY: a hint: it reads nothing that the program can see, and faults at no address.
        unsafe { _mm_prefetch(at.cast(), _MM_HINT_T0) };
    }
}
