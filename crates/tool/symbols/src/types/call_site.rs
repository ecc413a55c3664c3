//! The use that a function makes of a block right after the call that returned it: it constructs
//! objects, and stores the address in a variable.

use std::sync::Arc;

use gimli::{AttributeValue, Dwarf, Operation, Unit, UnitOffset, UnitRef};

use super::cxx_name::{Path, Type};
use super::entries::{Entries, Spelled, Target, is_class, key, name_of, position};
use super::frame::{Constructed, Language, Received};
use super::name::TypeName;
use crate::demangle;
use crate::meter::Metered;

/// Bytes of code after the return address in which constructors count.
pub(crate) const WINDOW: u64 = 96;
/// Bytes after the return address within which the range of the variable that holds the result must
/// begin: some moves, and a test.
const MOVES: u64 = 24;
/// The maximum number of entries of one function that are kept.
const KEPT_MAX: usize = 1 << 16;
/// The maximum number of references that are followed.
const NESTING_MAX: usize = 16;

/// A function with code of its own: the functions inlined into it, and its variables.
#[derive(Debug, Default)]
pub(crate) struct Body {
    constructors: Vec<Constructor>,
    variables: Vec<Variable>,
    /// The offset from the frame pointer of the address that variables' locations are relative to.
    frame_base: Option<i64>,
}

#[derive(Debug)]
struct Constructor {
    start: u64,
    class: Arc<Spelled>,
    line: Option<u32>,
    column: Option<u32>,
}

#[derive(Debug)]
struct Variable {
    name: Arc<str>,
    place: Place,
    pointee: Spelled,
}

#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// At this offset from the frame base.
    Frame(i64),
    /// In a register from this address on.
    Register(u64),
}

impl Body {
    /// Returns the classes that are constructed after `address`, nearest first.
    pub(crate) fn constructed(&self, address: u64) -> Vec<Constructed> {
        let found =
            self.constructors.iter().filter(|found| (address..address.saturating_add(WINDOW)).contains(&found.start));
        found
            .map(|found| Constructed {
                class: TypeName::new(Language::Cxx, &found.class.0),
                size: found.class.1,
                distance: (found.start - address) as u32,
                line: found.line,
                column: found.column,
            })
            .collect()
    }

    /// Returns the variable that the code after `address` stores the result in.
    pub(crate) fn received(&self, address: u64, code: &[u8], language: Language) -> Option<Received> {
        let stored = stored_at(code).zip(self.frame_base).and_then(|(stored, base)| stored.checked_sub(base));
        let in_frame = |variable: &&Variable| stored.is_some_and(|stored| variable.place == Place::Frame(stored));
        let in_register = |variable: &Variable| match variable.place {
            Place::Register(from) => from.checked_sub(address).filter(|&distance| distance < MOVES),
            Place::Frame(_) => None,
        };
        let nearest = || {
            let near = self.variables.iter().filter_map(|variable| Some((in_register(variable)?, variable)));
            near.min_by_key(|(distance, _)| *distance).map(|(_, variable)| variable)
        };
        let found = self.variables.iter().find(in_frame).or_else(nearest)?;
        Some(Received {
            variable: found.name.clone(),
            type_name: TypeName::new(language, &found.pointee.0),
            size: found.pointee.1,
        })
    }
}

/// Returns the offset from the frame pointer at which x86-64 code, at its beginning, stores the
/// result of the last call: `mov %rax,-0x18(%rbp)`.
fn stored_at(code: &[u8]) -> Option<i64> {
    match code {
        [0x48, 0x89, 0x45, at, ..] => Some(i64::from(*at as i8)),
        [0x48, 0x89, 0x85, a, b, c, d, ..] => Some(i64::from(i32::from_le_bytes([*a, *b, *c, *d]))),
        _ => None,
    }
}

/// Returns the positions of the calls in x86-64 code, and the called addresses, relative to the
/// beginning of the code. Bytes that only look like a call are included.
pub(crate) fn calls(code: &[u8]) -> impl Iterator<Item = (u32, i64)> + '_ {
    code.windows(5).enumerate().filter(|(_, bytes)| bytes[0] == 0xe8).map(|(at, bytes)| {
        let distance = i32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
        (at as u32, at as i64 + 5 + i64::from(distance))
    })
}

/// Returns the address of the slot from which the address of the called function is read, if the
/// six bytes of x86-64 code before `after` end in a call through memory, or in a call of a stub
/// that jumps through memory.
pub(crate) fn slot_of_call<'c>(code: &[u8; 6], after: u64, code_at: impl Fn(u64) -> &'c [u8]) -> Option<u64> {
    let relative = |bytes: &[u8], from: u64| {
        let distance = i32::from_le_bytes(*bytes.first_chunk()?);
        from.checked_add_signed(distance.into())
    };
    if let [0xff, 0x15, distance @ ..] = code {
        return relative(distance, after);
    }
    let [_, 0xe8, distance @ ..] = code else { return None };
    let stub = relative(distance, after)?;
    let mut code = code_at(stub);
    let mut at = stub;
    // Skips `endbr64`, and the prefix `bnd`.
    for skipped in [&[0xf3, 0x0f, 0x1e, 0xfa][..], &[0xf2][..]] {
        if let Some(rest) = code.strip_prefix(skipped) {
            code = rest;
            at = at.checked_add(skipped.len() as u64)?;
        }
    }
    relative(code.strip_prefix(&[0xff, 0x25])?, at.checked_add(6)?)
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

impl<'a> Entries<'a> {
    /// Returns the body of the function whose entry this is.
    pub(crate) fn body(&mut self, unit: UnitRef<'_, Metered<'a>>, function: UnitOffset) -> Option<Arc<Body>> {
        let key = key(unit, function)?;
        if let Some(body) = self.bodies.get(&key) {
            return Some(body.clone());
        }
        let mut body = Body::default();
        // The part that was read before a damaged entry is valid.
        let _ = self.read_body(unit, function, &mut body);
        body.constructors.sort_by_key(|found| found.start);
        let body = Arc::new(body);
        self.bodies.insert(key, body.clone());
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
        let Some((target, origin)) = self.follow(unit, origin) else { return Ok(()) };
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

    /// Returns the class, and its size, if an entry is that of its constructor.
    pub(crate) fn constructed_class(
        &mut self,
        unit: UnitRef<'_, Metered<'a>>,
        function: UnitOffset,
    ) -> Option<Arc<Spelled>> {
        let key = key(unit, function)?;
        if let Some(known) = self.constructors.get(&key) {
            return known.clone();
        }
        let class = self.read_constructed_class(unit, function, 0);
        self.constructors.insert(key, class.clone());
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
                let (target, origin) = self.follow(unit, origin)?;
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
                    let (target, class) = self.follow(unit, signature)?;
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
        let variable = self.spot(unit, offset)?;
        let (name, of) = self.variable(variable)?;
        let pointee = self.pointee(of)?;
        let pointee = self.spelled(&pointee)?;
        for place in places.into_iter().take(64) {
            body.variables.push(Variable { name: name.clone(), place, pointee: pointee.clone() });
        }
        Some(())
    }

    /// Returns the name of a variable, and its type.
    pub(crate) fn variable<'u>(&mut self, mut variable: Spot<'u, 'a>) -> Option<(Arc<str>, Spot<'u, 'a>)> {
        for _ in 0..NESTING_MAX {
            let entry = variable.unit().entry(variable.offset).ok()?;
            if let Some(name) = name_of(variable.unit(), &entry)
                && let Some(of) = entry.attr_value(gimli::DW_AT_type)
            {
                return Some((name, self.go(&variable, of)?));
            }
            let origin = entry.attr_value(gimli::DW_AT_abstract_origin);
            variable = self.go(&variable, origin.or_else(|| entry.attr_value(gimli::DW_AT_specification))?)?;
        }
        None
    }

    /// Returns the target of a pointer, or the element of an array; `None` if the type is neither,
    /// or points to `void` or to a function, which is not a block.
    pub(crate) fn pointee<'u>(&mut self, of: Spot<'u, 'a>) -> Option<Spot<'u, 'a>> {
        let pointer = self.strip(of, true)?;
        let entry = pointer.unit().entry(pointer.offset).ok()?;
        if entry.tag() != gimli::DW_TAG_pointer_type && entry.tag() != gimli::DW_TAG_array_type {
            return None;
        }
        let pointee = self.go(&pointer, entry.attr_value(gimli::DW_AT_type)?)?;
        let real = self.strip(pointee.clone(), true)?;
        let is_function = real.unit().entry(real.offset).ok()?.tag() == gimli::DW_TAG_subroutine_type;
        if is_function { None } else { self.strip(pointee, false) }
    }

    /// True for a pointer to `void`.
    fn is_void_pointer(&mut self, of: Spot<'_, 'a>) -> bool {
        let Some(pointer) = self.strip(of, true) else { return false };
        let Ok(entry) = pointer.unit().entry(pointer.offset) else { return false };
        if entry.tag() != gimli::DW_TAG_pointer_type {
            return false;
        }
        match entry.attr_value(gimli::DW_AT_type) {
            None => true,
            // `const void *` has an entry for the qualifier, which refers to nothing.
            Some(pointee) => self.go(&pointer, pointee).is_some_and(|pointee| self.strip(pointee, true).is_none()),
        }
    }

    /// Returns the type without `const` and the like, and without `typedef` if `typedefs` is true;
    /// `None` for `void`.
    pub(crate) fn strip<'u>(&mut self, mut of: Spot<'u, 'a>, typedefs: bool) -> Option<Spot<'u, 'a>> {
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
            of = self.go(&of, entry.attr_value(gimli::DW_AT_type)?)?;
        }
        None
    }

    /// Returns the target of the pointer that the function of this entry returns; `void` is spelled
    /// so.
    pub(crate) fn returned(&mut self, unit: UnitRef<'_, Metered<'a>>, function: UnitOffset) -> Option<Spelled> {
        let mut at = self.spot(unit, function)?;
        for _ in 0..NESTING_MAX {
            let entry = at.unit().entry(at.offset).ok()?;
            if let Some(of) = entry.attr_value(gimli::DW_AT_type) {
                let of = self.go(&at, of)?;
                if self.is_void_pointer(of.clone()) {
                    return Some(("void".into(), None));
                }
                let pointee = self.pointee(of)?;
                return self.spelled(&pointee);
            }
            let origin = entry.attr_value(gimli::DW_AT_abstract_origin);
            at = self.go(&at, origin.or_else(|| entry.attr_value(gimli::DW_AT_specification))?)?;
        }
        None
    }

    pub(crate) fn spelled(&mut self, of: &Spot<'_, 'a>) -> Option<Spelled> {
        let (name, size) = self.type_of(of.unit(), of.offset)?;
        Some((name, size.or_else(|| self.size_elsewhere(of.unit(), of.offset))))
    }

    /// Returns an entry, in a form that outlives the reference to its unit.
    pub(crate) fn spot<'u>(&mut self, unit: UnitRef<'u, Metered<'a>>, offset: UnitOffset) -> Option<Spot<'u, 'a>> {
        let own = self.unit(unit.dwarf, position(&unit.header)?)?;
        Some(Spot { dwarf: unit.dwarf, unit: own, offset })
    }

    /// Returns the entry that a reference refers to.
    pub(crate) fn go<'u>(
        &mut self,
        from: &Spot<'u, 'a>,
        reference: AttributeValue<Metered<'a>>,
    ) -> Option<Spot<'u, 'a>> {
        let same = |offset| Some(Spot { dwarf: from.dwarf, unit: from.unit.clone(), offset });
        let (target, offset) = match reference {
            AttributeValue::UnitRef(offset) => return same(offset),
            AttributeValue::DebugInfoRef(offset) => match offset.to_unit_offset(&from.unit.header) {
                Some(offset) => return same(offset),
                None => self.at(from.dwarf, offset)?,
            },
            AttributeValue::DebugInfoRefSup(offset) => self.at(from.dwarf.sup()?, offset)?,
            AttributeValue::DebugTypesRef(signature) => self.signed(from.dwarf, signature)?,
            _ => return None,
        };
        match target {
            Target::Other(dwarf, unit) => Some(Spot { dwarf, unit, offset }),
            Target::Same(_) => None,
        }
    }
}

/// An entry of some unit.
#[derive(Clone)]
pub(crate) struct Spot<'u, 'a> {
    dwarf: &'u Dwarf<Metered<'a>>,
    unit: Arc<Unit<Metered<'a>>>,
    pub(crate) offset: UnitOffset,
}

impl<'a> Spot<'_, 'a> {
    pub(crate) fn unit(&self) -> UnitRef<'_, Metered<'a>> {
        UnitRef::new(self.dwarf, &self.unit)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_after_a_call() {
        assert_eq!(stored_at(&[0x48, 0x89, 0x45, 0xe8, 0x90]), Some(-24));
        assert_eq!(stored_at(&[0x48, 0x89, 0x85, 0x58, 0xff, 0xff, 0xff]), Some(-168));
        assert_eq!(stored_at(&[0x48, 0x89]), None);
        let code = [0x90, 0xe8, 0x10, 0, 0, 0, 0xe8, 0xf0, 0xff, 0xff, 0xff, 0xe8, 0];
        assert_eq!(calls(&code).collect::<Vec<_>>(), [(1, 22), (6, -5)]);
    }

    #[test]
    fn calls_of_other_modules() {
        let stub = |_| &[0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0x10, 0, 0, 0, 0x90][..];
        let code = [0x90, 0xe8, 0xf0, 0, 0, 0];
        assert_eq!(slot_of_call(&code, 0x1000, stub), Some(0x10f0 + 11 + 0x10));
        assert_eq!(slot_of_call(&[0xff, 0x15, 0xf0, 0, 0, 0], 0x1000, stub), Some(0x10f0));
        assert_eq!(slot_of_call(&code, 0x1000, |_| &[0x55]), None);
        assert_eq!(slot_of_call(&[0x41, 0xff, 0x54, 0x24, 0x10, 0x90], 0x1000, stub), None);
    }

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
