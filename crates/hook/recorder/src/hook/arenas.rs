//! Events of arenas and purges: annotations, whose layouts [`code`] describes.

use core::ffi::{CStr, c_char};

use heapledger_core::hooks::{Arena, Caller, Purge};
use heapledger_wire::event::code;

use super::declarations::annotate;
use crate::accept::{Kind, is_paused};
use crate::capture::Heap;

/// The words of a text: up to 127 bytes are kept.
const TEXT_WORDS: usize = 16;
const TEXT_BYTES_MAX: usize = 127;

/// Returns the heap that an arena is in the recording: its label.
///
/// # Safety
///
/// `arena` is null, or an arena as observers are told of it: live, and by its contract with a
/// static name.
pub(crate) unsafe fn heap(arena: *const Arena) -> Heap {
    // SAFETY: `as_ref` requires null or a live arena; this function's `# Safety` requires the same.
    unsafe { arena.as_ref() }.map(|arena| arena.name)
}

// These are called under the contract of `Observer`.

/// # Safety
///
/// The contract of `Observer`.
pub(crate) unsafe extern "C" fn arena_created(arena: *const Arena, caller: Caller) {
    // SAFETY: `as_ref` requires null or a live arena, which the contract of `Observer` gives.
    if let Some(arena) = unsafe { arena.as_ref() } {
        record(arena, code::ARENA_CREATED, caller);
    }
}

/// # Safety
///
/// The contract of `Observer`.
pub(crate) unsafe extern "C" fn arena_disposed(arena: *const Arena, caller: Caller) {
    // SAFETY: `as_ref` requires null or a live arena, which the contract of `Observer` gives.
    if let Some(arena) = unsafe { arena.as_ref() } {
        record(arena, code::ARENA_DISPOSED, caller);
    }
}

#[cold]
fn record(arena: &Arena, what: u64, caller: Caller) {
    if is_paused(Kind::Free) {
        return;
    }
    let mut words = [0; 2 + TEXT_WORDS];
    let [id, event, label @ ..] = &mut words;
    (*id, *event) = (arena.id, what);
    let length = pack(arena.name.bytes(), label);
    let payload = words.get(..2 + length.div_ceil(8)).unwrap_or(&[]);
    annotate(code::ARENA, payload, caller.sp());
}

/// # Safety
///
/// The contract of `Observer`.
#[cold]
pub(crate) unsafe extern "C" fn purged(purge: *const Purge) {
    // SAFETY: `as_ref` requires null or a live structure, which the contract of `Observer` gives.
    let Some(purge) = (unsafe { purge.as_ref() }) else { return };
    if is_paused(Kind::Free) {
        return;
    }
    let (mut label, mut reason) = ([0; TEXT_WORDS], [0; TEXT_WORDS]);
    // SAFETY: `text` requires null or a text with a terminator, which the contract of `Observer`
    // gives for both.
    let lengths = unsafe { (pack(text(purge.label), &mut label), pack(text(purge.caller), &mut reason)) };
    let mut words = [0; code::PURGE_WORDS + 2 * TEXT_WORDS];
    let fixed = [
        purge.arena,
        purge.pages,
        purge.calls,
        purge.chunks,
        purge.end_ns.saturating_sub(purge.start_ns),
        lengths.0 as u64 | (lengths.1 as u64) << 32,
    ];
    let texts = label.iter().take(lengths.0.div_ceil(8)).chain(reason.iter().take(lengths.1.div_ceil(8)));
    let mut count = 0;
    for (word, from) in words.iter_mut().zip(fixed.iter().chain(texts)) {
        *word = *from;
        count += 1;
    }
    // A word of this function's own, which stays until it returns, stands for the return address.
    let guard = core::hint::black_box([0x6865_6170_6c65_6467_u64, 0]);
    let sp = (&raw const guard[1]).addr() as u64;
    annotate(code::PURGE, words.get(..count).unwrap_or(&[]), sp);
    core::hint::black_box(&guard);
}

/// Returns the bytes of a text; none for null.
///
/// # Safety
///
/// `text` is null, or has a terminator, and stays as it is until the bytes are no longer used.
unsafe fn text<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: `from_ptr` requires a text with a terminator that stays; this function's `# Safety`
    // requires the same.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

/// Packs a text into words, and returns the number of its bytes that fit.
fn pack(text: &[u8], words: &mut [u64]) -> usize {
    let text = text.get(..TEXT_BYTES_MAX).unwrap_or(text);
    for (word, bytes) in words.iter_mut().zip(text.chunks(8)) {
        *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    }
    text.len()
}
