//! The examination of a shared library before anything is run with it.

use object::elf;
use object::read::elf::ElfFile64;
use object::{Endianness, FileKind, Object, ObjectKind, ObjectSymbol};

use crate::target::is_own_machine;

/// A shared library for this processor.
pub(crate) type SharedLibrary<'data> = ElfFile64<'data, Endianness>;

/// Reads the headers of a library. The error is a phrase such as "it is a program".
pub(crate) fn parse(bytes: &[u8]) -> Result<SharedLibrary<'_>, &'static str> {
    match FileKind::parse(bytes) {
        Ok(FileKind::Elf64) => {}
        Ok(FileKind::Elf32) => return Err("it is for 32-bit programs"),
        _ => return Err("it is not a shared library"),
    }
    let elf = SharedLibrary::parse(bytes).map_err(|_| "its headers are damaged")?;
    if !is_own_machine(elf.elf_header()) {
        return Err("it is for another processor");
    }
    match elf.kind() {
        ObjectKind::Dynamic if !is_program(&elf) => Ok(elf),
        ObjectKind::Dynamic | ObjectKind::Executable => Err("it is a program"),
        _ => Err("it is not a shared library"),
    }
}

/// True if a library defines a symbol of this name that the dynamic linker finds.
pub(crate) fn defines(library: &SharedLibrary<'_>, name: &str) -> bool {
    library.dynamic_symbols().any(|symbol| symbol.is_definition() && symbol.name() == Ok(name))
}

/// True if a file that can be loaded at any address is a program, not a library.
fn is_program(elf: &SharedLibrary<'_>) -> bool {
    let endian = elf.endian();
    elf.elf_program_headers().iter().any(|segment| segment.p_type.get(endian) == elf::PT_INTERP)
}
