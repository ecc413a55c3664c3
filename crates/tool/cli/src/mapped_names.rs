//! Names of functions, and types of blocks, for addresses of processes that have ended, by the
//! mappings that they had.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::sync::Arc;

use heapledger_block_types::{SiteSizes, TypeFinder};
use heapledger_report_format::escape;
use heapledger_symbols::{ModuleRef, NameSource, Symbolizer};
use memmap2::Mmap;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, elf};
use serde::Serialize;

use crate::text::shortened;

/// A function on a stack.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Frame {
    pub(crate) function: String,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
    pub(crate) module: Option<String>,
    pub(crate) inlined: bool,
    /// True if the function has a name, not only an offset.
    #[serde(skip)]
    pub(crate) is_known: bool,
}

impl Frame {
    /// Returns the line of text that shows the frame.
    pub(crate) fn line(&self) -> String {
        let place = match (&self.file, self.line, &self.module) {
            (Some(file), Some(line), _) => format!("  {}:{line}", shortened(file)),
            (Some(file), None, _) => format!("  {}", shortened(file)),
            (None, _, Some(module)) if self.is_known => format!("  {}", shortened(module)),
            _ => String::new(),
        };
        escape(&format!("{}{place}", self.function)).into_owned()
    }
}

/// The files that were mapped, and their addresses.
pub(crate) struct Maps<'a>(Vec<Mapping<'a>>);

struct Mapping<'a> {
    start: u64,
    end: u64,
    offset: u64,
    path: &'a str,
}

impl<'a> Maps<'a> {
    /// Parses lines of `/proc/PID/maps`.
    pub(crate) fn parse(lines: &[&'a str]) -> Maps<'a> {
        let mapping = |line: &&'a str| {
            let (range, rest) = line.split_once(' ')?;
            let (start, end) = range.split_once('-')?;
            let (_, rest) = rest.split_once(' ')?;
            let (offset, rest) = rest.split_once(' ')?;
            let path = rest.find('/').and_then(|at| rest.get(at..))?;
            let hex = |text| u64::from_str_radix(text, 16).ok();
            Some(Mapping { start: hex(start)?, end: hex(end)?, offset: hex(offset)?, path })
        };
        Maps(lines.iter().filter_map(mapping).collect())
    }

    /// Returns the file that an address was in, and the offset in the file.
    fn find(&self, address: u64) -> Option<(&'a str, u64)> {
        let mapping = self.0.iter().find(|mapping| (mapping.start..mapping.end).contains(&address))?;
        Some((mapping.path, (address - mapping.start).checked_add(mapping.offset)?))
    }
}

/// The type of a block, inferred from the stack that allocated it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct BlockType {
    /// The full name of the type; a buffer of `T` is `[T]`.
    #[serde(rename = "type")]
    pub(crate) name: String,
    /// `exact`, `size-consistent`, `ambiguous` or `probable`.
    pub(crate) confidence: String,
    /// The name of the type without paths and usual arguments.
    #[serde(skip)]
    pub(crate) short: String,
}

/// Finds the functions at addresses, and the types of blocks.
pub(crate) struct Names {
    symbolizer: Arc<Symbolizer>,
    types: TypeFinder,
    /// The segments of each file: offset and length in the file, address.
    segments: HashMap<String, Vec<[u64; 3]>>,
    /// Paths of files for which better names may be available.
    poor: BTreeSet<String>,
    /// The build ids of files, if they are known: another file of the same path has no names.
    build_ids: HashMap<String, Vec<u8>>,
}

impl Names {
    pub(crate) fn new(symbolizer: Symbolizer) -> Names {
        let symbolizer = Arc::new(symbolizer);
        Names {
            types: TypeFinder::new(Arc::clone(&symbolizer)),
            symbolizer,
            segments: HashMap::new(),
            poor: BTreeSet::new(),
            build_ids: HashMap::new(),
        }
    }

    /// Has the build ids of files checked: a file of another build has no names.
    pub(crate) fn check_build_ids(&mut self, build_ids: impl Iterator<Item = (String, Vec<u8>)>) {
        self.build_ids.extend(build_ids);
    }

    /// Returns the file with its build id, if that is known.
    fn module<'path>(&'path self, path: &'path str) -> ModuleRef<'path> {
        let build_id = self.build_ids.get(path).map_or(&b""[..], Vec::as_slice);
        ModuleRef { path: path.as_bytes(), build_id }
    }

    /// Returns the functions at an address, innermost first.
    pub(crate) fn frames(&mut self, maps: &Maps<'_>, address: u64) -> Vec<Frame> {
        let unknown = |module: Option<&str>| Frame {
            function: format!("{address:#x}"),
            file: None,
            line: None,
            module: module.map(str::to_owned),
            inlined: false,
            is_known: false,
        };
        let (path, offset) = match self.find(maps, address) {
            Ok(found) => found,
            Err(path) => return vec![unknown(path)],
        };
        let frames = self.symbolizer.frames(self.module(path), offset);
        let frame = |frame: &heapledger_symbols::SymbolFrame| Frame {
            function: frame.function.short().to_owned(),
            file: frame.file.as_ref().map(|file| file.to_string()),
            line: frame.line,
            module: Some(path.to_owned()),
            inlined: frame.inlined,
            is_known: frame.source != NameSource::None,
        };
        // No debug information exists for `_start`, the caller of `main`.
        if frames.iter().any(|frame| frame.line.is_none() && frame.function.short() != "_start") {
            self.poor.insert(path.to_owned());
        }
        frames.iter().map(frame).collect()
    }

    /// Returns the type of a block of some bytes that a stack has allocated, as `types` infers it.
    /// `None` if it is not known.
    pub(crate) fn block_type(&mut self, maps: &Maps<'_>, stack: &[u64], bytes: u64) -> Option<BlockType> {
        let places: Vec<_> = stack.iter().map_while(|&address| self.find(maps, address).ok()).collect();
        let places: Vec<_> = places.iter().map(|&(path, offset)| (self.module(path), offset)).collect();
        let site = self.types.site_type(&places, SiteSizes::of_one(bytes));
        site.block.map(|name| BlockType {
            name: name.full().to_owned(),
            confidence: site.confidence.to_string(),
            short: name.short().to_owned(),
        })
    }

    /// Returns the file that an address was in, and the address in the file's own terms. If that is
    /// not known, the file, if there is one.
    fn find<'path>(&mut self, maps: &Maps<'path>, address: u64) -> Result<(&'path str, u64), Option<&'path str>> {
        let (path, at) = maps.find(address).ok_or(None)?;
        let segments = self.segments.entry(path.to_owned()).or_insert_with(|| segments(path).unwrap_or_default());
        let segment =
            segments.iter().find(|[offset, length, _]| at.checked_sub(*offset).is_some_and(|at| at < *length));
        let &[offset, _, start] = segment.ok_or(Some(path))?;
        Ok((path, start.wrapping_add(at - offset)))
    }

    /// Returns a hint how to get better names, for the first file that has one.
    pub(crate) fn hint(&self) -> Option<String> {
        self.poor.iter().find_map(|path| self.symbolizer.hint(self.module(path)))
    }
}

fn segments(path: &str) -> Option<Vec<[u64; 3]>> {
    let file = File::open(path).ok().filter(|file| file.metadata().is_ok_and(|data| data.is_file()))?;
    // SAFETY: `Mmap::map` asks that the file is not changed or truncated while it is mapped. The
    // mapping is only read. If another process truncates the file meanwhile, this command ends, as
    // it would where symbols are read.
    let bytes = unsafe { Mmap::map(&file) }.ok()?;
    let elf = ElfFile64::<Endianness>::parse(&*bytes).ok()?;
    let endian = elf.endian();
    let loaded = elf.elf_program_headers().iter().filter(|header| header.p_type(endian) == elf::PT_LOAD);
    Some(loaded.map(|header| [header.p_offset(endian), header.p_filesz(endian), header.p_vaddr(endian)]).collect())
}
