//! The preload library for programs with musl.
//!
//! It is the same library, without what musl's dynamic linker does not know: the relocation by
//! which glibc's calls a function of ours while it loads the library
//! (`hook/preload/src/redirect.rs`).

use std::path::Path;

/// The usual path of musl's dynamic linker.
const LINKER: &str = "/lib/ld-musl-x86_64.so.1";

/// True if there are programs with musl here: then [`record`](crate::record) records them.
pub fn is_installed() -> bool {
    Path::new(LINKER).exists()
}

/// Returns the library without its relocations of indirect functions. `None` if the file is not a
/// 64-bit shared library whose tables are within it.
///
/// Source: System V gABI (section headers, relocations); psABI for x86-64, whose
/// `R_X86_64_IRELATIVE` is 37 and `R_X86_64_NONE` is 0.
pub(crate) fn for_musl(library: &[u8]) -> Option<Vec<u8>> {
    const SECTIONS_AT: usize = 40;
    const SECTION_LENGTH: usize = 64;
    const SHT_RELA: u32 = 4;
    const RELOCATION_LENGTH: usize = 24;
    const IRELATIVE: u32 = 37;
    let half = |at: usize| Some(u16::from_le_bytes(library.get(at..at.checked_add(2)?)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_le_bytes(library.get(at..at.checked_add(4)?)?.try_into().ok()?));
    let address = |at: usize| {
        let bytes = library.get(at..at.checked_add(8)?)?.try_into().ok()?;
        usize::try_from(u64::from_le_bytes(bytes)).ok()
    };
    if !library.starts_with(b"\x7fELF\x02") || usize::from(half(58)?) != SECTION_LENGTH {
        return None;
    }
    let mut made = library.to_vec();
    let sections = address(SECTIONS_AT)?;
    for index in 0..usize::from(half(60)?) {
        let section = sections.checked_add(index * SECTION_LENGTH)?;
        library.get(section..section.checked_add(SECTION_LENGTH)?)?;
        if word(section.checked_add(4)?)? != SHT_RELA {
            continue;
        }
        let (start, length) = (address(section.checked_add(24)?)?, address(section.checked_add(32)?)?);
        let table = made.get_mut(start..start.checked_add(length)?)?;
        for relocation in table.chunks_exact_mut(RELOCATION_LENGTH) {
            let kind = relocation.get_mut(8..12)?;
            if kind == IRELATIVE.to_le_bytes() {
                kind.fill(0);
            }
        }
    }
    Some(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a file with one table of relocations: of a relative address, and of an indirect
    /// function.
    fn library() -> Vec<u8> {
        let mut file = vec![0; 64 + 48 + 64];
        file[..5].copy_from_slice(b"\x7fELF\x02");
        file[40] = 64 + 48;
        (file[58], file[60]) = (64, 1);
        (file[64 + 8], file[64 + 24 + 8]) = (8, 37);
        let section = 64 + 48;
        (file[section + 4], file[section + 24], file[section + 32]) = (4, 64, 48);
        file
    }

    #[test]
    fn indirect_functions_are_removed() {
        let library = library();
        let mut expected = library.clone();
        expected[64 + 24 + 8] = 0;
        assert_eq!(for_musl(&library), Some(expected));
    }

    #[test]
    fn damaged_files_are_refused() {
        let library = library();
        for length in 0..library.len() {
            assert_eq!(for_musl(&library[..length]), None, "{length}");
        }
        for at in 0..library.len() {
            let mut damaged = library.clone();
            damaged[at] = 0xff;
            for_musl(&damaged);
        }
    }
}
