//! The table of functions behind `heapledger/low_memory.h`.

use heapledger_heap::{LowMemoryHandler, StallSpecs, set_low_memory_handler, set_stall, trim};

/// `heapledger_low_memory` of the header.
#[derive(Debug)]
#[repr(C)]
pub struct LowMemory {
    size: u32,
    version: u32,
    minimize: extern "C" fn() -> usize,
    set_stall: extern "C" fn(u32, u32),
    set_handler: extern "C" fn(Option<LowMemoryHandler>),
}

extern "C" fn c_minimize() -> usize {
    trim()
}

extern "C" fn c_set_stall(attempts_max: u32, delay_milliseconds: u32) {
    set_stall(StallSpecs { attempts_max, delay_milliseconds });
}

extern "C" fn c_set_handler(handler: Option<LowMemoryHandler>) {
    set_low_memory_handler(handler);
}

/// Version 1 of the table. Later versions add functions at its end.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "the name is a C symbol")]
pub static heapledger_low_memory_v1: LowMemory = LowMemory {
    size: size_of::<LowMemory>() as u32,
    version: 1,
    minimize: c_minimize,
    set_stall: c_set_stall,
    set_handler: c_set_handler,
};
