//! The bridge: how a program that links Heapledger, in Rust or in C, finds whoever observes it.
//!
//! The observer exports one data symbol, `heapledger_bridge_v1`: a table that says its size and version, followed by
//! functions. Programs refer to it weakly ([`find`]): where nobody observes, its address is null. Functions are only ever
//! appended; a user checks the size. `heapledger.h` declares the same table.

use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::context::Stack;
use crate::pool::Pool;
use crate::stamp::Place;

macro_rules! bridge {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {
        /// The table behind `heapledger_bridge_v1`.
        #[repr(C)]
        #[derive(Debug)]
        pub struct Bridge {
            /// Bytes of this table.
            pub size: u32,
            /// 1.
            pub version: u32,
            $($(#[$doc])* pub $name: $type,)*
        }

        impl Found {
            $(
                /// The function of this name, if this observer has it: see [`Bridge`].
                #[inline]
                pub fn $name(self) -> Option<$type> {
                    let end = offset_of!(Bridge, $name) + size_of::<$type>();
                    // SAFETY: whoever defines the symbol defines such a table, of `size` bytes, which does not change and
                    // stays: the observer is never unloaded. Reads are within these bytes.
                    unsafe {
                        let table = self.0.as_ptr();
                        if (*table).size as usize >= end { Some((&raw const (*table).$name).read()) } else { None }
                    }
                }
            )*
        }
    };
}

bridge! {
    /// Whether events are being recorded now: not 0 then.
    is_recording: extern "C" fn() -> c_int,
    /// Writes an annotation: a code of 256 or more and at most 256 words. 0 when it was written.
    annotate: unsafe extern "C" fn(u32, *const u64, usize) -> c_int,
    /// Proposes a stack of scopes for the calling thread: memory that lives as long as the thread. Returns the one to
    /// use: the first that was proposed.
    contexts: unsafe extern "C" fn(*mut Stack) -> *mut Stack,
    /// A pool gave out a block: its address, below 2⁴⁷, and bytes.
    pool_allocated: unsafe extern "C" fn(*const Pool, u64, u64),
    /// A pool takes the block at an address back.
    pool_freed: unsafe extern "C" fn(*const Pool, u64),
    /// A pool takes all its blocks back.
    pool_reset: unsafe extern "C" fn(*const Pool),
    /// The same, and the pool is gone.
    pool_closed: unsafe extern "C" fn(*const Pool),
    /// A block of the allocator becomes memory of a pool: the pool's blocks stand for it.
    pool_backed: unsafe extern "C" fn(*const Pool, u64),
    /// A live block, by its address, is of the context that the calling thread is in.
    set_context: unsafe extern "C" fn(u64),
    /// Questions to the ledger of this process: a table of C functions, see `heapledger.h`. Null where the observer is
    /// another process, which has the answers.
    ledger: *const c_void,
    /// Says of the live block at, or around, an address what type it is of: a name of so many bytes, and where it is said,
    /// or null. Both are static. 1: done; 0: it is not recorded, or not known.
    stamp: unsafe extern "C" fn(u64, *const u8, u32, *const Place) -> c_int,
    /// A reporter says that it has reported the block that begins at an address, with the caller's stack. Answers with a
    /// [`mark`]'s number.
    mark: unsafe extern "C" fn(u64, *const Marking) -> c_int,
    /// Where the live block around an address begins, and its sizes. 1: it is known; 0: it is not, and nothing is written.
    block_around: unsafe extern "C" fn(u64, *mut Extent) -> c_int,
    /// A reporter takes its mark, one that is [kept](mark::KEEP), off the block that begins at an address, which is about to
    /// be freed: by its name, of so many bytes and static. 1: it had one; 0: none is known.
    unmark: unsafe extern "C" fn(u64, *const u8, u32) -> c_int,
    /// Takes all marks off that are not to be kept: reporters are about to be asked.
    clear_marks: extern "C" fn(),
    /// All reporters have been asked: what is marked now, and what is not, is what they say of the heap.
    marks_complete: extern "C" fn(),
}

/// Who has reported a block, and how.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Marking {
    /// The reporter's name: static.
    pub reporter: *const u8,
    /// Bytes of the name.
    pub reporter_length: u32,
    /// [`mark::KEEP`] and [`mark::AROUND`], or 0.
    pub flags: u32,
    /// As how many bytes it counts the block. 0: as all that may be used of it.
    pub measured: u64,
}

impl Marking {
    /// By a reporter of this name.
    pub fn new(reporter: &'static str, flags: u32, measured: u64) -> Marking {
        let reporter_length = u32::try_from(reporter.len()).unwrap_or(u32::MAX);
        Marking { reporter: reporter.as_ptr(), reporter_length, flags, measured }
    }
}

/// What [`Bridge::mark`] takes and answers.
pub mod mark {
    use core::ffi::c_int;

    /// The mark stays when marks are cleared: it is made once, when the block is allocated.
    pub const KEEP: u32 = 1;
    /// The address may be anywhere in the block: whoever measures does not know where it begins. No defect, wherever it is.
    pub const AROUND: u32 = 2;

    /// Nobody keeps marks, or not of this block: the ledger samples.
    pub const UNKNOWN: c_int = 0;
    /// It is the first report of this block.
    pub const ONCE: c_int = 1;
    /// The block had been reported before.
    pub const AGAIN: c_int = 2;
    /// The recorder has been told. What comes of it is found out when the recording is read.
    pub const RECORDED: c_int = 3;
    /// There is no live block that the ledger knows of.
    pub const NO_BLOCK: c_int = -1;
    /// The address is inside a block, not its beginning.
    pub const INSIDE: c_int = -2;
}

/// Where a block is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Its first byte.
    pub address: u64,
    /// Requested bytes.
    pub bytes: u64,
    /// Bytes that may be used.
    pub bytes_usable: u64,
}

// SAFETY: functions, which may be called in any thread, and numbers.
unsafe impl Sync for Bridge {}

/// The bridge to the ledger of this program itself, if it has started one, whoever observes it.
pub fn own() -> Option<Found> {
    NonNull::new(OWN.load(Ordering::Acquire)).map(Found)
}

/// The bridge of whoever observes this process.
#[derive(Clone, Copy, Debug)]
pub struct Found(NonNull<Bridge>);

// SAFETY: the table never changes, and its functions may be called in any thread.
unsafe impl Send for Found {}
// SAFETY: as above.
unsafe impl Sync for Found {}

/// The ledger of this program, which serves where no other process observes it.
static OWN: AtomicPtr<Bridge> = AtomicPtr::new(ptr::null_mut());

/// Offers a bridge to the code of this program that is linked with this crate: [`find`] finds it unless there is a
/// recorder.
pub fn offer(bridge: &'static Bridge) {
    OWN.store(ptr::from_ref(bridge).cast_mut(), Ordering::Release);
}

/// The bridge, if anybody observes this process: the recorder's before that of the program's own ledger. A load or two,
/// and as many tests.
#[inline(always)]
pub fn find() -> Option<Found> {
    let recorder = NonNull::new(crate::arch::bridge().cast_mut());
    recorder.or_else(|| NonNull::new(OWN.load(Ordering::Acquire))).map(Found)
}
