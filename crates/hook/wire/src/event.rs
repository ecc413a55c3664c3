//! Events to words and back.
//!
//! The first word of an event has its kind in bits 0..4.
//!
//! ```text
//! Free, ReallocBegin   kind 4 │ step 16 │ address/8 44
//! Malloc, ReallocEnd   kind 4 │ step 16 │ address/8 44     size 38 │ stack 26
//! Calloc               kind 4 │ step 16 │ address/8 44     size 38 │ stack 26     count 32 │ each 32
//! Node                 kind 4 │ id 26 │ parent 26 │ flags 8     address 64
//! Sync                 kind 4 │ 0     stamp 64
//! Extended             kind 4 │ code 16 │ words 16 │ 0     stamp 64     payload …
//! ```
//!
//! *Step* is the time since the thread's previous stamped event, in units of 16 ticks; where it does not fit, a sync
//! event comes first. Addresses that are no multiples of 8, sizes of 256 GiB and more, and all that is rare go into
//! extended events. Kinds 8 to 11 are reserved for events of two words, 12 to 14 for three: a reader can skip them.

use heapledger_core::sample::Rate;
use heapledger_core::{Api, NodeKind, StackId};

/// A run of words.
pub type Words<'words> = &'words [u64];

/// Sizes from here on need an extended event.
pub const COMPACT_SIZE_END: u64 = 1 << 38;
/// Steps from here on need a sync event.
pub const STEP_END: u64 = 1 << 16;
/// The longest event, in words.
pub const WORDS_MAX: usize = 1 << 10;

const FREE: u64 = 1;
const MALLOC: u64 = 2;
const CALLOC: u64 = 3;
const REALLOC_BEGIN: u64 = 4;
const REALLOC_END: u64 = 5;
const NODE: u64 = 6;
const SYNC: u64 = 7;
const EXTENDED: u64 = 15;

/// Ticks to the unit that stamps are kept in.
#[inline(always)]
pub const fn units(ticks: u64) -> u64 {
    ticks >> 4
}

/// Whether an address fits a compact event.
#[inline(always)]
pub const fn is_compact_address(address: u64) -> bool {
    address & 7 == 0 && address < 1 << 47
}

#[inline(always)]
const fn first(kind: u64, step: u64, address: u64) -> u64 {
    kind | step << 4 | address >> 3 << 20
}

#[inline(always)]
const fn second(size: u64, stack: StackId) -> u64 {
    size | (stack.0 as u64) << 38
}

/// `free(address)`.
#[inline(always)]
pub const fn free(step: u64, address: u64) -> [u64; 1] {
    [first(FREE, step, address)]
}

/// `malloc(size)` that returned `address`.
#[inline(always)]
pub const fn malloc(step: u64, address: u64, size: u64, stack: StackId) -> [u64; 2] {
    [first(MALLOC, step, address), second(size, stack)]
}

/// `calloc(count, each)` that returned `address`.
#[inline(always)]
pub const fn calloc(step: u64, address: u64, count: u32, each: u32, stack: StackId) -> [u64; 3] {
    // At most (2^32 − 1)^2; the caller has checked that the product is below `COMPACT_SIZE_END`.
    let size = count as u64 * each as u64;
    [first(CALLOC, step, address), second(size, stack), count as u64 | (each as u64) << 32]
}

/// A `realloc` of `address` has begun.
#[inline(always)]
pub const fn realloc_begin(step: u64, address: u64) -> [u64; 1] {
    [first(REALLOC_BEGIN, step, address)]
}

/// The `realloc` that this thread began last returned `address`.
#[inline(always)]
pub const fn realloc_end(step: u64, address: u64, size: u64, stack: StackId) -> [u64; 2] {
    [first(REALLOC_END, step, address), second(size, stack)]
}

/// A compact event that was made with the step 0, so much later.
#[inline(always)]
pub const fn later<const N: usize>(mut words: [u64; N], step: u64) -> [u64; N] {
    if let Some(first) = words.first_mut() {
        *first |= step << 4;
    }
    words
}

/// A stack-tree node. `address` is what to look up: the return address less one for callers.
#[inline(always)]
pub const fn node(id: StackId, parent: StackId, kind: NodeKind, address: u64) -> [u64; 2] {
    [NODE | (id.0 as u64) << 4 | (parent.0 as u64) << 30 | (kind as u64) << 56, address]
}

/// Sets the stamp that following steps count from.
#[inline(always)]
pub const fn sync(stamp: u64) -> [u64; 2] {
    [SYNC, stamp]
}

/// Codes of extended events. Codes from 256 on are annotations: they pass through to the recording.
pub mod code {
    /// [`super::Extended::Alloc`].
    pub const ALLOC: u16 = 1;
    /// [`super::Extended::Free`].
    pub const FREE: u16 = 2;
    /// [`super::Extended::ReallocBegin`].
    pub const REALLOC_BEGIN: u16 = 3;
    /// [`super::Extended::ReallocEnd`].
    pub const REALLOC_END: u16 = 4;
    /// [`super::Extended::Failed`].
    pub const FAILED: u16 = 5;
    /// [`super::Extended::ThreadStart`].
    pub const THREAD_START: u16 = 6;
    /// [`super::Extended::ThreadName`].
    pub const THREAD_NAME: u16 = 7;
    /// [`super::Extended::ThreadEnd`].
    pub const THREAD_END: u16 = 8;
    /// [`super::Extended::OnBehalf`].
    pub const ON_BEHALF: u16 = 9;
    /// [`super::Extended::Fork`].
    pub const FORK: u16 = 10;
    /// [`super::Extended::Module`].
    pub const MODULE: u16 = 11;
    /// [`super::Extended::Text`].
    pub const TEXT: u16 = 12;
    /// [`super::Extended::Ignored`].
    pub const IGNORED: u16 = 13;
    /// [`super::Extended::Moved`].
    pub const MOVED: u16 = 14;
    /// [`super::Extended::Stamped`].
    pub const STAMPED: u16 = 15;
    /// [`super::Extended::Marked`].
    pub const MARKED: u16 = 16;
    /// [`super::Extended::Unmarked`].
    pub const UNMARKED: u16 = 17;
    /// [`super::Extended::MarksCleared`].
    pub const MARKS_CLEARED: u16 = 18;
    /// [`super::Extended::MarksComplete`].
    pub const MARKS_COMPLETE: u16 = 19;
    /// [`super::Extended::Others`].
    pub const OTHERS: u16 = 20;
    /// [`super::Extended::Exec`].
    pub const EXEC: u16 = 21;
    /// [`super::Extended::ExecFailed`].
    pub const EXEC_FAILED: u16 = 22;
    /// First code of annotations.
    pub const ANNOTATIONS: u16 = 256;
    /// Reserved: an arena came or went.
    pub const ARENA: u16 = 259;
    /// A point in time with a name: UTF-8, NUL-padded to whole words.
    pub const MARKER: u16 = 262;
    /// A stack that is not what the C library says (`--verify-stacks`). Words: the stack's id; the index of the first
    /// frame that differs; how many frames follow of ours, and of the other; ours as addresses to look up, the other's
    /// as return addresses, both from the first few frames before the difference on, innermost first.
    pub const STACK_MISMATCH: u16 = 263;
    /// A library whose calls of the allocator are not seen was opened. Words: the reason (1: in a namespace of its own,
    /// by `dlmopen`; 2: with `RTLD_DEEPBIND`, in a process where another library wraps the allocator); the path that was
    /// asked for, in bytes, NUL-padded.
    pub const UNSEEN_LIBRARY: u16 = 264;
    /// The process has put itself in a sandbox: see `heapledger_core::sandbox`. No words.
    pub const SANDBOX: u16 = 265;
}

/// How a reallocation ended that did not simply return a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReallocOutcome {
    /// It returned a block.
    Returned = 0,
    /// It failed: the old block is as it was.
    Failed = 1,
    /// It freed the old block and returned no new one: `realloc(p, 0)` under glibc.
    Freed = 2,
}

/// An extended event: at most `WORDS_MAX` words in a buffer of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Extended<'words> {
    /// Any allocation.
    Alloc {
        /// The call.
        api: Api,
        /// What it returned.
        address: u64,
        /// Requested bytes.
        size: u64,
        /// Where.
        stack: StackId,
        /// The alignment argument, 0 where the call has none.
        alignment: u64,
        /// The count argument, 0 where the call has none.
        count: u64,
        /// The block's usable size, 0 where not asked.
        usable: u64,
        /// At which rate it was sampled.
        rate: Rate,
    },
    /// Any free.
    Free {
        /// The call.
        api: Api,
        /// The block.
        address: u64,
        /// The size argument, 0 where the call has none.
        size: u64,
        /// The alignment argument, 0 where the call has none.
        alignment: u64,
    },
    /// A reallocation has begun.
    ReallocBegin {
        /// The call.
        api: Api,
        /// The block.
        address: u64,
    },
    /// The thread's last begun reallocation has ended.
    ReallocEnd {
        /// The call.
        api: Api,
        /// How.
        outcome: ReallocOutcome,
        /// The new block, 0 where there is none.
        address: u64,
        /// Requested bytes.
        size: u64,
        /// Where.
        stack: StackId,
        /// The count argument, 0 where the call has none.
        count: u64,
        /// At which rate the new block was sampled. In a session that samples, an end without beginning says that the old
        /// block was not; in another one, that there was none.
        rate: Rate,
    },
    /// A call that should have returned a block, and did not.
    Failed {
        /// The call.
        api: Api,
        /// Requested bytes, saturated where the product overflowed.
        size: u64,
        /// Where.
        stack: StackId,
        /// The alignment argument, 0 where the call has none.
        alignment: u64,
        /// The count argument, 0 where the call has none.
        count: u64,
    },
    /// From here on the ring belongs to this thread.
    ThreadStart {
        /// Its id, as its own pid namespace numbers it.
        thread: u32,
        /// Its name, NUL-padded.
        name: [u8; 16],
    },
    /// The ring's thread has this name now.
    ThreadName {
        /// NUL-padded.
        name: [u8; 16],
    },
    /// The ring's thread has ended.
    ThreadEnd,
    /// The following events of this ring, up to the next of this kind, are by this thread.
    OnBehalf {
        /// Its id.
        thread: u32,
    },
    /// A fork is about to happen.
    Fork {
        /// Its number, from 1, in the image.
        sequence: u32,
    },
    /// A module is mapped.
    Module {
        /// First address.
        start: u64,
        /// One past the last address.
        end: u64,
        /// What to subtract from an address to get the module's own.
        bias: u64,
        /// The epoch in which it was seen.
        epoch: u32,
        /// Its build id, empty where it has none: as words, with its length.
        build_id: Packed<'words>,
        /// Its path; empty for the program itself.
        path: Packed<'words>,
    },
    /// A text at an address of the program: a [`Name`](heapledger_core::context::Name), which precedes every node of this
    /// thread's that has it for its address; or a [`Stamp`](heapledger_core::stamp::Stamp), which precedes every
    /// [`Extended::Stamped`] with it, of whichever thread. Holds until the address has another text.
    Text {
        /// The name's.
        address: u64,
        /// Its flags.
        flags: u32,
        /// The address of its category's name, whose text came before; 0 where it has none.
        category: u64,
        /// UTF-8, if the program kept to it.
        text: Packed<'words>,
    },
    /// An allocation that is not to be recorded, because the program wants it ignored; nor is its free.
    Ignored {
        /// The block.
        address: u64,
    },
    /// The program said that a live block is of another context than it was allocated in.
    Moved {
        /// The block.
        address: u64,
        /// Where it was said, within that context.
        stack: StackId,
    },
    /// The program said what a live block is.
    Stamped {
        /// The block: where it begins, or any address in it.
        address: u64,
        /// The address of the [`Stamp`](heapledger_core::stamp::Stamp) in the recorder, whose text came before.
        stamp: u64,
    },
    /// A memory reporter has reported a block.
    Marked {
        /// What it reported.
        address: u64,
        /// The address of the [`Stamp`](heapledger_core::stamp::Stamp) that is the reporter's name, whose text came before.
        reporter: u64,
        /// Where.
        stack: StackId,
        /// Whether the mark stays when marks are cleared.
        is_kept: bool,
        /// Whether the address is on the stack of the thread that reports it.
        is_on_stack: bool,
        /// Whether the address may be anywhere in the block.
        is_around: bool,
        /// As how many bytes it counts the block. 0: as all that may be used of it.
        measured: u64,
    },
    /// A reporter takes its mark, one that is kept, off a block.
    Unmarked {
        /// The block.
        address: u64,
        /// As in [`Extended::Marked`].
        reporter: u64,
    },
    /// All marks are gone that are not to be kept: reporters are about to be asked.
    MarksCleared,
    /// All reporters have been asked.
    MarksComplete,
    /// In a session that samples: this thread has made allocations that are not in the sample, since the latest of its own
    /// that is.
    Others,
    /// A process is about to become another program, or has started one.
    Exec {
        /// The process that this image is of, as its own pid namespace numbers it.
        process: u32,
        /// The process of the other program: another one in a child of `vfork`. 0: not known.
        pid: u32,
        /// Why it will not be recorded: a number of `heapledger explain`. 0: it should be.
        reason: u16,
        /// True if so little address space is allowed that the recorder may not fit in.
        is_tight: bool,
        /// When the call was made, before which the other program did not run: a stamp.
        since: u64,
        /// Its file.
        path: Packed<'words>,
    },
    /// The latest [`Extended::Exec`] about this process came to nothing: it goes on as it was.
    ExecFailed {
        /// The process.
        pid: u32,
    },
    /// Anything else: passes through to the recording.
    Annotation {
        /// 256 or more.
        code: u16,
        /// Its payload.
        payload: Words<'words>,
    },
}

/// Bytes packed into words, low byte first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed<'words> {
    /// The words, zero-padded.
    pub words: Words<'words>,
    /// How many bytes they hold.
    pub length: usize,
}

impl Packed<'_> {
    /// The bytes, one by one.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        self.words.iter().flat_map(|word| word.to_le_bytes()).take(self.length)
    }
}

/// Packs bytes into words, as many as there is room for.
pub fn pack_some(bytes: impl IntoIterator<Item = u8>, words: &mut [u64]) -> Packed<'_> {
    let mut length = 0;
    for (at, byte) in bytes.into_iter().take(words.len() * 8).enumerate() {
        if let Some(word) = words.get_mut(at / 8) {
            *word = (if at % 8 == 0 { 0 } else { *word }) | u64::from(byte) << (at % 8 * 8);
            length = at + 1;
        }
    }
    Packed { words: words.get(..length.div_ceil(8)).unwrap_or(&[]), length }
}

/// Packs bytes into words. Returns how many words it took, or `None` when they do not fit.
pub fn pack(bytes: &[u8], words: &mut [u64]) -> Option<usize> {
    let count = bytes.len().div_ceil(8);
    for (word, chunk) in words.get_mut(..count)?.iter_mut().zip(bytes.chunks(8)) {
        let mut packed = [0_u8; 8];
        for (to, from) in packed.iter_mut().zip(chunk) {
            *to = *from;
        }
        *word = u64::from_le_bytes(packed);
    }
    Some(count)
}

/// Writes an extended event into `buffer` and returns its words, or `None` when it does not fit.
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
        Extended::ReallocEnd { api, outcome, address, size, stack, count, rate } => {
            let what = api as u64 | (outcome as u64) << 8 | u64::from(rate.logarithm()) << 16;
            writer.put(&[what, address, size, u64::from(stack.0), count])?;
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
        Extended::Moved { address, stack } => {
            writer.put(&[address, u64::from(stack.0)])?;
            code::MOVED
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
        Extended::Others => code::OTHERS,
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

/// A decoded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'words> {
    /// `free`.
    Free {
        /// The block.
        address: u64,
    },
    /// `malloc`.
    Malloc {
        /// What it returned.
        address: u64,
        /// Requested bytes.
        size: u64,
        /// Where.
        stack: StackId,
    },
    /// `calloc`.
    Calloc {
        /// What it returned.
        address: u64,
        /// Requested bytes.
        size: u64,
        /// Where.
        stack: StackId,
        /// Its first argument.
        count: u32,
        /// Its second argument.
        each: u32,
    },
    /// `realloc` has begun.
    ReallocBegin {
        /// The block.
        address: u64,
    },
    /// `realloc` has returned a block.
    ReallocEnd {
        /// What it returned.
        address: u64,
        /// Requested bytes.
        size: u64,
        /// Where.
        stack: StackId,
    },
    /// A stack-tree node: no stamp, no order.
    Node {
        /// Its id.
        id: StackId,
        /// The node of the calling frame.
        parent: StackId,
        /// What it stands for; a number this version does not know reads as a frame.
        kind: NodeKind,
        /// The address to look up.
        address: u64,
    },
    /// Only moves the clock, or a kind this version does not know.
    Nothing,
    /// Everything else, for [`Extended::parse`]: left as it is, so that frequent events stay small.
    Extended {
        /// What it is; see [`code`].
        code: u16,
        /// The words after the stamp.
        payload: Words<'words>,
    },
}

/// Reads events off a run of words, keeping the clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decoder {
    /// The stamp of the last event, in units.
    pub stamp: u64,
}

/// Words that are no event: the producer has gone wild.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

impl Decoder {
    /// The next event and how many words it takes; `None` when `words` ends before it does. Afterwards
    /// [`Decoder::stamp`] is the event's stamp.
    #[inline(always)]
    pub fn next<'words>(&mut self, words: Words<'words>) -> Result<Option<(Event<'words>, usize)>, Corrupt> {
        let Some(&first) = words.first() else { return Ok(None) };
        let kind = first & 15;
        let length = match kind {
            FREE | REALLOC_BEGIN => 1,
            MALLOC | REALLOC_END | NODE | SYNC | 8..=11 => 2,
            CALLOC | 12..=14 => 3,
            EXTENDED => (first >> 20 & 0xffff) as usize,
            _ => return Err(Corrupt),
        };
        if length > WORDS_MAX || (kind == EXTENDED && length < 2) {
            return Err(Corrupt);
        }
        let Some(words) = words.get(..length) else { return Ok(None) };
        let word = |index: usize| words.get(index).copied().unwrap_or(0);
        let event = match kind {
            NODE => {
                let kind = NodeKind::from_number((first >> 56) as u8).unwrap_or(NodeKind::Frame);
                let id = |shift: u32| StackId((first >> shift) as u32 & StackId::MAX.0);
                Event::Node { id: id(4), parent: id(30), kind, address: word(1) }
            }
            SYNC => {
                self.stamp = word(1);
                Event::Nothing
            }
            8..=14 => Event::Nothing,
            EXTENDED => {
                self.stamp = word(1);
                Event::Extended { code: (first >> 4) as u16, payload: words.get(2..).unwrap_or(&[]) }
            }
            _ => {
                self.stamp = self.stamp.wrapping_add(first >> 4 & 0xffff);
                let address = first >> 20 << 3;
                let (size, stack) = (word(1) & (COMPACT_SIZE_END - 1), StackId((word(1) >> 38) as u32));
                match kind {
                    FREE => Event::Free { address },
                    MALLOC => Event::Malloc { address, size, stack },
                    CALLOC => {
                        Event::Calloc { address, size, stack, count: word(2) as u32, each: (word(2) >> 32) as u32 }
                    }
                    REALLOC_BEGIN => Event::ReallocBegin { address },
                    _ => Event::ReallocEnd { address, size, stack },
                }
            }
        };
        Ok(Some((event, length)))
    }
}

/// The stack in the second word of a compact event about an allocation: of one that has an address and a second word.
#[inline(always)]
pub const fn stack_ahead(second: u64) -> StackId {
    StackId((second >> 38) as u32)
}

/// What the first word of an event says without the others, to look ahead of a [`Decoder`]: how many words the event
/// takes, at least 1, and the address of the block if it is a compact event about one.
#[inline(always)]
pub const fn look_ahead(first: u64) -> (usize, Option<u64>) {
    let address = first >> 20 << 3;
    match first & 15 {
        FREE | REALLOC_BEGIN => (1, Some(address)),
        MALLOC | REALLOC_END => (2, Some(address)),
        CALLOC => (3, Some(address)),
        NODE | SYNC | 8..=11 => (2, None),
        12..=14 => (3, None),
        EXTENDED => {
            let length = (first >> 20 & 0xffff) as usize;
            (if length == 0 { 1 } else { length }, None)
        }
        _ => (1, None),
    }
}

impl<'words> Extended<'words> {
    /// The event of this code with this payload. `None`: a code below 256 that this version does not know.
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
            code::MOVED => Extended::Moved { address: word(0)?, stack: stack(1)? },
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
            code::OTHERS => Extended::Others,
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
            code if code >= code::ANNOTATIONS => Extended::Annotation { code, payload },
            _ => return Ok(None),
        };
        Ok(Some(event))
    }
}

fn name_bytes(low: u64, high: u64) -> [u8; 16] {
    (u128::from(low) | u128::from(high) << 64).to_le_bytes()
}
