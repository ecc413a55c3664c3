//! The files of a replay, mapped.

use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use heapledger_wire::VERSION;
use heapledger_wire::replay::{
    CHUNK_BYTES, LABEL_BYTES, MAGIC, Operation, Outcome, RESULT, Sample, Table, VARIABLE, WORK, Work,
};

unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn lseek(fd: c_int, offset: c_long, whence: c_int) -> c_long;
    fn close(fd: c_int) -> c_int;
    fn mmap(at: *mut c_void, length: usize, protection: c_int, flags: c_int, fd: c_int, offset: c_long) -> *mut c_void;
}

const O_RDWR: c_int = 2;
const SEEK_END: c_int = 2;
const PROT_READ_WRITE: c_int = 1 | 2;
const MAP_SHARED: c_int = 1;
const MAP_ANONYMOUS: c_int = 0x20;
const MAP_NORESERVE: c_int = 0x4000;
const MAP_POPULATE: c_int = 0x8000;
/// Longer works are not read in advance: they may not fit in memory.
const POPULATED_MAX: usize = 2 << 30;
/// The longest path of the directory, in bytes.
const PATH_MAX: usize = 4000;

/// The work and the result. Both stay mapped until the process ends.
#[derive(Clone, Copy)]
pub(crate) struct Files {
    work: *const u8,
    pub(crate) head: Work,
    outcome: *const Outcome,
}

impl Files {
    /// Maps the files in the directory that the environment names. `None` if there are none, or if
    /// they are of another version.
    pub(crate) fn open() -> Option<Files> {
        let (work, length) = map(WORK)?;
        if length < CHUNK_BYTES {
            return None;
        }
        // SAFETY: the file has at least a chunk, and the mapping is aligned to a page. Any content
        // is a valid `Work`.
        let head = unsafe { work.cast::<Work>().read() };
        if head.magic != MAGIC || head.version != u64::from(VERSION) || head.tables as usize >= length {
            return None;
        }
        let (outcome, length) = map(RESULT)?;
        let is_complete = length >= size_of::<Outcome>();
        is_complete.then_some(Files { work, head, outcome: outcome.cast() })
    }

    pub(crate) fn outcome(&self) -> &'static Outcome {
        // SAFETY: the mapping is as long as an `Outcome`, aligned to a page, and never unmapped.
        // All fields are atomic numbers, for which any content is valid.
        unsafe { &*self.outcome }
    }

    /// Returns the first operation of a chunk.
    pub(crate) fn chunk(&self, number: u64) -> *const Operation {
        self.work.wrapping_add(number as usize * CHUNK_BYTES).cast()
    }

    /// Returns the first chunk of a thread, which the work has.
    pub(crate) fn first_chunk(&self, thread: usize) -> u64 {
        // SAFETY: the table of chunks has a number for each thread: the work's contract.
        unsafe { self.table().add(thread).read() }
    }

    /// Returns the number of operations of an epoch, which the work has.
    pub(crate) fn operations(&self, epoch: usize) -> u64 {
        // SAFETY: the table of epochs has a number for each epoch, and follows that of the threads:
        // the work's contract.
        unsafe { self.table().add(self.head.threads as usize + epoch).read() }
    }

    /// Returns the label of an arena, which the work has.
    pub(crate) fn label(&self, arena: usize) -> *const c_char {
        let labels = self.table().wrapping_add((self.head.threads + self.head.epochs) as usize);
        labels.cast::<c_char>().wrapping_add(arena * LABEL_BYTES)
    }

    fn table(&self) -> *const u64 {
        self.work.wrapping_add(self.head.tables as usize).cast()
    }

    /// Returns the place for a sample, which is smaller than the room for samples.
    pub(crate) fn sample(&self, number: usize) -> *mut Sample {
        self.outcome.wrapping_add(1).cast::<Sample>().cast_mut().wrapping_add(number)
    }

    /// Returns a table of live blocks. `None` if there is no room for it.
    pub(crate) fn table_of_blocks(&self, number: u64) -> Option<&'static Table> {
        let outcome = self.outcome();
        if number >= outcome.tables.load(Ordering::Relaxed) {
            return None;
        }
        let samples = outcome.room.load(Ordering::Relaxed) as usize;
        let tables = self.sample(samples).cast::<Table>().cast_const();
        // SAFETY: the file has as many tables behind the samples as it says, which are aligned as
        // the samples are. The mapping stays, and all content of atomic numbers is valid.
        Some(unsafe { &*tables.wrapping_add(number as usize) })
    }
}

/// Maps zeroed memory that is not anonymous to the kernel. `None` if there is none.
pub(crate) fn map_shared(words: usize) -> Option<*const AtomicU64> {
    let flags = MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: without MAP_FIXED the kernel picks unused addresses.
    let start = unsafe { mmap(core::ptr::null_mut(), words.max(1) * 8, PROT_READ_WRITE, flags, -1, 0) };
    (start.addr() != usize::MAX).then_some(start.cast())
}

fn map(name: &str) -> Option<(*const u8, usize)> {
    let mut path = [0_u8; PATH_MAX + 16];
    let mut variable = [0_u8; 32];
    variable.get_mut(..VARIABLE.len())?.copy_from_slice(VARIABLE.as_bytes());
    // SAFETY: `getenv` demands a string; its answer is null or a string of the environment, which
    // nobody changes while constructors run.
    let directory = unsafe {
        let value = getenv(variable.as_ptr().cast());
        if value.is_null() {
            return None;
        }
        CStr::from_ptr(value).to_bytes()
    };
    let mut length = 0;
    for part in [directory, b"/", name.as_bytes()] {
        path.get_mut(length..length + part.len())?.copy_from_slice(part);
        length += part.len();
    }
    // SAFETY: `open` demands a string, which `path` is: it has zeroes behind what was copied.
    // `mmap` without MAP_FIXED picks unused addresses.
    unsafe {
        let fd = open(path.as_ptr().cast(), O_RDWR);
        let length = usize::try_from(lseek(fd, 0, SEEK_END)).ok().filter(|&length| length > 0)?;
        let populate = if length <= POPULATED_MAX { MAP_POPULATE } else { 0 };
        let start = mmap(core::ptr::null_mut(), length, PROT_READ_WRITE, MAP_SHARED | populate, fd, 0);
        close(fd);
        (start.addr() != usize::MAX).then_some((start.cast_const().cast(), length))
    }
}
