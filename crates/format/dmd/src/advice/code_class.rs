//! Classifies code: the program's own, its helpers, a dependency, or a library.

use super::frame::{Frame, Name};

/// The class of a frame's code, in the order in which owners are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CodeClass {
    /// The program's own code.
    Own,
    /// The program's own code that allocates for its callers: a container, a wrapper of `malloc`.
    Helper,
    /// Code of a library that the program is built of.
    Dependency,
    /// Code of the language's runtime, the system or the allocator.
    Library,
}

/// A function, and what is known about its origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Code<'a> {
    /// Its name, with template and type arguments if they are known.
    pub function: &'a str,
    /// Its source file.
    pub file: Option<&'a str>,
    /// The path of the program or library that it is in.
    pub module: Option<&'a str>,
    /// True if the system's code counts as the program's own: the program belongs to the system, or
    /// its modules have already been classified, and the directory in which a source file was built
    /// does not matter.
    pub is_system_own: bool,
}

impl CodeClass {
    pub(crate) fn of(text: &str) -> CodeClass {
        let frame = Frame::parse(text);
        if frame.function == "???" || text.starts_with(NO_FUNCTION) {
            return CodeClass::Library;
        }
        CodeClass::of_code(&Code {
            function: frame.function,
            file: frame.file(),
            module: frame.library,
            is_system_own: false,
        })
    }

    /// Classifies a function by its name, its source file and its module.
    pub fn of_code(code: &Code<'_>) -> CodeClass {
        let name = Name::parse(code.function);
        if is_of_language(&name) {
            return CodeClass::Library;
        }
        match (code.file, code.module) {
            (Some(file), _) if is_of_language_file(file) => return CodeClass::Library,
            (Some(file), _) if !code.is_system_own && is_of_system(file) => return CodeClass::Library,
            (Some(file), _) if is_of_dependency(file) => return CodeClass::Dependency,
            (None, Some(module)) if !code.is_system_own && is_of_system(module) => return CodeClass::Library,
            (None, Some(module)) if is_of_dependency(module) => return CodeClass::Dependency,
            (None, _) if name.scope.first().is_some_and(|root| DEPENDENCIES.contains(&&**root)) => {
                return CodeClass::Dependency;
            }
            _ => {}
        }
        // The name decides between these two: in a program of one file, all functions have the same
        // file.
        if is_allocator(&name) || (name.is_generic && is_container(&name)) { CodeClass::Helper } else { CodeClass::Own }
    }
}

/// The beginning of the text for a stack that was not recorded.
const NO_FUNCTION: &str = "(no stack trace recorded";

/// True for the language's code, by name: such functions may be generic, and then are in the
/// program's own file.
fn is_of_language(name: &Name) -> bool {
    const ROOTS: [&str; 8] =
        ["std", "core", "alloc", "hashbrown", "compiler_builtins", "__rustc", "__gnu_cxx", "__cxxabiv1"];
    const OF_C: [&str; 12] = [
        "malloc",
        "calloc",
        "realloc",
        "reallocarray",
        "memalign",
        "posix_memalign",
        "aligned_alloc",
        "valloc",
        "pvalloc",
        "strdup",
        "strndup",
        "_start",
    ];
    let root = name.scope.first().map_or("", |root| root.trim_start_matches('<'));
    let is_primitive = !name.of_trait.is_empty() && name.scope.len() == 1 && ROOTS.contains(&&*name.of_trait[0]);
    let is_of_global_allocator = name.of_trait.last().is_some_and(|of| of == "GlobalAlloc" || of == "Allocator");
    ROOTS.contains(&root)
        || root.starts_with("heapledger")
        || (root == "mozilla" && name.scope.get(1).is_some_and(|part| part == "dmd"))
        || is_primitive
        || is_of_global_allocator
        || (root.is_empty()
            && (OF_C.contains(&&*name.function)
                || ["operator new", "__rust_", "__rdl_", "__rg_", "__libc_", "heapledger_"]
                    .iter()
                    .any(|prefix| name.function.starts_with(prefix))))
}

/// True for sources of a language's own library and of the C library, wherever they were built.
fn is_of_language_file(file: &str) -> bool {
    const ROOTS: [&str; 2] = ["../sysdeps/", "./malloc/"];
    const INSIDE: [&str; 14] = [
        "/rustc/",
        "/rust/deps/",
        "/rustlib/src/rust/library/",
        "/hashbrown-",
        "/library/std/src/",
        "/library/core/src/",
        "/library/alloc/src/",
        "/usr/include/",
        "/include/c++/",
        "/bits/",
        "/sysdeps/",
        "/libstdc++",
        "/libcxx/",
        "/glibc",
    ];
    ROOTS.iter().any(|root| file.starts_with(root)) || INSIDE.iter().any(|place| file.contains(place))
}

/// True for files of the system: its programs and libraries, and the directories in which
/// distributions build them.
fn is_of_system(file: &str) -> bool {
    const ROOTS: [&str; 6] = ["/lib/", "/lib64/", "/lib32/", "/usr/lib/", "/usr/lib64/", "/build/"];
    const ALONE: [&str; 6] = ["[vdso]", "linux-vdso.so.1", "libc.so", "libc.so.6", "libstdc++.so", "libstdc++.so.6"];
    ROOTS.iter().any(|root| file.starts_with(root)) || file.contains("/usr/src/") || ALONE.contains(&file)
}

fn is_of_dependency(file: &str) -> bool {
    [
        "cargo/registry/",
        "cargo/git/checkouts/",
        "/vendor/",
        "/third_party/",
        "/node_modules/",
        "/subprojects/",
        ".libs/",
    ]
    .iter()
    .any(|place| file.contains(place))
}

/// Crates that many programs are built of, for frames without a file.
const DEPENDENCIES: [&str; 24] = [
    "tokio",
    "bytes",
    "hyper",
    "h2",
    "http",
    "mio",
    "axum",
    "tower",
    "tracing",
    "futures_util",
    "futures_channel",
    "serde",
    "serde_json",
    "indexmap",
    "smallvec",
    "parking_lot",
    "crossbeam_channel",
    "rayon",
    "regex",
    "dashmap",
    "rustls",
    "arrayvec",
    "once_cell",
    "rayon_core",
];

/// True for a function that returns memory to its callers: `xmalloc`, `g_strdup`, `Pool::alloc`.
fn is_allocator(name: &Name) -> bool {
    let function = name.function.to_ascii_lowercase();
    ["alloc", "malloc0", "calloc0", "alloc_n", "reallocarray", "strdup", "strndup", "memdup", "memalign"]
        .iter()
        .any(|end| function.ends_with(end))
}

/// True for a type with arguments whose name is that of a container or a smart pointer.
fn is_container(name: &Name) -> bool {
    let of = name.scope.last().map(|last| last.to_ascii_lowercase()).unwrap_or_default();
    let of = of.trim_end_matches("_impl").trim_end_matches("base");
    [
        "vec", "vector", "array", "list", "map", "set", "table", "deque", "queue", "stack", "heap", "string", "buffer",
        "ptr", "box", "rc", "arc", "slab", "storage", "tree",
    ]
    .iter()
    .any(|end| of.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_classified() {
        use CodeClass::*;
        for (text, class) in [
            ("store::db::Db::set (src/db.rs:142)", Own),
            ("main (/home/me/build/main.c:3)", Own),
            ("???[/home/me/target/release/store +0x1f]", Library),
            ("store::put[/home/me/target/release/store +0x1f]", Own),
            ("put (cache.c:7)", Own),
            ("<store::Key as core::clone::Clone>::clone (src/key.rs:1)", Own),
            ("<store::Key as core::clone::Clone>::clone", Own),
            ("nsTArray_Impl<int>::EnsureCapacity(int) (xpcom/nsTArray.h:9)", Helper),
            ("xmalloc (util.c:7)", Helper),
            ("Arena::alloc(int) (arena.cc:7)", Helper),
            (
                "bytes::BytesMut::reserve (/root/.cargo/registry/src/index.crates.io-1/bytes-1.0.0/src/lib.rs:1)",
                Dependency,
            ),
            ("tokio::task::spawn", Dependency),
            ("alloc::raw_vec::RawVec<T,A>::grow_one (/rustc/0123/library/alloc/src/raw_vec.rs:1)", Library),
            ("<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem", Library),
            ("<alloc::vec::Vec<store::Key> as core::clone::Clone>::clone", Library),
            ("core::ptr::drop_in_place<store::Key> (src/key.rs:1)", Library),
            ("<store::Counting as core::alloc::global::GlobalAlloc>::alloc (src/main.rs:9)", Library),
            (
                "std::vector<int, std::allocator<int> >::reserve(unsigned long) (/usr/include/c++/14/bits/vector.tcc:79)",
                Library,
            ),
            ("void std::vector<int>::emplace_back<int>(int&&)", Library),
            ("operator new(unsigned long)", Library),
            ("malloc[libheapledger.so +0x7]", Library),
            ("???[/usr/lib/x86_64-linux-gnu/libc.so.6 +0x29d8f]", Library),
            ("???", Library),
            ("prepare_resize<A> (/rust/deps/hashbrown-0.16.1/src/raw/mod.rs:2738)", Library),
        ] {
            assert_eq!(CodeClass::of(text), class, "{text}");
        }
    }
}
