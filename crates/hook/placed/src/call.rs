//! A system call that is made in the place of the C library.

/// A system call, as the thunk has pushed its registers.
#[repr(C)]
pub(crate) struct Call {
    pub(crate) rbp: usize,
    pub(crate) number: usize,
    pub(crate) r10: usize,
    pub(crate) r9: usize,
    pub(crate) r8: usize,
    pub(crate) rdx: usize,
    pub(crate) rsi: usize,
    pub(crate) rdi: usize,
    /// The address in the stub to which the thunk returns.
    pub(crate) return_address: usize,
}
