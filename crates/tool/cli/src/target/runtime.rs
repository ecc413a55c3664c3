//! Detects languages whose heaps are not malloc's, by a program's dynamic symbols and libraries.

/// A language's runtime that takes its heap from the kernel.
#[derive(Debug)]
pub(super) struct Runtime {
    /// The description of a program, to follow its name.
    pub(super) text: &'static str,
    pub(super) hint: &'static str,
    /// The beginnings of the names of its libraries.
    libraries: &'static [&'static str],
    /// The dynamic symbols that only the runtime defines, or that only programs that call it want.
    symbols: &'static [&'static str],
}

const RUNTIMES: [Runtime; 4] = [
    Runtime {
        text: "runs Java, whose heap is not malloc's: of the virtual machine itself and of native code all is recorded",
        hint: "for Java's own heap, which -Xmx bounds: jcmd PID GC.class_histogram",
        libraries: &["libjli.so", "libjvm.so"],
        symbols: &["JNI_CreateJavaVM"],
    },
    Runtime {
        text: "has V8, whose JavaScript heap is not malloc's: of all other code what it allocates is recorded",
        hint: "for JavaScript's own heap: node --heap-prof, or the memory tools of the browser",
        libraries: &["libnode.so", "libv8.so"],
        symbols: &[],
    },
    Runtime {
        text: "is Lisp (SBCL), whose heap is not malloc's: only what C code allocates is recorded",
        hint: "for Lisp's own heap: (room)",
        libraries: &["libsbcl.so"],
        symbols: &["call_into_lisp", "allocate_lisp_dynamic_space"],
    },
    Runtime {
        text: "uses the Boehm collector, whose heap is not malloc's: what it allocates there is not seen",
        hint: "for that heap: GC_PRINT_STATS=1 in the environment",
        libraries: &["libgc.so."],
        symbols: &[],
    },
];

/// Returns the runtime that has one of these libraries or of the dynamic symbols of interest.
pub(super) fn find(
    is_linked_with: impl Fn(&[&str]) -> bool,
    has: impl Fn(&str) -> bool,
    has_v8: bool,
) -> Option<&'static Runtime> {
    let [_, v8, ..] = &RUNTIMES;
    let is_it =
        |runtime: &&Runtime| is_linked_with(runtime.libraries) || runtime.symbols.iter().any(|symbol| has(symbol));
    RUNTIMES.iter().find(is_it).or_else(|| has_v8.then_some(v8))
}

/// True if a dynamic symbol is one that [`find`] asks for.
pub(super) fn is_of_interest(name: &[u8]) -> bool {
    RUNTIMES.iter().flat_map(|runtime| runtime.symbols).any(|symbol| symbol.as_bytes() == name)
}

/// True if a symbol is of V8's C++ namespace. Chromium contains V8 and exports none of its symbols,
/// except for the functions that initialise its thread-local variables (`_ZTHN2v8…`).
pub(super) fn is_of_v8(name: &[u8]) -> bool {
    let Some(name) = name.strip_prefix(b"_Z") else { return false };
    let name = [&b"TH"[..], b"TW", b"TV", b"TI"].iter().find_map(|kind| name.strip_prefix(*kind)).unwrap_or(name);
    let name = name.strip_prefix(b"N").map(|name| name.strip_prefix(b"K").unwrap_or(name));
    // A function that only takes one of V8's types begins with a namespace of its own.
    name.and_then(|name| name.strip_prefix(b"2v8")).is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v8_is_known_by_its_namespace() {
        for name in ["_ZN2v87Isolate3NewEv", "_ZNK2v85Value6IsTrueEv", "_ZTHN2v88internal12trap_handler4overE"] {
            assert!(is_of_v8(name.as_bytes()), "{name}");
        }
        for name in ["v8", "_ZN2v8", "_Z", "_ZN3fooEN2v87IsolateE", "_ZN2v8E", "_ZN3xv87IsolateE", "_ZTHN", ""] {
            assert!(!is_of_v8(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn one_runtime_is_found() {
        let text = |libraries: &[&str], symbol: &str, has_v8| {
            let is_linked =
                |starts: &[&str]| starts.iter().any(|start| libraries.iter().any(|it| it.starts_with(start)));
            find(is_linked, |name| name == symbol, has_v8).map(|runtime| runtime.text.split(',').next().unwrap())
        };
        assert_eq!(text(&["libc.so.6"], "malloc", false), None);
        assert_eq!(text(&["libz.so.1", "libjli.so"], "", false), Some("runs Java"));
        assert_eq!(text(&["libnode.so.108"], "", false), Some("has V8"));
        assert_eq!(text(&[], "", true), Some("has V8"));
        assert_eq!(text(&[], "call_into_lisp", false), Some("is Lisp (SBCL)"));
        assert!(is_of_interest(b"call_into_lisp") && !is_of_interest(b"malloc"));
    }
}
