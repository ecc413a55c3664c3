//! The bounds of functions, from unwind information, which stripped programs have, too.

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, EndianSlice, RunTimeEndian, UnwindSection};
use object::{Object, ObjectSection};

use crate::mapped::Mapped;

/// A physical function, in the module's own addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extent {
    /// Its first byte.
    pub start: u64,
    /// The number of bytes of its code.
    pub size: u64,
}

/// Returns the functions that contain addresses of a file. Each look-up is a binary search in the
/// table that the program's own unwinder uses, so nothing has to be read beforehand.
pub(crate) fn extents(file: &Mapped, offsets: &[u64]) -> Vec<Option<Extent>> {
    Table::new(file).map_or_else(|| vec![None; offsets.len()], |table| table.extents(offsets))
}

struct Table<'a> {
    header: gimli::ParsedEhFrameHdr<Bytes<'a>>,
    frames: EhFrame<Bytes<'a>>,
    bases: BaseAddresses,
}

type Bytes<'a> = EndianSlice<'a, RunTimeEndian>;

impl<'a> Table<'a> {
    fn new(file: &'a Mapped) -> Option<Table<'a>> {
        let elf = file.elf().ok()?;
        let endian = if elf.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
        let section = |name: &str| {
            let section = elf.section_by_name(name)?;
            Some((section.address(), section.data().ok()?))
        };
        let (header_address, header) = section(".eh_frame_hdr")?;
        let (frames_address, frames) = section(".eh_frame")?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(header_address).set_eh_frame(frames_address);
        let header = EhFrameHdr::new(header, endian).parse(&bases, if elf.is_64() { 8 } else { 4 }).ok()?;
        Some(Table { header, frames: EhFrame::new(frames, endian), bases })
    }

    fn extents(&self, offsets: &[u64]) -> Vec<Option<Extent>> {
        let Some(table) = self.header.table() else { return vec![None; offsets.len()] };
        // Addresses of one function often follow each other.
        let mut latest: Option<Extent> = None;
        let mut extent = |&offset: &u64| {
            if let Some(extent) = latest.filter(|it| offset.wrapping_sub(it.start) < it.size) {
                return Some(extent);
            }
            let entry = table.fde_for_address(&self.frames, &self.bases, offset, EhFrame::cie_from_offset).ok()?;
            let found = entry.contains(offset).then(|| Extent { start: entry.initial_address(), size: entry.len() });
            latest = found.or(latest);
            found
        };
        offsets.iter().map(&mut extent).collect()
    }
}
