use std::fs;
use std::string::String;

use super::*;

const MAP_ANONYMOUS: usize = 0x20;
const NO_OP: u8 = 0x90;

/// A page of code: `nop`, and `ret` at its end.
struct Code(*mut u8);

impl Code {
    fn new() -> Code {
        let arguments = [0, 2 * PAGE as usize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, usize::MAX, 0];
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let address = check(unsafe { call(nr::MMAP, arguments) }).unwrap();
        let code: *mut u8 = ptr::with_exposed_provenance_mut(address);
        // SAFETY: the second page is this test's own, and nothing refers to it.
        check(unsafe { call(nr::MUNMAP, [address + PAGE as usize, PAGE as usize, 0, 0, 0, 0]) }).unwrap();
        // SAFETY: the page is writable, and nothing else refers to it.
        let bytes = unsafe { core::slice::from_raw_parts_mut(code, PAGE as usize) };
        bytes.fill(NO_OP);
        bytes[PAGE as usize - 1] = 0xc3;
        // SAFETY: the page is this test's own.
        check(unsafe { call(nr::MPROTECT, [address, PAGE as usize, PROT_READ | PROT_EXEC, 0, 0, 0]) }).unwrap();
        Code(code)
    }

    /// Returns a jump from the beginning to the end of the page.
    fn jump(&self) -> Jump {
        let address = self.0.addr() as u64;
        Jump::new(address, &[NO_OP; 19], address + PAGE - 1).unwrap()
    }

    fn first(&self) -> [u8; Jump::LENGTH] {
        // SAFETY: the page is readable all the time, and these bytes are inside of it.
        unsafe { self.0.cast::<[u8; Jump::LENGTH]>().read_volatile() }
    }

    fn run(&self) {
        // SAFETY: the page holds a C function without arguments and a result.
        unsafe { core::mem::transmute::<*mut u8, extern "C" fn()>(self.0)() };
    }

    /// Returns the protection, as `/proc/self/maps` writes it.
    fn protection(&self) -> String {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let is_it = |range: &str| {
            let (start, end) = range.split_once('-').unwrap();
            let number = |text| usize::from_str_radix(text, 16).unwrap();
            (number(start)..number(end)).contains(&self.0.addr())
        };
        let mut lines = maps.lines().filter_map(|line| line.split_once(' '));
        String::from(&lines.find(|(range, _)| is_it(range)).unwrap().1[..4])
    }
}

#[test]
fn both_ways_write_the_same() {
    for by_protection in [false, true] {
        let code = Code::new();
        let jump = code.jump();
        let memory = if by_protection { Memory::Protection } else { Memory::open() };
        // SAFETY: the jump is at the start of an instruction, in code that nobody else executes.
        assert!(unsafe { memory.write(&jump) });
        assert_eq!((code.first(), code.protection().as_str()), (jump.jump, "r-xp"));
        code.run();
    }
}

/// Another tool, or a relocation, may have changed any of the instructions that run elsewhere.
#[test]
fn all_displaced_bytes_are_compared() {
    let code = Code::new();
    let jump = code.jump();
    assert!(is_as_expected(&jump));
    for at in 0..20 {
        let address = jump.address + at;
        let mut patched = Jump::new(address, &[NO_OP; 5], address + PAGE - 1 - at).unwrap();
        let mut restored = patched;
        (patched.jump, restored.jump) = ([NO_OP, NO_OP, NO_OP, NO_OP, 0xcc], [NO_OP; 5]);
        // SAFETY: nobody executes the code.
        assert!(unsafe { Memory::Protection.write(&patched) });
        // The fifth byte is another one.
        assert_eq!(is_as_expected(&jump), at + 4 >= 19, "{at}");
        // SAFETY: as before.
        assert!(unsafe { Memory::Protection.write(&restored) });
    }
    let end = jump.address + PAGE;
    assert!(!is_as_expected(&Jump::new(end - 4, &[NO_OP; 5], end).unwrap()), "the next page is not there");
}

/// Nothing is written where memory must not be both writable and executable, and the code can still
/// be executed.
#[test]
fn a_refused_protection_leaves_the_code_as_it_is() {
    const PR_SET_MDWE: usize = 65;
    const PR_MDWE_REFUSE_EXEC_GAIN: usize = 1;
    const WAIT4: usize = 61;
    let code = Code::new();
    let jump = code.jump();
    // SAFETY: the call is made in a child that does nothing but system calls afterwards.
    let child = check(unsafe { call(nr::CLONE, [17, 0, 0, 0, 0, 0]) }).unwrap();
    if child == 0 {
        // SAFETY: `prctl` with this request changes the process's own rules for mappings only.
        let is_known = check(unsafe { call(nr::PRCTL, [PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0, 0]) }).is_ok();
        // SAFETY: the jump is at the start of an instruction, in code that nobody else executes.
        let is_written = is_known && unsafe { write_by_protection(&jump) };
        code.run();
        let is_well = !is_written && code.first() == [NO_OP; Jump::LENGTH];
        // SAFETY: ends this process, which has one thread.
        unsafe { call(nr::EXIT_GROUP, [usize::from(!is_well), 0, 0, 0, 0, 0]) };
    }
    let mut status = -1_i32;
    // SAFETY: the kernel writes the live integer.
    check(unsafe { call(WAIT4, [child, (&raw mut status).addr(), 0, 0, 0, 0]) }).unwrap();
    assert_eq!(status, 0, "it wrote, or its code could not be executed");
}
