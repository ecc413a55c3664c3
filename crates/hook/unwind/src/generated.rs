//! Code that belongs to no module: compilers generate it while the program runs.
//!
//! It has no unwind information that could be found without running the program's own code. Two
//! rules are known for it. CPython's trampolines for profilers are recognised by their bytes:
//! the rule follows from the instructions, so it is exact. Any other frame is left by its frame
//! pointer, which the compilers of V8 and HotSpot set if they are asked to. That is not certain,
//! and the node of the frame says so ([`NodeKind::UnprovenFrame`]).
//!
//! An address counts as code only if the kernel says that it can be executed (proc_pid_maps(5)).
//! Ranges of such memory are kept, each in one word, so the list is asked once for a range, not for
//! each address.
//!
//! [`NodeKind::UnprovenFrame`]: heapledger_core::NodeKind::UnprovenFrame

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use heapledger_core::{GENERATED_CODE, sandbox, sys};

use crate::arch::Rule;
use crate::modules::{self, FoundModule, Module};
use crate::supplied::{self, Answer, Question};
use crate::{PAGE, Sink};

use self::maps::Run;

mod maps;

/// The number of ranges that are kept; then a new one replaces the oldest.
const RANGES_MAX: usize = 256;
/// The number of bits for the length of a range in pages; the first page is above them.
const PAGES_BITS: u32 = 29;
/// The known ranges of memory with such code; 0 if there is none.
static RANGES: [AtomicU64; RANGES_MAX] = [const { AtomicU64::new(0) }; RANGES_MAX];
/// The number of ranges that were announced in this epoch.
static ANNOUNCED: AtomicUsize = AtomicUsize::new(0);
/// The maximum of that number: the reader keeps them all. Beyond, code in new ranges ends stacks.
const ANNOUNCED_MAX: usize = 4096;
/// The epoch in which the ranges were announced.
static OF_EPOCH: AtomicU32 = AtomicU32::new(0);

/// The number of addresses that are remembered as not executable, a power of two.
const REFUSED_MAX: usize = 64;
/// The number of look-ups of remembered addresses after which the kernel is asked again: memory
/// becomes executable, and compilers make theirs writable now and then.
const REFUSED_UNTIL: u32 = 256;
static REFUSED: [AtomicU64; REFUSED_MAX] = [const { AtomicU64::new(0) }; REFUSED_MAX];
static REFUSED_LOOKUPS: AtomicU32 = AtomicU32::new(0);

/// The rule of a return address that was in no known module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generated {
    /// The rule of generated code.
    Rule(Rule),
    /// The address is in a module that is known now.
    Module,
}

/// Returns the rule of a return address that is in no known module, and announces the memory around
/// it. [`Rule::NOT_CODE`] if nothing is executed there; then it must not be cached. `None` if that
/// is not known, or the memory could not be announced.
pub(crate) fn compute(return_address: u64, epoch: u32, sink: &mut dyn Sink) -> Option<Generated> {
    let lookup = return_address.wrapping_sub(1);
    if OF_EPOCH.swap(epoch, Ordering::Relaxed) != epoch {
        forget();
    }
    if !is_known(lookup) {
        if sandbox::is_entered() || ANNOUNCED.load(Ordering::Relaxed) >= ANNOUNCED_MAX {
            return None;
        }
        if is_refused(lookup) {
            return Some(Generated::Rule(Rule::NOT_CODE));
        }
        let Some(Run { start, end, is_named_file, .. }) = maps::executable_around(lookup).ok()? else {
            refuse(lookup);
            return Some(Generated::Rule(Rule::NOT_CODE));
        };
        if is_named_file {
            // A library may have been loaded since the table was made.
            let question = Question {
                address: lookup,
                key: lookup,
                is_known: || supplied::find(lookup).is_some(),
                epoch: modules::epoch,
            };
            match supplied::ask(question, sink) {
                Answer::Known => return Some(Generated::Module),
                Answer::Later => return None,
                // There may be modules that nobody has listed, if the linker cannot be asked.
                Answer::Unknown if !modules::can_ask_linker() => return None,
                Answer::Unknown => {}
            }
        }
        if !sink.module(&Module { start, end, bias: 0, epoch, build_id: &[], path: GENERATED_CODE }) {
            return None;
        }
        keep(start, end);
        // A range of an earlier epoch must not stay without an announcement in this one.
        if modules::epoch() != epoch {
            forget();
        }
    }
    let rule = if is_trampoline(return_address)? { Rule::TRAMPOLINE } else { Rule::FRAME_POINTER };
    Some(Generated::Rule(rule))
}

/// Returns the executable memory around an address: its start and its end. `None` if the address
/// cannot be executed, or the kernel does not say.
pub fn executable_range(address: u64) -> Option<(u64, u64)> {
    let Run { start, end, .. } = maps::executable_around(address).ok()??;
    Some((start, end))
}

/// Returns the rule of a return address in a module that has no unwind information for it.
///
/// V8's builtins are generated too, when V8 is built, and linked into its module as bytes: their
/// frames are like those of the code that V8 generates later. The module is known by a function of
/// V8 that it exports, as node does for its add-ons. In all other modules the stack ends.
pub(crate) fn rule_without_information(module: &FoundModule) -> Rule {
    // `v8::internal::Isolate::embedded_blob_code() const`.
    let of_v8 = heapledger_core::weak_address!("_ZNK2v88internal7Isolate18embedded_blob_codeEv") as u64;
    if of_v8 != 0 && module.contains(of_v8) { Rule::FRAME_POINTER } else { Rule::UNSUPPORTED }
}

/// Forgets all ranges, because they have not been announced in the current epoch.
fn forget() {
    ANNOUNCED.store(0, Ordering::Relaxed);
    RANGES.iter().for_each(|range| range.store(0, Ordering::Relaxed));
}

/// True if an address is in a known range.
fn is_known(address: u64) -> bool {
    let page = address / PAGE;
    RANGES.iter().any(|range| {
        let range = range.load(Ordering::Relaxed);
        let (first, pages) = (range >> PAGES_BITS, range & ((1 << PAGES_BITS) - 1));
        page.wrapping_sub(first) < pages
    })
}

fn keep(start: u64, end: u64) {
    let pages = ((end - start) / PAGE).min((1 << PAGES_BITS) - 1);
    let slot = ANNOUNCED.fetch_add(1, Ordering::Relaxed) % RANGES_MAX;
    if let Some(range) = RANGES.get(slot) {
        range.store((start / PAGE) << PAGES_BITS | pages, Ordering::Relaxed);
    }
}

/// The place where an address is remembered as not executable.
fn refused(address: u64) -> Option<&'static AtomicU64> {
    REFUSED.get((address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % REFUSED_MAX)
}

fn is_refused(address: u64) -> bool {
    refused(address).is_some_and(|slot| slot.load(Ordering::Relaxed) == address)
        && REFUSED_LOOKUPS.fetch_add(1, Ordering::Relaxed) % REFUSED_UNTIL != REFUSED_UNTIL - 1
}

fn refuse(address: u64) {
    if let Some(slot) = refused(address) {
        slot.store(address, Ordering::Relaxed);
    }
}

/// True if the return address is that of the call in CPython's trampoline for profilers:
/// `sub $8,%rsp; call *%rcx; add $8,%rsp; ret`. Source: `Python/asm_trampoline.S` of CPython 3.12.
///
/// `None` if the bytes cannot be read, as in a process whose system calls are filtered.
fn is_trampoline(return_address: u64) -> Option<bool> {
    const CODE: [u8; 11] = [0x48, 0x83, 0xec, 0x08, 0xff, 0xd1, 0x48, 0x83, 0xc4, 0x08, 0xc3];
    /// The length of the code before the return address.
    const BEFORE: u64 = 6;
    let mut words = [0_u64; 2];
    let read = sys::read_own_pieces(&[[return_address.wrapping_sub(BEFORE), CODE.len() as u64]], &mut words);
    let [low, high] = words.map(u64::to_ne_bytes);
    let bytes = low.iter().chain(&high).take(CODE.len());
    (read == CODE.len()).then(|| bytes.eq(&CODE))
}

#[cfg(test)]
mod tests;
