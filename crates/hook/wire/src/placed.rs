//! The parameters of the library that the recorder places into a program.
//!
//! The tool maps the library's segments in the program, and relocates them. The library exports one
//! variable, the [`Description`], by which the tool finds the thunks to which redirected entries
//! lead, and the place of the [`Parameters`]. The tool writes these before the program runs.

use core::mem::offset_of;

use crate::armed::ADDRESS_LENGTH_MAX;

/// The name of the library's [`Description`].
pub const SYMBOL: &str = "heapledger_placed";

/// The variable that the library exports: words that the tool reads in the relocated library.
#[derive(Debug)]
#[repr(C)]
pub struct Description {
    /// [`VERSION`](crate::VERSION).
    pub version: u64,
    /// The code with the thunks to which redirected entries lead: see
    /// [`Thunk::first`](crate::redirection::Thunk::first).
    pub thunks: unsafe extern "C" fn(),
    /// The memory for the parameters.
    pub parameters: *const Parameters,
    /// The function that makes the system call execve in the place of the program.
    pub exec: unsafe extern "C" fn(),
    /// The list of the library's private mappings: the address of the first page of the list, which
    /// has [`MAPPINGS_WORDS`] words: the address of the next page, a word that is not used, and
    /// pairs of a start and a length in bytes, which are 0 if they are free.
    pub mappings: *const (),
    /// The table of slots of threads.
    pub slots: Slots,
    /// The function that the dynamic linker is to call in the place of its own for debuggers.
    pub linker_event: unsafe extern "C" fn(),
}

/// A hash table of slots of threads, in which the tool looks whether a thread is inside of the
/// library.
///
/// A thread's slot is at the index `thread pointer * multiplier >> (32 - bits)`, of which both
/// factors and the product are taken modulo 2^32, or one of those that follow: the first that has
/// the thread pointer as its first word, or 0.
#[derive(Debug)]
#[repr(C)]
pub struct Slots {
    /// The first slot.
    pub table: *const (),
    /// The multiplier of the hash.
    pub multiplier: u64,
    /// The logarithm of the number of slots.
    pub bits: u64,
    /// The bytes of a slot.
    pub length: u64,
    /// The position in a slot of the number of calls that the thread is in.
    pub inside_at: u64,
}

impl Description {
    /// See [`Description::THUNKS_AT`]. Five words.
    pub const SLOTS_AT: u64 = offset_of!(Description, slots) as u64;
    /// The positions of fields in bytes.
    pub const THUNKS_AT: u64 = offset_of!(Description, thunks) as u64;
    /// See [`Description::THUNKS_AT`].
    pub const PARAMETERS_AT: u64 = offset_of!(Description, parameters) as u64;
    /// See [`Description::THUNKS_AT`].
    pub const EXEC_AT: u64 = offset_of!(Description, exec) as u64;
    /// See [`Description::THUNKS_AT`].
    pub const LINKER_EVENT_AT: u64 = offset_of!(Description, linker_event) as u64;
    /// See [`Description::THUNKS_AT`].
    pub const MAPPINGS_AT: u64 = offset_of!(Description, mappings) as u64;
}

/// The words of a page of [`Description::mappings`].
pub const MAPPINGS_WORDS: usize = 512;

// SAFETY: the pointers are addresses of statics, and only read.
unsafe impl Sync for Description {}

/// The most modules of the parameters.
pub const MODULES_MAX: usize = 8;

/// A module of the program: addresses of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PlacedModule {
    /// The first address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// The value to subtract from an address to get the module's own.
    pub bias: u64,
    /// The address of its `.eh_frame_hdr`; 0 if it has none.
    pub eh_frame_hdr: u64,
}

/// The parameters of the library: 64-bit words in the byte order of the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Parameters {
    /// The address at which the first thread's stack begins: that of the argument count.
    pub stack_top: u64,
    /// The number of entries that were to be redirected and were not.
    pub entries_missed: u64,
    /// 1 if the program ran before it was recorded.
    pub is_late: u64,
    /// The number of an [`AllocatorKind`](heapledger_core::allocator::AllocatorKind).
    pub allocator: u64,
    /// The addresses between which the allocator's own code is, if it frees blocks that its caller
    /// has freed already; 0 and 0 otherwise. glibc does so when a thread ends: it empties the
    /// thread's cache by calls of `free`.
    pub own_code: [u64; 2],
    /// The address of `r_state` of the dynamic linker; 0 if there is none, or it does not change.
    pub linker_state: u64,
    /// The length of the session's address.
    pub address_length: u64,
    /// The session's address, as the environment variable has it.
    pub address: [u8; ADDRESS_LENGTH_MAX],
    /// The number of modules.
    pub modules_count: u64,
    /// The modules.
    pub modules: [PlacedModule; MODULES_MAX],
}

impl Parameters {
    /// The bytes of the parameters.
    pub const LENGTH: usize = size_of::<Parameters>();

    /// Parameters without a session.
    pub const NONE: Parameters = Parameters {
        stack_top: 0,
        entries_missed: 0,
        is_late: 0,
        allocator: 0,
        own_code: [0; 2],
        linker_state: 0,
        address_length: 0,
        address: [0; ADDRESS_LENGTH_MAX],
        modules_count: 0,
        modules: [PlacedModule { start: 0, end: 0, bias: 0, eh_frame_hdr: 0 }; MODULES_MAX],
    };

    /// Returns parameters with this address of a session, and these modules, of which at most
    /// [`MODULES_MAX`] are taken. `None` if the address is too long.
    pub fn new(address: &[u8], modules: &[PlacedModule]) -> Option<Parameters> {
        let mut parameters = Parameters::NONE;
        parameters.address.get_mut(..address.len())?.copy_from_slice(address);
        parameters.address_length = address.len() as u64;
        parameters.modules.iter_mut().zip(modules).for_each(|(to, from)| *to = *from);
        parameters.modules_count = modules.len().min(MODULES_MAX) as u64;
        Some(parameters)
    }

    /// Returns the session's address.
    pub fn address(&self) -> &[u8] {
        self.address.get(..self.address_length as usize).unwrap_or(&[])
    }

    /// Returns the modules.
    pub fn modules(&self) -> &[PlacedModule] {
        self.modules.get(..self.modules_count as usize).unwrap_or(&[])
    }

    /// Returns the bytes of the parameters in memory.
    pub fn to_bytes(&self) -> [u8; Parameters::LENGTH] {
        let mut bytes = [0; Parameters::LENGTH];
        let mut rest = bytes.as_mut_slice();
        let mut put = |part: &[u8]| {
            if let Some((to, after)) = core::mem::take(&mut rest).split_at_mut_checked(part.len()) {
                to.copy_from_slice(part);
                rest = after;
            }
        };
        let Parameters {
            stack_top, entries_missed, is_late, allocator, own_code, linker_state, address_length, ..
        } = *self;
        let [first, last] = own_code;
        for word in [stack_top, entries_missed, is_late, allocator, first, last, linker_state, address_length] {
            put(&word.to_ne_bytes());
        }
        put(&self.address);
        put(&self.modules_count.to_ne_bytes());
        for PlacedModule { start, end, bias, eh_frame_hdr } in self.modules {
            for word in [start, end, bias, eh_frame_hdr] {
                put(&word.to_ne_bytes());
            }
        }
        bytes
    }
}

const _: () = assert!(
    ADDRESS_LENGTH_MAX.is_multiple_of(8) && Parameters::LENGTH == (9 + 4 * MODULES_MAX) * 8 + ADDRESS_LENGTH_MAX
);

#[cfg(test)]
mod tests;
