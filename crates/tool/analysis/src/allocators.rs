//! Functions that only pass a request for memory on: a site named after one of them would tell
//! nothing.

/// Exact names.
const NAMES: &[&str] = &[
    // The malloc family, and what libc calls it inside.
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_reallocarray",
    "__libc_memalign",
    "__libc_valloc",
    "__libc_pvalloc",
    "__libc_alloc_buffer_allocate",
    "__posix_memalign",
    // The functions by which glibc's malloc gets memory, and those that map it for anybody.
    "_int_malloc",
    "_int_realloc",
    "_int_memalign",
    "_mid_memalign",
    "sysmalloc",
    "sysmalloc_mmap",
    "sysmalloc_mmap_fallback",
    "__glibc_morecore",
    "__default_morecore",
    "_int_new_arena",
    "arena_get2",
    "arena_get2.part.0",
    "mremap_chunk",
    "mmap",
    "mmap64",
    "__mmap",
    "__mmap64",
    "mremap",
    "__mremap",
    "brk",
    "__brk",
    "sbrk",
    "__sbrk",
    "shmat",
    // Heapledger's own: the exports of libheapledger, and the functions that declare a block in a
    // pool of the program.
    "heapledger_interpose::calls::malloc_from",
    "heapledger_interpose::calls::calloc_from",
    "heapledger_interpose::calls::realloc_from",
    "heapledger_interpose::calls::reallocarray_from",
    "heapledger_interpose::calls::reallocate",
    "heapledger_interpose::calls::aligned_alloc_from",
    "heapledger_interpose::calls::memalign_from",
    "heapledger_interpose::calls::posix_memalign_from",
    "heapledger_interpose::calls::valloc_from",
    "heapledger_interpose::calls::pvalloc_from",
    "heapledger_interpose::calls::arena_malloc_from",
    "heapledger_interpose::calls::arena_calloc_from",
    "heapledger_interpose::calls::arena_realloc_from",
    "heapledger_interpose::calls::arena_memalign_from",
    // Declare blocks of a program's own heaps.
    "heapledger_pool_alloc",
    "heapledger::pool::alloc",
    "heapledger_annotate::pool::Pool::alloc",
    // C++.
    "operator new",
    "operator new[]",
    "__cxa_allocate_exception",
    "std::allocator::allocate",
    "std::__new_allocator::allocate",
    "__gnu_cxx::new_allocator::allocate",
    "std::allocator_traits::allocate",
    "__gnu_cxx::__alloc_traits::allocate",
    "std::__allocate_guarded",
    "std::__allocate_guarded_obj",
    "std::_Vector_base::_M_allocate",
    "std::_Vector_base::_M_create_storage",
    "std::_Deque_base::_M_allocate_node",
    "std::_Deque_base::_M_allocate_map",
    "std::_Rb_tree::_M_get_node",
    "std::_Rb_tree::_M_create_node",
    "std::_Rb_tree::_Auto_node::_Auto_node",
    "std::list::_M_create_node",
    "std::vector::_M_allocate_and_copy",
    "std::vector::_M_realloc_insert",
    "std::vector::_M_realloc_append",
    "std::make_unique",
    "std::make_shared",
    "std::allocate_shared",
    "std::_List_base::_M_get_node",
    "std::__detail::_Hashtable_alloc::_M_allocate_node",
    "std::__detail::_Hashtable_alloc::_M_allocate_node_ptr",
    "std::__detail::_Hashtable_alloc::_M_allocate_buckets",
    "std::__cxx11::list::_M_create_node",
    "std::__cxx11::basic_string::_M_create",
    "std::__cxx11::basic_string::_M_mutate",
    "std::__cxx11::basic_string::_S_allocate",
    "std::__1::allocator::allocate",
    "std::__1::allocator_traits::allocate",
    "std::__1::__allocate_at_least",
    "std::__1::__libcpp_allocate",
    "std::__1::__libcpp_operator_new",
    // Rust.
    "alloc::boxed::Box::new",
    "alloc::boxed::Box::new_in",
    "alloc::boxed::Box::try_new",
    "alloc::boxed::Box::try_new_in",
    "alloc::boxed::Box::new_uninit",
    "alloc::boxed::Box::new_uninit_in",
    "alloc::boxed::Box::try_new_uninit_in",
    "alloc::boxed::box_new",
    "alloc::boxed::box_new_uninit",
    "box_new",
    "box_new_uninit",
    // Wrappers in widespread libraries and programs, such as those that end the program when memory
    // runs out.
    "xmalloc",
    "xcalloc",
    "xzalloc",
    "xrealloc",
    "xreallocarray",
    "xnmalloc",
    "xnrealloc",
    "x2realloc",
    "x2nrealloc",
    "xpalloc",
    "xcharalloc",
    "ximalloc",
    "xicalloc",
    "xirealloc",
    "ireallocarray",
    "sh_malloc",
    "sh_xmalloc",
    "sh_xrealloc",
    "do_xmalloc",
    "xmallocz",
    "xmallocarray",
    "g_malloc",
    "g_malloc0",
    "g_malloc_n",
    "g_malloc0_n",
    "g_realloc",
    "g_realloc_n",
    "g_try_malloc",
    "g_try_malloc0",
    "g_slice_alloc",
    "g_slice_alloc0",
    "CRYPTO_malloc",
    "CRYPTO_zalloc",
    "CRYPTO_realloc",
    "sqlite3_malloc",
    "sqlite3_malloc64",
    "sqlite3_realloc",
    "sqlite3Malloc",
    "sqlite3MallocZero",
    "sqlite3DbMallocRaw",
    "sqlite3DbMallocRawNN",
    "sqlite3MemMalloc",
    "sqlite3MemRealloc",
    "PyMem_Malloc",
    "PyMem_Calloc",
    "PyMem_Realloc",
    "PyMem_RawMalloc",
    "PyMem_RawCalloc",
    "PyMem_RawRealloc",
    "PyObject_Malloc",
    "PyObject_Calloc",
    "PyObject_Realloc",
    "_PyMem_RawMalloc",
    "_PyMem_RawCalloc",
    "_PyMem_RawRealloc",
    "_PyMem_Malloc",
    "_PyObject_Malloc",
    "_PyObject_Calloc",
    "_PyObject_Realloc",
];

/// Prefixes of names: modules and families in which all functions only pass a request on.
const PREFIXES: &[&str] = &[
    "__rust_alloc",
    "__rust_realloc",
    // The preload library has no names of functions.
    "libheapledger.so+",
    "libheapledger.musl.so+",
    "__rdl_alloc",
    "__rdl_realloc",
    "__rg_alloc",
    "__rg_realloc",
    "alloc::alloc::",
    "alloc::raw_vec::",
    "core::alloc::",
    "std::alloc::",
    "std::sys::alloc::",
    "heapledger_annotate::pool::",
    "heapledger_allocator::",
];

/// Parts of the paths of source files in which all functions only pass a request on. If debug
/// information has line tables only, as in Cargo's release profiles, an inlined function has only
/// its bare name (`grow_one`), and the file tells to which module it belongs.
const FILES: &[&str] = &[
    "/src/raw/alloc.rs", // hashbrown
    "/library/alloc/src/alloc.rs",
    "/library/alloc/src/raw_vec.rs",
    "/library/alloc/src/raw_vec/",
    "/library/core/src/alloc/",
    "/library/std/src/alloc.rs",
    "/library/std/src/sys/alloc/",
    "/malloc/arena.c", // glibc
    // The allocator through which Heapledger's library sees a program's calls.
    "process/allocator/src/",
    "heapledger-allocator-",
];

/// True if a function only passes a request for memory on. The name is a
/// [short](heapledger_symbols::Function::short) one: without type arguments and parameters.
pub fn is_allocator(name: &str, file: Option<&str>) -> bool {
    if NAMES.contains(&name) || file.is_some_and(|file| FILES.iter().any(|part| file.contains(part))) {
        return true;
    }
    // Rust: `<alloc::alloc::Global as core::alloc::Allocator>::allocate`. Version 0 mangling adds
    // `__rustc::`.
    let name = name.strip_prefix('<').unwrap_or(name);
    let name = name.strip_prefix("__rustc::").unwrap_or(name);
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_are_known_by_exact_names() {
        for name in
            ["malloc", "operator new[]", "xrealloc", "alloc::raw_vec::RawVec::grow_one", "__rustc::__rust_alloc"]
        {
            assert!(is_allocator(name, None), "{name}");
        }
        assert!(
            is_allocator("heapledger_pool_alloc", None) && is_allocator("heapledger_annotate::pool::Pool::alloc", None)
        );
        assert!(is_allocator("<alloc::alloc::Global as core::alloc::Allocator>::allocate", Some("x.rs")));
        for name in [
            "main",
            "my_malloc",
            "xmalloc_report",
            "alloc::vec::Vec::push",
            "strdup",
            "operator delete",
            "grow_heap",
            "",
        ] {
            assert!(!is_allocator(name, None), "{name}");
        }
    }

    #[test]
    fn allocators_are_known_by_their_files() {
        assert!(is_allocator("grow_one", Some("/rustc/59807616e1/library/alloc/src/raw_vec/mod.rs")));
        assert!(!is_allocator("push", Some("/rustc/59807616e1/library/alloc/src/vec/mod.rs")));
        assert!(!is_allocator("grow_one", Some("/src/raw_vec/mod.rs")));
        assert!(is_allocator("grow_heap", Some("./malloc/./malloc/arena.c")));
        assert!(!is_allocator("grow_heap", Some("/src/binary_heap.c")));
    }
}
