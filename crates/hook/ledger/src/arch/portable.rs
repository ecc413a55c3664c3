//! The code for any processor with 64-bit words.

/// Returns a mask of the bytes that equal `byte`: a bit each, from the first.
#[inline(always)]
pub(crate) fn equal_bytes(bytes: [u8; 16], byte: u8) -> u32 {
    let (words, _) = bytes.as_chunks();
    let words = [words[0], words[1]].map(u64::from_le_bytes);
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const TOPS: u64 = ONES << 7;
    let equal = words.map(|word| {
        let differing = word ^ ONES.wrapping_mul(u64::from(byte));
        // A byte's top bit stays clear only if the whole byte is zero: adding 0x7f carries into it
        // otherwise.
        let zero = !(((differing & !TOPS) + !TOPS) | differing) & TOPS;
        // Moves each of the eight bits, spaced eight apart, to its place in the top byte.
        ((zero >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
    });
    equal[0] | equal[1] << 8
}

/// Does nothing: there is no portable way to prefetch.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn prefetch<T>(_at: *const T) {}
