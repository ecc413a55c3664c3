//! Looks for addresses in the registers and on the stacks of stopped threads.

use std::ops::Range;

use crate::maps::Mapping;
use crate::memory::Memory;
use crate::ptrace::Registers;
use crate::threads::Threads;

/// The bytes below the stack pointer that a function may use without moving it (System V psABI, the
/// red zone).
const RED_ZONE: u64 = 128;
/// The bytes of a stack that are read at once.
const PIECE: usize = 64 << 10;

impl Threads {
    /// True if a word on the stack of a thread, or in its registers, is an address in one of these
    /// ranges, given in ascending order. Any word counts that might be one: a return address, the
    /// place that a signal handler goes back to, or rubbish.
    ///
    /// Looks at no more than `length_max` bytes of each stack, from the stack pointer on. Costs
    /// about a microsecond for each 10 KiB of them. Nothing is known of a thread that waits in
    /// `vfork`: it is in the C library's function, and that in code of the program or of a library.
    pub fn refer_to(&self, ranges: &[Range<u64>], memory: &Memory, mappings: &[Mapping], length_max: u64) -> bool {
        let mut buffer = vec![0; PIECE];
        self.all_registers().any(|(_, registers)| {
            registers_refer_to(&registers, ranges) || {
                let from = registers.rsp.saturating_sub(RED_ZONE) & !7;
                let stack = stack_of(&registers, mappings);
                // The red zone may be in a page below, which is not mapped yet.
                let from = stack.map_or(from, |stack| from.max(stack.range.start));
                let end = stack.map_or(from, |stack| stack.range.end).min(from.saturating_add(length_max));
                words_refer_to(from..end, ranges, memory, &mut buffer)
            }
        })
    }
}

/// The place of a thread in its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address of its next instruction.
    pub instruction: u64,
    /// The thread pointer: the base of the segment register fs.
    pub thread_pointer: u64,
}

/// The bytes of a signal frame before the address of the interrupted instruction: the address of
/// the restorer, and in `struct ucontext` the flags, the link, the stack and 16 registers.
const FRAME_BEFORE_INSTRUCTION: u64 = 8 + 8 + 8 + 24 + 16 * 8;
/// The beginnings of restorers: rt_sigreturn(2), with its number in all 64 bits of the register, or
/// in the lower 32.
const RESTORERS: [&[u8]; 2] = [&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05], &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05]];

impl Threads {
    /// True if the stack of each stopped thread is in one of these mappings. Mappings that were
    /// read before the threads were stopped may have changed since.
    pub fn have_stacks_in(&self, mappings: &[Mapping]) -> bool {
        self.all_registers().all(|(_, registers)| stack_of(&registers, mappings).is_some())
    }

    /// Returns the places of the stopped threads.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        self.all_registers()
            .map(|(_, registers)| Place { instruction: registers.rip, thread_pointer: registers.fs_base })
    }

    /// True if a signal handler of a thread goes back to an address in one of these ranges, given
    /// in ascending order: exact, by the frames that the kernel lays out for handlers. Looks at
    /// each stack as [`refer_to`](Threads::refer_to) does.
    pub fn are_interrupted_in(&self, ranges: &[Range<u64>], memory: &Memory, mappings: &[Mapping]) -> bool {
        let mut buffer = vec![0; PIECE];
        self.all_registers().any(|(_, registers)| {
            let Some(stack) = stack_of(&registers, mappings) else { return false };
            let mut from = registers.rsp & !7;
            loop {
                let mut found = None;
                for_each_word(from..stack.range.end, memory, &mut buffer, |at, word| {
                    found = is_in(word, ranges).then_some(at);
                    found.is_none()
                });
                match found {
                    None => return false,
                    Some(at) if is_signal_frame(at, memory) => return true,
                    Some(at) => from = at + 8,
                }
            }
        })
    }
}

/// True if a word on a stack is the address of the interrupted instruction in a signal frame.
fn is_signal_frame(at: u64, memory: &Memory) -> bool {
    let mut restorer = [0; 8];
    if memory.read(at.wrapping_sub(FRAME_BEFORE_INSTRUCTION), &mut restorer).is_err() {
        return false;
    }
    let mut code = [0; 9];
    let count = memory.read_some(u64::from_ne_bytes(restorer), &mut code);
    RESTORERS.iter().any(|restorer| code.get(..count).is_some_and(|code| code.starts_with(restorer)))
}

/// Returns the mapping of a thread's stack. The mappings are in ascending order.
fn stack_of<'m>(registers: &Registers, mappings: &'m [Mapping]) -> Option<&'m Mapping> {
    let behind = mappings.partition_point(|mapping| mapping.range.end <= registers.rsp);
    mappings.get(behind).filter(|mapping| mapping.range.contains(&registers.rsp))
}

fn registers_refer_to(registers: &Registers, ranges: &[Range<u64>]) -> bool {
    let Registers { rip, rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15, .. } = *registers;
    [rip, rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15]
        .into_iter()
        .any(|word| is_in(word, ranges))
}

fn words_refer_to(stack: Range<u64>, ranges: &[Range<u64>], memory: &Memory, buffer: &mut [u8]) -> bool {
    !for_each_word(stack, memory, buffer, |_, word| !is_in(word, ranges))
}

/// Calls `visit` with the words of a part of a stack and their addresses until it returns false.
/// Returns false then.
fn for_each_word(
    stack: Range<u64>,
    memory: &Memory,
    buffer: &mut [u8],
    mut visit: impl FnMut(u64, u64) -> bool,
) -> bool {
    let mut at = stack.start;
    while at < stack.end {
        let length = (stack.end - at).min(buffer.len() as u64) as usize;
        let Some(bytes) = buffer.get_mut(..length) else { return true };
        let count = memory.read_some(at, bytes);
        let words = bytes.get(..count).unwrap_or(&[]).as_chunks::<8>().0;
        for (index, word) in words.iter().enumerate() {
            if !visit(at + index as u64 * 8, u64::from_ne_bytes(*word)) {
                return false;
            }
        }
        if count < length {
            return true;
        }
        at += length as u64;
    }
    true
}

/// True if an address is in one of these ranges, which are in ascending order.
#[inline]
fn is_in(address: u64, ranges: &[Range<u64>]) -> bool {
    let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return false };
    // Most words are far away.
    if address < first.start || address >= last.end {
        return false;
    }
    let behind = ranges.partition_point(|range| range.end <= address);
    ranges.get(behind).is_some_and(|range| range.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::is_in;

    #[test]
    fn addresses_are_in_half_open_ranges() {
        let ranges = [10..20, 20..30, 40..41];
        for (address, expected) in
            [(9, false), (10, true), (20, true), (29, true), (30, false), (40, true), (41, false)]
        {
            assert_eq!(is_in(address, &ranges), expected, "{address}");
        }
        assert!(!is_in(0, &[]));
    }
}
