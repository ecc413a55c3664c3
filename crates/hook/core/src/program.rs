//! Judges from the first bytes of a program file how the kernel would run it, so that variables are
//! added to the environment of a program only if the recorder is loaded there and can remove them
//! again.

/// The number of bytes that [`classify`] needs: the headers are among them.
pub const HEAD_LENGTH: usize = 4096;

/// The verdict on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program<'head> {
    /// An executable for this processor with the GNU C library's dynamic linker: `LD_PRELOAD`
    /// works.
    Dynamic,
    /// An executable for this processor with musl's dynamic linker: `LD_PRELOAD` works, for a
    /// library that has been made ready for musl.
    Musl,
    /// An executable without a dynamic linker, with another C library's, or for another processor.
    Other(Obstacle),
    /// A script, with its interpreter's path.
    Script(&'head [u8]),
    /// Neither; `execvp` hands such a file to the shell.
    Unknown,
}

/// The reason why a program runs unrecorded. The numbers are those of `heapledger explain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Obstacle {
    /// It has no dynamic linker, and no allocator that is known.
    Static = 1,
    /// It runs with other rights than its caller.
    OtherRights = 2,
    /// It is for another processor, or for 32 bits.
    OtherMachine = 3,
    /// Its dynamic linker is not glibc's.
    OtherLibrary = 4,
    /// AddressSanitizer's runtime would end the program.
    AddressSanitizer = 7,
    /// The session cannot be reached from its network namespace.
    OtherNetwork = 71,
    /// The recorder's library cannot be read from where it starts.
    LibraryUnreadable = 72,
    /// There was no room for the recorder.
    NoRoom = 73,
    /// The program never connected to the recorder.
    Silent = 74,
    /// It starts in a sandbox, which could kill it for the recorder's system calls.
    Sandbox = 77,
    /// It belongs to another session: that of a Heapledger which was started in this one.
    OtherSession = 93,
    /// It was recorded, but functions of an allocator inside of it were not redirected.
    NotRedirected = 97,
    /// It has no dynamic linker, and the recorder could not be placed into it.
    NotFollowed = 122,
}

impl Obstacle {
    /// Returns the obstacle with this number, of those for which the recorder does not follow a
    /// process into a program.
    pub fn of_followed(number: u16) -> Option<Obstacle> {
        let all = [
            Obstacle::Static,
            Obstacle::OtherRights,
            Obstacle::OtherMachine,
            Obstacle::OtherLibrary,
            Obstacle::LibraryUnreadable,
            Obstacle::NotFollowed,
        ];
        all.into_iter().find(|obstacle| *obstacle as u16 == number)
    }
}

/// True if a file with this mode, owner and group runs with rights that a caller with this user and
/// group does not have: then the dynamic linker loads no library that the caller asks for.
pub const fn gains_rights(mode: u32, owner: (u32, u32), caller: (u32, u32)) -> bool {
    const SET_USER: u32 = 0o4000;
    /// Set-group-ID is effective only together with the group's right to execute.
    const SET_GROUP: u32 = 0o2010;
    mode & SET_USER != 0 && owner.0 != caller.0 || mode & SET_GROUP == SET_GROUP && owner.1 != caller.1
}

/// True if a dynamic linker is the GNU C library's: another one may end the program because it
/// cannot load our library.
pub fn is_supported_linker(path: &[u8]) -> bool {
    let path = path.split(|&byte| byte == 0).next().unwrap_or(&[]);
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(&[]);
    [&b"ld-linux"[..], b"ld-2.", b"ld-lsb"].iter().any(|start| name.starts_with(start))
}

/// True if a dynamic linker is musl's.
pub fn is_musl_linker(path: &[u8]) -> bool {
    let path = path.split(|&byte| byte == 0).next().unwrap_or(&[]);
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(&[]).starts_with(b"ld-musl-")
}

/// Judges a file by its first bytes. Sources: generic ABI (ELF header, program headers), execve(2)
/// (scripts).
pub fn classify(head: &[u8]) -> Program<'_> {
    const ELFCLASS64: u8 = 2;
    #[cfg(target_arch = "x86_64")]
    const EM_HOST: u16 = 62;
    #[cfg(target_arch = "aarch64")]
    const EM_HOST: u16 = 183;
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    const EM_HOST: u16 = 0;
    const PT_INTERP: u32 = 3;
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or(&[]).trim_ascii();
        return Program::Script(line.split(|&byte| byte == b' ' || byte == b'\t').next().unwrap_or(&[]));
    }
    if !head.starts_with(b"\x7fELF") {
        return Program::Unknown;
    }
    let headers = (|| {
        let at = u64::from_le_bytes(head.get(32..40)?.try_into().ok()?);
        let length = u16::from_le_bytes(head.get(54..56)?.try_into().ok()?);
        let count = u16::from_le_bytes(head.get(56..58)?.try_into().ok()?);
        let machine = u16::from_le_bytes(head.get(18..20)?.try_into().ok()?);
        (head.get(4) == Some(&ELFCLASS64) && machine == EM_HOST).then_some((usize::try_from(at).ok()?, length, count))
    })();
    let Some((at, length, count)) = headers else { return Program::Other(Obstacle::OtherMachine) };
    let linker = |index: u16| {
        let at = at.checked_add(usize::from(index) * usize::from(length))?;
        let kind = u32::from_le_bytes(head.get(at..at.checked_add(4)?)?.try_into().ok()?);
        let word = |from: usize| {
            let from = at.checked_add(from)?;
            usize::try_from(u64::from_le_bytes(head.get(from..from.checked_add(8)?)?.try_into().ok()?)).ok()
        };
        // If its path is not among the first bytes, the linker is taken for a supported one.
        let path = || head.get(word(8)?..word(8)?.checked_add(word(32)?)?);
        (kind == PT_INTERP).then(|| match path() {
            Some(path) if is_musl_linker(path) => Program::Musl,
            Some(path) if !is_supported_linker(path) => Program::Other(Obstacle::OtherLibrary),
            _ => Program::Dynamic,
        })
    };
    (0..count).find_map(linker).unwrap_or(Program::Other(Obstacle::Static))
}

/// True if a dynamic program loads AddressSanitizer's runtime as a library: that ends the program
/// if it finds another library before itself. `head` are the file's first bytes; `read` reads bytes
/// from an offset on and returns their number. False if something cannot be read. Source: generic
/// ABI (program headers, dynamic section).
pub fn needs_to_be_first(head: &[u8], mut read: impl FnMut(u64, &mut [u8]) -> Option<usize>) -> bool {
    const PT_LOAD: u32 = 1;
    const PT_DYNAMIC: u32 = 2;
    const DT_NEEDED: u64 = 1;
    const DT_STRTAB: u64 = 5;
    const RUNTIMES: [&[u8]; 3] = [b"libasan.so", b"libhwasan.so", b"libclang_rt.asan"];
    /// The number of needed libraries that are checked: the runtime is among the first.
    const NEEDED_MAX: usize = 8;
    fn word(bytes: &[u8], at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
    }
    let half = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
    let (Some(at), Some(length), Some(count)) = (word(head, 32), half(54), half(56)) else { return false };
    // Type, offset in the file, address, length in the file.
    let segment = |index: u16| {
        let at = usize::try_from(at).ok()?.checked_add(usize::from(index) * usize::from(length))?;
        let header = head.get(at..at.checked_add(56)?)?;
        Some((word(header, 0)? as u32, word(header, 8)?, word(header, 16)?, word(header, 32)?))
    };
    let segments = || (0..count).filter_map(segment);
    let Some((_, from, _, dynamic_length)) = segments().find(|&(kind, ..)| kind == PT_DYNAMIC) else { return false };
    let (mut needed, mut needed_count, mut strings) = ([0_u64; NEEDED_MAX], 0, None);
    let mut offset = 0;
    let mut entries = [0_u8; 256];
    while offset < dynamic_length.min(4096) {
        let Some(count) = read(from.wrapping_add(offset), &mut entries) else { return false };
        for entry in entries.get(..count).unwrap_or(&[]).chunks_exact(16) {
            let (Some(tag), Some(value)) = (word(entry, 0), word(entry, 8)) else { break };
            if tag == DT_STRTAB {
                strings = Some(value);
            } else if tag == DT_NEEDED && needed_count < NEEDED_MAX {
                if let Some(slot) = needed.get_mut(needed_count) {
                    *slot = value;
                }
                needed_count += 1;
            }
        }
        offset += entries.len() as u64;
    }
    let in_file = |address: u64| {
        let (_, offset, start, _) = segments().find(|&(kind, _, start, length)| {
            kind == PT_LOAD && address.checked_sub(start).is_some_and(|inside| inside < length)
        })?;
        Some(address - start + offset)
    };
    let Some(strings) = strings.and_then(in_file) else { return false };
    needed.iter().take(needed_count).any(|&name| {
        let mut bytes = [0_u8; 16];
        let read = read(strings.wrapping_add(name), &mut bytes).unwrap_or(0);
        RUNTIMES.iter().any(|runtime| bytes.get(..read).unwrap_or(&[]).starts_with(runtime))
    })
}

#[cfg(test)]
mod tests;
