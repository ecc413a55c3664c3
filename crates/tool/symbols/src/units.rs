//! References between entries of the debug information: to other units, and to the supplementary
//! file that `dwz` makes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use gimli::{
    AttributeValue, DebugInfoOffset, DebugTypeSignature, Dwarf, Unit, UnitHeader, UnitOffset, UnitRef, UnitType,
};

use crate::meter::Metered;

/// Units of `.debug_types`, which DWARF 4 has, are numbered after those of `.debug_info`.
const IN_TYPES: usize = 1 << (usize::BITS - 2);
/// The maximum number of type units in one file.
const TYPES_MAX: usize = 1 << 20;

/// The units that references lead to. Each is read once.
#[derive(Debug, Default)]
pub struct Units<'a> {
    /// For each file: the offsets of units, and of the types with signatures.
    headers: RefCell<HashMap<EntryKey, Arc<Headers<'a>>>>,
    units: RefCell<HashMap<EntryKey, Arc<Unit<Metered<'a>>>>>,
}

/// The identity of an entry among those of all files of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EntryKey {
    /// The file: the address of its sections, which do not move.
    sections: usize,
    /// The offset in it.
    offset: usize,
}

/// The unit that a reference refers to.
#[derive(Debug)]
pub enum Target<'u, 'a> {
    /// The unit of the reference.
    Same(UnitRef<'u, Metered<'a>>),
    /// A unit that the reference led to.
    Other(&'u Dwarf<Metered<'a>>, Arc<Unit<Metered<'a>>>),
}

/// An entry, with its unit.
#[derive(Debug, Clone)]
pub struct EntryRef<'u, 'a> {
    dwarf: &'u Dwarf<Metered<'a>>,
    unit: Arc<Unit<Metered<'a>>>,
    /// The offset in the unit.
    pub offset: UnitOffset,
}

#[derive(Debug, Default)]
struct Headers<'a> {
    /// Ascending: see [`position`].
    offsets: Vec<usize>,
    signatures: HashMap<DebugTypeSignature, (usize, UnitOffset)>,
    /// The units that only a walk through their section finds.
    types: HashMap<usize, UnitHeader<Metered<'a>>>,
}

impl EntryKey {
    /// Returns the key of an entry of a unit.
    pub fn new(unit: UnitRef<'_, Metered<'_>>, offset: UnitOffset) -> Option<Self> {
        Some(Self::at(unit.dwarf, position(&unit.header)?.checked_add(offset.0)?))
    }

    /// Returns a key for a whole file.
    pub fn of_file(dwarf: &Dwarf<Metered<'_>>) -> Self {
        Self::at(dwarf, 0)
    }

    fn at(dwarf: &Dwarf<Metered<'_>>, offset: usize) -> Self {
        Self { sections: (&raw const *dwarf).addr(), offset }
    }
}

impl<'a> Target<'_, 'a> {
    /// Returns the unit.
    pub fn unit(&self) -> UnitRef<'_, Metered<'a>> {
        match self {
            Self::Same(unit) => *unit,
            Self::Other(dwarf, unit) => UnitRef::new(dwarf, unit),
        }
    }
}

impl<'a> EntryRef<'_, 'a> {
    /// Returns the unit.
    pub fn unit(&self) -> UnitRef<'_, Metered<'a>> {
        UnitRef::new(self.dwarf, &self.unit)
    }
}

impl<'a> Units<'a> {
    /// Returns the entry that a reference in a unit refers to: its unit, and the offset there.
    pub fn follow<'u>(
        &self,
        unit: UnitRef<'u, Metered<'a>>,
        reference: AttributeValue<Metered<'a>>,
    ) -> Option<(Target<'u, 'a>, UnitOffset)> {
        let EntryRef { dwarf, unit, offset } = match reference {
            AttributeValue::UnitRef(offset) => return Some((Target::Same(unit), offset)),
            AttributeValue::DebugInfoRef(offset) => match offset.to_unit_offset(&unit.header) {
                Some(offset) => return Some((Target::Same(unit), offset)),
                None => self.at(unit.dwarf, offset)?,
            },
            AttributeValue::DebugInfoRefSup(offset) => self.at(unit.dwarf.sup()?, offset)?,
            AttributeValue::DebugTypesRef(signature) => self.signed(unit.dwarf, signature)?,
            _ => return None,
        };
        Some((Target::Other(dwarf, unit), offset))
    }

    /// Returns the entry that a reference in the unit of another entry refers to.
    pub fn follow_from<'u>(
        &self,
        from: &EntryRef<'u, 'a>,
        reference: AttributeValue<Metered<'a>>,
    ) -> Option<EntryRef<'u, 'a>> {
        let same = |offset| Some(EntryRef { dwarf: from.dwarf, unit: from.unit.clone(), offset });
        match reference {
            AttributeValue::UnitRef(offset) => same(offset),
            AttributeValue::DebugInfoRef(offset) => match offset.to_unit_offset(&from.unit.header) {
                Some(offset) => same(offset),
                None => self.at(from.dwarf, offset),
            },
            AttributeValue::DebugInfoRefSup(offset) => self.at(from.dwarf.sup()?, offset),
            AttributeValue::DebugTypesRef(signature) => self.signed(from.dwarf, signature),
            _ => None,
        }
    }

    /// Returns an entry in a form that outlives the reference to its unit.
    pub fn entry<'u>(&self, unit: UnitRef<'u, Metered<'a>>, offset: UnitOffset) -> Option<EntryRef<'u, 'a>> {
        let own = self.unit(unit.dwarf, position(&unit.header)?)?;
        Some(EntryRef { dwarf: unit.dwarf, unit: own, offset })
    }

    /// Returns the unit of a file that [starts](Self::starts) at an offset.
    pub fn unit(&self, dwarf: &Dwarf<Metered<'a>>, start: usize) -> Option<Arc<Unit<Metered<'a>>>> {
        let key = EntryKey::at(dwarf, start);
        if let Some(unit) = self.units.borrow().get(&key) {
            return Some(unit.clone());
        }
        let header = match start & IN_TYPES {
            0 => dwarf.unit_header(DebugInfoOffset(start)).ok()?,
            _ => *self.headers(dwarf).types.get(&start)?,
        };
        let unit = Arc::new(dwarf.unit(header).ok()?);
        self.units.borrow_mut().insert(key, unit.clone());
        Some(unit)
    }

    /// Returns the offsets at which the units of a file begin.
    pub fn starts(&self, dwarf: &Dwarf<Metered<'a>>) -> Vec<usize> {
        self.headers(dwarf).offsets.clone()
    }

    fn at<'u>(&self, dwarf: &'u Dwarf<Metered<'a>>, offset: DebugInfoOffset) -> Option<EntryRef<'u, 'a>> {
        let headers = self.headers(dwarf);
        let before = headers.offsets.partition_point(|&start| start <= offset.0);
        let unit = self.unit(dwarf, headers.offsets[before.checked_sub(1)?])?;
        let offset = offset.to_unit_offset(&unit.header)?;
        Some(EntryRef { dwarf, unit, offset })
    }

    /// Returns the type with this signature.
    fn signed<'u>(&self, dwarf: &'u Dwarf<Metered<'a>>, signature: DebugTypeSignature) -> Option<EntryRef<'u, 'a>> {
        let headers = self.headers(dwarf);
        let &(start, offset) = headers.signatures.get(&signature)?;
        Some(EntryRef { dwarf, unit: self.unit(dwarf, start)?, offset })
    }

    fn headers(&self, dwarf: &Dwarf<Metered<'a>>) -> Arc<Headers<'a>> {
        let read = || {
            let mut headers = Headers::default();
            let mut units = dwarf.units();
            while let Ok(Some(header)) = units.next() {
                headers.add(&header);
            }
            let mut units = dwarf.type_units();
            while let Ok(Some(header)) = units.next() {
                if let Some(start) = headers.add(&header).filter(|_| headers.types.len() < TYPES_MAX) {
                    headers.types.insert(start, header);
                }
            }
            Arc::new(headers)
        };
        self.headers.borrow_mut().entry(EntryKey::of_file(dwarf)).or_insert_with(read).clone()
    }
}

impl Headers<'_> {
    fn add(&mut self, header: &UnitHeader<Metered<'_>>) -> Option<usize> {
        let start = position(header)?;
        self.offsets.push(start);
        if let UnitType::Type { type_signature, type_offset } | UnitType::SplitType { type_signature, type_offset } =
            header.type_()
        {
            self.signatures.insert(type_signature, (start, type_offset));
        }
        Some(start)
    }
}

/// Returns the offset of a unit.
fn position(header: &UnitHeader<Metered<'_>>) -> Option<usize> {
    match header.debug_info_offset() {
        Some(offset) => Some(offset.0),
        None => header.debug_types_offset()?.0.checked_add(IN_TYPES),
    }
}
