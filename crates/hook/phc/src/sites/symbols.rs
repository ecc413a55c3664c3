//! The functions in the symbol table of a loaded object's file: the ELF-64 format of the System V
//! gABI, chapters 4 and 5.
//!
//! The file is read into memory of its own: a mapping of a file that is truncated meanwhile would
//! end the process. It may be damaged, so nothing in it is believed.

use core::ptr;

use heapledger_core::sys;

const HEADER: usize = 64;
const SECTION: usize = 64;
const SYMBOL: usize = 24;
const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const STT_FUNC: u8 = 2;
/// The bytes of a table that are read: those of Chromium's have 300 MB.
const TABLE_MAX: u64 = 1 << 30;
/// The number of sections that are looked at.
const SECTIONS_MAX: usize = 256;

/// A range of the file.
#[derive(Clone, Copy, Default)]
struct Section {
    kind: u32,
    offset: u64,
    bytes: u64,
    /// The number of the section with the names.
    link: u32,
}

/// Calls a function with the name, the address and the bytes of each function of a file. The
/// addresses are the file's own.
///
/// # Safety
///
/// `path` is a C string.
pub(super) unsafe fn each_function(path: *const u8, mut visit: impl FnMut(&[u8], u64, u64)) {
    // SAFETY: `sections` and `read` demand a C string, which `path` is by this function's
    // `# Safety`.
    let Some((symbols, names)) = (unsafe { tables(path) }) else { return };
    // SAFETY: as above.
    let (Some(symbols), Some(names)) = (unsafe { Table::read(path, symbols) }, unsafe { Table::read(path, names) })
    else {
        return;
    };
    for symbol in symbols.bytes().chunks_exact(SYMBOL) {
        let (Some(name), Some(&info), Some(section)) = (u32_at(symbol, 0), symbol.get(4), u16_at(symbol, 6)) else {
            continue;
        };
        let (Some(start), Some(bytes)) = (u64_at(symbol, 8), u64_at(symbol, 16)) else { continue };
        // Section 0: the function is another object's.
        if info & 15 != STT_FUNC || section == 0 || bytes == 0 {
            continue;
        }
        let Some(text) = names.bytes().get(name as usize..) else { continue };
        visit(text.split(|&byte| byte == 0).next().unwrap_or(&[]), start, bytes);
    }
}

/// Finds the symbol table of a file, or else that for dynamic linking, and the table of its names.
///
/// # Safety
///
/// `path` is a C string.
unsafe fn tables(path: *const u8) -> Option<(Section, Section)> {
    let mut header = [0_u8; HEADER];
    // SAFETY: `read_at` demands a C string, which `path` is by this function's `# Safety`.
    unsafe { sys::read_at(path, 0, &mut header) }.filter(|&read| read == HEADER)?;
    if !header.starts_with(b"\x7fELF\x02\x01") || usize::from(u16_at(&header, 58)?) != SECTION {
        return None;
    }
    let (start, count) = (u64_at(&header, 40)?, usize::from(u16_at(&header, 60)?).min(SECTIONS_MAX));
    let mut found = [None, None];
    let section = |number: usize| {
        let mut bytes = [0_u8; SECTION];
        let offset = start.checked_add((number * SECTION) as u64)?;
        // SAFETY: as above.
        unsafe { sys::read_at(path, offset, &mut bytes) }.filter(|&read| read == SECTION)?;
        let (kind, link) = (u32_at(&bytes, 4)?, u32_at(&bytes, 40)?);
        Some(Section { kind, offset: u64_at(&bytes, 24)?, bytes: u64_at(&bytes, 32)?, link })
    };
    for number in 0..count {
        let section = section(number)?;
        match section.kind {
            SHT_SYMTAB => found[0] = Some(section),
            SHT_DYNSYM => found[1] = Some(section),
            _ => {}
        }
    }
    let symbols = found[0].or(found[1])?;
    let names = section((symbols.link as usize).min(count))?;
    Some((symbols, names))
}

/// A part of a file, in memory of its own.
struct Table {
    start: *mut u8,
    length: usize,
    mapped: usize,
}

impl Table {
    /// # Safety
    ///
    /// `path` is a C string.
    unsafe fn read(path: *const u8, section: Section) -> Option<Table> {
        let mapped = usize::try_from(section.bytes).ok().filter(|_| section.bytes <= TABLE_MAX)?;
        let start = sys::map_private(mapped.max(1)).ok()?;
        let mut table = Table { start, length: mapped, mapped: mapped.max(1) };
        // SAFETY: `from_raw_parts_mut` demands that many initialised bytes that nobody else refers
        // to: they were mapped just now, and are zero.
        let bytes = unsafe { core::slice::from_raw_parts_mut(start, mapped) };
        // SAFETY: `read_at` demands a C string: this function's `# Safety`.
        table.length = unsafe { sys::read_at(path, section.offset, bytes) }?;
        Some(table)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the memory has at least `length` bytes, which are not written any more, and is
        // mapped as long as the table lives.
        unsafe { &*ptr::slice_from_raw_parts(self.start, self.length) }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: `map_private` returned the range, and references to it do not outlive the table.
        unsafe { sys::unmap(self.start, self.mapped) };
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
