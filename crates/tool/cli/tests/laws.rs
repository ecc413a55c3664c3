//! The laws of ARCHITECTURE.md, checked on the manifests, the sources and the built preload
//! library.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol};
use serde_json::Value;

/// The undefined symbols that the preload library may have. The compiler calls the memory functions
/// for copies; the others come from the dynamic linker, weakly: glibc's, or musl's
/// `_dl_debug_addr`. The one of V8, weak too, is in programs that contain V8 and export its
/// functions. Weak symbols that start with `_ITM` or `__` belong to the C compiler's start files.
const UNDEFINED_ALLOWED: &[&str] = &[
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "bcmp",
    "strlen",
    "_r_debug",
    "_dl_debug_addr",
    "__libc_stack_end",
    "_dl_find_object",
    "_ZNK2v88internal7Isolate18embedded_blob_codeEv",
    "_ITM_deregisterTMCloneTable",
    "_ITM_registerTMCloneTable",
    "__cxa_finalize",
    "__gmon_start__",
];

/// The symbols that the preload library exports, which the program sees.
const EXPORTED: &[&str] = &[
    "_Exit",
    "_exit",
    "aligned_alloc",
    "calloc",
    "cfree",
    "dlclose",
    "dlmopen",
    "dlopen",
    "dlsym",
    "execl",
    "execle",
    "execlp",
    "execv",
    "execve",
    "execveat",
    "execvp",
    "execvpe",
    "fexecve",
    "free",
    "free_aligned_sized",
    "free_sized",
    "get_bridge",
    "heapledger_arena_calloc",
    "heapledger_arena_create",
    "heapledger_arena_dispose",
    "heapledger_arena_free",
    "heapledger_arena_malloc",
    "heapledger_arena_memalign",
    "heapledger_arena_of",
    "heapledger_arena_realloc",
    "heapledger_bridge_v1",
    "heapledger_enable_deferred_purge",
    "heapledger_hooks_v1",
    "heapledger_purge_all",
    "heapledger_purge_excess",
    "heapledger_purge_now",
    "heapledger_set_dirty_modifier",
    "heapledger_set_purge_hook",
    "heapledger_thread_local_arena",
    "jemalloc_replace_dynamic",
    "malloc",
    "malloc_usable_size",
    "memalign",
    "popen",
    "posix_memalign",
    "posix_spawn",
    "posix_spawnp",
    "prctl",
    "pvalloc",
    "realloc",
    "reallocarray",
    "replace_init",
    "syscall",
    "system",
    "valloc",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap().to_path_buf()
}

/// Returns package name → (zone, names of normal dependencies).
fn packages() -> BTreeMap<String, (String, Vec<String>)> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_string();
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| {
            let manifest = text(&package["manifest_path"]);
            let zone =
                Path::new(&manifest).ancestors().nth(2).unwrap().file_name().unwrap().to_str().unwrap().to_string();
            let dependencies = package["dependencies"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|dependency| dependency["kind"].is_null())
                .map(|dependency| text(&dependency["name"]))
                .collect();
            (text(&package["name"]), (zone, dependencies))
        })
        .collect()
}

/// Returns the crates that a lock file takes from a registry, with their versions.
fn locked(file: &str) -> BTreeSet<(String, String)> {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let value = |package: &str, key: &str| {
        let line = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
        line.map(|value| value.trim_end_matches('"').to_owned())
    };
    let packages = text.split("[[package]]").filter(|package| package.contains("\nsource = "));
    packages.map(|package| (value(package, "name").unwrap(), value(package, "version").unwrap())).collect()
}

/// Tests build it without a network: everything that it needs was downloaded for this workspace.
#[test]
fn the_hook_library_in_rust_needs_the_crates_of_this_workspace_only() {
    let own = locked("examples/hooks/fences/Cargo.lock");
    assert!(!own.is_empty());
    let elsewhere: Vec<_> = own.difference(&locked("Cargo.lock")).cloned().collect();
    assert!(elsewhere.is_empty(), "versions that this workspace does not have: {elsewhere:?}");
}

/// Returns the filters and the skipped parts of names of each lane of `.ci/run`, without those of
/// `full`.
fn lanes() -> Vec<(Vec<String>, Vec<String>)> {
    let script = fs::read_to_string(root().join(".ci/run")).unwrap().replace("\\\n", " ");
    let (quick, _) = script.split_once("if [ \"$mode\" = full ]").unwrap();
    let arguments = quick.lines().filter_map(|line| Some(line.split_once("\" ")?.1.split_once(" end_to_end ")?.1));
    let parse = |line: &str| {
        let (mut wanted, mut unwanted) = (Vec::new(), Vec::new());
        let mut words = line.split_whitespace();
        while let Some(word) = words.next() {
            match word {
                "--skip" => unwanted.extend(words.next().map(str::to_owned)),
                _ if word.starts_with("--") => {}
                _ => wanted.push(word.to_owned()),
            }
        }
        (wanted, unwanted)
    };
    arguments.map(parse).collect()
}

/// A test that is ignored because it takes long is run by a lane of `.ci/run`, as its reason says.
#[test]
fn what_takes_long_is_in_a_lane() {
    let lanes = lanes();
    let is_run = |name: &str| {
        let is = |part: &String| name.contains(part.as_str());
        lanes.iter().any(|(wanted, unwanted)| wanted.iter().any(is) && !unwanted.iter().any(is))
    };
    let folder = root().join("crates/tool/cli/tests/end_to_end");
    let (mut open, mut names) = (vec![folder.clone()], Vec::new());
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let module = path.strip_prefix(&folder).unwrap().with_extension("").to_str().unwrap().replace('/', "::");
        let text = fs::read_to_string(&path).unwrap();
        for part in text.split("#[ignore = \"it takes long; `.ci/run` runs it\"]").skip(1) {
            let name = part.split_once("fn ").unwrap().1.split_once('(').unwrap().0;
            names.push(format!("{}::{name}", module.trim_end_matches("::mod")));
        }
    }
    assert!(names.len() > 50, "{names:?}");
    let forgotten: Vec<_> = names.into_iter().filter(|name| !is_run(name)).collect();
    assert!(forgotten.is_empty(), "no lane of .ci/run has these: {forgotten:?}");
}

/// The built files of the page of `heapledger open` were made from the sources that are here.
/// `web/build` notes a hash of the sources (FNV-1a of paths and contents) beside what it makes, so
/// that this needs no Node; `.ci/page` builds them anew and compares.
#[test]
fn the_page_is_built_from_its_sources() {
    let web = root().join("web");
    let (mut open, mut files) = (vec![web.join("src")], Vec::new());
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(&web).unwrap().to_str().unwrap().to_owned();
            match path.is_dir() {
                true if !name.ends_with("/tests") => open.push(path),
                false if !name.ends_with(".test.ts") => files.push(name),
                _ => {}
            }
        }
    }
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for name in &files {
        let contents = fs::read(web.join(name)).unwrap();
        for &byte in name.as_bytes().iter().chain(&[0]).chain(&contents) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    let noted = fs::read_to_string(root().join("crates/tool/viewer/src/assets/sources.txt")).unwrap();
    assert_eq!(noted.trim(), format!("{hash:016x}"), "the page was changed: run web/build");
}

/// Cargo reads a whole crate to look for examples, even if there are none, and compiles it once
/// more for tests that do not exist. Manifests switch this off; this test checks that they are
/// right.
#[test]
fn what_manifests_leave_out_is_not_there() {
    let mut left_out = [0, 0];
    let zones =
        fs::read_dir(root().join("crates")).unwrap().map(|zone| zone.unwrap().path()).filter(|zone| zone.is_dir());
    for folder in zones.flat_map(|zone| fs::read_dir(zone).unwrap()).map(|entry| entry.unwrap().path()) {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        // The C libraries refer to symbols that a test program does not have.
        let is_library_of_c = manifest.contains("crate-type");
        let has_no = |what: &str| manifest.lines().any(|line| line == format!("{what} = false"));
        let (has_no_examples, has_no_tests) = (has_no("doctest"), has_no("test") && !is_library_of_c);
        left_out = [left_out[0] + usize::from(has_no_examples), left_out[1] + usize::from(has_no_tests)];
        let mut open = vec![folder.join("src")];
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            if has_no_tests {
                assert!(!text.contains("#[test]"), "{}: nobody runs this test", path.display());
            }
            let comments = text.lines().filter_map(|line| line.trim_start().strip_prefix("//")?.get(1..));
            // Every second fence ends an example.
            for fence in comments.filter_map(|line| line.trim().strip_prefix("```")).step_by(2) {
                let is_compiled = !["text", "ignore"].contains(&fence);
                assert!(!has_no_examples || !is_compiled, "{}: nobody compiles this example", path.display());
            }
        }
    }
    assert!(left_out.iter().all(|&number| number > 5), "{left_out:?}");
}

#[test]
fn zones_depend_downwards_only() {
    let packages = packages();
    assert!(packages.len() >= 12);
    for (name, (zone, dependencies)) in &packages {
        for dependency in dependencies {
            let target = packages.get(dependency).map(|(zone, _)| zone.as_str());
            let allowed = match (zone.as_str(), target) {
                ("hook", Some("hook")) => true,
                // The second one is an optional feature, for the types of Rust programs.
                ("hook", None) => {
                    let pairs = [("heapledger-unwind", "gimli"), ("heapledger-heap", "allocator-api2")];
                    pairs.contains(&(name.as_str(), dependency.as_str()))
                }
                ("format", Some("format")) => true,
                ("format", Some("hook")) => dependency == "heapledger-core",
                ("format", None) => true,
                ("tool", Some("tool" | "format")) => true,
                ("tool", Some("hook")) => {
                    ["heapledger-core", "heapledger-wire", "heapledger-ledger"].contains(&dependency.as_str())
                        // The allocator of the static command itself.
                        || (name.as_str(), dependency.as_str()) == ("heapledger-cli", "heapledger-heap")
                }
                ("tool", None) => true,
                ("process", Some("process" | "format" | "hook")) => true,
                ("process", Some("tool")) => {
                    let of_types = ["heapledger-block-types", "heapledger-symbols"];
                    name == "heapledger-query" && of_types.contains(&dependency.as_str())
                }
                ("process", None) => true,
                _ => false,
            };
            assert!(allowed, "{name} ({zone}/) must not depend on {dependency}");
        }
    }
    assert_eq!(packages["heapledger-core"].1, [] as [&str; 0], "core has no dependencies");
}

#[test]
fn the_facade_has_no_logic() {
    let source = fs::read_to_string(root().join("crates/process/heapledger/src/lib.rs")).unwrap();
    assert!(source.contains("#![forbid(unsafe_code)]"));
    for line in source.lines().map(str::trim_start).filter(|line| !line.starts_with("//")) {
        let is_re_export = line.is_empty() || ["#!", "#[", "pub use "].iter().any(|start| line.starts_with(start));
        assert!(is_re_export, "{line}");
    }
}

#[test]
fn hook_crates_have_no_standard_library() {
    for entry in fs::read_dir(root().join("crates/hook")).unwrap() {
        let library = entry.unwrap().path().join("src/lib.rs");
        let source = fs::read_to_string(&library).unwrap();
        let is_freestanding =
            source.contains("\n#![no_std]") || source.contains("\n#![cfg_attr(panic = \"abort\", no_std)]");
        assert!(is_freestanding, "{} is not no_std", library.display());
        assert!(!source.contains("extern crate alloc"), "{} allocates", library.display());
    }
}

#[test]
fn format_crates_are_safe() {
    for entry in fs::read_dir(root().join("crates/format")).unwrap() {
        let library = entry.unwrap().path().join("src/lib.rs");
        let source = fs::read_to_string(&library).unwrap();
        assert!(source.contains("#![forbid(unsafe_code)]"), "{} may hold unsafe code", library.display());
    }
}

/// A thunk of redirected entries saves the first eight vector registers, since the code behind it
/// changes no others.
#[test]
fn the_recorder_uses_eight_vector_registers() {
    for library in [env!("HEAPLEDGER_PRELOAD_LIBRARY"), env!("HEAPLEDGER_PLACED_LIBRARY")] {
        uses_eight_vector_registers(library);
    }
}

#[track_caller]
fn uses_eight_vector_registers(library: &str) {
    let bytes = fs::read(library).unwrap();
    let library = object::File::parse(&*bytes).unwrap();
    let text = library.section_by_name(".text").unwrap();
    let code = text.data().unwrap();
    let decoder = iced_x86::Decoder::with_ip(64, code, text.address(), iced_x86::DecoderOptions::NONE);
    let mut vectors = 0;
    for instruction in decoder {
        for operand in 0..instruction.op_count() {
            let register = instruction.op_register(operand);
            if register.is_vector_register() {
                vectors += 1;
                let is_saved = register.is_xmm() && register < iced_x86::Register::XMM8;
                assert!(is_saved, "{register:?} is used at {:#x}", instruction.ip());
            }
        }
    }
    assert!(vectors > 100, "{vectors}");
}

/// The library that is placed into statically linked programs needs nothing of them: no symbol but
/// weak ones, and no thread-local storage.
#[test]
fn the_placed_library_needs_nothing() {
    let bytes = fs::read(env!("HEAPLEDGER_PLACED_LIBRARY")).unwrap();
    let library = object::File::parse(&*bytes).unwrap();
    for symbol in library.dynamic_symbols().filter(|symbol| symbol.is_undefined()) {
        assert!(symbol.is_weak() || symbol.name() == Ok(""), "undefined symbol {:?}", symbol.name());
    }
    let defined = library.dynamic_symbols().filter(|symbol| symbol.is_definition());
    assert!(defined.into_iter().any(|symbol| symbol.name() == Ok(heapledger_wire::placed::SYMBOL)));
    assert!(library.sections().all(|section| !section.name().unwrap().starts_with(".tbss")));
}

/// The symbols of the C library that the hook library of `check` needs, besides the above.
const CHECKER_UNDEFINED_ALLOWED: &[&str] =
    &["dl_iterate_phdr", "dladdr", "pthread_atfork", "pthread_key_create", "pthread_key_delete", "pthread_setspecific"];

#[test]
fn the_library_of_the_checks_needs_and_offers_what_it_says() {
    let bytes = fs::read(env!("HEAPLEDGER_MEMCHECK_LIBRARY")).unwrap();
    let library = object::File::parse(&*bytes).unwrap();
    for symbol in library.dynamic_symbols() {
        let name = symbol.name().unwrap();
        if symbol.is_undefined() {
            let allowed = [UNDEFINED_ALLOWED, CHECKER_UNDEFINED_ALLOWED].concat();
            assert!(name.is_empty() || allowed.contains(&name), "undefined symbol {name}");
        } else if symbol.is_definition() {
            // C++'s operators, functions that end a process, and the entry points of a hook
            // library; never the malloc family.
            let is_operator = ["_Znw", "_Zna", "_Zdl", "_Zda"].iter().any(|start| name.starts_with(start));
            let is_end = ["_exit", "_Exit", "sigaction", "signal"].contains(&name);
            assert!(is_operator || is_end || name.starts_with("heapledger_hook_"), "{name}");
        }
    }
}

/// The libraries name no version of any symbol, and no library that has to be there: so they load
/// beside every glibc, and the first also beside musl.
#[test]
fn libraries_for_programs_need_no_versions() {
    for path in [
        env!("HEAPLEDGER_PRELOAD_LIBRARY"),
        env!("HEAPLEDGER_MEMCHECK_LIBRARY"),
        env!("HEAPLEDGER_LOG_LIBRARY"),
        env!("HEAPLEDGER_PHC_LIBRARY"),
        env!("HEAPLEDGER_ALLOCATOR_LIBRARY"),
        env!("HEAPLEDGER_PLAYER_LIBRARY"),
    ] {
        const DT_NEEDED: u64 = 1;
        let bytes = fs::read(path).unwrap();
        let library = object::File::parse(&*bytes).unwrap();
        let versions = library.sections().find(|section| section.name() == Ok(".gnu.version_r"));
        assert!(versions.is_none(), "{path}");
        let dynamic = library.section_by_name(".dynamic").unwrap();
        let tags =
            dynamic.data().unwrap().chunks_exact(16).map(|entry| u64::from_le_bytes(entry[..8].try_into().unwrap()));
        assert!(tags.clone().count() > 5 && !tags.clone().any(|tag| tag == DT_NEEDED), "{path}");
    }
}

/// The player of replays exports nothing, and calls the malloc functions that come first.
#[test]
fn the_player_offers_nothing() {
    let bytes = fs::read(env!("HEAPLEDGER_PLAYER_LIBRARY")).unwrap();
    let library = object::File::parse(&*bytes).unwrap();
    let defined = library.dynamic_symbols().filter(|symbol| symbol.is_definition());
    assert_eq!(defined.filter_map(|symbol| symbol.name().ok().map(str::to_owned)).collect::<Vec<_>>(), [""; 0]);
    let undefined: Vec<&str> = library
        .dynamic_symbols()
        .filter(|symbol| symbol.is_undefined())
        .filter_map(|symbol| symbol.name().ok())
        .collect();
    for function in ["malloc", "calloc", "realloc", "free", "memalign", "posix_memalign", "aligned_alloc", "valloc"] {
        assert!(undefined.contains(&function), "{undefined:?}");
    }
}

#[test]
fn the_library_of_the_heap_checker_needs_and_offers_what_it_says() {
    let bytes = fs::read(env!("HEAPLEDGER_PHC_LIBRARY")).unwrap();
    let library = object::File::parse(&*bytes).unwrap();
    for symbol in library.dynamic_symbols() {
        let name = symbol.name().unwrap();
        if symbol.is_undefined() {
            let allowed = [UNDEFINED_ALLOWED, CHECKER_UNDEFINED_ALLOWED].concat();
            assert!(name.is_empty() || allowed.contains(&name), "undefined symbol {name}");
        } else if symbol.is_definition() {
            let actions = ["sigaction", "signal", "bsd_signal", "ssignal", "sysv_signal", "__sysv_signal", "sigset"];
            let is_action = actions.contains(&name);
            assert!(is_action || name.starts_with("heapledger_hook_"), "{name}");
        }
    }
}

/// The symbols of the C library that the hook library of `log record` needs, besides the above.
const LOGGER_UNDEFINED_ALLOWED: &[&str] = &["dladdr", "getenv"];
/// The functions of the C library that it wraps: points at which a program asks for statistics.
const LOGGER_WRAPPED: &[&str] = &["malloc_stats", "malloc_info"];

#[test]
fn the_library_of_logs_needs_and_offers_what_it_says() {
    let bytes = fs::read(env!("HEAPLEDGER_LOG_LIBRARY")).unwrap();
    let library = object::File::parse(&*bytes).unwrap();
    for symbol in library.dynamic_symbols() {
        let name = symbol.name().unwrap();
        if symbol.is_undefined() {
            let allowed = [UNDEFINED_ALLOWED, LOGGER_UNDEFINED_ALLOWED].concat();
            assert!(name.is_empty() || allowed.contains(&name), "undefined symbol {name}");
        } else if symbol.is_definition() {
            assert!(name.starts_with("heapledger_hook_") || LOGGER_WRAPPED.contains(&name), "{name}");
        }
    }
}

#[test]
fn the_preload_library_needs_and_offers_what_it_says() {
    let bytes = fs::read(env!("HEAPLEDGER_PRELOAD_LIBRARY")).unwrap();
    let library = object::File::parse(&*bytes).unwrap();
    let mut exported = Vec::new();
    for symbol in library.dynamic_symbols() {
        let name = symbol.name().unwrap();
        if symbol.is_undefined() {
            assert!(name.is_empty() || UNDEFINED_ALLOWED.contains(&name), "undefined symbol {name}");
        } else if symbol.is_definition() {
            exported.push(name);
        }
    }
    exported.sort_unstable();
    assert_eq!(exported, EXPORTED);
    // The segments are mapped into a recorded program; names of functions are for debuggers, and
    // stay in the file.
    let mapped: u64 = library.segments().map(|segment| segment.file_range().1).sum();
    assert!(mapped < 384 << 10, "{mapped} bytes");
    assert!(bytes.len() < 512 << 10, "{} bytes", bytes.len());
}
