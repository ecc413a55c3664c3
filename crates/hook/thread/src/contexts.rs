//! The location of this thread's contexts.
//!
//! The program sets it once per thread, when the thread enters its first scope; hooks of this
//! loaded object read it. It is in a TLS word next to that of the block: a forked child, in which
//! blocks are zeroed, still has it.

use core::ptr;

use heapledger_core::context::ScopeStack;

use crate::arch;

/// Returns the calling thread's stack of scopes; null if it has not been in any.
#[inline(always)]
pub fn contexts() -> *mut ScopeStack {
    ptr::with_exposed_provenance_mut(arch::contexts_word())
}

/// Proposes a stack for the calling thread. Returns the one to use: the first that was proposed.
///
/// # Safety
///
/// `stack` is the calling thread's [own stack](heapledger_core::context), and stays so as long as
/// the thread may call its allocator.
pub unsafe fn bind(stack: *mut ScopeStack) -> *mut ScopeStack {
    let bound = contexts();
    if !bound.is_null() {
        return bound;
    }
    arch::set_contexts_word(stack.expose_provenance());
    stack
}

#[cfg(test)]
mod tests;
