//! Extended events: all that are rare, or do not fit a compact event.

use heapledger_core::sample::Rate;
use heapledger_core::{Api, StackId};

use super::packed::Packed;
use super::{Corrupt, EXTENDED, WORDS_MAX, Words, code};

/// The outcome of a reallocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReallocOutcome {
    /// It returned a block.
    Returned = 0,
    /// It failed: the old block is as it was.
    Failed = 1,
    /// It freed the old block and returned no new one: `realloc(p, 0)` in glibc.
    Freed = 2,
}

/// A call that changes mappings: the function `NAME` or, with [`SYSCALL`](MapCall::SYSCALL), the
/// function `syscall` with its number.
///
/// | call | events | address, length | arguments |
/// |---|---|---|---|
/// | `mmap` | done | result, length | protection, flags, offset |
/// | `munmap` | begins; failed | address, length | |
/// | `mremap` | begins | old address, old length | |
/// | | done, failed | new address, new length | flags, old address, old length |
/// | `mprotect` | done | address, length | protection |
/// | `madvise` | done | address, length | advice |
/// | `brk` | done | new break, 0 | old break |
/// | `shmat` | done | result, 0 | identifier, flags |
/// | `shmdt` | begins; failed | address, 0 | |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MapCall {
    /// `mmap`.
    Mmap = 1,
    /// `munmap`.
    Munmap = 2,
    /// `mremap`.
    Mremap = 3,
    /// `brk`, also in `sbrk`.
    Brk = 4,
    /// `mprotect`.
    Mprotect = 5,
    /// `madvise`.
    Madvise = 6,
    /// `shmat`.
    Shmat = 7,
    /// `shmdt`.
    Shmdt = 8,
    /// `mmap` by `syscall`.
    SyscallMmap = 129,
    /// `munmap` by `syscall`.
    SyscallMunmap = 130,
    /// `mremap` by `syscall`.
    SyscallMremap = 131,
    /// `mprotect` by `syscall`.
    SyscallMprotect = 133,
    /// `madvise` by `syscall`.
    SyscallMadvise = 134,
    /// `shmat` by `syscall`.
    SyscallShmat = 135,
    /// `shmdt` by `syscall`.
    SyscallShmdt = 136,
}

impl MapCall {
    const ALL: [MapCall; 15] = [
        MapCall::Mmap,
        MapCall::Munmap,
        MapCall::Mremap,
        MapCall::Brk,
        MapCall::Mprotect,
        MapCall::Madvise,
        MapCall::Shmat,
        MapCall::Shmdt,
        MapCall::SyscallMmap,
        MapCall::SyscallMunmap,
        MapCall::SyscallMremap,
        MapCall::SyscallMprotect,
        MapCall::SyscallMadvise,
        MapCall::SyscallShmat,
        MapCall::SyscallShmdt,
    ];

    /// The bit of calls by the function `syscall`.
    pub const SYSCALL: u8 = 128;

    /// Returns the call with this number.
    pub fn from_number(number: u8) -> Option<MapCall> {
        MapCall::ALL.into_iter().find(|call| *call as u8 == number)
    }

    /// True if the call was made by the function `syscall`.
    pub const fn is_syscall(self) -> bool {
        self as u8 & MapCall::SYSCALL != 0
    }

    /// Returns the same call, made by the function of its name.
    pub fn plain(self) -> MapCall {
        MapCall::from_number(self as u8 & !MapCall::SYSCALL).unwrap_or(self)
    }
}

/// The part of a call that an event tells of. A call that gives memory up is told before it is
/// made, because another thread may get the same addresses at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MapStep {
    /// The call has been made.
    Done = 0,
    /// The call is about to be made.
    Begins = 1,
    /// The call that the thread began last has failed.
    Failed = 2,
}

impl MapStep {
    fn from_number(number: u8) -> Option<MapStep> {
        [MapStep::Done, MapStep::Begins, MapStep::Failed].into_iter().find(|step| *step as u8 == number)
    }
}

/// An extended event: at most `WORDS_MAX` words in a buffer of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Extended<'words> {
    /// Any allocation.
    Alloc {
        /// The call.
        api: Api,
        /// The address that it returned.
        address: u64,
        /// Requested bytes.
        size: u64,
        /// The stack that called.
        stack: StackId,
        /// The alignment argument, 0 if the call has none.
        alignment: u64,
        /// The count argument, 0 if the call has none.
        count: u64,
        /// The block's usable size, 0 if it was not asked for.
        usable: u64,
        /// The rate at which it was sampled.
        rate: Rate,
    },
    /// Any free.
    Free {
        /// The call.
        api: Api,
        /// The block.
        address: u64,
        /// The size argument, 0 if the call has none.
        size: u64,
        /// The alignment argument, 0 if the call has none.
        alignment: u64,
    },
    /// A reallocation has begun.
    ReallocBegin {
        /// The call.
        api: Api,
        /// The block.
        address: u64,
    },
    /// The reallocation that the thread began last has ended.
    ReallocEnd {
        /// The call.
        api: Api,
        /// The outcome.
        outcome: ReallocOutcome,
        /// The new block, 0 if there is none.
        address: u64,
        /// Requested bytes.
        size: u64,
        /// The stack that called.
        stack: StackId,
        /// The count argument, 0 if the call has none.
        count: u64,
        /// The new block's usable size, 0 if it was not asked for.
        usable: u64,
        /// The rate at which the new block was sampled. In a session that samples, an end without
        /// beginning means that the old block was not sampled; in another session, that there was
        /// no old block.
        rate: Rate,
    },
    /// A call failed to return a block.
    Failed {
        /// The call.
        api: Api,
        /// Requested bytes, saturated if the product overflowed.
        size: u64,
        /// The stack that called.
        stack: StackId,
        /// The alignment argument, 0 if the call has none.
        alignment: u64,
        /// The count argument, 0 if the call has none.
        count: u64,
    },
    /// From here on the ring belongs to this thread.
    ThreadStart {
        /// The thread's id, as its own pid namespace numbers it.
        thread: u32,
        /// The thread's name, NUL-padded.
        name: [u8; 16],
    },
    /// The ring's thread has this name from now on.
    ThreadName {
        /// The name, NUL-padded.
        name: [u8; 16],
    },
    /// The ring's thread has ended.
    ThreadEnd,
    /// The following events of this ring, up to the next of this kind, belong to this thread.
    OnBehalf {
        /// The thread's id.
        thread: u32,
    },
    /// A fork is about to happen.
    Fork {
        /// The fork's number in the image, from 1.
        sequence: u32,
    },
    /// A module is mapped.
    Module {
        /// First address.
        start: u64,
        /// One past the last address.
        end: u64,
        /// The value to subtract from an address to get the module's own.
        bias: u64,
        /// The epoch in which the module was seen.
        epoch: u32,
        /// The module's build id; empty if it has none.
        build_id: Packed<'words>,
        /// The module's path; empty for the program itself.
        path: Packed<'words>,
    },
    /// A text at an address of the program: a [`Name`](heapledger_core::context::Name), which is
    /// sent before every node of this thread that refers to its address; or a
    /// [`Stamp`](heapledger_core::stamp::Stamp), which is sent before every [`Extended::Stamped`]
    /// that refers to it, by any thread. Valid until the address has another text.
    Text {
        /// The address of the name.
        address: u64,
        /// The flags of the name.
        flags: u32,
        /// The address of the name of its category, whose text came before; 0 if it has none.
        category: u64,
        /// The text: UTF-8, if the program kept to it.
        text: Packed<'words>,
    },
    /// An allocation that is not recorded, because the program wants it ignored; its free is not
    /// recorded either.
    Ignored {
        /// The block.
        address: u64,
    },
    /// The program declared that a live block belongs to another context than it was allocated in.
    Reattributed {
        /// The block.
        address: u64,
        /// The stack of the declaration, within the new context.
        stack: StackId,
    },
    /// The program declared the type of a live block.
    Stamped {
        /// The block's address, or any address in it.
        address: u64,
        /// The address of the [`Stamp`](heapledger_core::stamp::Stamp) in the recorder, whose text
        /// came before.
        stamp: u64,
    },
    /// A memory reporter has reported a block.
    Marked {
        /// The reported address.
        address: u64,
        /// The address of the [`Stamp`](heapledger_core::stamp::Stamp) that is the reporter's name,
        /// whose text came before.
        reporter: u64,
        /// The stack that reported.
        stack: StackId,
        /// True if the mark stays when marks are cleared.
        is_kept: bool,
        /// True if the address is on the stack of the thread that reports it.
        is_on_stack: bool,
        /// True if the address may be anywhere in the block.
        is_around: bool,
        /// The number of bytes that the reporter counts for the block. 0 for its usable size.
        measured: u64,
    },
    /// A reporter removes its mark, one that is kept, from a block.
    Unmarked {
        /// The block.
        address: u64,
        /// As in [`Extended::Marked`].
        reporter: u64,
    },
    /// All marks that are not to be kept are removed: reporters are about to be asked.
    MarksCleared,
    /// All reporters have been asked.
    MarksComplete,
    /// In a session that samples: this thread has made allocations that are not in the sample since
    /// its latest one that is.
    Unsampled,
    /// A process is about to run another program by exec, or has started one.
    Exec {
        /// The process of this image, as its own pid namespace numbers it.
        process: u32,
        /// The process of the other program, which differs in a child of `vfork`. 0 if not known.
        pid: u32,
        /// The reason why it will not be recorded: a number of `heapledger explain`. 0 if it should
        /// be.
        reason: u16,
        /// True if the limit of the address space is so low that the recorder may not fit in.
        is_tight: bool,
        /// The stamp of the call, before which the other program did not run.
        since: u64,
        /// The file of the other program.
        path: Packed<'words>,
    },
    /// The latest [`Extended::Exec`] of this process failed: the process goes on as before.
    ExecFailed {
        /// The process.
        pid: u32,
    },
    /// A call that changes mappings.
    Mapping {
        /// The call.
        call: MapCall,
        /// The part of the call that this event tells of.
        step: MapStep,
        /// True if an allocator made the call while it served one of the malloc functions.
        is_allocators: bool,
        /// The stack that called; the root if the thread has no ring.
        stack: StackId,
        /// The first address of the range that the call is about. See [`MapCall`].
        address: u64,
        /// The length of the range, in bytes, as the program gave it.
        length: u64,
        /// Further arguments: see [`MapCall`].
        arguments: [u64; 3],
    },
    /// Any other event: passed through to the recording.
    Annotation {
        /// The code, 256 or more.
        code: u16,
        /// The payload.
        payload: Words<'words>,
    },
}

/// Writes an extended event into `buffer` and returns its words, or `None` if it does not fit.
///
/// A match with one arm per event, as [`Extended::parse`] is.
pub fn extended<'buffer>(stamp: u64, event: &Extended<'_>, buffer: &'buffer mut [u64]) -> Option<Words<'buffer>> {
    let mut writer = Writer { buffer, at: 2 };
    let code = match *event {
        Extended::Alloc { api, address, size, stack, alignment, count, usable, rate } => {
            let rate = rate.logarithm().into();
            writer.put(&[api as u64, address, size, u64::from(stack.0), alignment, count, usable, rate])?;
            code::ALLOC
        }
        Extended::Free { api, address, size, alignment } => {
            writer.put(&[api as u64, address, size, alignment])?;
            code::FREE
        }
        Extended::ReallocBegin { api, address } => {
            writer.put(&[api as u64, address])?;
            code::REALLOC_BEGIN
        }
        Extended::ReallocEnd { api, outcome, address, size, stack, count, usable, rate } => {
            let what = api as u64 | (outcome as u64) << 8 | u64::from(rate.logarithm()) << 16;
            writer.put(&[what, address, size, u64::from(stack.0), count, usable])?;
            code::REALLOC_END
        }
        Extended::Failed { api, size, stack, alignment, count } => {
            writer.put(&[api as u64, size, u64::from(stack.0), alignment, count])?;
            code::FAILED
        }
        Extended::ThreadStart { thread, name } => {
            let [low, high] = name_words(name);
            writer.put(&[u64::from(thread), low, high])?;
            code::THREAD_START
        }
        Extended::ThreadName { name } => {
            writer.put(&name_words(name))?;
            code::THREAD_NAME
        }
        Extended::ThreadEnd => code::THREAD_END,
        Extended::OnBehalf { thread } => {
            writer.put(&[u64::from(thread)])?;
            code::ON_BEHALF
        }
        Extended::Fork { sequence } => {
            writer.put(&[u64::from(sequence)])?;
            code::FORK
        }
        Extended::Module { start, end, bias, epoch, build_id, path } => {
            let lengths = build_id.length as u64 | (path.length as u64) << 16;
            writer.put(&[start, end, bias, u64::from(epoch), lengths])?;
            writer.put(build_id.words)?;
            writer.put(path.words)?;
            code::MODULE
        }
        Extended::Text { address, flags, category, text } => {
            writer.put(&[address, u64::from(flags) | (text.length as u64) << 32, category])?;
            writer.put(text.words)?;
            code::TEXT
        }
        Extended::Ignored { address } => {
            writer.put(&[address])?;
            code::IGNORED
        }
        Extended::Reattributed { address, stack } => {
            writer.put(&[address, u64::from(stack.0)])?;
            code::REATTRIBUTED
        }
        Extended::Stamped { address, stamp } => {
            writer.put(&[address, stamp])?;
            code::STAMPED
        }
        Extended::Marked { address, reporter, stack, is_kept, is_on_stack, is_around, measured } => {
            let flags = u64::from(is_kept) << 32 | u64::from(is_on_stack) << 33 | u64::from(is_around) << 34;
            writer.put(&[address, reporter, u64::from(stack.0) | flags, measured])?;
            code::MARKED
        }
        Extended::Unmarked { address, reporter } => {
            writer.put(&[address, reporter])?;
            code::UNMARKED
        }
        Extended::MarksCleared => code::MARKS_CLEARED,
        Extended::MarksComplete => code::MARKS_COMPLETE,
        Extended::Unsampled => code::UNSAMPLED,
        Extended::Exec { process, pid, reason, is_tight, since, path } => {
            let what = u64::from(reason) | u64::from(is_tight) << 16 | (path.length as u64) << 32;
            writer.put(&[u64::from(process) | u64::from(pid) << 32, what, since])?;
            writer.put(path.words)?;
            code::EXEC
        }
        Extended::ExecFailed { pid } => {
            writer.put(&[u64::from(pid)])?;
            code::EXEC_FAILED
        }
        Extended::Mapping { call, step, is_allocators, stack, address, length, arguments } => {
            let what = call as u64 | (step as u64) << 8 | u64::from(is_allocators) << 16 | u64::from(stack.0) << 32;
            writer.put(&[what, address, length])?;
            writer.put(&arguments)?;
            code::MAPPING
        }
        Extended::Annotation { code, payload } => {
            writer.put(payload)?;
            code
        }
    };
    let length = writer.at;
    if length > WORDS_MAX {
        return None;
    }
    *buffer.get_mut(0)? = EXTENDED | u64::from(code) << 4 | (length as u64) << 20;
    *buffer.get_mut(1)? = stamp;
    buffer.get(..length)
}

impl<'words> Extended<'words> {
    /// Decodes the event of this code with this payload. `None` for a code below 256 that this
    /// version does not know.
    ///
    /// A match with one arm per event, as [`extended`] is.
    pub fn parse(code: u16, payload: Words<'words>) -> Result<Option<Extended<'words>>, Corrupt> {
        let word = |index: usize| payload.get(index).copied().ok_or(Corrupt);
        let api = |index: usize| word(index).and_then(|number| Api::from_number(number as u8).ok_or(Corrupt));
        let stack = |index: usize| word(index).map(|id| StackId(id as u32 & StackId::MAX.0));
        let event = match code {
            code::ALLOC => Extended::Alloc {
                api: api(0)?,
                address: word(1)?,
                size: word(2)?,
                stack: stack(3)?,
                alignment: word(4)?,
                count: word(5)?,
                usable: word(6)?,
                rate: Rate::from_logarithm(word(7)?),
            },
            code::FREE => Extended::Free { api: api(0)?, address: word(1)?, size: word(2)?, alignment: word(3)? },
            code::REALLOC_BEGIN => Extended::ReallocBegin { api: api(0)?, address: word(1)? },
            code::REALLOC_END => {
                let outcome = match word(0)? >> 8 & 0xff {
                    0 => ReallocOutcome::Returned,
                    1 => ReallocOutcome::Failed,
                    2 => ReallocOutcome::Freed,
                    _ => return Err(Corrupt),
                };
                Extended::ReallocEnd {
                    api: api(0)?,
                    outcome,
                    address: word(1)?,
                    size: word(2)?,
                    stack: stack(3)?,
                    count: word(4)?,
                    usable: word(5)?,
                    rate: Rate::from_logarithm(word(0)? >> 16 & 0xff),
                }
            }
            code::FAILED => Extended::Failed {
                api: api(0)?,
                size: word(1)?,
                stack: stack(2)?,
                alignment: word(3)?,
                count: word(4)?,
            },
            code::THREAD_START => {
                Extended::ThreadStart { thread: word(0)? as u32, name: name_bytes(word(1)?, word(2)?) }
            }
            code::THREAD_NAME => Extended::ThreadName { name: name_bytes(word(0)?, word(1)?) },
            code::THREAD_END => Extended::ThreadEnd,
            code::ON_BEHALF => Extended::OnBehalf { thread: word(0)? as u32 },
            code::FORK => Extended::Fork { sequence: word(0)? as u32 },
            code::MODULE => {
                let (build_id, path) = ((word(4)? & 0xffff) as usize, (word(4)? >> 16 & 0xffff) as usize);
                let path_at = 5 + build_id.div_ceil(8);
                let packed = |at: usize, length: usize| {
                    payload.get(at..at + length.div_ceil(8)).map(|words| Packed { words, length }).ok_or(Corrupt)
                };
                Extended::Module {
                    start: word(0)?,
                    end: word(1)?,
                    bias: word(2)?,
                    epoch: word(3)? as u32,
                    build_id: packed(5, build_id)?,
                    path: packed(path_at, path)?,
                }
            }
            code::TEXT => {
                let length = (word(1)? >> 32) as usize;
                let words = payload.get(3..).and_then(|rest| rest.get(..length.div_ceil(8))).ok_or(Corrupt)?;
                let (address, flags, category) = (word(0)?, word(1)? as u32, word(2)?);
                Extended::Text { address, flags, category, text: Packed { words, length } }
            }
            code::REATTRIBUTED => Extended::Reattributed { address: word(0)?, stack: stack(1)? },
            code::STAMPED => Extended::Stamped { address: word(0)?, stamp: word(1)? },
            code::IGNORED => Extended::Ignored { address: word(0)? },
            code::MARKED => Extended::Marked {
                address: word(0)?,
                reporter: word(1)?,
                stack: stack(2)?,
                is_kept: word(2)? >> 32 & 1 != 0,
                is_on_stack: word(2)? >> 33 & 1 != 0,
                is_around: word(2)? >> 34 & 1 != 0,
                measured: word(3)?,
            },
            code::UNMARKED => Extended::Unmarked { address: word(0)?, reporter: word(1)? },
            code::MARKS_CLEARED => Extended::MarksCleared,
            code::MARKS_COMPLETE => Extended::MarksComplete,
            code::UNSAMPLED => Extended::Unsampled,
            code::EXEC => {
                let (processes, what) = (word(0)?, word(1)?);
                let length = (what >> 32) as usize;
                let words = payload.get(3..).and_then(|rest| rest.get(..length.div_ceil(8))).ok_or(Corrupt)?;
                Extended::Exec {
                    process: processes as u32,
                    pid: (processes >> 32) as u32,
                    reason: what as u16,
                    is_tight: what >> 16 & 1 != 0,
                    since: word(2)?,
                    path: Packed { words, length },
                }
            }
            code::EXEC_FAILED => Extended::ExecFailed { pid: word(0)? as u32 },
            code::MAPPING => {
                let what = word(0)?;
                Extended::Mapping {
                    call: MapCall::from_number(what as u8).ok_or(Corrupt)?,
                    step: MapStep::from_number((what >> 8) as u8).ok_or(Corrupt)?,
                    is_allocators: what >> 16 & 1 != 0,
                    stack: StackId((what >> 32) as u32 & StackId::MAX.0),
                    address: word(1)?,
                    length: word(2)?,
                    arguments: [word(3)?, word(4)?, word(5)?],
                }
            }
            code if code >= code::ANNOTATIONS => Extended::Annotation { code, payload },
            _ => return Ok(None),
        };
        Ok(Some(event))
    }
}

struct Writer<'buffer> {
    buffer: &'buffer mut [u64],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, words: Words<'_>) -> Option<()> {
        for &word in words {
            *self.buffer.get_mut(self.at)? = word;
            self.at += 1;
        }
        Some(())
    }
}

fn name_words(name: [u8; 16]) -> [u64; 2] {
    let value = u128::from_le_bytes(name);
    [value as u64, (value >> 64) as u64]
}

fn name_bytes(low: u64, high: u64) -> [u8; 16] {
    (u128::from(low) | u128::from(high) << 64).to_le_bytes()
}
