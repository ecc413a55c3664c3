//! The keys of a log's tables, as numbers from 0.

use crate::hash::Map;

/// Puts an item at the index of its number.
pub(crate) fn put_at<T: Default>(list: &mut Vec<T>, number: u32, item: T) {
    let at = number as usize;
    if list.len() <= at {
        list.resize_with(at + 1, T::default);
    }
    list[at] = item;
}

/// The numbers of keys, from 0, in the order in which they come first.
#[derive(Default)]
pub(crate) struct Numbers {
    /// The number plus 1 of each small key; 0: it has none yet.
    small: Vec<u32>,
    others: Map<u64, u32>,
    count: u32,
    is_defined: Vec<bool>,
}

/// Keys below this are looked up in a list. Writers of logs count keys from 0.
const SMALL_END: u64 = 1 << 24;

impl Numbers {
    #[inline]
    pub(crate) fn number(&mut self, key: u64) -> u32 {
        match self.small.get(key as usize) {
            Some(&number) if number > 0 => number - 1,
            _ => self.other(key),
        }
    }

    #[inline(never)]
    fn other(&mut self, key: u64) -> u32 {
        if let Some(&number) = self.others.get(&key) {
            return number;
        }
        let number = self.count;
        self.count += 1;
        if key >= SMALL_END {
            self.others.insert(key, number);
            return number;
        }
        let at = key as usize;
        if self.small.len() <= at {
            let length = (at + 1).next_power_of_two();
            self.small.resize(length, 0);
        }
        self.small[at] = number + 1;
        number
    }

    /// True if each number that was given out belongs to something that the log has.
    pub(crate) fn are_all_defined(&self) -> bool {
        self.is_defined.len() == self.count as usize && self.is_defined.iter().all(|is| *is)
    }

    pub(crate) fn define(&mut self, number: u32) {
        put_at(&mut self.is_defined, number, true);
    }

    pub(crate) fn is_defined(&self, number: u32) -> bool {
        self.is_defined.get(number as usize).copied().unwrap_or(false)
    }
}

/// Keys as numbers: the usual ones are short and in base 32.
#[derive(Default)]
pub(crate) struct Keys {
    others: Map<Vec<u8>, u64>,
}

impl Keys {
    #[inline]
    pub(crate) fn key(&mut self, text: &[u8]) -> u64 {
        short_key(text.iter().copied().chain([b'"'])).map_or_else(|| self.other(text), |(key, _)| key)
    }

    #[cold]
    fn other(&mut self, text: &[u8]) -> u64 {
        let next = 1 << 63 | self.others.len() as u64;
        *self.others.entry(text.to_owned()).or_insert(next)
    }
}

/// Returns the number of a key that is short and in base 32, and its length; a quotation mark ends
/// it.
#[inline]
pub(crate) fn short_key(text: impl Iterator<Item = u8>) -> Option<(u64, usize)> {
    let mut key = 0;
    let mut is_zero_in_front = false;
    for (at, byte) in text.take(SHORT_MAX + 1).enumerate() {
        let digit = DIGITS[usize::from(byte)];
        if digit == NO_DIGIT {
            // A leading zero would make another key of the same value.
            let is_key = byte == b'"' && (at == 1 || at > 1 && !is_zero_in_front);
            return is_key.then_some((key, at));
        }
        is_zero_in_front |= at == 0 && digit == 0;
        key = key << 5 | u64::from(digit);
    }
    None
}

/// The most digits of a short key.
const SHORT_MAX: usize = 12;
/// The value of a byte that is not a digit.
const NO_DIGIT: u8 = u8::MAX;

/// The value of each byte as a digit.
const DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 32 {
        digits[if value < 26 { b'A' + value } else { b'a' + value - 26 } as usize] = value;
        value += 1;
    }
    digits
};
