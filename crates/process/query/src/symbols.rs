//! Names, files and lines of frames.

use std::ffi::c_void;
use std::fmt;
use std::path::PathBuf;

use heapledger_annotate::untracked;

use crate::{Frame, Stack};

/// The names for an address, from the program's own debug information.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbol {
    /// The function, demangled.
    pub function: Option<String>,
    /// Its source file.
    pub file: Option<PathBuf>,
    /// The line in it, from 1.
    pub line: Option<u32>,
}

impl Frame {
    /// Returns the function of the frame, preceded by the functions that were inlined into it,
    /// innermost first. Empty if nothing is known. The first look-up reads the program's debug
    /// information, which takes some time and memory; neither is counted in the ledger.
    pub fn symbols(self) -> Vec<Symbol> {
        let mut symbols = Vec::new();
        // The look-up subtracts one, as for a return address.
        let address = std::ptr::without_provenance_mut::<c_void>(self.address as usize + 1);
        untracked::scope(|| {
            backtrace::resolve(address, |symbol| {
                symbols.push(Symbol {
                    function: symbol.name().map(|name| format!("{name:#}")),
                    file: symbol.filename().map(PathBuf::from),
                    line: symbol.lineno(),
                });
            });
        });
        symbols
    }
}

impl Symbol {
    /// True if this is one of the functions between the program and its allocator, which only pass
    /// a request on. Debug information may have short names for functions, but then it has their
    /// files.
    pub fn is_allocator(&self) -> bool {
        const FILES: [&str; 4] =
            ["process/allocator/src/", "heapledger-allocator-", "alloc/src/alloc.rs", "alloc/src/raw_vec/"];
        const FUNCTIONS: [&str; 6] =
            ["heapledger_allocator::", "__rust", "__rg_", "__rdl_", "alloc::alloc::", "alloc::raw_vec::"];
        let function = self.function.as_deref().unwrap_or_default().trim_start_matches('<');
        let file = self.file.as_ref().map(|file| file.to_string_lossy()).unwrap_or_default();
        FUNCTIONS.iter().any(|start| function.starts_with(start)) || FILES.iter().any(|part| file.contains(part))
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.function.as_deref().unwrap_or("??"))?;
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(out, "  {}:{line}", file.display()),
            (Some(file), None) => write!(out, "  {}", file.display()),
            (None, _) => Ok(()),
        }
    }
}

/// Writes a line for each function of a stack.
pub(crate) fn write(stack: Stack, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut is_own = true;
    for frame in stack.frames() {
        let symbols = frame.symbols();
        if symbols.is_empty() {
            writeln!(out, "    {:#x}", frame.address)?;
        }
        for symbol in symbols {
            is_own = is_own && symbol.is_allocator();
            if !is_own {
                writeln!(out, "    {symbol}")?;
            }
        }
    }
    Ok(())
}
