//! The replacement of the allocator: makes each block longer than the program asked for, for the
//! canaries, and keeps freed blocks in quarantine.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use heapledger_core::hooks::{Functions, Pointer, Replacement};
use heapledger_inprocess::query;
use heapledger_ledger::{Key, LiveBlock};

use crate::canary::{self, FILL, Front, Guarded};
use crate::freed::FreedBlock;
use crate::register::REGISTER;
use crate::stamp::Stamp;
use crate::thread::{self, Freeing};
use crate::{quarantine, report};

/// The replacement nearest to the program: those after it may not know the sizes that it asked for.
pub(crate) static REPLACEMENT: Replacement = Replacement {
    name: c"checks".as_ptr(),
    order: -100,
    functions: Functions {
        malloc: Some(malloc),
        calloc: Some(calloc),
        realloc: Some(realloc),
        free: Some(free),
        memalign: Some(memalign),
        malloc_usable_size: Some(usable_size),
        ..Functions::EMPTY
    },
    ..Replacement::new(NEXT.as_ptr().cast())
};

static NEXT: AtomicPtr<Functions> = AtomicPtr::new(ptr::null_mut());

/// With a quarantine, blocks up to this size always move when they are reallocated, so that writes
/// to the old address are found. The copy costs less than the stack of the call.
const MOVED_MAX: usize = 4096;

/// Calls a function of the next table.
macro_rules! next {
    ($name:ident($($argument:expr),*)) => {
        // SAFETY: the table is set before the first call, stays, and is complete; the arguments are
        // the program's own, but for sizes that are larger, and for blocks of this table.
        unsafe { (*NEXT.load(Ordering::Acquire)).$name.unwrap_unchecked()($($argument),*) }
    };
}

/// Returns a block of `size` bytes from the next table, with canaries around it. After the checks
/// have [stopped](crate::stop) it is the allocator's own: it may come to another allocator.
fn with_canaries(size: usize, front: Front, allocate: impl FnOnce(usize) -> Pointer) -> Pointer {
    if report::is_stopped() { allocate(size) } else { place(size, front, allocate) }
}

/// Returns a block of the next table with canaries around its `size` bytes, the first of which is
/// `front` behind the beginning. A block that cannot be made longer is returned as it is.
fn place(size: usize, front: Front, allocate: impl FnOnce(usize) -> Pointer) -> Pointer {
    let Some(longer) = size.checked_add(front.bytes() + canary::behind()) else { return allocate(size) };
    let block = allocate(longer);
    if block.is_null() {
        return block;
    }
    let guarded = Guarded { address: block as usize + front.bytes(), usable: size, front };
    // SAFETY: `write` requires the contract of guarded blocks, and that nobody else uses the block.
    // It has `longer` bytes, and nobody else knows of it yet; the bytes that a reallocation keeps
    // are between the canaries.
    unsafe { guarded.write() };
    thread::set_guarded(guarded);
    block.wrapping_byte_add(front.bytes())
}

/// Returns the pointer that a function of the next table is given for an address.
fn pointer(address: usize) -> Pointer {
    ptr::with_exposed_provenance_mut(address)
}

unsafe extern "C" fn malloc(size: usize) -> Pointer {
    allocate(size)
}

fn allocate(size: usize) -> Pointer {
    with_canaries(size, Front::PLAIN, |longer| next!(malloc(longer)))
}

unsafe extern "C" fn calloc(count: usize, each: usize) -> Pointer {
    match count.checked_mul(each) {
        Some(size) => with_canaries(size, Front::PLAIN, |longer| next!(calloc(1, longer))),
        None => next!(calloc(count, each)),
    }
}

unsafe extern "C" fn memalign(alignment: usize, size: usize) -> Pointer {
    with_canaries(size, Front::of_alignment(alignment), |longer| next!(memalign(alignment, longer)))
}

unsafe extern "C" fn realloc(old: Pointer, size: usize) -> Pointer {
    if old.is_null() {
        return allocate(size);
    }
    let address = old as usize;
    match thread::take_freeing(address) {
        Some(Freeing::Known(block)) if block.place().front == Front::NONE => reallocate_plain(old, size),
        Some(Freeing::Known(block)) => reallocate(block.place(), size, || release(&block)),
        Some(Freeing::Unknown) => reallocate_plain(old, size),
        Some(Freeing::Second) => filled(size),
        // The observer has not seen the call, or does not know the block.
        None => match canary::find(address) {
            Some((block, false)) => reallocate(block, size, || next!(free(pointer(block.underlying())))),
            Some((_, true)) => filled(size),
            None => reallocate_plain(old, size),
        },
    }
}

/// Reallocates a block that has no canary in front.
fn reallocate_plain(old: Pointer, size: usize) -> Pointer {
    if size == 0 {
        return next!(realloc(old, 0));
    }
    with_canaries(size, Front::NONE, |longer| next!(realloc(old, longer)))
}

/// Reallocates a block that has a canary in front; `free` frees it if it moves.
fn reallocate(old: Guarded, size: usize, free: impl FnOnce()) -> Pointer {
    if size == 0 {
        free();
        return reallocated_to_nothing();
    }
    let moves = old.front != Front::PLAIN || report::is_stopped() || (quarantine::is_on() && old.usable <= MOVED_MAX);
    if !moves {
        return place(size, Front::PLAIN, |longer| next!(realloc(pointer(old.underlying()), longer)));
    }
    let block = allocate(size);
    if !block.is_null() {
        // SAFETY: the old block is live and has `usable` bytes, the new one has `size`; they are
        // not in the same memory. The program does not access either meanwhile.
        unsafe {
            ptr::copy_nonoverlapping(pointer(old.address).cast::<u8>(), block.cast::<u8>(), old.usable.min(size));
        }
        free();
    }
    block
}

/// Returns what the next table does for a reallocation to no bytes.
fn reallocated_to_nothing() -> Pointer {
    let block = next!(malloc(1));
    if block.is_null() { block } else { next!(realloc(block, 0)) }
}

/// Returns the result of the reallocation of a block that was freed: a block with the bytes that
/// the old one consists of.
fn filled(size: usize) -> Pointer {
    if size == 0 {
        return reallocated_to_nothing();
    }
    let block = allocate(size);
    if !block.is_null() {
        // SAFETY: the block is new and has `size` bytes.
        unsafe { block.cast::<u8>().write_bytes(FILL, size) };
    }
    block
}

unsafe extern "C" fn free(block: Pointer) {
    let address = block as usize;
    match thread::take_freeing(address) {
        Some(Freeing::Known(block)) => release(&block),
        Some(Freeing::Unknown) => next!(free(block)),
        Some(Freeing::Second) => {}
        // The observer has not seen the call, or does not know the block.
        None => match canary::find(address) {
            Some((block, false)) => free_untold(block),
            Some((_, true)) => {}
            None => next!(free(block)),
        },
    }
}

/// Frees a block that the observer may not have told of: a signal handler has freed another one
/// since.
fn free_untold(block: Guarded) {
    // If the register was asked after all, it may have the block in quarantine.
    let is_quarantined = |block: &LiveBlock| Stamp::of(block).is_quarantined();
    query(|| REGISTER.remove_if(Key(block.address as u64), is_quarantined));
    next!(free(pointer(block.underlying())));
}

/// Puts a block in quarantine, or frees it, and frees those for which there is no room any more.
fn release(block: &FreedBlock) {
    let underlying = pointer(block.place().underlying());
    if !quarantine::is_on() {
        return next!(free(underlying));
    }
    // SAFETY: `keep` requires a block with the canaries that its stamp says, which nobody else
    // uses. The observer took it from the register, or put it in quarantine there, with its stamp,
    // for this free.
    let kept = query(|| unsafe { quarantine::keep(block) });
    let is_quarantined = Stamp(block.stamp).is_quarantined();
    // If the register cannot be asked, it may have the block, which then stays as it is.
    let (is_kept, mut evicted) = kept.map_or((is_quarantined, None), |kept| (kept.is_kept, kept.evicted));
    if !is_kept {
        next!(free(underlying));
    }
    while let Some(address) = evicted {
        next!(free(pointer(address)));
        evicted = query(quarantine::evict).flatten();
    }
}

/// Returns the bytes that the program may write: those that it asked for, with `pvalloc` in whole
/// pages.
unsafe extern "C" fn usable_size(block: Pointer) -> usize {
    if block.is_null() {
        return next!(malloc_usable_size(block));
    }
    match query(|| REGISTER.get(Key(block as u64))).flatten() {
        Some(known) if Stamp::of(&known).is_guarded() => known.usable.0 as usize,
        Some(known) if Stamp::of(&known).front() == Front::NONE => next!(malloc_usable_size(block)),
        _ => match canary::find(block as usize) {
            Some((guarded, _)) => guarded.usable,
            None => next!(malloc_usable_size(block)),
        },
    }
}
