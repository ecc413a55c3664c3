//! The mapped files of this process, from the kernel's list, and the vtables among their symbols.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::ops::Range;

use crate::symbol_tables::{self, ElfFile};

/// The number of bytes of a file that are searched for symbols, at most.
const FILE_MAX: u64 = 1 << 30;

/// The mapped parts of executables and shared libraries, in order of address.
pub(crate) struct Maps(Vec<MappedRange>);

struct MappedRange {
    addresses: Range<u64>,
    /// The file that is mapped; `None` for the zero-initialised memory that follows a file's part.
    file: Option<Mapped>,
}

#[derive(Clone)]
struct Mapped {
    path: String,
    offset: u64,
}

impl Maps {
    pub(crate) fn of_this_process() -> Maps {
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        Maps::parse(&maps)
    }

    fn parse(maps: &str) -> Maps {
        let mut parts: Vec<MappedRange> = Vec::new();
        for line in maps.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(range), Some(rights), Some(offset)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let number = |text: &str| u64::from_str_radix(text, 16).ok();
            let Some((start, end)) =
                range.split_once('-').and_then(|(start, end)| Some((number(start)?, number(end)?)))
            else {
                continue;
            };
            let path = words.nth(2).map(|_| line.get(line.find('/').unwrap_or(line.len())..).unwrap_or_default());
            let file =
                path.filter(|path| path.starts_with('/') && !path.starts_with("/dev/") && !path.starts_with("/memfd:"));
            let follows = parts.last().is_some_and(|last| last.addresses.end == start && last.file.is_some());
            if !rights.starts_with('r') || file.is_none() && (path.is_some() || !follows) {
                continue;
            }
            let file = file.zip(number(offset)).map(|(path, offset)| Mapped { path: path.to_owned(), offset });
            parts.push(MappedRange { addresses: start..end, file });
        }
        Maps(parts)
    }

    /// True if a module is mapped at the address. Also true for other files that are mapped.
    pub(crate) fn contains(&self, address: u64) -> bool {
        self.part(address).is_some()
    }

    fn part(&self, address: u64) -> Option<&MappedRange> {
        let after = self.0.partition_point(|part| part.addresses.start <= address);
        let part = self.0.get(after.checked_sub(1)?)?;
        part.addresses.contains(&address).then_some(part)
    }
}

/// Vtables by the symbols of the files that have them. A file is read when it is first needed.
#[derive(Default)]
pub(crate) struct VtableSymbols(HashMap<String, Vtables>);

/// Vtables by their offsets in the file: their lengths, and the mangled names of the types.
type Vtables = BTreeMap<u64, (u64, String)>;

impl VtableSymbols {
    /// Returns the mangled name of the type whose vtable contains an address.
    pub(crate) fn at(&mut self, address: u64, maps: &Maps) -> Option<String> {
        let part = maps.part(address)?;
        let file = part.file.as_ref()?;
        let offset = address - part.addresses.start + file.offset;
        if !self.0.contains_key(&file.path) {
            self.0.insert(file.path.clone(), read(&file.path).unwrap_or_default());
        }
        let (start, (length, name)) = self.0.get(&file.path)?.range(..=offset).next_back()?;
        (offset - start < *length).then(|| name.clone())
    }
}

/// Reads the vtables of an ELF file.
fn read(path: &str) -> Option<Vtables> {
    let is_small = fs::metadata(path).ok()?.len() <= FILE_MAX;
    let file = is_small.then(|| ElfFile::open(path).ok())??;
    let mut found = Vtables::new();
    for table in file.tables(&[symbol_tables::ALL, symbol_tables::DYNAMIC], FILE_MAX).ok()? {
        for symbol in table.symbols(symbol_tables::OBJECT) {
            let name = symbol_tables::name(&table.names, symbol.name).unwrap_or_default();
            let Some(name) = name.strip_prefix(b"_ZTV") else { continue };
            if let (Ok(name), Some(offset)) = (std::str::from_utf8(name), file.offset_of(symbol.address)) {
                found.insert(offset, (symbol.length, name.to_owned()));
            }
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_modules_and_no_others() {
        let maps = "\
55e000-55f000 r--p 00000000 08:01 17 /usr/bin/a program
55f000-560000 r-xp 00001000 08:01 17 /usr/bin/a program
560000-561000 rw-p 00002000 08:01 17 /usr/bin/a program
561000-562000 rw-p 00000000 00:00 0 
600000-700000 rw-p 00000000 00:00 0 [heap]
7f0000-7f1000 rw-s 00000000 00:05 9 /dev/shm/x
7f2000-7f3000 ---p 00000000 08:01 18 /usr/lib/l.so
7f4000-7f5000 rw-p 00000000 00:00 0 
";
        let maps = Maps::parse(maps);
        let inside = [0x55e000, 0x55f010, 0x560fff, 0x561000];
        let outside = [0, 0x562000, 0x600000, 0x7f0000, 0x7f2000, 0x7f4000, u64::MAX];
        assert!(inside.into_iter().all(|address| maps.contains(address)));
        assert!(!outside.into_iter().any(|address| maps.contains(address)));
        let file = maps.part(0x560010).unwrap().file.clone().unwrap();
        assert_eq!((&*file.path, file.offset), ("/usr/bin/a program", 0x2000));
    }

    #[test]
    fn a_damaged_file_has_no_symbols() {
        let scratch = std::env::temp_dir().join(format!("heapledger-modules-{}", std::process::id()));
        for bytes in crate::testing::damaged_programs() {
            fs::write(&scratch, bytes).unwrap();
            let _ = read(scratch.to_str().unwrap());
        }
        fs::remove_file(scratch).unwrap();
    }
}
