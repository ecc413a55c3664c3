//! Who made a call.

/// The frame that made a call. Of two words, so that it is passed in registers.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Caller {
    /// The word of the stack that holds the return address of the call; above it is the frame.
    pub slot: u64,
    /// The frame's rbp.
    pub rbp: u64,
}

impl Caller {
    /// The frame's stack pointer once the call has returned.
    #[inline(always)]
    pub const fn sp(self) -> u64 {
        self.slot.wrapping_add(8)
    }
}
