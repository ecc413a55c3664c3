//! One redirected entry point, as the handshake describes it.

use super::EntryKind;

/// The most sites of one module: the largest allocators have about a hundred entry points.
pub const SITES_MAX: usize = 512;

/// The bytes of a jump with a 32-bit displacement.
const JUMP_LENGTH: u8 = 5;
/// The longest instruction has 15 bytes, so at most 4 + 15 bytes are displaced.
const DISPLACED_MAX: u8 = 19;
/// Marks that a site has no sibling.
const NONE: u16 = u16::MAX;

/// A place where a jump replaces the first instructions of an entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchSite {
    /// The address of the jump, relative to the address at which the module's address 0 is mapped.
    pub at: u64,
    /// The offset of the site's trampoline from the beginning of the trampolines' memory. A
    /// trampoline has the displaced instructions and a jump back: calling it calls the original.
    pub trampoline: u32,
    /// The number of the allocator to which the entry belongs. All sites of one have one heap.
    pub allocator: u16,
    /// The index of the site of the nothrow sibling, for kinds that throw.
    pub nothrow: Option<u16>,
    /// The calling shape of the entry.
    pub kind: EntryKind,
    /// The number of bytes, of whole instructions, that the trampoline replaces: 5 to 19. The jump
    /// overwrites the first five.
    pub displaced: u8,
    /// The five bytes that the jump overwrites, as they are in the file. Other bytes in memory mean
    /// that somebody else has patched the entry: it is left alone.
    pub original: [u8; 5],
}

impl PatchSite {
    /// The bytes of a site in the handshake.
    pub const LENGTH: usize = 24;

    /// Returns the bytes of the site in the handshake.
    pub fn to_bytes(&self) -> [u8; PatchSite::LENGTH] {
        let mut bytes = [0; PatchSite::LENGTH];
        bytes[..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.trampoline.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.allocator.to_le_bytes());
        bytes[14..16].copy_from_slice(&self.nothrow.unwrap_or(NONE).to_le_bytes());
        bytes[16] = self.kind.number();
        bytes[17] = self.displaced;
        bytes[18..23].copy_from_slice(&self.original);
        bytes
    }

    /// Reads a site; `None` if a number in it is impossible. Whether `at` and `trampoline` are
    /// inside of their mappings, and `nothrow` is less than the number of sites, has to be checked
    /// by the reader.
    pub fn from_bytes(bytes: &[u8; PatchSite::LENGTH]) -> Option<PatchSite> {
        let &[a0, a1, a2, a3, a4, a5, a6, a7, t0, t1, t2, t3, l0, l1, n0, n1, kind, displaced, o0, o1, o2, o3, o4, end] =
            bytes;
        let nothrow = u16::from_le_bytes([n0, n1]);
        if !(JUMP_LENGTH..=DISPLACED_MAX).contains(&displaced) || end != 0 {
            return None;
        }
        Some(PatchSite {
            at: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            trampoline: u32::from_le_bytes([t0, t1, t2, t3]),
            allocator: u16::from_le_bytes([l0, l1]),
            nothrow: if nothrow == NONE { None } else { Some(nothrow) },
            kind: EntryKind::from_number(kind)?,
            displaced,
            original: [o0, o1, o2, o3, o4],
        })
    }
}
