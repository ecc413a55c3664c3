//! The dynamic types of C++ objects, by their vtables.

use std::collections::HashMap;
use std::fmt;

use heapledger_core::{Blocks, Bytes, sys};

use crate::block::LiveBlocks;
use crate::maps::{Maps, VtableSymbols};
use crate::table::{self, Row};

/// The number of blocks that are read at a time.
const BATCH: usize = 1024;
/// The maximal distance between an object's beginning and the part whose vtable it is.
const OFFSET_MAX: u64 = 1 << 24;
/// The number of bytes of a type's name that are read, at most.
const NAME_MAX: usize = 4096;

/// Live blocks of one dynamic type.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DynamicType {
    /// The type, `app::Circle`; for an array, the type of its elements in brackets:
    /// `[app::Circle]`.
    pub name: String,
    /// The number of live blocks; an estimate in a sampled ledger.
    pub blocks: Blocks,
    /// Their requested bytes; an estimate in a sampled ledger.
    pub bytes: Bytes,
}

/// The live blocks that hold C++ objects, by type: see
/// [`Ledger::census_by_vtable`](crate::Ledger::census_by_vtable).
///
/// A block counts as an object if its first word is the address of a vtable: the vtable leads to a
/// module of the program with the type's own description or, in programs without run-time type
/// information (`-fno-rtti`), to a symbol that names the type. An array of objects begins with
/// their number, and is recognised by its second word. The type is that of the most derived object,
/// as far as the object has been constructed: the census may find a base class while a constructor
/// runs. Blocks from `std::make_shared` are recognised too, whatever they hold. Objects that begin
/// with something else are not found: data of a base without virtual functions, or pools of several
/// objects.
///
/// Reads two words of each live block, through the kernel: a block that another thread frees
/// meanwhile is skipped, and no fault can occur. Takes about a microsecond for each live block, and
/// allocates; not for signal handlers.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VtableCensus {
    /// The types, by decreasing size.
    pub types: Vec<DynamicType>,
    /// The number of all live blocks, including those of no known type.
    pub blocks: Blocks,
    /// Their requested bytes.
    pub bytes: Bytes,
}

impl VtableCensus {
    pub(crate) fn of(blocks: LiveBlocks) -> VtableCensus {
        let blocks: Vec<Live> =
            blocks.map(|block| Live { address: block.address, bytes: block.size.0, weight: block.weight.0 }).collect();
        let mut census = VtableCensus::default();
        for block in &blocks {
            census.blocks.0 += block.weight;
            census.bytes.0 += block.weight * block.bytes;
        }
        let mut reader = Reader::new(Maps::of_this_process());
        let mut sums: HashMap<(u64, bool), (u64, u64)> = HashMap::new();
        let mut start = 0;
        while start < blocks.len() {
            start += reader.batch(&blocks[start..], &mut sums);
        }
        census.types = reader.named(sums);
        census
    }
}

/// Prints the table of types: blocks, bytes and their shares.
impl fmt::Display for VtableCensus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |of: fn(&DynamicType) -> u64| self.types.iter().map(of).sum::<u64>();
        let without = (self.blocks.0 - sum(|found| found.blocks.0), self.bytes.0 - sum(|found| found.bytes.0));
        let types = self.types.iter().map(|found| Row::new(&found.name, found.blocks.0, found.bytes.0));
        table::write(out, "dynamic type", types.chain([Row::new("[no vtable]", without.0, without.1)]))
    }
}

struct Live {
    address: u64,
    bytes: u64,
    weight: u64,
}

/// Determines which words are addresses of vtables.
struct Reader {
    maps: Maps,
    symbols: VtableSymbols,
    /// The words that have been looked up: the name of the type if the word is a vtable, else
    /// `None`.
    known: HashMap<u64, Option<String>>,
}

impl Reader {
    fn new(maps: Maps) -> Reader {
        Reader { maps, symbols: VtableSymbols::default(), known: HashMap::new() }
    }

    /// Adds the first blocks, and returns how many it has read.
    fn batch(&mut self, blocks: &[Live], sums: &mut HashMap<(u64, bool), (u64, u64)>) -> usize {
        let blocks = &blocks[..blocks.len().min(BATCH)];
        let addresses: Vec<u64> = blocks.iter().map(|block| block.address).collect();
        let mut words = [[0_u64; 2]; BATCH];
        let read = sys::read_own_memory(&addresses, &mut words);
        for (block, words) in blocks.iter().zip(&words).take(read) {
            let count = words[0];
            let object = if block.bytes >= 8 && self.is_vtable(words[0]) {
                Some((words[0], false))
            } else if block.bytes >= 16 && (1..=block.bytes / 8).contains(&count) && self.is_vtable(words[1]) {
                // An array: the number of elements, then the first.
                ((block.bytes - 8).is_multiple_of(count)).then_some((words[1], true))
            } else {
                None
            };
            if let Some(object) = object {
                let sum = sums.entry(object).or_default();
                sum.0 += block.weight;
                sum.1 += block.weight * block.bytes;
            }
        }
        // Skips the block that could not be read.
        (read + 1).min(blocks.len().max(1))
    }

    fn is_vtable(&mut self, word: u64) -> bool {
        if !self.maps.contains(word) || !word.is_multiple_of(8) {
            return false;
        }
        if let Some(known) = self.known.get(&word) {
            return known.is_some();
        }
        let name = self.type_at(word);
        let found = name.is_some();
        self.known.insert(word, name);
        found
    }

    /// Returns the mangled name of the type that this vtable belongs to.
    fn type_at(&mut self, vtable: u64) -> Option<String> {
        // The layout of the C++ ABI for Itanium: two words precede the functions. The first is the
        // offset of the vtable's part in the object (0 for the part at the beginning, or less if
        // that part is virtual), the second the address of the type's description.
        let [offset, description, _] = read(vtable.checked_sub(16)?)?;
        if offset != 0 && offset.wrapping_neg() > OFFSET_MAX {
            return None;
        }
        if description == 0 {
            return self.symbols.at(vtable - 16, &self.maps);
        }
        // The description is an object with a vtable of its own, followed by a pointer to the
        // type's name.
        let [own_vtable, name] = read(Some(description).filter(|&at| at.is_multiple_of(8) && self.maps.contains(at))?)?;
        if !self.maps.contains(own_vtable) || !self.maps.contains(name) {
            return None;
        }
        let name = text(name)?;
        // Names of types that are not the same in all modules begin with a star.
        let name = name.strip_prefix('*').unwrap_or(&name);
        is_mangled_type(name).then(|| name.to_owned())
    }

    fn named(&self, sums: HashMap<(u64, bool), (u64, u64)>) -> Vec<DynamicType> {
        // A type may have several vtables: one in each module that uses it.
        let mut by_name: HashMap<String, (u64, u64)> = HashMap::new();
        for ((vtable, is_array), (blocks, bytes)) in sums {
            let Some(Some(mangled)) = self.known.get(&vtable) else { continue };
            let name = demangled(mangled);
            let sum = by_name.entry(if is_array { format!("[{name}]") } else { name }).or_default();
            sum.0 += blocks;
            sum.1 += bytes;
        }
        let types = by_name.into_iter();
        let mut types: Vec<_> = types
            .map(|(name, (blocks, bytes))| DynamicType { name, blocks: Blocks(blocks), bytes: Bytes(bytes) })
            .collect();
        types.sort_by(|one, other| other.bytes.cmp(&one.bytes).then_with(|| one.name.cmp(&other.name)));
        types
    }
}

fn read<const WORDS: usize>(address: u64) -> Option<[u64; WORDS]> {
    let mut words = [[0; WORDS]];
    (sys::read_own_memory(&[address], &mut words) == 1).then_some(words[0])
}

/// Returns the text at an address.
fn text(mut address: u64) -> Option<String> {
    let mut bytes = Vec::new();
    while bytes.len() < NAME_MAX {
        // No read crosses the end of a page: the next page may not be mapped.
        let [word] = read(address & !7)?;
        let skip = (address % 8) as usize;
        for byte in word.to_le_bytes().into_iter().skip(skip) {
            match byte {
                0 => return String::from_utf8(bytes).ok(),
                b'!'..=b'~' => bytes.push(byte),
                _ => return None,
            }
        }
        address += 8 - skip as u64;
    }
    None
}

/// True if a name can be the mangled name of a class: `N3app6CircleE`, `6Circle`, `St9exception`,
/// `Z4mainE5Local`.
fn is_mangled_type(name: &str) -> bool {
    name.len() >= 2 && name.starts_with(|first: char| first.is_ascii_digit() || matches!(first, 'N' | 'S' | 'Z'))
}

#[cfg(feature = "symbols")]
fn demangled(name: &str) -> String {
    let symbol = format!("_ZTS{name}");
    let symbol = cpp_demangle::Symbol::new(&symbol).ok();
    let demangled = symbol.and_then(|symbol| symbol.demangle().ok());
    demangled
        .and_then(|text| Some(text.strip_prefix("typeinfo name for ")?.to_owned()))
        .unwrap_or_else(|| name.to_owned())
}

#[cfg(not(feature = "symbols"))]
fn demangled(name: &str) -> String {
    name.to_owned()
}
