//! Lines of a log, written without allocation and without `core::fmt`, which takes several times as
//! long.

/// The longest line in bytes: three numbers of the process, the thread and a size or a count, and
/// two addresses, with the longest name of a function.
pub(crate) const LINE_MAX: usize = 160;

/// A line that is being written.
pub(crate) struct Line {
    bytes: [u8; LINE_MAX],
    length: usize,
}

impl Line {
    pub(crate) const fn new() -> Line {
        Line { bytes: [0; LINE_MAX], length: 0 }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }

    /// Adds a byte. A line has room for all that a call can have; what is more is left out.
    pub(crate) fn byte(&mut self, byte: u8) {
        if let Some(slot) = self.bytes.get_mut(self.length) {
            *slot = byte;
            self.length += 1;
        }
    }

    pub(crate) fn text(&mut self, text: &[u8]) {
        text.iter().for_each(|&byte| self.byte(byte));
    }

    pub(crate) fn decimal(&mut self, number: u64) {
        let (mut digits, mut rest, mut at) = ([0_u8; 20], number, 20);
        loop {
            at -= 1;
            if let Some(digit) = digits.get_mut(at) {
                *digit = b'0' + (rest % 10) as u8;
            }
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.text(digits.get(at..).unwrap_or(&[]));
    }

    /// Adds an address: `0x` and its digits, lower case.
    pub(crate) fn address(&mut self, address: u64) {
        self.text(b"0x");
        let digits = (64 - address.leading_zeros()).div_ceil(4).max(1);
        for digit in (0..digits).rev() {
            let digit = (address >> (digit * 4) & 0xf) as u8;
            self.byte(if digit < 10 { b'0' + digit } else { b'a' + digit - 10 });
        }
    }
}
