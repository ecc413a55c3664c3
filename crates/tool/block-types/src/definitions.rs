//! Classes that other units define.

use std::sync::Arc;

use gimli::{Dwarf, UnitOffset, UnitRef};
use heapledger_symbols::{EntryKey, Metered};

use crate::cxx_name::Type;
use crate::entries::{Entries, is_class, name_of};
use crate::known_entries::Definitions;
use crate::spelled::Spelled;

/// The maximum number of classes of one file that are known by name.
const NAMES_MAX: usize = 1 << 20;
/// The maximum number of classes with the same name that are examined.
const SAME_NAME_MAX: usize = 64;

impl<'a> Entries<'_, 'a> {
    /// Finds a class that another unit defines, such as a type unit of `-fdebug-types-section`.
    pub(crate) fn class_elsewhere(&mut self, unit: UnitRef<'_, Metered<'a>>, called: &Type) -> Option<Spelled> {
        let definitions = self.definitions(unit.dwarf);
        let plain = hash(called.path.last()?.name.as_bytes());
        let mut found: Option<Spelled> = None;
        for &(start, offset) in definitions.get(&plain).into_iter().flatten().take(SAME_NAME_MAX) {
            let other = self.units.unit(unit.dwarf, start)?;
            let spelled = self.type_of(UnitRef::new(unit.dwarf, &other), offset)?;
            if !Type::parse(&spelled.0)?.can_be_called(called) {
                continue;
            }
            if found.as_ref().is_some_and(|known| known.0 != spelled.0) {
                return None;
            }
            found = Some(spelled);
        }
        found
    }

    /// Returns the size of a class that is only declared here: compilers define classes with
    /// virtual functions once, in the unit that has their vtables.
    pub(crate) fn size_elsewhere(&mut self, unit: UnitRef<'_, Metered<'a>>, class: UnitOffset) -> Option<u64> {
        let entry = unit.entry(class).ok()?;
        if !is_class(entry.tag()) || entry.attr_value(gimli::DW_AT_declaration).is_none() {
            return None;
        }
        let name = name_of(unit, &entry)?;
        let full = self.scoped_name(unit, class)?;
        for dwarf in [Some(unit.dwarf), unit.dwarf.sup()].into_iter().flatten() {
            let definitions = self.definitions(dwarf);
            for &(start, offset) in
                definitions.get(&hash(plain(&name).as_bytes())).into_iter().flatten().take(SAME_NAME_MAX)
            {
                let other = self.units.unit(dwarf, start)?;
                let other = UnitRef::new(dwarf, &other);
                if self.scoped_name(other, offset).is_some_and(|other| other == full) {
                    let size = other.entry(offset).ok()?.attr_value(gimli::DW_AT_byte_size);
                    return size.and_then(|size| size.udata_value());
                }
            }
        }
        None
    }

    fn definitions(&mut self, dwarf: &Dwarf<Metered<'a>>) -> Arc<Definitions> {
        let key = EntryKey::of_file(dwarf);
        if let Some(known) = self.known.definitions.get(&key) {
            return known.clone();
        }
        let mut found = Definitions::new();
        for start in self.units.starts(dwarf) {
            if let Some(unit) = self.units.unit(dwarf, start) {
                // The part that could be read is valid.
                let _ = read_definitions(UnitRef::new(dwarf, &unit), start, &mut found);
            }
        }
        let found = Arc::new(found);
        self.known.definitions.insert(key, found.clone());
        found
    }

    /// Returns the name of an entry with its scope.
    pub(crate) fn scoped_name(&mut self, unit: UnitRef<'_, Metered<'a>>, offset: UnitOffset) -> Option<Arc<str>> {
        let name = name_of(unit, &unit.entry(offset).ok()?)?;
        Some(match self.scope_name(unit, offset) {
            Some(scope) if !scope.is_empty() => format!("{scope}::{name}").into(),
            _ => name,
        })
    }
}

fn read_definitions(unit: UnitRef<'_, Metered<'_>>, start: usize, found: &mut Definitions) -> gimli::Result<()> {
    let mut entries = unit.entries_raw(None)?;
    while !entries.is_empty() && found.len() < NAMES_MAX {
        let offset = entries.next_offset();
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        let has = |name| abbreviation.attributes().iter().any(|attribute| attribute.name() == name);
        if !is_class(abbreviation.tag()) || !has(gimli::DW_AT_byte_size) || !has(gimli::DW_AT_name) {
            entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        for &attribute in abbreviation.attributes() {
            let attribute = entries.read_attribute(attribute)?;
            if attribute.name() == gimli::DW_AT_name
                && let Ok(name) = unit.attr_string(attribute.value())
            {
                let plain = name.bytes().split(|&byte| byte == b'<').next().unwrap_or_default();
                found.entry(hash(plain)).or_default().push((start, offset));
            }
        }
    }
    Ok(())
}

/// Returns a name without template arguments.
pub(crate) fn plain(name: &str) -> &str {
    name.split('<').next().unwrap_or_default()
}

/// Returns the FNV-1a hash.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
