//! Files in memory, and the sections in them.

use std::borrow::Cow;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use lzma_rust2::XzReader;
use memmap2::Mmap;
use object::read::CompressionFormat;
use object::{Object, ObjectSection};

/// The maximum ratio of decompression: more than real debug information reaches, far less than a
/// bomb does.
const EXPANSION: u64 = 256;

/// The maximum bytes of MiniDebugInfo: symbol tables of the largest programs are a tenth of that.
const MINI_MAX: u64 = 256 << 20;
/// Memory for decompressing it, besides the result, in KiB: the need of the highest level of xz,
/// with room to spare.
const XZ_KIB: u32 = 80 << 10;

/// A file mapped for reading, or decompressed from one.
pub(crate) struct Mapped {
    pub(crate) path: PathBuf,
    bytes: Bytes,
}

enum Bytes {
    Map(Mmap),
    Unpacked(Vec<u8>),
}

impl Mapped {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        // The type is checked before opening: opening a pipe or a device, which a recorded path may
        // well be, can block or have effects.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let file = File::open(path)?;
        // SAFETY: `Mmap::map` requires that the file is not modified or truncated while it is
        // mapped. This code cannot guarantee that: a linker that rewrites the file in place changes
        // these bytes, and truncation turns reads behind the new end into SIGBUS. The consequences
        // are limited: all code that reads these bytes treats them as untrusted, and copies or
        // bounds-checks each value that it decides on, so changed bytes lead to wrong names at
        // worst; package managers and compilers replace files by renaming, which leaves a mapping
        // intact; and this runs in a reporting tool, in which a SIGBUS while the binary is being
        // overwritten loses only the report.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self { path: path.to_path_buf(), bytes: Bytes::Map(map) })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Map(map) => map,
            Bytes::Unpacked(bytes) => bytes,
        }
    }

    /// Returns the ELF file in `.gnu_debugdata`: the symbols of functions that are not exported
    /// (MiniDebugInfo). `None` if there is none.
    pub(crate) fn mini_debug(&self) -> Option<Result<Mapped, String>> {
        let packed = section(&self.elf().ok()?, ".gnu_debugdata").transpose()?;
        Some(packed.and_then(|packed| {
            let most = (packed.len() as u64).saturating_mul(EXPANSION).min(MINI_MAX);
            let mut bytes = Vec::new();
            let reader = XzReader::new_mem_limit(&*packed, false, XZ_KIB);
            let length = reader.take(most + 1).read_to_end(&mut bytes);
            match length {
                Err(error) => Err(format!(".gnu_debugdata: {error}")),
                Ok(length) if length as u64 > most => Err(".gnu_debugdata: has an incredible size".to_owned()),
                Ok(_) => Ok(Mapped { path: self.path.clone(), bytes: Bytes::Unpacked(bytes) }),
            }
        }))
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

/// Returns the contents of a section, decompressed; `None` if there is no such section or it has no
/// contents.
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

/// True if the code is not in this file: it is a separate debug file.
pub(crate) fn is_debug_file(elf: &object::File<'_>) -> bool {
    elf.section_by_name(".text")
        .is_some_and(|text| text.size() > 0 && text.file_range().is_none_or(|(_, size)| size == 0))
}

/// True if there is DWARF in this file, whether usable or not.
pub(crate) fn has_dwarf(elf: &object::File<'_>) -> bool {
    elf.section_by_name(".debug_info")
        .and_then(|section| section.compressed_file_range().ok())
        .is_some_and(|range| range.compressed_size > 0)
}
