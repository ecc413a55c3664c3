//! Assembly for naked functions that call compiled code where no register may be lost.
//!
//! The loaded objects that use it change no vector registers but the first eight, which the test
//! `laws` checks. The assembly has no label, and no operands of its own.

/// Evaluates to the assembly that saves the first eight vector registers in the 128 bytes at the
/// stack pointer, which is a multiple of 16.
#[macro_export]
macro_rules! save_vectors {
    () => {
        "movaps xmmword ptr [rsp], xmm0
        movaps xmmword ptr [rsp + 16], xmm1
        movaps xmmword ptr [rsp + 32], xmm2
        movaps xmmword ptr [rsp + 48], xmm3
        movaps xmmword ptr [rsp + 64], xmm4
        movaps xmmword ptr [rsp + 80], xmm5
        movaps xmmword ptr [rsp + 96], xmm6
        movaps xmmword ptr [rsp + 112], xmm7"
    };
}

/// Evaluates to the assembly that restores what [`save_vectors!`](crate::save_vectors) has saved.
#[macro_export]
macro_rules! restore_vectors {
    () => {
        "movaps xmm0, xmmword ptr [rsp]
        movaps xmm1, xmmword ptr [rsp + 16]
        movaps xmm2, xmmword ptr [rsp + 32]
        movaps xmm3, xmmword ptr [rsp + 48]
        movaps xmm4, xmmword ptr [rsp + 64]
        movaps xmm5, xmmword ptr [rsp + 80]
        movaps xmm6, xmmword ptr [rsp + 96]
        movaps xmm7, xmmword ptr [rsp + 112]"
    };
}

/// Evaluates to the assembly of a function that calls another one, and changes no register but
/// rflags: one that a call may come to unnoticed.
///
/// The function that is called gets the arguments of this one. The stack pointer may be any
/// multiple of 8. With `to r10` the result is returned in that register, which is then the only one
/// that is changed.
#[macro_export]
macro_rules! preserved_call {
    ($function:literal) => {
        $crate::preserved_call!(@ $function, "")
    };
    ($function:literal to r10) => {
        $crate::preserved_call!(@ $function, "mov qword ptr [rbp - 64], rax\n")
    };
    (@ $function:literal, $result:literal) => {
        concat!(
            ".cfi_startproc\n",
            "push rbp\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset rbp, 0\n",
            "mov rbp, rsp\n.cfi_def_cfa_register rbp\n",
            "push rax\npush rcx\npush rdx\npush rsi\npush rdi\npush r8\npush r9\npush r10\npush r11\n",
            "sub rsp, 136\n",
            "and rsp, -16\n",
            $crate::save_vectors!(),
            "\ncall ", $function, "\n",
            $crate::restore_vectors!(),
            "\n", $result,
            "lea rsp, [rbp - 72]\n",
            "pop r11\npop r10\npop r9\npop r8\npop rdi\npop rsi\npop rdx\npop rcx\npop rax\n",
            "pop rbp\n.cfi_def_cfa rsp, 8\n",
            "ret\n.cfi_endproc"
        )
    };
}
