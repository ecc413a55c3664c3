//! Computes rules from `.eh_frame`, when they are first needed.

use core::ptr;
use core::sync::atomic::{Ordering, fence};

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, EhFrameOffset, Encoding, EndianSlice, NativeEndian, UnwindSection};

use crate::arch::Rule;
use crate::row::Row;
use crate::{Sink, generated, modules, rules};

/// Computes the rule of a return address and caches it. `None` if nothing is known about the
/// address, or its module could not be announced: then nothing is cached, because that may be
/// different later.
#[cold]
#[inline(never)]
pub(crate) fn compute(return_address: u64, sink: &mut dyn Sink) -> Option<Rule> {
    let lookup = return_address.wrapping_sub(1);
    let epoch = modules::epoch();
    let rule = if let Some(module) = modules::find(lookup) {
        if !modules::announce(&module, epoch, sink) {
            return None;
        }
        evaluate(lookup, &module).unwrap_or_else(|| generated::rule_without_information(&module))
    } else {
        generated::compute(return_address, epoch, sink)?
    };
    if let Some(cache) = rules::cache().filter(|_| rule != Rule::NOT_CODE) {
        cache.put(return_address, rule);
        // If the epoch has advanced meanwhile, the entry may belong to a module that was unloaded:
        // clear it.
        fence(Ordering::SeqCst);
        if modules::epoch() != epoch {
            cache.take(return_address);
        }
    }
    Some(rule)
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
