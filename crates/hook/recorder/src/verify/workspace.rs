//! The memory that a thread needs to verify its stacks.

use heapledger_unwind::walk::FRAMES_MAX;

/// The number of frames compared: more than a stack of ours can have, and the recorder's own before
/// them.
pub(super) const LENGTH: usize = 2 * FRAMES_MAX;
/// The largest number of frames of a described stack.
pub(super) const DESCRIBED_FRAMES: usize = 64;
/// The bytes of stack for `backtrace`, and for a signal handler that interrupts it.
const STACK_LENGTH: usize = 256 << 10;

/// The memory that a thread needs to verify its stacks. Zeroed memory is valid.
#[derive(Debug)]
#[repr(C, align(16))]
pub(crate) struct Workspace {
    /// Addresses to look up, innermost first.
    pub(super) ours: [u64; LENGTH],
    /// Return addresses, innermost first.
    pub(super) theirs: [u64; LENGTH],
    pub(super) description: [u64; 4 + 2 * DESCRIBED_FRAMES],
    stack: [u8; STACK_LENGTH],
}
