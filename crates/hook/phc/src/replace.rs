//! The replacement of the allocator.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use heapledger_core::block_sampler::{BlockSampler, SamplerUsage};
use heapledger_core::hooks::{Functions, Pointer, Replacement};

use crate::arch;
use crate::countdown::{self, PhcState};
use crate::lookup::PhcLookup;
use crate::misuse::{self, Function};
use crate::report::{self, Access, PhcError, PhcReport};
use crate::slots::{self, Overwritten, PhcEvent};
use crate::{adaptive, sites, stack};

/// The replacement nearest to the program, but for the one of the checks of `heapledger check`.
pub(crate) static REPLACEMENT: Replacement = Replacement {
    name: c"phc".as_ptr(),
    order: -90,
    owns: Some(owns),
    functions: Functions {
        malloc: Some(arch::malloc),
        calloc: Some(arch::calloc),
        realloc: Some(arch::realloc),
        free: Some(arch::free),
        memalign: Some(arch::memalign),
        malloc_usable_size: Some(arch::usable_size),
        ..Functions::EMPTY
    },
    ..Replacement::new(NEXT.as_ptr().cast())
};

/// The sampler of an allocator that counts at its refills.
pub(crate) static SAMPLER: BlockSampler = BlockSampler {
    count: countdown::count,
    allocate: arch::allocate,
    free: arch::free,
    reallocate: arch::realloc,
    usable_size: arch::usable_size,
    owns: owns_address,
    usage,
};

unsafe extern "C" fn owns_address(address: usize) -> u32 {
    u32::from(slots::contains(address))
}

extern "C" fn usage() -> SamplerUsage {
    let stats = slots::stats();
    SamplerUsage {
        blocks: stats.slots_allocated as usize,
        allocated: stats.bytes_allocated,
        fragmentation: stats.bytes_fragmentation,
        metadata: stats.bytes_metadata,
    }
}

/// The next table.
pub(crate) static NEXT: AtomicPtr<Functions> = AtomicPtr::new(ptr::null_mut());

/// The alignment of a block of `malloc`.
const ALIGNMENT: usize = 16;

/// Calls a function of the next table.
macro_rules! next {
    ($name:ident($($argument:expr),*)) => {
        // SAFETY: the table is set before the first call, stays, and is complete. The arguments are
        // the program's own, or a block of that table.
        unsafe { (*NEXT.load(Ordering::Acquire)).$name.unwrap_unchecked()($($argument),*) }
    };
}

unsafe extern "C" fn owns(block: *mut c_void) -> c_int {
    c_int::from(slots::contains(block as usize))
}

// The functions below are entered from `arch`: `sp` and `rbp` are the registers with which the
// function of the table was called.

pub(crate) extern "C" fn malloc_at_end(size: usize, sp: u64, rbp: u64) -> Pointer {
    sampled(size, ALIGNMENT, sp, rbp).unwrap_or_else(|| next!(malloc(size)))
}

pub(crate) extern "C" fn calloc_at_end(count: usize, each: usize, sp: u64, rbp: u64) -> Pointer {
    // The bytes of a slot's block are zero.
    let block = count.checked_mul(each).and_then(|size| sampled(size, ALIGNMENT, sp, rbp));
    block.unwrap_or_else(|| next!(calloc(count, each)))
}

pub(crate) extern "C" fn memalign_at_end(alignment: usize, size: usize, sp: u64, rbp: u64) -> Pointer {
    // Other alignments are the allocator's to refuse or to round.
    let block = alignment.is_power_of_two().then(|| sampled(size, alignment.max(ALIGNMENT), sp, rbp)).flatten();
    block.unwrap_or_else(|| next!(memalign(alignment, size)))
}

/// Returns a slot's block if this allocation is to be sampled, and there is a slot for it.
fn sampled(size: usize, alignment: usize, sp: u64, rbp: u64) -> Option<Pointer> {
    if !countdown::is_sampled() {
        return None;
    }
    sample(size, alignment, sp, rbp)
}

/// Allocates the block that [`countdown::count`] has found due, for an allocator that counts at its
/// refills. Null if that has to allocate it.
pub(crate) extern "C" fn allocate_sampled(size: usize, alignment: usize, sp: u64, rbp: u64) -> Pointer {
    // It may have been found due long ago.
    let is_enabled = countdown::state() == PhcState::Enabled && countdown::is_thread_enabled();
    let block = is_enabled.then(|| sample(size, alignment.max(ALIGNMENT), sp, rbp)).flatten();
    block.unwrap_or(ptr::null_mut())
}

fn sample(size: usize, alignment: usize, sp: u64, rbp: u64) -> Option<Pointer> {
    // Before the lock is taken: the unwinder asks the dynamic linker.
    let event = stack::capture(sp, rbp);
    if !sites::accepts(event.stack) || !adaptive::accepts(event.stack) {
        countdown::retry_soon();
        return None;
    }
    countdown::note_accepted();
    let block = slots::with(|slots| slots.allocate(size, alignment, event))?;
    Some(ptr::with_exposed_provenance_mut(block))
}

pub(crate) extern "C" fn free_owned(block: Pointer, sp: u64, rbp: u64) {
    free(block as usize, Function::Free, stack::capture(sp, rbp));
}

fn free(address: usize, function: Function, at: PhcEvent) {
    let freed = slots::with(|slots| {
        let number = slots.live(address)?;
        let block = slots.find(address);
        Ok(slots.free(number, at).map(|overwritten| (overwritten, PhcLookup::of(block))))
    });
    match freed {
        Ok(overwritten) => note_overwritten(overwritten, address, at),
        Err(found) => misuse::end(function, address, at, found),
    }
}

/// Reports that bytes around a block were found changed at a call.
fn note_overwritten(overwritten: Option<(Overwritten, PhcLookup)>, address: usize, at: PhcEvent) {
    if let Some((bytes, lookup)) = overwritten {
        let error = PhcError::overwritten(bytes);
        report::note(&PhcReport { error, address, access: Access::Call, at, lookup });
    }
}

/// The result of a reallocation in the slots.
enum Reallocated {
    Within(usize, Option<(Overwritten, PhcLookup)>),
    /// The block has to leave the reserve; it has this size.
    Out(usize),
}

pub(crate) extern "C" fn realloc_owned(old: Pointer, size: usize, sp: u64, rbp: u64) -> Pointer {
    let (address, at) = (old as usize, stack::capture(sp, rbp));
    if size == 0 {
        // The result is that of the program's own allocator for a block of its own.
        free(address, Function::Realloc, at);
        let block = next!(malloc(1));
        return if block.is_null() { block } else { next!(realloc(block, 0)) };
    }
    let is_enabled = countdown::state() == PhcState::Enabled && countdown::is_thread_enabled();
    let reallocated = slots::with(|slots| {
        let number = slots.live(address)?;
        let found = slots.find(address);
        let resized = is_enabled.then(|| slots.resize(number, size, ALIGNMENT, at)).flatten();
        let before = found.and_then(|(_, slot)| slot).map_or(0, |slot| slot.size);
        Ok(match resized {
            Some((start, overwritten)) => {
                Reallocated::Within(start, overwritten.map(|bytes| (bytes, PhcLookup::of(found))))
            }
            None => Reallocated::Out(before),
        })
    });
    match reallocated {
        Ok(Reallocated::Within(start, overwritten)) => {
            note_overwritten(overwritten, address, at);
            ptr::with_exposed_provenance_mut(start)
        }
        Ok(Reallocated::Out(before)) => {
            let block = next!(malloc(size));
            if !block.is_null() {
                // SAFETY: the old block is live and has `before` bytes, the new one has `size`;
                // they are not in the same memory. The program does not access either meanwhile.
                unsafe { ptr::copy_nonoverlapping(old.cast::<u8>(), block.cast::<u8>(), before.min(size)) };
                free(address, Function::Realloc, at);
            }
            block
        }
        Err(found) => {
            misuse::end(Function::Realloc, address, at, found);
            ptr::null_mut()
        }
    }
}

/// Returns the size of the block around an address; 0 before the block.
pub(crate) extern "C" fn usable_size_owned(block: Pointer, sp: u64, rbp: u64) -> usize {
    let address = block as usize;
    let found = slots::with(|slots| slots.find(address));
    let lookup = PhcLookup::of(found);
    match lookup.block {
        Some(live) if lookup.kind == crate::PhcPageKind::InUsePage => {
            if address < live.base {
                0
            } else {
                live.size
            }
        }
        _ => {
            misuse::end(Function::UsableSize, address, stack::capture(sp, rbp), found);
            0
        }
    }
}
