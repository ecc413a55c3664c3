//! Constructors, and the classes that they construct.

use std::sync::Arc;

use gimli::{UnitOffset, UnitRef};
use heapledger_symbols::{EntryKey, Metered, demangle};

use crate::cxx_name::{Path, Type};
use crate::entries::{Entries, is_class, name_of};
use crate::spelled::Spelled;

/// The maximum number of references from a constructor's entry to the one in its class.
const NESTING_MAX: usize = 16;

impl<'a> Entries<'_, 'a> {
    /// Returns the class, and its size, if an entry is that of its constructor.
    pub(crate) fn constructed_class(
        &mut self,
        unit: UnitRef<'_, Metered<'a>>,
        function: UnitOffset,
    ) -> Option<Arc<Spelled>> {
        let key = EntryKey::new(unit, function)?;
        if let Some(known) = self.known.constructors.get(&key) {
            return known.clone();
        }
        let class = self.read_constructed_class(unit, function, 0);
        self.known.constructors.insert(key, class.clone());
        class
    }

    fn read_constructed_class(
        &mut self,
        unit: UnitRef<'_, Metered<'a>>,
        function: UnitOffset,
        nesting: usize,
    ) -> Option<Arc<Spelled>> {
        if nesting == NESTING_MAX {
            return None;
        }
        let entry = unit.entry(function).ok()?;
        let linkage = entry.attr_value(gimli::DW_AT_linkage_name).and_then(|name| unit.attr_string(name).ok());
        let linkage = linkage.map(|name| name.bytes().to_vec());
        let origin =
            entry.attr_value(gimli::DW_AT_abstract_origin).or_else(|| entry.attr_value(gimli::DW_AT_specification));
        let found = match origin {
            Some(origin) => {
                let (target, origin) = self.units.follow(unit, origin)?;
                self.read_constructed_class(target.unit(), origin, nesting + 1)?
            }
            None => {
                let class = UnitOffset(*self.around(unit, function)?.first()?);
                let class_entry = unit.entry(class).ok()?;
                let (class_name, name) = (name_of(unit, &class_entry)?, name_of(unit, &entry)?);
                let plain = class_name.split('<').next().unwrap_or_default();
                if !is_class(class_entry.tag()) || plain != &*name {
                    return None;
                }
                let (spelled, size) = self.type_of(unit, class)?;
                let size = size.or_else(|| {
                    // The class is only declared here and defined elsewhere.
                    let signature = class_entry.attr_value(gimli::DW_AT_signature)?;
                    let (target, class) = self.units.follow(unit, signature)?;
                    self.type_of(target.unit(), class)?.1
                });
                let size = size.or_else(|| self.size_elsewhere(unit, class));
                Arc::new((spelled, size))
            }
        };
        // Only the linkage name spells scopes in functions, and values of arguments, in one way.
        let told = linkage.and_then(|name| class_of_symbol(&name));
        Some(told.map_or(found.clone(), |class| Arc::new((class.full().into(), found.1))))
    }
}

/// Returns the class if a symbol is that of its constructor: `_ZN3app5PointC2Edd`.
pub(crate) fn class_of_symbol(name: &[u8]) -> Option<Type> {
    let is_candidate =
        name.starts_with(b"_Z") && name.windows(2).any(|pair| matches!(pair, b"C1" | b"C2" | b"C3" | b"C4"));
    class_of_constructor(demangle::function(name).full()).filter(|_| is_candidate)
}

/// Returns the class if a demangled name is that of its constructor: `app::Grid<int, 3>::Grid()`.
fn class_of_constructor(name: &str) -> Option<Type> {
    let path = Path::of_function(name)?;
    let class = path.parent()?;
    (class.last()?.name == path.last()?.name).then(|| Type::named(class))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constructors_by_name() {
        let class = |name: &str| class_of_symbol(name.as_bytes()).map(|class| class.full());
        assert_eq!(class("_ZN3app5PointC2Edd").as_deref(), Some("app::Point"));
        assert_eq!(class("_ZN3app4GridIiLi12EEC1Ev").as_deref(), Some("app::Grid<int, 12>"));
        assert_eq!(class("_ZZ11local_typesvEN5LocalC2Ev").as_deref(), Some("local_types()::Local"));
        assert_eq!(class("_ZN3app5PointC4Edd").as_deref(), Some("app::Point"));
        assert_eq!(class("_ZN3app5PointD2Ev"), None);
        assert_eq!(class("_ZN3app5Point4C1inEv"), None);
    }
}
