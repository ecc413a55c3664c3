//! The environment of a program that has not run yet, as it is on its stack.
//!
//! The stack of a new process begins with the argument count, the addresses of the arguments and of
//! the variables, each list ended by 0, and the auxiliary vector (System V psABI). They are written
//! anew below, with other variables. The kernel keeps where the texts are that it has put there
//! itself: `/proc/PID/environ` does not change.

use crate::error::{InjectError, Result};
use crate::launch::ExecStop;
use crate::remote::Tracee;

/// The most words of the vectors.
const WORDS_MAX: usize = 1 << 20;
/// The most bytes of a variable, as the kernel has it (`MAX_ARG_STRLEN`).
const TEXT_MAX: usize = 128 << 10;
/// The most bytes that are written: the kernel has made the stack 128 KiB longer than it needs.
const WRITTEN_MAX: usize = 96 << 10;

impl ExecStop {
    /// Gives the program another environment: `change` is given the entries, `NAME=VALUE` as a
    /// rule, and returns those that the program is to have. What the kernel knows of the
    /// environment stays.
    ///
    /// # Errors
    ///
    /// Fails if the stack cannot be read, or has no room; then nothing has changed.
    pub fn change_environment(&mut self, change: impl FnOnce(Vec<Vec<u8>>) -> Vec<Vec<u8>>) -> Result<()> {
        let top = self.stack_top();
        let stack = Stack::read(self.tracee(), top)?;
        let mut texts = Vec::new();
        for &at in &stack.variables {
            texts.push(text(self.tracee(), at)?);
        }
        let changed = change(texts.clone());
        // Entries that stay keep their places.
        let known = |entry: &Vec<u8>| Some(stack.variables[texts.iter().position(|text| text == entry)?]);
        let fresh: usize = changed.iter().filter(|entry| known(entry).is_none()).map(|entry| entry.len() + 1).sum();
        let words = 1 + stack.arguments.len() + 1 + changed.len() + 1 + stack.auxiliary.len();
        let length = words * 8 + fresh;
        if length > WRITTEN_MAX {
            return Err(InjectError::Call {
                what: "take a larger environment",
                source: std::io::ErrorKind::OutOfMemory.into(),
            });
        }
        let start = (top - length as u64) & !15;
        let mut vector = vec![stack.arguments.len() as u64];
        vector.extend(stack.arguments.iter().copied().chain([0]));
        let mut bytes = Vec::new();
        for entry in &changed {
            vector.push(known(entry).unwrap_or(start + (words * 8 + bytes.len()) as u64));
            if known(entry).is_none() {
                bytes.extend(entry.iter().copied().chain([0]));
            }
        }
        vector.push(0);
        vector.extend(&stack.auxiliary);
        let mut written: Vec<u8> = vector.iter().flat_map(|word| word.to_ne_bytes()).collect();
        written.extend(bytes);
        self.tracee().write(start, &written)?;
        self.set_stack_top(start)
    }
}

/// The vectors on a stack.
struct Stack {
    arguments: Vec<u64>,
    variables: Vec<u64>,
    /// The auxiliary vector, with its end.
    auxiliary: Vec<u64>,
}

impl Stack {
    fn read(tracee: &Tracee, top: u64) -> Result<Stack> {
        let broken =
            || InjectError::Memory { done: "read", address: top, source: std::io::ErrorKind::InvalidData.into() };
        let mut words = Words { tracee, at: top, page: Vec::new() };
        let count = usize::try_from(words.next()?).ok().filter(|count| *count < WORDS_MAX).ok_or_else(broken)?;
        let mut arguments = Vec::new();
        for _ in 0..count {
            arguments.push(words.next()?);
        }
        if words.next()? != 0 {
            return Err(broken());
        }
        let mut variables = Vec::new();
        loop {
            match words.next()? {
                0 => break,
                _ if variables.len() == WORDS_MAX => return Err(broken()),
                address => variables.push(address),
            }
        }
        let mut auxiliary = Vec::new();
        loop {
            let pair = [words.next()?, words.next()?];
            auxiliary.extend(pair);
            match pair {
                [0, _] => return Ok(Stack { arguments, variables, auxiliary }),
                _ if auxiliary.len() > 1024 => return Err(broken()),
                _ => {}
            }
        }
    }
}

/// The words from an address on.
struct Words<'a> {
    tracee: &'a Tracee,
    at: u64,
    /// The rest of the page that was read last, reversed.
    page: Vec<u64>,
}

impl Words<'_> {
    fn next(&mut self) -> Result<u64> {
        if self.page.is_empty() {
            let mut bytes = vec![0; (4096 - self.at % 4096) as usize];
            self.tracee.read(self.at, &mut bytes)?;
            self.page = bytes.as_chunks::<8>().0.iter().rev().map(|bytes| u64::from_ne_bytes(*bytes)).collect();
        }
        self.at += 8;
        // The stack pointer is a multiple of 8, so a page has at least one word.
        Ok(self.page.pop().unwrap_or(0))
    }
}

/// Returns the NUL-terminated text at an address.
pub(crate) fn text(tracee: &Tracee, address: u64) -> Result<Vec<u8>> {
    let (mut text, mut at) = (Vec::new(), address);
    while text.len() < TEXT_MAX {
        let mut bytes = vec![0; (4096 - at % 4096) as usize];
        tracee.read(at, &mut bytes)?;
        if let Some(end) = bytes.iter().position(|&byte| byte == 0) {
            text.extend(&bytes[..end]);
            return Ok(text);
        }
        at += bytes.len() as u64;
        text.extend(bytes);
    }
    Err(InjectError::Memory { done: "read", address, source: std::io::ErrorKind::InvalidData.into() })
}
