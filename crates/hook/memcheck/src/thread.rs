//! The state that a thread passes from one of our functions to the next: through which C++ operator
//! a call comes, which block has just been given canaries, how a free is to be handled.

use core::sync::atomic::{AtomicBool, Ordering};

use heapledger_core::{StackId, ThreadId};

use crate::arch::{set_word, word};
use crate::call::Call;
use crate::canary::{Front, Guarded};
use crate::freed::FreedBlock;

/// A number of [`Call`]; 0: none.
const CALL: usize = 0;
/// The bytes of an allocation, or the address of a free.
const VALUE: usize = 8;
/// For a free: the size that it gives, plus one. For an allocation: not 0 if the allocator has
/// refused it.
const EXTRA: usize = 16;
const ALIGNMENT: usize = 24;
const GUARDED: usize = 32;
const GUARDED_USABLE: usize = 40;
const GUARDED_FRONT: usize = 48;
/// The address of the block that is being freed or reallocated.
const FREEING: usize = 56;
/// [`KNOWN`], [`UNKNOWN`] or [`SECOND`].
const FREEING_STATE: usize = 64;
const FREEING_SIZE: usize = 72;
const FREEING_USABLE: usize = 80;
/// The stamp, and from bit 32 on the call.
const FREEING_STAMP: usize = 88;
/// The stack of the allocation, and from bit 32 on that of the free.
const FREEING_STACKS: usize = 96;
const FREEING_THREAD: usize = 104;

const KNOWN: usize = 1;
const UNKNOWN: usize = 2;
const SECOND: usize = 3;

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

/// Notes that the block that this thread is being given has canaries.
pub(crate) fn set_guarded(block: Guarded) {
    set_word::<GUARDED_USABLE>(block.usable);
    set_word::<GUARDED_FRONT>(usize::from(block.front.number()));
    set_word::<GUARDED>(block.address);
}

/// Takes the canaries of this block, if the block was the last to be given any.
pub(crate) fn take_guarded(address: usize) -> Option<Guarded> {
    let is_guarded = word::<GUARDED>() == address;
    set_word::<GUARDED>(0);
    let front = Front::from_number(word::<GUARDED_FRONT>() as u8);
    is_guarded.then(|| Guarded { address, usable: word::<GUARDED_USABLE>(), front })
}

/// The block of a free or reallocation, as the observer has found it for the replacement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Freeing {
    /// A block that was live.
    Known(FreedBlock),
    /// No block that the checks know.
    Unknown,
    /// A block that had been freed before, or a pointer into one: the call is not passed on.
    Second,
}

/// Notes how the free of this block, which follows, is to be handled. `None`: the observer cannot
/// say.
pub(crate) fn set_freeing(address: usize, freeing: Option<Freeing>) {
    let state = match freeing {
        None => return set_word::<FREEING>(0),
        Some(Freeing::Known(block)) => {
            set_word::<FREEING_SIZE>(block.size as usize);
            set_word::<FREEING_USABLE>(block.usable as usize);
            set_word::<FREEING_STAMP>(block.stamp as usize | usize::from(block.freed_by) << 32);
            set_word::<FREEING_STACKS>(block.allocated_at.0 as usize | (block.freed_at.0 as usize) << 32);
            set_word::<FREEING_THREAD>(block.freed_in.0 as usize);
            KNOWN
        }
        Some(Freeing::Unknown) => UNKNOWN,
        Some(Freeing::Second) => SECOND,
    };
    set_word::<FREEING_STATE>(state);
    set_word::<FREEING>(address);
}

/// Takes what the observer has found about this block; `None` if it was not asked about the block.
pub(crate) fn take_freeing(address: usize) -> Option<Freeing> {
    if word::<FREEING>() != address {
        return None;
    }
    set_word::<FREEING>(0);
    Some(match word::<FREEING_STATE>() {
        KNOWN => Freeing::Known(FreedBlock {
            address: address as u64,
            size: word::<FREEING_SIZE>() as u64,
            usable: word::<FREEING_USABLE>() as u64,
            stamp: word::<FREEING_STAMP>() as u32,
            freed_by: (word::<FREEING_STAMP>() >> 32) as u8,
            allocated_at: StackId(word::<FREEING_STACKS>() as u32),
            freed_at: StackId((word::<FREEING_STACKS>() >> 32) as u32),
            freed_in: ThreadId(word::<FREEING_THREAD>() as u32),
        }),
        SECOND => Freeing::Second,
        _ => Freeing::Unknown,
    })
}
