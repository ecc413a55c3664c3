//! A look at the program before it runs: can it be recorded at all?

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use heapledger_core::program;
use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadRef};
use object::{Endian, Endianness, FileKind};

/// What keeps a program from being recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obstacle {
    /// The executable: the program, or the interpreter of a script.
    pub(crate) file: PathBuf,
    pub(crate) kind: ObstacleKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObstacleKind {
    /// There is no dynamic linker that would load the library.
    Static,
    /// Its dynamic linker is not the GNU C library's, and could not load the library.
    OtherLibrary,
    /// The dynamic linker does not load the library of another user into it.
    OtherRights,
    /// It is for another processor, or for 32 bits.
    OtherMachine,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        match self.kind {
            ObstacleKind::Static => write!(f, "`{file}` is statically linked"),
            ObstacleKind::OtherLibrary => {
                write!(f, "`{file}` is built for another C library than glibc (such as musl)")
            }
            ObstacleKind::OtherRights => {
                write!(f, "`{file}` runs with other rights than yours (set-user-ID or the like)")
            }
            ObstacleKind::OtherMachine => write!(f, "`{file}` is not a 64-bit program for this processor"),
        }
    }
}

impl Obstacle {
    /// What to do about it.
    pub(crate) fn hint(&self) -> &'static str {
        match self.kind {
            ObstacleKind::Static => "link it dynamically; neither it nor what it starts can be recorded",
            ObstacleKind::OtherLibrary => "build it for glibc (in Rust: the target x86_64-unknown-linux-gnu)",
            ObstacleKind::OtherRights => "run it as the user whose rights it has, or record a copy of the file",
            ObstacleKind::OtherMachine => "build it for this machine",
        }
    }
}

/// What keeps this program from being recorded, if anything is seen. Whether there is such a program is not asked here.
pub(crate) fn obstacle(program: &OsStr) -> Option<Obstacle> {
    let mut file = find(program, std::env::var_os("PATH"))?;
    // A script is run by its interpreter; the usual `env NAME` by that program.
    for _ in 0..2 {
        let Some(interpreter) = interpreter(&file) else { break };
        file = interpreter;
    }
    let kind = check(&file)?;
    Some(Obstacle { file, kind })
}

/// The file that a shell would run.
fn find(program: &OsStr, path: Option<OsString>) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = path.unwrap_or_else(|| "/bin:/usr/bin".into());
    let is_executable = |file: &PathBuf| file.metadata().is_ok_and(|data| data.is_file() && data.mode() & 0o111 != 0);
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(is_executable)
}

/// The interpreter of a script, or the program that `env` starts as one.
fn interpreter(file: &Path) -> Option<PathBuf> {
    let mut start = [0; 256];
    let length = File::open(file).and_then(|mut file| file.read(&mut start)).ok()?;
    let line = start[..length].strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let interpreter = Path::new(OsStr::from_bytes(words.next()?));
    if interpreter.file_name() == Some(OsStr::new("env")) {
        let word = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
        return find(OsStr::from_bytes(word), std::env::var_os("PATH"));
    }
    Some(interpreter.to_owned())
}

fn check(path: &Path) -> Option<ObstacleKind> {
    let file = File::open(path).ok()?;
    let metadata = file.metadata().ok()?;
    let cache = ReadCache::new(file);
    match FileKind::parse(&cache).ok()? {
        FileKind::Elf64 => {}
        FileKind::Elf32 => return Some(ObstacleKind::OtherMachine),
        _ => return None,
    }
    let elf = elf::FileHeader64::<Endianness>::parse(&cache).ok()?;
    if elf.endian().ok()?.is_big_endian() != cfg!(target_endian = "big") || !is_own_machine(elf) {
        return Some(ObstacleKind::OtherMachine);
    }
    if has_other_rights(path, &metadata) {
        return Some(ObstacleKind::OtherRights);
    }
    linker(elf, &cache)
}

fn is_own_machine(elf: &elf::FileHeader64<Endianness>) -> bool {
    let own = if cfg!(target_arch = "x86_64") { elf::EM_X86_64 } else { elf::EM_AARCH64 };
    elf.endian().is_ok_and(|endian| elf.e_machine(endian) == own)
}

/// What is wrong with the dynamic linker that the program names. That linker itself names none, and is not static.
fn linker<'d>(elf: &elf::FileHeader64<Endianness>, data: impl ReadRef<'d>) -> Option<ObstacleKind> {
    let endian = elf.endian().ok()?;
    let mut is_linker = false;
    for segment in elf.program_headers(endian, data).ok()? {
        if segment.p_type(endian) == elf::PT_INTERP {
            let path = segment.data(endian, data).ok().filter(|path| !path.is_empty())?;
            return (!program::is_supported_linker(path)).then_some(ObstacleKind::OtherLibrary);
        }
        if let Ok(Some(entries)) = segment.dynamic(endian, data) {
            is_linker |= entries.iter().any(|entry| entry.d_tag(endian) == elf::DT_SONAME);
        }
    }
    (!is_linker).then_some(ObstacleKind::Static)
}

/// Whether the dynamic linker would ignore what we ask of it, because the program gets rights that its caller has not.
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

    #[test]
    fn ordinary_programs_have_no_obstacle() {
        for program in ["sh", "/bin/sh", "no-such-program-anywhere", "/", "/dev/null"] {
            assert_eq!(obstacle(program.as_ref()), None, "{program}");
        }
        let own = std::env::current_exe().unwrap();
        assert_eq!(check(&own), None);
    }

    #[test]
    fn the_dynamic_linker_is_not_static() {
        for linker in ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"] {
            if Path::new(linker).exists() {
                assert_eq!(check(Path::new(linker)), None);
            }
        }
    }

    /// A header, and program headers of these types.
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
        assert_eq!(check(&fixed), Some(ObstacleKind::Static));
        assert_eq!(check(&file("dynamic", &elf(2, own, &[1, 3]))), None);
        assert_eq!(check(&file("other", &elf(2, 243, &[1, 3]))), Some(ObstacleKind::OtherMachine));
        assert_eq!(check(&file("text", b"hello")), None);
        assert_eq!(check(&file("cut", &elf(2, own, &[1])[..70])), None);

        let script = file("script", format!("#! {} -x\n", fixed.display()).as_bytes());
        let expected = Some(Obstacle { file: fixed.clone(), kind: ObstacleKind::Static });
        assert_eq!(obstacle(script.as_os_str()), expected);
        let through_env = file("env-script", format!("#!/usr/bin/env -S A=1 {}", fixed.display()).as_bytes());
        assert_eq!(obstacle(through_env.as_os_str()), expected);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn programs_are_found_like_in_a_shell() {
        assert!(find("sh".as_ref(), None).is_some());
        assert_eq!(find("sh".as_ref(), Some("/nonexistent".into())), None);
        assert_eq!(find("./x".as_ref(), None), Some("./x".into()));
    }
}
