//! The text of a line that is being written.

/// A short text on the stack: several times as fast as formatting into a growing one.
pub(crate) struct Text {
    bytes: [u8; TEXT_MAX],
    length: usize,
}

/// More than a line can have: five numbers of 20 digits, and the longest name of a function.
const TEXT_MAX: usize = 160;

impl Default for Text {
    fn default() -> Text {
        Text { bytes: [0; TEXT_MAX], length: 0 }
    }
}

impl Text {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    #[inline]
    pub(crate) fn add(&mut self, text: &[u8]) {
        self.bytes[self.length..][..text.len()].copy_from_slice(text);
        self.length += text.len();
    }

    #[inline]
    pub(crate) fn decimal(&mut self, number: u64) {
        let digits = number.checked_ilog10().map_or(1, |more| more as usize + 1);
        let mut rest = number;
        for digit in self.bytes[self.length..][..digits].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.length += digits;
    }

    /// Adds `0x` and the digits of an address, lower case.
    #[inline]
    pub(crate) fn address(&mut self, address: u64) {
        self.add(b"0x");
        let digits = (64 - address.leading_zeros()).div_ceil(4).max(1) as usize;
        let mut rest = address;
        for digit in self.bytes[self.length..][..digits].iter_mut().rev() {
            *digit = b"0123456789abcdef"[(rest & 0xf) as usize];
            rest >>= 4;
        }
        self.length += digits;
    }
}
