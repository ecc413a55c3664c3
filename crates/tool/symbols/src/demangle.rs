//! Demangles linkage names into readable names.

use std::fmt;

use cpp_demangle::{DemangleNodeType, DemangleOptions, DemangleWrite};

use crate::frame::Function;

/// Longer names are cut, before and after demangling.
const NAME_MAX: usize = 16 << 10;
/// The nesting of brackets beyond which a name is not shortened.
const NESTING_MAX: usize = 64;

impl Function {
    /// Returns the function with this name, which may be mangled or not.
    pub fn named(name: &str) -> Function {
        function(name.as_bytes())
    }
}

/// Returns the function with this name, which may be mangled or not.
pub fn function(name: &[u8]) -> Function {
    typed_function(name, b"")
}

/// Returns the function with this name. A legacy Rust name does not contain the type arguments, but
/// `plain` does, the same function's unmangled name in the debug information: `push<u8, Global>`.
pub(crate) fn typed_function(name: &[u8], plain: &[u8]) -> Function {
    let raw = String::from_utf8_lossy(&name[..name.len().min(NAME_MAX)]);
    // Symbols of shared libraries may carry a version: `fopen@@GLIBC_2.2.5`.
    let raw = raw.split_once('@').map_or(&*raw, |(name, _version)| name);
    if let Some(mut full) = rust(raw) {
        let short = without_arguments(&full);
        if is_legacy_rust(name) {
            let plain = String::from_utf8_lossy(&plain[..plain.len().min(NAME_MAX)]);
            // A name that contains its type has it already: `drop_in_place<u8>`.
            if let Some(at) = plain.find('<').filter(|_| plain.ends_with('>') && !full.ends_with('>')) {
                full = format!("{full}::{}", &plain[at..]);
            }
        }
        return Function::new(&full, &short, Some(raw));
    }
    if let Some((full, short)) = cpp(raw) {
        return Function::new(&full, &short, Some(raw));
    }
    if let Some(full) = cython(raw) {
        return Function::new(&full, &full, Some(raw));
    }
    let short = without_clone_suffix(raw);
    let unpassed = without_parameters(short);
    // Debug information of Rust has plain names with type arguments, C++ templates too.
    let mut named = if unpassed.contains('<') { without_arguments(unpassed) } else { unpassed.to_owned() };
    if unpassed.len() < short.len() {
        named = without_return_type(&named).to_owned();
    }
    Function::new(raw, without_async(&named), None)
}

/// Removes the parameters of a C++ name that has been demangled already, as in symbol files.
fn without_parameters(name: &str) -> &str {
    let whole = name.strip_suffix(" const").unwrap_or(name);
    if !whole.ends_with(')') || whole.ends_with("operator()") || whole.ends_with("(anonymous namespace)") {
        return name;
    }
    let mut depth = 0;
    let open = whole.bytes().rposition(|byte| {
        depth += i32::from(byte == b')') - i32::from(byte == b'(');
        depth == 0
    });
    open.filter(|&open| open > 0).map_or(name, |open| &name[..open])
}

/// Removes the type that a C++ function returns: demangled names of templates begin with it.
fn without_return_type(name: &str) -> &str {
    let mut depth = 0;
    let space = name.bytes().rposition(|byte| {
        depth += i32::from(byte == b')') - i32::from(byte == b'(');
        depth == 0 && byte == b' '
    });
    space.filter(|_| !name.contains("operator")).map_or(name, |space| &name[space + 1..])
}

/// Returns the name without the parts that the compiler adds for an async function:
/// `render::{async_fn#0}`.
fn without_async(mut name: &str) -> &str {
    while let Some((outside, part)) = name.rsplit_once("::")
        && part.starts_with("{async_")
    {
        name = outside;
    }
    name
}

/// True for `_ZN…17h0123456789abcdefE…`: without the hash, it could be C++.
pub fn is_legacy_rust(name: &[u8]) -> bool {
    name.starts_with(b"_ZN")
        && name
            .windows(20)
            .any(|part| part.starts_with(b"17h") && part[19] == b'E' && part[3..19].iter().all(u8::is_ascii_hexdigit))
}

/// True if `name` has a supported mangling.
pub fn is_mangled(name: &[u8]) -> bool {
    name.starts_with(b"_Z") || name.starts_with(b"_R") || name.starts_with(b"__Z")
}

fn rust(raw: &str) -> Option<String> {
    if !raw.starts_with("_R") && !is_legacy_rust(raw.as_bytes()) {
        return None;
    }
    let name = rustc_demangle::try_demangle(raw).ok()?;
    let mut full = Bounded::default();
    // An error means that the bound was reached: the part that fits is kept.
    let _ = fmt::write(&mut full, format_args!("{name:#}"));
    Some(without_clone_suffix(&full.0).to_owned())
}

/// Returns the source name of a C function that Cython has made:
/// `numpy.random._generator.Generator.normal` for
/// `__pyx_pw_5numpy_6random_10_generator_9Generator_33normal`. Packages, modules and classes are
/// preceded by their lengths, functions by a distinguishing number, or by nothing.
fn cython(raw: &str) -> Option<String> {
    let prefixes = ["__pyx_pw_", "__pyx_pf_", "__pyx_f_"];
    let mut rest = prefixes.iter().find_map(|prefix| without_clone_suffix(raw).strip_prefix(prefix))?;
    let mut name = String::new();
    loop {
        let text = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let length: Option<usize> = rest[..rest.len() - text.len()].parse().ok();
        let scope = length.and_then(|length| text.split_at_checked(length));
        match scope.and_then(|(scope, rest)| Some((scope, rest.strip_prefix('_')?))) {
            // A method `__init__` with the number 1 is not a scope `_`.
            Some((scope, inside)) if !scope.trim_matches('_').is_empty() && !inside.is_empty() => {
                name.push_str(scope);
                name.push('.');
                rest = inside;
            }
            _ => return (!name.is_empty() && !text.is_empty()).then(|| name + text),
        }
    }
}

fn cpp(raw: &str) -> Option<(String, String)> {
    if !raw.starts_with("_Z") && !raw.starts_with("__Z") {
        return None;
    }
    let symbol = cpp_demangle::BorrowedSymbol::new(raw.as_bytes()).ok()?;
    let mut full = CppName { keeps_arguments: true, ..CppName::default() };
    // An error means that the bound was reached: the part that fits is kept.
    let _ = symbol.structured_demangle(&mut full, &DemangleOptions::new());
    let mut short = CppName::default();
    let options = DemangleOptions::new().no_params().no_return_type();
    let _ = symbol.structured_demangle(&mut short, &options);
    let (full, short) = (full.text.0, short.text.0);
    if full.is_empty() {
        return None;
    }
    let short = short.split(" [clone").next().unwrap_or_default().replace("[abi:cxx11]", "");
    let short = short.trim_end_matches(" const").to_owned();
    Some((full.clone(), if short.is_empty() { full } else { short }))
}

/// Text of at most [`NAME_MAX`] bytes: a short mangled name can expand to an exponentially long
/// one.
#[derive(Default)]
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > NAME_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// A C++ name, with or without template arguments. One type for both, because the demangler is
/// large and is compiled for each type.
#[derive(Default)]
struct CppName {
    text: Bounded,
    keeps_arguments: bool,
    /// For each open node, true if it is one of template arguments that are left out.
    nodes: Vec<bool>,
    in_arguments: usize,
    /// The brackets are outside the node: the closing one is still to come.
    closing: bool,
}

impl DemangleWrite for CppName {
    fn push_demangle_node(&mut self, node: DemangleNodeType) {
        let arguments = node == DemangleNodeType::TemplateArgs && !self.keeps_arguments;
        if arguments && self.in_arguments == 0 {
            // Also for `operator< <int>`.
            let text = &mut self.text.0;
            let kept = text.strip_suffix('<').map_or(text.len(), |rest| rest.trim_end().len());
            text.truncate(kept);
        }
        self.nodes.push(arguments);
        self.in_arguments += usize::from(arguments);
    }

    fn write_string(&mut self, text: &str) -> fmt::Result {
        if self.in_arguments > 0 {
            return Ok(());
        }
        let closes = std::mem::take(&mut self.closing);
        let text = if closes { text.strip_prefix('>').unwrap_or(text) } else { text };
        fmt::Write::write_str(&mut self.text, text)
    }

    fn pop_demangle_node(&mut self) {
        let arguments = self.nodes.pop() == Some(true);
        self.in_arguments -= usize::from(arguments);
        self.closing = arguments && self.in_arguments == 0;
    }
}

/// Removes what compilers append to the names of functions that they split or clone: `.cold`,
/// `.part.0`, `.llvm.123`.
fn without_clone_suffix(name: &str) -> &str {
    const SUFFIXES: [&str; 8] =
        [".cold", ".part.", ".isra.", ".constprop.", ".lto_priv.", ".llvm.", ".localalias", ".warm"];
    let cut = SUFFIXES.iter().filter_map(|suffix| name.find(suffix)).min();
    cut.filter(|&at| at > 0).map_or(name, |at| &name[..at])
}

/// Removes type arguments: `<alloc::vec::Vec<T> as Extend<T>>::extend::<I>` becomes
/// `alloc::vec::Vec::extend`.
fn without_arguments(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    if strip(name, &mut out, 0) && !out.is_empty() { out } else { name.to_owned() }
}

/// Appends `name` without type arguments to `out`; false if its brackets do not match.
fn strip(name: &str, out: &mut String, nesting: usize) -> bool {
    let mut rest = name;
    while let Some(open) = rest.find('<') {
        out.push_str(&rest[..open]);
        if out.ends_with("operator") || out.ends_with("operator<") {
            out.push('<');
            rest = &rest[open + 1..];
            continue;
        }
        let Some(close) = matching(&rest[open..]) else { return false };
        let inside = &rest[open + 1..open + close];
        rest = &rest[open + close + 1..];
        let implementation = inside.starts_with("impl ");
        let operator = out.ends_with("operator< ") || out.ends_with("operator<< ");
        let arguments = !implementation && out.ends_with(|c: char| c.is_alphanumeric() || "_:}".contains(c));
        if arguments || operator {
            let kept = out.trim_end_matches([':', ' ']).len();
            out.truncate(kept);
        } else if nesting == NESTING_MAX {
            return false;
        } else {
            // `<Self as Trait>::function` or `<impl Trait for Self>::function`.
            let own = if implementation { inside } else { split_top(inside, " as ") };
            if implementation {
                out.push('<');
            }
            if !strip(own, out, nesting + 1) {
                return false;
            }
            if implementation {
                out.push('>');
            }
        }
    }
    out.push_str(rest);
    true
}

/// Returns the position of the bracket that closes the one at the start.
fn matching(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut before = b' ';
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if before == b'-' || before == b'=' => {}
            b'>' => {
                depth -= 1;
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

/// Returns the part of `text` before the first `separator` that is outside brackets.
fn split_top<'a>(text: &'a str, separator: &str) -> &'a str {
    let mut depth = 0usize;
    let mut before = b' ';
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if before != b'-' && before != b'=' => depth = depth.saturating_sub(1),
            b' ' if depth == 0 && text[at..].starts_with(separator) => return &text[..at],
            _ => {}
        }
        before = byte;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(raw: &str, full: &str, short: &str) {
        let function = function(raw.as_bytes());
        assert_eq!((function.full(), function.short()), (full, short));
        let mangled = raw.starts_with("_Z") || raw.starts_with("_R");
        assert_eq!(function.linkage(), mangled.then_some(raw));
    }

    #[test]
    fn cpp_that_is_demangled() {
        check("store::List<int>::push(int)", "store::List<int>::push(int)", "store::List::push");
        check(
            "Posting& List<Posting>::add<Posting>(Posting&&) const",
            "Posting& List<Posting>::add<Posting>(Posting&&) const",
            "List::add",
        );
        check(
            "(anonymous namespace)::f(void (*)(int))",
            "(anonymous namespace)::f(void (*)(int))",
            "(anonymous namespace)::f",
        );
        check("operator new(unsigned long)", "operator new(unsigned long)", "operator new");
        check("store::Hash::operator()", "store::Hash::operator()", "store::Hash::operator()");
        check("main", "main", "main");
    }

    #[test]
    fn rust_legacy() {
        check(
            "_ZN5alloc3vec16Vec$LT$T$C$A$GT$4push17h0123456789abcdefE",
            "alloc::vec::Vec<T,A>::push",
            "alloc::vec::Vec::push",
        );
        check(
            "_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3bar17h0123456789abcdefE",
            "<Test + 'static as foo::Bar<Test>>::bar",
            "Test + 'static::bar",
        );
        check("_ZN3app4main17h0123456789abcdefE.llvm.1234ABCD", "app::main", "app::main");
        check(
            "_ZN3app4main28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE",
            "app::main::{{closure}}",
            "app::main::{{closure}}",
        );
    }

    #[test]
    fn rust_legacy_with_types() {
        let raw = b"_ZN5alloc3vec16Vec$LT$T$C$A$GT$4push17h0123456789abcdefE";
        let function = typed_function(raw, b"push<app::Foo, alloc::alloc::Global>");
        assert_eq!(function.full(), "alloc::vec::Vec<T,A>::push::<app::Foo, alloc::alloc::Global>");
        assert_eq!(function.short(), "alloc::vec::Vec::push");
        assert_eq!(typed_function(raw, b"push").full(), "alloc::vec::Vec<T,A>::push");
    }

    #[test]
    fn cython_has_names_of_python() {
        for (raw, name) in [
            ("__pyx_pw_5numpy_6random_10_generator_9Generator_33normal", "numpy.random._generator.Generator.normal"),
            ("__pyx_f_5numpy_6random_7_common_cont", "numpy.random._common.cont"),
            ("__pyx_pw_4demo_1fib", "demo.fib"),
            ("__pyx_pw_4demo_3Set_1__init__", "demo.Set.__init__"),
            ("__pyx_pf_4demo_3Set_2add.isra.0", "demo.Set.add"),
        ] {
            let function = function(raw.as_bytes());
            assert_eq!((function.full(), function.linkage()), (name, Some(raw)));
        }
        for raw in ["__pyx_pw_", "__pyx_f_4dem", "__pyx_f_99999999999999999999a_b", "__pyx_f_3äö_x", "__Pyx_Import"] {
            assert_eq!(function(raw.as_bytes()).full(), raw);
        }
    }

    #[test]
    fn rust_v0() {
        check("_RNvCskwGfYPst2Cb_3foo16example_function", "foo::example_function", "foo::example_function");
        check("_RINvNtC3std3mem8align_ofjE", "std::mem::align_of::<usize>", "std::mem::align_of");
        check("_RNvMs_C3appINtB4_3FoomE3bar", "<app::Foo<u32>>::bar", "app::Foo::bar");
    }

    #[test]
    fn cpp() {
        check("_ZN5space3fooEibc", "space::foo(int, bool, char)", "space::foo");
        check(
            "_ZNSt6vectorIiSaIiEE9push_backEOi",
            "std::vector<int, std::allocator<int> >::push_back(int&&)",
            "std::vector::push_back",
        );
        check("_ZNK5space3Foo3barEv", "space::Foo::bar() const", "space::Foo::bar");
        check("_ZN5space3fooEi.part.0", "space::foo(int) [clone .part.0]", "space::foo");
        check("_ZN12_GLOBAL__N_13fooEi", "(anonymous namespace)::foo(int)", "(anonymous namespace)::foo");
        check("_Z4pickIiET_S0_S0_", "int pick<int>(int, int)", "pick");
        check("_Znwm", "operator new(unsigned long)", "operator new");
        check("_ZNK3FooltERKS_", "Foo::operator<(Foo const&) const", "Foo::operator<");
        check("_ZltIiEbRK3FooT_", "bool operator< <int>(Foo const&, int)", "operator<");
        check("_ZlsRSoRK3Foo", "operator<<(std::ostream&, Foo const&)", "operator<<");
    }

    #[test]
    fn async_functions_are_functions() {
        let block = "<F as axum::Handler<(M,T),S>>::call::{async_block#0}<fn(u8) -> app::login::{async_fn_env#0}>";
        check(block, block, "F::call");
        check("app::login::{async_fn#0}::{async_block#1}", "app::login::{async_fn#0}::{async_block#1}", "app::login");
        check("app::get::{closure#0}", "app::get::{closure#0}", "app::get::{closure#0}");
        check("{async_fn#0}", "{async_fn#0}", "{async_fn#0}");
    }

    #[test]
    fn plain() {
        check("main", "main", "main");
        check("compute.part.0", "compute.part.0", "compute");
        check("new<app::Foo>", "new<app::Foo>", "new");
        check("{closure#0}<alloc::vec::Vec<u8>>", "{closure#0}<alloc::vec::Vec<u8>>", "{closure#0}");
        check("operator< <int>", "operator< <int>", "operator<");
        check("map<fn() -> u8, u8>", "map<fn() -> u8, u8>", "map");
        let versioned = function(b"fopen@@GLIBC_2.2.5");
        assert_eq!((versioned.full(), versioned.linkage()), ("fopen", None));
    }

    #[test]
    fn nonsense_is_kept() {
        for name in ["", "<", ">", "a<b", "<<<<", "_R", "_Z", "_ZN", "_RNvC", "a>b<c", "\u{fffd}<é>", "<é as ü>::ö"]
        {
            let function = function(name.as_bytes());
            assert_eq!(function.full(), name);
        }
        function(&[0xff; 100]);
        function("é".repeat(20_000).as_bytes());
        function("<".repeat(20_000).as_bytes());
        function(format!("{}{}", "<".repeat(8_000), ">".repeat(8_000)).as_bytes());
    }

    #[test]
    fn exponential_names_are_cut() {
        // Each pair doubles the length of the substitution before it.
        let mut raw = String::from("_Z1fI1a");
        for index in 0..30 {
            let base36 = char::from_digit(index, 36).unwrap_or('0').to_ascii_uppercase();
            raw.push_str(&format!("1bIS{base36}_S{base36}_E"));
        }
        raw.push_str("Evv");
        assert!(function(raw.as_bytes()).full().len() <= NAME_MAX);
    }
}
