//! Symbol files of Breakpad: the text that `dump_syms` makes of a module's debug information.
//!
//! A file is mapped and read once, which finds all errors in it. Only the positions of functions,
//! names and files are kept; the lines of a function are read again when an address in it is asked
//! for. Memory is at most a small multiple of the file's size, whatever its contents.

mod records;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use self::records::{Inline, Line, Record};
use crate::answer::{Answer, RawFrame};
use crate::frame::NameSource;
use crate::mapped::Mapped;
use crate::state::DebugInfo;

/// The maximum number of frames per address; those between this and the physical function are left
/// out.
const FRAMES_MAX: usize = 512;

/// Bytes of code after an exported name that it may apply to. Its record has no size; code farther
/// away is another function, or an address of a module whose beginning is not known.
const EXPORT_MAX: u64 = 1 << 16;

/// The reason why a symbol file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    /// The line of the error, from 1.
    pub(crate) line: usize,
    /// The beginning of that line, in bytes.
    pub(crate) offset: usize,
    pub(crate) reason: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} (byte {}): {}", self.line, self.offset, self.reason)
    }
}

/// The symbols of one module. Addresses are those in the file, relative to the beginning of the
/// module.
#[derive(Debug, Default)]
struct Symbols {
    /// The identifier in the first line.
    debug_id: String,
    /// Sorted by their first addresses.
    functions: Vec<Function>,
    /// Addresses of exported names, and the positions of their records; sorted.
    exports: Vec<(u64, usize)>,
    /// The positions of the names of source files and of inlined functions.
    files: HashMap<u64, usize>,
    origins: HashMap<u64, usize>,
    has_lines: bool,
}

#[derive(Debug, Clone, Copy)]
struct Function {
    start: u64,
    size: u64,
    /// The position of the record in the file.
    at: usize,
}

/// The lines of a function, and the functions inlined into it.
#[derive(Debug, Default)]
struct Body {
    /// Sorted by their first addresses.
    lines: Vec<Line>,
    /// Ranges of addresses, sorted by depth, then by address.
    inlines: Vec<Inline>,
}

/// A symbol file, ready for lookups.
#[derive(Debug)]
pub(crate) struct Breakpad {
    file: Mapped,
    symbols: Symbols,
    /// The lowest address of the module's own ELF addresses.
    base: u64,
    /// The functions that addresses were asked for in, by their positions in the file.
    bodies: HashMap<usize, Arc<Body>>,
}

impl Breakpad {
    pub(crate) fn new(file: Mapped, base: u64) -> Result<Breakpad, SyntaxError> {
        let symbols = Symbols::read(file.bytes())?;
        Ok(Breakpad { file, symbols, base, bodies: HashMap::new() })
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.file.path
    }

    /// Returns the identifier, according to the file, of its module.
    pub(crate) fn debug_id(&self) -> &str {
        &self.symbols.debug_id
    }

    /// Returns the kind of names that the file has.
    pub(crate) fn debug_info(&self) -> DebugInfo {
        let Symbols { functions, exports, has_lines, .. } = &self.symbols;
        match (has_lines, functions.is_empty(), exports.is_empty()) {
            (true, ..) => DebugInfo::Full,
            (false, false, _) => DebugInfo::SymbolsOnly,
            (false, true, false) => DebugInfo::ExportsOnly,
            (false, true, true) => DebugInfo::Missing,
        }
    }

    /// Returns the functions at an address, innermost inlined function first; or the exported name
    /// before it.
    pub(crate) fn lookup(&mut self, offset: u64) -> Answer {
        let Some(address) = offset.checked_sub(self.base) else { return Answer::default() };
        let text = self.file.bytes();
        match self.symbols.function(address) {
            Some(function) => {
                let read = || Arc::new(Body::read(text, function.at));
                let body = self.bodies.entry(function.at).or_insert_with(read).clone();
                Answer { frames: self.symbols.frames(text, function, &body, address), ..Answer::default() }
            }
            None => Answer { symbol: self.symbols.export(text, address), ..Answer::default() },
        }
    }
}

impl Symbols {
    /// Reads a file.
    fn read(text: &[u8]) -> Result<Symbols, SyntaxError> {
        let mut symbols = Symbols::default();
        let (mut has_module, mut is_in_function) = (false, false);
        for (number, (offset, line)) in lines(text, 0).enumerate() {
            let wrong = |reason: String| SyntaxError { line: number + 1, offset, reason };
            let record = Record::parse(line).map_err(wrong)?;
            if !has_module && !matches!(record, Record::Module { .. }) {
                return Err(wrong("it does not begin with a MODULE record".into()));
            }
            match record {
                Record::Module { .. } if has_module => return Err(wrong("a second MODULE record".into())),
                Record::Module { debug_id } => (symbols.debug_id, has_module) = (debug_id.to_owned(), true),
                Record::File { id, .. } => _ = symbols.files.insert(id, offset),
                Record::Origin { id, .. } => _ = symbols.origins.insert(id, offset),
                Record::Function { address, size, .. } => {
                    symbols.functions.push(Function { start: address, size, at: offset });
                    is_in_function = true;
                }
                Record::Export { address, .. } => {
                    symbols.exports.push((address, offset));
                    is_in_function = false;
                }
                Record::Stack => is_in_function = false,
                Record::Line(_) | Record::Inline(_) if !is_in_function => {
                    return Err(wrong("a line of no function: there is no FUNC record before it".into()));
                }
                Record::Line(_) => symbols.has_lines = true,
                Record::Inline(_) | Record::Other => {}
            }
        }
        if !has_module {
            return Err(SyntaxError { line: 1, offset: 0, reason: "it does not begin with a MODULE record".into() });
        }
        // The first of several functions with one address is used: linkers fold functions with the
        // same code.
        symbols.functions.sort_by_key(|function| function.start);
        symbols.exports.sort_by_key(|(address, _)| *address);
        Ok(symbols)
    }

    fn function(&self, address: u64) -> Option<Function> {
        let last = self.functions.partition_point(|function| function.start <= address).checked_sub(1)?;
        let start = self.functions[last].start;
        let first = self.functions.partition_point(|function| function.start < start);
        Some(self.functions[first]).filter(|function| address - function.start < function.size)
    }

    /// Returns the exported name before an address, if there is no function between them.
    fn export(&self, text: &[u8], address: u64) -> Option<(Vec<u8>, NameSource)> {
        let (exported, at) =
            self.exports[self.exports.partition_point(|(start, _)| *start <= address).checked_sub(1)?];
        let before = self.functions.partition_point(|function| function.start <= address).checked_sub(1);
        if before.is_some_and(|before| self.functions[before].start > exported) {
            return None;
        }
        match record_at(text, at)? {
            // `dump_syms` names the section if it knows of no function.
            Record::Export { name, .. } if address - exported < EXPORT_MAX && !is_section(name) => {
                Some((name.to_vec(), NameSource::Nearest))
            }
            _ => None,
        }
    }

    fn frames(&self, text: &[u8], function: Function, body: &Body, address: u64) -> Vec<RawFrame> {
        let last = body.lines.partition_point(|line| line.address <= address).checked_sub(1);
        let line = last.map(|last| &body.lines[last]).filter(|line| address - line.address < line.size);
        let mut place = line.map(|line| (line.file, line.line));
        let inlined: Vec<&Inline> = (0..FRAMES_MAX as u64).map_while(|depth| body.inline(depth, address)).collect();
        let mut frames = Vec::with_capacity(inlined.len() + 1);
        for inline in inlined.into_iter().rev() {
            frames.push(self.frame(text, self.origin(text, inline.origin), place));
            place = Some((inline.call_file, inline.call_line));
        }
        let name = match record_at(text, function.at) {
            Some(Record::Function { name, .. }) => Some(name),
            _ => None,
        };
        frames.push(self.frame(text, name, place));
        frames
    }

    fn frame(&self, text: &[u8], name: Option<&[u8]>, place: Option<(u64, u64)>) -> RawFrame {
        let file = place.and_then(|(file, _)| match record_at(text, *self.files.get(&file)?)? {
            Record::File { name, .. } => Some(String::from_utf8_lossy(name).into_owned()),
            _ => None,
        });
        let line = place.and_then(|(_, line)| u32::try_from(line).ok()).filter(|line| *line > 0 && file.is_some());
        let name = name.filter(|name| !name.is_empty()).map(<[u8]>::to_vec);
        RawFrame { name, plain: None, file, line, column: None }
    }

    fn origin<'t>(&self, text: &'t [u8], id: u64) -> Option<&'t [u8]> {
        match record_at(text, *self.origins.get(&id)?)? {
            Record::Origin { name, .. } => Some(name),
            _ => None,
        }
    }
}

impl Body {
    /// Reads the records after that of a function. All of them were valid when the file was first
    /// read; a record that has changed since ends the function.
    fn read(text: &[u8], at: usize) -> Body {
        let mut body = Body::default();
        for (_, line) in lines(text, at).skip(1) {
            match Record::parse(line) {
                Ok(Record::Line(line)) => body.lines.push(line),
                Ok(Record::Inline(inline)) => body.inlines.extend(inline.ranges()),
                Ok(Record::Other) => {}
                _ => break,
            }
        }
        body.lines.sort_by_key(|line| line.address);
        body.inlines.sort_by_key(|inline| (inline.depth, inline.address));
        body
    }

    /// Returns the function inlined there at this depth.
    fn inline(&self, depth: u64, address: u64) -> Option<&Inline> {
        let after = self.inlines.partition_point(|inline| (inline.depth, inline.address) <= (depth, address));
        let inline = &self.inlines[after.checked_sub(1)?];
        (inline.depth == depth && address - inline.address < inline.size).then_some(inline)
    }
}

/// Returns the lines of a text from a position on, and their positions.
fn lines(text: &[u8], from: usize) -> impl Iterator<Item = (usize, &[u8])> {
    let mut rest = text.get(from..).unwrap_or_default();
    std::iter::from_fn(move || {
        let offset = text.len() - rest.len();
        let length = rest.iter().position(|&byte| byte == b'\n');
        if rest.is_empty() {
            return None;
        }
        let line = &rest[..length.unwrap_or(rest.len())];
        rest = length.map_or(&[], |length| &rest[length + 1..]);
        Some((offset, line.strip_suffix(b"\r").unwrap_or(line)))
    })
}

/// Returns `true` for `<.plt ELF section in libc.so.6>`.
fn is_section(name: &[u8]) -> bool {
    name.starts_with(b"<") && name.windows(12).any(|part| part == b" section in ")
}

fn record_at(text: &[u8], at: usize) -> Option<Record<'_>> {
    Record::parse(lines(text, at).next()?.1).ok()
}

/// Returns the identifier of a module in symbol files: its build id as a GUID, whose first three
/// numbers are little-endian, and the digit 0.
pub(crate) fn debug_id(build_id: &[u8]) -> String {
    let mut id = [0; 16];
    let length = build_id.len().min(id.len());
    id[..length].copy_from_slice(&build_id[..length]);
    id[..4].reverse();
    id[4..6].reverse();
    id[6..8].reverse();
    let mut text: String = id.iter().map(|byte| format!("{byte:02X}")).collect();
    text.push('0');
    text
}

/// Implements the fuzz target: reads the bytes as a symbol file, and asks for addresses at all
/// borders in it.
pub fn exercise(data: &[u8]) {
    let symbols = match Symbols::read(data) {
        Ok(symbols) => symbols,
        Err(error) => {
            assert!(error.line >= 1 && error.offset <= data.len() && !error.reason.is_empty(), "{error:?}");
            assert_eq!(data[..error.offset].iter().filter(|&&byte| byte == b'\n').count(), error.line - 1, "{error:?}");
            return;
        }
    };
    for function in symbols.functions.iter().take(50) {
        let body = Body::read(data, function.at);
        let lines = body.lines.iter().flat_map(|line| [line.address, line.address.wrapping_add(line.size)]);
        let inlines = body.inlines.iter().flat_map(|inline| [inline.address, inline.address.wrapping_add(inline.size)]);
        let end = function.start.wrapping_add(function.size);
        for border in lines.chain(inlines).chain([function.start, end]).take(200) {
            for address in [border.wrapping_sub(1), border] {
                let found = symbols.function(address);
                assert!(found.is_none_or(|found| found.start <= address && address - found.start < found.size));
                let frames = symbols.frames(data, *function, &body, address);
                assert!((1..=FRAMES_MAX + 1).contains(&frames.len()));
            }
        }
    }
    for (address, _) in symbols.exports.iter().take(200) {
        let _ = symbols.export(data, *address);
    }
}

#[cfg(test)]
mod tests;
