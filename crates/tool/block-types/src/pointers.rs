//! Follows variables, and the results of functions, to the types that they point to.

use std::sync::Arc;

use gimli::{UnitOffset, UnitRef};
use heapledger_symbols::{EntryRef, Metered};

use crate::entries::{Entries, name_of};
use crate::spelled::Spelled;

/// The maximum number of references that are followed.
const NESTING_MAX: usize = 16;

impl<'a> Entries<'_, 'a> {
    /// Returns the name of a variable, and its type.
    pub(crate) fn variable<'u>(&self, mut variable: EntryRef<'u, 'a>) -> Option<(Arc<str>, EntryRef<'u, 'a>)> {
        for _ in 0..NESTING_MAX {
            let entry = variable.unit().entry(variable.offset).ok()?;
            if let Some(name) = name_of(variable.unit(), &entry)
                && let Some(of) = entry.attr_value(gimli::DW_AT_type)
            {
                return Some((name, self.units.follow_from(&variable, of)?));
            }
            let origin = entry.attr_value(gimli::DW_AT_abstract_origin);
            variable =
                self.units.follow_from(&variable, origin.or_else(|| entry.attr_value(gimli::DW_AT_specification))?)?;
        }
        None
    }

    /// Returns the target of a pointer, or the element of an array; `None` if the type is neither,
    /// or points to `void` or to a function, which is not a block.
    pub(crate) fn pointee<'u>(&self, of: EntryRef<'u, 'a>) -> Option<EntryRef<'u, 'a>> {
        let pointer = self.strip(of, true)?;
        let entry = pointer.unit().entry(pointer.offset).ok()?;
        if entry.tag() != gimli::DW_TAG_pointer_type && entry.tag() != gimli::DW_TAG_array_type {
            return None;
        }
        let pointee = self.units.follow_from(&pointer, entry.attr_value(gimli::DW_AT_type)?)?;
        let real = self.strip(pointee.clone(), true)?;
        let is_function = real.unit().entry(real.offset).ok()?.tag() == gimli::DW_TAG_subroutine_type;
        if is_function { None } else { self.strip(pointee, false) }
    }

    /// True for a pointer to `void`.
    fn is_void_pointer(&self, of: EntryRef<'_, 'a>) -> bool {
        let Some(pointer) = self.strip(of, true) else { return false };
        let Ok(entry) = pointer.unit().entry(pointer.offset) else { return false };
        if entry.tag() != gimli::DW_TAG_pointer_type {
            return false;
        }
        match entry.attr_value(gimli::DW_AT_type) {
            None => true,
            // `const void *` has an entry for the qualifier, which refers to nothing.
            Some(pointee) => {
                self.units.follow_from(&pointer, pointee).is_some_and(|pointee| self.strip(pointee, true).is_none())
            }
        }
    }

    /// Returns the type without `const` and the like, and without `typedef` if `typedefs` is true;
    /// `None` for `void`.
    pub(crate) fn strip<'u>(&self, mut of: EntryRef<'u, 'a>, typedefs: bool) -> Option<EntryRef<'u, 'a>> {
        for _ in 0..NESTING_MAX {
            let entry = of.unit().entry(of.offset).ok()?;
            let is_stripped = match entry.tag() {
                gimli::DW_TAG_const_type | gimli::DW_TAG_volatile_type | gimli::DW_TAG_restrict_type => true,
                gimli::DW_TAG_typedef => typedefs,
                _ => false,
            };
            if !is_stripped {
                return Some(of);
            }
            of = self.units.follow_from(&of, entry.attr_value(gimli::DW_AT_type)?)?;
        }
        None
    }

    /// Returns the target of the pointer that the function of this entry returns; `void` is spelled
    /// so.
    pub(crate) fn returned(&mut self, unit: UnitRef<'_, Metered<'a>>, function: UnitOffset) -> Option<Spelled> {
        let mut at = self.units.entry(unit, function)?;
        for _ in 0..NESTING_MAX {
            let entry = at.unit().entry(at.offset).ok()?;
            if let Some(of) = entry.attr_value(gimli::DW_AT_type) {
                let of = self.units.follow_from(&at, of)?;
                if self.is_void_pointer(of.clone()) {
                    return Some(("void".into(), None));
                }
                let pointee = self.pointee(of)?;
                return self.spelled(&pointee);
            }
            let origin = entry.attr_value(gimli::DW_AT_abstract_origin);
            at = self.units.follow_from(&at, origin.or_else(|| entry.attr_value(gimli::DW_AT_specification))?)?;
        }
        None
    }

    pub(crate) fn spelled(&mut self, of: &EntryRef<'_, 'a>) -> Option<Spelled> {
        let (name, size) = self.type_of(of.unit(), of.offset)?;
        Some((name, size.or_else(|| self.size_elsewhere(of.unit(), of.offset))))
    }
}
