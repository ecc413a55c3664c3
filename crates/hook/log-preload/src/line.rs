//! Lines of a log, written without allocation and without `core::fmt`, which takes several times as
//! long.

use core::mem::MaybeUninit;
use core::slice;

/// The longest line in bytes: the process, the thread, two sizes and two addresses, with the
/// longest name of a function, take 130; two fields with numbers 60; the label of an arena has the
/// rest.
pub(crate) const LINE_MAX: usize = 320;

/// A line that is being written.
pub(crate) struct Line {
    /// The first `length` bytes are initialised.
    bytes: [MaybeUninit<u8>; LINE_MAX],
    length: usize,
}

impl Line {
    #[inline(always)]
    pub(crate) const fn new() -> Line {
        Line { bytes: [const { MaybeUninit::uninit() }; LINE_MAX], length: 0 }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        let written = self.bytes.get(..self.length).unwrap_or(&[]);
        // SAFETY: a slice of as many `MaybeUninit<u8>`, which have the layout of `u8`. All were
        // initialised: `length` grows in `room` only, whose callers write every byte that they get.
        unsafe { slice::from_raw_parts(written.as_ptr().cast(), written.len()) }
    }

    /// Returns room for so many bytes more, each of which the caller writes. A line has room for
    /// all that a call can have; if it is full, there is none.
    #[inline(always)]
    fn room(&mut self, count: usize) -> &mut [MaybeUninit<u8>] {
        let from = self.length;
        match self.bytes.get_mut(from..).and_then(|rest| rest.get_mut(..count)) {
            Some(room) => {
                self.length = from + count;
                room
            }
            None => &mut [],
        }
    }

    /// Adds the label of an arena, in which `%` and two digits stand for bytes that are no visible
    /// ASCII characters, and for `%`. What does not fit is left out.
    pub(crate) fn label(&mut self, label: &[u8]) {
        for &byte in label {
            // The end of the line needs one byte.
            if self.length + 4 > LINE_MAX {
                return;
            }
            if byte.is_ascii_graphic() && byte != b'%' {
                self.byte(byte);
            } else {
                self.byte(b'%');
                self.byte(digit(byte >> 4));
                self.byte(digit(byte & 0xf));
            }
        }
    }

    #[inline(always)]
    pub(crate) fn byte(&mut self, byte: u8) {
        self.text(&[byte]);
    }

    #[inline(always)]
    pub(crate) fn text(&mut self, text: &[u8]) {
        for (to, from) in self.room(text.len()).iter_mut().zip(text) {
            to.write(*from);
        }
    }

    pub(crate) fn decimal(&mut self, number: u64) {
        let digits = number.checked_ilog10().map_or(1, |more| more as usize + 1);
        let mut rest = number;
        for to in self.room(digits).iter_mut().rev() {
            to.write(b'0' + (rest % 10) as u8);
            rest /= 10;
        }
    }

    /// Adds an address: `0x` and its digits, lower case.
    pub(crate) fn address(&mut self, address: u64) {
        self.text(b"0x");
        let digits = (64 - address.leading_zeros()).div_ceil(4).max(1) as usize;
        let mut rest = address;
        for to in self.room(digits).iter_mut().rev() {
            to.write(digit((rest & 0xf) as u8));
            rest >>= 4;
        }
    }
}

/// Returns a hexadecimal digit.
#[inline(always)]
const fn digit(digit: u8) -> u8 {
    if digit < 10 { b'0' + digit } else { b'a' + digit - 10 }
}
