//! The cell by which a running program is asked to join a session.
//!
//! A program is *armed* if it has the preload library and records nothing. The library then has an
//! [`ArmedCell`] in its data, and an ELF note that leads to it. The recorder finds the note in the
//! memory of the process, writes the session's address into the cell, and stores 1 into
//! [`ArmedCell::requested_at`]. The next call of a malloc function takes the request.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// The name of the note's owner, with the zero at its end.
pub const NOTE_NAME: &[u8; 11] = b"Heapledger\0";
/// The type of the note. Its content is the signed distance, in 8 bytes, from the content's own
/// address to the cell.
pub const NOTE_TYPE: u32 = 0x4c48_0002;
/// The first word of a cell.
pub const MAGIC: u64 = u64::from_le_bytes(*b"HLarmed\x01");
/// The length of the longest session address.
pub const ADDRESS_LENGTH_MAX: usize = 80;

/// Values of [`ArmedCell::state`].
pub mod state {
    /// No session: a request is taken at the next call.
    pub const ARMED: u32 = 0;
    /// The process belongs to a session.
    pub const JOINED: u32 = 1;
    /// The session is over or could not be reached, and threads may still be inside the recorder. A
    /// request is taken as soon as they have left it.
    pub const LEAVING: u32 = 2;
}

/// The cell. All numbers are native endian.
#[derive(Debug)]
#[repr(C)]
pub struct ArmedCell {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`crate::VERSION`] of the library.
    pub version: u32,
    /// One of [`state`].
    pub state: AtomicU32,
    /// The address of a 32-bit word that is 0 while nobody asks for anything; 0 if the process
    /// cannot join sessions.
    pub requested_at: AtomicU64,
    /// The address of the session page while the process belongs to a session.
    pub page_at: AtomicU64,
    /// The number of requests that were taken since the program began.
    pub taken: AtomicU32,
    /// The number of bytes of `address`.
    pub address_length: AtomicU32,
    /// The address of the session that is to be joined, as in
    /// [`ENVIRONMENT_VARIABLE`](crate::session::ENVIRONMENT_VARIABLE).
    pub address: [AtomicU8; ADDRESS_LENGTH_MAX],
}

impl ArmedCell {
    /// The length of a cell in bytes.
    pub const LENGTH: usize = size_of::<ArmedCell>();
    /// The positions of fields in the bytes of a cell.
    pub const VERSION_AT: usize = offset_of!(ArmedCell, version);
    /// See [`ArmedCell::VERSION_AT`].
    pub const STATE_AT: usize = offset_of!(ArmedCell, state);
    /// See [`ArmedCell::VERSION_AT`].
    pub const REQUESTED_AT: usize = offset_of!(ArmedCell, requested_at);
    /// See [`ArmedCell::VERSION_AT`].
    pub const PAGE_AT: usize = offset_of!(ArmedCell, page_at);
    /// See [`ArmedCell::VERSION_AT`].
    pub const TAKEN_AT: usize = offset_of!(ArmedCell, taken);
    /// See [`ArmedCell::VERSION_AT`].
    pub const ADDRESS_LENGTH_AT: usize = offset_of!(ArmedCell, address_length);
    /// See [`ArmedCell::VERSION_AT`].
    pub const ADDRESS_AT: usize = offset_of!(ArmedCell, address);

    /// Returns the cell of a program that has not been asked for anything.
    pub const fn new() -> ArmedCell {
        ArmedCell {
            magic: MAGIC,
            version: crate::VERSION,
            state: AtomicU32::new(state::ARMED),
            requested_at: AtomicU64::new(0),
            page_at: AtomicU64::new(0),
            taken: AtomicU32::new(0),
            address_length: AtomicU32::new(0),
            address: [const { AtomicU8::new(0) }; ADDRESS_LENGTH_MAX],
        }
    }
}

impl Default for ArmedCell {
    fn default() -> ArmedCell {
        ArmedCell::new()
    }
}
