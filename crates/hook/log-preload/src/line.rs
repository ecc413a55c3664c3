//! Lines of a log, written without allocation and without `core::fmt`, which takes several times as
//! long.
//!
//! Words are stored whole, also if only a part of them belongs to the line: what follows is written
//! over the rest.

use heapledger_core::digits::{self, DECIMAL_8_END};

/// The longest line in bytes: the process, the thread, two sizes and two addresses, with the
/// longest name of a function, take 130; two fields with numbers 60; the label of an arena has the
/// rest.
pub(crate) const LINE_MAX: usize = 320;

/// The name of a function, with its parenthesis.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    text: [u8; 16],
    length: usize,
}

impl Name {
    /// Returns a name of at most 16 bytes.
    pub(crate) const fn new(name: &[u8]) -> Name {
        assert!(name.len() <= 16);
        let (mut text, mut at) = ([0; 16], 0);
        while at < name.len() {
            text[at] = name[at];
            at += 1;
        }
        Name { text, length: name.len() }
    }
}

/// A line that is being written to some room.
pub(crate) struct Line<'a> {
    bytes: &'a mut [u8; LINE_MAX],
    length: usize,
}

impl<'a> Line<'a> {
    /// Returns an empty line.
    #[inline(always)]
    pub(crate) const fn new(bytes: &'a mut [u8; LINE_MAX]) -> Line<'a> {
        Line { bytes, length: 0 }
    }

    /// Returns the bytes of the line.
    #[inline(always)]
    pub(crate) const fn length(&self) -> usize {
        self.length
    }

    /// Adds the first `length` of these bytes. A line has room for all that a call can have; if it
    /// is full, nothing is added.
    #[inline(always)]
    pub(crate) fn add<const N: usize>(&mut self, bytes: [u8; N], length: usize) {
        if let Some(room) = self.bytes.get_mut(self.length..).and_then(<[u8]>::first_chunk_mut::<N>) {
            *room = bytes;
            self.length += length;
        }
    }

    #[inline(always)]
    pub(crate) fn text<const N: usize>(&mut self, text: &[u8; N]) {
        self.add(*text, N);
    }

    #[inline(always)]
    pub(crate) fn name(&mut self, name: Name) {
        self.add(name.text, name.length);
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
                self.text(&[byte]);
            } else {
                let ([high, ..], _) = digits::hexadecimal(u64::from(byte >> 4));
                let ([low, ..], _) = digits::hexadecimal(u64::from(byte & 0xf));
                self.text(&[b'%', high, low]);
            }
        }
    }

    #[inline(always)]
    pub(crate) fn decimal(&mut self, number: u64) {
        if number < DECIMAL_8_END {
            let (digits, length) = digits::decimal(number as u32);
            self.add(digits, length);
        } else {
            self.long_decimal(number);
        }
    }

    #[cold]
    fn long_decimal(&mut self, number: u64) {
        let (first, rest) = (number / DECIMAL_8_END, number % DECIMAL_8_END);
        if first < DECIMAL_8_END {
            let (digits, length) = digits::decimal(first as u32);
            self.add(digits, length);
        } else {
            let (digits, length) = digits::decimal((first / DECIMAL_8_END) as u32);
            self.add(digits, length);
            self.text(&digits::decimal_8((first % DECIMAL_8_END) as u32).0);
        }
        self.text(&digits::decimal_8(rest as u32).0);
    }

    /// Adds the digits of an address, lower case.
    #[inline(always)]
    pub(crate) fn hexadecimal(&mut self, number: u64) {
        let (digits, length) = digits::hexadecimal(number);
        self.add(digits, length);
    }
}
