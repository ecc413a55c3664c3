//! Words of each thread: stable Rust has no `#[thread_local]`.

/// Defines words of each thread, and functions that return and set one of them, by its offset.
///
/// The words have a name of their own in the loaded object, and a length in bytes. They are 0 at
/// the start of every thread. The function that sets one may be left out.
///
/// The words are initial-exec thread-local storage: an access takes two instructions and never
/// calls `__tls_get_addr`, which may allocate. The price is their length in the static TLS space of
/// every thread.
#[macro_export]
macro_rules! define_thread_words {
    ($symbol:literal, $bytes:literal, $see:vis $word:ident, $see_set:vis $set_word:ident) => {
        $crate::define_thread_words!($symbol, $bytes, $see $word);

        /// Sets this thread's word at an offset, a multiple of 8.
        #[inline(always)]
        $see_set fn $set_word<const OFFSET: usize>(word: usize) {
            const { assert!(OFFSET < $bytes && OFFSET.is_multiple_of(8)) };
            // SAFETY: writes this thread's copy of the variable that the macro declares, inside of
            // its length, by the initial-exec sequence of the x86-64 TLS ABI. Nobody has a
            // reference to it, since only assembly accesses it.
            unsafe {
                core::arch::asm!(
                    concat!("mov {at}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                    "mov qword ptr fs:[{at} + {offset}], {word}",
                    at = out(reg) _,
                    word = in(reg) word,
                    offset = const OFFSET,
                    options(nostack, preserves_flags),
                );
            }
        }
    };
    ($symbol:literal, $bytes:literal, $see:vis $word:ident) => {
        core::arch::global_asm!(
            ".pushsection .tbss,\"awT\",@nobits",
            concat!(".globl ", $symbol),
            concat!(".hidden ", $symbol),
            concat!(".type ", $symbol, ", @object"),
            concat!(".size ", $symbol, ", ", $bytes),
            ".p2align 4",
            concat!($symbol, ":"),
            concat!(".zero ", $bytes),
            ".popsection",
        );

        /// Returns this thread's word at an offset, a multiple of 8. It is 0 at the start of every
        /// thread.
        #[inline(always)]
        $see fn $word<const OFFSET: usize>() -> usize {
            const { assert!(OFFSET < $bytes && OFFSET.is_multiple_of(8)) };
            let word: usize;
            // SAFETY: reads this thread's copy of the variable that the macro declares, inside of
            // its length, by the initial-exec sequence of the x86-64 TLS ABI.
            unsafe {
                core::arch::asm!(
                    concat!("mov {word}, qword ptr [rip + ", $symbol, "@GOTTPOFF]"),
                    "mov {word}, qword ptr fs:[{word} + {offset}]",
                    word = out(reg) word,
                    offset = const OFFSET,
                    options(nostack, preserves_flags, readonly),
                );
            }
            word
        }
    };
}
