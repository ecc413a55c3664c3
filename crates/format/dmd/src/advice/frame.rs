//! Parsing of the texts of frames.

/// The parts of a frame's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    /// The function as written; `???`: not known.
    pub(super) function: &'a str,
    /// Its `file:line`.
    pub(super) location: Option<&'a str>,
    /// The file of the program or library that it is in, if the text has no line.
    pub(super) library: Option<&'a str>,
}

/// A function's name without arguments of any kind: `<a::B<C> as d::E>::f` is `f` of `a::B`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Name {
    /// The path that it is in: types, modules, namespaces.
    pub(super) scope: Vec<String>,
    /// Its own name.
    pub(super) function: String,
    /// The trait that it implements.
    pub(super) of_trait: Vec<String>,
    /// True if the last part of the scope has arguments: it is generic, a template.
    pub(super) is_generic: bool,
}

impl<'a> Frame<'a> {
    pub(super) fn parse(text: &'a str) -> Frame<'a> {
        if let Some((function, location)) = in_brackets(text, " (", ')').or_else(|| in_brackets(text, " [", ']')) {
            let is_place =
                location.rsplit_once(':').is_some_and(|(_, line)| line.bytes().all(|byte| byte.is_ascii_digit()));
            if is_place {
                return Frame { function, location: Some(location), library: None };
            }
        }
        if let Some((function, inside)) = in_brackets(text, "[", ']')
            && let Some((library, _)) = inside.rsplit_once(" +0x")
        {
            return Frame { function, location: None, library: Some(library) };
        }
        Frame { function: text, location: None, library: None }
    }

    /// Returns the source file.
    pub(super) fn file(&self) -> Option<&'a str> {
        Some(self.location?.rsplit_once(':')?.0)
    }
}

/// Splits a text that ends with a bracket into the text before that bracket and the text in it.
fn in_brackets<'a>(text: &'a str, open: &str, close: char) -> Option<(&'a str, &'a str)> {
    text.strip_suffix(close)?.rsplit_once(open)
}

/// The deepest nesting of names in names that is parsed; deeper ones are left as they are.
const NESTING_MAX: u32 = 8;

impl Name {
    pub(super) fn parse(function: &str) -> Name {
        let mut of_trait = Vec::new();
        let mut parts = path(function, NESTING_MAX, &mut of_trait);
        // Closures and the like are parts of the function that contains them.
        while parts.len() > 1 && parts.last().is_some_and(|part| is_unnamed(&part.name)) {
            parts.pop();
        }
        let function = parts.pop().map(|part| part.name).unwrap_or_default();
        let is_generic = parts.last().is_some_and(|part| part.has_arguments);
        Name { scope: names(parts), function, of_trait: names(of_trait), is_generic }
    }

    /// Returns the scope as it would be written.
    pub(super) fn whole_scope(&self) -> String {
        self.scope.join("::")
    }

    /// True if it is a method: types have capitals, modules and namespaces do not.
    pub(super) fn is_of_type(&self) -> bool {
        self.scope.last().is_some_and(|part| part.starts_with(|first: char| first.is_uppercase()))
    }
}

fn is_unnamed(part: &str) -> bool {
    let is_hash =
        part.len() == 17 && part.starts_with('h') && part.bytes().skip(1).all(|byte| byte.is_ascii_hexdigit());
    part.starts_with(['{', '\'', '$']) || is_hash
}

/// A part of a path.
struct Part {
    name: String,
    has_arguments: bool,
}

fn names(parts: Vec<Part>) -> Vec<String> {
    parts.into_iter().map(|part| part.name).collect()
}

/// Returns the parts of a path, without their arguments.
fn path(text: &str, nesting: u32, of_trait: &mut Vec<Part>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for part in split(text) {
        let inside = part.strip_prefix('<').and_then(|part| part.strip_suffix('>')).filter(|_| nesting > 0);
        match inside.map(implementation) {
            Some((Some(of), implemented)) => {
                parts = path(of.trim_start_matches(['&', '*']), nesting - 1, &mut Vec::new());
                if let Some(implemented) = implemented {
                    *of_trait = path(implemented, nesting - 1, &mut Vec::new());
                }
            }
            // Arguments of the part before.
            Some((None, _)) => parts.iter_mut().next_back().into_iter().for_each(|last| last.has_arguments = true),
            None => {
                let bare = part.split('<').next().unwrap_or_default();
                // In `<lambda(int)>` and `operator<`, the whole text is the name.
                let has_arguments = !bare.is_empty() && !part.starts_with("operator") && part.ends_with('>');
                let name = if has_arguments { bare } else { part }.to_owned();
                parts.push(Part { name, has_arguments });
            }
        }
    }
    parts
}

/// Returns A and B for `A as B`, `impl B for A` and `impl A`. `None`: it is a list of arguments, or
/// a type alone.
fn implementation(inside: &str) -> (Option<&str>, Option<&str>) {
    if let Some(of) = inside.strip_prefix("impl ") {
        return match cut(of, " for ") {
            Some((implemented, of)) => (Some(of), Some(implemented)),
            None => (Some(of), None),
        };
    }
    match cut(inside, " as ") {
        Some((of, implemented)) => (Some(of), Some(implemented)),
        None => (inside.contains("::").then_some(inside), None),
    }
}

/// Cuts at a word outside all brackets.
fn cut<'a>(text: &'a str, word: &str) -> Option<(&'a str, &'a str)> {
    let mut depth = 0_i32;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            b'>' if !text[..at].ends_with('-') => depth -= 1,
            b')' | b']' | b'}' => depth -= 1,
            b' ' if depth == 0 && text[at..].starts_with(word) => return Some((&text[..at], &text[at + word.len()..])),
            _ => {}
        }
    }
    None
}

/// Returns the parts between `::` outside all brackets, without a return type and without
/// parameters.
fn split(text: &str) -> Vec<&str> {
    const ANONYMOUS: &str = "(anonymous namespace)";
    let bytes = text.as_bytes();
    let mut parts = Vec::new();
    let (mut from, mut at, mut depth) = (0, 0, 0_u32);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let begins = depth == 0 && at == from;
        if begins && let Some(symbol) = rest.strip_prefix(b"operator").filter(|after| !is_word(after)) {
            let passed_from = if symbol.starts_with(b"()") { 2 } else { 0 };
            let length =
                symbol.iter().skip(passed_from).position(|&byte| byte == b'(').unwrap_or(symbol.len() - passed_from);
            parts.extend(text.get(from..at + b"operator".len() + passed_from + length));
            return parts;
        }
        match rest[0] {
            b'(' if depth == 0 && rest.starts_with(ANONYMOUS.as_bytes()) => at += ANONYMOUS.len() - 1,
            b'(' if depth == 0 => {
                parts.extend(text.get(from..at));
                return parts;
            }
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            b'>' if bytes[..at].ends_with(b"-") => {}
            b'>' | b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b' ' if depth == 0 => {
                parts.clear();
                from = at + 1;
            }
            b':' if depth == 0 && rest.starts_with(b"::") => {
                parts.extend(text.get(from..at));
                at += 1;
                from = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    parts.extend(text.get(from..));
    parts
}

fn is_word(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|&byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_taken_apart() {
        let parse = |text| {
            let Frame { function, location, library } = Frame::parse(text);
            (function, location, library)
        };
        assert_eq!(parse("f(int) (a b/c.cc:12)"), ("f(int)", Some("a b/c.cc:12"), None));
        assert_eq!(parse("f (int)"), ("f (int)", None, None));
        assert_eq!(parse("js::f() [js/f.cc:7]"), ("js::f()", Some("js/f.cc:7"), None));
        assert_eq!(parse("???[/usr/bin/a b +0x1f]"), ("???", None, Some("/usr/bin/a b")));
        assert_eq!(parse("operator new[](int)[libc.so +0x1]"), ("operator new[](int)", None, Some("libc.so")));
        assert_eq!(parse("<[T]>::to_vec"), ("<[T]>::to_vec", None, None));
        assert_eq!(parse(""), ("", None, None));
        assert_eq!(Frame::parse("f (C:/a.c:3)").file(), Some("C:/a.c"));
    }

    #[test]
    fn a_name_is_taken_apart() {
        for (text, scope, function) in [
            ("main", "", "main"),
            ("store::db::Db::set", "store::db::Db", "set"),
            ("store::db::Db::set::{{closure}}", "store::db::Db", "set"),
            ("<store::db::Db>::set::{closure#0}", "store::db::Db", "set"),
            ("store::db::Db::set::h0123456789abcdef", "store::db::Db", "set"),
            ("<store::db::Entry<T> as core::clone::Clone>::clone", "store::db::Entry", "clone"),
            ("<&store::db::Entry as core::fmt::Debug>::fmt", "store::db::Entry", "fmt"),
            ("store::db::<impl core::clone::Clone for store::Key>::clone", "store::Key", "clone"),
            ("alloc::vec::Vec<T,A>::push::<u8>", "alloc::vec::Vec", "push"),
            ("alloc::slice::<impl [T]>::to_vec", "[T]", "to_vec"),
            ("<fn(u8) -> store::X as core::ops::FnOnce>::call_once", "", "call_once"),
            ("Store::insert(std::string const&)", "Store", "insert"),
            ("(anonymous namespace)::Cache<int>::put(int) const", "(anonymous namespace)::Cache", "put"),
            ("std::enable_if<true, void>::type store::fill<int>(int)", "store", "fill"),
            ("Store::operator()(int) const", "Store", "operator()"),
            ("a::operator<< <char>(std::ostream&)", "a", "operator<< <char>"),
            ("operator new[](unsigned long)", "", "operator new[]"),
            ("operators::add(int)", "operators", "add"),
            ("", "", ""),
            ("::<>::(", "", ""),
        ] {
            let name = Name::parse(text);
            if text.starts_with("<fn") {
                assert_eq!(name.function, function, "{text}");
            } else {
                let scope_found = name.whole_scope();
                assert_eq!((scope_found.trim_matches(':'), &*name.function), (scope, function), "{text}");
            }
        }
        assert_eq!(Name::parse("<a::B as c::D<E>>::f").of_trait, ["c", "D"]);
        assert!(Name::parse("Vector<int>::push(int)").is_generic);
        assert!(Name::parse("<a::Vector<T> as c::D>::push").is_generic);
        assert!(!Name::parse("Vector::push<int>(int)").is_generic);
    }

    #[test]
    fn no_text_is_too_deep() {
        for text in ["<".repeat(100_000), "<a::".repeat(50_000) + &">".repeat(50_000), "(".repeat(9) + "é::ü<"] {
            Name::parse(&text);
            Frame::parse(&text);
        }
    }
}
