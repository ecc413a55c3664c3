//! The bridge: how a program that links Heapledger, in Rust or in C, finds its observer.
//!
//! The observer exports one data symbol, `heapledger_bridge_v1`: a table that begins with its size
//! and version, followed by functions. Programs refer to it weakly ([`find`]): if nobody observes,
//! its address is null. Functions are only ever appended; a user checks the size. `heapledger.h`
//! declares the same table.

use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::context::ScopeStack;
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

        impl BridgeRef {
            $(
                /// Returns the function of this name, if this observer has it: see [`Bridge`].
                #[inline]
                pub fn $name(self) -> Option<$type> {
                    let end = offset_of!(Bridge, $name) + size_of::<$type>();
                    // SAFETY: the symbol is defined as such a table, of `size` bytes, which does
                    // not change and stays: the observer is never unloaded. Reads are within these
                    // bytes.
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
    /// Returns non-zero if events are being recorded now.
    is_recording: extern "C" fn() -> c_int,
    /// Writes an annotation: a code of 256 or more and at most 256 words. Returns 0 if it was
    /// written.
    annotate: unsafe extern "C" fn(u32, *const u64, usize) -> c_int,
    /// Proposes a stack of scopes for the calling thread: memory that lives as long as the thread.
    /// Returns the stack to use, which is the first that was proposed.
    contexts: unsafe extern "C" fn(*mut ScopeStack) -> *mut ScopeStack,
    /// Notifies that a pool gave out a block: its address, below 2⁴⁷, and its size in bytes.
    pool_allocated: unsafe extern "C" fn(*const Pool, u64, u64),
    /// Notifies that a pool takes back the block at an address.
    pool_freed: unsafe extern "C" fn(*const Pool, u64),
    /// Notifies that a pool takes back all its blocks.
    pool_reset: unsafe extern "C" fn(*const Pool),
    /// Notifies that a pool takes back all its blocks and is closed.
    pool_closed: unsafe extern "C" fn(*const Pool),
    /// Declares that a block of the allocator becomes backing memory of a pool: the pool's blocks
    /// are counted instead of it.
    pool_backed: unsafe extern "C" fn(*const Pool, u64),
    /// Attributes a live block, by its address, to the context that the calling thread is in.
    set_context: unsafe extern "C" fn(u64),
    /// Queries of the ledger of this process: a table of C functions, see `heapledger.h`. Null if
    /// the observer is another process.
    ledger: *const c_void,
    /// Declares the type of the live block at, or around, an address: a name with its length in
    /// bytes, and the place of the declaration, or null. Both are static. Returns 1 if done; 0 if
    /// the block is not recorded or not known.
    stamp: unsafe extern "C" fn(u64, *const u8, u32, *const Place) -> c_int,
    /// Records that a reporter has reported the block that begins at an address, with the caller's
    /// stack. Returns a number of [`mark`].
    mark: unsafe extern "C" fn(u64, *const Marking) -> c_int,
    /// Finds the start and the sizes of the live block around an address. Returns 1 if it is known;
    /// otherwise 0, and writes nothing.
    block_around: unsafe extern "C" fn(u64, *mut Extent) -> c_int,
    /// Removes a reporter's mark, one that is [kept](mark::KEEP), from the block that begins at an
    /// address and is about to be freed. The reporter is given by its name, static, with its length
    /// in bytes. Returns 1 if the block had such a mark, 0 if none is known.
    unmark: unsafe extern "C" fn(u64, *const u8, u32) -> c_int,
    /// Removes all marks that are not to be kept: reporters are about to be asked.
    clear_marks: extern "C" fn(),
    /// Declares that all reporters have been asked: the present marks are the result.
    marks_complete: extern "C" fn(),
}

/// A reporter's mark of a block.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Marking {
    /// The reporter's name: static.
    pub reporter: *const u8,
    /// Bytes of the name.
    pub reporter_length: u32,
    /// [`mark::KEEP`] and [`mark::AROUND`], or 0.
    pub flags: u32,
    /// The number of bytes that the reporter counts for the block. 0 for its usable size.
    pub measured: u64,
}

impl Marking {
    /// Returns the mark of a reporter of this name.
    pub fn new(reporter: &'static str, flags: u32, measured: u64) -> Marking {
        let reporter_length = u32::try_from(reporter.len()).unwrap_or(u32::MAX);
        Marking { reporter: reporter.as_ptr(), reporter_length, flags, measured }
    }
}

/// Flags and results of [`Bridge::mark`].
pub mod mark {
    use core::ffi::c_int;

    /// Flag: the mark stays when marks are cleared. It is made once, when the block is allocated.
    pub const KEEP: u32 = 1;
    /// Flag: the address may be anywhere in the block, because the reporter does not know the
    /// block's start. Such a report is not a defect, wherever the address is.
    pub const AROUND: u32 = 2;

    /// No marks are kept, or none for this block because the ledger samples.
    pub const UNKNOWN: c_int = 0;
    /// This is the first report of the block.
    pub const ONCE: c_int = 1;
    /// The block had been reported before.
    pub const AGAIN: c_int = 2;
    /// The mark was passed to the recorder. Its result is found out when the recording is read.
    pub const RECORDED: c_int = 3;
    /// The ledger knows no live block there.
    pub const NO_BLOCK: c_int = -1;
    /// The address is inside a block, not at its beginning.
    pub const INSIDE: c_int = -2;
}

/// The location and the sizes of a block.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The address of its first byte.
    pub address: u64,
    /// The requested size in bytes.
    pub bytes: u64,
    /// The usable size in bytes.
    pub bytes_usable: u64,
}

// SAFETY: the table is not written once it is shared. Besides numbers it holds functions that may
// be called in any thread, and the address of another such table, `ledger`.
unsafe impl Sync for Bridge {}

/// Returns the bridge to the ledger of this program itself, if it has started one, even if another
/// process observes the program too.
pub fn own() -> Option<BridgeRef> {
    NonNull::new(OWN.load(Ordering::Acquire)).map(BridgeRef)
}

/// The bridge of this process's observer.
#[derive(Clone, Copy, Debug)]
pub struct BridgeRef(NonNull<Bridge>);

// SAFETY: a `BridgeRef` is the address of a table that stays for ever, does not change, and is
// `Sync`.
unsafe impl Send for BridgeRef {}
// SAFETY: references to a `BridgeRef` allow no more than the address itself, which is `Send`: its
// methods take copies of it.
unsafe impl Sync for BridgeRef {}

/// The bridge to the ledger of this program, used if no other process observes it.
static OWN: AtomicPtr<Bridge> = AtomicPtr::new(ptr::null_mut());

/// Offers a bridge to the code of this program that is linked with this crate: [`find`] returns it
/// unless there is a recorder.
pub fn offer(bridge: &'static Bridge) {
    OWN.store(ptr::from_ref(bridge).cast_mut(), Ordering::Release);
}

/// Returns the bridge, if anybody observes this process: the recorder's rather than that of the
/// program's own ledger. A load or two, and as many tests.
#[inline(always)]
pub fn find() -> Option<BridgeRef> {
    let recorder = NonNull::new(crate::arch::bridge().cast_mut());
    recorder.or_else(|| NonNull::new(OWN.load(Ordering::Acquire))).map(BridgeRef)
}
