//! The functions that a file's `.eh_frame` describes.

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindSection};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection};

/// The most functions whose descriptions are read.
const DESCRIPTIONS_MAX: usize = 8 << 20;

/// An executable or a library.
pub(crate) type Elf<'data> = ElfFile64<'data, Endianness>;

/// A function that `.eh_frame` describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The offset of the description in `.eh_frame`.
    pub(crate) description: u32,
}

/// The descriptions in an `.eh_frame`.
pub(crate) struct Descriptions {
    /// The address and the bytes of the section.
    pub(crate) address: u64,
    pub(crate) length: u64,
    /// The functions, in the order of their addresses.
    pub(crate) functions: Vec<Described>,
}

/// Reads the descriptions of `.eh_frame`, as far as they are whole. `None` if there is none.
pub(crate) fn descriptions(file: &Elf<'_>) -> Option<Descriptions> {
    let section = file.section_by_name(".eh_frame")?;
    let bytes = section.data().ok()?;
    let frames = EhFrame::from(EndianSlice::new(bytes, LittleEndian));
    let bases = BaseAddresses::default().set_eh_frame(section.address());
    let mut functions = Vec::new();
    let mut entries = frames.entries(&bases);
    // The common parts are few and near their descriptions: the latest is usually the right one.
    let mut latest = None;
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let parsed = partial.parse(|frames, bases, offset| match &latest {
            Some((at, common)) if *at == offset => Ok(Clone::clone(common)),
            _ => {
                let common = frames.cie_from_offset(bases, offset)?;
                latest = Some((offset, common.clone()));
                Ok(common)
            }
        });
        let Ok(description) = parsed else { continue };
        let (start, end) = (description.initial_address(), description.end_address());
        if start < end
            && let Ok(offset) = u32::try_from(description.offset())
        {
            functions.push(Described { start, end, description: offset });
        }
        if functions.len() == DESCRIPTIONS_MAX {
            break;
        }
    }
    functions.sort_unstable_by_key(|function| function.start);
    Some(Descriptions { address: section.address(), length: bytes.len() as u64, functions })
}
