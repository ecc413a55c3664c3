//! Lines of a log, written without allocation and without `core::fmt`, which takes several times as
//! long.
//!
//! Words are stored whole, also if only a part of them belongs to the line: what follows is written
//! over the rest. Nothing is stored behind the end of a line that has the address of a block, since
//! enough follows each word: see [`Buffer::add`](crate::buffer::Buffer::add) for the reason.

use heapledger_core::digits::{self, DECIMAL_8_END};

/// The longest line in bytes: the process, the thread, two sizes and two addresses, with the
/// longest name of a function, take 130; two fields with numbers 60; the label of an arena has the
/// rest.
pub(crate) const LINE_MAX: usize = 320;

/// The longest beginning of a line in bytes: the process and the thread, each with a blank.
pub(crate) const PREFIX_MAX: usize = 32;

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

    /// Returns the number of bytes of the line.
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

    /// Adds bytes, or none if the line has no room for them.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.length..).and_then(|rest| rest.get_mut(..bytes.len())) {
            room.copy_from_slice(bytes);
            self.length += bytes.len();
        }
    }

    #[inline(always)]
    pub(crate) fn name(&mut self, name: Name) {
        self.add(name.text, name.length);
    }

    /// Adds the label of an arena, in which `%` and two digits stand for bytes that are no visible
    /// ASCII characters, and for `%`. What does not fit is left out.
    pub(crate) fn label(&mut self, label: &[u8]) {
        for &byte in label {
            // The process and the thread come before this, and the end of the line behind it.
            if self.length + PREFIX_MAX + 4 > LINE_MAX {
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
            self.apart(|line| line.long_decimal(number));
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

    /// Adds the digits of an address, lower case, and stores nothing behind them.
    #[inline(always)]
    pub(crate) fn hexadecimal(&mut self, number: u64) {
        // Two words, which overlap.
        if number < 1 << 32 {
            return self.short_hexadecimal(number);
        }
        let (first, last, length) = digits::hexadecimal_ends(number);
        self.text(&first);
        self.length -= 16 - length;
        self.text(&last);
    }

    /// Adds at most eight digits: addresses of a program at fixed addresses.
    #[inline(always)]
    fn short_hexadecimal(&mut self, number: u64) {
        let (digits, length) = digits::hexadecimal(number);
        if length < 4 {
            return self.apart(|line| line.few_digits(digits, length));
        }
        let word = u128::from_le_bytes(digits) as u64;
        self.text(&(word as u32).to_le_bytes());
        self.length -= 8 - length;
        self.text(&((word >> (8 * (length - 4))) as u32).to_le_bytes());
    }

    #[cold]
    #[inline(never)]
    fn few_digits(&mut self, digits: [u8; 16], length: usize) {
        self.bytes(digits.get(..length).unwrap_or(&[]));
    }

    /// Runs a function that is not inlined: the line itself stays in registers.
    #[inline(always)]
    pub(crate) fn apart(&mut self, run: impl FnOnce(&mut Line<'_>)) {
        let mut line = Line { bytes: self.bytes, length: self.length };
        run(&mut line);
        self.length = line.length;
    }
}
