use core::arch::asm;
use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::ptr;
use std::thread_local;

use super::*;

/// The C library's `struct sigaction` on x86-64.
#[repr(C)]
struct Action {
    handler: extern "C" fn(c_int, *mut c_void, *mut Context),
    mask: [u64; 16],
    flags: c_int,
    restorer: usize,
}

/// The beginning of the C library's `ucontext_t` on x86-64.
#[repr(C)]
struct Context {
    head: [u64; 5],
    registers: [u64; 23],
}

unsafe extern "C" {
    fn sigaction(signal: c_int, action: *const Action, old: *mut Action) -> c_int;
}

const SIGTRAP: c_int = 5;
const SA_SIGINFO: c_int = 4;
/// The position of the processor's flags among the registers.
const FLAGS: usize = 17;
/// The flag with which the processor stops after each instruction.
const TRAP: u64 = 0x100;

/// The number of instructions between two at which the handler comes.
const STEP: usize = 101;

thread_local! {
    /// The number of instructions before the handler allocates and frees; `usize::MAX` once it has.
    static LEFT: Cell<usize> = const { Cell::new(0) };
    /// True if the handler got its own blocks.
    static IS_RIGHT: Cell<bool> = const { Cell::new(true) };
}

fn block(address: u64, usable: u64) -> FreedBlock {
    let number = usable as u32;
    FreedBlock {
        address,
        size: usable - 1,
        usable,
        stamp: number + 1,
        freed_by: number as u8,
        allocated_at: StackId(number + 2),
        freed_at: StackId(number + 3),
        freed_in: ThreadId(number + 4),
    }
}

fn are_equal(one: &FreedBlock, other: &FreedBlock) -> bool {
    let words = |block: &FreedBlock| [block.address, block.size, block.usable];
    let numbers = |block: &FreedBlock| [block.stamp, block.allocated_at.0, block.freed_at.0, block.freed_in.0];
    words(one) == words(other) && numbers(one) == numbers(other) && one.freed_by == other.freed_by
}

/// Allocates a block and frees it; returns true for each if the words said nothing wrong about it,
/// and true for each about which they said anything.
#[inline(never)]
fn allocate_and_free(block: FreedBlock) -> ([bool; 2], [bool; 2]) {
    let guarded = Guarded { address: block.address as usize, usable: block.usable as usize, front: Front::PLAIN };
    set_guarded(guarded);
    let new = take_guarded(guarded.address);
    set_freeing(guarded.address, Some(Freeing::Known(block)));
    let freeing = take_freeing(guarded.address);
    let is_right = match freeing {
        None => true,
        Some(Freeing::Known(found)) => are_equal(&found, &block),
        Some(Freeing::Unknown | Freeing::Second) => false,
    };
    ([new.is_none_or(|new| new == guarded), is_right], [new.is_some(), freeing.is_some()])
}

extern "C" fn on_trap(_: c_int, _: *mut c_void, context: *mut Context) {
    let left = LEFT.get();
    LEFT.set(left.wrapping_sub(1));
    if left == 0 {
        IS_RIGHT.set(IS_RIGHT.get() && allocate_and_free(block(0x2000, 5000)) == ([true; 2], [true; 2]));
        // SAFETY: the kernel has given the handler this context, which it may change.
        unsafe { (*context).registers[FLAGS] &= !TRAP };
    }
}

/// Sets or clears the flag with which the processor stops after each instruction.
///
/// # Safety
///
/// There is a handler for the signal.
#[inline(always)]
unsafe fn set_trap(is_on: bool) {
    let (keep, set) = (!TRAP, if is_on { TRAP } else { 0 });
    // SAFETY: the flags go through the stack, and this one has no effect but the signal, for which
    // there is a handler, by this function's `# Safety`.
    unsafe {
        asm!(
            "pushfq", "and qword ptr [rsp], {keep}", "or qword ptr [rsp], {set}", "popfq",
            keep = in(reg) keep, set = in(reg) set,
        );
    }
}

/// A signal handler allocates and frees after some instructions of an allocation and a free: all
/// would take half a minute, most of it in the kernel.
#[test]
fn handlers_between_the_words_mix_no_blocks() {
    let action = Action { handler: on_trap, mask: [0; 16], flags: SA_SIGINFO, restorer: 0 };
    // SAFETY: the action is as the C library demands, and the handler stays.
    assert_eq!(unsafe { sigaction(SIGTRAP, &raw const action, ptr::null_mut()) }, 0);
    let mut unsaid = 0;
    for instructions in (0..).step_by(STEP) {
        LEFT.set(instructions);
        // SAFETY: the handler has been installed above.
        unsafe { set_trap(true) };
        let (are_right, are_said) = allocate_and_free(block(0x1000, 40));
        // SAFETY: the handler has been installed above.
        unsafe { set_trap(false) };
        assert_eq!(are_right, [true; 2], "after {instructions} instructions");
        assert!(IS_RIGHT.get(), "after {instructions} instructions");
        if LEFT.get() != usize::MAX {
            assert_eq!(are_said, [true; 2], "nobody came between");
            assert!(instructions > 10 * STEP && unsaid > 3, "{instructions} instructions, {unsaid} unsaid");
            return;
        }
        unsaid += usize::from(are_said != [true; 2]);
    }
}
