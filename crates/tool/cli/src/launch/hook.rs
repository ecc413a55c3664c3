//! Checks of hook libraries before anything runs: each must be a hook library, for our version, or
//! one of Firefox's replace-malloc protocol, of which a process can have one.

use std::path::{Path, PathBuf};

use heapledger_core::hooks;
use object::{Object, ObjectSection, ObjectSymbol};

use crate::code::Code;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::launch::shared_library;

const INIT: &str = "heapledger_hook_init";
const VERSION: &str = "heapledger_hook_version";

/// The function of the replace-malloc protocol.
const REPLACE_INIT: &str = "replace_init";

/// A library that is to be loaded.
struct Library {
    /// Its absolute path.
    path: PathBuf,
    /// True if it speaks the replace-malloc protocol.
    replaces_malloc: bool,
}

/// Returns the absolute paths of the libraries, after checking that each can be loaded and asked
/// for its hooks.
pub(crate) fn libraries(given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let libraries: Vec<Library> = given.iter().map(|path| library(path)).collect::<Result<_>>()?;
    let mut replacing = libraries.iter().filter(|library| library.replaces_malloc);
    if let (Some(first), Some(second)) = (replacing.next(), replacing.next()) {
        let (first, second) = (first.path.display(), second.path.display());
        let what =
            format!("cannot use the hook library `{second}`: `{first}` replaces malloc by `{REPLACE_INIT}`, too");
        let hint =
            "a process can have one such library; give only one of them:\nheapledger run --hook LIB.so -- COMMAND";
        return Err(Failure::new(Exit::NotStarted, what).code(Code::NotAHook).hint(hint));
    }
    Ok(libraries.into_iter().map(|library| library.path).collect())
}

fn library(path: &Path) -> Result<Library> {
    let shown = path.display();
    let name = format!("cannot use the hook library `{shown}`");
    let bytes = std::fs::read(path).and_then(|bytes| Ok((std::fs::canonicalize(path)?, bytes)));
    let (absolute, bytes) = bytes.map_err(|error| {
        let hint = format!("check the path:\nls -l {shown}");
        Failure::caused(Exit::NotStarted, &name, error).code(Code::NoHook).hint(hint)
    })?;
    let refuse = |code, why: String, hint: String| {
        Err(Failure::new(Exit::NotStarted, format_args!("{name}: {why}")).code(code).hint(hint))
    };
    let build = "build it as one: cc -shared -fPIC -Iinclude -o LIB.so LIB.c, or crate-type = [\"cdylib\"]";
    let elf = match shared_library::parse(&bytes) {
        Ok(elf) => elf,
        Err(_) => {
            return refuse(
                Code::NotAHook,
                "it is not a shared library for this processor".to_owned(),
                build.to_owned(),
            );
        }
    };
    let find = |name: &str| elf.dynamic_symbols().find(|symbol| symbol.is_definition() && symbol.name() == Ok(name));
    if find(INIT).is_none() && find(REPLACE_INIT).is_some() {
        return Ok(Library { path: absolute, replaces_malloc: true });
    }
    if find(INIT).is_none() {
        let hint = format!(
            "write one, and export it; include/heapledger/hooks.h begins with an example:\nnm -D {shown} | grep heapledger_hook"
        );
        return refuse(Code::NotAHook, format!("it exports no function `{INIT}`"), hint);
    }
    let version = find(VERSION).and_then(|symbol| {
        let section = elf.section_by_index(symbol.section_index()?).ok()?;
        let data = section.data_range(symbol.address(), 4).ok()??;
        Some(u32::from_le_bytes(data.try_into().ok()?))
    });
    match version {
        Some(hooks::VERSION) => Ok(Library { path: absolute, replaces_malloc: false }),
        Some(version) => {
            let why =
                format!("it is built for version {version} of the hook table; this is version {}", hooks::VERSION);
            refuse(Code::HookVersion, why, "build it again with the headers of this heapledger".to_owned())
        }
        None => {
            let hint = "say HEAPLEDGER_HOOK_LIBRARY in one of its C files; in Rust export a static u32 of the name";
            refuse(Code::HookVersion, format!("it exports no `{VERSION}`"), hint.to_owned())
        }
    }
}
