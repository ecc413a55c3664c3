//! The table of a process's modules, which the tool makes for programs whose C library cannot be
//! asked about them: static ones, those of musl, and those of glibc before 2.35.
//!
//! It is a file that nobody can write to, or a copy of one: words of 64 bits and pairs of 32 bits,
//! in the byte order of the processor. Offsets are counted from its start, and are multiples of 8.
//!
//! ```text
//! length of the table in bytes, number of modules
//! modules, in the order of their addresses   (ModuleRecord::WORDS words each)
//! paths, indexes and generated unwind information, in any order
//! ```
//!
//! A module has unwind information in up to three places: behind an `.eh_frame_hdr` of its own; in
//! an `.eh_frame` without that header; and in an `.eh_frame` that the tool has generated from its
//! code. For the last two, the table has an *index*, which does what the header's table does:
//! pairs of 32-bit offsets, sorted by the first. The first is that of a function from the start of
//! the module, the second that of its description from the start of `.eh_frame`.
//!
//! A generated `.eh_frame` counts addresses from the start of the module, as if that were 0. So it
//! is the same wherever the module is mapped.

/// The most modules of a table.
pub const MODULES_MAX: usize = 8192;
/// The most bytes of a table.
pub const TABLE_LENGTH_MAX: usize = 1 << 30;

/// The bytes before the modules.
const HEADER: usize = 16;

/// A module, as the table has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModuleRecord {
    /// The first address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// The value to subtract from an address to get the module's own.
    pub bias: u64,
    /// The address of its `.eh_frame_hdr`; 0 if it has none.
    pub eh_frame_hdr: u64,
    /// The offset of the path, which is empty for the program itself.
    pub path_at: u64,
    /// The bytes of the path.
    pub path_length: u64,
    /// The index of its `.eh_frame`, if that has no header. Its `frames_at` is an address.
    pub found: FramesIndex,
    /// The index of the `.eh_frame` that was generated from its code. Its `frames_at` is an
    /// offset.
    pub generated: FramesIndex,
    /// Not 0 if the functions without unwind information keep frame pointers, as far as a sample of
    /// them says.
    pub keeps_frame_pointers: u64,
}

/// The index of an `.eh_frame`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FramesIndex {
    /// The offset of the pairs.
    pub pairs_at: u64,
    /// The number of pairs; 0 if there is no index.
    pub pairs: u64,
    /// The start of the `.eh_frame`.
    pub frames_at: u64,
    /// The bytes of the `.eh_frame`.
    pub frames_length: u64,
}

impl ModuleRecord {
    /// The words of a module in the table.
    pub const WORDS: usize = 15;
    const LENGTH: usize = ModuleRecord::WORDS * 8;

    /// Returns the words of the module in the table.
    pub fn to_words(&self) -> [u64; ModuleRecord::WORDS] {
        let ModuleRecord { start, end, bias, eh_frame_hdr, path_at, path_length, .. } = *self;
        let ModuleRecord { found, generated, keeps_frame_pointers, .. } = *self;
        let [a, b, c, d] = found.to_words();
        let [e, f, g, h] = generated.to_words();
        [start, end, bias, eh_frame_hdr, path_at, path_length, a, b, c, d, e, f, g, h, keeps_frame_pointers]
    }

    fn from_words(words: [u64; ModuleRecord::WORDS]) -> ModuleRecord {
        let [start, end, bias, eh_frame_hdr, path_at, path_length, rest @ ..] = words;
        let [a, b, c, d, e, f, g, h, keeps_frame_pointers] = rest;
        let (found, generated) = (FramesIndex::from_words([a, b, c, d]), FramesIndex::from_words([e, f, g, h]));
        ModuleRecord { start, end, bias, eh_frame_hdr, path_at, path_length, found, generated, keeps_frame_pointers }
    }
}

impl FramesIndex {
    fn to_words(self) -> [u64; 4] {
        [self.pairs_at, self.pairs, self.frames_at, self.frames_length]
    }

    fn from_words([pairs_at, pairs, frames_at, frames_length]: [u64; 4]) -> FramesIndex {
        FramesIndex { pairs_at, pairs, frames_at, frames_length }
    }
}

/// A table, in the bytes that were received.
#[derive(Clone, Copy, Debug)]
pub struct ModuleTable<'a> {
    bytes: &'a [u8],
    modules: &'a [[u8; ModuleRecord::LENGTH]],
}

impl<'a> ModuleTable<'a> {
    /// Returns the bytes of a table before its paths and indexes.
    pub const fn head_length(modules: usize) -> usize {
        HEADER + modules * ModuleRecord::LENGTH
    }

    /// Returns the length in bytes of the table that begins with this word.
    pub const fn length(first_word: u64) -> usize {
        if first_word > TABLE_LENGTH_MAX as u64 { TABLE_LENGTH_MAX } else { first_word as usize }
    }

    /// Reads a table. `None` if its numbers are impossible, or it has fewer bytes than it should.
    pub fn parse(bytes: &'a [u8]) -> Option<ModuleTable<'a>> {
        let (header, _) = bytes.split_first_chunk::<HEADER>()?;
        let [length, modules] = words(header);
        let bytes = bytes.get(..usize::try_from(length).ok()?)?;
        let modules = usize::try_from(modules).ok().filter(|&modules| modules <= MODULES_MAX)?;
        if bytes.len() > TABLE_LENGTH_MAX {
            return None;
        }
        let modules = bytes.get(HEADER..ModuleTable::head_length(modules))?;
        Some(ModuleTable { bytes, modules: modules.as_chunks().0 })
    }

    /// Returns all modules, in the order of their addresses.
    pub fn modules(self) -> impl Iterator<Item = ModuleRecord> + 'a {
        self.modules.iter().map(|bytes| ModuleRecord::from_words(words(bytes)))
    }

    /// Returns the module that covers an address. Takes time in proportion to the logarithm of
    /// their number.
    pub fn find(self, address: u64) -> Option<ModuleRecord> {
        let start =
            |bytes: &[u8; ModuleRecord::LENGTH]| bytes.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
        let after = self.modules.partition_point(|bytes| start(bytes) <= address);
        let module = ModuleRecord::from_words(words(self.modules.get(after.checked_sub(1)?)?));
        (module.start..module.end).contains(&address).then_some(module)
    }

    /// Returns the path of a module; empty for the program itself, or if it is not in the table.
    pub fn path(self, module: &ModuleRecord) -> &'a [u8] {
        self.part(module.path_at, module.path_length).unwrap_or(&[])
    }

    /// Returns the pairs of an index: the offset of a function, and that of its description.
    pub fn pairs(self, index: &FramesIndex) -> &'a [[u8; 8]] {
        let bytes = index.pairs.checked_mul(8).and_then(|length| self.part(index.pairs_at, length));
        bytes.unwrap_or(&[]).as_chunks().0
    }

    /// Returns the bytes of a generated `.eh_frame`.
    pub fn generated_frames(self, module: &ModuleRecord) -> &'a [u8] {
        self.part(module.generated.frames_at, module.generated.frames_length).unwrap_or(&[])
    }

    fn part(self, at: u64, length: u64) -> Option<&'a [u8]> {
        let at = usize::try_from(at).ok()?;
        self.bytes.get(at..)?.get(..usize::try_from(length).ok()?)
    }
}

/// Returns the offset of the description of the function that may cover an address, in these
/// pairs. `wanted` is the offset of the address from the start of its module.
pub fn search(pairs: &[[u8; 8]], wanted: u64) -> Option<u32> {
    let half = |pair: &[u8; 8], half: usize| (u64::from_ne_bytes(*pair) >> (32 * half)) as u32;
    let after = pairs.partition_point(|pair| u64::from(half(pair, 0)) <= wanted);
    pairs.get(after.checked_sub(1)?).map(|pair| half(pair, 1))
}

/// Returns the pair of an index as it is in the table.
pub fn pair(function: u32, description: u32) -> [u8; 8] {
    (u64::from(function) | u64::from(description) << 32).to_ne_bytes()
}

/// Returns the words in these bytes.
fn words<const BYTES: usize, const WORDS: usize>(bytes: &[u8; BYTES]) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    words
}

#[cfg(test)]
mod tests;
