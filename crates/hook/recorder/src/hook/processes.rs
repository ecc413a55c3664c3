//! Events of processes: forks, and programs that are started.

use core::mem;
use core::ptr;
use core::sync::atomic::{Ordering, compiler_fence};

use heapledger_core::program::Obstacle;
use heapledger_core::sys;
use heapledger_thread::{self as thread, Current};
use heapledger_wire::event::{self, Extended, units};

use crate::attach::enter;
use crate::block::ThreadBlock;
use crate::process::{self, Process};

/// Records that a fork is about to happen: the blocks live now are those that the child inherits.
pub fn fork_begins(sp: u64) {
    let Some(block) = enter(sp) else { return };
    block.begin();
    let ticks = block.stamp();
    let written = block.write_extended(ticks, &Extended::Fork { sequence: process::next_fork() });
    block.finish(written);
}

/// The length of the longest path that an exec is announced with, in words.
const EXEC_PATH_WORDS: usize = 64;

/// A program that is started.
#[derive(Clone, Copy, Debug)]
pub struct Exec<'path> {
    /// The process in which the program runs; 0 if it is not known.
    pub pid: u32,
    /// The reason why the program will not be recorded, if there is one.
    pub obstacle: Option<Obstacle>,
    /// True if so little address space is allowed that the recorder may not find room.
    pub is_tight: bool,
    /// The time of the call in ticks, before which the program did not run.
    pub since: u64,
    /// The program's path.
    pub path: &'path [u8],
}

/// Records that a process is about to become another program, or that it has started one.
pub fn exec_begins(exec: Exec<'_>, sp: u64) {
    let Exec { pid, obstacle, is_tight, since, path } = exec;
    let Some(process) = Process::get().filter(|process| process.is_introduced()) else { return };
    let process = process.id();
    let mut words = [0; EXEC_PATH_WORDS];
    let path = event::pack_truncated(path.iter().copied(), &mut words);
    let reason = obstacle.map_or(0, |obstacle| obstacle as u16);
    let event = Extended::Exec { process, pid, reason, is_tight, since: units(since), path };
    let Some(block) = enter(sp) else { return };
    block.begin();
    let ticks = block.stamp();
    let written = block.write_extended(ticks, &event);
    block.finish(written);
}

/// Records that the exec failed: the process stays what it was.
pub fn exec_failed(pid: u32, sp: u64) {
    if !Process::get().is_some_and(Process::is_introduced) {
        return;
    }
    let Some(block) = enter(sp) else { return };
    block.begin();
    let ticks = block.stamp();
    let written = block.write_extended(ticks, &Extended::ExecFailed { pid });
    block.finish(written);
}

/// Introduces a child to the collector. Called in the child.
pub fn child_begins(sp: u64) {
    if let Some(block) = enter(sp) {
        block.head.leave();
    }
}

/// Returns memory of this thread for the arguments of an exec, or null if there is none. The memory
/// is kept, so that a vfork child leaves nothing behind that its parent does not reuse.
pub fn scratch(length: usize) -> *mut u8 {
    let Current::Block(block) = thread::current::<ThreadBlock>() else {
        return sys::map_private(length).unwrap_or(ptr::null_mut());
    };
    // SAFETY: this thread's block; the two fields are used here only, and not from signal handlers
    // that return.
    let block = unsafe { &mut *block.as_ptr() };
    if block.scratch_length < length {
        let Ok(memory) = sys::map_private(length) else { return ptr::null_mut() };
        let old = mem::replace(&mut block.scratch, memory);
        let old_length = mem::replace(&mut block.scratch_length, length);
        if !old.is_null() {
            // A signal handler that calls `exec` from here on gets the new memory.
            compiler_fence(Ordering::Release);
            // SAFETY: `unmap` requires memory that was mapped with this length, and that nobody
            // uses. It was mapped here, and the block no longer has it.
            unsafe { sys::unmap(old, old_length) };
        }
    }
    block.scratch
}
