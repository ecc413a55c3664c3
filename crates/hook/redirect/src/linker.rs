//! Watches the dynamic linker: see [`heapledger_wire::linker`].

use heapledger_wire::linker::{LINKER_FUNCTION_LENGTH as LENGTH, replaceable};
use heapledger_wire::redirection::Jump;

use crate::install::{Memory, is_there};

/// Makes the dynamic linker's function at this address jump to another one, and returns true.
/// Returns false, and changes nothing, if it does not consist of a `ret` with enough room behind
/// it, or the other function is too far away.
///
/// # Safety
///
/// `breakpoint` is `r_brk` of the dynamic linker. The process has one thread, and is not in that
/// function. `function` is a C function without arguments that changes no register but rflags.
pub unsafe fn watch_linker(breakpoint: u64, function: u64) -> bool {
    let mut words = [0_u64; LENGTH / 8];
    let read = heapledger_core::sys::read_own_pieces(&[[breakpoint, LENGTH as u64]], &mut words);
    let [first, second] = words.map(u64::to_ne_bytes);
    let mut bytes = [0; LENGTH];
    for (to, from) in bytes.iter_mut().zip(first.into_iter().chain(second)) {
        *to = from;
    }
    if read != LENGTH {
        return false;
    }
    let Some((skipped, expected)) = replaceable(&bytes) else { return false };
    let address = breakpoint + skipped as u64;
    let Some(jump) = Jump::new(address, expected, function) else { return false };
    // SAFETY: `Memory::write` requires the start of an instruction in code that no thread is
    // executing: the function's first, or that behind its `endbr64`; the process has one thread,
    // which is elsewhere.
    unsafe { Memory::open().write(&jump) && is_there(address, &jump.jump) }
}

/// Defines a function to which [`watch_linker`] leads, and which calls another one. It restores
/// every register that a C function may change, but rflags and those vector registers that this
/// loaded object does not use: see the thunk of this crate.
#[macro_export]
macro_rules! linker_event {
    ($name:ident calls $handler:path) => {
        /// The function for debuggers, in the place of the dynamic linker's.
        ///
        /// # Safety
        ///
        /// The dynamic linker calls its own.
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            ::core::arch::naked_asm!(::heapledger_core::preserved_call!("{redirect}"), redirect = sym $handler)
        }
    };
}

#[cfg(test)]
mod tests;
