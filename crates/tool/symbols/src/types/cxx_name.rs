//! Names of C++ types and functions, in the spelling of the demangler (`char const*`, `4ul`,
//! `> >`), of gcc's debug information (`long int`) or of clang's (`4UL`). The output has one
//! spelling: `const char*`, `long`, `4`, `>>`.

use std::fmt::{self, Write};

/// The maximum bytes of a name; longer ones are left as they are.
const LENGTH_MAX: usize = 16 << 10;
/// The maximum nesting of types; deeper ones are left as they are.
const DEPTH_MAX: usize = 48;

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

impl Type {
    /// Parses a type; `None` if the spelling is not supported.
    pub(crate) fn parse(text: &str) -> Option<Type> {
        let mut parser = Parser::new(text)?;
        let found = parser.of_type(0)?;
        parser.at_end().then_some(found)
    }

    /// Returns the type named `path`.
    pub(crate) fn named(path: Path) -> Type {
        Type { path, ..Type::default() }
    }

    pub(crate) fn full(&self) -> String {
        self.text(false)
    }

    /// Returns the name without default arguments and inline namespaces.
    pub(crate) fn short(&self) -> String {
        self.text(true)
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

    fn text(&self, short: bool) -> String {
        let mut out = String::new();
        // Writing to a String does not fail.
        let _ = self.write(&mut out, short);
        out
    }

    fn write(&self, out: &mut String, short: bool) -> fmt::Result {
        if self.is_const {
            out.push_str("const ");
        }
        if self.is_volatile {
            out.push_str("volatile ");
        }
        self.path.write(out, short)?;
        for suffix in &self.suffixes {
            match suffix {
                Suffix::Mark(mark) => out.push_str(mark),
                Suffix::Array(extent) => write!(out, "[{extent}]")?,
                Suffix::Member(path) => {
                    out.push(' ');
                    path.write(out, short)?;
                    out.push_str("::*");
                }
                Suffix::Function(inner, parameters) => {
                    write!(out, " {inner}(")?;
                    list(out, parameters, short)?;
                    out.push(')');
                }
            }
        }
        Ok(())
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

    pub(crate) fn full(&self) -> String {
        let mut out = String::new();
        let _ = self.write(&mut out, false);
        out
    }

    pub(crate) fn short(&self) -> String {
        let mut out = String::new();
        let _ = self.write(&mut out, true);
        out
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

    fn write(&self, out: &mut String, short: bool) -> fmt::Result {
        match self.standard_alias().filter(|_| short) {
            Some((name, rest)) => {
                out.push_str(name);
                write_segments(out, rest, short, false)
            }
            None => write_segments(out, &self.0, short, true),
        }
    }

    /// Returns `std::string` for `std::basic_string<char, …>` at the front, and what follows it.
    fn standard_alias(&self) -> Option<(&'static str, &[Segment])> {
        let at = self.0.iter().position(|segment| segment.arguments.is_some())?;
        if !self.is_in_std() || self.0[1..at].iter().any(|segment| !is_inline_namespace(&segment.name)) {
            return None;
        }
        let segment = &self.0[at];
        let arguments = segment.kept_arguments();
        let [character] = arguments else { return None };
        let character = character.short();
        let name = match (&*segment.name, &*character) {
            ("basic_string", "char") => "std::string",
            ("basic_string", "wchar_t") => "std::wstring",
            ("basic_string", "char8_t") => "std::u8string",
            ("basic_string", "char16_t") => "std::u16string",
            ("basic_string", "char32_t") => "std::u32string",
            ("basic_string_view", "char") => "std::string_view",
            ("basic_ostream", "char") => "std::ostream",
            ("basic_istream", "char") => "std::istream",
            ("basic_ostringstream", "char") => "std::ostringstream",
            ("basic_istringstream", "char") => "std::istringstream",
            ("basic_stringstream", "char") => "std::stringstream",
            ("basic_stringbuf", "char") => "std::stringbuf",
            ("basic_ofstream", "char") => "std::ofstream",
            ("basic_ifstream", "char") => "std::ifstream",
            ("basic_fstream", "char") => "std::fstream",
            ("basic_filebuf", "char") => "std::filebuf",
            _ => return None,
        };
        Some((name, &self.0[at + 1..]))
    }
}

fn write_segments(out: &mut String, segments: &[Segment], short: bool, mut is_first: bool) -> fmt::Result {
    let in_std = segments.first().is_some_and(|first| first.name == "std");
    for segment in segments {
        if short && in_std && is_inline_namespace(&segment.name) {
            continue;
        }
        if !is_first {
            out.push_str("::");
        }
        is_first = false;
        out.push_str(&segment.name);
        if let Some(arguments) = &segment.arguments {
            let arguments = if short { segment.kept_arguments() } else { arguments };
            out.push('<');
            list(out, arguments, short)?;
            out.push('>');
        }
        if let Some(parameters) = &segment.parameters {
            out.push('(');
            list(out, parameters, short)?;
            out.push(')');
        }
    }
    Ok(())
}

fn list(out: &mut String, types: &[Type], short: bool) -> fmt::Result {
    for (at, argument) in types.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        argument.write(out, short)?;
    }
    Ok(())
}

fn is_inline_namespace(name: &str) -> bool {
    matches!(name, "__cxx11" | "__1" | "__ndk1" | "_V2" | "__8" | "__debug")
}

impl Segment {
    /// Returns the arguments without trailing default arguments of the standard library's
    /// templates.
    fn kept_arguments(&self) -> &[Type] {
        let arguments = self.arguments.as_deref().unwrap_or_default();
        let mut kept = arguments;
        while let [first, .., last] = kept {
            let is_default = last.suffixes.is_empty() && last.is_default(first, kept);
            if !is_default {
                break;
            }
            kept = &kept[..kept.len() - 1];
        }
        kept
    }
}

impl Type {
    /// True if this is the template's default argument, given `first`.
    fn is_default(&self, first: &Type, arguments: &[Type]) -> bool {
        let Some(last) = self.path.last() else { return false };
        if last.name.starts_with('(') {
            return last.name.contains("_Lock_policy)");
        }
        if !self.path.is_in_std() {
            return false;
        }
        let own = last.arguments.as_deref().unwrap_or_default();
        match &*last.name {
            "allocator" => true,
            "char_traits" | "less" | "hash" | "equal_to" | "default_delete" => own.first() == Some(first),
            // For a stack, a queue, a priority queue.
            "deque" | "vector" => arguments.len() == 2 && own.first() == Some(first),
            _ => false,
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Option<Self> {
        (text.len() <= LENGTH_MAX).then_some(Parser { text, at: 0 })
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn at_end(&mut self) -> bool {
        self.space();
        self.rest().is_empty()
    }

    /// Skips what may follow a function's parameters.
    fn end_of_function(&mut self) -> bool {
        while self.word("const")
            || self.word("volatile")
            || self.take("&&")
            || self.take("&")
            || self.take("[abi:cxx11]")
        {}
        self.at_end()
    }

    fn take(&mut self, token: &str) -> bool {
        self.space();
        let is_there = self.rest().starts_with(token);
        if is_there {
            self.at += token.len();
        }
        is_there
    }

    /// Takes an identifier if it is this one.
    fn word(&mut self, word: &str) -> bool {
        self.space();
        let is_there = identifier(self.rest()) == word;
        if is_there {
            self.at += word.len();
        }
        is_there
    }

    fn of_type(&mut self, depth: usize) -> Option<Type> {
        if depth > DEPTH_MAX {
            return None;
        }
        let mut found = Type::default();
        self.qualifiers(&mut found);
        for kind in ["struct", "class", "union", "enum", "typename"] {
            self.word(kind);
        }
        found.path = match self.builtin(&mut found) {
            Some(name) => Path(vec![Segment { name, arguments: None, parameters: None }]),
            None => self.path(depth)?,
        };
        self.qualifiers(&mut found);
        loop {
            self.space();
            if self.take("&&") {
                found.suffixes.push(Suffix::Mark("&&"));
            } else if self.take("&") {
                found.suffixes.push(Suffix::Mark("&"));
            } else if self.take("*") {
                found.suffixes.push(Suffix::Mark("*"));
                loop {
                    if self.word("const") {
                        found.suffixes.push(Suffix::Mark(" const"));
                    } else if self.word("volatile") {
                        found.suffixes.push(Suffix::Mark(" volatile"));
                    } else if !self.word("__restrict") && !self.word("restrict") {
                        break;
                    }
                }
            } else if self.rest().starts_with('[') && !self.rest().starts_with("[abi:") {
                let end = self.rest().find(']')?;
                let extent = self.rest()[1..end].trim();
                found.suffixes.push(Suffix::Array(number(extent)));
                self.at += end + 1;
            } else if self.rest().starts_with('(') {
                let mut inner = String::new();
                let end = balanced(self.rest())?;
                let group = self.rest()[1..end].trim();
                if group.starts_with(['*', '&']) || group.ends_with("::*") {
                    inner = format!("({})", group.replace(' ', ""));
                    self.at += end + 1;
                    self.space();
                    if self.rest().starts_with('[') {
                        // A pointer to an array.
                        let end = self.rest().find(']')?;
                        inner.push_str(&self.rest()[..=end]);
                        self.at += end + 1;
                        found.suffixes.push(Suffix::Array(format!("] {inner} [")));
                        continue;
                    }
                }
                let parameters = self.parameters(depth)?;
                found.suffixes.push(Suffix::Function(inner, parameters));
                while self.word("const") || self.word("noexcept") {}
            } else {
                let from = self.at;
                // A pointer to a member: `int X::*`.
                let member = if self.at_name() { self.path(depth) } else { None };
                match member {
                    Some(path) if self.take("::*") => found.suffixes.push(Suffix::Member(path)),
                    _ => {
                        self.at = from;
                        return Some(found);
                    }
                }
            }
        }
    }

    fn at_name(&mut self) -> bool {
        self.space();
        !identifier(self.rest()).is_empty()
    }

    fn qualifiers(&mut self, found: &mut Type) {
        loop {
            if self.word("const") {
                found.is_const = true;
            } else if self.word("volatile") {
                found.is_volatile = true;
            } else {
                return;
            }
        }
    }

    /// Parses `unsigned long`, in any order and with or without `int`, and `decltype(nullptr)`.
    fn builtin(&mut self, found: &mut Type) -> Option<String> {
        let (mut signed, mut unsigned, mut longs, mut short) = (false, false, 0, false);
        let (mut base, mut any) = ("", false);
        loop {
            self.space();
            let word = identifier(self.rest());
            match word {
                "unsigned" => unsigned = true,
                "signed" => signed = true,
                "long" => longs += 1,
                "short" => short = true,
                "int" | "char" | "double" if base.is_empty() => base = word,
                "const" if any => found.is_const = true,
                _ => break,
            }
            any = true;
            self.at += word.len();
        }
        if !any {
            return None;
        }
        let sign = if unsigned { "unsigned " } else { "" };
        Some(match (base, longs, short) {
            ("char", ..) => format!("{}char", if signed { "signed " } else { sign }),
            ("double", 0, _) => "double".to_owned(),
            ("double", ..) => "long double".to_owned(),
            (_, 0, true) => format!("{sign}short"),
            (_, 0, false) => format!("{sign}int"),
            (_, 1, _) => format!("{sign}long"),
            _ => format!("{sign}long long"),
        })
    }

    fn path(&mut self, depth: usize) -> Option<Path> {
        self.take("::");
        let mut segments = vec![self.segment(depth)?];
        loop {
            let from = self.at;
            if self.rest().starts_with("::") && !self.rest().starts_with("::*") {
                self.at += 2;
                segments.push(self.segment(depth)?);
                continue;
            }
            // Something in a function: `f(int) const::Local`.
            let is_function = self.rest().starts_with('(')
                && balanced(self.rest()).is_some_and(|end| {
                    let behind = self.rest()[end + 1..].trim_start();
                    let behind = behind.strip_prefix("const").unwrap_or(behind).trim_start();
                    let behind = behind.strip_prefix("[abi:cxx11]").unwrap_or(behind);
                    behind.starts_with("::")
                });
            if is_function || self.is_parameters_of_function() {
                let parameters = self.parameters(depth)?;
                segments.last_mut()?.parameters = Some(parameters);
                if is_function {
                    self.word("const");
                    self.take("[abi:cxx11]");
                    self.space();
                    continue;
                }
            } else {
                self.at = from;
            }
            return Some(Path(segments));
        }
    }

    /// True if the bracket after a path has the parameters of a function of this name, not those of
    /// a function type whose result is the path: only if the text ends with it.
    fn is_parameters_of_function(&self) -> bool {
        let rest = self.rest();
        let before = self.text[..self.at].chars().next_back();
        rest.starts_with('(')
            && before.is_some_and(|before| !before.is_whitespace())
            && balanced(rest).is_some_and(|end| {
                let behind = rest[end + 1..].trim();
                behind.is_empty() || matches!(behind, "const" | "volatile" | "&" | "&&" | "const &" | "const&")
            })
    }

    fn segment(&mut self, depth: usize) -> Option<Segment> {
        self.space();
        let rest = self.rest();
        let plain = |name: &str| Segment { name: name.to_owned(), arguments: None, parameters: None };
        for unnamed in ["(anonymous namespace)", "<unnamed>", "{anonymous}", "_GLOBAL__N_1"] {
            if rest.starts_with(unnamed) {
                self.at += unnamed.len();
                return Some(plain("(anonymous namespace)"));
            }
        }
        let first = rest.chars().next()?;
        if let Some(words) =
            rest.strip_prefix("operator").filter(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        {
            return self.operator(words, depth);
        }
        if matches!(first, '{' | '<') || rest.starts_with("(lambda at ") {
            // A closure: `{lambda(int)#1}`, `<lambda(int)>`, `(lambda at a.cc:3:4)`.
            let end = balanced(rest)?;
            self.at += end + 1;
            let inside = &rest[1..end];
            let name = match first {
                '(' => inside.to_owned(),
                _ => inside.split_whitespace().collect::<Vec<_>>().join(" "),
            };
            return Some(plain(&format!("{{{name}}}")));
        }
        if first == '\'' {
            return self.closure_in_quotes();
        }
        if first == '(' || first == '-' || first.is_ascii_digit() {
            return self.literal(depth).map(|value| plain(&value));
        }
        let tilde = usize::from(first == '~');
        let name = identifier(&rest[tilde..]);
        if name.is_empty() {
            return None;
        }
        let name = &rest[..tilde + name.len()];
        self.at += name.len();
        self.take_tag();
        let mut segment = plain(name);
        if self.rest().starts_with('<') && !self.rest().starts_with("<lambda") && !self.rest().starts_with("<unnamed") {
            segment.arguments = Some(self.arguments(depth)?);
            self.take_tag();
        }
        Some(segment)
    }

    /// Skips `[abi:cxx11]` behind a name.
    fn take_tag(&mut self) {
        if self.rest().starts_with("[abi:")
            && let Some(end) = self.rest().find(']')
        {
            self.at += end + 1;
        }
    }

    /// Parses the `'lambda'(int)` of Clang and LLVM.
    fn closure_in_quotes(&mut self) -> Option<Segment> {
        let rest = self.rest();
        let end = rest[1..].find('\'')? + 1;
        self.at += end + 1;
        let mut name = rest[1..end].to_owned();
        if self.rest().starts_with('(') {
            let end = balanced(self.rest())?;
            name.push_str(&self.rest()[..=end]);
            self.at += end + 1;
        }
        Some(Segment { name: format!("{{{name}}}"), arguments: None, parameters: None })
    }

    /// Parses `operator new`, `operator()`, `operator<< <int>`, `operator unsigned long`.
    fn operator(&mut self, words: &str, depth: usize) -> Option<Segment> {
        self.at += "operator".len();
        const SYMBOLS: [&str; 48] = [
            "()",
            "[]",
            "new[]",
            "delete[]",
            " new[]",
            " delete[]",
            " new",
            " delete",
            "->*",
            "->",
            "<=>",
            "<<=",
            ">>=",
            "<<",
            ">>",
            "<=",
            ">=",
            "==",
            "!=",
            "&&",
            "||",
            "++",
            "--",
            "+=",
            "-=",
            "*=",
            "/=",
            "%=",
            "^=",
            "&=",
            "|=",
            "+",
            "-",
            "*",
            "/",
            "%",
            "^",
            "&",
            "|",
            "~",
            "!",
            "=",
            "<",
            ">",
            ",",
            "\"\"",
            " co_await",
            "co_await",
        ];
        let symbol = SYMBOLS.iter().find(|symbol| words.starts_with(**symbol));
        let name = match symbol {
            Some(symbol) => {
                self.at += symbol.len();
                format!("operator{symbol}")
            }
            None => {
                let mut to = Type::default();
                self.qualifiers(&mut to);
                to.path = match self.builtin(&mut to) {
                    Some(name) => Path(vec![Segment { name, arguments: None, parameters: None }]),
                    None => {
                        let mut segments = vec![self.segment(depth + 1)?];
                        while self.take("::") {
                            segments.push(self.segment(depth + 1)?);
                        }
                        Path(segments)
                    }
                };
                self.qualifiers(&mut to);
                while self.take("*") {
                    to.suffixes.push(Suffix::Mark("*"));
                }
                while self.take("&") {
                    to.suffixes.push(Suffix::Mark("&"));
                }
                format!("operator {}", to.full())
            }
        };
        let mut segment = Segment { name, arguments: None, parameters: None };
        let from = self.at;
        self.space();
        if self.rest().starts_with('<') {
            segment.arguments = Some(self.arguments(depth)?);
        } else {
            self.at = from;
        }
        Some(segment)
    }

    fn arguments(&mut self, depth: usize) -> Option<Vec<Type>> {
        self.at += 1;
        self.types(">", depth)
    }

    fn parameters(&mut self, depth: usize) -> Option<Vec<Type>> {
        self.at += 1;
        let mut found = self.types(")", depth)?;
        if let [only] = &found[..]
            && only.path.is(&["void"])
            && only.suffixes.is_empty()
        {
            found.clear();
        }
        Some(found)
    }

    fn types(&mut self, end: &str, depth: usize) -> Option<Vec<Type>> {
        if depth > DEPTH_MAX {
            return None;
        }
        let mut found = Vec::new();
        loop {
            if self.take(end) {
                return Some(found);
            }
            if self.take("...") || self.take(",") {
                continue;
            }
            found.push(self.of_type(depth + 1)?);
            self.space();
            if !self.rest().starts_with([',', '.']) && !self.rest().starts_with(end) {
                return None;
            }
        }
    }

    /// Parses `4ul`, `-1`, `(Colour)1`, `(char)97`; suffixes, and casts to whole numbers, are left
    /// out.
    fn literal(&mut self, depth: usize) -> Option<String> {
        if self.rest().starts_with('(') {
            let end = balanced(self.rest())?;
            let of = Parser::new(&self.rest()[1..end])?.of_type(depth + 1)?;
            self.at += end + 1;
            let value = self.literal(depth + 1)?;
            return Some(if of.known_size().is_some() { value } else { format!("({}){value}", of.full()) });
        }
        self.space();
        let end = self.rest().find(|c: char| !(c.is_alphanumeric() || matches!(c, '-' | '.' | '_' | '+')));
        let text = &self.rest()[..end.unwrap_or(self.rest().len())];
        self.at += text.len();
        (!text.is_empty()).then(|| number(text))
    }
}

/// Returns a number without the suffix that tells its type.
fn number(text: &str) -> String {
    let digits = text.trim_start_matches('-');
    if digits.starts_with(|c: char| c.is_ascii_digit()) && !digits.contains(['.', 'x']) {
        text.trim_end_matches(['u', 'l', 'U', 'L']).to_owned()
    } else {
        text.to_owned()
    }
}

fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(text.len());
    if text.starts_with(|c: char| c.is_ascii_digit()) { "" } else { &text[..end] }
}

/// Returns the position of the bracket that closes the one at the start, of any kind.
fn balanced(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut before = b' ';
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' | b'(' | b'{' | b'[' => depth += 1,
            b'>' if before == b'-' => {}
            b'>' | b')' | b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
        before = byte;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, full: &str, short: &str) {
        let found = Type::parse(text).unwrap_or_else(|| panic!("{text} is not understood"));
        assert_eq!((&*found.full(), &*found.short()), (full, short));
        // A normal spelling parses to itself.
        assert_eq!(Type::parse(full).unwrap().full(), full);
    }

    #[test]
    fn one_spelling_of_each_type() {
        check("long int", "long", "long");
        check("long unsigned int", "unsigned long", "unsigned long");
        check("unsigned", "unsigned int", "unsigned int");
        check("short unsigned int", "unsigned short", "unsigned short");
        check("char const*", "const char*", "const char*");
        check("const char *", "const char*", "const char*");
        check("char* const", "char* const", "char* const");
        check("app::Grid<unsigned long, 3ul>", "app::Grid<unsigned long, 3>", "app::Grid<unsigned long, 3>");
        check("Paint<(app::Colour)1>", "Paint<(app::Colour)1>", "Paint<(app::Colour)1>");
        check("Tag<(char)97, true>", "Tag<97, true>", "Tag<97, true>");
        check("void (*)(int)", "void (*)(int)", "void (*)(int)");
        check("void (int, char const*)", "void (int, const char*)", "void (int, const char*)");
        check("double [3]", "double[3]", "double[3]");
        check("int app::X::*", "int app::X::*", "int app::X::*");
        check(
            "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >",
            "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char>>",
            "std::string",
        );
        check(
            "std::map<int, std::vector<long int, std::allocator<long int> >, std::less<int>, std::allocator<std::pair<int const, std::vector<long> > > >",
            "std::map<int, std::vector<long, std::allocator<long>>, std::less<int>, std::allocator<std::pair<const int, std::vector<long>>>>",
            "std::map<int, std::vector<long>>",
        );
        check(
            "std::_Sp_counted_ptr_inplace<app::Named, std::allocator<void>, (__gnu_cxx::_Lock_policy)2>",
            "std::_Sp_counted_ptr_inplace<app::Named, std::allocator<void>, (__gnu_cxx::_Lock_policy)2>",
            "std::_Sp_counted_ptr_inplace<app::Named>",
        );
        check(
            "std::stack<int, std::deque<int, std::allocator<int> > >",
            "std::stack<int, std::deque<int, std::allocator<int>>>",
            "std::stack<int>",
        );
        check("std::map<int, int, Order<int>>", "std::map<int, int, Order<int>>", "std::map<int, int, Order<int>>");
        check(
            "app::(anonymous namespace)::Hidden",
            "app::(anonymous namespace)::Hidden",
            "app::(anonymous namespace)::Hidden",
        );
        check("app::{anonymous}::Hidden", "app::(anonymous namespace)::Hidden", "app::(anonymous namespace)::Hidden");
        check("local_types()::Local", "local_types()::Local", "local_types()::Local");
        check("app::f(int) const::Local", "app::f(int)::Local", "app::f(int)::Local");
        check("local_types()::{lambda(int)#1}", "local_types()::{lambda(int)#1}", "local_types()::{lambda(int)#1}");
        check("std::function<long int(int)>", "std::function<long (int)>", "std::function<long (int)>");
    }

    #[test]
    fn functions_without_results_and_parameters() {
        let check = |name: &str, names: &[&str]| {
            let path = Path::of_function(name).unwrap_or_else(|| panic!("{name} is not understood"));
            assert!(path.names().eq(names.iter().copied()), "{name}: {path:?}");
            path
        };
        let path = check("std::vector<int, std::allocator<int> >::push_back(int&&)", &["std", "vector", "push_back"]);
        assert_eq!(path.parent().unwrap().short(), "std::vector<int>");
        check("operator new(unsigned long)", &["operator new"]);
        check("operator new[](unsigned long)", &["operator new[]"]);
        check("app::Pooled::operator new(unsigned long)", &["app", "Pooled", "operator new"]);
        let path = check(
            "std::unique_ptr<app::Point, std::default_delete<app::Point> > std::make_unique<app::Point, int, int>(int&&, int&&)",
            &["std", "make_unique"],
        );
        assert_eq!(path.last().unwrap().arguments.as_ref().unwrap()[0].full(), "app::Point");
        check("local_types()::Local::Local()", &["local_types", "Local", "Local"]);
        check("std::string::size() const", &["std", "string", "size"]);
        check("main", &["main"]);
        check("app::Holder::operator bool() const", &["app", "Holder", "operator bool"]);
        check("std::ostream& app::operator<< <int>(std::ostream&, int)", &["app", "operator<<"]);
        check(
            "local_types()::{lambda(int)#1}::operator()(int) const",
            &["local_types", "{lambda(int)#1}", "operator()"],
        );
        check(
            "std::_Function_handler<long (int), app::f()::{lambda(int)#1}>::_M_invoke(std::_Any_data const&, int&&)",
            &["std", "_Function_handler", "_M_invoke"],
        );
    }

    #[test]
    fn nothing_breaks_it() {
        let sample =
            "std::map<int, (anonymous namespace)::f(char const*) const::X<4ul>*>::operator<< <int>(a (*)(b), ~c[3])";
        let mut random = 0x1234_5678_9abc_def1_u64;
        for _ in 0..30_000 {
            let mut text: Vec<char> = sample.chars().collect();
            for _ in 0..4 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let at = random as usize % text.len();
                let other = (random >> 20) as usize % text.len();
                match random >> 40 & 3 {
                    0 => text[at] = text[other],
                    1 => _ = text.remove(at),
                    _ => text.insert(at, text[other]),
                }
            }
            let text: String = text.into_iter().collect();
            if let Some(found) = Type::parse(&text) {
                assert!(found.full().len() <= 4 * text.len());
            }
            let _ = Path::of_function(&text);
        }
        assert_eq!(Type::parse(&"a<".repeat(8000)), None);
    }
}
