//! The layout of the reserve: which slot or guard page an offset belongs to.
//!
//! The reserve is one contiguous range of addresses, divided among classes. A class has slots of
//! `4096 << class` bytes. In each class guard pages and slots alternate, and it begins and ends
//! with a guard page:
//!
//! ```text
//! guard │ slot 0 │ guard │ slot 1 │ guard │ …
//! ```
//!
//! Class 0 is the layout of Mozilla's PHC, whose blocks have at most a page; the others hold larger
//! blocks, and blocks that are aligned to more than a page.

use heapledger_core::block_sampler::metadata_page;

/// The size of a page, and of a guard, in bytes.
pub const PAGE: usize = 4096;
/// The number of classes.
pub(crate) const CLASSES: usize = 5;
/// The bytes of addresses that each class has.
const CLASS_BYTES: [usize; CLASSES] = [128 << 20, 32 << 20, 32 << 20, 32 << 20, 32 << 20];
/// The bytes of addresses of the whole reserve.
pub const RESERVE: usize = CLASS_BYTES[0] + CLASS_BYTES[1] + CLASS_BYTES[2] + CLASS_BYTES[3] + CLASS_BYTES[4];

/// The first number of the slots of each class; then the number of all slots.
const FIRST: [u32; CLASSES + 1] = {
    let mut first = [0; CLASSES + 1];
    let mut class = 0;
    while class < CLASSES {
        first[class + 1] = first[class] + slots_max(class);
        class += 1;
    }
    first
};
/// The number of slots that the reserve has room for.
pub(crate) const SLOTS_MAX: u32 = FIRST[CLASSES];

/// The number of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotNumber(pub(crate) u32);

/// The part of the reserve that an offset belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// A slot.
    Slot(SlotNumber),
    /// A guard page: an access there is blamed on the nearest slot. In the lower half it is an
    /// overflow of the slot before, in the upper half an underflow of the slot behind. `None` if
    /// there is no slot on that side.
    Guard { nearest: Option<SlotNumber>, is_lower: bool },
}

/// Returns the bytes of each slot of a class.
pub(crate) const fn slot_length(class: usize) -> usize {
    PAGE << class
}

/// Returns the number of slots that a class has room for.
pub(crate) const fn slots_max(class: usize) -> u32 {
    ((CLASS_BYTES[class] - PAGE) / (slot_length(class) + PAGE)) as u32
}

/// Returns the class of a slot.
pub(crate) fn class_of(slot: SlotNumber) -> usize {
    FIRST.iter().skip(1).take_while(|&&first| slot.0 >= first).count()
}

/// Returns the number of the slot at an index of a class.
pub(crate) fn number(class: usize, index: u32) -> SlotNumber {
    SlotNumber(FIRST.get(class).map_or(0, |first| first + index))
}

/// Returns the offset of a class from the beginning of the reserve.
fn class_offset(class: usize) -> usize {
    CLASS_BYTES.iter().take(class).sum()
}

/// Returns the offset of a slot from the beginning of the reserve.
pub(crate) fn offset_of(slot: SlotNumber) -> usize {
    let class = class_of(slot);
    let index = slot.0 - FIRST.get(class).copied().unwrap_or(0);
    class_offset(class) + PAGE + index as usize * (slot_length(class) + PAGE)
}

/// True if a slot may be used: neither it nor the guards beside it are a page that the allocator
/// reads, which is accessible. The reserve is aligned to `LAYOUT_PERIOD`, so its offsets have the
/// metadata pages of addresses.
pub(crate) fn is_usable(slot: SlotNumber) -> bool {
    let start = offset_of(slot);
    let (from, to) = (start - PAGE, start + slot_length(class_of(slot)) + PAGE);
    // It is shorter than the distance of two such pages.
    [from, to - 1].into_iter().map(metadata_page).all(|page| page + PAGE <= from || page >= to)
}

/// Returns the smallest class with room for a block; `None` if there is none. `alignment` is a
/// power of two.
pub(crate) fn class_for(size: usize, alignment: usize) -> Option<usize> {
    // Slots are aligned to pages: more alignment costs room. A block of no bytes has an address of
    // its own, too.
    let needed = size.max(1).checked_add(alignment.saturating_sub(PAGE))?;
    (0..CLASSES).find(|&class| slot_length(class) >= needed)
}

/// Returns the part that an offset from the beginning of the reserve belongs to. `None` outside of
/// the reserve, and in the unused rest of a class.
pub(crate) fn position(offset: usize) -> Option<Position> {
    let mut rest = offset;
    let class = CLASS_BYTES.iter().position(|&bytes| {
        let is_inside = rest < bytes;
        if !is_inside {
            rest -= bytes;
        }
        is_inside
    })?;
    let stride = slot_length(class) + PAGE;
    let (index, within) = ((rest / stride) as u32, rest % stride);
    let slots = slots_max(class);
    if within >= PAGE {
        return (index < slots).then(|| Position::Slot(number(class, index)));
    }
    let is_lower = within < PAGE / 2;
    let nearest = if is_lower { index.checked_sub(1) } else { Some(index) };
    let nearest = nearest.filter(|&index| index < slots).map(|index| number(class, index));
    (index <= slots).then_some(Position::Guard { nearest, is_lower })
}

#[cfg(test)]
mod tests;
