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
/// The sums of the words about a new block, and about a free: see [`sum`].
const GUARDED_SUM: usize = 112;
const FREEING_SUM: usize = 120;

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

/// Returns a sum by which the words about one block are told from a mixture with those of another.
///
/// A signal handler that allocates or frees may run between any two accesses to the words, and
/// leaves its own there.
fn sum(words: &[usize]) -> usize {
    const FACTOR: usize = 0x9e37_79b9_7f4a_7c15_u64 as usize;
    words.iter().fold(0, |sum: usize, word| (sum ^ word).wrapping_mul(FACTOR).rotate_left(29))
}

/// Notes that the block that this thread is being given has canaries.
pub(crate) fn set_guarded(block: Guarded) {
    let front = usize::from(block.front.number());
    set_word::<GUARDED_USABLE>(block.usable);
    set_word::<GUARDED_FRONT>(front);
    set_word::<GUARDED_SUM>(sum(&[block.address, block.usable, front]));
    set_word::<GUARDED>(block.address);
}

/// Takes the canaries of this block, if the block was the last to be given any.
pub(crate) fn take_guarded(address: usize) -> Option<Guarded> {
    let (usable, number, found) = (word::<GUARDED_USABLE>(), word::<GUARDED_FRONT>(), word::<GUARDED_SUM>());
    let is_guarded = word::<GUARDED>() == address && found == sum(&[address, usable, number]);
    set_word::<GUARDED>(0);
    is_guarded.then(|| Guarded { address, usable, front: Front::from_number(number as u8) })
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
    let (state, words) = match freeing {
        None => return set_word::<FREEING>(0),
        Some(Freeing::Known(block)) => {
            let stamp = block.stamp as usize | usize::from(block.freed_by) << 32;
            let stacks = block.allocated_at.0 as usize | (block.freed_at.0 as usize) << 32;
            (KNOWN, [block.size as usize, block.usable as usize, stamp, stacks, block.freed_in.0 as usize])
        }
        Some(Freeing::Unknown) => (UNKNOWN, [0; 5]),
        Some(Freeing::Second) => (SECOND, [0; 5]),
    };
    let [size, usable, stamp, stacks, thread] = words;
    set_word::<FREEING_SIZE>(size);
    set_word::<FREEING_USABLE>(usable);
    set_word::<FREEING_STAMP>(stamp);
    set_word::<FREEING_STACKS>(stacks);
    set_word::<FREEING_THREAD>(thread);
    set_word::<FREEING_STATE>(state);
    set_word::<FREEING_SUM>(sum(&[address, state, size, usable, stamp, stacks, thread]));
    set_word::<FREEING>(address);
}

/// Takes what the observer has found about this block; `None` if it was not asked about the block,
/// or if a signal handler has freed another one since.
pub(crate) fn take_freeing(address: usize) -> Option<Freeing> {
    let (state, size, usable) = (word::<FREEING_STATE>(), word::<FREEING_SIZE>(), word::<FREEING_USABLE>());
    let (stamp, stacks, thread) = (word::<FREEING_STAMP>(), word::<FREEING_STACKS>(), word::<FREEING_THREAD>());
    let found = word::<FREEING_SUM>();
    // After the others: a handler that came between them has left 0 here.
    if word::<FREEING>() != address || found != sum(&[address, state, size, usable, stamp, stacks, thread]) {
        return None;
    }
    set_word::<FREEING>(0);
    Some(match state {
        KNOWN => Freeing::Known(FreedBlock {
            address: address as u64,
            size: size as u64,
            usable: usable as u64,
            stamp: stamp as u32,
            freed_by: (stamp >> 32) as u8,
            allocated_at: StackId(stacks as u32),
            freed_at: StackId((stacks >> 32) as u32),
            freed_in: ThreadId(thread as u32),
        }),
        SECOND => Freeing::Second,
        _ => Freeing::Unknown,
    })
}

#[cfg(all(test, target_arch = "x86_64", target_os = "linux", not(miri)))]
mod tests;
