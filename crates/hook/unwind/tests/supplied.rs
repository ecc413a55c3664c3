//! Captures stacks through a file that no linker knows, by a table of modules as the tool makes it.

#![cfg(all(target_arch = "x86_64", not(miri)))]

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};
use std::sync::Mutex;

use heapledger_core::{NodeKind, StackId, sys};
use heapledger_unwind::arch::FrameRegisters;
use heapledger_unwind::modules::{self, Listed, Module};
use heapledger_unwind::supplied::supply;
use heapledger_unwind::walk::Walker;
use heapledger_unwind::{Sink, bounds, rules, tree};
use heapledger_wire::module_table::{FramesIndex, ModuleRecord, ModuleTable, pair};

unsafe extern "C" {
    static __libc_stack_end: *mut c_void;
    fn mmap(at: *mut c_void, length: usize, protection: i32, flags: i32, fd: i32, offset: i64) -> *mut c_void;
}

/// A function that calls its argument.
type Calls = extern "C" fn(extern "C" fn());

/// `push %rbp; lea 1(%rsp),%rbp; call *%rdi; pop %rbp; ret`: no frame pointer leads out.
const CODE: &[u8] = &[0x55, 0x48, 0x8d, 0x6c, 0x24, 0x01, 0xff, 0xd7, 0x5d, 0xc3];

/// The common part of descriptions: addresses have 32 bits, the CFA is rsp + 8, and the return
/// address is just below it.
const COMMON: [u8; 24] = [20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 3, 0x0c, 7, 8, 0x90, 1, 0, 0];

/// Returns the description of the code, which begins at this offset of its module: after the first
/// byte, the CFA is rsp + 16, and rbp was saved 16 bytes below it.
fn description(start: u32) -> Vec<u8> {
    let head = [24_u32, 28, start, CODE.len() as u32].map(u32::to_le_bytes).concat();
    [&head[..], &[0, 0x41, 0x0e, 16, 0x86, 2, 0, 0], &[0; 4]].concat()
}

#[derive(Default)]
struct Nodes {
    parents: HashMap<StackId, (StackId, NodeKind, u64)>,
    paths: Vec<Vec<u8>>,
    /// The table to supply.
    table: Option<Vec<u8>>,
    asked: Vec<u64>,
}

impl Sink for Nodes {
    fn node(&mut self, id: StackId, parent: StackId, kind: NodeKind, address: u64) -> bool {
        self.parents.insert(id, (parent, kind, address)).is_none()
    }

    fn module(&mut self, module: &Module<'_>) -> bool {
        self.paths.push(module.path.to_vec());
        true
    }

    fn supply_modules(&mut self, address: u64) -> bool {
        self.asked.push(address);
        self.table.as_ref().is_some_and(|table| give(table))
    }
}

/// Supplies a copy of a table.
fn give(table: &[u8]) -> bool {
    let memory = sys::map_private(table.len()).unwrap();
    // SAFETY: freshly mapped, and as long as the table.
    unsafe { ptr::copy_nonoverlapping(table.as_ptr(), memory, table.len()) };
    // SAFETY: `supply` requires whole pages that nobody else uses: just mapped.
    unsafe { supply(NonNull::new(memory).unwrap(), table.len()) }
}

/// The state of the one test: the tree and the rules are the process's.
static NODES: Mutex<Option<Nodes>> = Mutex::new(None);

thread_local! {
    // SAFETY: `zeroed` requires that zeroes are a valid value: those of a `Walker` are, as its
    // documentation says.
    static WALKER: RefCell<Box<Walker>> = RefCell::new(Box::new(unsafe { std::mem::zeroed() }));
    static STACK: RefCell<Vec<(NodeKind, u64)>> = RefCell::default();
}

/// Captures the current stack.
#[inline(never)]
extern "C" fn capture() {
    let (lookup, sp, rbp): (u64, u64, u64);
    // SAFETY: the instructions write the three registers that they declare, and touch neither
    // memory, nor the stack, nor flags.
    unsafe {
        std::arch::asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) lookup, out(reg) sp, out(reg) rbp)
    };
    WALKER.with_borrow_mut(|walker| {
        let mut nodes = NODES.lock().unwrap();
        let nodes = nodes.as_mut().unwrap();
        // SAFETY: these are this frame's registers, and the frame stays live.
        let mut id = unsafe { walker.capture(FrameRegisters { slot: sp - 8, return_address: lookup + 1, rbp }, nodes) };
        let mut found = Vec::new();
        while id != StackId::ROOT {
            let (parent, kind, address) = nodes.parents[&id];
            if kind != NodeKind::Epoch {
                found.push((kind, address));
            }
            id = parent;
        }
        STACK.set(found);
    });
}

#[inline(never)]
fn outer_frames() -> Vec<(NodeKind, u64)> {
    capture();
    STACK.take()[2..].to_vec()
}

#[inline(never)]
fn through(code: Calls) -> Vec<(NodeKind, u64)> {
    code(capture);
    STACK.take()
}

fn with<R>(change: impl FnOnce(&mut Nodes) -> R) -> R {
    change(NODES.lock().unwrap().as_mut().unwrap())
}

/// The offsets of the code in the files, and of its description.
const OFFSET: usize = 64;
const FRAMES_AT: usize = 1024;

/// Maps a file with the code, and with a description of it for its address, which is below 2 GiB:
/// returns the address of the first byte.
fn map_file(name: &str) -> u64 {
    const READ_EXECUTE: i32 = 5;
    const PRIVATE_BELOW_2_GIB: i32 = 0x42;
    // A file with a name in a file system: a library may look so.
    let path = std::env::temp_dir().join(format!("heapledger-{name}-{}.so", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    file.set_len(4096).unwrap();
    // SAFETY: a new private mapping of the whole file, at an address that the kernel chooses.
    let memory = unsafe { mmap(ptr::null_mut(), 4096, READ_EXECUTE, PRIVATE_BELOW_2_GIB, file.as_raw_fd(), 0) };
    std::fs::remove_file(&path).unwrap();
    assert_ne!(memory as isize, -1);
    let start = memory as u64;
    file.write_all_at(CODE, OFFSET as u64).unwrap();
    file.write_all_at(&frames(start as u32 + OFFSET as u32), FRAMES_AT as u64).unwrap();
    start
}

/// Returns an `.eh_frame` with the description of code that begins at an address.
fn frames(start: u32) -> Vec<u8> {
    [&COMMON[..], &description(start)].concat()
}

/// Returns the function in a mapped file.
fn function(start: u64) -> Calls {
    let code = ptr::with_exposed_provenance::<c_void>(start as usize + OFFSET);
    // SAFETY: the code at this offset is a function of this type, and stays mapped.
    unsafe { std::mem::transmute::<*const c_void, Calls>(code) }
}

/// Returns a table with one module, whose path, index and generated frames follow each other.
fn table_of(record: ModuleRecord, rest: &[u8]) -> Vec<u8> {
    let length = (ModuleTable::head_length(1) + rest.len()) as u64;
    let words = [length, 1].into_iter().chain(record.to_words());
    words.flat_map(u64::to_ne_bytes).chain(rest.iter().copied()).collect()
}

#[test]
fn a_supplied_table_leads_through_a_file() {
    assert!(rules::initialise() && tree::initialise());
    // SAFETY: the C library sets it before any code of ours runs.
    bounds::set_first_top(unsafe { __libc_stack_end } as u64);
    *NODES.lock().unwrap() = Some(Nodes::default());
    let start = map_file("supplied");
    let code = function(start);

    // Nobody knows the file: it is asked for once, and not again.
    let outer = outer_frames();
    let stack = through(code);
    through(code);
    let return_address = start + OFFSET as u64 + 8;
    assert_eq!(with(|nodes| std::mem::take(&mut nodes.asked)), [return_address - 1]);
    assert_ne!(stack.get(4..), outer.get(1..), "no rule is known");

    // In another epoch it is asked for again, and the table has rules.
    let head = ModuleTable::head_length(1);
    let frames = self::frames(OFFSET as u32);
    let at = |offset: usize| (head + offset) as u64;
    let record = ModuleRecord {
        start,
        end: start + 4096,
        bias: start,
        path_at: at(0),
        path_length: 8,
        generated: FramesIndex { pairs_at: at(8), pairs: 1, frames_at: at(16), frames_length: frames.len() as u64 },
        ..ModuleRecord::default()
    };
    let rest = [&b"/test.so"[..], &pair(OFFSET as u32, COMMON.len() as u32), &frames].concat();
    let table = table_of(record, &rest);
    with(|nodes| nodes.table = Some(table.clone()));
    modules::advance_epoch();
    let outer = outer_frames();
    let stack = through(code);
    assert_eq!(stack[1], (NodeKind::Frame, return_address - 1));
    assert_eq!(stack[4..], outer[1..], "the frames outside of the code, and of the call");
    assert_eq!(with(|nodes| std::mem::take(&mut nodes.asked)), [return_address - 1]);
    assert!(with(|nodes| nodes.paths.iter().any(|path| path == b"/test.so")));

    // A table may be replaced while it is used; what is no table is refused.
    for _ in 0..100 {
        assert!(give(&table));
    }
    assert!(!give(&table[..table.len() - 1]));
    assert_eq!(modules::find(return_address).unwrap().bias_and_path(), (start, &b"/test.so"[..]));
    // While it is read it stays, and so no table is ever in the way of others for long.
    let found = modules::find(return_address).unwrap();
    let given = (0..20).take_while(|_| give(&table)).count();
    assert_eq!(found.bias_and_path().1, b"/test.so");
    assert!((1..20).contains(&given), "{given}");
    drop(found);
    assert!(give(&table));
    // A module is listed, but has no index: the table has one. It is there for the stack that asks.
    let start = map_file("listed");
    // SAFETY: `list` requires a mapped module that stays, as this one does; it has no name.
    unsafe { modules::list(Listed { start, end: start + 4096, bias: start, eh_frame_hdr: 0, name: ptr::null() }) };
    let (frames_at, frames_length) = (start + FRAMES_AT as u64, frames.len() as u64);
    let found = FramesIndex { pairs_at: at(8), pairs: 1, frames_at, frames_length };
    let record =
        ModuleRecord { start, end: start + 4096, bias: start, found, generated: FramesIndex::default(), ..record };
    with(|nodes| nodes.table = Some(table_of(record, &rest)));
    modules::advance_epoch();
    let outer = outer_frames();
    let stack = through(function(start));
    assert_eq!(with(|nodes| std::mem::take(&mut nodes.asked)), [start + OFFSET as u64 + 7]);
    assert_eq!(stack[4..], outer[1..], "the frames outside of the code, and of the call");
}
