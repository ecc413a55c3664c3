//! The allocator as a library for `LD_PRELOAD`: its symbols, and what programs print that use it.

mod library;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use object::{Object, ObjectSegment, ObjectSymbol};

use self::library::{compiled, is_installed, library, root, run, scratch};

const SIGABRT: i32 = 6;

/// The symbols of the C library that it needs. Weak ones of the C compiler's start files begin with
/// `_ITM` or `__`.
const UNDEFINED_ALLOWED: &[&str] = &[
    "__errno_location",
    "__cxa_atexit",
    "fwrite",
    "getauxval",
    "bcmp",
    "memcmp",
    "memcpy",
    "memmove",
    "memset",
    "pthread_atfork",
    "pthread_key_create",
    "pthread_key_delete",
    "pthread_setspecific",
    "secure_getenv",
    "strlen",
    "_ITM_deregisterTMCloneTable",
    "_ITM_registerTMCloneTable",
    "__cxa_finalize",
    "__gmon_start__",
];

/// The symbols that it exports.
const EXPORTED: &[&str] = &[
    "aligned_alloc",
    "calloc",
    "cfree",
    "free",
    "free_aligned_sized",
    "free_sized",
    "heapledger_arena_calloc",
    "heapledger_arena_create",
    "heapledger_arena_dispose",
    "heapledger_arena_find",
    "heapledger_arena_free",
    "heapledger_arena_malloc",
    "heapledger_arena_memalign",
    "heapledger_arena_of",
    "heapledger_arena_realloc",
    "heapledger_arena_stats",
    "heapledger_block_sampler_v1",
    "heapledger_enable_deferred_purge",
    "heapledger_heap_v1",
    "heapledger_low_memory_v1",
    "heapledger_pointer_info",
    "heapledger_ptr_info",
    "heapledger_purge_all",
    "heapledger_purge_excess",
    "heapledger_purge_now",
    "heapledger_reset_randomisation",
    "heapledger_set_dirty_decay",
    "heapledger_set_dirty_modifier",
    "heapledger_set_purge_hook",
    "heapledger_statistics",
    "heapledger_statistics_bins",
    "heapledger_statistics_light",
    "heapledger_stats",
    "heapledger_stats_lite",
    "heapledger_stats_print",
    "heapledger_thread_local_arena",
    "heapledger_walk",
    "mallinfo",
    "mallinfo2",
    "malloc",
    "malloc_good_size",
    "malloc_info",
    "malloc_stats",
    "malloc_trim",
    "malloc_usable_size",
    "mallopt",
    "memalign",
    "posix_memalign",
    "pvalloc",
    "realloc",
    "reallocarray",
    "valloc",
];

/// Compares what a program does with the library and without. Returns what it prints.
fn compare(program: impl AsRef<OsStr>, arguments: &[&str], directory: &Path) -> String {
    let [alone, with] = [None, Some(library())].map(|library| run(&program, arguments, directory, library));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&with.stderr), text(&alone.stderr), "{arguments:?}");
    assert_eq!(text(&with.stdout), text(&alone.stdout), "{arguments:?}");
    assert_eq!(with.status, alone.status, "{arguments:?}");
    text(&with.stdout)
}

#[test]
fn the_library_needs_and_offers_what_it_says() {
    let bytes = fs::read(library()).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let mut exported = Vec::new();
    for symbol in file.dynamic_symbols() {
        let name = symbol.name().unwrap();
        if symbol.is_undefined() {
            assert!(name.is_empty() || UNDEFINED_ALLOWED.contains(&name), "undefined symbol {name}");
        } else if symbol.is_definition() {
            exported.push(name);
        }
    }
    exported.sort_unstable();
    assert_eq!(exported, EXPORTED);
    let mapped: u64 = file.segments().map(|segment| segment.file_range().1).sum();
    assert!(mapped < 176 << 10, "{mapped} bytes");
}

#[test]
fn the_malloc_functions_answer_as_those_of_glibc() {
    let directory = scratch("answers");
    let program = compiled("malloc_answers.c", &directory);
    let text = compare(&program, &[], &directory);
    assert!(text.ends_with("threads: done\n"), "{text}");
    // glibc has answered so since 2.38.
    let output = run(&program, &["aligned_alloc"], &directory, Some(library()));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "aligned_alloc(3, 9): null, errno 22\n");
}

#[test]
fn a_program_in_c_uses_arenas() {
    const EXPECTED: &str = "\
of its arena: 1
plain: 1
unknown: 1
after realloc: in the arena 1
after growing: in the arena 1
after shrinking: in the arena 1
zero: 0 0
aligned: 1
too large: 1 1
child: 7
own memory: 1
above the limit: 1
own memory afterwards: 0
purged: 1 dirty budget 1
deferred before: 0
deferred: 1, wants 1, 2, then 0 deferred
excess: 0
all: 0
thread: 1
done
";
    let directory = scratch("arenas");
    let program = compiled("arenas.c", &directory);
    let output = run(&program, &[], &directory, Some(library()));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), EXPECTED);
    assert!(output.status.success());
    let cases = [
        ("disposal", "(first) was disposed of with 2 live blocks of 5242992 bytes"),
        ("foreign free", "(first) was passed as one of arena"),
        ("foreign huge free", "(first) was passed as one of arena"),
        ("foreign realloc", "(first) was passed as one of arena"),
        ("wrong id", "no arena has the id 0x"),
        ("no id", "no arena has the id 0x0, or it was disposed of"),
        ("disposed id", "no arena has the id 0x"),
        ("disposed twice", "no arena has the id 0x"),
        ("main", "the main arena was disposed of"),
        ("not a block", "an address that is not a block was passed as one of an arena: 0x"),
        ("other thread", "(second) by another thread"),
    ];
    for (case, message) in cases {
        let output = run(&program, &[case], &directory, Some(library()));
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(SIGABRT), "{case}: {:?} {text}", output.status);
        assert!(text.starts_with("heapledger: ") && text.contains(message), "{case}: {text}");
    }
}

#[test]
fn memory_that_the_system_refuses_is_waited_for_where_that_can_help() {
    let directory = scratch("low_memory");
    let program = compiled("low_memory.c", &directory);
    let output = run(&program, &[], &directory, Some(library()));
    let text = String::from_utf8_lossy(&output.stdout);
    let expected = "RLIMIT_DATA rises: a block, errno 7\n\
        RLIMIT_AS rises: a block, errno 7\n\
        minimized: 1\n\
        RLIMIT_AS does not rise: 1000 of 1000 failed\n";
    assert_eq!(text, expected, "{:?} {}", output.status, String::from_utf8_lossy(&output.stderr));
    let output = run(&program, &[], &directory, None);
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "another allocator\n");
}

#[test]
fn what_is_infallible_works_with_this_allocator_and_others() {
    for (source, calls) in [
        ("infallible.c", ["xmalloc", "xcalloc", "xrealloc", "xmemalign"]),
        ("infallible_new.cpp", ["new", "new[]", "aligned new", "new with a handler that throws"]),
    ] {
        let directory = scratch(source);
        let program = compiled(source, &directory);
        let text = compare(&program, &[], &directory);
        assert!(text.ends_with("done\n") && !text.contains("wrong"), "{source}: {text}");
        calls.into_iter().for_each(|call| drop(compare(&program, &[call], &directory)));
    }
}

/// Returns the blocks of code of a page: their languages and texts.
fn fences(page: &str) -> Vec<(&str, &str)> {
    let parts = page.split("\n```").skip(1).step_by(2);
    parts.map(|part| part.split_once('\n').unwrap()).collect()
}

/// The programs in C and C++ of the manual are compiled and run by its commands, which print what
/// it shows.
#[test]
fn the_manual_prints_what_it_says() {
    let page = fs::read_to_string(root().join("docs/low-memory.md")).unwrap();
    let directory = scratch("manual");
    fs::create_dir_all(directory.join("target/preload")).unwrap();
    symlink(root().join("include"), directory.join("include")).unwrap();
    symlink(library(), directory.join("target/preload/libheapledger_allocator.so")).unwrap();
    let (mut programs, mut commands) = (0, 0);
    for (language, text) in fences(&page) {
        if let "c" | "cpp" = language {
            let name = text.lines().next().unwrap().trim_matches(['/', '*', ' ']);
            fs::write(directory.join(name), text).unwrap();
            programs += 1;
        }
    }
    for (_, text) in fences(&page).iter().filter(|(language, _)| *language == "console") {
        let (shown, printed): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with("$ "));
        let script = shown.iter().map(|line| &line[2..]).collect::<Vec<_>>().join("\n");
        let output = run("bash", &["-c", &script], &directory, None);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().collect::<Vec<_>>(), printed, "{script}: {told}");
        assert!(told.is_empty(), "{script}: {told}");
        commands += shown.len();
    }
    assert_eq!((programs, commands), (3, 7));
}

#[test]
fn real_programs_print_the_same() {
    let directory = scratch("programs");
    let programs: &[(&str, &[&str])] = &[
        ("bash", &["-c", "for i in {1..2000}; do a[i]=$i$i; done; echo ${#a[@]} ${a[77]}; ls /usr | sort | wc -l"]),
        ("perl", &["-e", "my %h; $h{$_} = 'x' x ($_ % 300) for 1..10000; print join ',', (sort keys %h)[0..20]"]),
        ("lua5.4", &["-e", "local t = {} for i = 1, 20000 do t[i] = {i, tostring(i)} end print(#t, t[777][2])"]),
        (
            "python3",
            &[
                "-c",
                "import json, threading\n\
                 d = [{str(i): [i, 'x' * (i % 99)]} for i in range(3000)]\n\
                 t = [threading.Thread(target=lambda: json.loads(json.dumps(d))) for _ in range(3)]\n\
                 [x.start() for x in t]; [x.join() for x in t]\n\
                 print(len(json.dumps(d)))",
            ],
        ),
        (
            "sqlite3",
            &[
                ":memory:",
                "create table t(a, b); with recursive c(x) as (select 1 union all select x + 1 from c where x < 10000) \
                 insert into t select x, 'v' || x from c; create index i on t(b); select count(*), max(b) from t;",
            ],
        ),
    ];
    for (program, arguments) in programs {
        if is_installed(program) {
            assert!(!compare(program, arguments, &directory).is_empty(), "{program}");
        }
    }
}

#[test]
fn a_compiler_writes_the_same_file() {
    let directory = scratch("compiler");
    let source = root().join("fixtures/programs/malloc_answers.c");
    let files = [("alone.o", None), ("with.o", Some(library()))].map(|(name, library)| {
        let arguments = ["-O2", "-w", "-c", "-o", name, source.to_str().unwrap()];
        let output = run("cc", &arguments, &directory, library);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::read(directory.join(name)).unwrap()
    });
    assert!(files[0] == files[1], "the files differ");
}

/// Programs that allocate before `main`, in the destructors of thread-local variables, and after
/// `main`: in every moment of a program's life.
#[test]
fn whenever_a_program_allocates() {
    for source in ["early.c", "lifetime.cpp"] {
        let directory = scratch(source);
        let program = compiled(source, &directory);
        compare(&program, &["500"], &directory);
    }
}

mod plugin {
    //! The allocator as a part of a plug-in: loaded when threads run, and called by their handles.

    use std::ffi::{CStr, CString, c_char, c_int, c_void};
    use std::os::unix::ffi::OsStrExt;
    use std::sync::{Barrier, mpsc};
    use std::thread;

    use super::library;

    unsafe extern "C" {
        fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
        fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    }

    const RTLD_NOW: c_int = 2;

    #[derive(Clone, Copy)]
    struct Functions {
        malloc: unsafe extern "C" fn(usize) -> *mut c_void,
        free: unsafe extern "C" fn(*mut c_void),
    }

    /// A block that another thread frees.
    struct Block(*mut c_void);
    // SAFETY: `Send` demands that another thread may use the block: its only owner does.
    unsafe impl Send for Block {}

    fn load() -> Functions {
        let path = CString::new(library().as_os_str().as_bytes()).unwrap();
        // SAFETY: the path is a string, and the library has no initialiser that does harm.
        let handle = unsafe { dlopen(path.as_ptr(), RTLD_NOW) };
        assert!(!handle.is_null());
        let find = |name: &CStr| {
            // SAFETY: a handle of `dlopen` that is never closed, and a string.
            let address = unsafe { dlsym(handle, name.as_ptr()) };
            assert!(!address.is_null());
            address
        };
        // SAFETY: the functions of these names have these types, as in the C library.
        unsafe {
            Functions {
                malloc: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(usize) -> *mut c_void>(find(c"malloc")),
                free: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void)>(find(c"free")),
            }
        }
    }

    impl Functions {
        fn block(self, size: usize, tag: u8) -> Block {
            // SAFETY: `malloc` takes any size, and the block has as many bytes.
            unsafe {
                let block = (self.malloc)(size);
                assert!(!block.is_null());
                block.cast::<u8>().write_bytes(tag, size);
                Block(block)
            }
        }

        fn free(self, block: Block, size: usize, tag: u8) {
            // SAFETY: the block has `size` bytes, which `block` has written; its owner ends here.
            unsafe {
                assert!((0..size).all(|at| block.0.cast::<u8>().add(at).read() == tag));
                (self.free)(block.0);
            }
        }
    }

    #[test]
    fn threads_that_ran_before_it_was_loaded_use_it() {
        const THREADS: usize = 4;
        let (begins, loaded) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
        let functions = std::sync::OnceLock::new();
        thread::scope(|scope| {
            let (sender, blocks) = mpsc::channel();
            for number in 0..THREADS {
                let (begins, loaded, functions, sender) = (&begins, &loaded, &functions, sender.clone());
                scope.spawn(move || {
                    begins.wait();
                    loaded.wait();
                    let functions: &Functions = functions.get().unwrap();
                    for size in 1..2000 {
                        let block = functions.block(size, number as u8);
                        if size % 3 == 0 {
                            sender.send((block, size, number as u8)).unwrap();
                        } else {
                            functions.free(block, size, number as u8);
                        }
                    }
                });
            }
            drop(sender);
            begins.wait();
            let functions = *functions.get_or_init(load);
            loaded.wait();
            for (block, size, tag) in blocks {
                functions.free(block, size, tag);
            }
        });
        // Threads that begin afterwards take over the heaps of those that have ended.
        let functions = functions.get().unwrap();
        for _ in 0..200 {
            thread::scope(|scope| _ = scope.spawn(|| functions.free(functions.block(70_000, 9), 70_000, 9)));
        }
    }
}
