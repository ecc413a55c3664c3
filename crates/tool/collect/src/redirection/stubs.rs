//! The stubs of an allocator: code near its module, to which the jumps at its entries lead.
//!
//! ```text
//! 0   addresses of the library's thunks, in the order of `Thunk`
//! 64  stub:  push r11, for the first thunk only; lea r11, [site]; jmp [address of its thunk]
//!     mark:  ud2, for a library that is placed into a program
//!     pass:  pop r11, for the first thunk only
//!     original: the displaced instructions, and a jump to those behind
//!     site, at the next multiple of 8
//! ```

use super::{exec, linker};
use heapledger_entries::{Patch, Plan, relocate};
use heapledger_wire::entries::EntryKind;
use heapledger_wire::redirection::{Jump, Site, Thunk};

/// `push r11`.
const PUSH: [u8; 2] = [0x41, 0x53];
/// `pop r11`.
const POP: [u8; 2] = [0x41, 0x5b];
/// `lea r11, [rip + …]`, without the four bytes of its displacement.
const LOAD: [u8; 3] = [0x4c, 0x8d, 0x1d];
/// `jmp [rip + …]`, without the four bytes of its displacement.
const JUMP: [u8; 2] = [0xff, 0x25];
/// The most bytes of a jump to a thunk. One that is near is reached by a direct jump.
const JUMP_MAX: usize = JUMP.len() + 4;
/// `ud2`, which is never run. It tells stubs that lead to a placed library from others.
const MARK: [u8; 2] = [0x0f, 0x0b];
/// The most bytes of a stub before its trampoline.
const BEFORE_ORIGINAL_MAX: usize = STUB_LENGTH + POP.len();
/// The bytes before the first stub.
const HEAD: usize = Thunk::ALL.len() * 8;

/// The bytes of a stub that [`is_placed_stub`] looks at.
pub(crate) const STUB_LENGTH: usize = PUSH.len() + LOAD.len() + 4 + JUMP_MAX + MARK.len();

/// True for the code of a stub that leads to a library placed into a program, as [`Stubs::place`]
/// makes it, and for those of stubs for the system call execve and for the dynamic linker.
pub(crate) fn is_placed_stub(code: &[u8; STUB_LENGTH]) -> bool {
    let stub = code.strip_prefix(&PUSH).unwrap_or(code);
    let is_entry = stub.first_chunk::<15>().is_some_and(|stub| {
        let [0x4c, 0x8d, 0x1d, _, _, _, _, jump @ ..] = stub else { return false };
        matches!(jump, [0xff, 0x25, _, _, _, _, 0x0f, 0x0b] | [0xe9, _, _, _, _, 0x0f, 0x0b, _])
    });
    is_entry || exec::is_stub(code) || linker::is_stub(code)
}

/// The library to whose thunks stubs lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Library {
    /// The preload library.
    Preload,
    /// The library that is placed into programs.
    Placed,
}

/// The stubs of one allocator in one process.
#[derive(Debug)]
pub(super) struct Stubs<'a> {
    plan: &'a Plan,
    bias: u64,
    thunk: u64,
    library: Library,
}

/// A stub that has its place. All offsets are those of bytes from the beginning of the region.
struct Stub<'a> {
    patch: &'a Patch,
    start: usize,
    pass: usize,
    original: usize,
    site: usize,
}

impl<'a> Stubs<'a> {
    /// Prepares stubs for a module with this bias, which lead to the thunks. `thunk` is the address
    /// of the first one.
    pub(super) fn new(plan: &'a Plan, bias: u64, thunk: u64, library: Library) -> Stubs<'a> {
        Stubs { plan, bias, thunk, library }
    }

    /// Returns the most bytes that the stubs have.
    pub(super) fn length_max(&self) -> usize {
        HEAD + self.plan.code_length_max() + self.plan.patches.len() * (BEFORE_ORIGINAL_MAX + Site::LENGTH + 8)
    }

    /// Returns the bytes to put at an address, and the jumps. An entry whose instructions cannot be
    /// moved there is left out.
    pub(super) fn place(&mut self, address: u64, usable: u64) -> (Vec<u8>, Vec<Jump>) {
        let mut code: Vec<u8> = Thunk::ALL.iter().flat_map(|thunk| thunk.address(self.thunk).to_le_bytes()).collect();
        let placed: Vec<Stub<'_>> =
            self.plan.patches.iter().filter_map(|patch| self.push(patch, &mut code, address)).collect();
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
                pass: at(stub.pass),
                original: at(stub.original),
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

    /// Appends a stub, with room for its site. `None` if the entry's instructions cannot be moved
    /// there.
    fn push(&self, patch: &'a Patch, code: &mut Vec<u8>, address: u64) -> Option<Stub<'a>> {
        let thunk = if patch.clobbers_all { Thunk::of(patch.entry.kind) } else { Thunk::Preserving };
        let (push, pop) = if thunk == Thunk::Preserving { (&PUSH[..], &POP[..]) } else { (&[][..], &[][..]) };
        let mark = if self.library == Library::Placed { &MARK[..] } else { &[] };
        let start = code.len();
        // Displacements are counted from the end of an instruction.
        let after_load = start + push.len() + LOAD.len() + 4;
        // Both are placed by the tool, mostly near each other.
        let is_direct = self.library == Library::Placed;
        let thunk_address = thunk.address(self.thunk);
        let direct = Jump::new(address + after_load as u64, &[0; Jump::LENGTH], thunk_address).filter(|_| is_direct);
        let after_jump = after_load + direct.map_or(JUMP_MAX, |jump| jump.jump.len());
        let pass = after_jump + mark.len();
        let original = pass + pop.len();
        let from = patch.at.wrapping_add(self.bias);
        let trampoline = relocate(patch, from, address + original as u64).ok()?;
        let site = (original + trampoline.len()).next_multiple_of(8);
        let to_thunk = (thunk as usize * 8).wrapping_sub(after_jump);
        code.extend(push);
        code.extend(LOAD);
        code.extend(((site - after_load) as u32).to_le_bytes());
        match direct {
            Some(direct) => code.extend(direct.jump),
            None => {
                code.extend(JUMP);
                code.extend((to_thunk as u32).to_le_bytes());
            }
        }
        code.extend(mark);
        code.extend(pop);
        code.extend(trampoline);
        // Breakpoints, where nothing leads.
        code.resize(site, 0xcc);
        code.resize(site + Site::LENGTH, 0);
        Some(Stub { patch, start, pass, original, site })
    }

    /// Returns the address by which the original of another kind can be called: its trampoline, or
    /// its entry if that is not redirected.
    fn original_of(&self, kind: EntryKind, placed: &[Stub<'_>], address: u64) -> Option<u64> {
        let stub = placed.iter().find(|stub| stub.patch.entry.kind == kind);
        let refused = self.plan.refused.iter().find(|refused| refused.entry.kind == kind);
        let unpatched = || refused.map(|refused| refused.entry.at.wrapping_add(self.bias));
        stub.map(|stub| address + stub.original as u64).or_else(unpatched)
    }
}

#[cfg(test)]
mod tests;
