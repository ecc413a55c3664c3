//! An inspection of the program before it runs: can it be recorded, and completely?
//!
//! The inspection is part of the start of every recording, so it is bounded: it reads headers,
//! dynamic symbols, and the names in the symbol table of the program file (at most
//! [`heap::NAMES_MAX`] bytes), but no libraries and no debug information.

pub(crate) mod heap;
mod launcher;
mod runtime;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use heapledger_collect::{RedirectedAllocator, is_musl_installed, placed_allocators, redirected_allocators};
use heapledger_core::program;
use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadRef};
use object::{Endian, Endianness, FileKind};
use rustix::fs::StatVfsMountFlags;

use crate::code::Code;

/// The program that a command line would run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    /// The scripts on the way to the program, each the interpreter's argument.
    pub(crate) scripts: Vec<PathBuf>,
    /// The executable: the program, or the interpreter of a script. `None` if there is none.
    pub(crate) file: Option<PathBuf>,
    /// True if the program defines malloc and seems to call the next one, whose calls are recorded.
    pub(crate) wraps_malloc: bool,
    /// The obstacles to recording, the worst first.
    pub(crate) findings: Vec<Finding>,
    /// The programs that a shell script starts by `exec`.
    pub(crate) starts: Vec<Start>,
}

/// A program that a script starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// The program's name, as it is written in the script.
    pub(crate) word: String,
    /// The program, if it is known.
    pub(crate) target: Option<Target>,
}

/// A fact about a program or a machine that affects recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) code: Code,
    pub(crate) effect: Effect,
    /// The description that is displayed.
    pub(crate) text: String,
    /// The remedy.
    pub(crate) hint: String,
    /// True if it does not hold for `record`, which redirects the entry points of the
    /// allocator, and has a library for musl.
    pub(crate) is_redirected: bool,
}

/// The effect of a finding on recording: the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effect {
    /// The program must not be started under the recorder.
    Refused,
    /// The program runs, but none of its allocations are recorded.
    Unrecorded,
    /// Some allocations are not recorded.
    Partial,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Target {
    /// Inspects the program of this name, as a shell would find it.
    pub(crate) fn inspect(program: &OsStr) -> Target {
        Target::inspect_within(program, SCRIPTS_MAX)
    }

    /// Inspects the program and the programs that its scripts start, at most `scripts_max` scripts
    /// deep.
    fn inspect_within(program: &OsStr, scripts_max: usize) -> Target {
        let mut target = Target::default();
        let Some(mut file) = program_file(program) else { return target };
        // A script is run by its interpreter, or, if that is `env NAME`, by the program NAME.
        for _ in 0..4 {
            let Some(interpreter) = interpreter(&file) else { break };
            target.scripts.push(std::mem::replace(&mut file, interpreter));
        }
        (target.findings, target.wraps_malloc) = check(&file);
        target.findings.sort_by_key(|finding| finding.effect);
        if let Some(script) = target.scripts.last().filter(|_| scripts_max > 0 && launcher::is_shell(&file)) {
            let start = |(word, program): (String, Option<PathBuf>)| {
                let target = program.map(|program| Target::inspect_within(program.as_os_str(), scripts_max - 1));
                Start { word, target: target.filter(|target| target.file.is_some()) }
            };
            target.starts = launcher::started_by(script).into_iter().map(start).collect();
        }
        target.file = file.exists().then_some(file);
        target
    }

    /// Leaves out the findings about allocations by other functions than malloc. They do not matter
    /// to a program that runs with another allocator.
    pub(crate) fn with_obstacles_only(mut self) -> Target {
        self.findings.retain(|finding| finding.effect <= Effect::Unrecorded);
        for start in &mut self.starts {
            start.target = start.target.take().map(Target::with_obstacles_only);
        }
        self
    }

    /// Leaves out the findings that do not hold for `record`, because it redirects the entry points
    /// of allocators inside of the program, and is placed into statically linked ones. It follows
    /// each program into those that it starts.
    pub(crate) fn with_redirection(mut self) -> Target {
        self.findings.retain(|finding| !finding.is_redirected);
        for start in &mut self.starts {
            start.target = start.target.take().map(Target::with_redirection);
        }
        self
    }

    /// Makes the findings about musl hold for `record`, too: it has hook libraries, which are for
    /// glibc.
    pub(crate) fn with_hooks(mut self) -> Target {
        for finding in self.findings.iter_mut().filter(|finding| finding.code == Code::OtherLibrary) {
            finding.is_redirected = false;
        }
        for start in &mut self.starts {
            start.target = start.target.take().map(Target::with_hooks);
        }
        self
    }

    /// True if the target is a shell script, which may start anything.
    pub(crate) fn is_shell_script(&self) -> bool {
        !self.scripts.is_empty() && self.file.as_deref().is_some_and(launcher::is_shell)
    }

    /// Returns the findings about the programs that a script starts, as far as these are known;
    /// each once.
    pub(crate) fn findings_of_starts(&self) -> Vec<&Finding> {
        let mut findings: Vec<&Finding> = vec![];
        for target in self.starts.iter().filter_map(|start| start.target.as_ref()) {
            for finding in target.findings.iter().chain(target.findings_of_starts()) {
                if !findings.contains(&finding) {
                    findings.push(finding);
                }
            }
        }
        findings
    }

    /// Returns the findings about an executable that a recorded program started. Empty if the file
    /// no longer exists.
    pub(crate) fn findings_of(file: &Path) -> Vec<Finding> {
        check(file).0
    }

    /// True if the program is statically linked, and the recorder is placed into it.
    pub(crate) fn is_placed(&self) -> bool {
        self.findings.iter().any(|finding| finding.code == Code::Static && finding.is_redirected)
    }

    /// Returns the finding that keeps the program from being recorded, if there is one.
    pub(crate) fn obstacle(&self) -> Option<&Finding> {
        self.findings.first().filter(|finding| finding.effect <= Effect::Unrecorded)
    }
}

/// The most levels of scripts that start scripts.
const SCRIPTS_MAX: usize = 3;

/// Returns the program of this name that a shell would find in the directories of PATH.
pub(crate) fn program_file(name: &OsStr) -> Option<PathBuf> {
    find(name, std::env::var_os("PATH"))
}

/// Returns the file that a shell would run.
fn find(program: &OsStr, path: Option<OsString>) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = path.unwrap_or_else(|| "/bin:/usr/bin".into());
    let is_executable = |file: &PathBuf| file.metadata().is_ok_and(|data| data.is_file() && data.mode() & 0o111 != 0);
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(is_executable)
}

/// Returns the interpreter of a script, or the program that `env` starts as one.
fn interpreter(file: &Path) -> Option<PathBuf> {
    let mut start = [0; 256];
    let length = File::open(file).and_then(|mut file| file.read(&mut start)).ok()?;
    let line = start[..length].strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let interpreter = Path::new(OsStr::from_bytes(words.next()?));
    if interpreter.file_name() == Some(OsStr::new("env")) {
        let word = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
        return program_file(OsStr::from_bytes(word));
    }
    Some(interpreter.to_owned())
}

/// Returns the findings about an executable file, and true if it seems to wrap malloc.
fn check(path: &Path) -> (Vec<Finding>, bool) {
    let mut findings = vec![];
    let mut find = |code, effect, text: fmt::Arguments<'_>, hint: &str| {
        let text = format!("`{}` {text}", path.display());
        findings.push(Finding { code, effect, text, hint: hint.to_owned(), is_redirected: false });
    };
    if rustix::fs::statvfs(path).is_ok_and(|system| system.f_flag.contains(StatVfsMountFlags::NOEXEC)) {
        let why = format_args!("is on a file system that is mounted noexec");
        find(Code::NoExec, Effect::Unrecorded, why, "copy it to another file system");
    }
    let Ok(file) = File::open(path) else { return (findings, false) };
    let Ok(metadata) = file.metadata() else { return (findings, false) };
    let cache = ReadCache::new(file);
    let elf = match FileKind::parse(&cache) {
        Ok(FileKind::Elf64) => elf::FileHeader64::<Endianness>::parse(&cache).ok(),
        Ok(FileKind::Elf32) => None,
        _ => return (findings, false),
    };
    let Some(elf) = elf.filter(|elf| is_own_machine(elf)) else {
        let why = format_args!("is not a 64-bit program for this processor");
        find(Code::OtherMachine, Effect::Refused, why, "build it for this machine");
        return (findings, false);
    };
    if has_other_rights(path, &metadata) {
        let why = format_args!("runs with other rights than yours (set-user-ID or the like)");
        let hint = "run it as the user whose rights it has, or record a copy of the file";
        find(Code::OtherRights, Effect::Unrecorded, why, hint);
    }
    let mut is_musl = false;
    match linker(elf, &cache) {
        Some(Code::Static) => {
            // `record` is placed into it if there is something to be redirected.
            let is_placed = !placed_allocators(path).is_empty();
            let (and, hint) = if is_placed {
                ("", "`heapledger record` is placed into it; nothing else is")
            } else {
                (
                    ", and no allocator that is known is in it",
                    "link it dynamically; neither it nor what it starts can be recorded",
                )
            };
            find(Code::Static, Effect::Unrecorded, format_args!("is statically linked{and}"), hint);
            findings.iter_mut().for_each(|finding| finding.is_redirected |= is_placed && finding.code == Code::Static);
        }
        Some(code) => {
            let hint = "build it for glibc (in Rust: the target x86_64-unknown-linux-gnu)";
            let why = format_args!("is built for another C library than glibc (such as musl)");
            find(code, Effect::Unrecorded, why, hint);
            is_musl = linker_of(elf, &cache).is_some_and(program::is_musl_linker) && is_musl_installed();
        }
        None => {}
    }
    for finding in findings.iter_mut().filter(|finding| finding.code == Code::OtherLibrary) {
        finding.is_redirected = is_musl;
    }
    let is_obstructed = findings.iter().any(|finding| !finding.is_redirected);
    // If the program cannot be recorded anyway, only its language is of interest.
    let (of_heap, wraps_malloc) = heap::check(path, elf, &cache);
    findings.extend(of_heap.into_iter().filter(|finding| !is_obstructed || finding.code == Code::Go));
    redirect(path, &mut findings);
    (findings, wraps_malloc)
}

/// Marks the findings about an allocator inside of the program if `record` redirects its entry
/// points, and adds one about those that it cannot redirect.
fn redirect(path: &Path, findings: &mut Vec<Finding>) {
    let is_inside = |code| matches!(code, Code::OwnAllocator | Code::SecondAllocator | Code::WrapsMalloc);
    if !findings.iter().any(|finding| is_inside(finding.code) && !finding.is_redirected) {
        return;
    }
    let allocators = redirected_allocators(path);
    if allocators.is_empty() {
        return;
    }
    for finding in findings.iter_mut().filter(|finding| is_inside(finding.code)) {
        finding.is_redirected = true;
    }
    if allocators.iter().any(|one| one.may_be_inlined) {
        findings.push(Finding {
            code: Code::InlinedAllocator,
            effect: Effect::Partial,
            text: format!("`{}` has a #[global_allocator]: calls that are inlined are not seen", path.display()),
            hint: "wrap it: heapledger::Allocator::wrapping(…), or record a build with opt-level = 0".to_owned(),
            is_redirected: false,
        });
    }
    for RedirectedAllocator { family, refused, .. } in allocators.iter().filter(|one| !one.refused.is_empty()) {
        let shown = refused.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = refused.len().saturating_sub(3);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        findings.push(Finding {
            code: Code::NotRedirected,
            effect: Effect::Partial,
            text: format!("`{}` has {family} inside: calls of {shown}{more} are not seen", path.display()),
            hint: format!("heapledger doctor --json {} lists the reasons", path.display()),
            is_redirected: false,
        });
    }
}

pub(crate) fn is_own_machine(elf: &elf::FileHeader64<Endianness>) -> bool {
    let own = if cfg!(target_arch = "x86_64") { elf::EM_X86_64 } else { elf::EM_AARCH64 };
    let is_own_order = |endian: Endianness| endian.is_big_endian() == cfg!(target_endian = "big");
    elf.endian().is_ok_and(|endian| is_own_order(endian) && elf.e_machine(endian) == own)
}

/// Returns the path of the dynamic linker that the program names.
fn linker_of<'d>(elf: &elf::FileHeader64<Endianness>, data: impl ReadRef<'d>) -> Option<&'d [u8]> {
    let endian = elf.endian().ok()?;
    let segments = elf.program_headers(endian, data).ok()?;
    segments.iter().find(|segment| segment.p_type(endian) == elf::PT_INTERP)?.data(endian, data).ok()
}

/// Returns the problem with the dynamic linker that the program names, if there is one. The linker
/// itself and other libraries name none, but are not statically linked.
fn linker<'d>(elf: &elf::FileHeader64<Endianness>, data: impl ReadRef<'d>) -> Option<Code> {
    let endian = elf.endian().ok()?;
    let mut is_library = false;
    for segment in elf.program_headers(endian, data).ok()? {
        if segment.p_type(endian) == elf::PT_INTERP {
            let path = segment.data(endian, data).ok().filter(|path| !path.is_empty())?;
            return (!program::is_supported_linker(path)).then_some(Code::OtherLibrary);
        }
        if let Ok(Some(entries)) = segment.dynamic(endian, data) {
            let is_of_library = |tag| tag == elf::DT_SONAME || tag == elf::DT_NEEDED;
            is_library |= entries.iter().any(|entry| is_of_library(entry.d_tag(endian)));
        }
    }
    (!is_library).then_some(Code::Static)
}

/// True if the dynamic linker would ignore LD_PRELOAD, because the program gets rights that its
/// caller does not have.
fn has_other_rights(path: &Path, metadata: &std::fs::Metadata) -> bool {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut value = [0_u8; 64];
    program::gains_rights(metadata.mode(), (metadata.uid(), metadata.gid()), (user, group))
        || user != 0 && rustix::fs::getxattr(path, "security.capability", &mut value).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Returns the codes of the findings about a file.
    fn codes(path: &Path) -> Vec<Code> {
        check(path).0.iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn ordinary_programs_have_no_obstacle() {
        for program in ["sh", "/bin/sh", "no-such-program-anywhere", "/", "/dev/null"] {
            assert_eq!(Target::inspect(program.as_ref()).findings, [], "{program}");
        }
        let own = std::env::current_exe().unwrap();
        assert_eq!(check(&own), (vec![], false));
    }

    #[test]
    fn the_dynamic_linker_is_not_static() {
        for linker in ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"] {
            if Path::new(linker).exists() {
                assert!(!codes(Path::new(linker)).contains(&Code::Static));
            }
        }
    }

    /// Returns an ELF file of a header and program headers of these types.
    fn elf(class: u8, machine: u16, segments: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0x7f, b'E', b'L', b'F', class, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend([2, 0]);
        bytes.extend(machine.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(0_u64.to_le_bytes());
        bytes.extend(64_u64.to_le_bytes());
        bytes.extend(0_u64.to_le_bytes());
        bytes.extend(0_u32.to_le_bytes());
        for half in [64, 56, segments.len() as u16, 64, 0, 0] {
            bytes.extend(half.to_le_bytes());
        }
        for segment in segments {
            bytes.extend(segment.to_le_bytes());
            bytes.resize(bytes.len() + 52, 0);
        }
        bytes
    }

    #[test]
    fn obstacles_are_seen() {
        let directory = std::env::temp_dir().join(format!("heapledger-target-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = directory.join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let own = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
        let fixed = file("static", &elf(2, own, &[1]));
        assert_eq!(codes(&fixed), [Code::Static]);
        assert_eq!(codes(&file("dynamic", &elf(2, own, &[1, 3]))), []);
        assert_eq!(codes(&file("other", &elf(2, 243, &[1, 3]))), [Code::OtherMachine]);
        assert_eq!(codes(&file("text", b"hello")), []);
        assert_eq!(codes(&file("cut", &elf(2, own, &[1])[..70])), []);

        let script = file("script", format!("#! {} -x\n", fixed.display()).as_bytes());
        let is_found = |script: &Path| {
            let target = Target::inspect(script.as_os_str());
            assert_eq!((target.scripts.as_slice(), target.file.as_deref()), (&[script.to_owned()][..], Some(&*fixed)));
            assert_eq!(target.obstacle().map(|finding| finding.code), Some(Code::Static));
        };
        is_found(&script);
        let through_env = file("env-script", format!("#!/usr/bin/env -S A=1 {}", fixed.display()).as_bytes());
        is_found(&through_env);
        fs::remove_dir_all(&directory).unwrap();
    }

    /// The recorder follows every program into static ones.
    #[test]
    fn starts_of_static_programs_are_recorded() {
        let fixed = |starts| {
            let text = "`sh` is statically linked".to_owned();
            let effect = Effect::Unrecorded;
            let finding = Finding { code: Code::Static, effect, text, hint: String::new(), is_redirected: true };
            Target { findings: vec![finding], starts, ..Target::default() }
        };
        let dynamic = |starts| Target { starts, ..Target::default() };
        let start = |target| vec![Start { word: "program".to_owned(), target: Some(target) }];
        let left = |target: Target| {
            let target = target.with_redirection();
            assert_eq!(target.findings, []);
            target.findings_of_starts().len()
        };
        assert_eq!(left(fixed(start(fixed(vec![])))), 0);
        assert_eq!(left(fixed(start(dynamic(vec![])))), 0);
        assert_eq!(left(dynamic(start(fixed(vec![])))), 0);
        assert_eq!(left(fixed(start(dynamic(start(fixed(vec![])))))), 0);
    }

    #[test]
    fn programs_are_found_like_in_a_shell() {
        assert!(find("sh".as_ref(), None).is_some());
        assert_eq!(find("sh".as_ref(), Some("/nonexistent".into())), None);
        assert_eq!(find("./x".as_ref(), None), Some("./x".into()));
    }
}
