//! Decides which entries can be patched, and makes trampolines.

mod branches;
mod clobbers;
mod prologue;
mod trampoline;

use std::fmt;

use heapledger_wire::entries::EntryKind;

pub use self::trampoline::relocate;

use crate::allocator::{Allocator, Entry};
use crate::module::Module;

/// The most bytes of a trampoline: displaced instructions grow when short branches become long
/// ones.
const TRAMPOLINE_LENGTH_MAX: usize = 128;

/// The redirection of an allocator's entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The entries that can be redirected, by address.
    pub patches: Vec<Patch>,
    /// The others, which have to be left alone.
    pub refused: Vec<Refused>,
}

/// One entry that can be redirected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The entry.
    pub entry: Entry,
    /// The address of the jump, in the module's own addresses: behind an `endbr64` of the entry.
    pub at: u64,
    /// The instructions that the trampoline replaces, as they are in the file: 5 to 19 bytes.
    pub displaced: Vec<u8>,
    /// True if no caller relies on registers that the entry happens to leave alone, beyond those
    /// that the calling convention makes every function leave alone.
    pub clobbers_all: bool,
}

/// An entry that cannot be redirected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The entry.
    pub entry: Entry,
    /// The reason.
    pub reason: Refusal,
}

/// The reason why an entry must be left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// Its code is not in the file.
    NoCode,
    /// The dynamic linker relocates the module's code, which then is not that of the file.
    TextRelocations,
    /// It ends before there is room for a jump.
    TooShort,
    /// It has bytes that are not an instruction.
    Undecodable,
    /// It begins with a jump or a breakpoint: somebody else may have patched it.
    Patched,
    /// A branch leads into the instructions that the jump would overwrite.
    BranchTarget,
    /// An instruction that would be displaced cannot be moved elsewhere.
    Immovable,
    /// It throws on failure, and there is no sibling that returns null instead.
    NoNothrowSibling,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::NoCode => "its code is not in the file",
            Refusal::TextRelocations => "its module has text relocations",
            Refusal::TooShort => "it is too short for a jump",
            Refusal::Undecodable => "its code cannot be decoded",
            Refusal::Patched => "it begins with a jump or a breakpoint, which another tool may have put there",
            Refusal::BranchTarget => "a branch leads into its first instructions",
            Refusal::Immovable => "its first instructions cannot be moved",
            Refusal::NoNothrowSibling => "it throws, and has no nothrow sibling",
        })
    }
}

/// Decides which entries of an allocator can be patched safely: those whose first instructions can
/// be moved elsewhere, and into whose first bytes no branch leads. Entries that are no events are
/// in neither list.
///
/// The cost is that of one pass over the module's code: see [`plan_all`].
pub fn plan(module: &Module, allocator: &Allocator) -> Plan {
    plan_all(module, std::slice::from_ref(allocator)).pop().unwrap_or_default()
}

/// Decides for several allocators of one module, in one pass over its code. Returns a plan for
/// each, in their order.
pub fn plan_all(module: &Module, allocators: &[Allocator]) -> Vec<Plan> {
    let mut plans: Vec<Plan> = allocators.iter().map(|allocator| by_prologues(module, allocator)).collect();
    let inside = |patch: &Patch| patch.at + 1..patch.at + patch.displaced.len() as u64;
    let windows = plans.iter().flat_map(|plan| &plan.patches).map(inside).collect();
    let mut targets = branches::into(module, windows);
    // Functions begin at the entries, so they can be called.
    targets.extend(allocators.iter().flat_map(|allocator| &allocator.entries).map(|entry| entry.at));
    targets.sort_unstable();
    for plan in &mut plans {
        let is_branched_into = |patch: &Patch| {
            let from = targets.partition_point(|&target| target <= patch.at);
            targets.get(from).is_some_and(|&target| inside(patch).contains(&target))
        };
        plan.refuse(Refusal::BranchTarget, is_branched_into);
        let whole = plan.clone();
        let throws = |patch: &Patch| patch.entry.kind.layout().throws;
        plan.refuse(Refusal::NoNothrowSibling, |patch| {
            throws(patch) && whole.nothrow_sibling(patch.entry.kind).is_none()
        });
    }
    plans
}

/// Returns the plan as far as the first instructions of each entry tell.
fn by_prologues(module: &Module, allocator: &Allocator) -> Plan {
    let mut plan = Plan::default();
    for entry in allocator.entries.iter().filter(|entry| entry.kind.is_event()) {
        match prologue::read(module, entry) {
            Ok((at, displaced)) => {
                let clobbers_all = clobbers::seen_to_clobber_all(module, entry.at);
                plan.patches.push(Patch { entry: entry.clone(), at, displaced, clobbers_all });
            }
            Err(reason) => plan.refused.push(Refused { entry: entry.clone(), reason }),
        }
    }
    plan
}

impl Plan {
    /// Moves the patches to which a reason applies to the refused ones.
    fn refuse(&mut self, reason: Refusal, mut applies: impl FnMut(&Patch) -> bool) {
        let (refused, patches) = std::mem::take(&mut self.patches).into_iter().partition(|patch| applies(patch));
        self.patches = patches;
        self.refused.extend(Vec::into_iter(refused).map(|patch: Patch| Refused { entry: patch.entry, reason }));
    }

    /// Returns the patch of a function that does the same as one that throws, and returns null on
    /// failure: its trampoline can be called instead. `None` for kinds without such a sibling
    /// ([`EntryKind::nothrow`]).
    pub fn nothrow_sibling(&self, kind: EntryKind) -> Option<&Patch> {
        let sibling = kind.nothrow()?;
        self.patches.iter().find(|patch| patch.entry.kind == sibling)
    }

    /// Returns the bytes of memory that the trampolines need at most.
    pub fn code_length_max(&self) -> usize {
        self.patches.len() * TRAMPOLINE_LENGTH_MAX
    }
}

#[cfg(test)]
pub(crate) mod tests;
