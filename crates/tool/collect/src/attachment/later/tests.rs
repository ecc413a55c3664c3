//! A program of a few instructions, whose only thread is where a jump will be until it is told to
//! leave.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command};

use heapledger_wire::redirection::Region;

use super::*;
use crate::attachment::{AttachError, SlotTable, Stop};
use crate::redirection::{Mapped, Parts};

/// The address of the program, of the function whose beginning is to be replaced, and of memory
/// for its stub.
const BASE: u64 = 0x1000_0000;
const ENTRY: u64 = BASE + 0x100;
const STUBS: u64 = BASE + 0x10_0000;
const THUNK: u64 = BASE + 0x20_0000;
/// The bytes of the function's first four instructions, in the last three of which the thread is:
/// `nop; again: mov byte [rdi+1], 1; cmp byte [rdi], 0; je again`.
const REPLACED: [u8; 10] = [0x90, 0xc6, 0x47, 0x01, 0x01, 0x80, 0x3f, 0x00, 0x74, 0xf7];

/// A program whose thread is in these instructions until the flag is set, and then elsewhere.
struct Program {
    child: Child,
    memory: Arc<Memory>,
    _folder: tempfile::TempDir,
}

impl Program {
    /// The address of the flag, in unused bytes of the header. The program sets the byte behind it.
    const FLAG: u64 = BASE + 8;

    fn start() -> Program {
        let mut file = Vec::new();
        // An executable file for x86-64 with one segment: `Elf64_Ehdr` and `Elf64_Phdr`.
        file.extend(*b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
        file.extend([2, 0, 62, 0, 1, 0, 0, 0]);
        [BASE + 0x80, 64, 0].into_iter().for_each(|word: u64| file.extend(word.to_le_bytes()));
        file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
        file.extend([1, 0, 0, 0, 7, 0, 0, 0]);
        [0, BASE, BASE, 0x200, 0x200, 0x1000].into_iter().for_each(|word: u64| file.extend(word.to_le_bytes()));
        file.resize(0x80, 0);
        // mov edi, FLAG; jmp ENTRY
        file.push(0xbf);
        file.extend((Program::FLAG as u32).to_le_bytes());
        file.push(0xe9);
        file.extend((0x100_u32 - 0x8a).to_le_bytes());
        file.resize(0x100, 0x90);
        file.extend(REPLACED);
        file.extend([0xeb, 0xfe]);
        file.resize(0x200, 0x90);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::write(&path, file).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let mut child = Command::new(&path).spawn().unwrap();
        // The exec may be under way: until its end, the memory is still that of this process.
        let memory = loop {
            let memory = Memory::open(child.id()).unwrap();
            if memory.read(BASE, &mut [0; 4]).is_ok() {
                break Arc::new(memory);
            }
            assert!(child.try_wait().unwrap().is_none(), "it has ended");
            std::thread::yield_now();
        };
        let program = Program { child, memory, _folder: folder };
        while program.bytes(Program::FLAG + 1) == [0] {
            std::thread::yield_now();
        }
        program
    }

    fn bytes<const N: usize>(&self, address: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.read(address, &mut bytes).unwrap();
        bytes
    }

    fn attachment(&self) -> Attachment {
        Attachment {
            pid: self.child.id(),
            memory: Arc::clone(&self.memory),
            program: PathBuf::new(),
            mapped: Vec::new(),
            code: Vec::new(),
            jumps: Vec::new(),
            modules: Vec::new(),
            thunk: THUNK,
            later: Later::default(),
            list: 0,
            slots: SlotTable { table: 0, multiplier: 0, bits: 0, length: 0, inside_at: 0 },
            shared_before: Vec::new(),
            stop: Stop::default(),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn opened() -> Opened {
    let jump = Jump::new(ENTRY, &REPLACED, STUBS + 8).unwrap();
    let regions = vec![Region { address: STUBS, length: 4096, offset: 0 }];
    let mut code = THUNK.to_ne_bytes().to_vec();
    code.resize(4096, 0xcc);
    let path = PathBuf::from("/opt/plugin.so");
    let module = Mapped { start: BASE, end: BASE + 4096, offset: 0, inode: 7, is_executable: true, path };
    Opened { module, parts: Parts { entries: 1, regions, jumps: vec![jump], code, ..Parts::default() } }
}

/// A module that was missed before may be in use when another one is opened.
#[test]
fn nothing_is_replaced_under_a_thread() {
    let program = Program::start();
    let (attachment, opened) = (program.attachment(), opened());
    let jump = opened.parts.jumps[0];
    let mut later = Modules::default();
    let stubs: Vec<Range<u64>> = [STUBS].map(|start| start..start + 4096).into();
    assert_eq!(attachment.redirect(&opened, &mut later), 1);
    assert_eq!(program.bytes(ENTRY), REPLACED);
    // The stubs are there, and are known: they are unmapped at the end.
    assert_eq!(program.bytes(STUBS), THUNK.to_ne_bytes());
    let without = attachment.with(attachment.pid, &program.memory, &later);
    assert_eq!((without.jumps.len(), without.mapped), (0, stubs.clone()));

    program.memory.write(Program::FLAG, &[1]).unwrap();
    // It may take some time until the thread has seen that.
    let is_written = (0..100).any(|_| attachment.redirect(&opened, &mut later) == 0);
    assert!(is_written, "the thread is elsewhere");
    assert_eq!(program.bytes(ENTRY), jump.jump);
    assert_eq!(later.redirected.len(), 1);
    let with = attachment.with(attachment.pid, &program.memory, &later);
    assert_eq!((with.jumps, with.mapped), (vec![jump], stubs));
}

/// The jumps of the attachment itself, of which some modules were closed since.
#[test]
fn jumps_of_closed_modules_are_left_out() {
    let program = Program::start();
    let mut attachment = program.attachment();
    let jump = |address, expected: &[u8]| Jump::new(address, expected, STUBS).unwrap();
    let (there, unmapped) = (jump(BASE + 0x180, &[0x90; 5]), jump(BASE + 0x40_0000, &[0x90; 5]));
    let (anew, changed) = (jump(BASE + 0x190, &[0x90; 5]), jump(BASE + 0x1a0, &[0x90; 5]));
    program.memory.write(there.address, &there.jump).unwrap();
    program.memory.write(changed.address, &[0xcc]).unwrap();
    attachment.jumps = vec![there, unmapped, anew, changed];
    let rest = |attachment: &Attachment| attachment.with(attachment.pid, &program.memory, &Modules::default()).jumps;
    // Something else that is in a module may lead to the stub yet: it is not left out.
    assert_eq!(rest(&attachment), [there, changed]);
    assert!(matches!(attachment.remove(), Err(AttachError::OtherCode { address, .. }) if address == changed.address));
    assert_eq!(program.bytes(there.address), there.jump);
    // Another module is where one was.
    attachment.modules = program.memory.mappings().unwrap();
    attachment.modules.iter_mut().for_each(|module| module.name = b"/opt/other.so".to_vec());
    attachment.jumps = vec![changed, unmapped];
    assert_eq!(rest(&attachment), []);
}

#[test]
fn missing_entries_are_counted_once() {
    let (mut later, opened) = (Modules::default(), opened());
    assert_eq!([0, 3, 3, 2].map(|entries| later.count_missed(7, &opened, entries)), [0, 3, 0, 0]);
    // A forked child misses them by itself, once.
    assert_eq!([3, 3].map(|entries| later.count_missed(8, &opened, entries)), [3, 0]);
}
