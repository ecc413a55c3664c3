//! A parser for names of Rust.
//!
//! The same type is spelled in three ways: in debug information (`Vec<&str, alloc::alloc::Global>`,
//! `{closure_env#0}<T>`), by the demangler (`Vec<&'a str>`, `f::<T>::{closure#0}`) and by the
//! language (`{{closure}}`). The parser accepts all three; the output has one spelling.

use std::fmt::Write;

use crate::type_name::TypeName;

/// The maximum nesting of types; deeper ones are kept as text.
const NESTING_MAX: usize = 48;
/// The maximum bytes of a name; a longer one is kept as text.
const NAME_MAX: usize = 16 << 10;

/// Default arguments, which are left out.
const DEFAULTS: [&str; 4] = [
    "alloc::alloc::Global",
    "std::hash::random::RandomState",
    "std::collections::hash::map::RandomState",
    "core::hash::BuildHasherDefault<std::hash::random::DefaultHasher>",
];

/// A type, or the name of a function: `<alloc::vec::Vec<u8>>::push`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Type {
    /// `alloc::vec::Vec<T>`, `<Self as Trait>::Name`.
    Path { of: Option<Box<Of>>, segments: Vec<Segment> },
    /// `&`, `&mut `, `*const `, `*mut `, and what follows.
    Pointer(&'static str, Box<Type>),
    /// `[T]`, `[T; 4]`.
    Slice(Box<Type>, Option<String>),
    /// `(A, B)`.
    Tuple(Vec<Type>),
    /// `dyn A + B`, `impl A + B`: the word, and the bounds.
    Bounds(&'static str, Vec<Type>),
    /// `unsafe extern "C" fn(A) -> B`: the text in front of the bracket, arguments, result.
    Function(String, Vec<Type>, Option<Box<Type>>),
    /// `Name = T` among arguments.
    Binding(String, Box<Type>),
    /// A constant, or text that is none of these.
    Text(String),
}

/// The type in angle brackets at the beginning of a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Of {
    /// `Self` in `<Self as Trait>`, or in `<impl Trait for Self>`.
    pub(crate) own: Type,
    pub(crate) as_trait: Option<Type>,
}

/// Part of a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Segment {
    pub(crate) name: String,
    pub(crate) arguments: Vec<Type>,
}

/// Returns the top-level arguments at the end of a name: for `new<app::Foo, alloc::alloc::Global>`,
/// both.
pub(crate) fn arguments(name: &str) -> Vec<&str> {
    let Some(inside) = name.strip_suffix('>') else { return Vec::new() };
    let Some(open) = opening(inside) else { return Vec::new() };
    let mut arguments = Vec::new();
    let (mut depth, mut start, mut before) = (0usize, 0, b' ');
    let inside = &inside[open + 1..];
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            b'>' if before == b'-' => {}
            b'>' | b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                arguments.push(inside[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
        before = byte;
    }
    arguments.push(inside[start..].trim());
    arguments.retain(|argument| !argument.is_empty());
    arguments
}

/// Returns the position of the bracket that the end of `text` would close.
fn opening(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut depth = 1usize;
    for at in (0..bytes.len()).rev() {
        match bytes[at] {
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' => depth += 1,
            b'<' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

impl Type {
    /// Parses a name. Never fails: text that cannot be parsed stays text.
    pub(crate) fn parse(text: &str) -> Self {
        let mut parser = Parser { text, at: 0 };
        let parsed = if text.len() <= NAME_MAX { parser.parse(0) } else { None };
        match parsed {
            Some(parsed) if parser.rest().trim().is_empty() => parsed,
            _ => Self::Text(text.to_owned()),
        }
    }

    pub(crate) fn name(&self) -> TypeName {
        TypeName::spelled(&self.spelled(true), &self.spelled(false))
    }

    /// Returns the last part of a path.
    pub(crate) fn last(&self) -> Option<&Segment> {
        match self {
            Self::Path { segments, .. } => segments.last(),
            _ => None,
        }
    }

    /// Returns the parts of a path joined by `::`, without arguments: `alloc::vec::Vec`. Empty for
    /// other types.
    pub(crate) fn path(&self) -> String {
        match self {
            Self::Path { of: None, segments } => {
                let names: Vec<&str> = segments.iter().map(|segment| &*segment.name).collect();
                names.join("::")
            }
            _ => String::new(),
        }
    }

    /// Returns the arguments of the last part of a path, without default ones.
    pub(crate) fn arguments(&self) -> &[Type] {
        self.last().map_or(&[], |last| &last.arguments)
    }

    pub(crate) fn spelled(&self, full: bool) -> String {
        let mut out = String::new();
        self.write(&mut out, full);
        out
    }

    fn write(&self, out: &mut String, full: bool) {
        match self {
            Self::Path { of, segments } => write_path(of.as_deref(), segments, out, full),
            Self::Pointer(prefix, target) => {
                out.push_str(prefix);
                target.write(out, full);
            }
            Self::Slice(element, length) => {
                out.push('[');
                element.write(out, full);
                if let Some(length) = length {
                    let _ = write!(out, "; {length}");
                }
                out.push(']');
            }
            Self::Tuple(types) => {
                out.push('(');
                write_list(types, ", ", out, full);
                if types.len() == 1 {
                    out.push(',');
                }
                out.push(')');
            }
            Self::Bounds(word, bounds) => {
                out.push_str(word);
                write_list(bounds, " + ", out, full);
            }
            Self::Function(head, arguments, result) => {
                out.push_str(head);
                write_call(arguments, result.as_deref(), out, full);
            }
            Self::Binding(name, bound) => {
                let _ = write!(out, "{name} = ");
                bound.write(out, full);
            }
            Self::Text(text) => out.push_str(text),
        }
    }
}

fn write_list(types: &[Type], separator: &str, out: &mut String, full: bool) {
    for (at, each) in types.iter().enumerate() {
        if at > 0 {
            out.push_str(separator);
        }
        each.write(out, full);
    }
}

fn write_call(arguments: &[Type], result: Option<&Type>, out: &mut String, full: bool) {
    out.push('(');
    write_list(arguments, ", ", out, full);
    out.push(')');
    if let Some(result) = result {
        out.push_str(" -> ");
        result.write(out, full);
    }
}

fn write_path(of: Option<&Of>, segments: &[Segment], out: &mut String, full: bool) {
    if let Some(of) = of {
        out.push('<');
        of.own.write(out, full);
        if let Some(as_trait) = &of.as_trait {
            out.push_str(" as ");
            as_trait.write(out, full);
        }
        out.push_str(">::");
    }
    // An item inside a function is named with it: `main::{closure#0}`.
    let inner = segments.iter().rev().take_while(|segment| segment.name.starts_with('{')).count();
    let kept = if inner > 0 { inner + 1 } else { 1 };
    let skip = if full || of.is_some() { 0 } else { segments.len().saturating_sub(kept) };
    for (at, segment) in segments[skip..].iter().enumerate() {
        if at > 0 {
            out.push_str("::");
        }
        out.push_str(&segment.name);
        if let Some((arguments, result)) = as_call(segment) {
            write_call(arguments, result, out, full);
        } else if !segment.arguments.is_empty() {
            out.push('<');
            write_list(&segment.arguments, ", ", out, full);
            out.push('>');
        }
    }
}

/// Returns the arguments and result of `Fn<(A, B), Output = R>`, which is written `Fn(A, B) -> R`.
fn as_call(segment: &Segment) -> Option<(&[Type], Option<&Type>)> {
    if !matches!(&*segment.name, "Fn" | "FnMut" | "FnOnce") {
        return None;
    }
    match &*segment.arguments {
        [Type::Tuple(arguments)] => Some((arguments, None)),
        [Type::Tuple(arguments), Type::Binding(name, result)] if name == "Output" => {
            let unit = matches!(&**result, Type::Tuple(types) if types.is_empty());
            Some((arguments, (!unit).then_some(&**result)))
        }
        _ => None,
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn spaces(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Parses a type; `None` if there is none.
    fn parse(&mut self, nesting: usize) -> Option<Type> {
        if nesting == NESTING_MAX {
            return None;
        }
        self.spaces();
        for prefix in ["*const ", "*mut "] {
            if self.take(prefix) {
                return Some(Type::Pointer(prefix, Box::new(self.parse(nesting + 1)?)));
            }
        }
        if self.take("&") {
            if self.lifetime() {
                self.spaces();
            }
            let prefix = if self.take("mut ") { "&mut " } else { "&" };
            return Some(Type::Pointer(prefix, Box::new(self.parse(nesting + 1)?)));
        }
        if self.take("for<") {
            let end = self.rest().find('>')?;
            self.at += end + 1;
            return self.parse(nesting + 1);
        }
        if self.take("[") {
            let element = Box::new(self.parse(nesting + 1)?);
            let length = if self.take(";") {
                let end = self.rest().find(']')?;
                let length = self.rest()[..end].trim().trim_end_matches("usize").to_owned();
                self.at += end;
                Some(length)
            } else {
                None
            };
            return self.take("]").then_some(Type::Slice(element, length));
        }
        if self.take("(") {
            let (mut types, comma) = self.list(")", nesting)?;
            let bounds = types.len() == 1 && !comma && matches!(types[0], Type::Bounds(..));
            return Some(if bounds { types.remove(0) } else { Type::Tuple(types) });
        }
        for word in ["dyn ", "impl "] {
            if self.take(word) {
                return Some(Type::Bounds(word, self.bounds(nesting)?));
            }
        }
        if let Some(function) = self.function(nesting) {
            return function;
        }
        self.path(nesting)
    }

    /// Skips a lifetime: lifetimes are left out everywhere.
    fn lifetime(&mut self) -> bool {
        let rest = self.rest();
        let Some(name) = rest.strip_prefix('\'') else { return false };
        let length = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
        // `'a'` is a character.
        if name[length..].starts_with('\'') {
            return false;
        }
        self.at += 1 + length;
        true
    }

    fn bounds(&mut self, nesting: usize) -> Option<Vec<Type>> {
        let mut bounds = Vec::new();
        loop {
            self.spaces();
            if !self.lifetime() {
                bounds.push(self.parse(nesting + 1)?);
            }
            self.spaces();
            if !self.take("+") {
                // The order of auto traits differs from compiler to compiler.
                let principal = bounds.len().min(1);
                bounds[principal..].sort_by_key(|bound| bound.spelled(true));
                return Some(bounds);
            }
        }
    }

    /// Parses comma-separated types up to a closing bracket; true if a comma comes before that.
    fn list(&mut self, close: &str, nesting: usize) -> Option<(Vec<Type>, bool)> {
        let (mut types, mut comma) = (Vec::new(), false);
        loop {
            self.spaces();
            if self.take(close) {
                return Some((types, comma));
            }
            if !self.lifetime() {
                types.push(self.argument(nesting)?);
            }
            self.spaces();
            comma = self.take(",");
            if !comma {
                return self.take(close).then_some((types, comma));
            }
        }
    }

    /// Parses a type, a constant, or a binding.
    fn argument(&mut self, nesting: usize) -> Option<Type> {
        let start = self.at;
        if let Some(name) = self.word() {
            self.spaces();
            if self.take("=") {
                return Some(Type::Binding(name.to_owned(), Box::new(self.parse(nesting + 1)?)));
            }
        }
        self.at = start;
        let first = self.rest().chars().next()?;
        if first.is_ascii_digit() || first == '-' || first == '\'' || first == '"' || first == '.' {
            let rest = self.rest();
            let quoted = if first == '\'' { rest[1..].find('\'').map_or(0, |at| at + 2) } else { 0 };
            let end = quoted + rest[quoted..].find([',', '>', ')', ' ']).unwrap_or(rest.len() - quoted);
            self.at += end;
            let digits = rest[..end].trim_end_matches(|c: char| !c.is_ascii_digit());
            let number = rest[..end]
                .strip_prefix(digits)
                .is_some_and(|suffix| ["usize", "isize", "u8", "u16", "u32", "u64"].contains(&suffix));
            return Some(Type::Text(if number { digits } else { &rest[..end] }.to_owned()));
        }
        self.parse(nesting + 1)
    }

    fn word(&mut self) -> Option<&'t str> {
        let rest = self.rest();
        let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.at += length;
        (length > 0).then(|| &rest[..length])
    }

    /// Parses `unsafe extern "C" fn(A) -> B`. `None`: not a function; inner `None`: an invalid one.
    fn function(&mut self, nesting: usize) -> Option<Option<Type>> {
        let start = self.at;
        let rest = self.rest();
        let _ = self.take("unsafe ");
        if self.take("extern ")
            && self.take("\"")
            && let Some(end) = self.rest().find('"')
        {
            self.at += end + 1;
            self.spaces();
        }
        if !self.take("fn(") {
            self.at = start;
            return None;
        }
        let head = rest[..self.at - start - 1].to_owned();
        let Some((arguments, _)) = self.list(")", nesting) else { return Some(None) };
        let result = match self.result(nesting) {
            Some(result) => result,
            None => return Some(None),
        };
        Some(Some(Type::Function(head, arguments, result)))
    }

    fn result(&mut self, nesting: usize) -> Option<Option<Box<Type>>> {
        if !self.take(" -> ") && !self.take("-> ") {
            return Some(None);
        }
        let result = self.parse(nesting + 1)?;
        let unit = matches!(&result, Type::Tuple(types) if types.is_empty());
        Some((!unit).then(|| Box::new(result)))
    }

    fn path(&mut self, nesting: usize) -> Option<Type> {
        let mut of = None;
        if self.take("<") {
            let own = self.parse(nesting + 1)?;
            self.spaces();
            let as_trait = if self.take("as ") { Some(self.parse(nesting + 1)?) } else { None };
            // `<impl Trait for Self>`
            let (own, as_trait) = match own {
                Type::Bounds("impl ", mut bounds) if self.take("for ") => {
                    (self.parse(nesting + 1)?, Some(bounds.remove(0)))
                }
                own => (own, as_trait),
            };
            self.spaces();
            if !self.take(">") {
                return None;
            }
            if !self.take("::") {
                return Some(own).filter(|_| as_trait.is_none());
            }
            of = Some(Box::new(Of { own, as_trait }));
        }
        let mut segments: Vec<Segment> = Vec::new();
        // `<Vec<T>>::push` is the path `Vec<T>::push`.
        if let Some(Of { own: Type::Path { of: None, segments: own }, as_trait: None }) = of.as_deref() {
            segments = own.clone();
            of = None;
        }
        loop {
            if self.rest().starts_with('<') && !segments.is_empty() {
                self.at += 1;
                self.impl_or_arguments(&mut of, &mut segments, nesting)?;
            } else {
                segments.push(Segment { name: self.segment()?, arguments: Vec::new() });
                if self.rest().starts_with('<') {
                    self.at += 1;
                    self.impl_or_arguments(&mut of, &mut segments, nesting)?;
                } else if self.rest().starts_with('(') {
                    self.at += 1;
                    self.call(&mut segments, nesting)?;
                }
            }
            if !self.take("::") {
                break;
            }
        }
        move_arguments_to_closures(&mut segments);
        for segment in &mut segments {
            segment.arguments.retain(|argument| !DEFAULTS.contains(&&*argument.spelled(true)));
        }
        Some(Type::Path { of, segments })
    }

    /// Parses the text behind an opening bracket: arguments of the last segment; or
    /// `impl Trait for T>`, which is the same as `<T as Trait>` at the beginning.
    fn impl_or_arguments(
        &mut self,
        of: &mut Option<Box<Of>>,
        segments: &mut Vec<Segment>,
        nesting: usize,
    ) -> Option<()> {
        if !self.take("impl ") {
            let (arguments, _) = self.list(">", nesting)?;
            segments.last_mut()?.arguments.extend(arguments);
            return Some(());
        }
        let first = self.parse(nesting + 1)?;
        self.spaces();
        let (own, as_trait) = match self.take("for ") {
            true => (self.parse(nesting + 1)?, Some(first)),
            false => (first, None),
        };
        segments.clear();
        match own {
            Type::Path { of: None, segments: own } if as_trait.is_none() => *segments = own,
            own => *of = Some(Box::new(Of { own, as_trait })),
        }
        self.take(">").then_some(())
    }

    /// Parses `Fn(A) -> B`, behind the bracket.
    fn call(&mut self, segments: &mut [Segment], nesting: usize) -> Option<()> {
        let (arguments, _) = self.list(")", nesting)?;
        let result = self.result(nesting)?;
        let last = segments.last_mut()?;
        last.arguments.push(Type::Tuple(arguments));
        last.arguments.extend(result.map(|result| Type::Binding("Output".to_owned(), result)));
        Some(())
    }

    fn segment(&mut self) -> Option<String> {
        let rest = self.rest();
        if rest.starts_with('{') {
            let mut depth = 0usize;
            let end = rest.bytes().position(|byte| {
                depth = match byte {
                    b'{' => depth + 1,
                    b'}' => depth - 1,
                    _ => depth,
                };
                depth == 0
            })?;
            self.at += end + 1;
            return Some(inner_name(&rest[..=end]));
        }
        if self.take("!") {
            return Some("!".to_owned());
        }
        let length = rest.find(|c: char| !c.is_alphanumeric() && !"_$#.".contains(c)).unwrap_or(rest.len());
        self.at += length;
        (length > 0).then(|| rest[..length].to_owned())
    }
}

/// Returns one name for `{closure_env#0}`, `{async_block_env#0}`, `{{closure}}`: all are closures.
fn inner_name(name: &str) -> String {
    let inside = name.trim_matches(['{', '}']);
    let (kind, number) = inside.split_once('#').unwrap_or((inside, ""));
    let closure =
        kind.starts_with("closure") || ["async_", "coroutine", "gen_"].iter().any(|prefix| kind.starts_with(prefix));
    match (closure, number) {
        (true, "") => "{closure}".to_owned(),
        (true, number) => format!("{{closure#{number}}}"),
        (false, _) => format!("{{{inside}}}"),
    }
}

/// Moves arguments to where the demangler has them. The debug information has the arguments of all
/// that is around a closure at its end, and the same for items inside a function.
fn move_arguments_to_closures(segments: &mut [Segment]) {
    let Some(last) = segments.iter().rposition(|segment| segment.name.starts_with("{closure")) else { return };
    let outer: Vec<Type> = segments[..last].iter_mut().flat_map(|segment| segment.arguments.drain(..)).collect();
    let own = &mut segments[last].arguments;
    own.splice(0..0, outer);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(spelled: &str, full: &str, short: &str) {
        let name = Type::parse(spelled).name();
        assert_eq!((name.full(), name.short()), (full, short));
        // A normal spelling parses to itself.
        assert_eq!(Type::parse(full).name().full(), full);
    }

    #[test]
    fn one_spelling() {
        check("u8", "u8", "u8");
        check("alloc::vec::Vec<u8, alloc::alloc::Global>", "alloc::vec::Vec<u8>", "Vec<u8>");
        check("&'a mut [app::Foo<'a>]", "&mut [app::Foo]", "&mut [Foo]");
        check(
            "std::collections::hash::map::HashMap<app::Key, alloc::vec::Vec<u8, alloc::alloc::Global>, std::hash::random::RandomState>",
            "std::collections::hash::map::HashMap<app::Key, alloc::vec::Vec<u8>>",
            "HashMap<Key, Vec<u8>>",
        );
        for closure in ["app::main::{closure_env#0}", "app::main::{closure#0}"] {
            check(closure, "app::main::{closure#0}", "main::{closure#0}");
        }
        check("app::main::{{closure}}", "app::main::{closure}", "main::{closure}");
        for generic in ["app::run::{closure_env#1}<u8>", "app::run::<u8>::{closure#1}", "app::run<u8>::{closure#1}"] {
            check(generic, "app::run::{closure#1}<u8>", "run::{closure#1}<u8>");
        }
        for object in [
            "alloc::boxed::Box<(dyn core::ops::function::Fn<(i32), Output=i32> + core::marker::Send), alloc::alloc::Global>",
            "alloc::boxed::Box<dyn core::ops::function::Fn<(i32,), Output = i32> + core::marker::Send>",
            "alloc::boxed::Box<dyn core::ops::function::Fn(i32) -> i32 + core::marker::Send>",
        ] {
            check(
                object,
                "alloc::boxed::Box<dyn core::ops::function::Fn(i32) -> i32 + core::marker::Send>",
                "Box<dyn Fn(i32) -> i32 + Send>",
            );
        }
        check("[app::Foo; 4usize]", "[app::Foo; 4]", "[Foo; 4]");
        check("app::Array<u8, 4usize>", "app::Array<u8, 4>", "Array<u8, 4>");
        check("(u8, &str)", "(u8, &str)", "(u8, &str)");
        check("fn(&'a u8) -> ()", "fn(&u8)", "fn(&u8)");
        check("unsafe extern \"C\" fn(*mut u8)", "unsafe extern \"C\" fn(*mut u8)", "unsafe extern \"C\" fn(*mut u8)");
        for bounds in [
            "dyn app::Shape + core::marker::Sync + core::marker::Send",
            "dyn app::Shape + core::marker::Send + core::marker::Sync",
        ] {
            check(bounds, "dyn app::Shape + core::marker::Send + core::marker::Sync", "dyn Shape + Send + Sync");
        }
        let inner = "<alloc::boxed::Box<u8> as core::convert::From<u8>>::from::Inner";
        check(inner, inner, "<Box<u8> as From<u8>>::from::Inner");
        check(
            "alloc::boxed::convert::<impl core::convert::From<u8> for alloc::boxed::Box<u8>>::from::Inner",
            inner,
            "<Box<u8> as From<u8>>::from::Inner",
        );
        check("<app::Foo as app::Bar>::Inner", "<app::Foo as app::Bar>::Inner", "<Foo as Bar>::Inner");
    }

    #[test]
    fn functions() {
        let push = Type::parse("<alloc::vec::Vec<app::Foo>>::push");
        assert_eq!(
            (push.path(), push.spelled(true)),
            ("alloc::vec::Vec::push".into(), "alloc::vec::Vec<app::Foo>::push".into())
        );
        assert_eq!(
            arguments("new<app::Foo<u8, fn() -> u8>, alloc::alloc::Global>"),
            ["app::Foo<u8, fn() -> u8>", "alloc::alloc::Global"]
        );
        assert!(arguments("new").is_empty() && arguments("new>").is_empty());
    }

    #[test]
    fn nonsense_is_kept() {
        for text in ["", "<", ">", "a<b", "<<<<", "{", "[u8", "(u8", "&", "dyn ", "a::", "::a", "a<'", "fn(", "é<é>ü"]
        {
            assert_eq!(Type::parse(text).spelled(true), text);
        }
        for bracket in ["<", "(", "[", "&", "{", "dyn "] {
            let deep = bracket.repeat(5_000);
            assert_eq!(Type::parse(&deep).spelled(true), deep);
        }
    }
}
