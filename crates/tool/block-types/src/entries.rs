//! Facts about functions and types in the debug information: names, scopes, template parameters,
//! sizes.
//!
//! Entries are read on demand, and each only once. References lead anywhere: to other units, and to
//! the supplementary file that `dwz` makes; nesting is bounded, and all reading is metered.

use std::sync::Arc;

use gimli::{AttributeValue, UnitOffset, UnitRef};
use heapledger_symbols::{EntryKey, Metered, Units, demangle};

use crate::cxx_name::Path;
use crate::frame::Parameter;
use crate::known_entries::{Facts, KnownEntries, Scope};
use crate::language::Language;
use crate::rust::name::arguments;
use crate::spelled::Spelled;
use crate::type_name::TypeName;

/// The maximum number of references followed from one entry to the next, and of types within types.
const NESTING_MAX: usize = 16;
/// The maximum bytes of a name; an entry with a longer one has no name.
const NAME_MAX: usize = 16 << 10;
/// The maximum number of template parameters of one function or class.
const PARAMETERS_MAX: usize = 64;

/// Reads entries of one module.
pub(crate) struct Entries<'k, 'a> {
    pub(crate) units: &'k Units<'a>,
    pub(crate) known: &'k mut KnownEntries,
}

/// A function or a class that may have template parameters.
#[derive(Clone, Copy)]
struct Template<'n> {
    /// `DW_AT_name`.
    name: Option<&'n str>,
    language: Language,
    is_class: bool,
}

impl<'a> Entries<'_, 'a> {
    /// Returns the facts about the function, or the inlined function, of this entry.
    pub(crate) fn function(
        &mut self,
        unit: UnitRef<'_, Metered<'a>>,
        offset: UnitOffset,
        language: Language,
    ) -> Option<Arc<Facts>> {
        self.function_at(unit, offset, language, 0)
    }

    fn function_at(
        &mut self,
        unit: UnitRef<'_, Metered<'a>>,
        offset: UnitOffset,
        language: Language,
        nesting: usize,
    ) -> Option<Arc<Facts>> {
        let key = EntryKey::new(unit, offset)?;
        if let Some(facts) = self.known.functions.get(&key) {
            return Some(facts.clone());
        }
        if nesting == NESTING_MAX {
            return None;
        }
        let entry = unit.entry(offset).ok()?;
        let origin = entry
            .attr_value(gimli::DW_AT_abstract_origin)
            .or_else(|| entry.attr_value(gimli::DW_AT_specification))
            .and_then(|origin| self.units.follow(unit, origin))
            .and_then(|(target, offset)| self.function_at(target.unit(), offset, language, nesting + 1));
        let inlined = entry.tag() == gimli::DW_TAG_inlined_subroutine;
        let facts = match origin {
            Some(origin) if inlined => origin,
            origin => {
                let origin = origin.as_deref();
                let linkage = entry
                    .attr_value(gimli::DW_AT_linkage_name)
                    .or_else(|| entry.attr_value(gimli::DW_AT_MIPS_linkage_name));
                let linkage = linkage.and_then(|name| unit.attr_string(name).ok()).map(|name| name.bytes());
                let linkage = linkage.filter(|name| name.len() <= NAME_MAX).map(Arc::from);
                let linkage = linkage.or_else(|| origin?.linkage.clone());
                let name = name_of(unit, &entry).or_else(|| origin?.name.clone());
                // Rust's linkage names contain the scope.
                let told = language == Language::Rust;
                let scope = match origin {
                    Some(origin) => origin.scope.clone(),
                    None if told => None,
                    None => Some(self.scope_name(unit, offset)?),
                };
                let mut parameters = Vec::new();
                if origin.is_none_or(|origin| origin.parameters.iter().all(|parameter| parameter.of_class)) {
                    let template = Template { name: name.as_deref(), language, is_class: false };
                    parameters = self.parameters(unit, offset, template, nesting);
                }
                match origin {
                    Some(origin) => parameters.extend(origin.parameters.iter().cloned()),
                    None if told => {}
                    None => {
                        for around in self.around(unit, offset)? {
                            parameters.extend(self.class(unit, UnitOffset(around), language).iter().cloned());
                        }
                    }
                }
                Arc::new(Facts { name, linkage, scope, parameters: parameters.into() })
            }
        };
        self.known.functions.insert(key, facts.clone());
        Some(facts)
    }

    /// Returns the spelling of a type, with its scope, and its size.
    pub(crate) fn type_of(&mut self, unit: UnitRef<'_, Metered<'a>>, offset: UnitOffset) -> Option<Spelled> {
        self.type_at(unit, offset, 0)
    }

    /// Returns the type that `DW_AT_type` of an entry refers to; `void` if there is none.
    fn attr_type(
        &mut self,
        unit: UnitRef<'_, Metered<'a>>,
        entry: &gimli::DebuggingInformationEntry<Metered<'a>>,
        nesting: usize,
    ) -> Option<Spelled> {
        let Some(reference) = entry.attr_value(gimli::DW_AT_type) else { return Some(("void".into(), None)) };
        let (target, offset) = self.units.follow(unit, reference)?;
        self.type_at(target.unit(), offset, nesting + 1)
    }

    /// Returns the spelling of a type, with its scope, and its size.
    fn type_at(&mut self, unit: UnitRef<'_, Metered<'a>>, offset: UnitOffset, nesting: usize) -> Option<Spelled> {
        let key = EntryKey::new(unit, offset)?;
        if let Some(known) = self.known.types.get(&key) {
            return known.clone();
        }
        if nesting == NESTING_MAX {
            return None;
        }
        let spelled = self.read_type(unit, offset, nesting).filter(|(name, _)| name.len() <= NAME_MAX);
        self.known.types.insert(key, spelled.clone());
        spelled
    }

    fn read_type(&mut self, unit: UnitRef<'_, Metered<'a>>, offset: UnitOffset, nesting: usize) -> Option<Spelled> {
        let entry = unit.entry(offset).ok()?;
        // A type with a signature is only declared here.
        if let Some(elsewhere) = entry.attr_value(gimli::DW_AT_signature) {
            let (target, offset) = self.units.follow(unit, elsewhere)?;
            return self.type_at(target.unit(), offset, nesting + 1);
        }
        let own_size = || entry.attr_value(gimli::DW_AT_byte_size).and_then(|size| size.udata_value());
        // A type with a specification has its scope there.
        if let Some(declaration) = entry.attr_value(gimli::DW_AT_specification) {
            let (target, offset) = self.units.follow(unit, declaration)?;
            let (name, size) = self.type_at(target.unit(), offset, nesting + 1)?;
            return Some((name, own_size().or(size)));
        }
        let address_size = u64::from(unit.header.address_size());
        let name = name_of(unit, &entry);
        let spelled: Spelled = match (entry.tag(), name) {
            (gimli::DW_TAG_pointer_type, Some(name)) => (name, Some(own_size().unwrap_or(address_size))),
            (gimli::DW_TAG_pointer_type, None) => {
                let (target, _) = self.attr_type(unit, &entry, nesting)?;
                (format!("{target}*").into(), Some(own_size().unwrap_or(address_size)))
            }
            (gimli::DW_TAG_reference_type, _) => {
                let (target, _) = self.attr_type(unit, &entry, nesting)?;
                (format!("{target}&").into(), Some(address_size))
            }
            (gimli::DW_TAG_rvalue_reference_type, _) => {
                let (target, _) = self.attr_type(unit, &entry, nesting)?;
                (format!("{target}&&").into(), Some(address_size))
            }
            (gimli::DW_TAG_const_type, _) => {
                let (target, size) = self.attr_type(unit, &entry, nesting)?;
                let spelled = if target.ends_with('*') { format!("{target} const") } else { format!("const {target}") };
                (spelled.into(), size)
            }
            (gimli::DW_TAG_volatile_type, _) => {
                let (target, size) = self.attr_type(unit, &entry, nesting)?;
                (format!("volatile {target}").into(), size)
            }
            (gimli::DW_TAG_restrict_type | gimli::DW_TAG_atomic_type, _) => self.attr_type(unit, &entry, nesting)?,
            (gimli::DW_TAG_typedef, Some(name)) => {
                let size = self.attr_type(unit, &entry, nesting).and_then(|(_, size)| size);
                (self.scoped(unit, offset, &name), size)
            }
            (gimli::DW_TAG_array_type, None) => self.array(unit, offset, &entry, nesting)?,
            (gimli::DW_TAG_subroutine_type, None) => self.signature(unit, offset, &entry, nesting)?,
            (tag, Some(name)) => {
                let kind = match tag {
                    gimli::DW_TAG_structure_type => "struct ",
                    gimli::DW_TAG_union_type => "union ",
                    gimli::DW_TAG_enumeration_type => "enum ",
                    _ => "",
                };
                let spelled = if !kind.is_empty() && self.is_c(unit) {
                    format!("{kind}{name}").into()
                } else {
                    self.scoped(unit, offset, &name)
                };
                (spelled, own_size())
            }
            (tag, None) => {
                let kind = match tag {
                    gimli::DW_TAG_structure_type if is_closure(unit, offset) => "{lambda}",
                    gimli::DW_TAG_structure_type => "{anonymous struct}",
                    // clang describes lambdas so, even if they are not called. A class without a
                    // name is rare.
                    gimli::DW_TAG_class_type => "{lambda}",
                    gimli::DW_TAG_union_type => "{anonymous union}",
                    gimli::DW_TAG_enumeration_type => "{anonymous enum}",
                    _ => return None,
                };
                (self.scoped(unit, offset, kind), own_size())
            }
        };
        Some(spelled)
    }

    fn is_c(&mut self, unit: UnitRef<'_, Metered<'a>>) -> bool {
        let Some(key) = EntryKey::new(unit, UnitOffset(0)) else { return false };
        *self.known.c_units.entry(key).or_insert_with(|| {
            let mut entries = unit.entries();
            let root = entries.next_dfs().ok().flatten();
            match root.and_then(|root| root.attr_value(gimli::DW_AT_language)) {
                Some(AttributeValue::Language(language)) => Language::of_unit(language) == Language::C,
                _ => false,
            }
        })
    }

    fn array(
        &mut self,
        unit: UnitRef<'_, Metered<'a>>,
        offset: UnitOffset,
        entry: &gimli::DebuggingInformationEntry<Metered<'a>>,
        nesting: usize,
    ) -> Option<Spelled> {
        let (element, size) = self.attr_type(unit, entry, nesting)?;
        let mut spelled = element.to_string();
        let mut size = size;
        each_child(unit, offset, gimli::DW_TAG_subrange_type, |child| {
            let number = |at| child.attr_value(at).and_then(|value| value.udata_value());
            let count = number(gimli::DW_AT_count)
                .or_else(|| number(gimli::DW_AT_upper_bound).and_then(|last| last.checked_add(1)));
            size = size.zip(count).and_then(|(size, count)| size.checked_mul(count));
            spelled.push_str(&count.map_or("[]".to_owned(), |count| format!("[{count}]")));
            spelled.len() <= NAME_MAX
        })?;
        Some((spelled.into(), size))
    }

    fn signature(
        &mut self,
        unit: UnitRef<'_, Metered<'a>>,
        offset: UnitOffset,
        entry: &gimli::DebuggingInformationEntry<Metered<'a>>,
        nesting: usize,
    ) -> Option<Spelled> {
        let (result, _) = self.attr_type(unit, entry, nesting)?;
        let mut arguments = Vec::new();
        each_child(unit, offset, gimli::DW_TAG_formal_parameter, |child| {
            let argument = self.attr_type(unit, child, nesting);
            arguments.push(argument.map_or("?".into(), |(name, _)| name));
            arguments.len() < PARAMETERS_MAX
        })?;
        Some((format!("{result} ({})", arguments.join(", ")).into(), None))
    }

    /// Returns the template parameters among the children of an entry.
    fn parameters(
        &mut self,
        unit: UnitRef<'_, Metered<'a>>,
        offset: UnitOffset,
        template: Template<'_>,
        nesting: usize,
    ) -> Vec<Parameter> {
        let Template { name, language, is_class: of_class } = template;
        let mut found = Vec::new();
        let read = each_child(unit, offset, gimli::DW_TAG_template_type_parameter, |child| {
            found.push(child.clone());
            found.len() < PARAMETERS_MAX
        });
        if read.is_none() {
            return Vec::new();
        }
        // In Rust, the arguments in the name are the same, with the usual spelling.
        let arguments = name.filter(|_| language == Language::Rust).map(arguments).unwrap_or_default();
        let spelled = arguments.len() == found.len();
        let mut parameters = Vec::new();
        for (at, child) in found.iter().enumerate() {
            let name = name_of(unit, child).unwrap_or_else(|| "".into());
            let told = if spelled { Some((arguments[at], self.attr_size(unit, child))) } else { None };
            let (type_name, size) = match told {
                Some((argument, Some(size))) => (TypeName::new(language, argument), Some(size)),
                told => {
                    let Some((spelling, size)) = self.attr_type(unit, child, nesting) else { continue };
                    (TypeName::new(language, told.map_or(&*spelling, |(argument, _)| argument)), size)
                }
            };
            parameters.push(Parameter { name, type_name, size, of_class });
        }
        parameters
    }

    /// Returns the size of the type that `DW_AT_type` of an entry refers to, if that states it,
    /// without spelling the type.
    fn attr_size(
        &mut self,
        unit: UnitRef<'_, Metered<'a>>,
        entry: &gimli::DebuggingInformationEntry<Metered<'a>>,
    ) -> Option<u64> {
        let (target, offset) = self.units.follow(unit, entry.attr_value(gimli::DW_AT_type)?)?;
        let entry = target.unit().entry(offset).ok()?;
        entry.attr_value(gimli::DW_AT_byte_size)?.udata_value()
    }

    /// Returns the template parameters of a class.
    fn class(&mut self, unit: UnitRef<'_, Metered<'a>>, offset: UnitOffset, language: Language) -> Arc<[Parameter]> {
        let Some(key) = EntryKey::new(unit, offset) else { return Arc::new([]) };
        if let Some(known) = self.known.classes.get(&key) {
            return known.clone();
        }
        let mut parameters = Vec::new();
        if let Ok(entry) = unit.entry(offset)
            && is_class(entry.tag())
        {
            let name = name_of(unit, &entry);
            let template = Template { name: name.as_deref(), language, is_class: true };
            let elsewhere = entry.attr_value(gimli::DW_AT_signature);
            parameters = match elsewhere.and_then(|elsewhere| self.units.follow(unit, elsewhere)) {
                Some((target, offset)) => self.parameters(target.unit(), offset, template, 0),
                None => self.parameters(unit, offset, template, 0),
            };
        }
        let parameters: Arc<[Parameter]> = parameters.into();
        self.known.classes.insert(key, parameters.clone());
        parameters
    }

    fn scoped(&mut self, unit: UnitRef<'_, Metered<'a>>, offset: UnitOffset, name: &str) -> Arc<str> {
        match self.scope_name(unit, offset) {
            Some(scope) if !scope.is_empty() => format!("{scope}::{name}").into(),
            _ => name.into(),
        }
    }

    /// Returns the names of the scopes around an entry, joined by `::`.
    pub(crate) fn scope_name(&mut self, unit: UnitRef<'_, Metered<'a>>, offset: UnitOffset) -> Option<Arc<str>> {
        let mut parts = Vec::new();
        let mut length = 0;
        for around in self.around(unit, offset)? {
            let entry = unit.entry(UnitOffset(around)).ok()?;
            let name = name_of(unit, &entry);
            let is_function = entry.tag() == gimli::DW_TAG_subprogram;
            // In C++, functions are distinguished by their parameters, and their linkage names
            // contain the scopes, too.
            let whole = if is_function { self.declared(unit, &entry, cxx_function) } else { None };
            let part = match entry.tag() {
                gimli::DW_TAG_subprogram => whole.clone().or(name).or_else(|| self.declared(unit, &entry, name_of)),
                gimli::DW_TAG_namespace => name.or_else(|| Some("(anonymous namespace)".into())),
                _ => name,
            };
            let part = part.unwrap_or_else(|| "{anonymous}".into());
            length += part.len() + 2;
            if length > NAME_MAX {
                return None;
            }
            parts.push(part);
            if whole.is_some() {
                break;
            }
        }
        parts.reverse();
        Some(parts.join("::").into())
    }

    /// Returns a value from a function's entry, or else from that of its declaration.
    fn declared<T>(
        &mut self,
        unit: UnitRef<'_, Metered<'a>>,
        entry: &gimli::DebuggingInformationEntry<Metered<'a>>,
        tell: fn(UnitRef<'_, Metered<'a>>, &gimli::DebuggingInformationEntry<Metered<'a>>) -> Option<T>,
    ) -> Option<T> {
        if let Some(told) = tell(unit, entry) {
            return Some(told);
        }
        let origin =
            entry.attr_value(gimli::DW_AT_abstract_origin).or_else(|| entry.attr_value(gimli::DW_AT_specification))?;
        let (target, offset) = self.units.follow(unit, origin)?;
        tell(target.unit(), &target.unit().entry(offset).ok()?)
    }

    /// Returns the offsets of the scopes around an entry, innermost first.
    pub(crate) fn around(&mut self, unit: UnitRef<'_, Metered<'a>>, offset: UnitOffset) -> Option<Vec<usize>> {
        let key = EntryKey::new(unit, UnitOffset(0))?;
        let scopes = match self.known.scopes.get(&key) {
            Some(scopes) => scopes.clone(),
            None => {
                let scopes: Arc<[Scope]> = scopes(unit).unwrap_or_default().into();
                self.known.scopes.insert(key, scopes.clone());
                scopes
            }
        };
        let before = scopes.partition_point(|scope| scope.start < offset.0);
        let mut at = before.checked_sub(1);
        let mut around = Vec::new();
        while let Some(scope) = at.map(|at| &scopes[at]) {
            if offset.0 < scope.end {
                around.push(scope.start);
            }
            at = scope.parent.map(|parent| parent as usize);
            if around.len() == NESTING_MAX * 4 {
                return None;
            }
        }
        Some(around)
    }
}

/// Returns all scopes of a unit, in the order in which they begin.
fn scopes(unit: UnitRef<'_, Metered<'_>>) -> gimli::Result<Vec<Scope>> {
    let mut scopes: Vec<Scope> = Vec::new();
    let mut open: Vec<(isize, u32)> = Vec::new();
    let mut entries = unit.entries_raw(None)?;
    while !entries.is_empty() {
        let (start, depth) = (entries.next_offset().0, entries.next_depth());
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        while let Some(&(_, last)) = open.last().filter(|(outer, _)| *outer >= depth) {
            scopes[last as usize].end = start;
            open.pop();
        }
        let tag = abbreviation.tag();
        let is_scope = is_class(tag) || tag == gimli::DW_TAG_namespace || tag == gimli::DW_TAG_subprogram;
        if is_scope && abbreviation.has_children() {
            let parent = open.last().map(|&(_, at)| at);
            open.push((depth, scopes.len() as u32));
            scopes.push(Scope { start, end: usize::MAX, parent });
        }
        entries.skip_attributes(abbreviation.attributes())?;
    }
    Ok(scopes)
}

pub(crate) fn is_class(tag: gimli::DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
            | gimli::DW_TAG_enumeration_type
    )
}

/// True if a class without a name has a call operator.
fn is_closure(unit: UnitRef<'_, Metered<'_>>, offset: UnitOffset) -> bool {
    let mut found = false;
    let _ = each_child(unit, offset, gimli::DW_TAG_subprogram, |child| {
        found = name_of(unit, child).is_some_and(|name| &*name == "operator()");
        !found
    });
    found
}

/// Calls `each` with the direct children that have this tag, until it returns false.
fn each_child<'a>(
    unit: UnitRef<'_, Metered<'a>>,
    offset: UnitOffset,
    tag: gimli::DwTag,
    mut each: impl FnMut(&gimli::DebuggingInformationEntry<Metered<'a>>) -> bool,
) -> Option<()> {
    let mut entries = unit.entries_raw(Some(offset)).ok()?;
    let parent = entries.read_abbreviation().ok()??;
    entries.skip_attributes(parent.attributes()).ok()?;
    if !parent.has_children() {
        return Some(());
    }
    while entries.next_depth() > 0 && !entries.is_empty() {
        let (start, depth) = (entries.next_offset(), entries.next_depth());
        let Some(abbreviation) = entries.read_abbreviation().ok()? else { continue };
        if depth == 1 && abbreviation.tag() == tag && !each(&unit.entry(start).ok()?) {
            break;
        }
        entries.skip_attributes(abbreviation.attributes()).ok()?;
    }
    Some(())
}

/// Returns the name of a C++ function with its scope and parameters, from its linkage name.
fn cxx_function<'a>(
    unit: UnitRef<'_, Metered<'a>>,
    entry: &gimli::DebuggingInformationEntry<Metered<'a>>,
) -> Option<Arc<str>> {
    let linkage = unit.attr_string(entry.attr_value(gimli::DW_AT_linkage_name)?).ok()?.bytes();
    if !linkage.starts_with(b"_Z") || linkage.len() > NAME_MAX || demangle::is_legacy_rust(linkage) {
        return None;
    }
    let path = Path::of_function(demangle::function(linkage).full())?;
    Some(path.full().into())
}

pub(crate) fn name_of<'a>(
    unit: UnitRef<'_, Metered<'a>>,
    entry: &gimli::DebuggingInformationEntry<Metered<'a>>,
) -> Option<Arc<str>> {
    let name = unit.attr_string(entry.attr_value(gimli::DW_AT_name)?).ok()?.bytes();
    (!name.is_empty() && name.len() <= NAME_MAX).then(|| String::from_utf8_lossy(name).into())
}
