//! Names of C++ types and functions, in the spelling of the demangler (`char const*`, `4ul`,
//! `> >`), of gcc's debug information (`long int`) or of clang's (`4UL`). The output has one
//! spelling: `const char*`, `long`, `4`, `>>`.

mod parser;
mod spelling;
#[cfg(test)]
mod tests;

use self::parser::Parser;
use crate::type_name::TypeName;

/// A name that consists of segments: `std::vector<int>::push_back`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Path(pub(crate) Vec<Segment>);

/// `vector<int>`; for a function, with parameters if they are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) name: String,
    pub(crate) arguments: Option<Vec<Type>>,
    pub(crate) parameters: Option<Vec<Type>>,
}

/// A type, or a value in the place of an argument.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Type {
    is_const: bool,
    is_volatile: bool,
    pub(crate) path: Path,
    /// The text behind the name: `*`, `* const`, `&`, `[3]`, ` (*)(int)`.
    suffixes: Vec<Suffix>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Suffix {
    Mark(&'static str),
    Array(String),
    /// The part between a function's result and its parameters: `(*)`; empty for a function itself.
    Function(String, Vec<Type>),
    /// `X::*`
    Member(Path),
}

/// Returns the normal spelling of a type.
pub(crate) fn name(spelled: &str) -> TypeName {
    if let Some(element) = spelled.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return name(element).buffer();
    }
    match Type::parse(spelled) {
        Some(parsed) => parsed.name(),
        None => TypeName::plain(&spelled.replace("> >", ">>")),
    }
}

impl Type {
    /// Parses a type; `None` if the spelling is not supported.
    pub(crate) fn parse(text: &str) -> Option<Type> {
        let mut parser = Parser::new(text)?;
        let found = parser.of_type(0)?;
        parser.at_end().then_some(found)
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> TypeName {
        TypeName::spelled(&self.full(), &self.short())
    }

    /// Returns the type named `path`.
    pub(crate) fn named(path: Path) -> Type {
        Type { path, ..Type::default() }
    }

    /// Returns the type that a pointer points to.
    pub(crate) fn pointee(&self) -> Option<Type> {
        let mut pointee = self.clone();
        while let Some(Suffix::Mark(" const" | " volatile")) = pointee.suffixes.last() {
            pointee.suffixes.pop();
        }
        matches!(pointee.suffixes.pop(), Some(Suffix::Mark("*"))).then_some(pointee)
    }

    /// True if source text can mean this type by `called`: by the end of its qualified name, or by
    /// a well-known other name such as `uint32_t`.
    pub(crate) fn can_be_called(&self, called: &Type) -> bool {
        let known = |of: &Type| -> Option<Type> {
            let name = of.path.last().filter(|_| of.path.0.len() == 1 || of.path.is_in_std())?;
            let own = match &*name.name {
                "size_t" | "uint64_t" | "uintptr_t" => "unsigned long",
                "int64_t" | "ptrdiff_t" | "intptr_t" | "ssize_t" => "long",
                "uint32_t" => "unsigned int",
                "int32_t" => "int",
                "uint16_t" => "unsigned short",
                "int16_t" => "short",
                "uint8_t" => "unsigned char",
                "int8_t" => "signed char",
                "string" => "std::basic_string<char>",
                _ => return None,
            };
            Type::parse(own)
        };
        let known = known(called);
        // Values have many spellings.
        let is_value = self.path.0.len() == 1
            && self.path.0[0].name.starts_with(|c: char| c == '(' || c == '-' || c.is_ascii_digit());
        let is_called = |called: &Type| {
            self.is_const == called.is_const
                && self.suffixes == called.suffixes
                && self.path.can_be_called(&called.path)
        };
        is_value && self.path.0[0].name.starts_with('(') || is_called(called) || known.as_ref().is_some_and(is_called)
    }

    /// Returns the element type of an array.
    pub(crate) fn array_element(&self) -> Option<Type> {
        let mut element = self.clone();
        matches!(element.suffixes.pop(), Some(Suffix::Array(_))).then_some(element)
    }

    /// Returns a type whose spelling is not understood, with its text unchanged.
    pub(crate) fn of_text(text: &str) -> Type {
        Type::named(Path(vec![Segment { name: text.to_owned(), arguments: None, parameters: None }]))
    }

    /// Returns the type without `const` in front.
    pub(crate) fn unqualified(&self) -> Type {
        let is_pointer = !self.suffixes.is_empty();
        let mut plain = self.clone();
        while let Some(Suffix::Mark(" const" | " volatile")) = plain.suffixes.last() {
            plain.suffixes.pop();
        }
        plain.is_const &= is_pointer;
        plain.is_volatile &= is_pointer;
        plain
    }

    pub(crate) fn is_pointer(&self) -> bool {
        self.pointee().is_some() || matches!(self.suffixes.last(), Some(Suffix::Function(inner, _)) if inner == "(*)")
    }

    /// Returns the size in bytes, if the ABI (x86-64 or AArch64, both 64-bit) fixes it.
    pub(crate) fn known_size(&self) -> Option<u64> {
        if self.is_pointer() {
            return Some(8);
        }
        if !self.suffixes.is_empty() {
            return None;
        }
        let [segment] = &self.path.0[..] else { return None };
        if segment.arguments.is_some() || segment.parameters.is_some() {
            return None;
        }
        Some(match &*segment.name {
            "char" | "signed char" | "unsigned char" | "bool" | "char8_t" => 1,
            "short" | "unsigned short" | "char16_t" => 2,
            "int" | "unsigned int" | "float" | "wchar_t" | "char32_t" => 4,
            "long" | "unsigned long" | "long long" | "unsigned long long" | "double" => 8,
            "long double" | "__int128" | "unsigned __int128" => 16,
            _ => return None,
        })
    }
}

impl Path {
    /// Parses a function's demangled name, without its result and qualifiers.
    pub(crate) fn of_function(name: &str) -> Option<Path> {
        let name = name.split(" [clone").next()?;
        let mut parser = Parser::new(name)?;
        let first = parser.of_type(0)?;
        // A template's function has its result in front.
        let path = if parser.at_end() { first.path } else { parser.of_type(0)?.path };
        parser.end_of_function().then_some(path)
    }

    /// Returns the names of the segments, outermost first.
    pub(crate) fn names(&self) -> impl DoubleEndedIterator<Item = &str> + Clone {
        self.0.iter().map(|segment| &*segment.name)
    }

    /// True if the names of the segments, without inline namespaces of the standard libraries, are
    /// these.
    pub(crate) fn is(&self, names: &[&str]) -> bool {
        self.names().filter(|name| !is_inline_namespace(name)).eq(names.iter().copied())
    }

    pub(crate) fn is_in_std(&self) -> bool {
        self.names().next().is_some_and(|first| matches!(first, "std" | "__gnu_cxx"))
    }

    /// Returns the innermost segment.
    pub(crate) fn last(&self) -> Option<&Segment> {
        self.0.last()
    }

    /// Returns the path around the innermost name: for a member function, its class.
    pub(crate) fn parent(&self) -> Option<Path> {
        let (_, parent) = self.0.split_last()?;
        (!parent.is_empty()).then(|| Path(parent.to_vec()))
    }

    /// Returns the path without the parameters of the function that it names.
    pub(crate) fn without_parameters(mut self) -> Path {
        if let Some(last) = self.0.last_mut() {
            last.parameters = None;
        }
        self
    }

    /// True if `called` can mean this path: by its last segments, and their first arguments.
    fn can_be_called(&self, called: &Path) -> bool {
        let own = self.0.iter().rev().filter(|segment| !is_inline_namespace(&segment.name));
        let called = called.0.iter().rev().filter(|segment| !is_inline_namespace(&segment.name));
        let mut own = own.peekable();
        for wanted in called {
            let Some(segment) = own.next() else { return false };
            if segment.name != wanted.name {
                return false;
            }
            if let Some(arguments) = &wanted.arguments {
                let all = segment.arguments.as_deref().unwrap_or_default();
                if all.len() < arguments.len()
                    || !all.iter().zip(arguments).all(|(own, called)| own.can_be_called(called))
                {
                    return false;
                }
            }
        }
        true
    }
}

fn is_inline_namespace(name: &str) -> bool {
    matches!(name, "__cxx11" | "__1" | "__ndk1" | "_V2" | "__8" | "__debug")
}
