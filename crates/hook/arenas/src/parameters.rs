//! The parameters of a new arena, as `arena.h` declares them.

use core::ffi::{c_char, c_void};
use core::mem::offset_of;

use crate::labels::LABEL_BYTES_MAX;

/// Randomise the places of small blocks. Over malloc it has no effect.
pub const RANDOMISE: u32 = 1;
/// Do not randomise the places of small blocks. Over malloc it has no effect.
pub const NO_RANDOMISATION: u32 = 2;
/// Only one thread uses the arena. Over malloc it has no effect.
pub const SINGLE_THREAD: u32 = 4;
/// Chunks of the arena have no blocks of others. Over malloc it has no effect.
pub const PRIVATE: u32 = 8;

/// `struct heapledger_arena_params`. Entries are only ever appended; `size` says which are there.
#[derive(Debug)]
#[repr(C)]
pub struct Parameters {
    /// Bytes of this structure.
    pub size: u32,
    /// [`RANDOMISE`] and the other flags.
    pub flags: u32,
    /// The label: up to 127 bytes of it are copied. May be null.
    pub label: *const c_char,
    /// The limit of the arena's dirty bytes; 0 for the default.
    pub dirty_max: usize,
    /// The shift of that limit instead of the process's, if the process's is positive; 0 for the
    /// process's.
    pub dirty_increase_override: i32,
    /// The same, if the process's is negative.
    pub dirty_decrease_override: i32,
    /// The limit of the arena's memory in bytes; 0 for none.
    pub bytes_max: usize,
    /// Functions of the program that get the arena's memory; null for the system's.
    pub chunks: *const c_void,
}

/// The parameters, as far as they matter here.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The flags.
    pub flags: u32,
    /// The limit of bytes; 0 for none.
    pub bytes_max: usize,
    /// True if the memory is to come from functions of the program.
    pub has_chunks: bool,
    label: [u8; LABEL_BYTES_MAX],
    label_length: usize,
}

impl Settings {
    /// Reads parameters; null stands for the defaults.
    ///
    /// # Safety
    ///
    /// `parameters` is null, or points to as many bytes of the structure as its `size` says. The
    /// label is null or ends with a terminator.
    pub unsafe fn read(parameters: *const c_void) -> Settings {
        let mut read =
            Settings { flags: 0, bytes_max: 0, has_chunks: false, label: [0; LABEL_BYTES_MAX], label_length: 0 };
        let parameters = parameters.cast::<Parameters>();
        if parameters.is_null() {
            return read;
        }
        // SAFETY: not null, and by this function's `# Safety` the structure has its size at least,
        // and each entry that ends within its size. The label ends with a terminator, which the
        // loop does not go beyond.
        unsafe {
            let size = (&raw const (*parameters).size).read() as usize;
            let has = |end: usize| size >= end;
            if has(offset_of!(Parameters, label)) {
                read.flags = (&raw const (*parameters).flags).read();
            }
            if has(offset_of!(Parameters, dirty_max)) {
                let label = (&raw const (*parameters).label).read().cast::<u8>();
                for (index, byte) in read.label.iter_mut().enumerate().take_while(|_| !label.is_null()) {
                    match label.add(index).read() {
                        0 => break,
                        other => *byte = other,
                    }
                    read.label_length = index + 1;
                }
            }
            if has(offset_of!(Parameters, chunks)) {
                read.bytes_max = (&raw const (*parameters).bytes_max).read();
            }
            if has(size_of::<Parameters>()) {
                read.has_chunks = !(&raw const (*parameters).chunks).read().is_null();
            }
        }
        read
    }

    /// Returns the label; empty if there is none.
    pub fn label(&self) -> &[u8] {
        self.label.get(..self.label_length).unwrap_or(&[])
    }
}
