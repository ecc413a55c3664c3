//! Files in memory, and the sections in them.

use std::borrow::Cow;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use object::read::CompressionFormat;
use object::{Object, ObjectSection};

/// Bytes that a compressed byte may stand for: more than real debug information reaches, far less than a bomb does.
const EXPANSION: u64 = 256;

/// A file mapped for reading.
pub(crate) struct Mapped {
    pub(crate) path: PathBuf,
    map: Mmap,
}

impl Mapped {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        // Ask before opening: opening a pipe or a device, which a recorded path may well be, can block or do things.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let file = File::open(path)?;
        // SAFETY: `Mmap::map` asks that the file is not modified or truncated while it is mapped. That is not ours to
        // guarantee: a linker that rewrites the file in place changes these bytes, and truncation turns reads behind the
        // new end into SIGBUS. What we do about it: all code that reads these bytes treats them as untrusted and copies
        // or bounds-checks each value it decides on, so that changed bytes lead to wrong names at worst; package managers
        // and compilers replace files by renaming, which leaves a mapping intact; and this runs in a reporting tool,
        // where dying of SIGBUS while the binary is being overwritten loses nothing but the report.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self { path: path.to_path_buf(), map })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    pub(crate) fn elf(&self) -> Result<object::File<'_>, String> {
        if !self.bytes().starts_with(&object::elf::ELFMAG) {
            return Err("not an ELF file".to_owned());
        }
        object::File::parse(self.bytes()).map_err(|error| error.to_string())
    }
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mapped").field(&self.path).finish()
    }
}

/// The contents of a section, uncompressed; `None` if there is no such section or it has no contents.
pub(crate) fn section<'a>(elf: &object::File<'a>, name: &str) -> Result<Option<Cow<'a, [u8]>>, String> {
    let Some(section) = elf.section_by_name(name) else { return Ok(None) };
    let describe = |error: object::Error| format!("{name}: {error}");
    let compressed = section.compressed_data().map_err(describe)?;
    if compressed.format != CompressionFormat::None
        && compressed.uncompressed_size > (compressed.data.len() as u64).saturating_mul(EXPANSION)
    {
        return Err(format!("{name}: claims an incredible size"));
    }
    let data = compressed.decompress().map_err(describe)?;
    Ok((!data.is_empty()).then_some(data))
}

/// True if there is DWARF in this file, whether usable or not.
pub(crate) fn has_dwarf(elf: &object::File<'_>) -> bool {
    elf.section_by_name(".debug_info")
        .and_then(|section| section.compressed_file_range().ok())
        .is_some_and(|range| range.compressed_size > 0)
}
