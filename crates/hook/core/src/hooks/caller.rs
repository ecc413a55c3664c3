//! The caller of an allocator function.

/// The frame that made a call. Two words, so that it is passed in registers.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Caller {
    /// The address of the word of the stack that holds the return address of the call; the frame is
    /// above it.
    pub slot: u64,
    /// The frame's rbp.
    pub rbp: u64,
}

impl Caller {
    /// Returns the frame's stack pointer once the call has returned.
    #[inline(always)]
    pub const fn sp(self) -> u64 {
        self.slot.wrapping_add(8)
    }
}
