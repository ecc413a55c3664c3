//! Codes of extended events. Codes from 256 on are annotations: they pass through to the recording.

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
/// [`super::Extended::Reattributed`].
pub const REATTRIBUTED: u16 = 14;
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
/// [`super::Extended::Unsampled`].
pub const UNSAMPLED: u16 = 20;
/// [`super::Extended::Exec`].
pub const EXEC: u16 = 21;
/// [`super::Extended::ExecFailed`].
pub const EXEC_FAILED: u16 = 22;
/// [`super::Extended::Mapping`].
pub const MAPPING: u16 = 23;
/// The first code of annotations.
pub const ANNOTATIONS: u16 = 256;
/// An arena was created or is disposed of. Words: its number; [`ARENA_CREATED`] or
/// [`ARENA_DISPOSED`]; the label, in bytes, NUL-padded.
pub const ARENA: u16 = 259;
/// See [`ARENA`].
pub const ARENA_CREATED: u64 = 1;
/// See [`ARENA`].
pub const ARENA_DISPOSED: u64 = 2;
/// A point in time with a name: UTF-8, NUL-padded to whole words.
pub const MARKER: u16 = 262;
/// A stack that differs from the C library's (`--verify-stacks`). Words: the stack's id; the
/// index of the first frame that differs; the numbers of frames that follow of our stack and of
/// the other; our frames as addresses to look up, the other's as return addresses, both
/// beginning a few frames before the difference, innermost first.
pub const STACK_MISMATCH: u16 = 263;
/// A library whose allocator calls are not observed was opened. Words: the reason (1: in a
/// namespace of its own, by `dlmopen`; 2: with `RTLD_DEEPBIND`, in a process where another
/// library wraps the allocator; 3: an allocator inside of it could not be redirected); the path
/// that was asked for, in bytes, NUL-padded.
pub const UNSEEN_LIBRARY: u16 = 264;
/// The process has put itself in a sandbox: see `heapledger_core::sandbox`. No words.
pub const SANDBOX: u16 = 265;
/// The allocator has given pages back to the system; the annotation's time is the end of that.
/// Words: the arena's number, or 0; the numbers of pages, system calls and chunks; the duration in
/// nanoseconds; the bytes of the arena's label, and, in the high half, those of the reason; then
/// the two texts, each NUL-padded to whole words.
pub const PURGE: u16 = 266;
/// The words of [`PURGE`] before the texts.
pub const PURGE_WORDS: usize = 6;
/// The program asked its allocator for statistics. Words: the serial of the next allocation, and
/// the number of other events since the latest one. Only in recordings that are made from logs.
pub const STATISTICS: u16 = 270;
