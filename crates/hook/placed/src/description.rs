//! The variable by which the tool finds all else.

use core::mem::offset_of;

use heapledger_core::sys;
use heapledger_core::thread_slots::{self, ThreadSlot};
use heapledger_wire::VERSION;
use heapledger_wire::placed::{Description, Slots};

use crate::exec;
use crate::later;
use crate::start::PARAMETERS;

/// The description by which the tool finds all else.
#[unsafe(no_mangle)]
#[used]
pub static heapledger_placed: Description = Description {
    version: VERSION as u64,
    thunks: heapledger_redirect::THUNKS,
    parameters: (&raw const PARAMETERS).cast(),
    exec: exec::THUNK,
    mappings: sys::mappings::list(),
    slots: Slots {
        table: (&raw const thread_slots::TABLE).cast(),
        multiplier: thread_slots::MULTIPLIER.cast_unsigned() as u64,
        bits: thread_slots::SLOTS_BITS as u64,
        length: 1 << thread_slots::SLOT_LENGTH_BITS,
        inside_at: offset_of!(ThreadSlot, inside) as u64,
    },
    linker_event: later::EVENT,
};
