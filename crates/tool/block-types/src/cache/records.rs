//! Records that share many strings, in a file: the format in which types are kept.
//!
//! A record is a run of numbers, and strings are numbers, too: indices of a table that has each
//! string once. So records that are not read take no time, and a file takes memory of a small
//! multiple of its length.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use heapledger_symbols::cache::{RULES, sealed, unsealed};
use prost::Message;

/// The maximum number of records in a file, of strings, and of keys.
const COUNT_MAX: usize = 1 << 20;
/// The maximum number of missing source files that are looked for again.
const LACKING_MAX: usize = 4096;

/// A value that can be in a record.
pub(super) trait Kept: Sized {
    fn write(&self, to: &mut Writer);
    /// Reads a value; `None` if the record is damaged.
    fn read(from: &mut Reader<'_>) -> Option<Self>;
}

/// Implements `Kept`: writes the fields one after the other.
macro_rules! kept {
    ($($type:ident { $($field:ident),* $(,)? })*) => { $(
        impl $crate::cache::records::Kept for $type {
            fn write(&self, to: &mut $crate::cache::records::Writer) {
                $(self.$field.write(to);)*
            }

            fn read(from: &mut $crate::cache::records::Reader<'_>) -> Option<Self> {
                Some(Self { $($field: $crate::cache::records::Kept::read(from)?),* })
            }
        }
    )* };
}
pub(super) use kept;

/// A file that is being made.
#[derive(Default)]
pub(super) struct Writer {
    file: File,
    strings: HashMap<Arc<str>, u32>,
    shared: HashMap<Vec<u32>, u32>,
}

impl Writer {
    /// Adds a record; returns its number.
    pub(super) fn record(&mut self, write: impl FnOnce(&mut Self)) -> u32 {
        let start = self.file.numbers.len();
        write(self);
        self.end(start)
    }

    /// Adds a record unless there is an equal one; returns its number.
    pub(super) fn shared(&mut self, write: impl FnOnce(&mut Self)) -> u32 {
        let start = self.file.numbers.len();
        write(self);
        if let Some(&known) = self.shared.get(&self.file.numbers[start..]) {
            self.file.numbers.truncate(start);
            return known;
        }
        let record = self.end(start);
        self.shared.insert(self.file.numbers[start..].to_vec(), record);
        record
    }

    fn end(&mut self, start: usize) -> u32 {
        self.file.lengths.push((self.file.numbers.len() - start) as u32);
        self.file.lengths.len() as u32 - 1
    }

    /// Makes a record retrievable by a key.
    pub(super) fn key(&mut self, key: u64, record: u32) {
        self.file.keys.push(key);
        self.file.keyed.push(record);
    }

    /// Returns the approximate size in bytes.
    pub(super) fn size(&self) -> u64 {
        (self.file.text.len() + 2 * self.file.numbers.len() + 12 * self.file.keys.len()) as u64
    }

    fn string(&mut self, text: &Arc<str>) -> u32 {
        *self.strings.entry(text.clone()).or_insert_with(|| {
            self.file.text.push_str(text);
            self.file.texts.push(text.len() as u32);
            self.file.texts.len() as u32 - 1
        })
    }

    /// Returns the file, if it is not longer than `most`. `lacking` are the source files that were
    /// missing.
    pub(super) fn finish<'l>(
        mut self,
        fingerprint: &[u8],
        lacking: impl Iterator<Item = &'l Arc<str>>,
        most: u64,
    ) -> Option<Vec<u8>> {
        self.file.fingerprint = fingerprint.to_vec();
        self.file.lacking = lacking.take(LACKING_MAX).map(|file| self.string(file)).collect();
        let File { texts, lengths, keys, .. } = &self.file;
        let fits = texts.len().max(lengths.len()).max(keys.len()) <= COUNT_MAX;
        let bytes = sealed(&self.file.encode_to_vec());
        (fits && bytes.len() as u64 <= most).then_some(bytes)
    }
}

/// A file that was read.
#[derive(Debug)]
pub(super) struct Records {
    file: File,
    /// The ends of strings and records.
    texts: Vec<u32>,
    ends: Vec<u32>,
    strings: Vec<Option<Arc<str>>>,
    keys: HashMap<u64, u32>,
}

impl Records {
    /// Decodes a file; `None` if it is damaged, of other rules or another fingerprint, or made
    /// while source files were missing that are there now.
    pub(super) fn new(bytes: &[u8], fingerprint: Option<&[u8]>, most: u64) -> Option<Self> {
        let mut file = File::decode(unsealed(bytes, most)?).ok()?;
        let File { texts, lengths, keys, keyed, .. } = &file;
        if texts.len().max(lengths.len()).max(keys.len()) > COUNT_MAX
            || keys.len() != keyed.len()
            || file.lacking.len() > LACKING_MAX
            || !file.fingerprint.starts_with(RULES.as_bytes())
            || fingerprint.is_some_and(|made_from| file.fingerprint != made_from)
        {
            return None;
        }
        let mut records = Self {
            texts: ends(texts, file.text.len())?,
            ends: ends(lengths, file.numbers.len())?,
            strings: vec![None; texts.len()],
            keys: keys.iter().copied().zip(keyed.iter().copied()).collect(),
            file: File::default(),
        };
        (file.keys, file.keyed, file.texts, file.lengths) = Default::default();
        records.file = file;
        let appeared = records.lacking()?.iter().any(|file| Path::new(&**file).is_file());
        (!appeared).then_some(records)
    }

    /// Returns the source files that were missing.
    pub(super) fn lacking(&mut self) -> Option<Vec<Arc<str>>> {
        let numbers = std::mem::take(&mut self.file.lacking);
        let files = numbers.iter().map(|&number| self.string(number)).collect();
        self.file.lacking = numbers;
        files
    }

    pub(super) fn keys(&self) -> Vec<u64> {
        self.keys.keys().copied().collect()
    }

    /// Returns the record of a key.
    pub(super) fn find(&self, key: u64) -> Option<u32> {
        self.keys.get(&key).copied()
    }

    /// Returns the record of a key, and removes the key.
    pub(super) fn take(&mut self, key: u64) -> Option<u32> {
        self.keys.remove(&key)
    }

    pub(super) fn read(&mut self, record: u32) -> Option<Reader<'_>> {
        let end = *self.ends.get(record as usize)? as usize;
        let at = record.checked_sub(1).map_or(0, |before| self.ends[before as usize] as usize);
        Some(Reader { records: self, at, end })
    }

    fn string(&mut self, number: u32) -> Option<Arc<str>> {
        let at = number as usize;
        if let Some(known) = self.strings.get(at)? {
            return Some(known.clone());
        }
        let start = number.checked_sub(1).map_or(0, |before| self.texts[before as usize] as usize);
        let text: Arc<str> = self.file.text.get(start..self.texts[at] as usize)?.into();
        self.strings[at] = Some(text.clone());
        Some(text)
    }
}

/// Returns the ends of items with these lengths; `None` if they are longer than `most` together.
fn ends(lengths: &[u32], most: usize) -> Option<Vec<u32>> {
    let mut end = 0u32;
    let next = |length: &u32| {
        end = end.checked_add(*length).filter(|&end| end as usize <= most)?;
        Some(end)
    };
    lengths.iter().map(next).collect()
}

/// The rest of a record.
pub(super) struct Reader<'r> {
    records: &'r mut Records,
    at: usize,
    end: usize,
}

impl Kept for u32 {
    fn write(&self, to: &mut Writer) {
        to.file.numbers.push(*self);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let number = from.records.file.numbers[from.at..from.end].first().copied()?;
        from.at += 1;
        Some(number)
    }
}

impl Kept for u64 {
    fn write(&self, to: &mut Writer) {
        (*self as u32).write(to);
        ((*self >> 32) as u32).write(to);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let low = u32::read(from)?;
        Some(u64::from(u32::read(from)?) << 32 | u64::from(low))
    }
}

impl Kept for bool {
    fn write(&self, to: &mut Writer) {
        u32::from(*self).write(to);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(u32::read(from)? != 0)
    }
}

impl Kept for Arc<str> {
    fn write(&self, to: &mut Writer) {
        to.string(self).write(to);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let number = u32::read(from)?;
        from.records.string(number)
    }
}

impl<T: Kept> Kept for Option<T> {
    fn write(&self, to: &mut Writer) {
        self.is_some().write(to);
        if let Some(some) = self {
            some.write(to);
        }
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        Some(if bool::read(from)? { Some(T::read(from)?) } else { None })
    }
}

impl<T: Kept> Kept for Vec<T> {
    fn write(&self, to: &mut Writer) {
        write_all(self, to);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        // Each item takes at least one number, so the record ends before memory does.
        (0..u32::read(from)?).map(|_| T::read(from)).collect()
    }
}

impl<T: Kept> Kept for Arc<[T]> {
    fn write(&self, to: &mut Writer) {
        write_all(self, to);
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let all = Vec::read(from)?;
        Some(if all.is_empty() { Self::default() } else { all.into() })
    }
}

fn write_all<T: Kept>(all: &[T], to: &mut Writer) {
    (all.len() as u32).write(to);
    all.iter().for_each(|one| one.write(to));
}

#[derive(Clone, PartialEq, prost::Message)]
struct File {
    #[prost(bytes = "vec", tag = 1)]
    fingerprint: Vec<u8>,
    /// All strings, and their lengths.
    #[prost(string, tag = 2)]
    text: String,
    #[prost(uint32, repeated, tag = 3)]
    texts: Vec<u32>,
    /// All records, and their lengths.
    #[prost(uint32, repeated, tag = 4)]
    numbers: Vec<u32>,
    #[prost(uint32, repeated, tag = 5)]
    lengths: Vec<u32>,
    #[prost(fixed64, repeated, tag = 6)]
    keys: Vec<u64>,
    /// The record of each key.
    #[prost(uint32, repeated, tag = 7)]
    keyed: Vec<u32>,
    /// Source files.
    #[prost(uint32, repeated, tag = 8)]
    lacking: Vec<u32>,
}
