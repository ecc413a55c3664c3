//! Reads the bodies of functions: the constructors inlined into them, and their variables.

use std::sync::Arc;

use gimli::{AttributeValue, Operation, UnitOffset, UnitRef};
use heapledger_symbols::{EntryKey, Metered};

use crate::body::{Body, Constructor, Place, Variable};
use crate::entries::Entries;

/// The maximum number of entries of one function that are kept.
const KEPT_MAX: usize = 1 << 16;

impl<'a> Entries<'_, 'a> {
    /// Returns the body of the function whose entry this is.
    pub(crate) fn body(&mut self, unit: UnitRef<'_, Metered<'a>>, function: UnitOffset) -> Option<Arc<Body>> {
        let key = EntryKey::new(unit, function)?;
        if let Some(body) = self.known.bodies.get(&key) {
            return Some(body.clone());
        }
        let mut body = Body::default();
        // The part that was read before a damaged entry is valid.
        let _ = self.read_body(unit, function, &mut body);
        body.constructors.sort_by_key(|found| found.start);
        let body = Arc::new(body);
        self.known.bodies.insert(key, body.clone());
        Some(body)
    }

    fn read_body(
        &mut self,
        unit: UnitRef<'_, Metered<'a>>,
        function: UnitOffset,
        body: &mut Body,
    ) -> gimli::Result<()> {
        let own = unit.entry(function)?;
        body.frame_base = own.attr_value(gimli::DW_AT_frame_base).and_then(|base| frame_base(unit, base));
        let mut entries = unit.entries_raw(Some(function))?;
        let first = entries.read_abbreviation()?;
        if first.is_none_or(|first| !first.has_children()) {
            return Ok(());
        }
        entries.skip_attributes(first.map_or(&[], |first| first.attributes()))?;
        while entries.next_depth() > 0 && !entries.is_empty() {
            let offset = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            entries.skip_attributes(abbreviation.attributes())?;
            if body.constructors.len() + body.variables.len() == KEPT_MAX {
                break;
            }
            match abbreviation.tag() {
                gimli::DW_TAG_inlined_subroutine => self.read_inlined(unit, offset, body)?,
                gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter => {
                    _ = self.read_variable(unit, offset, body);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn read_inlined(
        &mut self,
        unit: UnitRef<'_, Metered<'a>>,
        offset: UnitOffset,
        body: &mut Body,
    ) -> gimli::Result<()> {
        let entry = unit.entry(offset)?;
        let Some(origin) = entry.attr_value(gimli::DW_AT_abstract_origin) else { return Ok(()) };
        let Some((target, origin)) = self.units.follow(unit, origin) else { return Ok(()) };
        let Some(class) = self.constructed_class(target.unit(), origin) else { return Ok(()) };
        let number =
            |at| entry.attr_value(at).and_then(|value| value.udata_value()).and_then(|n| u32::try_from(n).ok());
        let (line, column) = (number(gimli::DW_AT_call_line), number(gimli::DW_AT_call_column));
        let mut ranges = unit.die_ranges(&entry)?;
        let mut starts = Vec::new();
        while let Some(range) = ranges.next()? {
            starts.push(range.begin);
        }
        if let Some(AttributeValue::Addr(entry)) = entry.attr_value(gimli::DW_AT_entry_pc) {
            starts.push(entry);
        }
        starts.sort_unstable();
        starts.dedup();
        for start in starts {
            body.constructors.push(Constructor { start, class: class.clone(), line, column });
        }
        Ok(())
    }

    fn read_variable(&mut self, unit: UnitRef<'_, Metered<'a>>, offset: UnitOffset, body: &mut Body) -> Option<()> {
        let entry = unit.entry(offset).ok()?;
        let location = entry.attr_value(gimli::DW_AT_location)?;
        let mut places = Vec::new();
        if let AttributeValue::Exprloc(expression) = location {
            let mut operations = expression.operations(unit.encoding());
            if let Ok(Some(Operation::FrameOffset { offset })) = operations.next() {
                places.push(Place::Frame(offset));
            }
        } else {
            let mut locations = unit.attr_locations(location).ok()??;
            while let Ok(Some(location)) = locations.next() {
                let mut operations = location.data.operations(unit.encoding());
                if let Ok(Some(Operation::Register { .. })) = operations.next()
                    && let Ok(None) = operations.next()
                {
                    places.push(Place::Register(location.range.begin));
                }
            }
        }
        if places.is_empty() {
            return None;
        }
        let variable = self.units.entry(unit, offset)?;
        let (name, of) = self.variable(variable)?;
        let pointee = self.pointee(of)?;
        let pointee = self.spelled(&pointee)?;
        for place in places.into_iter().take(64) {
            body.variables.push(Variable { name: name.clone(), place, pointee: pointee.clone() });
        }
        Some(())
    }
}

/// Returns the offset from the frame pointer of the address that variables' locations are relative
/// to, if the code keeps a frame pointer.
fn frame_base(unit: UnitRef<'_, Metered<'_>>, base: AttributeValue<Metered<'_>>) -> Option<i64> {
    /// `rbp`.
    const FRAME_POINTER: gimli::Register = gimli::Register(6);
    let AttributeValue::Exprloc(expression) = base else { return None };
    match expression.operations(unit.encoding()).next().ok()?? {
        // The CFA is above the saved frame pointer and the return address.
        Operation::CallFrameCFA => Some(16),
        Operation::Register { register } if register == FRAME_POINTER => Some(0),
        Operation::RegisterOffset { register, offset, .. } if register == FRAME_POINTER => Some(offset),
        _ => None,
    }
}
