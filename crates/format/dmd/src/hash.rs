//! A fast hash for the small keys of a log. It is seeded, so that nobody can make a file whose keys
//! collide.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A map with this hash.
pub(crate) type Map<K, V> = HashMap<K, V, Seeded>;

/// Makes hashers with a seed of their own.
#[derive(Clone, Debug)]
pub(crate) struct Seeded([u64; 2]);

impl Default for Seeded {
    fn default() -> Seeded {
        let random = RandomState::new();
        Seeded([random.hash_one(0), random.hash_one(1) | 1])
    }
}

impl BuildHasher for Seeded {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded { state: self.0[0], factor: self.0[1] }
    }
}

/// Multiplies, and folds the product's halves.
#[derive(Clone, Debug)]
pub(crate) struct Folded {
    state: u64,
    factor: u64,
}

impl Hasher for Folded {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word) ^ chunk.len() as u64);
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.state ^ value) * u128::from(self.factor);
        self.state = (product as u64 ^ (product >> 64) as u64).rotate_left(23);
    }

    fn finish(&self) -> u64 {
        let product = u128::from(self.state) * u128::from(self.factor ^ 0x9e37_79b9_7f4a_7c15);
        product as u64 ^ (product >> 64) as u64
    }
}
