//! The plan by which a program redirects the entry points of allocators inside of it.
//!
//! The tool makes it for one process, whose mappings it has looked at, and sends it as a memfd that
//! nobody can write to: words of 64 bits, in the byte order of the processor, then whole pages of
//! code. All addresses are those of the process.
//!
//! ```text
//! number of regions, number of jumps
//! regions:  address, length, offset in the file                   (3 words each)
//! jumps:    address, bytes to write and the number of expected    (5 words each, in the order of
//!           bytes behind them, expected bytes                      regions)
//! code, from the next page on
//! ```
//!
//! A *region* is memory near a module, with a *stub* for each entry. A jump at the entry leads to
//! the stub, which passes the address of its [`Site`] on to one of the library's [thunks](Thunk).

use core::mem::offset_of;

use crate::entries::EntryKind;

/// The most regions of a plan: one for each module with an allocator.
pub const REGIONS_MAX: usize = 64;
/// The most jumps of a plan.
pub const JUMPS_MAX: usize = 8192;
/// The most bytes of a plan, its code included.
pub const PLAN_LENGTH_MAX: usize = 16 << 20;
/// The bytes of a page, of which regions are multiples.
pub const PAGE_LENGTH: u64 = 4096;

/// The library's thunks: the code that stubs lead to. They begin [`Thunk::LENGTH`] bytes apart, in
/// this order.
///
/// A stub jumps to them with the address of its [`Site`] in r11. It has pushed the program's r11
/// for [`Thunk::Preserving`], and nothing for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Thunk {
    /// For entries of any kind: a call changes no register that the entry does not change.
    Preserving = 0,
    /// For functions of at most three arguments that allocate as many bytes as the first one says,
    /// and return null if they fail. Like those below, it may change every register that a call may
    /// change by the System V psABI.
    Malloc = 1,
    /// For functions of at most three arguments that free the block of the first one.
    Free = 2,
    /// For `operator new` and `new[]`, which throw if they fail.
    New = 3,
    /// For functions of at most three arguments that allocate an array: the number of elements, and
    /// the bytes of each.
    Calloc = 4,
    /// For functions of at most four arguments that reallocate the block of the first one to as
    /// many bytes as the second one says, and leave it if they fail.
    Realloc = 5,
    /// For functions of at most three arguments that allocate as many bytes as the first one says,
    /// aligned as the second one says, and return null if they fail.
    Aligned = 6,
    /// For all other kinds.
    Other = 7,
}

impl Thunk {
    /// All thunks, in the order of their places.
    pub const ALL: [Thunk; 8] = [
        Thunk::Preserving,
        Thunk::Malloc,
        Thunk::Free,
        Thunk::New,
        Thunk::Calloc,
        Thunk::Realloc,
        Thunk::Aligned,
        Thunk::Other,
    ];

    /// The distance from the beginning of a thunk to that of the next one, in bytes.
    pub const LENGTH: u64 = 256;

    /// Returns the thunk for an entry that changes, or seems to its callers to change, every
    /// register that a call may change.
    #[inline(always)]
    pub const fn of(kind: EntryKind) -> Thunk {
        match kind {
            EntryKind::Malloc | EntryKind::NewNothrow | EntryKind::NewArrayNothrow | EntryKind::Mallocx => {
                Thunk::Malloc
            }
            EntryKind::New | EntryKind::NewArray => Thunk::New,
            EntryKind::Free
            | EntryKind::Dallocx
            | EntryKind::Sdallocx
            | EntryKind::FreeSized
            | EntryKind::FreeAlignedSized
            | EntryKind::Delete
            | EntryKind::DeleteSized
            | EntryKind::DeleteAligned
            | EntryKind::DeleteSizedAligned
            | EntryKind::RustDealloc => Thunk::Free,
            EntryKind::Calloc => Thunk::Calloc,
            EntryKind::Realloc | EntryKind::Rallocx | EntryKind::ReallocAligned => Thunk::Realloc,
            EntryKind::MallocAligned | EntryKind::NewAlignedNothrow | EntryKind::NewArrayAlignedNothrow => {
                Thunk::Aligned
            }
            _ => Thunk::Other,
        }
    }

    /// Returns the address of the first thunk, from that of the code with the thunks: they begin at
    /// the next multiple of [`Thunk::LENGTH`].
    pub const fn first(code: u64) -> u64 {
        code.next_multiple_of(Thunk::LENGTH)
    }

    /// Returns the thunk's address, from that of the first one.
    pub const fn address(self, first: u64) -> u64 {
        first.wrapping_add(self as u64 * Thunk::LENGTH)
    }
}

/// The data of a stub, beside its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Site {
    /// The address at which a call goes on in the original, with the stack as the stub has left it.
    pub pass: u64,
    /// The address of the trampoline: calling it calls the original.
    pub original: u64,
    /// The trampoline of the sibling that does not throw; 0 for kinds that do not throw.
    pub nothrow: u64,
    /// The address of the allocator's function for usable sizes; 0 if none is known.
    pub usable: u64,
    /// The number of an [`EntryKind`].
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

impl Region {
    /// True if an address is in the region.
    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.address) < self.length
    }
}

/// A jump at an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// The address of the jump.
    pub address: u64,
    /// The jump.
    pub jump: [u8; Jump::LENGTH],
    /// The bytes there before, of all instructions that run elsewhere instead; zeros follow.
    expected: [u8; Jump::EXPECTED_MAX],
    /// The number of these bytes.
    expected_length: u8,
}

impl Jump {
    /// The bytes of a jump with a displacement of 32 bits.
    pub const LENGTH: usize = 5;

    /// The most bytes of the instructions that a jump replaces: four bytes, and the longest one.
    pub const EXPECTED_MAX: usize = 24;

    /// Returns a jump from one address to another, in the place of the `expected` bytes. `None` if
    /// the addresses are too far from each other, or these bytes are not 5 to 24.
    pub fn new(address: u64, expected: &[u8], to: u64) -> Option<Jump> {
        let distance = to.wrapping_sub(address.wrapping_add(Jump::LENGTH as u64)).cast_signed();
        let [a, b, c, d] = i32::try_from(distance).ok()?.to_le_bytes();
        let mut bytes = [0; Jump::EXPECTED_MAX];
        bytes.get_mut(..expected.len()).filter(|bytes| bytes.len() >= Jump::LENGTH)?.copy_from_slice(expected);
        Some(Jump { address, jump: [0xe9, a, b, c, d], expected: bytes, expected_length: expected.len() as u8 })
    }

    /// Returns the bytes that are there before the jump is written.
    pub fn expected(&self) -> &[u8] {
        self.expected.get(..usize::from(self.expected_length)).unwrap_or(&[])
    }

    fn to_words(self) -> [u64; JUMP_WORDS] {
        let [a, b, c, d, e] = self.jump;
        let [first, second, third] = words(&self.expected);
        [self.address, u64::from_ne_bytes([a, b, c, d, e, self.expected_length, 0, 0]), first, second, third]
    }

    /// Returns the jump in these bytes; `None` if its numbers are impossible.
    fn parse(bytes: &[u8; JUMP_LENGTH]) -> Option<Jump> {
        let (head, expected) = bytes.split_first_chunk::<16>()?;
        let ([address, jump], expected) = (words(head), expected.first_chunk()?);
        let [a, b, c, d, e, expected_length, ..] = jump.to_ne_bytes();
        let jump = Jump { address, jump: [a, b, c, d, e], expected: *expected, expected_length };
        let is_possible = address.checked_add(Jump::EXPECTED_MAX as u64).is_some()
            && a == 0xe9
            && (Jump::LENGTH..=Jump::EXPECTED_MAX).contains(&usize::from(expected_length));
        is_possible.then_some(jump)
    }

    /// Returns the address to which the jump leads.
    pub fn target(&self) -> u64 {
        let [_, a, b, c, d] = self.jump;
        let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
        self.address.wrapping_add(Jump::LENGTH as u64).wrapping_add(distance.cast_unsigned())
    }
}

/// A plan, in the bytes that were received.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    regions: &'a [[u8; REGION_LENGTH]],
    jumps: &'a [[u8; JUMP_LENGTH]],
}

/// The bytes of a region in a plan.
const REGION_LENGTH: usize = 24;
/// The words and bytes of a jump in a plan.
const JUMP_WORDS: usize = 5;
const JUMP_LENGTH: usize = JUMP_WORDS * 8;
/// The bytes of a plan before its regions.
const HEADER: usize = 16;

impl<'a> Plan<'a> {
    /// Returns the bytes of a plan without its code.
    pub const fn length(regions: usize, jumps: usize) -> usize {
        HEADER + regions * REGION_LENGTH + jumps * JUMP_LENGTH
    }

    /// Reads a plan. `None` if its numbers are impossible, or it has fewer bytes than it should.
    pub fn parse(bytes: &'a [u8]) -> Option<Plan<'a>> {
        let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
        let [regions, jumps] = words(header);
        let (regions, jumps) = (usize::try_from(regions).ok()?, usize::try_from(jumps).ok()?);
        if regions > REGIONS_MAX || jumps > JUMPS_MAX {
            return None;
        }
        let (of_regions, rest) = rest.split_at_checked(regions * REGION_LENGTH)?;
        let of_jumps = rest.get(..jumps * JUMP_LENGTH)?;
        Some(Plan { regions: of_regions.as_chunks().0, jumps: of_jumps.as_chunks().0 })
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
        self.jumps.iter().filter_map(Jump::parse).filter(move |jump| range.contains(&jump.target()))
    }

    /// Calls `write` with the words of a plan, in their order.
    pub fn encode(regions: &[Region], jumps: &[Jump], mut write: impl FnMut(u64)) {
        write(regions.len() as u64);
        write(jumps.len() as u64);
        for Region { address, length, offset } in regions {
            [*address, *length, *offset].into_iter().for_each(&mut write);
        }
        for jump in jumps {
            jump.to_words().into_iter().for_each(&mut write);
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

#[cfg(test)]
mod tests;
