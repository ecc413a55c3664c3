use super::*;
use crate::plan::tests::{AT, module};

fn clobbers_all(code: &[u8]) -> bool {
    seen_to_clobber_all(&module(code), AT)
}

/// `call [rip + 0]` and `jmp [rip + 0]`: another file's function.
const CALL: [u8; 6] = [0xff, 0x15, 0, 0, 0, 0];
const JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];
const RETURN: u8 = 0xc3;
const NO_OP: u8 = 0x90;

#[test]
fn functions_that_call_unknown_ones_change_all_registers() {
    assert!(clobbers_all(&CALL));
    assert!(clobbers_all(&JUMP));
    // call rdx; call [rax + 8]
    assert!(clobbers_all(&[0xff, 0xd2]));
    assert!(clobbers_all(&[0xff, 0x50, 8]));
    // mov rax, [rax + 8]; xor esi, esi; pop rbp; jmp rax
    assert!(clobbers_all(&[0x48, 0x8b, 0x40, 8, 0x31, 0xf6, 0x5d, 0xff, 0xe0]));
    // test edi, edi; jz to a call behind the return
    assert!(clobbers_all(&[&[0x85, 0xff, 0x74, 1, RETURN][..], &CALL].concat()));
    // jmp over a return; the same with `call`, as of a function in the linker's table
    assert!(clobbers_all(&[&[0xeb, 1, RETURN][..], &JUMP].concat()));
    assert!(clobbers_all(&[&[0xe8, 1, 0, 0, 0, RETURN][..], &JUMP].concat()));
}

#[test]
fn functions_that_call_no_unknown_ones_may_keep_some() {
    assert!(!clobbers_all(&[RETURN]));
    assert!(!clobbers_all(&[]));
    // A call behind the end is another function's.
    assert!(!clobbers_all(&[&[RETURN][..], &CALL].concat()));
    // syscall; ret
    assert!(!clobbers_all(&[0x0f, 0x05, RETURN]));
    // jmp rax, and jmp [8 * rax + 0x1000]: a `switch`
    assert!(!clobbers_all(&[0xff, 0xe0]));
    assert!(!clobbers_all(&[0xff, 0x24, 0xc5, 0, 0x10, 0, 0]));
    // mov rax, [8 * rax + 0x1000]; jmp rax: another `switch`. And a third:
    // movsxd rax, [rdx + 4 * rax]; add rax, rdx; jmp rax
    assert!(!clobbers_all(&[0x48, 0x8b, 0x04, 0xc5, 0, 0x10, 0, 0, 0xff, 0xe0]));
    assert!(!clobbers_all(&[0x48, 0x63, 0x04, 0x82, 0x48, 0x01, 0xd0, 0xff, 0xe0]));
    // mov rax, [rax + 8]; add eax, 1; jmp rax. The same with another register between: jmp rcx
    assert!(!clobbers_all(&[0x48, 0x8b, 0x40, 8, 0x83, 0xc0, 1, 0xff, 0xe0]));
    assert!(!clobbers_all(&[0x48, 0x8b, 0x40, 8, 0xff, 0xe1]));
    // data16 lea rdi, …; call [rax]: a TLS descriptor
    assert!(!clobbers_all(&[0x48, 0x8d, 0x05, 0, 0, 0, 0, 0xff, 0x10, RETURN]));
    // A loop, and bytes that are no instruction.
    assert!(!clobbers_all(&[NO_OP, 0xeb, 0xfd]));
    assert!(!clobbers_all(&[0x06]));
}

/// Behind a call of a function that never returns another function may begin.
#[test]
fn code_behind_a_call_counts_if_the_callee_returns() {
    // call the last function; call [rip + 0]; ret; ud2 or ret
    let with = |last: &[u8]| [&[0xe8, 7, 0, 0, 0][..], &CALL, &[RETURN], last].concat();
    assert!(clobbers_all(&with(&[RETURN])));
    assert!(!clobbers_all(&with(&[0x0f, 0x0b])));
    // Two functions that call each other, of which none returns.
    assert!(!clobbers_all(&[&[0xe8, 6, 0, 0, 0][..], &CALL, &[0xe8, 0xf0, 0xff, 0xff, 0xff]].concat()));
}

#[test]
fn the_search_ends() {
    let code = [vec![NO_OP; INSTRUCTIONS_MAX], CALL.to_vec()].concat();
    assert!(!clobbers_all(&code));
    assert!(clobbers_all(&code[1..]));
}
