//! Classifies functions: whether they are the program's own.
//!
//! Code is classified by [`CodeClass`], as for advice on dark matter. This module adds what a
//! recording knows: which modules are the programs that were recorded.

use std::collections::HashMap;

use heapledger_dmd::{Code, CodeClass};
use heapledger_recording::{ModuleId, Recording};

use crate::functions::FunctionName;
use crate::pattern::Pattern;

/// The roles of the modules of a recording.
#[derive(Debug)]
pub(crate) struct Roles {
    executables: Vec<String>,
    known: HashMap<ModuleId, Role>,
    pub(crate) declared: Declared,
}

/// Patterns by which the user classifies functions; they take precedence over the rules.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    /// The program's own functions that match one of these allocate for their callers.
    pub wrappers: Vec<Pattern>,
    /// Functions that match one of these, and none of the wrappers, are the program's own and are
    /// not wrappers.
    pub own: Vec<Pattern>,
}

/// Functions of widespread libraries that make an object for their callers and are too large for
/// the rule that finds wrappers: numpy's arrays. [`is_lua_constructor`] covers those of Lua.
const CONSTRUCTORS: [&str; 12] = [
    "PyDataMem_NEW",
    "PyDataMem_RENEW",
    "PyDataMem_UserNEW",
    "PyDataMem_UserNEW_ZEROED",
    "PyDataMem_UserRENEW",
    "PyArray_New",
    "PyArray_NewFromDescr",
    "PyArray_NewFromDescr_int",
    "PyArray_NewLikeArray",
    "PyArray_NewLikeArrayWithShape",
    "PyArray_Empty_int",
    "PyArray_Zeros_int",
];

impl Roles {
    pub(crate) fn new(recording: &Recording<'_>) -> Roles {
        let images = recording.images().iter();
        let mut executables: Vec<String> =
            images.map(|image| String::from_utf8_lossy(&image.executable).into_owned()).collect();
        executables.sort_unstable();
        executables.dedup();
        Roles { executables, known: HashMap::new(), declared: Declared::default() }
    }

    /// Classifies a function of a module with this path.
    pub(crate) fn whose(&mut self, name: &FunctionName, path: &str, file: Option<&str>) -> CodeClass {
        if name.allocator {
            return CodeClass::Library;
        }
        let is_wrapper = |name: &FunctionName| {
            self.declared.wrappers.iter().any(|pattern| name.matches(pattern))
                || CONSTRUCTORS.contains(&&*name.short)
                || is_lua_constructor(&name.short, file)
        };
        let (is_wrapper, is_own) = (is_wrapper(name), self.is_declared_own(name));
        match self.by_place(name, path, file) {
            // Code that is not the program's own stays so even if it allocates for its callers.
            CodeClass::Own if is_wrapper => CodeClass::Helper,
            _ if is_own && !is_wrapper => CodeClass::Own,
            whose => whose,
        }
    }

    /// True if the user has declared that a function is the program's own.
    pub(crate) fn is_declared_own(&self, name: &FunctionName) -> bool {
        self.declared.own.iter().any(|pattern| name.matches(pattern))
    }

    /// True if a function, which has been classified, belongs to a package that a script uses.
    pub(crate) fn is_of_package(&self, name: &FunctionName) -> bool {
        self.known.get(&name.module) == Some(&Role::Extension)
    }

    fn by_place(&mut self, name: &FunctionName, path: &str, file: Option<&str>) -> CodeClass {
        let executables = &self.executables;
        let role = *self.known.entry(name.module).or_insert_with(|| role(path, executables));
        let code = |module, is_system_own| Code { function: &name.full, file, module, is_system_own };
        match role {
            Role::Library => CodeClass::Library,
            Role::Interpreter => match CodeClass::of_code(&code(None, true)) {
                CodeClass::Own => CodeClass::Dependency,
                _ => CodeClass::Library,
            },
            Role::Program | Role::Extension => CodeClass::of_code(&code(None, true)),
            // Files of other tools may not name modules; then only the source files tell.
            Role::Other if path.is_empty() => CodeClass::of_code(&code(None, false)),
            Role::Other => CodeClass::of_code(&code(Some(path), true)),
        }
    }
}

/// The code of a module, before a function's name and source file are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The C library, the C++ library, the dynamic linker or an allocator. If the recorded program
    /// is not a system program, every system library.
    Library,
    /// An interpreter. The program's own code is then the script and the extension modules.
    Interpreter,
    /// An extension module of a package that the script uses.
    Extension,
    /// A program that was recorded, or a library that is a part of it.
    Program,
    /// All other code; it is own code if nothing else is known about it.
    Other,
}

fn role(path: &str, executables: &[String]) -> Role {
    let name = file_name(path);
    if is_of_runtime(name) {
        return Role::Library;
    }
    if is_extension(path) {
        return Role::Extension;
    }
    if is_interpreter(name) {
        return Role::Interpreter;
    }
    if executables.iter().any(|executable| executable == path) {
        return Role::Program;
    }
    if is_of_system(path) {
        // A system program may have its own code in libraries: jq in libjq, lua5.4 in liblua5.4.
        let is_part = |executable: &String| is_of_system(executable) && is_called_after(name, file_name(executable));
        let is_own = executables.iter().any(is_part);
        return if is_own { Role::Program } else { Role::Library };
    }
    Role::Other
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// True if a module with this file name is the language's runtime or an allocator, whatever its
/// directory.
fn is_of_runtime(name: &str) -> bool {
    const LIBRARIES: [&str; 20] = [
        "libc",
        "ld-linux-x86-64",
        "ld-linux-aarch64",
        "libstdc++",
        "libc++",
        "libc++abi",
        "libgcc_s",
        "libm",
        "libpthread",
        "libdl",
        "librt",
        "libheapledger",
        "libjemalloc",
        "libtcmalloc",
        "libtcmalloc_minimal",
        "libmimalloc",
        "linux-vdso",
        "libresolv",
        "libnss_files",
        "libunwind",
    ];
    let stem = name.find(".so").map_or(name, |at| &name[..at]);
    name == "[vdso]" || (stem != name && LIBRARIES.contains(&stem)) || (name.starts_with("libstd-") && stem != name)
}

/// True if a module is native code of a script's packages.
fn is_extension(path: &str) -> bool {
    // Libraries that a package brings along (`numpy.libs/`) are its dependencies.
    ["/site-packages/", "/dist-packages/", "/lib-dynload/"].iter().any(|place| path.contains(place))
        && !path.contains(".libs/")
}

fn is_interpreter(name: &str) -> bool {
    let name = name.strip_prefix("lib").unwrap_or(name);
    ["python", "perl", "ruby", "php"].iter().any(|interpreter| {
        let version = name.strip_prefix(interpreter);
        version
            .is_some_and(|version| version.is_empty() || version.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
    })
}

/// True if a function of Lua makes or grows an object for its callers: the functions of its sources
/// that manage memory, strings, tables and buffers, and those of its interface that put a value on
/// the stack or into a table.
fn is_lua_constructor(name: &str, file: Option<&str>) -> bool {
    const FILES: [&str; 8] =
        ["lmem.c", "lgc.c", "lstring.c", "ltable.c", "lfunc.c", "lobject.c", "lapi.c", "lauxlib.c"];
    const PREFIXES: [&str; 17] = [
        "luaM_",
        "luaC_",
        "luaS_",
        "luaH_",
        "luaF_",
        "luaO_",
        "luaL_",
        "luaV_concat",
        "luaV_finishset",
        "luaD_growstack",
        "luaD_reallocstack",
        "lua_push",
        "lua_new",
        "lua_createtable",
        "lua_concat",
        "lua_raw",
        "lua_set",
    ];
    // Without debug information, these can be recognised by their names only.
    const PRIVATE: [&str; 5] = ["internshrstr", "createstrobj", "setnodevector", "resizebox", "prepbuffsize"];
    // Calls of Lua functions are in these files, too, but then the called function is further
    // inside.
    file.is_some_and(|file| FILES.contains(&file_name(file)))
        || (name.starts_with("lua") && PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        || PRIVATE.contains(&name)
}

fn is_of_system(path: &str) -> bool {
    const ROOTS: [&str; 9] =
        ["/lib/", "/lib64/", "/bin/", "/sbin/", "/usr/lib/", "/usr/lib64/", "/usr/libexec/", "/usr/bin/", "/usr/sbin/"];
    ROOTS.iter().any(|root| path.starts_with(root))
}

/// True if a library is named after a program: `libjq.so.1` after `jq`.
fn is_called_after(library: &str, program: &str) -> bool {
    let Some(rest) = library.strip_prefix("lib") else { return false };
    let stem = rest.find(".so").map_or(rest, |at| &rest[..at]);
    !program.is_empty()
        && stem.strip_prefix(program).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '_']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lua_makes_objects_for_its_callers() {
        for name in ["luaM_realloc_", "lua_pushlstring", "luaL_pushresult", "luaV_finishset", "internshrstr"] {
            assert!(is_lua_constructor(name, None), "{name}");
        }
        for name in ["luaV_execute", "lua_pcallk", "luaD_call", "str_format", "lua", "luajit_open", "lua_resize_cache"]
        {
            assert!(!is_lua_constructor(name, None) && !is_lua_constructor(name, Some("/src/lvm.c")), "{name}");
        }
        assert!(is_lua_constructor("rehash", Some("/src/lua-5.4.4/src/ltable.c")));
    }

    #[test]
    fn modules_have_roles() {
        let jq = ["/usr/bin/jq".to_owned()];
        let lua = ["/usr/bin/lua5.4".to_owned()];
        let python = ["/usr/bin/python3.13".to_owned()];
        let own = ["/home/me/store".to_owned()];
        for (path, executables, expected) in [
            ("/usr/bin/jq", &jq, Role::Program),
            ("/usr/lib/x86_64-linux-gnu/libjq.so.1", &jq, Role::Program),
            ("/usr/lib/x86_64-linux-gnu/libonig.so.5", &jq, Role::Library),
            ("/usr/lib/x86_64-linux-gnu/libc.so.6", &jq, Role::Library),
            ("/usr/lib/x86_64-linux-gnu/liblua5.4.so.0", &lua, Role::Program),
            ("/usr/lib/x86_64-linux-gnu/liblua5.45.so.0", &lua, Role::Library),
            ("/usr/bin/python3.13", &python, Role::Interpreter),
            ("/usr/lib/x86_64-linux-gnu/libpython3.13.so.1.0", &python, Role::Interpreter),
            ("/usr/lib/python3.13/lib-dynload/_json.cpython-313.so", &python, Role::Extension),
            ("/v/lib/python3.13/site-packages/numpy/_core/_umath.so", &python, Role::Extension),
            ("/v/lib/python3.13/site-packages/numpy.libs/libopenblas.so", &python, Role::Other),
            ("/home/me/store", &own, Role::Program),
            ("/home/me/lib/libstore.so", &own, Role::Other),
            ("/home/me/lib/libstdc++.so.6", &own, Role::Library),
            ("/usr/lib/x86_64-linux-gnu/libjq.so.1", &own, Role::Library),
        ] {
            assert_eq!(role(path, executables), expected, "{path} of {executables:?}");
        }
    }
}
