//! The state that a thread passes from one of our functions to the next: through which C++ operator
//! a call comes, which block has just been made longer, which free is not to be passed on.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::arch::{set_word, word};
use crate::call::Call;

/// A number of [`Call`]; 0: none.
const CALL: usize = 0;
/// The bytes of an allocation, or the address of a free.
const VALUE: usize = 8;
/// For a free: the size that it gives, plus one. For an allocation: not 0 if the allocator has
/// refused it.
const EXTRA: usize = 16;
const ALIGNMENT: usize = 24;
const PADDED: usize = 32;
const SWALLOWED: usize = 40;
const PADDED_SIZE: usize = 48;

/// True if operators are known to go elsewhere than to the malloc functions, so that their
/// arguments say nothing.
static IS_UNRELIABLE: AtomicBool = AtomicBool::new(false);

/// Switches off the checks that a free fits its allocation.
pub fn distrust_operators() {
    IS_UNRELIABLE.store(true, Ordering::Relaxed);
}

pub(crate) fn trusts_operators() -> bool {
    !IS_UNRELIABLE.load(Ordering::Relaxed)
}

/// Notes that this thread has called an operator `new`, which will call the malloc functions. An
/// alignment of 0 is that of any block.
pub fn operator_new(call: Call, size: usize, alignment: usize) {
    if word::<CALL>() != 0 {
        // One operator calls the other, with the same arguments.
        let is_within =
            word::<VALUE>() == size && [Call::New, Call::NewArray].map(|call| call as usize).contains(&word::<CALL>());
        if is_within && word::<EXTRA>() == 0 {
            return;
        }
        check_stray();
    }
    set(call, size, 0, alignment);
}

/// Notes that this thread has called an operator `delete` on a block, which will call `free`.
pub fn operator_delete(call: Call, block: usize, size: Option<usize>, alignment: usize) {
    if block == 0 {
        return;
    }
    if word::<CALL>() != 0 {
        if word::<VALUE>() == block {
            return;
        }
        check_stray();
    }
    set(call, block, size.map_or(0, |size| size.wrapping_add(1)), alignment);
}

/// Distrusts operators if the one before this one should have reached the malloc functions, and did
/// not.
fn check_stray() {
    let was_refused = word::<CALL>() <= Call::NewArray as usize && word::<EXTRA>() != 0;
    if !was_refused {
        distrust_operators();
    }
}

fn set(call: Call, value: usize, extra: usize, alignment: usize) {
    set_word::<VALUE>(value);
    set_word::<EXTRA>(extra);
    set_word::<ALIGNMENT>(alignment);
    set_word::<CALL>(call as usize);
}

/// Takes the operator through which an allocation of this size comes.
pub(crate) fn take_new(size: usize) -> Option<Call> {
    let call = Call::from_number(word::<CALL>() as u8).filter(|&call| call == Call::New || call == Call::NewArray)?;
    // libstdc++ rounds up to the alignment, and never asks for nothing.
    let (wanted, alignment) = (word::<VALUE>().max(1), word::<ALIGNMENT>());
    if size < wanted || size - wanted >= alignment.max(1) {
        return None;
    }
    set_word::<CALL>(0);
    Some(call)
}

/// Notes that an allocation has failed: the operator may try again, or throw.
pub(crate) fn refuse_new() {
    if word::<CALL>() != 0 && word::<CALL>() <= Call::NewArray as usize {
        set_word::<EXTRA>(1);
    }
}

/// Takes the operator through which a free of this block comes, with the size that it gives, and
/// the alignment.
pub(crate) fn take_delete(block: usize) -> Option<(Call, Option<usize>, usize)> {
    let call =
        Call::from_number(word::<CALL>() as u8).filter(|&call| call == Call::Delete || call == Call::DeleteArray)?;
    if word::<VALUE>() != block {
        return None;
    }
    set_word::<CALL>(0);
    Some((call, word::<EXTRA>().checked_sub(1), word::<ALIGNMENT>()))
}

/// Notes that the block that this thread is being given has its canary behind `size` bytes.
pub(crate) fn set_padded(block: usize, size: usize) {
    set_word::<PADDED_SIZE>(size);
    set_word::<PADDED>(block);
}

/// Returns where in this block the canary is, if the block was the last to be given one.
pub(crate) fn take_padded(block: usize) -> Option<usize> {
    let is_padded = word::<PADDED>() == block;
    set_word::<PADDED>(0);
    is_padded.then(word::<PADDED_SIZE>)
}

/// Notes that the free of this block, which follows, is not to be passed on.
pub(crate) fn swallow(block: usize) {
    set_word::<SWALLOWED>(block);
}

pub(crate) fn take_swallowed(block: usize) -> bool {
    let is_swallowed = word::<SWALLOWED>() == block;
    if is_swallowed {
        set_word::<SWALLOWED>(0);
    }
    is_swallowed
}
