//! Numbers as text, without loops and without branches that depend on the number: several digits at
//! a time in one register. A log has three numbers on each line, of lengths that no processor
//! predicts.
//!
//! The first character is in the lowest byte of a word, so `to_le_bytes` is the text.

/// The first number that has more digits than [`decimal_8`] gives.
pub const DECIMAL_8_END: u64 = 100_000_000;

const ZEROS: u64 = 0x3030_3030_3030_3030;

/// Returns the eight decimal digits of a number below [`DECIMAL_8_END`], with leading zeros, and
/// how many of them are leading zeros: at most seven. Digits of larger numbers are wrong.
///
/// Multiplications by reciprocals split the number into fours of digits, these into pairs, and the
/// pairs into digits, each time in all lanes of the word at once.
#[inline(always)]
pub const fn decimal_8(number: u32) -> ([u8; 8], usize) {
    let fours = (number / 10_000) as u64 | ((number % 10_000) as u64) << 32;
    // x / 100 for x < 10,000, and x / 10 for x < 100.
    let hundreds = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = hundreds | (fours - hundreds * 100) << 16;
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    let digits = tens | (pairs - tens * 10) << 8;
    // The bit keeps the last digit.
    let zeros = (digits | 1 << 56).trailing_zeros() / 8;
    ((digits | ZEROS).to_le_bytes(), zeros as usize)
}

/// Returns the decimal digits of a number below [`DECIMAL_8_END`] without leading zeros, and their
/// number. The bytes behind them are zero.
#[inline(always)]
pub const fn decimal(number: u32) -> ([u8; 8], usize) {
    let (digits, zeros) = decimal_8(number);
    let text = u64::from_le_bytes(digits) >> (8 * zeros);
    (text.to_le_bytes(), 8 - zeros)
}

/// Returns the hexadecimal digits of a number, lower case, and their number. The bytes behind them
/// are `0`.
#[inline(always)]
pub const fn hexadecimal(number: u64) -> ([u8; 16], usize) {
    // The first digit that is not zero becomes the first of sixteen; of zero, the last.
    let shift = (number | 1).leading_zeros() & !3;
    let shifted = number << shift;
    let (high, low) = (hexadecimal_8((shifted >> 32) as u32), hexadecimal_8(shifted as u32));
    let text = high as u128 | (low as u128) << 64;
    (text.to_le_bytes(), 16 - shift as usize / 4)
}

/// Returns the first eight hexadecimal digits of a number that has at least eight, lower case, its
/// last eight, which overlap with them, and the number of all.
#[inline(always)]
pub const fn hexadecimal_ends(number: u64) -> ([u8; 8], [u8; 8], usize) {
    let shift = (number | 1).leading_zeros() & !3;
    let (first, last) = (hexadecimal_8(((number << shift) >> 32) as u32), hexadecimal_8(number as u32));
    (first.to_le_bytes(), last.to_le_bytes(), 16 - shift as usize / 4)
}

const fn hexadecimal_8(number: u32) -> u64 {
    // The highest byte first, each in a lane of two bytes, which its two digits then share.
    let bytes = number.swap_bytes() as u64;
    let bytes = (bytes | bytes << 16) & 0x0000_ffff_0000_ffff;
    let bytes = (bytes | bytes << 8) & 0x00ff_00ff_00ff_00ff;
    let digits = (bytes >> 4) & 0x000f_000f_000f_000f | (bytes & 0x000f_000f_000f_000f) << 8;
    // 1 in each byte that has to be a letter: 6 more carries into the fifth bit.
    let letters = ((digits + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    digits + ZEROS + letters * (b'a' - b'0' - 10) as u64
}

#[cfg(test)]
mod tests;
