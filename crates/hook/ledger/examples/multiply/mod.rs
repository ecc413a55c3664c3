//! A hash for tables to compare with.

use std::hash::{BuildHasher, Hasher};

/// A folded multiplication: hashbrown with it is faster than with its own hash.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Multiply;

#[derive(Debug)]
pub(crate) struct Multiplier(u64);

impl BuildHasher for Multiply {
    type Hasher = Multiplier;

    fn build_hasher(&self) -> Multiplier {
        Multiplier(0)
    }
}

impl Hasher for Multiplier {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, key: u64) {
        let wide = u128::from(key) * 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835_u128;
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }
}
