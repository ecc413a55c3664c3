//! Bytes packed into words.

use super::Words;

/// Bytes packed into words, low byte first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed<'words> {
    /// The words, zero-padded.
    pub words: Words<'words>,
    /// The number of bytes that they hold.
    pub length: usize,
}

impl Packed<'_> {
    /// Returns the bytes, one by one.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        self.words.iter().flat_map(|word| word.to_le_bytes()).take(self.length)
    }
}

/// Packs as many bytes into words as there is room for.
pub fn pack_truncated(bytes: impl IntoIterator<Item = u8>, words: &mut [u64]) -> Packed<'_> {
    let mut length = 0;
    for (at, byte) in bytes.into_iter().take(words.len() * 8).enumerate() {
        if let Some(word) = words.get_mut(at / 8) {
            *word = (if at % 8 == 0 { 0 } else { *word }) | u64::from(byte) << (at % 8 * 8);
            length = at + 1;
        }
    }
    Packed { words: words.get(..length.div_ceil(8)).unwrap_or(&[]), length }
}

/// Packs bytes into words. Returns the number of words used, or `None` if they do not fit.
pub fn pack(bytes: &[u8], words: &mut [u64]) -> Option<usize> {
    let count = bytes.len().div_ceil(8);
    for (word, chunk) in words.get_mut(..count)?.iter_mut().zip(bytes.chunks(8)) {
        let mut packed = [0_u8; 8];
        for (to, from) in packed.iter_mut().zip(chunk) {
            *to = *from;
        }
        *word = u64::from_le_bytes(packed);
    }
    Some(count)
}
