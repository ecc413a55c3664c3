//! The sizes of blocks, and the lists of freed ones: those of threads, and those that the central
//! lists keep for all threads (the transfer cache).

use std::collections::{BTreeMap, BTreeSet};

use super::super::{CachedReader, Search, words};

/// The classes for which there is room in tables.
const CLASSES: u64 = 128;
/// The least number of classes that a table of sizes has.
const CLASSES_MIN: usize = 40;
/// The largest block of a class.
const SIZE_MAX: u64 = 256 << 10;
/// The size of a list in the cache of a thread, and the words behind the lists.
const LIST_SIZE: u64 = 32;
const WORDS_BEHIND: u64 = 24;
/// The size of a central list, and the offsets of the lists that it keeps and of their number.
const CENTRAL_SIZE: u64 = 1216;
const CENTRAL_SLOTS: u64 = 128;
const CENTRAL_USED: u64 = 1152;
const SLOTS_MAX: u64 = 64;
/// The most threads, and the most freed blocks that are looked at.
const THREADS_MAX: usize = 1 << 16;
const BLOCKS_MAX: usize = 1 << 24;

/// The sizes of the classes of blocks, as the allocator has computed them.
#[derive(Debug)]
pub(super) struct SizeClasses {
    /// The sizes in bytes by class; 0 is none.
    sizes: Vec<u64>,
}

impl SizeClasses {
    /// Finds the table in the data: 128 numbers of 4 bytes, which ascend from 0, 8 and 16.
    pub(super) fn find(search: &Search<'_>) -> Option<SizeClasses> {
        let mut found = None;
        search.for_each_data(|_, bytes| {
            let halves = |at: usize| {
                bytes.get(at..at + 4).map(|half| u64::from(u32::from_le_bytes(half.try_into().unwrap_or([0; 4]))))
            };
            for at in (0..bytes.len()).step_by(4) {
                if found.is_some() || halves(at + 4) != Some(8) || halves(at) != Some(0) || halves(at + 8) != Some(16) {
                    continue;
                }
                let sizes: Vec<u64> = (0..CLASSES as usize).map_while(|class| halves(at + 4 * class)).collect();
                let ascending = sizes.windows(2).take_while(|pair| pair[0] < pair[1]).count() + 1;
                let rest = sizes.iter().skip(ascending);
                let is_table = sizes.iter().take(ascending).all(|size| size % 8 == 0 && *size <= SIZE_MAX)
                    && sizes.get(ascending - 1) == Some(&SIZE_MAX);
                if ascending >= CLASSES_MIN && is_table && rest.into_iter().all(|size| *size == 0) {
                    found = Some(SizeClasses { sizes: sizes[..ascending].to_vec() });
                }
            }
        });
        found
    }

    /// Returns the size of the blocks of a class in bytes.
    pub(super) fn size(&self, class: u64) -> Option<u64> {
        self.sizes.get(usize::try_from(class).ok()?).copied().filter(|&size| size > 0)
    }

    fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        (0..).zip(self.sizes.iter().copied()).skip(1)
    }
}

/// The lists of freed blocks.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// The number of threads with a cache.
    pub(super) threads: u64,
    /// The addresses of the caches.
    pub(super) caches: BTreeSet<u64>,
    /// The sizes of the blocks, by their addresses.
    pub(super) blocks: BTreeMap<u64, u64>,
}

impl Lists {
    /// Reads the lists to which the allocator's data lead.
    pub(super) fn read(search: &Search<'_>, reader: &mut CachedReader<'_>, classes: &SizeClasses) -> Lists {
        let mut lists = Lists::default();
        let (mut first, mut central) = (None, None);
        search.for_each_data(|start, bytes| {
            for (at, word) in words(start, bytes) {
                if first.is_none() && word % 64 == 0 && word != 0 && search.private_at(word).is_some() {
                    first = Some(word).filter(|_| is_cache(reader, classes, word));
                }
                if central.is_none() && word == 1 {
                    let list = at.wrapping_sub(8 + CENTRAL_SIZE);
                    central = Some(list).filter(|_| is_central(reader, classes, list));
                }
            }
        });
        // The caches are in a list, whose links are somewhere behind the lists of blocks.
        let mut waiting: Vec<u64> = first.into_iter().collect();
        while let Some(cache) = waiting.pop() {
            if lists.caches.len() >= THREADS_MAX || !lists.caches.insert(cache) {
                continue;
            }
            let links = (0..WORDS_BEHIND).filter_map(|word| reader.word(cache + CLASSES * LIST_SIZE + 8 * word));
            let links: Vec<u64> = links.filter(|link| link % 64 == 0 && search.private_at(*link).is_some()).collect();
            waiting.extend(links.into_iter().filter(|link| is_cache(reader, classes, *link)));
            for (class, size) in classes.all() {
                let list = cache + class * LIST_SIZE;
                let (Some(block), Some(length)) = (reader.word(list), reader.half(list + 8)) else { continue };
                lists.add(reader, block, size, u64::from(length), 0);
            }
        }
        lists.threads = lists.caches.len() as u64;
        for (class, size) in central.into_iter().flat_map(|_| classes.all()) {
            let list = central.unwrap_or(0) + class * CENTRAL_SIZE;
            let used = reader.half(list + CENTRAL_USED).map_or(0, u64::from).min(SLOTS_MAX);
            for slot in 0..used {
                let Some([head, tail]) = reader.words::<2>(list + CENTRAL_SLOTS + 16 * slot) else { break };
                lists.add(reader, head, size, u64::MAX, tail);
            }
        }
        lists
    }

    /// Adds the blocks of a list of a length, or of one up to a last block.
    fn add(&mut self, reader: &mut CachedReader<'_>, first: u64, size: u64, length: u64, last: u64) {
        /// The most blocks of a list of which the length is not known.
        const LENGTH_MAX: u64 = 1 << 16;
        let mut left = length.min(LENGTH_MAX);
        reader.follow_list(first, |block| {
            if left == 0 || block == 0 || self.blocks.len() >= BLOCKS_MAX {
                return false;
            }
            left -= 1;
            // A list that changes while it is read may lead to blocks that were in it before.
            self.blocks.insert(block, size).is_none() && block != last
        });
    }
}

/// True if the cache of a thread is at an address: each of its lists has the size of its blocks.
fn is_cache(reader: &mut CachedReader<'_>, classes: &SizeClasses, at: u64) -> bool {
    classes.all().all(|(class, size)| {
        let field = at.saturating_add(class * LIST_SIZE + 24);
        reader.half(field).map(u64::from) == Some(size)
    })
}

/// True if the central lists begin at an address: each has its class.
fn is_central(reader: &mut CachedReader<'_>, classes: &SizeClasses, at: u64) -> bool {
    classes.all().all(|(class, _)| reader.word(at.saturating_add(class * CENTRAL_SIZE + 8)) == Some(class))
}
