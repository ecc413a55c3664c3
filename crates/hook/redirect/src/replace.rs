//! Replaces whole functions, none of whose instructions are needed any more.

use heapledger_wire::redirection::Jump;

use crate::install::{Memory, is_there};

/// Makes a function jump to another one that does the same, if `is_expected` of the first `LENGTH`
/// bytes of its code. True if that was done. False, and nothing is changed, if the code is another,
/// cannot be read or written, or if the other function is more than 2 GiB away.
///
/// # Safety
///
/// The process has one thread, which is not in the function, and nobody jumps into the middle of
/// it. `function` does the same as the function at `address`, under the same contract.
pub unsafe fn replace_function<const LENGTH: usize>(
    address: u64,
    function: u64,
    is_expected: impl Fn(&[u8; LENGTH]) -> bool,
) -> bool {
    let mut words = [0_u64; 8];
    let read = heapledger_core::sys::read_own_pieces(&[[address, LENGTH.min(64) as u64]], &mut words);
    let mut code = [0_u8; LENGTH];
    for (to, from) in code.iter_mut().zip(words.iter().flat_map(|word| word.to_ne_bytes())) {
        *to = from;
    }
    if read != LENGTH || !is_expected(&code) {
        return false;
    }
    let Some(jump) = code.get(..Jump::LENGTH).and_then(|before| Jump::new(address, before, function)) else {
        return false;
    };
    // SAFETY: `Memory::write` requires the start of an instruction in code that no thread is
    // executing: a function's first, and this function's `# Safety` says the rest.
    unsafe { Memory::open().write(&jump) && is_there(address, &jump.jump) }
}
