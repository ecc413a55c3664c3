//! Captures stacks that lead through code made at run time, which no module covers.

#![cfg(all(target_arch = "x86_64", not(miri)))]

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;
use std::sync::{LazyLock, Mutex};

use heapledger_core::{GENERATED_CODE, NodeKind, StackId};
use heapledger_unwind::arch::FrameRegisters;
use heapledger_unwind::modules::Module;
use heapledger_unwind::walk::Walker;
use heapledger_unwind::{Sink, bounds, rules, tree};

unsafe extern "C" {
    static __libc_stack_end: *mut c_void;
    fn mmap(at: *mut c_void, length: usize, protection: i32, flags: i32, fd: i32, offset: i64) -> *mut c_void;
}

#[derive(Default)]
struct Nodes {
    parents: HashMap<StackId, (StackId, NodeKind, u64)>,
    modules: Vec<(u64, u64, Vec<u8>)>,
}

impl Sink for Nodes {
    fn node(&mut self, id: StackId, parent: StackId, kind: NodeKind, address: u64) -> bool {
        self.parents.insert(id, (parent, kind, address)).is_none()
    }

    fn module(&mut self, module: &Module<'_>) -> bool {
        self.modules.push((module.start, module.end, module.path.to_vec()));
        true
    }
}

/// The nodes of the tree, which is shared by the whole process; the walker is the thread's.
static NODES: LazyLock<Mutex<Nodes>> = LazyLock::new(|| {
    assert!(rules::initialise() && tree::initialise());
    // SAFETY: the C library sets it before any code of ours runs.
    bounds::set_first_top(unsafe { __libc_stack_end } as u64);
    Mutex::default()
});

thread_local! {
    // SAFETY: `zeroed` requires that zeroes are a valid value: those of a `Walker` are, as its
    // documentation says.
    static WALKER: RefCell<Box<Walker>> = RefCell::new(Box::new(unsafe { std::mem::zeroed() }));
    /// The stack that was captured last, the innermost frame first, and the number of lost ones.
    static STACK: RefCell<(Vec<(NodeKind, u64)>, u64)> = RefCell::default();
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
        let nodes = &mut *NODES.lock().unwrap();
        let lost = walker.incomplete.lost;
        // SAFETY: these are this frame's registers, and the frame stays live.
        let mut id = unsafe { walker.capture(FrameRegisters { slot: sp - 8, return_address: lookup + 1, rbp }, nodes) };
        let mut found = Vec::new();
        while id != StackId::ROOT {
            let (parent, kind, address) = nodes.parents[&id];
            found.push((kind, address));
            id = parent;
        }
        STACK.set((found, walker.incomplete.lost - lost));
    });
}

/// A function that calls its first argument, and its fourth.
type Calls = extern "C" fn(extern "C" fn(), usize, usize, extern "C" fn());

/// `push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret`.
const WITH_FRAME_POINTER: &[u8] = &[0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3];
/// CPython's: `sub $8,%rsp; call *%rcx; add $8,%rsp; ret`.
const TRAMPOLINE: &[u8] = &[0x48, 0x83, 0xec, 0x08, 0xff, 0xd1, 0x48, 0x83, 0xc4, 0x08, 0xc3];
/// `push %rbp; lea 1(%rsp),%rbp; call *%rdi; pop %rbp; ret`: rbp is not aligned.
const WITH_OTHER_DATA: &[u8] = &[0x55, 0x48, 0x8d, 0x6c, 0x24, 0x01, 0xff, 0xd7, 0x5d, 0xc3];
/// `push %rbp; push $1; push $1; mov %rsp,%rbp; call *%rdi; pop %rcx; pop %rcx; pop %rbp; ret`: rbp
/// leads to words that are no frame.
const TO_NO_CODE: &[u8] = &[0x55, 0x6a, 0x01, 0x6a, 0x01, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x59, 0x59, 0x5d, 0xc3];

/// Puts code where no module is.
fn place(code: &[u8]) -> Calls {
    const READ_WRITE_EXECUTE: i32 = 7;
    const PRIVATE_ANONYMOUS: i32 = 0x22;
    // SAFETY: a new mapping, at an address that the kernel chooses; it is large enough for the
    // code, is never unmapped, and the code is a function of this type.
    unsafe {
        let memory = mmap(ptr::null_mut(), 4096, READ_WRITE_EXECUTE, PRIVATE_ANONYMOUS, -1, 0);
        assert_ne!(memory as isize, -1);
        memory.cast::<u8>().copy_from(code.as_ptr(), code.len());
        std::mem::transmute::<*mut c_void, Calls>(memory)
    }
}

/// Captures a stack through the code, a second time with the memory of the first. Returns the
/// frames, and the number of stacks that ended early.
#[inline(never)]
fn through(code: Calls) -> (Vec<(NodeKind, u64)>, u64) {
    WALKER.with_borrow_mut(|walker| walker.forget());
    let mut stacks = Vec::new();
    while stacks.len() < black_box(2) {
        code(capture, 0, 0, capture);
        stacks.push(STACK.take());
    }
    assert_eq!(stacks[0].0, stacks[1].0);
    stacks.swap_remove(0)
}

/// Returns the position of the one frame in the code.
fn frame_in(stack: &[(NodeKind, u64)], code: Calls) -> usize {
    let is_in = |&(_, address): &(NodeKind, u64)| address.wrapping_sub(code as usize as u64) < 4096;
    assert_eq!(stack.iter().filter(|frame| is_in(frame)).count(), 1, "{stack:x?}");
    stack.iter().position(is_in).unwrap()
}

/// Returns the frames outside of this function, as a stack without such code has them.
#[inline(never)]
fn outer_frames() -> Vec<(NodeKind, u64)> {
    capture();
    let (stack, lost) = STACK.take();
    assert_eq!(lost, 0);
    stack[2..].to_vec()
}

#[test]
fn frame_pointers_lead_through_and_are_not_proven() {
    let outer = outer_frames();
    let code = place(WITH_FRAME_POINTER);
    let (stack, lost) = through(code);
    let at = frame_in(&stack, code);
    assert_eq!((stack[at].0, lost), (NodeKind::UnprovenFrame, 0));
    assert!(stack.iter().enumerate().all(|(other, frame)| other == at || frame.0 == NodeKind::Frame));
    // This function is at another call.
    assert_eq!(stack[stack.len() - outer.len() + 1..], outer[1..], "{stack:x?}");
    let announced = |module: &&(u64, u64, Vec<u8>)| (module.0..module.1).contains(&(code as usize as u64));
    let nodes = NODES.lock().unwrap();
    let modules: Vec<_> = nodes.modules.iter().filter(announced).collect();
    // Mappings of other tests may border on this one, and be announced with it.
    assert!(!modules.is_empty() && modules.iter().all(|module| module.2 == GENERATED_CODE), "{modules:x?}");
}

#[test]
fn trampolines_are_exact() {
    let outer = outer_frames();
    let code = place(TRAMPOLINE);
    let (stack, lost) = through(code);
    assert_eq!((stack[frame_in(&stack, code)].0, lost), (NodeKind::Frame, 0));
    assert!(stack.iter().all(|frame| frame.0 == NodeKind::Frame));
    assert_eq!(stack[stack.len() - outer.len() + 1..], outer[1..], "{stack:x?}");
}

#[test]
fn what_is_no_frame_pointer_ends_the_stack() {
    for code in [WITH_OTHER_DATA, TO_NO_CODE] {
        let code = place(code);
        let (stack, lost) = through(code);
        // No frame is outside of the code.
        assert_eq!((frame_in(&stack, code), lost), (stack.len() - 1, 1), "{stack:x?}");
    }
}

/// The frames of a module that has no `.eh_frame_hdr` are the module's, and no frame pointer leads
/// out of them: the program may use rbp for anything.
#[test]
fn a_module_without_unwind_information_is_no_generated_code() {
    unsafe extern "C" {
        fn dlopen(path: *const std::ffi::c_char, flags: i32) -> *mut c_void;
        fn dlsym(library: *mut c_void, name: *const std::ffi::c_char) -> *mut c_void;
    }
    const RTLD_NOW: i32 = 2;
    let directory = std::env::temp_dir().join(format!("heapledger-unwind-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (source, library) = (directory.join("through.c"), directory.join("libthrough.so"));
    std::fs::write(&source, "void through(void (*f)(void)) { f(); __asm__ volatile(\"\"); }\n").unwrap();
    let arguments = ["-O2", "-fomit-frame-pointer", "-shared", "-fPIC", "-Wl,--no-eh-frame-hdr", "-o"];
    let compiler = std::process::Command::new("cc").args(arguments).arg(&library).arg(&source).status();
    assert!(compiler.unwrap().success());
    let path = std::ffi::CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: the library runs no code when it is loaded, is never unloaded, and its function may
    // be called as one of this type: it ignores all arguments but the first.
    let code = unsafe {
        let loaded = dlopen(path.as_ptr(), RTLD_NOW);
        assert!(!loaded.is_null());
        std::mem::transmute::<*mut c_void, Calls>(dlsym(loaded, c"through".as_ptr()))
    };
    std::fs::remove_dir_all(&directory).unwrap();
    let (stack, lost) = through(code);
    assert_eq!((frame_in(&stack, code), lost), (stack.len() - 1, 1), "{stack:x?}");
    assert!(stack.iter().all(|frame| frame.0 == NodeKind::Frame), "{stack:x?}");
    let nodes = NODES.lock().unwrap();
    let at = code as usize as u64;
    let module = nodes.modules.iter().find(|module| (module.0..module.1).contains(&at)).unwrap();
    assert_eq!(module.2, path.as_bytes());
}
