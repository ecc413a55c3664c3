//! The stubs of an allocator: code near its module, to which the jumps at its entries lead.
//!
//! ```text
//! 0   address of the thunk
//! 8   stub:  push r11; lea r11, [site]; jmp [0]
//!     pass:  pop r11
//!     original: the displaced instructions, and a jump to those behind
//!     site, at the next multiple of 8
//! ```

use heapledger_entries::{Patch, Plan, relocate};
use heapledger_wire::entries::EntryKind;
use heapledger_wire::redirection::{Jump, Site};

/// The bytes of a stub before its trampoline: `push r11` (2), `lea` (7), `jmp` (6), `pop r11` (2).
const BEFORE_ORIGINAL: usize = 17;
const BEFORE_PASS: usize = 15;

/// The bytes of a stub before the instructions of its entry.
pub(crate) const STUB_LENGTH: usize = BEFORE_PASS;

/// True for the code of a stub, as [`Stubs::place`] makes it.
pub(crate) fn is_stub(code: &[u8; STUB_LENGTH]) -> bool {
    matches!(code, [0x41, 0x53, 0x4c, 0x8d, 0x1d, _, _, _, _, 0xff, 0x25, ..])
}

/// The stubs of one allocator in one process.
#[derive(Debug)]
pub(super) struct Stubs<'a> {
    plan: &'a Plan,
    bias: u64,
    thunk: u64,
}

/// A stub that has its place.
struct Stub<'a> {
    patch: &'a Patch,
    /// The offset of its first byte.
    start: usize,
    /// The offset of its site.
    site: usize,
}

impl<'a> Stubs<'a> {
    /// Prepares stubs for a module with this bias, which lead to the thunk at this address.
    pub(super) fn new(plan: &'a Plan, bias: u64, thunk: u64) -> Stubs<'a> {
        Stubs { plan, bias, thunk }
    }

    /// Returns the most bytes that the stubs have.
    pub(super) fn length_max(&self) -> usize {
        8 + self.plan.code_length_max() + self.plan.patches.len() * (BEFORE_ORIGINAL + Site::LENGTH + 8)
    }

    /// Returns the bytes to put at an address, and the jumps. An entry whose instructions cannot be
    /// moved there is left out.
    pub(super) fn place(&mut self, address: u64, usable: u64) -> (Vec<u8>, Vec<Jump>) {
        let mut code = self.thunk.to_le_bytes().to_vec();
        let mut placed = Vec::new();
        for patch in &self.plan.patches {
            let start = code.len();
            let original = address + (start + BEFORE_ORIGINAL) as u64;
            let Ok(trampoline) = relocate(patch, patch.at.wrapping_add(self.bias), original) else { continue };
            let site = (start + BEFORE_ORIGINAL + trampoline.len()).next_multiple_of(8);
            // Distances are counted from the end of an instruction.
            let to_site = (site - (start + 9)) as u32;
            let to_thunk = (0_usize).wrapping_sub(start + BEFORE_PASS) as u32;
            code.extend([0x41, 0x53, 0x4c, 0x8d, 0x1d]);
            code.extend(to_site.to_le_bytes());
            code.extend([0xff, 0x25]);
            code.extend(to_thunk.to_le_bytes());
            code.extend([0x41, 0x5b]);
            code.extend(trampoline);
            // Breakpoints, where nothing leads.
            code.resize(site, 0xcc);
            code.resize(site + Site::LENGTH, 0);
            placed.push(Stub { patch, start, site });
        }
        let mut jumps = Vec::new();
        for stub in &placed {
            let kind = stub.patch.entry.kind;
            let nothrow = kind.nothrow().and_then(|sibling| self.original_of(sibling, &placed, address));
            // An entry that throws is left alone without its sibling.
            if kind.layout().throws && nothrow.is_none() {
                continue;
            }
            let at = |offset: usize| address + offset as u64;
            let site = Site {
                pass: at(stub.start + BEFORE_PASS),
                original: at(stub.start + BEFORE_ORIGINAL),
                nothrow: nothrow.unwrap_or(0),
                usable,
                kind: kind.number(),
                reserved: [0; 7],
            };
            code[stub.site..stub.site + Site::LENGTH].copy_from_slice(&site.to_bytes());
            let from = stub.patch.at.wrapping_add(self.bias);
            jumps.extend(Jump::new(from, &stub.patch.displaced, at(stub.start)));
        }
        (code, jumps)
    }

    /// Returns the address by which the original of another kind can be called: its trampoline, or
    /// its entry if that is not redirected.
    fn original_of(&self, kind: EntryKind, placed: &[Stub<'_>], address: u64) -> Option<u64> {
        let stub = placed.iter().find(|stub| stub.patch.entry.kind == kind);
        let refused = self.plan.refused.iter().find(|refused| refused.entry.kind == kind);
        let unpatched = || refused.map(|refused| refused.entry.at.wrapping_add(self.bias));
        stub.map(|stub| address + (stub.start + BEFORE_ORIGINAL) as u64).or_else(unpatched)
    }
}

#[cfg(test)]
mod tests;
