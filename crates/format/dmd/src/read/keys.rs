//! The keys of a log's tables, as numbers from 0.

use crate::hash::Map;

/// Puts an item where its number says.
pub(super) fn place<T: Default>(list: &mut Vec<T>, number: u32, item: T) {
    let at = number as usize;
    if list.len() <= at {
        list.resize_with(at + 1, T::default);
    }
    list[at] = item;
}

/// The numbers of keys, from 0, in the order in which they come first.
#[derive(Default)]
pub(super) struct Numbers {
    /// Of keys that are small, one more than the number; 0: it has none yet.
    small: Vec<u32>,
    others: Map<u64, u32>,
    count: u32,
    is_defined: Vec<bool>,
}

/// Keys below are looked up in a list. They are counted from 0 by who writes logs.
const SMALL_END: u64 = 1 << 24;

impl Numbers {
    #[inline]
    pub(super) fn number(&mut self, key: u64) -> u32 {
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
        self.set(key, number);
        number
    }

    /// Gives a key this number, which others may have.
    pub(super) fn set(&mut self, key: u64, number: u32) {
        self.count = self.count.max(number + 1);
        if key >= SMALL_END {
            self.others.insert(key, number);
            return;
        }
        let at = key as usize;
        if self.small.len() <= at {
            let length = (at + 1).next_power_of_two();
            self.small.resize(length, 0);
        }
        self.small[at] = number + 1;
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count as usize
    }

    pub(super) fn define(&mut self, number: u32) {
        place(&mut self.is_defined, number, true);
    }

    pub(super) fn is_defined(&self, number: u32) -> bool {
        self.is_defined.get(number as usize).copied().unwrap_or(false)
    }
}

/// Keys as numbers: the usual ones are short and of 32 digits.
#[derive(Default)]
pub(super) struct Keys {
    others: Map<Vec<u8>, u64>,
}

impl Keys {
    #[inline]
    pub(super) fn key(&mut self, text: &[u8]) -> u64 {
        // A digit that is zero in front would make another key of the same value.
        if text.len() <= 12 && (text.len() == 1 || text.first() != Some(&b'A')) {
            let mut key = 0;
            for &byte in text {
                let digit = match byte {
                    b'A'..=b'Z' => byte - b'A',
                    b'a'..=b'f' => byte - b'a' + 26,
                    _ => return self.other(text),
                };
                key = key << 5 | u64::from(digit);
            }
            if !text.is_empty() {
                return key;
            }
        }
        self.other(text)
    }

    #[cold]
    fn other(&mut self, text: &[u8]) -> u64 {
        let next = 1 << 63 | self.others.len() as u64;
        *self.others.entry(text.to_owned()).or_insert(next)
    }
}
