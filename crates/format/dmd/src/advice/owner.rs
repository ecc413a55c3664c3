//! Whose code allocates.

use super::frame::{Frame, Name};

/// The function of the program's own that a block is allocated for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its name, without arguments.
    pub function: String,
    /// The type whose method it is; `None`: it is a function alone, or nobody knows.
    pub of_type: Option<String>,
    /// Its `file:line`.
    pub place: Option<String>,
    /// The program's own; otherwise of a library that it is built of, since nothing else is on the stack.
    pub is_own: bool,
}

/// Whose a frame is, in the order in which owners are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whose {
    /// The program's.
    Own,
    /// The program's, but it allocates for whoever calls it: a container, a wrapper of `malloc`.
    Helper,
    /// That of a library that the program is built of.
    Dependency,
    /// The language's, the system's, the allocator's.
    Library,
}

impl Owner {
    pub(super) fn of(text: &str) -> Owner {
        let frame = Frame::parse(text);
        let is_own = Whose::of(text) <= Whose::Helper;
        let place = frame.place.map(str::to_owned);
        let name = Name::parse(frame.function);
        let scope = name.whole_scope();
        let function = if scope.is_empty() { name.function.clone() } else { format!("{scope}::{}", name.function) };
        Owner { function, of_type: name.is_of_type().then_some(scope), place, is_own }
    }

    /// The file that it is in.
    pub(super) fn file(&self) -> Option<&str> {
        Some(self.place.as_ref()?.rsplit_once(':')?.0)
    }

    /// What a reporter would be of.
    pub fn subject(&self) -> &str {
        self.of_type.as_deref().unwrap_or(&self.function)
    }
}

/// `function (file:line)`, with no more of the file's path than its last two parts.
impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.function)?;
        let Some(place) = &self.place else { return Ok(()) };
        let from = place.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
        write!(f, " ({})", &place[from..])
    }
}

impl Whose {
    pub(super) fn of(text: &str) -> Whose {
        let frame = Frame::parse(text);
        let name = Name::parse(frame.function);
        if is_of_language(&name) {
            return Whose::Library;
        }
        match (frame.file(), frame.library) {
            (Some(file), _) if is_of_system(file) => return Whose::Library,
            (Some(file), _) if is_of_dependency(file) => return Whose::Dependency,
            (None, Some(library)) if is_of_system(library) => return Whose::Library,
            (None, _) if name.scope.first().is_some_and(|root| DEPENDENCIES.contains(&&**root)) => {
                return Whose::Dependency;
            }
            _ => {}
        }
        if frame.function == "???" || text.starts_with(NO_FUNCTION) {
            // What a function is called decides whose it is: in a program that is one file, all have the same place.
            Whose::Library
        } else if is_allocator(&name) || (name.is_generic && is_container(&name)) {
            Whose::Helper
        } else {
            Whose::Own
        }
    }
}

/// What stands for a stack that was not recorded.
const NO_FUNCTION: &str = "(no stack trace recorded";

/// By name: these are generic, and so in the program's own file.
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

fn is_of_system(file: &str) -> bool {
    const ROOTS: [&str; 8] =
        ["/lib/", "/lib64/", "/lib32/", "/usr/lib/", "/usr/lib64/", "/build/", "../sysdeps/", "./malloc/"];
    const INSIDE: [&str; 11] = [
        "/rustc/",
        "/library/std/src/",
        "/library/core/src/",
        "/library/alloc/src/",
        "/usr/include/",
        "/usr/src/",
        "/bits/",
        "/sysdeps/",
        "/libstdc++",
        "/libcxx/",
        "/glibc",
    ];
    const ALONE: [&str; 6] = ["[vdso]", "linux-vdso.so.1", "libc.so", "libc.so.6", "libstdc++.so", "libstdc++.so.6"];
    ROOTS.iter().any(|root| file.starts_with(root))
        || INSIDE.iter().any(|place| file.contains(place))
        || ALONE.contains(&file)
}

fn is_of_dependency(file: &str) -> bool {
    ["cargo/registry/", "cargo/git/checkouts/", "/vendor/", "/third_party/", "/node_modules/", "/subprojects/"]
        .iter()
        .any(|place| file.contains(place))
}

/// Crates that many programs are built of, for frames that do not say which file they are in.
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

/// A function that hands out memory, whatever it is called by: `xmalloc`, `g_strdup`, `Pool::alloc`.
fn is_allocator(name: &Name) -> bool {
    let function = name.function.to_ascii_lowercase();
    ["alloc", "malloc0", "calloc0", "alloc_n", "reallocarray", "strdup", "strndup", "memdup", "memalign"]
        .iter()
        .any(|end| function.ends_with(end))
}

/// A type with arguments that is called as containers and smart pointers are.
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
    fn frames_are_somebodys() {
        use Whose::*;
        for (text, whose) in [
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
        ] {
            assert_eq!(Whose::of(text), whose, "{text}");
        }
    }

    #[test]
    fn an_owner_is_named() {
        let owner = Owner::of("<store::db::Db>::set::{closure#0} (/home/me/store/src/db.rs:142)");
        assert_eq!(owner.to_string(), "store::db::Db::set (src/db.rs:142)");
        assert_eq!((owner.subject(), owner.file()), ("store::db::Db", Some("/home/me/store/src/db.rs")));
        assert_eq!(Owner::of("store::fill<int>(int) (a.cc:7)").subject(), "store::fill");
    }
}
