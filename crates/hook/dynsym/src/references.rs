//! References: the names that an object needs from others, from its relocations.
//!
//! Not from its symbol table: the GNU hash table does not say how many symbols an object has that
//! defines none.

use core::ffi::CStr;

use crate::{Dynamic, LinkMap, Symbols};

/// `Elf64_Rela` of the System V gABI.
#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

/// A table of relocations.
#[derive(Clone, Copy, Default)]
struct Relocations {
    address: u64,
    bytes: u64,
}

impl Relocations {
    fn iter(self) -> impl Iterator<Item = &'static Relocation> {
        let count = if self.address == 0 { 0 } else { self.bytes as usize / size_of::<Relocation>() };
        let first = core::ptr::with_exposed_provenance::<Relocation>(self.address as usize);
        // SAFETY: the object's dynamic section says that the table is at this address and has these
        // bytes. It is in a segment that the dynamic linker has mapped and only it writes to, and
        // the caller drops the reference before the object can be unmapped.
        (0..count).map(move |index| unsafe { &*first.add(index) })
    }
}

/// True if the object needs a function from another object whose name `is_wanted`.
pub(crate) fn refers_to(object: &LinkMap, is_wanted: impl Fn(&CStr) -> bool) -> bool {
    let Some(symbols) = Symbols::of(object) else { return false };
    tables(object).into_iter().flat_map(Relocations::iter).any(|relocation| {
        let index = (relocation.info >> 32) as usize;
        index != 0 && symbols.undefined(index).is_some_and(&is_wanted)
    })
}

/// Returns the tables of the object's relocations: those of calls, and all others that have
/// symbols.
fn tables(object: &LinkMap) -> [Relocations; 2] {
    const DT_PLTRELSZ: i64 = 2;
    const DT_RELA: i64 = 7;
    const DT_RELASZ: i64 = 8;
    const DT_JMPREL: i64 = 23;
    let (mut calls, mut others) = (Relocations::default(), Relocations::default());
    let mut entry = object.dynamic;
    // SAFETY: an object's dynamic section is an array that ends with a null tag.
    while let Some(&Dynamic { tag, value }) = unsafe { entry.as_ref() } {
        // As for `Symbols::of`.
        let address = if value >= object.bias { value } else { value.wrapping_add(object.bias) };
        match tag {
            0 => break,
            DT_PLTRELSZ => calls.bytes = value,
            DT_RELASZ => others.bytes = value,
            DT_JMPREL => calls.address = address,
            DT_RELA => others.address = address,
            _ => {}
        }
        entry = entry.wrapping_add(1);
    }
    [calls, others]
}
