//! The rule cache: return address → rule, computed from `.eh_frame` when first needed, shared by
//! all threads, no locks.
//!
//! One array of 64-bit entries, direct mapped: the lower 16 bits of an address select the entry,
//! which holds the remaining bits and the rule, so a hit is exact. Entries are written and read
//! whole, so a race can only lose one.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, EhFrameOffset, Encoding, EndianSlice, NativeEndian, UnwindSection};
use heapledger_core::sys;

use crate::arch::Rule;
use crate::row::Row;
use crate::{PAGE, Sink, modules};

const ENTRIES: usize = 1 << 16;
/// A mask that distinguishes entries from the empty one, for any address that a program can have.
const PRESENT: u64 = u64::MAX << 31;

/// The size of the cache in bytes when every page of it has been touched.
pub const CACHE_LENGTH: usize = ENTRIES * 8;

static CACHE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// The pages of the cache that have been written, a bit for each.
static WRITTEN: [AtomicU64; PAGES / 64] = [const { AtomicU64::new(0) }; PAGES / 64];
const PAGES: usize = CACHE_LENGTH / PAGE as usize;

/// Maps the cache. Idempotent; false if there is no memory.
pub fn initialise() -> bool {
    if !CACHE.load(Ordering::Acquire).is_null() {
        return true;
    }
    let Ok(memory) = sys::map_private(CACHE_LENGTH) else { return false };
    sys::dont_dump(memory, CACHE_LENGTH);
    CACHE.store(memory.cast(), Ordering::Release);
    true
}

/// Clears the cache, because a module may have been unloaded.
pub fn clear() {
    let Some(cache) = cache() else { return };
    for index in 0..ENTRIES {
        // Untouched pages stay untouched.
        let entry = cache.entry(index as u64);
        if entry.load(Ordering::Relaxed) != 0 {
            note_written(index as u64);
            entry.store(0, Ordering::Relaxed);
        }
    }
}

/// Returns the cache, once it is mapped.
#[inline(always)]
pub fn cache() -> Option<Cache> {
    let entries = CACHE.load(Ordering::Acquire);
    // SAFETY: the mapping has `ENTRIES` entries and is never unmapped; zeroes are valid atomics.
    (!entries.is_null()).then(|| Cache(unsafe { &*entries.cast::<[AtomicU64; ENTRIES]>() }))
}

/// The mapped cache.
#[derive(Clone, Copy, Debug)]
pub struct Cache(&'static [AtomicU64; ENTRIES]);

impl Cache {
    /// Returns the bits of the cached rule of a return address; a number of more than
    /// [`Rule::BITS`] bits if there is none.
    #[inline(always)]
    pub fn bits(self, return_address: u64) -> u64 {
        // If the address is the same, all bits of the entry except the rule cancel; otherwise some
        // remain.
        self.entry(return_address).load(Ordering::Relaxed) ^ address_tag(return_address)
    }

    /// Returns the cached rule of a return address.
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

/// Computes the rule of a return address and caches it. `None` if no module covers the address, or
/// the module could not be announced: then nothing is cached, because that may be different later.
#[cold]
#[inline(never)]
pub fn compute(return_address: u64, sink: &mut dyn Sink) -> Option<Rule> {
    let lookup = return_address.wrapping_sub(1);
    let epoch = modules::epoch();
    let module = modules::find(lookup)?;
    if !modules::announce(&module, epoch, sink) {
        return None;
    }
    let rule = evaluate(lookup, &module).unwrap_or(Rule::UNSUPPORTED);
    if let Some(cache) = cache() {
        let entry = cache.entry(return_address);
        note_written(return_address);
        entry.store(address_tag(return_address) ^ u64::from(rule.bits()), Ordering::Relaxed);
        // If the epoch has advanced meanwhile, the entry may belong to a module that was unloaded:
        // clear it.
        core::sync::atomic::fence(Ordering::SeqCst);
        if modules::epoch() != epoch {
            entry.store(0, Ordering::Relaxed);
        }
    }
    Some(rule)
}

/// Returns the number of bytes of memory that the cache takes in this process: only written pages
/// count.
pub fn bytes() -> u64 {
    WRITTEN.iter().map(|pages| u64::from(pages.load(Ordering::Relaxed).count_ones()) * PAGE).sum()
}

/// Resets the count in a forked child, which shares with its parent the pages that it does not
/// write.
pub fn start_child() {
    WRITTEN.iter().for_each(|pages| pages.store(0, Ordering::Relaxed));
}

/// Notes that the entry of this address is about to be written.
fn note_written(return_address: u64) {
    let page = return_address as usize % ENTRIES * 8 / PAGE as usize;
    if let Some(pages) = WRITTEN.get(page / 64) {
        pages.fetch_or(1 << (page % 64), Ordering::Relaxed);
    }
}

#[inline(always)]
const fn address_tag(return_address: u64) -> u64 {
    return_address << 16 ^ PRESENT
}

/// Searches `.eh_frame_hdr` for the description of an address, and evaluates the row of the
/// address.
fn evaluate(lookup: u64, module: &modules::FoundModule) -> Option<Rule> {
    let bytes = |from: u64| {
        // SAFETY: the dynamic linker says that this module is mapped up to `end` and that its
        // unwind information starts at `from`, inside it. The module cannot be unloaded while one
        // of its functions is on our stack; if the stack is wrong and it is unloaded all the same,
        // this read has the same risk as every C++ throw. The header and the frames are in one
        // read-only segment in practice; we read no further than the lengths found there say.
        unsafe {
            core::slice::from_raw_parts(ptr::with_exposed_provenance::<u8>(from as usize), (module.end - from) as usize)
        }
    };
    if module.eh_frame_hdr < module.start || module.eh_frame_hdr >= module.end {
        return None;
    }
    let bases = BaseAddresses::default().set_eh_frame_hdr(module.eh_frame_hdr);
    let header_bytes = bytes(module.eh_frame_hdr);
    let header = EhFrameHdr::new(header_bytes, NativeEndian).parse(&bases, 8).ok()?;
    let gimli::Pointer::Direct(frames_at) = header.eh_frame_ptr() else { return None };
    if frames_at < module.start || frames_at >= module.end {
        return None;
    }
    let bases = bases.set_eh_frame(frames_at);
    let frames: EhFrame<EndianSlice<'_, NativeEndian>> = EhFrame::new(bytes(frames_at), NativeEndian);
    let describe = |address: u64| {
        let found = match search(header_bytes, address.wrapping_sub(module.eh_frame_hdr) as i64) {
            Searched::Found(offset) => module.eh_frame_hdr.wrapping_add_signed(offset),
            Searched::Missing => return None,
            Searched::Unable => header.table()?.lookup(address, &bases).ok()?.direct().ok()?,
        };
        let offset = EhFrameOffset(usize::try_from(found.checked_sub(frames_at)?).ok()?);
        frames
            .fde_from_offset(&bases, offset, EhFrame::cie_from_offset)
            .ok()
            .filter(|description| description.contains(address))
    };
    let Some(description) = describe(lookup) else {
        // Nothing calls from just before a function: the function's address was stored for the
        // outermost frame to return to, as `makecontext` does with `__start_context`.
        let is_start = |address: u64| describe(address).is_some_and(|next| next.initial_address() == address);
        return is_start(lookup.wrapping_add(1)).then_some(Rule::END);
    };
    let encoding = Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 5 };
    let is_signal = description.is_signal_trampoline();
    let row = Row::at(lookup, &description, &frames, &bases)?;
    Some(Rule::from_row(&row, is_signal, &frames, encoding))
}

/// The result of [`search`].
enum Searched {
    /// The offset of the description from the start of the header.
    Found(i64),
    Missing,
    /// The table is not in the usual form.
    Unable,
}

/// Searches the table of `.eh_frame_hdr` for the description that may cover an address, given as an
/// offset from the start of the header. Reads only the form that all linkers write: sorted pairs of
/// 32-bit offsets from that start, of a function and of its description. Source: LSB core
/// specification, "Exception frames".
fn search(header: &[u8], wanted: i64) -> Searched {
    const STANDARD: [u8; 4] =
        [1, gimli::DW_EH_PE_pcrel.0 | SDATA4, gimli::DW_EH_PE_udata4.0, gimli::DW_EH_PE_datarel.0 | SDATA4];
    const SDATA4: u8 = gimli::DW_EH_PE_sdata4.0;
    let Some((head, table)) = header.split_at_checked(12).filter(|(head, _)| head.starts_with(&STANDARD)) else {
        return Searched::Unable;
    };
    let count = head.last_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes)) as usize;
    let (entries, _) = table.as_chunks::<8>();
    let entries = entries.get(..count).unwrap_or(entries);
    let half = |entry: &[u8; 8], at: usize| i64::from((u64::from_ne_bytes(*entry) >> (32 * at)) as i32);
    let after = entries.partition_point(|entry| half(entry, 0) <= wanted);
    match after.checked_sub(1).and_then(|index| entries.get(index)) {
        Some(entry) => Searched::Found(half(entry, 1)),
        None => Searched::Missing,
    }
}
