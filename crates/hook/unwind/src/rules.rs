//! The rule cache: return address → rule, computed on first sight from `.eh_frame`, shared by all threads, no locks.
//!
//! One array of 64-bit entries, direct mapped: the lower 16 bits of an address choose the entry, which holds the rest
//! of it and the rule, so an entry is exact. Entries are written and read whole, so a race can only lose one.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use gimli::{
    BaseAddresses, EhFrame, EhFrameHdr, Encoding, EndianSlice, NativeEndian, Register, RegisterRule, UnwindContext,
    UnwindContextStorage, UnwindSection, UnwindTableRow,
};
use heapledger_core::sys;

use crate::Sink;
use crate::arch::{RULES_MAX, Rule};
use crate::modules;

const ENTRIES: usize = 1 << 16;
/// Tells entries from the empty one, for any address that a program can have.
const PRESENT: u64 = u64::MAX << 31;

/// Bytes the cache takes when every page of it has been touched.
pub const CACHE_LENGTH: usize = ENTRIES * 8;

static CACHE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// Storage for evaluating unwind information: fixed, part of the thread's state.
#[derive(Debug)]
pub struct Storage;

impl UnwindContextStorage<usize> for Storage {
    type Rules = [(Register, RegisterRule<usize>); RULES_MAX];
    type Stack = [UnwindTableRow<usize, Storage>; 3];
}

pub(crate) type Row = UnwindTableRow<usize, Storage>;
/// What evaluating unwind information needs.
pub type Context = UnwindContext<usize, Storage>;

/// Maps the cache. Idempotent; false when there is no memory.
pub fn initialise() -> bool {
    if !CACHE.load(Ordering::Acquire).is_null() {
        return true;
    }
    let Ok(memory) = sys::map_private(CACHE_LENGTH) else { return false };
    sys::dont_dump(memory, CACHE_LENGTH);
    CACHE.store(memory.cast(), Ordering::Release);
    true
}

/// Forgets every rule: a module may have gone.
pub fn clear() {
    let Some(cache) = cache() else { return };
    for index in 0..ENTRIES {
        // Untouched pages stay untouched.
        let entry = cache.entry(index as u64);
        if entry.load(Ordering::Relaxed) != 0 {
            entry.store(0, Ordering::Relaxed);
        }
    }
}

/// The cache, once it is mapped.
#[inline(always)]
pub fn cache() -> Option<Cache> {
    let entries = CACHE.load(Ordering::Acquire);
    // SAFETY: the mapping has `ENTRIES` entries and is never unmapped; zeroed memory is valid for atomics.
    (!entries.is_null()).then(|| Cache(unsafe { &*entries.cast::<[AtomicU64; ENTRIES]>() }))
}

/// The mapped cache.
#[derive(Clone, Copy, Debug)]
pub struct Cache(&'static [AtomicU64; ENTRIES]);

impl Cache {
    /// The bits of the cached rule of a return address; something of more than [`Rule::BITS`] bits when there is none.
    #[inline(always)]
    pub fn bits(self, return_address: u64) -> u64 {
        // All that the entry holds beside the rule is taken out when the address is the same; else some of it stays.
        self.entry(return_address).load(Ordering::Relaxed) ^ mark(return_address)
    }

    /// The cached rule of a return address.
    pub fn get(self, return_address: u64) -> Option<Rule> {
        let bits = self.bits(return_address);
        (bits < 1 << Rule::BITS).then(|| Rule::from_bits(bits as u32))
    }

    #[inline(always)]
    fn entry(self, return_address: u64) -> &'static AtomicU64 {
        // SAFETY: the index has 16 bits, and there are 2^16 entries.
        unsafe { self.0.get_unchecked(return_address as usize & (ENTRIES - 1)) }
    }
}

/// Computes the rule of a return address and keeps it. `None` when no module covers the address: then nothing is kept,
/// since one may be mapped there later.
#[cold]
#[inline(never)]
pub fn compute(return_address: u64, context: &mut Context, sink: &mut dyn Sink) -> Option<Rule> {
    let lookup = return_address.wrapping_sub(1);
    let epoch = modules::epoch();
    let module = modules::find(lookup)?;
    modules::announce(&module, epoch, sink);
    let rule = evaluate(lookup, &module, context).unwrap_or(Rule::UNSUPPORTED);
    if let Some(cache) = cache() {
        let entry = cache.entry(return_address);
        entry.store(mark(return_address) ^ u64::from(rule.bits()), Ordering::Relaxed);
        // If the epoch has advanced meanwhile, the entry may be of a module that is gone: take it back.
        core::sync::atomic::fence(Ordering::SeqCst);
        if modules::epoch() != epoch {
            entry.store(0, Ordering::Relaxed);
        }
    }
    Some(rule)
}

#[inline(always)]
const fn mark(return_address: u64) -> u64 {
    return_address << 16 ^ PRESENT
}

/// The binary search in `.eh_frame_hdr`, then one row of one description.
fn evaluate(lookup: u64, module: &modules::Found, context: &mut Context) -> Option<Rule> {
    let bytes = |from: u64| {
        // SAFETY: the dynamic linker says that this module is mapped up to `end` and that its unwind information starts
        // at `from`, inside it. The module cannot go while one of its functions is on our stack; if the stack is wrong
        // and it goes all the same, this read is the same risk that every C++ throw takes. The header and the frames
        // are in one read-only segment in practice; gimli reads no further than the lengths found there say.
        unsafe {
            core::slice::from_raw_parts(ptr::with_exposed_provenance::<u8>(from as usize), (module.end - from) as usize)
        }
    };
    if module.eh_frame_hdr < module.start || module.eh_frame_hdr >= module.end {
        return None;
    }
    let bases = BaseAddresses::default().set_eh_frame_hdr(module.eh_frame_hdr);
    let header = EhFrameHdr::new(bytes(module.eh_frame_hdr), NativeEndian).parse(&bases, 8).ok()?;
    let gimli::Pointer::Direct(frames_at) = header.eh_frame_ptr() else { return None };
    if frames_at < module.start || frames_at >= module.end {
        return None;
    }
    let bases = bases.set_eh_frame(frames_at);
    let frames: EhFrame<EndianSlice<'_, NativeEndian>> = EhFrame::new(bytes(frames_at), NativeEndian);
    let table = header.table()?;
    let describe = |address: u64| table.fde_for_address(&frames, &bases, address, EhFrame::cie_from_offset).ok();
    let Some(description) = describe(lookup) else {
        // Nothing calls from just before a function: whoever made the stack put the function's address there, for the
        // outermost frame to return to. So `makecontext` does with `__start_context`.
        let is_start = |address: u64| describe(address).is_some_and(|next| next.initial_address() == address);
        return is_start(lookup.wrapping_add(1)).then_some(Rule::END);
    };
    let encoding = Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 5 };
    let is_signal = description.is_signal_trampoline();
    let row = description.unwind_info_for_address(&frames, &bases, context, lookup).ok()?;
    Some(Rule::from_row(row, is_signal, &frames, encoding))
}
