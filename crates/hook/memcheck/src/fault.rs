//! Fatal faults at an address that is the contents of a block in quarantine.

use heapledger_core::{StackId, ThreadId};
use heapledger_inprocess::{capture, query};

use crate::canary::{FILL, FoundBytes};
use crate::quarantine;
use crate::register::REGISTER;
use crate::report::{self, Kind, Report};
use crate::stamp::{Stamp, freed_at};

/// The number of registers in the kernel's signal frame.
pub const REGISTERS: usize = 23;

// The places of some registers there: `REG_…` of `<sys/ucontext.h>`.
const RBP: usize = 10;
const RSP: usize = 15;
const RIP: usize = 16;
const TRAP: usize = 20;
/// The numbers of the general registers there.
const GENERAL: core::ops::Range<usize> = 0..16;

/// Reports a fault if the program has followed a pointer that it read from a block in quarantine:
/// the processor has a trap of its own for values that are no addresses (not canonical), and a
/// register has the value that such blocks consist of.
///
/// # Safety
///
/// The caller is the handler of a fault in this thread, and `registers` are those of the kernel's
/// signal frame.
pub unsafe fn inspect_fault(registers: &[u64; REGISTERS]) {
    const STACK_FAULT: u64 = 12;
    const PROTECTION_FAULT: u64 = 13;
    /// The largest offset from a pointer to a member of what it points to.
    const OFFSET_MAX: u64 = 1 << 20;
    let fill = u64::from_ne_bytes([FILL; 8]);
    let is_followed = |&value: &u64| value.wrapping_sub(fill).wrapping_add(OFFSET_MAX) < 2 * OFFSET_MAX;
    let trapped = [STACK_FAULT, PROTECTION_FAULT].contains(&registers[TRAP]);
    let general = registers.get(GENERAL).unwrap_or(&[]);
    if !quarantine::is_on() || !trapped || !general.iter().any(is_followed) {
        return;
    }
    let quarantined = |&address: &u64| {
        let block = REGISTER.block_at(address)?;
        Stamp::of(&block).is_quarantined().then_some(block)
    };
    let block = query(|| general.iter().find_map(quarantined)).flatten();
    let note = |accessed_at| {
        let stamp = block.as_ref().map(Stamp::of);
        report::note(Report {
            kind: Kind::FollowedFreed { accessed_at },
            address: block.map_or(0, |block| block.key.0),
            size: block.map_or(0, |block| block.size.0),
            allocated: stamp.and_then(Stamp::allocated_by),
            allocated_at: block.map_or(StackId::ROOT, |block| block.stack),
            freed: stamp.and_then(Stamp::freed_by),
            freed_at: block.as_ref().map_or(StackId::ROOT, freed_at),
            before: None,
            thread: block.map_or(ThreadId(0), |block| block.thread),
            found: FoundBytes::default(),
        });
    };
    // SAFETY: `with_interrupted_stack` requires that its caller is a handler of the signal, and the
    // registers of the kernel's signal frame. This function's `# Safety` requires both.
    unsafe { capture::with_interrupted_stack(registers[RIP], registers[RSP], registers[RBP], note) };
}
