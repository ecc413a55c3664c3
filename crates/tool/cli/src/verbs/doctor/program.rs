//! Checks a program: how it is run, which malloc it has, and how stacks and names of it and its
//! libraries will look.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use heapledger_collect::{is_musl_installed, redirected_allocators};
use heapledger_core::program::{is_musl_linker, is_supported_linker};
use heapledger_report_format::{Row, Tree};
use heapledger_symbols::{BuildId, DebugInfo, ModuleRef, Symbolizer};
use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};
use object::read::{Object, ReadCache};
use serde::Serialize;

use super::allocators::{self, InnerAllocator};
use super::linking::{self, library, linker_of, mentions};
use super::{Check, State};
use crate::code::Code;
use crate::error::Result;
use crate::output::Output;
use crate::symbols::names_from;
use crate::target::{Start, Target, heap};

/// The findings about a program.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Program {
    pub(super) command: String,
    pub(super) file: Option<PathBuf>,
    scripts: Vec<PathBuf>,
    /// True if it is a script of a shell, which may start any program.
    pub(super) is_shell_script: bool,
    /// Programs that the script starts.
    starts: Vec<Started>,
    pub(super) checks: Vec<Check>,
    /// Allocators whose code is in the program's file, or in a library that is loaded with it.
    allocators: Vec<InnerAllocator>,
    modules: Vec<Module>,
}

/// A program that a script starts by `exec`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Started {
    /// Its name in the script.
    word: String,
    /// The file; `null` if the script decides which one when it runs.
    file: Option<PathBuf>,
    scripts: Vec<PathBuf>,
    starts: Vec<Started>,
}

/// The program's file, or a library that is loaded with it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Module {
    path: PathBuf,
    build_id: String,
    names_from: &'static str,
    has_unwind_information: bool,
    hint: Option<String>,
}

/// Looks at the program of a command, and at the libraries that it names.
pub(super) fn look(command: &OsStr) -> Program {
    let target = Target::inspect(command);
    let is_placed = target.is_placed();
    let target = target.with_redirection();
    let mut checks = vec![];
    let mut modules = vec![];
    let mut allocators = vec![];
    if let Some(file) = &target.file {
        let subject = |code: Code| match code {
            Code::OwnAllocator | Code::SecondAllocator | Code::RuntimeAllocator | Code::Go | Code::Sanitizer => {
                "allocator"
            }
            Code::WrapsMalloc | Code::NotRedirected => "allocator",
            Code::ManagedHeap => "heap",
            _ => "program",
        };
        if is_placed {
            let text = "it is statically linked: the recorder is placed into it before it begins";
            checks.push(Check::good("program", text.to_owned()));
        }
        checks.extend(target.findings.iter().map(|finding| Check::of(subject(finding.code), finding)));
        let mut libraries = vec![];
        if let Some(linker) = linker_of(file)
            && is_supported_linker(linker.as_os_str().as_bytes())
        {
            // The kernel gives the dynamic linker the resolved file, whose directory is `$ORIGIN`.
            let resolved = file.canonicalize().unwrap_or_else(|_| file.clone());
            let (loaded, missing) = linking::libraries(&linker, &resolved);
            libraries = loaded;
            checks.extend(library("its C library", &libraries));
            checks.extend(missing.iter().map(|name| {
                let hint = "install it, or name its directory: LD_LIBRARY_PATH";
                Check::problem("libraries", State::Bad, Code::NotExecutable, format!("{name} is not found"), hint)
            }));
            if !checks.iter().any(|check| check.subject == "allocator") {
                checks.push(allocator(file, target.wraps_malloc, &libraries));
            }
            let files = std::iter::once(file).chain(&libraries);
            modules = files.filter_map(|path| Module::look(path)).collect();
            checks.push(stacks(&modules));
            checks.extend(modules.first().map(names));
        }
        if linker_of(file).is_some_and(|linker| is_musl_linker(linker.as_os_str().as_bytes())) && is_musl_installed() {
            checks.push(musl(file));
        }
        allocators = allocators::look(file, &libraries);
        checks.extend(allocators.iter().map(InnerAllocator::check));
    }
    if target.is_shell_script() {
        checks.extend(started(&target));
    }
    Program {
        is_shell_script: target.is_shell_script(),
        starts: target.starts.iter().map(Started::new).collect(),
        command: command.to_string_lossy().into_owned(),
        file: target.file,
        scripts: target.scripts,
        checks,
        allocators,
        modules,
    }
}

impl Started {
    fn new(start: &Start) -> Started {
        let target = start.target.as_ref();
        Started {
            word: start.word.clone(),
            file: target.and_then(|target| target.file.clone()),
            scripts: target.map(|target| target.scripts.clone()).unwrap_or_default(),
            starts: target.into_iter().flat_map(|target| &target.starts).map(Started::new).collect(),
        }
    }
}

/// Returns findings about the programs that a script starts. The shell is recorded in any case.
fn started(target: &Target) -> Vec<Check> {
    let hint = "heapledger doctor PROGRAM, for each program that the script starts";
    if target.starts.is_empty() {
        let text = "a script may start other programs: each is judged when it starts";
        return vec![Check::problem("starts", State::Note, Code::Script, text, hint)];
    }
    let mut checks = vec![];
    for start in &target.starts {
        let Some(program) = &start.target else {
            let text = format!("the script starts `{}`: which program that is cannot be told before", start.word);
            checks.push(Check::problem("starts", State::Note, Code::Script, text, hint));
            continue;
        };
        let file = program.scripts.first().or(program.file.as_ref()).unwrap_or_else(|| &target.scripts[0]);
        checks.push(Check::good("starts", format!("the script starts {}", file.display())));
        let about = program.findings.iter().map(|finding| {
            let text = format!("{finding}");
            Check::problem("starts", State::Warning, finding.code, text, &finding.hint)
        });
        checks.extend(about);
        if program.is_shell_script() {
            checks.extend(started(program));
        }
    }
    checks
}

impl Program {
    pub(super) fn title(&self) -> String {
        let mut file = self.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
        if let Some(resolved) = self.file.as_ref().and_then(|file| file.canonicalize().ok())
            && self.file.as_ref() != Some(&resolved)
        {
            file = format!("{file} ({})", resolved.display());
        }
        match self.scripts.as_slice() {
            [] => format!("program {file}"),
            [script, ..] => format!("program {file}, which runs the script {}", script.display()),
        }
    }

    pub(super) fn print_modules(&self, out: &mut Output) -> Result<()> {
        if self.modules.is_empty() {
            return Ok(());
        }
        out.line("")?;
        let mut table = Tree::new(["names from", "stacks", "build id"]);
        for module in &self.modules {
            let stacks = if module.has_unwind_information { "whole" } else { "end here" };
            let id = module.build_id.get(..12).map_or("none".to_owned(), |start| format!("{start}…"));
            let row = Row::new(module.path.display().to_string());
            table.push(0, row.cells([module.names_from.to_owned(), stacks.to_owned(), id]));
        }
        Ok(out.tree(&table)?)
    }
}

/// Returns a finding about the library that provides the program's malloc.
fn allocator(program: &Path, wraps_malloc: bool, libraries: &[PathBuf]) -> Check {
    if wraps_malloc {
        let text = "the program wraps malloc, it seems: what it asks of the next one is recorded, under the wrapper";
        return Check::good("allocator", text);
    }
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let found = libraries.iter().find(|path| heap::LIBRARIES.iter().any(|known| name(path).starts_with(known)));
    let Some(found) = found else {
        let inside = redirected_allocators(program);
        let text = inside.first().map(|own| format!("{} inside the program, and the C library's malloc", own.family));
        return match text {
            Some(text) => Check::good("allocator", format!("{text}: both are recorded")),
            None => Check::good("allocator", "the C library's malloc"),
        };
    };
    // The C++ library itself, which the allocator may need, does not count.
    let is_cpp_library = |path: &Path| name(path).starts_with("libstdc++") || name(path).starts_with("libc++");
    let others = libraries.iter().map(PathBuf::as_path).filter(|path| *path != found && !is_cpp_library(path));
    let wants_new = || std::iter::once(program).chain(others).any(|path| mentions(path, &heap::OPERATORS_NEW, false));
    if mentions(found, &heap::OPERATORS_NEW, true) && wants_new() {
        let text = format!("malloc and C++'s operator new are those of {}: both are recorded", name(found));
        return Check::good("allocator", text);
    }
    Check::good("allocator", format!("{}: it is used, and recorded", name(found)))
}

/// Returns a finding about a program for musl that can be recorded.
fn musl(program: &Path) -> Check {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let text = format!("{name} is built for musl: `record` records it; not with --hook, --phc or --allocator");
    Check::good("C library", text)
}

fn stacks(modules: &[Module]) -> Check {
    let without: Vec<_> = modules.iter().filter(|module| !module.has_unwind_information).collect();
    let Some(first) = without.first() else {
        return Check::good("stacks", format!("unwind information in all {} files", modules.len()));
    };
    let more = if without.len() > 1 { format!(" and {} more", without.len() - 1) } else { String::new() };
    let text = format!("{}{more} without unwind information: rules are made from the code", first.path.display());
    let hint = "build it with -fasynchronous-unwind-tables -Wl,--eh-frame-hdr";
    Check::problem("stacks", State::Note, Code::NoUnwindInformation, text, hint)
}

/// Returns a finding about the names of the program's own functions.
fn names(module: &Module) -> Check {
    let text = format!("names of the program's functions: from {}", module.names_from);
    if module.names_from != names_from(DebugInfo::Full) {
        let hint = module.hint.clone().unwrap_or_else(|| "build it with -g".to_owned());
        return Check::problem("names", State::Note, Code::NoDebugInformation, text, hint);
    }
    if module.build_id.is_empty() {
        let text = "the program has no build id: a later build is not told from this one";
        return Check::problem("names", State::Note, Code::NoBuildId, text, "link it with -Wl,--build-id");
    }
    Check::good("names", text)
}

impl Module {
    fn look(path: &Path) -> Option<Module> {
        let cache = ReadCache::new(File::open(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let build_id = file.build_id().ok().flatten().unwrap_or_default();
        let elf = elf::FileHeader64::<Endianness>::parse(&cache).ok()?;
        let endian = elf.endian().ok()?;
        let mut segments = elf.program_headers(endian, &cache).ok()?.iter();
        let has_unwind_information = segments.any(|segment| segment.p_type(endian) == elf::PT_GNU_EH_FRAME);
        let symbolizer = Symbolizer::new(Default::default());
        let module = ModuleRef { path: path.as_os_str().as_bytes(), build_id };
        Some(Module {
            path: path.to_owned(),
            build_id: BuildId(build_id.into()).to_string(),
            names_from: names_from(symbolizer.module_state(module).debug),
            has_unwind_information,
            hint: symbolizer.hint(module),
        })
    }
}
