//! Looks up types by their names in the source, and by expressions, such as the operand of
//! `sizeof *table->points`.

use std::sync::Arc;

use gimli::{UnitOffset, UnitRef};
use heapledger_symbols::{EntryKey, EntryRef, Metered};

use crate::cxx_name::{Path, Type};
use crate::definitions::plain;
use crate::entries::{Entries, name_of};
use crate::frame::Written;
use crate::known_entries::Names;
use crate::language::Language;
use crate::source::Text;
use crate::spelled::Spelled;
use crate::type_name::TypeName;

/// The maximum number of types of one unit that are known by name.
const NAMES_MAX: usize = 1 << 20;
/// The maximum number of types with the same name that are examined.
const SAME_NAME_MAX: usize = 64;
/// The maximum number of parts of an expression.
const PARTS_MAX: usize = 32;

/// The maximum number of references from a variable's entry to the one that has its name.
const ORIGINS_MAX: usize = 8;

/// The place from which names are visible: a function, and a line in it.
type Viewpoint = (UnitOffset, u32);

/// The function in whose source text a type is named.
#[derive(Clone, Copy)]
struct Caller<'u, 'a> {
    unit: UnitRef<'u, Metered<'a>>,
    function: UnitOffset,
    language: Language,
}

/// The type with a name whose scope is the nearest.
enum Nearest {
    Found(Spelled),
    /// There are several.
    Ambiguous,
    Missing,
}

impl<'a> Entries<'_, 'a> {
    /// Returns the type in the source text where a function allocates, and its size if it was
    /// found.
    pub(crate) fn written(
        &mut self,
        unit: UnitRef<'_, Metered<'a>>,
        function: UnitOffset,
        language: Language,
        line: u32,
        text: &Text,
    ) -> Option<Written> {
        // Link-time optimisation puts the code of functions into units that have none of their
        // names.
        let mut from = self.units.entry(unit, function)?;
        for _ in 0..ORIGINS_MAX {
            let Some(origin) = from.unit().entry(from.offset).ok()?.attr_value(gimli::DW_AT_abstract_origin) else {
                break;
            };
            from = self.units.follow_from(&from, origin)?;
        }
        let (unit, function) = (from.unit(), from.offset);
        let caller = Caller { unit, function, language };
        let (found, is_array, is_more, is_result) = match text {
            Text::New { of, is_array } => {
                let expression = of.strip_prefix("decltype(").and_then(|of| of.strip_suffix(')'));
                let found = match expression {
                    Some(expression) => self.expression(unit, (function, line), expression),
                    None => self.type_called(caller, of),
                };
                (found, *is_array, false, false)
            }
            Text::SizeOf { of, is_array, is_more } => {
                let found = self.expression(unit, (function, line), of).or_else(|| self.type_called(caller, of));
                (found, *is_array, *is_more, false)
            }
            Text::Into(of) => (self.expression_pointee(unit, (function, line), of), false, false, true),
        };
        let (name, size) = found?;
        Some(Written { type_name: TypeName::new(language, &name), size, is_array, is_more, is_result })
    }

    /// Returns the type that a function may call so.
    fn type_called(&mut self, caller: Caller<'_, 'a>, called: &str) -> Option<Spelled> {
        let Caller { unit, function, language } = caller;
        let called = called.trim();
        let parsed = Type::parse(called)?;
        if parsed.known_size().is_some() && !parsed.is_pointer() {
            return Some((parsed.full().into(), parsed.known_size()));
        }
        if parsed.is_pointer() {
            return self.pointer_called(caller, called, &parsed);
        }
        let parsed = parsed.unqualified();
        let kind = [
            ("struct ", gimli::DW_TAG_structure_type),
            ("union ", gimli::DW_TAG_union_type),
            ("enum ", gimli::DW_TAG_enumeration_type),
        ];
        let kind = kind.into_iter().find(|(kind, _)| called.starts_with(kind)).map(|(_, tag)| tag);
        let facts = self.function(unit, function, language)?;
        if let [only] = &parsed.path.0[..]
            && only.arguments.is_none()
            && let Some(parameter) = facts.parameters.iter().find(|parameter| *parameter.name == only.name)
        {
            return Some((parameter.type_name.full().into(), parameter.size));
        }
        match (self.nearest_called(caller, &parsed, kind, facts.scope.as_deref().unwrap_or_default())?, language, kind)
        {
            (Nearest::Found(spelled), ..) => Some(spelled),
            (Nearest::Ambiguous, ..) => None,
            (Nearest::Missing, Language::Cxx, _) => self.class_elsewhere(unit, &parsed),
            // With `struct`, `union` or `enum`, the name is unambiguous in every unit.
            (Nearest::Missing, Language::C, Some(_)) => Some((called.into(), None)),
            (Nearest::Missing, ..) => None,
        }
    }

    fn pointer_called(&mut self, caller: Caller<'_, 'a>, called: &str, parsed: &Type) -> Option<Spelled> {
        let pointee = parsed.pointee()?;
        let name = self.type_called(caller, &pointee.full()).map(|(name, _)| name);
        let is_const = pointee.full().starts_with("const ");
        let name = name.map(|name| if is_const { format!("const {name}*") } else { format!("{name}*") });
        let kind = ["struct ", "union ", "enum "].into_iter().find(|kind| called.starts_with(kind));
        let spelled = || format!("{}{}", kind.unwrap_or_default(), parsed.full());
        // In C the target of the pointer need not be known; in C++ such a name may be from any
        // scope.
        let name = name.or_else(|| (caller.language == Language::C || pointee.full() == "void").then(spelled))?;
        Some((name.into(), Some(8)))
    }

    /// Returns the type of the unit that may be called so and whose scope is nearest to the
    /// function's, which is `scope`.
    fn nearest_called(
        &mut self,
        Caller { unit, function, language }: Caller<'_, 'a>,
        called: &Type,
        kind: Option<gimli::DwTag>,
        scope: &str,
    ) -> Option<Nearest> {
        let names = self.names(unit)?;
        let last = called.path.last()?;
        let mut best: Option<(usize, Spelled)> = None;
        let mut is_ambiguous = false;
        for &offset in names.get(last.name.as_bytes()).into_iter().flatten().take(SAME_NAME_MAX) {
            let entry = unit.entry(offset).ok()?;
            if language == Language::C {
                let is_tagged = entry.tag() != gimli::DW_TAG_typedef && entry.tag() != gimli::DW_TAG_base_type;
                if kind.is_some() != is_tagged || kind.is_some_and(|kind| kind != entry.tag()) {
                    continue;
                }
            }
            let full = self.scoped_name(unit, offset)?;
            let Some(own) = Type::parse(&full) else { continue };
            if !own.can_be_called(called) {
                continue;
            }
            // A type whose scope is nearer to the function's is preferred.
            let depth = own.path.0.len() - called.path.0.len().min(own.path.0.len());
            let own_scope = Path(own.path.0[..depth].to_vec()).short();
            let is_in_it = self.around(unit, offset).is_some_and(|own| own.first() == Some(&function.0));
            let nearness = match () {
                () if is_in_it => usize::MAX,
                () if scope_contains(scope, &own_scope) => 2 + own_scope.len(),
                () => 1,
            };
            let entry = self.units.entry(unit, offset)?;
            let real = if language == Language::Cxx { self.strip(entry, true)? } else { entry };
            let Some(spelled) = self.spelled(&real) else { continue };
            match &best {
                Some((least, other)) if *least == nearness => is_ambiguous |= *other.0 != *spelled.0,
                Some((least, _)) if *least > nearness => {}
                _ => {
                    best = Some((nearness, spelled));
                    is_ambiguous = false;
                }
            }
        }
        Some(match best {
            Some(_) if is_ambiguous => Nearest::Ambiguous,
            Some((_, spelled)) => Nearest::Found(spelled),
            None => Nearest::Missing,
        })
    }

    /// Returns all named types of a unit.
    fn names(&mut self, unit: UnitRef<'_, Metered<'a>>) -> Option<Arc<Names>> {
        let key = EntryKey::new(unit, UnitOffset(0))?;
        if let Some(names) = self.known.names.get(&key) {
            return Some(names.clone());
        }
        let names = Arc::new(read_names(unit).unwrap_or_default());
        self.known.names.insert(key, names.clone());
        Some(names)
    }

    /// Returns the target of the pointer that an expression evaluates to.
    fn expression_pointee(&mut self, unit: UnitRef<'_, Metered<'a>>, from: Viewpoint, text: &str) -> Option<Spelled> {
        let of = self.evaluate(unit, from, text)?;
        let pointee = self.pointee(of)?;
        self.spelled(&pointee)
    }

    /// Returns the type of an expression: `*table->points`, `(*p).x`, `p[0]`.
    fn expression(&mut self, unit: UnitRef<'_, Metered<'a>>, from: Viewpoint, text: &str) -> Option<Spelled> {
        let of = self.evaluate(unit, from, text)?;
        let of = self.strip(of, false)?;
        self.spelled(&of)
    }

    fn evaluate<'u>(
        &mut self,
        unit: UnitRef<'u, Metered<'a>>,
        from: Viewpoint,
        text: &str,
    ) -> Option<EntryRef<'u, 'a>> {
        let text = text.trim();
        if let Some(rest) = text.strip_prefix('*') {
            let of = self.evaluate(unit, from, rest)?;
            return self.pointee(of);
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let (mut at, mut rest) = match text.strip_prefix('(') {
            Some(inner) => {
                let close = inner.find(')')?;
                (self.evaluate(unit, from, &inner[..close])?, &inner[close + 1..])
            }
            None => {
                let end = text.find(|c: char| !is_word(c)).unwrap_or(text.len());
                (self.variable_called(unit, from, &text[..end])?, &text[end..])
            }
        };
        for _ in 0..PARTS_MAX {
            rest = rest.trim_start();
            if rest.is_empty() {
                return Some(at);
            }
            if rest.starts_with('[') {
                let close = rest.find(']')?;
                at = self.pointee(at)?;
                rest = &rest[close + 1..];
                continue;
            }
            let member = match (rest.strip_prefix("->"), rest.strip_prefix('.')) {
                (Some(member), _) => {
                    at = self.pointee(at)?;
                    member
                }
                (_, Some(member)) => member,
                _ => return None,
            };
            let member = member.trim_start();
            let end = member.find(|c: char| !is_word(c)).unwrap_or(member.len());
            let class = self.strip(at, true)?;
            let found = child_called(class.unit(), class.offset, &member[..end], gimli::DW_TAG_member)?;
            let entry = class.unit().entry(found).ok()?;
            at = self.units.follow_from(&class, entry.attr_value(gimli::DW_AT_type)?)?;
            rest = &member[end..];
        }
        None
    }

    /// Returns the type of the variable that a function calls so: its own, a member of its class,
    /// or one of the unit's.
    fn variable_called<'u>(
        &mut self,
        unit: UnitRef<'u, Metered<'a>>,
        from: Viewpoint,
        name: &str,
    ) -> Option<EntryRef<'u, 'a>> {
        if name.is_empty() {
            return None;
        }
        let own = local_called(unit, from, name);
        let found = match own {
            Some(own) => own,
            None => self.variables(unit)?.get(name.as_bytes()).filter(|found| found.len() == 1)?[0],
        };
        let variable = self.units.entry(unit, found)?;
        self.variable(variable).map(|(_, of)| of)
    }

    /// Returns the variables of a unit that are in no function.
    fn variables(&mut self, unit: UnitRef<'_, Metered<'a>>) -> Option<Arc<Names>> {
        // Kept beside the types, under an offset at which no type can be.
        let key = EntryKey::new(unit, UnitOffset(1))?;
        if let Some(names) = self.known.names.get(&key) {
            return Some(names.clone());
        }
        let names = Arc::new(read_variables(unit).unwrap_or_default());
        self.known.names.insert(key, names.clone());
        Some(names)
    }
}

/// True if `scope` is `other`, or in it.
fn scope_contains(scope: &str, other: &str) -> bool {
    let short = |text: &str| Path::of_function(text).map_or_else(|| text.to_owned(), |path| path.short());
    let (scope, other) = (short(scope), short(other));
    other.is_empty() || scope == other || scope.strip_prefix(&other).is_some_and(|rest| rest.starts_with("::"))
}

fn read_names(unit: UnitRef<'_, Metered<'_>>) -> gimli::Result<Names> {
    let mut names = Names::new();
    let mut entries = unit.entries_raw(None)?;
    while !entries.is_empty() && names.len() < NAMES_MAX {
        let offset = entries.next_offset();
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        entries.skip_attributes(abbreviation.attributes())?;
        let is_type = matches!(
            abbreviation.tag(),
            gimli::DW_TAG_structure_type
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_union_type
                | gimli::DW_TAG_enumeration_type
                | gimli::DW_TAG_typedef
                | gimli::DW_TAG_base_type
        );
        if is_type
            && let Ok(entry) = unit.entry(offset)
            && let Some(name) = name_of(unit, &entry)
        {
            names.entry(plain(&name).as_bytes().into()).or_default().push(offset);
        }
    }
    Ok(names)
}

fn read_variables(unit: UnitRef<'_, Metered<'_>>) -> gimli::Result<Names> {
    let mut names = Names::new();
    let mut entries = unit.entries_raw(None)?;
    while !entries.is_empty() && names.len() < NAMES_MAX {
        let (offset, depth) = (entries.next_offset(), entries.next_depth());
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        entries.skip_attributes(abbreviation.attributes())?;
        if abbreviation.tag() == gimli::DW_TAG_variable
            && depth == 1
            && let Ok(entry) = unit.entry(offset)
            && let Some(name) = name_of(unit, &entry)
        {
            names.entry(name.as_bytes().into()).or_default().push(offset);
        }
    }
    Ok(names)
}

/// Returns a variable or parameter anywhere in a function; if there are several, the one that is
/// declared last before the line.
fn local_called(unit: UnitRef<'_, Metered<'_>>, (function, line): Viewpoint, name: &str) -> Option<UnitOffset> {
    let mut entries = unit.entries_raw(Some(function)).ok()?;
    let mut best: Option<(u64, UnitOffset)> = None;
    while !entries.is_empty() {
        let offset = entries.next_offset();
        if let Some(abbreviation) = entries.read_abbreviation().ok()? {
            entries.skip_attributes(abbreviation.attributes()).ok()?;
            if matches!(abbreviation.tag(), gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter)
                && let Some((found, declared)) = declaration(unit, offset, name)
                && declared <= u64::from(line)
                && best.is_none_or(|(other, _)| other <= declared)
            {
                best = Some((declared, found));
            }
        }
        if entries.next_depth() <= 0 {
            break;
        }
    }
    best.map(|(_, offset)| offset)
}

/// Returns the entry of a variable that has its name, and the line of its declaration, if this is
/// its name.
fn declaration(unit: UnitRef<'_, Metered<'_>>, offset: UnitOffset, name: &str) -> Option<(UnitOffset, u64)> {
    let mut at = offset;
    for _ in 0..ORIGINS_MAX {
        let entry = unit.entry(at).ok()?;
        if let Some(called) = name_of(unit, &entry) {
            let line = entry.attr_value(gimli::DW_AT_decl_line).and_then(|line| line.udata_value());
            return (*called == *name).then(|| (at, line.unwrap_or(0)));
        }
        match entry.attr_value(gimli::DW_AT_abstract_origin) {
            Some(gimli::AttributeValue::UnitRef(origin)) => at = origin,
            _ => return None,
        }
    }
    None
}

fn child_called(unit: UnitRef<'_, Metered<'_>>, of: UnitOffset, name: &str, tag: gimli::DwTag) -> Option<UnitOffset> {
    let mut entries = unit.entries_raw(Some(of)).ok()?;
    let parent = entries.read_abbreviation().ok()??;
    entries.skip_attributes(parent.attributes()).ok()?;
    if !parent.has_children() {
        return None;
    }
    while entries.next_depth() > 0 && !entries.is_empty() {
        let (offset, depth) = (entries.next_offset(), entries.next_depth());
        let Some(abbreviation) = entries.read_abbreviation().ok()? else { continue };
        entries.skip_attributes(abbreviation.attributes()).ok()?;
        if depth == 1 && abbreviation.tag() == tag {
            let entry = unit.entry(offset).ok()?;
            if name_of(unit, &entry).is_some_and(|found| *found == *name) {
                return Some(offset);
            }
        }
    }
    None
}
