//! Data of programs and libraries that begin as zeroes (`.bss`): memory without a file, behind the
//! pages of the file's data.

use std::ops::Range;

use object::{Object, ObjectSegment, ReadCache};

use crate::pages::PAGE;
use crate::process::{Elf, open_file};
use crate::smaps::SystemMapping;

/// Returns the addresses of such data, with the path of the file, ascending. They are a part of
/// nameless mappings, which other memory may have made longer: the headers of the file say where
/// they end.
pub(crate) fn find(process: u32, mappings: &[SystemMapping]) -> Vec<(Range<u64>, String)> {
    let mut found: Vec<(Range<u64>, String)> = Vec::new();
    let mut first: Option<&SystemMapping> = None;
    for (mapping, next) in mappings.iter().zip(mappings.iter().skip(1)) {
        if mapping.name.starts_with('/') && first.is_none_or(|first| first.name != mapping.name) {
            first = Some(mapping);
        }
        let is_file = mapping.name.starts_with('/') && mapping.is_writable && !mapping.is_shared;
        let follows = next.name.is_empty() && next.is_writable && next.addresses.start == mapping.addresses.end;
        if let Some(first) = first.filter(|_| is_file && follows) {
            let end = end_of_memory(process, first).unwrap_or(0).min(next.addresses.end);
            if end > next.addresses.start {
                found.push((next.addresses.start..end, mapping.name.clone()));
            }
        }
    }
    found
}

/// Returns the address behind the memory of a program or library, rounded up to a page, by its
/// headers. `first` is its first mapping. `None` if the file cannot be read.
fn end_of_memory(process: u32, first: &SystemMapping) -> Option<u64> {
    let path = first.name.strip_suffix(" (deleted)").unwrap_or(&first.name);
    // The path is the process's own view of it, which may be in a container.
    let cache = ReadCache::new(open_file(&format!("/proc/{process}/root{path}"))?);
    let elf = Elf::parse(&cache).ok()?;
    let start = elf.segments().map(|segment| segment.address()).min()?;
    let end = elf.segments().map(|segment| segment.address().saturating_add(segment.size())).max()?;
    let length = end.checked_sub(start / PAGE * PAGE)?;
    first.addresses.start.checked_add(length)?.checked_next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smaps;

    /// A static of zeroes, of some pages.
    static ZEROES: [std::sync::atomic::AtomicU8; 64 << 10] = [const { std::sync::atomic::AtomicU8::new(0) }; 64 << 10];

    #[test]
    fn data_of_zeroes_of_this_program() {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let found = find(std::process::id(), &smaps::parse(&smaps));
        let middle = ZEROES[32 << 10].as_ptr().expose_provenance() as u64;
        let own = found.iter().find(|(range, _)| range.contains(&middle)).unwrap_or_else(|| panic!("{found:?}"));
        assert!(own.1.contains("resident"), "{own:?}");
        let heap = Box::into_raw(Box::new(1_u8));
        assert!(!found.iter().any(|(range, _)| range.contains(&(heap as u64))), "{found:?}");
        // SAFETY: the pointer is that of the box.
        drop(unsafe { Box::from_raw(heap) });
    }
}
