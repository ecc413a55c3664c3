//! Computes rules from `.eh_frame`, when they are first needed.

use core::ptr;
use core::sync::atomic::{Ordering, fence};

use gimli::{
    BaseAddresses, EhFrame, EhFrameHdr, EhFrameOffset, Encoding, EndianSlice, NativeEndian, ParsedEhFrameHdr,
    UnwindSection,
};
use heapledger_wire::module_table;

use crate::arch::Rule;
use crate::generated::{self, Generated};
use crate::modules::FoundModule;
use crate::row::{Description, Row};
use crate::supplied::{self, Answer, Question, SuppliedModule};
use crate::{Sink, modules, rules};

/// Computes the rule of a return address and caches it. `None` if nothing is known about the
/// address, or its module could not be announced: then nothing is cached, because that may be
/// different later.
#[cold]
#[inline(never)]
pub(crate) fn compute(return_address: u64, sink: &mut dyn Sink) -> Option<Rule> {
    let lookup = return_address.wrapping_sub(1);
    let epoch = modules::epoch();
    let rule = if let Some(module) = modules::find(lookup) {
        rule_in_module(lookup, &module, epoch, sink)?
    } else {
        match generated::compute(return_address, epoch, sink)? {
            Generated::Rule(rule) => rule,
            Generated::Module => rule_in_module(lookup, &modules::find(lookup)?, epoch, sink)?,
        }
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

/// Returns the rule of an address in a module, and announces the module. `None` if that failed.
fn rule_in_module(lookup: u64, module: &FoundModule, epoch: u32, sink: &mut dyn Sink) -> Option<Rule> {
    if !modules::announce(module, epoch, sink) {
        return None;
    }
    if let Some(rule) = evaluate(lookup, module) {
        return Some(rule);
    }
    let without = generated::rule_without_information(module);
    if without != Rule::UNSUPPORTED {
        return Some(without);
    }
    // Another module than ours, if the table came after it was found. Without a rule here, the tool
    // is not asked again once it has made rules from the module's code.
    let in_table = || {
        let supplied = supplied::find(lookup)?;
        let (generated, keeps_frame_pointers) = (supplied.record.generated, supplied.record.keeps_frame_pointers);
        let otherwise = match (generated.pairs != 0, keeps_frame_pointers != 0) {
            (true, _) => Some(without),
            // Like generated code: without proof, and the frame says so.
            (false, true) => Some(Rule::FRAME_POINTER),
            (false, false) => None,
        };
        evaluate(lookup, &FoundModule::from_table(supplied)).or(otherwise)
    };
    if let Some(rule) = in_table() {
        return Some(rule);
    }
    let question =
        Question { address: lookup, key: module.start, is_known: || in_table().is_some(), epoch: modules::epoch };
    match supplied::ask(question, sink) {
        Answer::Known => Some(in_table().unwrap_or(without)),
        Answer::Unknown => Some(without),
        Answer::Later => None,
    }
}

/// Returns the rule that was generated from the code at an address.
fn generated_rule(lookup: u64) -> Option<Rule> {
    let supplied = supplied::find(lookup)?;
    let generated = Frames::generated(&supplied)?;
    let lookup = lookup.wrapping_sub(supplied.record.start);
    let description = generated.describe(lookup)?;
    generated.rule(lookup, &description)
}

/// Searches the unwind information of a module for the description of an address, and evaluates the
/// row of the address.
fn evaluate(lookup: u64, module: &FoundModule) -> Option<Rule> {
    let own = Frames::of_header(module);
    if let Some((own, description)) = own.as_ref().and_then(|own| Some((own, own.describe(lookup)?))) {
        return own.rule(lookup, &description);
    }
    let supplied = module.supplied();
    let found = supplied.and_then(|supplied| Frames::of_section(module, supplied));
    if let Some((found, description)) = found.as_ref().and_then(|found| Some((found, found.describe(lookup)?))) {
        return found.rule(lookup, &description);
    }
    if let Some(rule) = supplied.and_then(|_| generated_rule(lookup)) {
        return Some(rule);
    }
    // Nothing calls from just before a function: the function's address was stored for the
    // outermost frame to return to, as `makecontext` does with `__start_context`.
    let next = lookup.wrapping_add(1);
    let is_start = |frames: &Frames<'_>| frames.describe(next).is_some_and(|at| at.initial_address() == next);
    (own.as_ref().is_some_and(is_start) || found.as_ref().is_some_and(is_start)).then_some(Rule::END)
}

type Bytes<'module> = EndianSlice<'module, NativeEndian>;

/// An `.eh_frame` of a module, and a way to find descriptions in it.
struct Frames<'module> {
    section: EhFrame<Bytes<'module>>,
    bases: BaseAddresses,
    index: Index<'module>,
}

/// A way to find the description of an address.
enum Index<'module> {
    /// The module's `.eh_frame_hdr`.
    Header { bytes: &'module [u8], at: u64, frames_at: u64, header: ParsedEhFrameHdr<Bytes<'module>> },
    /// Pairs of offsets, the first of which is counted from `start`.
    Pairs { pairs: &'module [[u8; 8]], start: u64 },
}

impl<'module> Frames<'module> {
    /// Returns the information behind the module's `.eh_frame_hdr`.
    fn of_header(module: &'module FoundModule) -> Option<Frames<'module>> {
        if module.eh_frame_hdr < module.start || module.eh_frame_hdr >= module.end {
            return None;
        }
        let at = module.eh_frame_hdr;
        // SAFETY: the dynamic linker, the program's headers or the tool say that this module is
        // mapped up to `end` and that its unwind information starts here, inside it. The module
        // cannot be unloaded while one of its functions is on our stack; if the stack is wrong and
        // it is unloaded all the same, this read has the same risk as every C++ throw. The header
        // and the frames are in one read-only segment in practice; we read no further than the
        // lengths found there say.
        let bytes = unsafe { bytes(at, module.end - at) };
        let bases = BaseAddresses::default().set_eh_frame_hdr(at);
        let header = EhFrameHdr::new(bytes, NativeEndian).parse(&bases, 8).ok()?;
        let gimli::Pointer::Direct(frames_at) = header.eh_frame_ptr() else { return None };
        if frames_at < module.start || frames_at >= module.end {
            return None;
        }
        Some(Frames {
            // SAFETY: as for the header, in whose segment the frames are.
            section: EhFrame::new(unsafe { self::bytes(frames_at, module.end - frames_at) }, NativeEndian),
            bases: bases.set_eh_frame(frames_at),
            index: Index::Header { bytes, at, frames_at, header },
        })
    }

    /// Returns the module's `.eh_frame` that has no header, with the index that was supplied.
    fn of_section(module: &'module FoundModule, supplied: &'module SuppliedModule) -> Option<Frames<'module>> {
        let index = supplied.record.found;
        let (at, end) = (index.frames_at, index.frames_at.checked_add(index.frames_length)?);
        if index.pairs == 0 || at < module.start || end > module.end {
            return None;
        }
        // SAFETY: the tool has read in the module's file that this part of it is `.eh_frame`, which
        // is loaded with it; as in `of_header`, the module is not unloaded meanwhile.
        let section = EhFrame::new(unsafe { bytes(at, index.frames_length) }, NativeEndian);
        let bases = BaseAddresses::default().set_eh_frame(at);
        Some(Frames { section, bases, index: Index::Pairs { pairs: supplied.pairs(&index), start: module.start } })
    }

    /// Returns the information that was generated from the module's code: all addresses in it are
    /// offsets from the start of the module.
    fn generated(supplied: &'module SuppliedModule) -> Option<Frames<'module>> {
        let pairs = supplied.pairs(&supplied.record.generated);
        let section = EhFrame::new(supplied.generated_frames(), NativeEndian);
        let bases = BaseAddresses::default().set_eh_frame(0);
        (!pairs.is_empty()).then_some(Frames { section, bases, index: Index::Pairs { pairs, start: 0 } })
    }

    /// Returns the description that covers an address.
    fn describe(&self, address: u64) -> Option<Description<'module>> {
        let offset = match &self.index {
            Index::Header { bytes, at, frames_at, header } => {
                let found = match search(bytes, address.wrapping_sub(*at) as i64) {
                    Searched::Found(offset) => at.wrapping_add_signed(offset),
                    Searched::Missing => return None,
                    Searched::Unable => header.table()?.lookup(address, &self.bases).ok()?.direct().ok()?,
                };
                usize::try_from(found.checked_sub(*frames_at)?).ok()?
            }
            Index::Pairs { pairs, start } => module_table::search(pairs, address.checked_sub(*start)?)? as usize,
        };
        self.section
            .fde_from_offset(&self.bases, EhFrameOffset(offset), EhFrame::cie_from_offset)
            .ok()
            .filter(|description| description.contains(address))
    }

    /// Returns the rule that a description has for an address.
    fn rule(&self, address: u64, description: &Description<'_>) -> Option<Rule> {
        let encoding = Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 5 };
        let row = Row::at(address, description, &self.section, &self.bases)?;
        Some(Rule::from_row(&row, description.is_signal_trampoline(), &self.section, encoding))
    }
}

/// Returns the memory of a module.
///
/// # Safety
///
/// The range is mapped, and neither changes nor is unmapped while the result is used.
unsafe fn bytes<'module>(start: u64, length: u64) -> &'module [u8] {
    // SAFETY: `from_raw_parts` requires memory that is readable and does not change meanwhile: this
    // function's `# Safety` says so.
    unsafe { core::slice::from_raw_parts(ptr::with_exposed_provenance(start as usize), length as usize) }
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
