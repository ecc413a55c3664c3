//! The modules of this process, by the C library's list of them, and the notes in them.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::slice;

use crate::forks;

/// Visits all modules, the executable first, with the C library's description of each and its
/// program headers. The modules stay mapped during a call of `visit`. The dynamic linker's lock is
/// held and forks are blocked meanwhile, so `visit` must not wait for a thread that may load a
/// library or fork.
pub fn each(mut visit: impl FnMut(&libc::dl_phdr_info, &[libc::Elf64_Phdr])) {
    /// # Safety
    ///
    /// `info` is the C library's description of a module, which stays mapped during the call, and
    /// `visit` is the address of an `F` that nobody else uses meanwhile.
    unsafe extern "C" fn one<F: FnMut(&libc::dl_phdr_info, &[libc::Elf64_Phdr])>(
        info: *mut libc::dl_phdr_info,
        _: usize,
        visit: *mut c_void,
    ) -> c_int {
        // SAFETY: by this function's `# Safety` `visit` is live and used by nobody else, and `info`
        // describes a module. That stays mapped during this call, as `headers` requires.
        unsafe { (*visit.cast::<F>())(&*info, headers(&*info)) };
        0
    }

    fn callback<F: FnMut(&libc::dl_phdr_info, &[libc::Elf64_Phdr])>(
        _: &F,
    ) -> unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int {
        one::<F>
    }

    let callback = callback(&visit);
    // SAFETY: `dl_iterate_phdr` requires a callback that may be called with `data`. `callback` is
    // `one` for the type of `visit`, of which `data` is the address, and nothing else uses `visit`
    // during the call.
    without_forks(|| unsafe { libc::dl_iterate_phdr(Some(callback), (&raw mut visit).cast()) });
}

/// Calls a function that reads the dynamic linker's list, while no thread can fork: a forked child
/// would have the list's lock as it is, held by a thread that does not exist in the child.
pub fn without_forks<R>(run: impl FnOnce() -> R) -> R {
    let _no_fork = forks::block();
    run()
}

/// # Safety
///
/// `info` is the C library's description of a module, and the module stays mapped as long as the
/// result is used.
unsafe fn headers(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    if info.dlpi_phdr.is_null() {
        return &[];
    }
    // SAFETY: `from_raw_parts` requires `dlpi_phnum` aligned headers that stay as they are as long
    // as the result. By this function's `# Safety` they are the module's, in its memory; null was
    // excluded above.
    unsafe { slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) }
}

/// True if the `length` bytes at `start`, in the module's own addresses, are loaded from its file.
pub fn is_loaded(headers: &[libc::Elf64_Phdr], start: u64, length: u64) -> bool {
    headers.iter().any(|load| {
        load.p_type == libc::PT_LOAD
            && start >= load.p_vaddr
            && start.checked_add(length).is_some_and(|end| end <= load.p_vaddr + load.p_filesz)
    })
}

/// Returns the notes of a module that are in memory, by segment: the address, the bytes and the
/// alignment of each.
///
/// # Safety
///
/// The module stays mapped, as its headers say, while the returned bytes are in use.
pub unsafe fn notes(bias: u64, headers: &[libc::Elf64_Phdr]) -> impl Iterator<Item = (usize, &[u8], u64)> {
    let notes = headers.iter().filter(|header| header.p_type == libc::PT_NOTE);
    notes.filter(|header| is_loaded(headers, header.p_vaddr, header.p_memsz)).map(move |header| {
        let start = bias.wrapping_add(header.p_vaddr) as usize;
        // SAFETY: within a segment that is loaded from the file, by the caller's contract, and that
        // nobody writes.
        let bytes =
            unsafe { slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(start), header.p_memsz as usize) };
        (start, bytes, header.p_align)
    })
}

/// Returns the ranges in a segment of the contents of notes with this name and kind.
pub fn contents(notes: &[u8], alignment: u64, wanted_name: &[u8], wanted_kind: u32) -> Vec<Range<usize>> {
    let round = |length: usize| length.next_multiple_of(if alignment == 8 { 8 } else { 4 });
    let word = |at: usize| Some(u32::from_le_bytes(notes.get(at..at + 4)?.try_into().ok()?));
    let mut found = Vec::new();
    let mut at = 0;
    while let (Some(name), Some(length), Some(kind)) = (word(at), word(at + 4), word(at + 8)) {
        let (name, length) = (name as usize, length as usize);
        let begin = at + 12;
        // Lengths are below 2³²: sums do not wrap around.
        let content = at + round(12 + name);
        let is_wanted = kind == wanted_kind && notes.get(begin..begin + name) == Some(wanted_name);
        if is_wanted && content + length <= notes.len() {
            found.push(content..content + length);
        }
        at = round(content + length);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_within_their_bounds() {
        /// After a note of 36 bytes, and a head and a name of 20.
        const CONTENT: usize = 36 + 20;
        let note = |name: &[u8], kind: u32, content: &[u8]| {
            let mut note = Vec::new();
            note.extend((name.len() as u32).to_le_bytes());
            note.extend((content.len() as u32).to_le_bytes());
            note.extend(kind.to_le_bytes());
            note.extend(name);
            note.resize(note.len().next_multiple_of(4), 0);
            note.extend(content);
            note.resize(note.len().next_multiple_of(4), 0);
            note
        };
        let notes = [note(b"GNU\0", 3, &[1; 20]), note(b"Ours\0", 1, &[7; 8]), note(b"Ours\0", 9, &[0; 8])];
        let notes = notes.concat();
        let found = |notes: &[u8]| contents(notes, 4, b"Ours\0", 1);
        assert_eq!(found(&notes).first(), Some(&(CONTENT..CONTENT + 8)));
        for length in 0..notes.len() {
            assert_eq!(found(&notes[..length]).len(), usize::from(length >= CONTENT + 8), "{length}");
        }
        let mut damaged = notes.clone();
        damaged[..4].fill(0xff);
        assert!(found(&damaged).is_empty());
    }
}
