//! The stacks of a process's threads.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;

use crate::pages::{PAGE, PresentPages};
use crate::reader::WordReader;
use crate::smaps::{Amounts, SystemMapping};

/// The number of times that the kernel is asked for the stack pointer of a thread that runs.
const TRIES: usize = 3;
/// The bytes at the end of a stack in which the thread's own data are looked for.
const END: u64 = 64 << 10;
/// The bytes above a stack pointer in which they are looked for. A stack may lie in a mapping of
/// many GiB, as coroutines' do.
const SEARCHED: u64 = 16 << 20;
/// The alignment of a thread's description, and its size in glibc 2.26 to 2.41, at most.
const STEP: u64 = 64;
const THREAD_SIZE: u64 = 0x940;

/// The threads of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Threads {
    /// The id of the main thread, whose stack the kernel names.
    main: u32,
    /// The ids of all.
    pub(crate) ids: BTreeSet<u32>,
    /// The stack pointers of those that did not run when they were looked at.
    pub(crate) stack_pointers: Vec<u64>,
}

impl Threads {
    /// Looks at the threads of a process, as far as the kernel tells.
    pub(crate) fn of_process(process: u32) -> Threads {
        let mut threads = Threads { main: process, ..Threads::default() };
        let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        for id in tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()) {
            threads.ids.insert(id);
            let call = || fs::read_to_string(format!("/proc/{process}/task/{id}/syscall")).unwrap_or_default();
            let pointer = (0..TRIES).find_map(|_| stack_pointer(&call()));
            threads.stack_pointers.extend(pointer);
        }
        threads
    }

    /// Returns the use of a mapping as a stack. `has_guard` is true if the addresses below it may
    /// not be accessed, as those below the stacks of glibc.
    pub(crate) fn use_of(&self, mapping: &Range<u64>, has_guard: bool, reader: &mut WordReader<'_>) -> StackUse {
        if self.stack_pointers.iter().any(|pointer| mapping.contains(pointer)) {
            return StackUse::Thread;
        }
        match thread_id_in(mapping, reader).filter(|_| has_guard) {
            // Its own data are beside other memory.
            Some(id) if id == self.main => StackUse::None,
            Some(id) if self.ids.contains(&id) => StackUse::Thread,
            Some(_) => StackUse::Ended,
            None => StackUse::None,
        }
    }
}

impl Threads {
    /// Returns the end of the stack in a mapping that goes on behind it: kernels before 6.7 make
    /// one mapping of a stack and other memory next to it. `None` if the stack is the whole
    /// mapping, or if no description of its thread is found, as for stacks of Go.
    fn end_of_stack(&self, mapping: &Range<u64>, reader: &mut WordReader<'_>) -> Option<u64> {
        let pointer = *self.stack_pointers.iter().find(|pointer| mapping.contains(pointer))?;
        let end = mapping.end.min(pointer.saturating_add(SEARCHED));
        let parts: Vec<Range<u64>> = reader.present(pointer..end).collect();
        let mut places =
            parts.into_iter().flat_map(|part| (part.start.next_multiple_of(STEP)..part.end).step_by(STEP as usize));
        let thread = places.find(|&at| is_thread(reader, at))?;
        let end = thread.checked_add(THREAD_SIZE)?.next_multiple_of(PAGE);
        (end < mapping.end).then_some(end)
    }

    /// Divides the mappings that are the stack of a thread and go on behind it.
    pub(crate) fn divide_stacks(
        &self,
        mappings: Vec<SystemMapping>,
        pages: &PresentPages,
        reader: &mut WordReader<'_>,
    ) -> Vec<SystemMapping> {
        let mut divided = Vec::with_capacity(mappings.len());
        for mut mapping in mappings {
            let may_be = mapping.is_private_memory() && mapping.is_writable && mapping.name.is_empty();
            let end = if may_be { self.end_of_stack(&mapping.addresses, reader) } else { None };
            if let Some(end) = end {
                let mut stack = mapping.clone();
                stack.addresses.end = end;
                let resident = pages.bytes_within(stack.addresses.clone()).min(mapping.amounts.resident);
                let mut amounts = Amounts { resident, anonymous: resident, ..Amounts::default() };
                amounts.private_dirty = resident.min(mapping.amounts.private_dirty);
                stack.amounts = amounts;
                mapping.addresses.start = end;
                mapping.amounts.resident -= resident;
                mapping.amounts.private_dirty -= amounts.private_dirty;
                mapping.amounts.anonymous = mapping.amounts.anonymous.saturating_sub(resident);
                divided.push(stack);
            }
            divided.push(mapping);
        }
        divided
    }
}

/// The use of a mapping as a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StackUse {
    /// No stack.
    None,
    /// The stack of a thread.
    Thread,
    /// The stack of a thread that has ended; the C library keeps it for the next.
    Ended,
}

/// Returns the stack pointer in `/proc/PID/task/TID/syscall`: the last word but one. `None` if the
/// thread runs.
fn stack_pointer(call: &str) -> Option<u64> {
    let mut words = call.split_ascii_whitespace().rev();
    let pointer = words.nth(1)?.strip_prefix("0x")?;
    u64::from_str_radix(pointer, 16).ok().filter(|&pointer| pointer != 0)
}

/// Returns the id in the description of a thread (`struct pthread`) that glibc and musl keep at the
/// end of the stack. Its first and third word are its own address, by the ABI of thread-local
/// storage and by glibc's `tcbhead_t`. 0 if there is no known id.
fn thread_id_in(mapping: &Range<u64>, reader: &mut WordReader<'_>) -> Option<u32> {
    /// The offset of `tid` in glibc since 2.4.
    const ID: u64 = 0x2d0;
    let start = mapping.end.saturating_sub(END).max(mapping.start).next_multiple_of(STEP);
    let end = mapping.end.saturating_sub(PAGE / 4);
    let mut places = (start..end).step_by(STEP as usize);
    let place = places.find(|&at| is_thread(reader, at))?;
    Some(reader.word(place + ID).unwrap_or(0) as u32)
}

/// True if a thread is described at an address, by two words that are the address itself.
fn is_thread(reader: &mut WordReader<'_>, at: u64) -> bool {
    reader.word(at) == Some(at) && reader.word(at + 16) == Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_pointers_in_the_kernels_words() {
        assert_eq!(stack_pointer("0 0x3 0x7ffd 0x400 0x0 0x0 0x0 0x7ffd1230 0x7f0012\n"), Some(0x7ffd_1230));
        assert_eq!(stack_pointer("-1 0x7ffd1230 0x7f0012\n"), Some(0x7ffd_1230));
        for none in ["running\n", "", "0 0x0 0x0", "1 2 3"] {
            assert_eq!(stack_pointer(none), None, "{none}");
        }
    }

    #[test]
    fn the_threads_of_this_process() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || receiver.recv());
        let threads = Threads::of_process(std::process::id());
        assert!(threads.ids.len() >= 2 && threads.ids.contains(&std::process::id()), "{threads:?}");
        drop(sender);
        assert!(thread.join().unwrap().is_err());
    }
}
