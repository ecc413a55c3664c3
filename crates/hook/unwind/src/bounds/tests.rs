use core::ffi::c_void;
use core::ptr;

use super::*;

unsafe extern "C" {
    fn mmap(at: *mut c_void, length: usize, protection: i32, flags: i32, fd: i32, offset: i64) -> *mut c_void;
    fn munmap(at: *mut c_void, length: usize) -> i32;
}

/// Maps pages, each of which has its number in all its words. Returns the address.
fn pages(count: u64) -> u64 {
    const READ_WRITE: i32 = 3;
    const PRIVATE_ANONYMOUS: i32 = 0x22;
    // SAFETY: `mmap` makes a new mapping at an address that the kernel chooses, and the words are
    // in it.
    unsafe {
        let memory = mmap(ptr::null_mut(), (count * PAGE) as usize, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0);
        assert_ne!(memory as isize, -1);
        for word in 0..count * PAGE / 8 {
            memory.cast::<u64>().add(word as usize).write(word * 8 / PAGE);
        }
        memory as u64
    }
}

/// Another thread may unmap memory between two reads of a walk.
#[test]
fn memory_that_vanishes_after_a_step_without_proof_is_no_fault() {
    let memory = pages(3);
    let mut stack = Stack { low: 0, high: 0, pages_left: 0, is_unproven: false };
    stack.enter(memory + PAGE - 64);
    assert_eq!((stack.word(memory + PAGE - 64), stack.word(memory + PAGE - 72)), (Some(0), None));
    stack.distrust();
    let beyond = memory + 2 * PAGE + 8;
    assert_eq!((stack.word(memory + PAGE - 8), stack.word(beyond), stack.word(beyond + 1)), (Some(0), Some(2), None));
    assert!(!stack.is_known_readable(beyond));
    // The start of a stack that a wrong step has led to is not more certain.
    let mut other = stack;
    other.enter(beyond);
    assert_eq!(other.word(beyond + 16), Some(2));
    // SAFETY: `munmap` removes this test's own page, to which there is no reference.
    assert_eq!(unsafe { munmap(ptr::with_exposed_provenance_mut((memory + 2 * PAGE) as usize), PAGE as usize) }, 0);
    assert_eq!((stack.word(beyond), other.word(beyond + 16)), (None, None));
    assert_eq!(stack.word(memory + PAGE - 8), Some(0));
}

#[test]
fn a_step_without_proof_leads_no_further_than_others() {
    let memory = pages(FOREIGN_PAGES_MAX + 2);
    for is_unproven in [false, true] {
        let mut stack = Stack { low: 0, high: 0, pages_left: 0, is_unproven };
        stack.enter(memory);
        assert_eq!(stack.word(memory + FOREIGN_PAGES_MAX * PAGE), None);
        assert_eq!(stack.word(memory + FOREIGN_PAGES_MAX * PAGE - 8), Some(FOREIGN_PAGES_MAX - 1));
    }
}
