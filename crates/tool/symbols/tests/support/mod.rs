//! Programs compiled by the tests, and their symbol tables.

#![allow(dead_code, reason = "each test file uses a part")]

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use heapledger_symbols::{ModuleRef, ModuleState, SymbolFrame, Symbolizer, SymbolizerOptions};
use object::{Object, ObjectSymbol};
use tempfile::TempDir;

/// Reports that a test did not run, or fails it if nothing may be skipped.
pub(crate) fn skipped(why: &str) {
    assert!(std::env::var_os("HEAPLEDGER_NO_SKIP").is_none_or(|value| value != "1"), "may not be skipped: {why}");
    not_here(why);
}

/// Reports a missing tool that no test run requires.
pub(crate) fn not_here(why: &str) {
    // eprintln! is not used, because the test runner captures its output.
    std::io::stderr().write_all(format!("skipped: {why}\n").as_bytes()).unwrap();
}

/// A directory that is removed at the end of the test.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// Runs a tool here; false, with the reason printed, if it is not installed. Panics if it
    /// fails.
    #[must_use]
    pub(crate) fn run(&self, tool: &str, arguments: &[&str]) -> bool {
        let mut command = Command::new(tool);
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        match command.output() {
            Err(error) => {
                skipped(&format!("{tool}: {error}"));
                false
            }
            Ok(output) => {
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{tool} {arguments:?}: {errors}");
                true
            }
        }
    }
}

/// True if the tool is installed; otherwise prints why the test is skipped.
pub(crate) fn installed(tool: &str) -> bool {
    is_installed(tool) || {
        skipped(&format!("{tool} is not installed"));
        false
    }
}

pub(crate) fn is_installed(tool: &str) -> bool {
    Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Builds an optimised program with debug information, most of it the standard library's, with
/// inlined functions; returns its path.
pub(crate) fn rust_program(scratch: &Scratch) -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fixtures/programs/crew.rs");
    assert!(scratch.run("rustc", &["--edition", "2024", "-O", "-g", "-o", "program", source]));
    scratch.path("program")
}

pub(crate) struct Subject {
    pub(crate) path: PathBuf,
    pub(crate) build_id: Vec<u8>,
    pub(crate) symbolizer: Arc<Symbolizer>,
}

impl Subject {
    /// Makes a subject for a file, without debug directories.
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self::with(path, SymbolizerOptions { debug_dirs: Vec::new(), ..SymbolizerOptions::default() })
    }

    pub(crate) fn with(path: impl Into<PathBuf>, options: SymbolizerOptions) -> Self {
        Self { path: path.into(), build_id: Vec::new(), symbolizer: Arc::new(Symbolizer::new(options)) }
    }

    pub(crate) fn module(&self) -> ModuleRef<'_> {
        ModuleRef { path: self.path.as_os_str().as_bytes(), build_id: &self.build_id }
    }

    pub(crate) fn frames(&self, offset: u64) -> Arc<[SymbolFrame]> {
        self.symbolizer.frames(self.module(), offset)
    }

    pub(crate) fn state(&self) -> ModuleState {
        self.symbolizer.module_state(self.module())
    }

    pub(crate) fn hint(&self) -> Option<String> {
        self.symbolizer.hint(self.module())
    }

    /// Returns all distinct answers in the function that `file` has under this raw name.
    pub(crate) fn answers_in(&self, file: &Path, function: &str) -> Vec<Arc<[SymbolFrame]>> {
        let (start, size) = extent(file, |name| name == function);
        let mut answers: Vec<Arc<[SymbolFrame]>> = Vec::new();
        for offset in start..start + size {
            let frames = self.frames(offset);
            if !answers.contains(&frames) {
                answers.push(frames);
            }
        }
        answers
    }
}

/// Returns the address and size of the only function whose raw name satisfies `wanted`.
#[track_caller]
pub(crate) fn extent(file: &Path, wanted: impl Fn(&str) -> bool) -> (u64, u64) {
    let data = fs::read(file).unwrap();
    let elf = object::File::parse(&*data).unwrap();
    let found = elf
        .symbols()
        .chain(elf.dynamic_symbols())
        .find(|symbol| symbol.size() > 0 && symbol.name().is_ok_and(|name| wanted(name.split('@').next().unwrap())));
    let found = found.unwrap_or_else(|| panic!("no such function in {}", file.display()));
    (found.address(), found.size())
}

pub(crate) fn build_id(file: &Path) -> Vec<u8> {
    let data = fs::read(file).unwrap();
    object::File::parse(&*data).unwrap().build_id().unwrap().unwrap_or_default().to_vec()
}

/// Returns `function:line` per frame, innermost first, with the short names.
pub(crate) fn chain(frames: &[SymbolFrame]) -> Vec<String> {
    frames.iter().map(|frame| format!("{}:{}", frame.function.short(), frame.line.unwrap_or(0))).collect()
}

/// Returns the number of the line with this text.
#[track_caller]
pub(crate) fn line_of(source: &str, text: &str) -> u32 {
    let position = source.lines().position(|line| line.contains(text));
    u32::try_from(position.expect("text is in the source") + 1).unwrap()
}

/// Asserts that one of the answers has these functions, in this file.
#[track_caller]
pub(crate) fn assert_chain(answers: &[Arc<[SymbolFrame]>], expected: &[String], file: &str) {
    let found = answers.iter().find(|frames| chain(frames) == expected);
    let Some(frames) = found else {
        let chains: Vec<_> = answers.iter().map(|frames| chain(frames)).collect();
        panic!("{expected:?} is not in {chains:#?}");
    };
    for (at, frame) in frames.iter().enumerate() {
        assert_eq!(frame.inlined, at + 1 < frames.len(), "{frames:#?}");
        let path = Path::new(frame.file.as_deref().unwrap_or_default());
        assert_eq!(path.file_name(), Some(OsStr::new(file)), "{frames:#?}");
    }
}
