//! Detects which allocator a program uses: malloc, or an allocator of its own that the recorder
//! does not see.
//!
//! The evidence is the names of functions in the dynamic symbols and, unless the file is stripped,
//! in the symbol table. A name is evidence wherever the function is defined: a program that calls
//! `mi_malloc` uses mimalloc.

use std::path::Path;

use memchr::memmem;
use object::elf;
use object::read::ReadRef;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{Endianness, SectionIndex};

use super::{Effect, Finding, runtime};
use crate::code::Code;

/// The most bytes of a symbol table's names that are searched.
pub(crate) const NAMES_MAX: u64 = 16 << 20;

/// The function names that only one allocator has. Names with a prefix before these belong to the
/// same allocator.
const ALLOCATORS: [(&str, &[&str]); 6] = [
    ("jemalloc", &["je_malloc", "rjem_malloc", "mallocx"]),
    ("mimalloc", &["mi_malloc", "mi_heap_malloc", "mi_malloc_aligned"]),
    ("tcmalloc", &["tc_malloc"]),
    ("snmalloc", &["sn_malloc", "sn_rust_alloc"]),
    ("rpmalloc", &["rpmalloc"]),
    (OWN, &["heapledger_heap"]),
];

/// Heapledger's allocator: its crate has a thread-local variable of that name.
const OWN: &str = "heapledger-heap";

/// The shared libraries of these allocators. Ahead of the C library they implement malloc, which is
/// recorded; but C++'s `operator new`, which some of them define too, bypasses the recorder.
pub(crate) const LIBRARIES: [&str; 5] = ["libjemalloc", "libtcmalloc", "libmimalloc", "libsnmalloc", "librpmalloc"];

/// `operator new(unsigned long)` and `operator new[](unsigned long)`.
pub(crate) const OPERATORS_NEW: [&str; 2] = ["_Znwm", "_Znam"];

/// The symbol to which a program refers if its global allocator is Heapledger's library.
const LINKED: &str = "heapledger_hooks_v1";

/// The texts that only one allocator has. They are the only evidence in a stripped program that
/// defines malloc.
const TEXTS: [(&str, &str); 4] = [
    ("jemalloc", "<jemalloc>"),
    ("mimalloc", "mimalloc: "),
    ("tcmalloc", "tcmalloc: "),
    ("PartitionAlloc", "partition_alloc/partitions"),
];

/// The functions by which a malloc finds the next one.
const LOOK_UPS: [&str; 2] = ["dlsym", "dlvsym"];

/// The functions by which an allocator gets its memory from the kernel.
const SOURCES: [&str; 4] = ["mmap", "mmap64", "sbrk", "brk"];

/// The functions by which a sanitizer's runtime is started.
const SANITIZERS: [(&str, &str); 5] = [
    ("__asan_init", "AddressSanitizer"),
    ("__hwasan_init", "HWAddressSanitizer"),
    ("__tsan_init", "ThreadSanitizer"),
    ("__msan_init", "MemorySanitizer"),
    ("__lsan_init", "LeakSanitizer"),
];

/// The symbols of a program, as far as they are of interest.
#[derive(Default)]
struct Symbols {
    /// The dynamic symbols of interest: those defined here, and those wanted from libraries.
    defined: Vec<Vec<u8>>,
    wanted: Vec<Vec<u8>>,
    /// The names of [`ALLOCATORS`] that are in the symbol table.
    names: Vec<&'static str>,
    libraries: Vec<Vec<u8>>,
    is_go: bool,
    is_rust: bool,
    has_v8: bool,
    /// True if a text ends with `malloc`, as the argument of `dlsym` does. Only looked for if it
    /// makes a difference.
    names_malloc: bool,
    /// The allocator of [`TEXTS`] whose text was found, also only looked for in that case.
    named_in_text: Option<&'static str>,
}

/// Returns the findings about the allocators of a program, and true if it wraps malloc.
pub(super) fn check<'d>(
    path: &Path,
    elf: &elf::FileHeader64<Endianness>,
    data: impl ReadRef<'d>,
) -> (Vec<Finding>, bool) {
    let program = Program { path, symbols: Symbols::read(elf, data).unwrap_or_default() };
    let mut findings = vec![];
    let wraps_malloc = program.malloc(&mut findings);
    program.operator_new(&mut findings);
    program.other_heaps(&mut findings);
    (findings, wraps_malloc)
}

/// A program that is checked.
struct Program<'p> {
    path: &'p Path,
    symbols: Symbols,
}

impl Program<'_> {
    /// Adds a finding about the program's malloc, or about what it uses instead or beside. Returns
    /// true if its malloc calls the next one, the recorder's.
    fn malloc(&self, findings: &mut Vec<Finding>) -> bool {
        let Program { path, symbols } = self;
        let name = path.display();
        let mut wraps_malloc = false;
        let sanitizer = SANITIZERS.iter().find(|(init, _)| symbols.has(init));
        let allocator = ALLOCATORS
            .iter()
            .find(|(_, names)| names.iter().any(|name| symbols.has(name) || symbols.names.contains(name)));
        let linked = allocator.map(|&(name, _)| name).or(symbols.named_in_text);
        if let Some(&(init, sanitizer)) = sanitizer {
            if symbols.defines("malloc") {
                findings.push(finding(
                    Code::Sanitizer,
                    Effect::Unrecorded,
                    format!("`{name}` is built with {sanitizer}, whose allocator it uses"),
                    "build it without -fsanitize=…".to_owned(),
                ));
            } else if init == "__asan_init" && !is_link_order_excused() {
                findings.push(finding(
                    Code::AddressSanitizer,
                    Effect::Refused,
                    format!("`{name}` is built with {sanitizer}, which refuses to run with the recorder's library"),
                    format!("ASAN_OPTIONS=verify_asan_link_order=0 heapledger record -- {name}"),
                ));
            }
        } else if symbols.defines("heapledger_ledger_v1") {
            // The program contains libheapledger's static library, whose malloc calls the next one:
            // the recorder's.
        } else if symbols.defines("malloc") && linked.is_none() && symbols.may_wrap_malloc() {
            // The program's malloc comes before the recorder's, and finds it when it looks up the
            // next one.
            wraps_malloc = !symbols.may_have_heap();
            if !wraps_malloc {
                findings.push(finding(
                    Code::WrapsMalloc,
                    Effect::Partial,
                    format!("`{name}` defines malloc: it may be an allocator of its own, or call on the next one"),
                    "record it: only what it asks of the next malloc is in the recording".to_owned(),
                ));
            }
        } else if symbols.defines("malloc") {
            let whose = linked.map_or("an allocator of its own".to_owned(), |name| format!("{name}, linked into it"));
            findings.push(finding(
                Code::OwnAllocator,
                Effect::Unrecorded,
                format!("`{name}` has {whose}, instead of malloc"),
                "build it without, or link the allocator as a shared library".to_owned(),
            ));
        } else if symbols.wants(LINKED) {
            // The program's global allocator, whichever it is, notifies the recorder.
        } else if let Some((allocator, _)) = allocator {
            findings.push(finding(
                Code::SecondAllocator,
                Effect::Partial,
                format!("`{name}` uses {allocator} beside malloc: what it allocates there is not seen"),
                match *allocator {
                    OWN => "wrap it: heapledger::Allocator::heap() as #[global_allocator]".to_owned(),
                    _ => format!("build it without {allocator}"),
                },
            ));
        } else if symbols.is_rust
            && !symbols.is_linked_with(&["libstd-", "librustc_driver-"])
            && !["calloc", "posix_memalign", "aligned_alloc"].iter().any(|name| symbols.wants(name))
        {
            // The system allocator of Rust's standard library calls these functions.
            findings.push(finding(
                Code::OwnAllocator,
                Effect::Partial,
                format!(
                    "`{name}` seems to have a #[global_allocator] that does not use malloc: what it allocates is not seen"
                ),
                "build it with the system's allocator (std::alloc::System)".to_owned(),
            ));
        }
        wraps_malloc
    }

    /// Adds a finding if C++'s `operator new` is that of another allocator.
    fn operator_new(&self, findings: &mut Vec<Finding>) {
        let Program { path, symbols } = self;
        let name = path.display();
        let preloaded = std::env::var("LD_PRELOAD").unwrap_or_default();
        if OPERATORS_NEW.iter().any(|name| symbols.wants(name))
            && let Some(library) =
                LIBRARIES.iter().find(|&name| symbols.is_linked_with(&[name]) || preloaded.contains(name))
        {
            let found = finding(
                Code::SecondAllocator,
                Effect::Partial,
                format!("`{name}` is a C++ program with {library}: blocks from its `operator new` are not seen"),
                format!("build it without {library}"),
            );
            // The library exports its operators, so their entry points are found.
            findings.push(Finding { is_redirected: true, ..found });
        }
    }

    /// Adds findings about heaps of languages and runtimes, which are not malloc's.
    fn other_heaps(&self, findings: &mut Vec<Finding>) {
        let Program { path, symbols } = self;
        let name = path.display();
        if symbols.is_go {
            findings.push(finding(
                Code::Go,
                Effect::Partial,
                format!("`{name}` is written in Go, whose heap is not malloc's"),
                "for Go's own heap: go tool pprof".to_owned(),
            ));
        }
        let is_linked_with = |names: &[&str]| symbols.is_linked_with(names);
        if let Some(runtime) = runtime::find(is_linked_with, |symbol| symbols.has(symbol), symbols.has_v8) {
            let text = format!("`{name}` {}", runtime.text);
            findings.push(finding(Code::ManagedHeap, Effect::Partial, text, runtime.hint.to_owned()));
        }
        if let Some((language, variable, value)) = symbols.runtime(path)
            && std::env::var_os(variable).is_none()
        {
            findings.push(finding(
                Code::RuntimeAllocator,
                Effect::Partial,
                format!("{language} allocates small blocks itself: only what it takes from malloc is seen"),
                format!("{variable}={value} heapledger record -- {name} …"),
            ));
        }
    }
}

fn finding(code: Code, effect: Effect, text: String, hint: String) -> Finding {
    Finding { code, effect, text, hint, is_redirected: false }
}

/// True if a dynamic symbol is used above; a program may have very many others.
fn is_of_interest(name: &[u8]) -> bool {
    const OTHERS: [&str; 6] = ["malloc", "calloc", "posix_memalign", "aligned_alloc", "Py_BytesMain", "_emalloc"];
    if runtime::is_of_interest(name) {
        return true;
    }
    let allocators = ALLOCATORS.iter().flat_map(|(_, names)| names.iter());
    let sanitizers = SANITIZERS.iter().map(|(init, _)| init);
    OTHERS
        .iter()
        .chain(&OPERATORS_NEW)
        .chain(&LOOK_UPS)
        .chain(&SOURCES)
        .chain(&[LINKED])
        .chain(allocators)
        .chain(sanitizers)
        .any(|of_interest| of_interest.as_bytes() == name)
}

/// Returns the names of allocators among those of a symbol table, each of which ends with a NUL.
/// They may have a prefix that ends with an underscore.
fn allocators_among(strings: &[u8]) -> Vec<&'static str> {
    let mut found = vec![];
    // One pass for all names that contain `malloc`, and one for each that does not.
    for common in ["malloc", "sn_rust_alloc", "heapledger_heap"] {
        for at in memmem::find_iter(strings, common) {
            let end = memchr::memchr(0, &strings[at..]).map_or(strings.len(), |length| at + length);
            let is_here = |name: &&&str| {
                let prefix = strings[..end].strip_suffix(name.as_bytes());
                prefix.is_some_and(|prefix| matches!(prefix.last(), None | Some(0 | b'_')))
            };
            found.extend(ALLOCATORS.iter().flat_map(|(_, names)| names.iter()).filter(is_here).copied());
        }
    }
    found
}

/// True if the user has told AddressSanitizer to accept a library before it.
fn is_link_order_excused() -> bool {
    std::env::var("ASAN_OPTIONS").is_ok_and(|options| options.contains("verify_asan_link_order=0"))
}

impl Symbols {
    fn defines(&self, name: &str) -> bool {
        self.defined.iter().any(|defined| defined == name.as_bytes())
    }

    fn wants(&self, name: &str) -> bool {
        self.wanted.iter().any(|wanted| wanted == name.as_bytes())
    }

    fn has(&self, name: &str) -> bool {
        self.defines(name) || self.wants(name)
    }

    /// True if the program's malloc, if it defines one, can find the next one by name.
    fn may_wrap_malloc(&self) -> bool {
        self.names_malloc && LOOK_UPS.iter().any(|name| self.wants(name))
    }

    /// True if the program can get memory from the kernel itself.
    fn may_have_heap(&self) -> bool {
        SOURCES.iter().any(|name| self.wants(name))
    }

    /// True if the program needs a library whose name starts with one of these.
    fn is_linked_with(&self, starts: &[&str]) -> bool {
        self.libraries.iter().any(|library| starts.iter().any(|start| library.starts_with(start.as_bytes())))
    }

    /// Returns the language of a runtime with an allocator of its own, the variable that turns the
    /// allocator off, and the value to set.
    fn runtime(&self, path: &Path) -> Option<(&'static str, &'static str, &'static str)> {
        let program = path.file_name().map(|name| name.as_encoded_bytes()).unwrap_or_default();
        if self.defines("Py_BytesMain") || self.wants("Py_BytesMain") || self.is_linked_with(&["libpython3"]) {
            return Some(("Python", "PYTHONMALLOC", "malloc"));
        }
        let is_php = program.starts_with(b"php") && self.defines("_emalloc");
        is_php.then_some(("PHP", "USE_ZEND_ALLOC", "0"))
    }

    fn read<'d>(elf: &elf::FileHeader64<Endianness>, data: impl ReadRef<'d>) -> Option<Symbols> {
        let endian = elf.endian().ok()?;
        let sections = elf.sections(endian, data).ok()?;
        let mut symbols = Symbols::default();
        // Returns the strings of a symbol table: read at once, since each piece would be a system
        // call.
        let strings_of = |section: SectionIndex| {
            let section = sections.section(section).ok()?;
            data.read_bytes_at(section.sh_offset(endian), section.sh_size(endian).min(NAMES_MAX)).ok()
        };
        if let Ok(table) = sections.symbols(endian, data, elf::SHT_DYNSYM)
            && let Some(strings) = strings_of(table.string_section())
        {
            let text = |at: u64| strings.get(usize::try_from(at).ok()?..)?.split(|&byte| byte == 0).next();
            for symbol in table.iter() {
                let name = text(symbol.st_name(endian).into()).unwrap_or_default();
                symbols.has_v8 |= runtime::is_of_v8(name);
                if is_of_interest(name) {
                    let to = if symbol.is_undefined(endian) { &mut symbols.wanted } else { &mut symbols.defined };
                    to.push(name.to_owned());
                }
            }
            for segment in elf.program_headers(endian, data).ok()? {
                let Ok(Some(entries)) = segment.dynamic(endian, data) else { continue };
                let needed = entries.iter().filter(|entry| entry.d_tag(endian) == elf::DT_NEEDED);
                symbols.libraries.extend(needed.filter_map(|entry| Some(text(entry.d_val(endian))?.to_owned())));
            }
        }
        let is_wrapper_possible = symbols.defines("malloc") && LOOK_UPS.iter().any(|name| symbols.wants(name));
        for (_, section) in sections.enumerate() {
            let name = sections.section_name(endian, section).unwrap_or_default();
            let is_small = section.sh_size(endian) <= 1 << 16;
            symbols.is_go |= name == b".go.buildinfo" || name == b".note.go.buildid";
            if name == b".comment" && is_small {
                let text = section.data(endian, data).unwrap_or_default();
                symbols.is_rust |= memmem::find(text, b"rustc version").is_some();
            }
            let flags = section.sh_flags(endian);
            let is_data = flags.contains(elf::SHF_ALLOC) && !flags.contains(elf::SHF_EXECINSTR);
            if is_wrapper_possible && is_data && section.sh_type(endian) == elf::SHT_PROGBITS {
                let length = section.sh_size(endian).min(NAMES_MAX);
                let bytes = data.read_bytes_at(section.sh_offset(endian), length).unwrap_or_default();
                // The linker may have merged the name with the end of another text.
                symbols.names_malloc |= memmem::find(bytes, b"malloc\0").is_some();
                let named_in_text = TEXTS.iter().find(|(_, text)| memmem::find(bytes, text.as_bytes()).is_some());
                symbols.named_in_text = symbols.named_in_text.or(named_in_text.map(|&(name, _)| name));
            }
            if section.sh_type(endian) == elf::SHT_SYMTAB
                && let Some(strings) = strings_of(SectionIndex(section.sh_link(endian) as usize))
            {
                symbols.names = allocators_among(strings);
            }
        }
        Some(symbols)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_are_known_by_their_names_alone() {
        let of = |text: &[u8]| allocators_among(text);
        assert_eq!(of(b"\0main\0malloc\0xmalloc\0my_mallocx_test\0malloc_usable_size\0"), [""; 0]);
        assert_eq!(of(b"\0_rjem_malloc\0"), ["rjem_malloc"]);
        assert_eq!(of(b"\0_ZN15heapledger_heap3api4free\0heapledger_heap\0"), ["heapledger_heap"]);
        assert_eq!(of(b"mi_malloc"), ["mi_malloc"]);
        assert_eq!(of(b"\0test_mallocx\0sn_rust_alloc\0_ZN2mi6mallocE\0semi_malloc\0"), ["mallocx", "sn_rust_alloc"]);
        assert_eq!(of(b""), [""; 0]);
    }
}
