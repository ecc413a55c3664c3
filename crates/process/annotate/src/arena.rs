//! Arenas: parts of the heap with a label, totals and a limit of their own.
//!
//! The functions of `heapledger/arena.h` make the blocks if something in the process defines them:
//! `heapledger record`, which then has the arena of each block in the recording, or
//! `libheapledger_allocator.so`, whose arenas have memory of their own. Otherwise the global
//! allocator makes the blocks, and the ledger inside the program does not tell them from others.
//!
//! ```
//! use std::alloc::Layout;
//!
//! use heapledger_annotate::Arena;
//!
//! let images = Arena::with_limit("images", 1 << 20).expect("there is memory");
//! let layout = Layout::array::<u32>(1000).unwrap();
//! let pixels = images.allocate(layout).expect("it is within the limit");
//! assert_eq!((images.blocks(), images.bytes()), (1, 4000));
//! // SAFETY: the block is from this arena and of this layout, and is not used any more.
//! unsafe { images.deallocate(pixels, layout) };
//! ```

use core::ffi::c_void;
use core::mem;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU64, Ordering};
use std::alloc::{self, Layout};
use std::ffi::CString;
use std::process;

use heapledger_core::weak_address;

/// The alignment of every block of malloc.
const MALLOC_ALIGNMENT: usize = 16;

/// A part of the heap.
///
/// Its functions may be called in any thread. Dropping an arena that still has blocks aborts the
/// program with a message, as the disposal of an arena in C does.
#[derive(Debug)]
pub struct Arena {
    label: String,
    /// The number by which the functions of C know it; `None` if there are no such functions.
    id: Option<u64>,
    blocks: AtomicU64,
    bytes: AtomicU64,
    bytes_max: u64,
}

impl Arena {
    /// Creates an arena without a limit. The first 127 bytes of the label are shown. `None` if
    /// there is no memory, or the process has as many arenas as it can have.
    pub fn new(label: &str) -> Option<Arena> {
        Arena::create(label, u64::MAX)
    }

    /// Creates an arena whose live blocks may have at most so many bytes.
    pub fn with_limit(label: &str, bytes_max: u64) -> Option<Arena> {
        Arena::create(label, bytes_max)
    }

    fn create(label: &str, bytes_max: u64) -> Option<Arena> {
        let id = match functions::create() {
            None => None,
            Some(create) => {
                let text = CString::new(label.split('\0').next().unwrap_or_default()).ok()?;
                let size = size_of::<functions::Parameters>() as u32;
                let parameters = functions::Parameters { size, label: text.as_ptr(), ..functions::Parameters::NONE };
                // SAFETY: the function of arena.h, with parameters that live until it returns. It
                // copies the label, which has a terminator.
                match unsafe { create(&raw const parameters) } {
                    0 => return None,
                    id => Some(id),
                }
            }
        };
        let (blocks, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Some(Arena { label: label.to_owned(), id, blocks, bytes, bytes_max })
    }

    /// Returns the label.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the number of live blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Returns the requested bytes of the live blocks.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns a block of this layout, whose contents are undefined. `None` if there is no memory,
    /// or the limit does not permit it.
    pub fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.counted(layout.size(), || match (self.id, functions::malloc(), functions::memalign()) {
            // SAFETY: the functions of arena.h, for a live arena.
            (Some(id), Some(malloc), _) if layout.align() <= MALLOC_ALIGNMENT => unsafe { malloc(id, layout.size()) },
            // SAFETY: the same; a layout's alignment is a power of two.
            (Some(id), _, Some(memalign)) => unsafe { memalign(id, layout.align(), layout.size()) },
            // SAFETY: `alloc` asks for a size other than 0.
            _ => unsafe { alloc::alloc(not_empty(layout)) },
        })
    }

    /// Returns a block of this layout, filled with zeroes. `None` if there is no memory, or the
    /// limit does not permit it.
    pub fn allocate_zeroed(&self, layout: Layout) -> Option<NonNull<u8>> {
        let block = self.allocate(layout)?;
        // SAFETY: the block has so many bytes, and nobody else knows of it.
        unsafe { block.as_ptr().write_bytes(0, layout.size()) };
        Some(block)
    }

    /// Frees a block.
    ///
    /// # Safety
    ///
    /// This arena has returned the block for this layout, and it is not used any more.
    pub unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        self.discount(layout.size());
        // SAFETY: the block is live, by this function's `# Safety`, and whichever made it frees it:
        // an arena has an id from its creation on or never.
        unsafe {
            match (self.id, functions::free()) {
                (Some(id), Some(free)) => free(id, block.as_ptr()),
                _ => alloc::dealloc(block.as_ptr(), not_empty(layout)),
            }
        }
    }

    /// Changes the size of a block, which may move; its contents stay, up to the smaller size.
    /// `None` if there is no memory, or the limit does not permit it: the block is then as it was.
    ///
    /// # Safety
    ///
    /// This arena has returned the block for this layout; after a success it is not used any more.
    /// The new size, rounded up to the alignment, does not exceed [`isize::MAX`].
    pub unsafe fn reallocate(&self, block: NonNull<u8>, layout: Layout, size: usize) -> Option<NonNull<u8>> {
        let new_layout = Layout::from_size_align(size, layout.align()).ok()?;
        // The old block is there until the new one is: so it is in the totals, and in the limit.
        if let (Some(id), Some(realloc)) = (self.id, functions::realloc())
            && layout.align() <= MALLOC_ALIGNMENT
            && size > 0
        {
            let grows = size.saturating_sub(layout.size());
            if !self.reserve(grows) {
                return None;
            }
            // SAFETY: the function of arena.h, for a live arena and a live block of it, by this
            // function's `# Safety`.
            let Some(moved) = NonNull::new(unsafe { realloc(id, block.as_ptr(), size) }) else {
                self.bytes.fetch_sub(grows as u64, Ordering::Relaxed);
                return None;
            };
            self.bytes.fetch_sub(layout.size().saturating_sub(size) as u64, Ordering::Relaxed);
            return Some(moved);
        }
        let moved = self.allocate(new_layout)?;
        // SAFETY: both blocks have so many bytes, and are different; `deallocate` asks for what
        // this function's `# Safety` asks for.
        unsafe {
            ptr::copy_nonoverlapping(block.as_ptr(), moved.as_ptr(), layout.size().min(size));
            self.deallocate(block, layout);
        }
        Some(moved)
    }

    /// Counts a block that a function returns, unless it exceeds the limit or is null.
    fn counted(&self, size: usize, allocate: impl FnOnce() -> *mut u8) -> Option<NonNull<u8>> {
        if !self.reserve(size) {
            return None;
        }
        self.blocks.fetch_add(1, Ordering::Relaxed);
        let block = NonNull::new(allocate());
        if block.is_none() {
            self.discount(size);
        }
        block
    }

    /// Adds to the bytes. False if the limit does not permit it.
    fn reserve(&self, size: usize) -> bool {
        // The total never has bytes that are refused: another thread would be refused because of
        // them.
        let add = |bytes: u64| bytes.checked_add(size as u64).filter(|&bytes| bytes <= self.bytes_max);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    fn discount(&self, size: usize) {
        self.bytes.fetch_sub(size as u64, Ordering::Relaxed);
        self.blocks.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let (blocks, bytes) = (self.blocks(), self.bytes());
        if blocks != 0 {
            // The message of the functions of C.
            let (id, label) = (self.id.unwrap_or(0), &self.label);
            eprintln!("heapledger: arena {id:#x} ({label}) was disposed of with {blocks} live blocks of {bytes} bytes");
            process::abort();
        }
        if let (Some(id), Some(dispose)) = (self.id, functions::dispose()) {
            // SAFETY: the function of arena.h, for a live arena that nobody uses any more.
            unsafe { dispose(id) };
        }
    }
}

/// Returns a layout with one byte instead of none, which the global allocator does not permit.
fn not_empty(layout: Layout) -> Layout {
    Layout::from_size_align(layout.size().max(1), layout.align()).unwrap_or(layout)
}

/// The functions of arena.h, if something in the process defines them.
mod functions {
    use core::ffi::c_char;

    use super::{c_void, mem, ptr, weak_address};

    /// `heapledger_arena_params`.
    #[repr(C)]
    pub(super) struct Parameters {
        pub(super) size: u32,
        pub(super) flags: u32,
        pub(super) label: *const c_char,
        pub(super) dirty_max: usize,
        pub(super) dirty_overrides: [i32; 2],
        pub(super) bytes_max: usize,
        pub(super) chunks: *const c_void,
    }

    impl Parameters {
        pub(super) const NONE: Parameters = Parameters {
            size: 0,
            flags: 0,
            label: ptr::null(),
            dirty_max: 0,
            dirty_overrides: [0; 2],
            bytes_max: 0,
            chunks: ptr::null(),
        };
    }

    /// Defines functions that return a function of C, or `None` if it is not defined.
    macro_rules! functions {
        ($($name:ident = $symbol:literal: fn($($argument:ty),*) -> $result:ty;)*) => {
            $(pub(super) fn $name() -> Option<unsafe extern "C" fn($($argument),*) -> $result> {
                let address: usize = weak_address!($symbol);
                // SAFETY: 0 is `None`; otherwise the function of this name, whose type this is.
                unsafe { mem::transmute(address) }
            })*
        };
    }

    functions! {
        create = "heapledger_arena_create": fn(*const Parameters) -> u64;
        dispose = "heapledger_arena_dispose": fn(u64) -> ();
        malloc = "heapledger_arena_malloc": fn(u64, usize) -> *mut u8;
        memalign = "heapledger_arena_memalign": fn(u64, usize, usize) -> *mut u8;
        realloc = "heapledger_arena_realloc": fn(u64, *mut u8, usize) -> *mut u8;
        free = "heapledger_arena_free": fn(u64, *mut u8) -> ();
    }
}

#[cfg(test)]
mod tests;
