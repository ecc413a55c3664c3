//! The functions of the program by the symbol tables of its files. Debug information may name a
//! function without the modules and types that it is in; its symbol has them.

use std::collections::HashMap;
use std::io;

use backtrace::SymbolName;

use crate::Module;
use crate::symbol_tables::{self, ElfFile};

/// Bytes of a symbol table, or of its names, that are read.
const TABLE_MAX: u64 = 1 << 28;

/// Names of functions by their symbols. A file is read when it is first needed, and not kept beyond
/// this.
#[derive(Debug, Default)]
pub struct FunctionNames(HashMap<String, Table>);

/// The functions of a file.
#[derive(Debug, Default)]
struct Table {
    /// First address, length, and the beginning of the name; sorted.
    functions: Vec<(u64, u64, u32)>,
    /// Names, each with a zero behind it.
    names: Vec<u8>,
}

impl FunctionNames {
    /// Returns the demangled name of the function at an address of this process.
    pub fn at(&mut self, module: &Module, address: u64) -> Option<String> {
        if !self.0.contains_key(&module.path) {
            let table = Table::read(&module.path).unwrap_or_default();
            self.0.insert(module.path.clone(), table);
        }
        let name = self.0.get(&module.path)?.at(module.own_address(address))?;
        Some(format!("{:#}", SymbolName::new(name)))
    }

    /// Returns the name in debug information of the function at an address, completed by its symbol
    /// if that is of the same function: `alloc::vec::Vec<T,A>::push::<u8>` for `push<u8>`.
    pub fn complete(&mut self, module: &Module, address: u64, name: &str) -> String {
        let symbol = Some(name).filter(|name| parts(name).len() == 1).and_then(|_| self.at(module, address));
        symbol.and_then(|symbol| completed(name, &symbol)).unwrap_or_else(|| name.to_owned())
    }
}

impl Table {
    fn at(&self, address: u64) -> Option<&[u8]> {
        let after = self.functions.partition_point(|(start, ..)| *start <= address);
        let (start, length, name) = self.functions[after.checked_sub(1)?];
        let name = symbol_tables::name(&self.names, name).filter(|_| address - start < length)?;
        (!name.is_empty()).then_some(name)
    }

    /// Reads the functions of an ELF file.
    fn read(path: &str) -> io::Result<Table> {
        // There is one table with all symbols, if any.
        let tables = ElfFile::open(path)?.tables(&[symbol_tables::ALL], TABLE_MAX)?;
        let Some(table) = tables.into_iter().next_back() else { return Ok(Table::default()) };
        let functions = table.symbols(symbol_tables::FUNCTION).filter(|symbol| symbol.address > 0);
        let mut functions: Vec<_> = functions.map(|symbol| (symbol.address, symbol.length, symbol.name)).collect();
        functions.sort_unstable();
        Ok(Table { functions, names: table.names })
    }
}

/// Returns a name as the symbol has it, if both are of the same function. Symbols of Rust without
/// type arguments get those of the name.
fn completed(name: &str, symbol: &str) -> Option<String> {
    let mut path = parts(symbol);
    if path.len() > 2 && path.last()?.starts_with('<') {
        path.pop();
    }
    let (plain, arguments) = name.split_at(name.find('<').filter(|at| *at > 0).unwrap_or(name.len()));
    let last = path.last()?.split(['<', '(']).next()?;
    let is_closure = last.trim_matches(['{', '}']).starts_with("closure");
    if is_closure && plain.starts_with("{async_") {
        return Some(format!("{}::{name}", path[..path.len() - 1].join("::")));
    }
    if last != plain && !(is_closure && plain.starts_with("{closure")) {
        return None;
    }
    let has_arguments = symbol.ends_with('>') || symbol.contains('(');
    Some(if arguments.is_empty() || has_arguments { symbol.to_owned() } else { format!("{symbol}::{arguments}") })
}

/// Returns the parts of a path, between `::` that are in no brackets.
fn parts(path: &str) -> Vec<&str> {
    let (mut parts, mut from, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, byte) in path.bytes().enumerate() {
        match byte {
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            b'>' if path[..at].ends_with('-') => {}
            b'>' | b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b':' if depth == 0 && at >= from && path[at..].starts_with("::") => {
                parts.push(&path[from..at]);
                from = at + 2;
            }
            _ => {}
        }
    }
    parts.push(&path[from..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_gets_the_path_of_its_symbol() {
        for (name, symbol, whole) in [
            ("of", "store::Owner::of", Some("store::Owner::of")),
            ("push<u8>", "alloc::vec::Vec<T,A>::push", Some("alloc::vec::Vec<T,A>::push::<u8>")),
            ("push<u8>", "<alloc::vec::Vec<u8>>::push", Some("<alloc::vec::Vec<u8>>::push::<u8>")),
            ("get<u8>", "<store::Map as store::Get>::get::<u8>", Some("<store::Map as store::Get>::get::<u8>")),
            ("{closure#1}", "store::run::{{closure}}", Some("store::run::{{closure}}")),
            ("{closure#1}", "store::run::{closure#1}", Some("store::run::{closure#1}")),
            ("{async_fn#0}", "store::run::{{closure}}", Some("store::run::{async_fn#0}")),
            ("insert", "Store::insert(std::string const&)", Some("Store::insert(std::string const&)")),
            ("main", "main", Some("main")),
            ("other", "store::Owner::of", None),
            ("f", "<fn(u8) -> store::X>::g", None),
            ("", "", Some("")),
        ] {
            assert_eq!(completed(name, symbol).as_deref(), whole, "{name} {symbol}");
        }
    }

    #[test]
    fn a_file_that_is_none_has_no_functions() {
        let scratch = std::env::temp_dir().join(format!("heapledger-functions-{}", std::process::id()));
        assert!(!Table::read("/proc/self/exe").unwrap().functions.is_empty());
        for bytes in crate::testing::damaged_programs() {
            std::fs::write(&scratch, bytes).unwrap();
            let table = Table::read(scratch.to_str().unwrap()).unwrap_or_default();
            table.functions.iter().take(99).for_each(|(start, ..)| _ = table.at(*start));
        }
        std::fs::remove_file(scratch).unwrap();
    }
}
