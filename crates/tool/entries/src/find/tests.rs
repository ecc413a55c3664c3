use super::*;

#[test]
fn names_are_known_once() {
    for names in &FAMILIES {
        let mut all: Vec<&str> = names.entries.iter().map(|&(name, _)| name).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "{:?}", names.family);
        assert!(all.iter().all(|name| name.len() < names::LENGTH_MAX - 10), "{:?}", names.family);
        assert!(names.markers_min <= names.markers.len());
        let kinds = |effect| names.entries.iter().any(|(_, kind)| kind.layout().effect == effect);
        assert!(kinds(Effect::Allocate) && kinds(Effect::Free), "{:?}", names.family);
    }
}

#[test]
fn prefixes_end_with_an_underscore() {
    assert_eq!(prefix_of("mallocx", "mallocx"), Some(""));
    assert_eq!(prefix_of("_rjem_mallocx", "mallocx"), Some("_rjem_"));
    assert_eq!(prefix_of("jemallocx", "mallocx"), None);
    assert_eq!(prefix_of("semi_malloc", "mi_malloc"), None);
    assert_eq!(prefix_of("mallocx_test", "mallocx"), None);
}

/// Returns an entry of this kind and name.
fn entry(name: &str, kind: EntryKind, at: u64) -> Entry {
    new_entry(
        name.to_owned(),
        kind,
        Function { at, size: 16, evidence: crate::Evidence::SymbolTable, is_exported: false },
    )
}

#[test]
fn aliases_are_one_entry() {
    let mut entries = vec![
        entry("_ZdaPv", EntryKind::Delete, 64),
        entry("_Znwm", EntryKind::New, 32),
        entry("_ZnwmRKSt9nothrow_t", EntryKind::NewNothrow, 32),
        entry("__libc_free", EntryKind::Free, 64),
        entry("free", EntryKind::Free, 64),
        entry("_ZdlPv", EntryKind::Delete, 96),
        entry("_ZdaPv", EntryKind::Delete, 96),
    ];
    entries[3].is_exported = true;
    one_for_each_address(&mut entries);
    let names: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), entry.is_exported)).collect();
    assert_eq!(names, [("_ZnwmRKSt9nothrow_t", false), ("free", true), ("_ZdlPv", false)]);
}

#[test]
fn malloc_joins_the_allocator_that_it_is_an_alias_of() {
    let allocator = |family, prefix: &str, entries| Allocator { family, prefix: prefix.to_owned(), entries };
    let malloc = |family| allocator(family, "", vec![entry("malloc", EntryKind::Malloc, 16)]);
    let jemalloc = |at| allocator(Family::Jemalloc, "je_", vec![entry("je_malloc", EntryKind::Malloc, at)]);
    let joined = |mut allocators: Vec<Allocator>, malloc| {
        join(&mut allocators, malloc);
        allocators.len()
    };
    assert_eq!(joined(vec![jemalloc(16)], malloc(Family::Malloc)), 1);
    // A program that is statically linked with glibc has two heaps.
    assert_eq!(joined(vec![jemalloc(32)], malloc(Family::Glibc)), 2);
    assert_eq!(joined(vec![jemalloc(32)], malloc(Family::Malloc)), 2);
    let mimalloc = allocator(Family::Mimalloc, "", vec![entry("mi_malloc", EntryKind::Malloc, 32)]);
    assert_eq!(joined(vec![mimalloc], malloc(Family::Malloc)), 1);
    assert_eq!(joined(vec![], malloc(Family::Malloc)), 1);
}

#[test]
fn operators_of_a_program_are_not_those_of_its_allocator() {
    let module = crate::plan::tests::module(&[0x90; 16]);
    let operators = [entry("_Znwm", EntryKind::New, 64), entry("_ZnwmRKSt9nothrow_t", EntryKind::NewNothrow, 96)];
    let is_own = |family, entries: Vec<Entry>| {
        let allocator = Allocator { family, prefix: String::new(), entries };
        are_own(&operators, &allocator, &module, &Symbols::default())
    };
    let malloc = || entry("malloc", EntryKind::Malloc, 16);
    for family in [Family::Malloc, Family::Tcmalloc, Family::Mimalloc, Family::Rpmalloc] {
        assert!(!is_own(family, vec![malloc()]), "{family}");
        // A function of the program's may be at the same address as another one of its own.
        assert!(!is_own(family, vec![malloc(), entry("x", EntryKind::NewNothrow, 96)]), "{family}");
    }
    assert!(is_own(Family::Tcmalloc, vec![malloc(), entry("tc_new", EntryKind::New, 64)]));
    assert!(is_own(Family::Jemalloc, vec![malloc()]), "in jemalloc's own library");
    assert!(is_own(Family::PartitionAlloc, vec![malloc()]));
}
