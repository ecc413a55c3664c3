//! The plan by which a program redirects the entry points of allocators inside of it.
//!
//! The tool makes it for one process, whose mappings it has looked at, and sends it as a memfd that
//! nobody can write to: words of 64 bits, in the byte order of the processor, then whole pages of
//! code. All addresses are those of the process.
//!
//! ```text
//! number of regions, number of jumps
//! regions:  address, length, offset in the file         (3 words each)
//! jumps:    address, expected bytes, bytes to write     (3 words each, in the order of regions)
//! code, from the next page on
//! ```
//!
//! A *region* is memory near a module, with a *stub* for each entry. A jump at the entry leads to
//! the stub, which passes the address of its [`Site`] on to the library's thunk.

use core::mem::offset_of;

/// The most regions of a plan: one for each module with an allocator.
pub const REGIONS_MAX: usize = 64;
/// The most jumps of a plan.
pub const JUMPS_MAX: usize = 8192;
/// The most bytes of a plan, its code included.
pub const PLAN_LENGTH_MAX: usize = 16 << 20;
/// The bytes of a page, of which regions are multiples.
pub const PAGE_LENGTH: u64 = 4096;

/// The data of a stub, beside its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Site {
    /// The address at which a call goes on in the original, if r11 is on the stack.
    pub pass: u64,
    /// The address of the trampoline: calling it calls the original.
    pub original: u64,
    /// The trampoline of the sibling that does not throw; 0 for kinds that do not throw.
    pub nothrow: u64,
    /// The address of the allocator's function for usable sizes; 0 if none is known.
    pub usable: u64,
    /// The number of an [`EntryKind`](crate::entries::EntryKind).
    pub kind: u8,
    /// Zero.
    pub reserved: [u8; 7],
}

impl Site {
    /// The bytes of a site.
    pub const LENGTH: usize = size_of::<Site>();

    /// Returns the bytes of the site in memory.
    pub fn to_bytes(&self) -> [u8; Site::LENGTH] {
        let mut bytes = [0; Site::LENGTH];
        let words = [self.pass, self.original, self.nothrow, self.usable, u64::from(self.kind)];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

const _: () = assert!(Site::LENGTH == 40 && offset_of!(Site, kind) == 32);

/// Memory near a module, for its stubs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The address; a multiple of the page size.
    pub address: u64,
    /// The length in bytes; a multiple of the page size.
    pub length: u64,
    /// The offset of its contents in the plan's file; a multiple of the page size.
    pub offset: u64,
}

/// A jump at an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// The address of the jump.
    pub address: u64,
    /// The bytes there before.
    pub expected: [u8; Jump::LENGTH],
    /// The jump.
    pub jump: [u8; Jump::LENGTH],
}

impl Jump {
    /// The bytes of a jump with a displacement of 32 bits.
    pub const LENGTH: usize = 5;

    /// Returns a jump from one address to another; `None` if they are too far from each other.
    pub fn new(address: u64, expected: [u8; Jump::LENGTH], to: u64) -> Option<Jump> {
        let distance = to.wrapping_sub(address.wrapping_add(Jump::LENGTH as u64)).cast_signed();
        let [a, b, c, d] = i32::try_from(distance).ok()?.to_le_bytes();
        Some(Jump { address, expected, jump: [0xe9, a, b, c, d] })
    }

    /// Returns the address to which the jump leads.
    fn target(&self) -> u64 {
        let [_, a, b, c, d] = self.jump;
        let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
        self.address.wrapping_add(Jump::LENGTH as u64).wrapping_add(distance.cast_unsigned())
    }
}

/// A plan, in the bytes that were received.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    regions: &'a [[u8; TRIPLE]],
    jumps: &'a [[u8; TRIPLE]],
}

/// The bytes of a region or a jump in a plan.
const TRIPLE: usize = 24;
/// The bytes of a plan before its regions.
const HEADER: usize = 16;

impl<'a> Plan<'a> {
    /// Returns the bytes of a plan without its code.
    pub const fn length(regions: usize, jumps: usize) -> usize {
        HEADER + (regions + jumps) * TRIPLE
    }

    /// Reads a plan. `None` if its numbers are impossible, or it has fewer bytes than it should.
    pub fn parse(bytes: &'a [u8]) -> Option<Plan<'a>> {
        let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
        let [regions, jumps] = words(header);
        let (regions, jumps) = (usize::try_from(regions).ok()?, usize::try_from(jumps).ok()?);
        if regions > REGIONS_MAX || jumps > JUMPS_MAX {
            return None;
        }
        let (triples, _) = rest.as_chunks::<TRIPLE>();
        let (regions, rest) = triples.split_at_checked(regions)?;
        Some(Plan { regions, jumps: rest.get(..jumps)? })
    }

    /// Returns the regions whose numbers are possible: their pages are whole, and begin in the
    /// part of the file that has code.
    pub fn regions(self) -> impl Iterator<Item = Region> + 'a {
        self.regions.iter().filter_map(|bytes| {
            let [address, length, offset] = words(bytes);
            let is_whole = [address, length, offset].iter().all(|number| number % PAGE_LENGTH == 0);
            let is_possible = is_whole
                && length != 0
                && address != 0
                && address.checked_add(length).is_some()
                && offset.checked_add(length).is_some_and(|end| end <= PLAN_LENGTH_MAX as u64);
            is_possible.then_some(Region { address, length, offset })
        })
    }

    /// Returns the jumps that lead into a region.
    pub fn jumps_of(self, region: &Region) -> impl Iterator<Item = Jump> + 'a {
        let range = region.address..region.address + region.length;
        let jumps = self.jumps.iter().map(|bytes| {
            let [address, expected, jump] = words(bytes);
            Jump { address, expected: first(expected), jump: first(jump) }
        });
        jumps.filter(move |jump| {
            let is_inside = jump.address.checked_add(Jump::LENGTH as u64).is_some();
            is_inside && jump.jump[0] == 0xe9 && range.contains(&jump.target())
        })
    }

    /// Calls `write` with the words of a plan, in their order.
    pub fn encode(regions: &[Region], jumps: &[Jump], mut write: impl FnMut(u64)) {
        write(regions.len() as u64);
        write(jumps.len() as u64);
        for Region { address, length, offset } in regions {
            [*address, *length, *offset].into_iter().for_each(&mut write);
        }
        for Jump { address, expected, jump } in jumps {
            [*address, word(*expected), word(*jump)].into_iter().for_each(&mut write);
        }
    }
}

/// Returns the words in these bytes.
fn words<const BYTES: usize, const WORDS: usize>(bytes: &[u8; BYTES]) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    words
}

/// Returns the first bytes of a word.
fn first(word: u64) -> [u8; Jump::LENGTH] {
    let [a, b, c, d, e, ..] = word.to_le_bytes();
    [a, b, c, d, e]
}

/// Returns the word that begins with these bytes.
fn word([a, b, c, d, e]: [u8; Jump::LENGTH]) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
}

#[cfg(test)]
mod tests;
