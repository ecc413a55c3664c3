//! Redirection of definitions: the dynamic linker finds this library's functions where it would
//! have found the next ones.
//!
//! A preloaded library comes first in the global scope only. A library that is opened with
//! `RTLD_DEEPBIND` is bound to itself and its own dependencies before that, and `dlsym` with a
//! library's handle searches nothing else: both find the C library's `malloc`. So we write the
//! distance to our function into the symbol's value in the C library's symbol table (a private copy
//! of the page): any later resolution of the name leads to us, and we call the original function.
//! Bindings and scopes stay as they are, so every other name resolves as it would. The same is done
//! to the C library of a namespace (`namespaces.rs`).

use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_core::arch::{nr, syscall};
use heapledger_core::sys;

use crate::{LinkMap, Objects, Scope, Symbol, Symbols};

const PAGE: usize = 4096;
/// The maximum number of names that are redirected at once.
const NAMES_MAX: usize = 16;

/// Redirects the next definitions of these names to this library's own. Names that nobody else
/// defines are left out.
///
/// Returns false, and leaves everything as it is, unless these functions are the first definitions
/// in the program and the next ones are all in one object: otherwise another library that wraps the
/// functions comes before or behind this one, and might find us where it looks for the C library.
///
/// Must be called when the program starts, before there is a second thread, and after the next
/// definitions have been looked up.
///
/// The definitions of the library with the file name `allocator` are passed over. It must not look
/// the names up itself: it would find this library.
pub(crate) fn redirect(objects: &Objects<'_>, names: &[&CStr], allocator: &[u8]) -> bool {
    let Some(own) = objects.own().and_then(Symbols::of) else { return false };
    let mut targets: [Option<(*const Symbol, usize)>; NAMES_MAX] = [None; NAMES_MAX];
    let mut object: Option<&LinkMap> = None;
    for (target, name) in targets.iter_mut().zip(names) {
        let Some(function) = own.find(name) else { return false };
        if objects.find(Scope::All, name).map(|(address, _)| address) != Some(function) {
            return false;
        }
        let next = objects.defining(Scope::Next, name).find(|(map, ..)| map.file_name() != allocator);
        let Some((map, _, symbol)) = next else { continue };
        if object.is_some_and(|object| !core::ptr::eq(object, map)) {
            return false;
        }
        object = Some(map);
        *target = Some((symbol, function));
    }
    object.is_some_and(|object| write(object, targets.iter().flatten().copied()))
}

/// Writes the distances to these functions into the values of the given symbols of the object.
/// Returns false, and leaves everything as it is, if that is not possible.
pub(crate) fn write(object: &LinkMap, targets: impl Iterator<Item = (*const Symbol, usize)> + Clone) -> bool {
    let places = || targets.clone().map(|(symbol, _)| symbol as usize);
    let (Some(first), Some(last)) = (places().min(), places().max()) else { return false };
    let (start, end) = (first & !(PAGE - 1), (last + size_of::<Symbol>()).next_multiple_of(PAGE));
    let Some(flags) = segment_flags(object.bias as usize, start, end) else { return false };
    const READ_WRITE: usize = 1 | 2;
    // SAFETY: only pages of the symbol table, which hold no code; they can still be read, and are a
    // private mapping of a file.
    if unsafe { syscall(nr::MPROTECT, [start, end - start, READ_WRITE, 0, 0, 0]) } != 0 {
        return false;
    }
    for (symbol, function) in targets {
        // SAFETY: a symbol of the table, whose pages can be written to now; its value is an aligned
        // word, of which the dynamic linker reads either the old or the new content.
        let value = unsafe { AtomicU64::from_ptr((&raw const (*symbol).value).cast_mut()) };
        value.store((function as u64).wrapping_sub(object.bias), Ordering::Relaxed);
    }
    // SAFETY: the same pages, whose old protection is restored. If the kernel refuses, they stay
    // writable.
    unsafe { syscall(nr::MPROTECT, [start, end - start, flags, 0, 0, 0]) };
    true
}

/// Returns the protection (of mprotect(2)) of the segment that contains the range, from the
/// object's program headers; `None` if these are not at its beginning, or the range is not within
/// one segment that cannot be written to.
fn segment_flags(bias: usize, start: usize, end: usize) -> Option<usize> {
    const LOAD: u32 = 1;
    const EXECUTE: u32 = 1;
    const WRITE: u32 = 2;
    const READ: u32 = 4;
    const HEADER: usize = 56;
    if bias == 0 || !bias.is_multiple_of(PAGE) || !sys::is_readable(bias) {
        return None;
    }
    let word = |offset: usize| {
        // SAFETY: within the first page of a mapping, which was found readable; aligned, because
        // every offset below is a multiple of 8.
        unsafe { core::ptr::with_exposed_provenance::<u64>(bias + offset).read_volatile() }
    };
    // The magic number, 64 bits, little-endian.
    if word(0) & 0xffff_ffff_ffff != 0x0102_464c_457f {
        return None;
    }
    let headers = word(32) as usize;
    let (header, count) = ((word(48) >> 48) as u16 as usize, word(56) as u16 as usize);
    if header != HEADER || !headers.is_multiple_of(8) || headers.checked_add(count * HEADER)? > PAGE {
        return None;
    }
    (0..count).map(|index| headers + index * HEADER).find_map(|at| {
        let (kind, flags) = (word(at) as u32, (word(at) >> 32) as u32);
        let from = bias.wrapping_add(word(at + 16) as usize);
        let to = from.wrapping_add(word(at + 40) as usize).checked_next_multiple_of(PAGE)?;
        let is_it = kind == LOAD && flags & READ != 0 && flags & WRITE == 0 && from <= start && end <= to;
        is_it.then_some(1 | if flags & EXECUTE != 0 { 4 } else { 0 })
    })
}
