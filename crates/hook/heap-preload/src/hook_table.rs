//! The allocator's statistics and look-up in the form of the hook table, for the preload library,
//! which finds these functions by their names. Programs use `heapledger/allocator.h`.

use core::ffi::{c_int, c_void};

use heapledger_core::block_sampler::{self, BlockSampler};

use heapledger_core::hooks::arena::{BinStatistics, LightStatistics, PointerInfo, Statistics};
use heapledger_heap::{BINS, detailed_statistics, lite_statistics, pointer_info, reset_randomisation};

/// Writes the totals, and the bins unless `bins` is null.
///
/// # Safety
///
/// `total` can be written to, and `bins` is null or has room for [`heapledger_statistics_bins`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_statistics(total: *mut Statistics, bins: *mut BinStatistics) {
    let now = detailed_statistics();
    let totals = Statistics {
        arenas: now.arenas as u64,
        mapped: now.mapped as u64,
        allocated: now.allocated as u64,
        waste: now.waste as u64,
        dirty: now.dirty as u64,
        fresh: now.fresh as u64,
        madvised: now.madvised as u64,
        bookkeeping: now.bookkeeping as u64,
        bin_unused: now.bin_unused as u64,
        operations: now.operations as u64,
        chunk_bytes: now.chunk_size as u64,
        page_bytes: now.page_size as u64,
        dirty_max: now.dirty_max as u64,
    };
    // SAFETY: `write` demands memory for the totals: this function's `# Safety`.
    unsafe { total.write(totals) };
    if bins.is_null() {
        return;
    }
    for (number, bin) in now.bins.iter().enumerate() {
        let bin = BinStatistics {
            size: bin.size as u64,
            runs_not_full: bin.runs_non_full as u64,
            runs: bin.runs as u64,
            bytes_unused: bin.unused as u64,
            bytes_total: bin.total as u64,
            bytes_per_run: bin.run_size as u64,
            blocks_per_run: bin.run_blocks as u64,
        };
        // SAFETY: `write` demands memory for a bin: there is room for all, by this function's
        // `# Safety`.
        unsafe { bins.add(number).write(bin) };
    }
}

/// Sets the sampler of blocks, for the heap checker. Returns 0, or another number if there is one
/// already.
///
/// # Safety
///
/// The sampler is never unloaded, and does as its type says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_block_sampler_v1(sampler: *const BlockSampler) -> c_int {
    block_sampler::set_supported(heapledger_heap::restart_sampling);
    // SAFETY: `as_ref` demands null or a live structure, and `set` one that keeps the contract of
    // its type and stays: this function's `# Safety`.
    unsafe { sampler.as_ref().map_or(1, |sampler| c_int::from(!block_sampler::set(sampler))) }
}

/// Returns the number of bins.
#[unsafe(no_mangle)]
pub extern "C" fn heapledger_statistics_bins() -> usize {
    BINS
}

/// Writes the totals that cost no walk. The bytes are an upper bound: those of runs and of huge
/// blocks. The operations are an estimate: see [`heapledger_heap::LiteStatistics::operations`].
///
/// # Safety
///
/// `total` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_statistics_light(total: *mut LightStatistics) {
    let now = lite_statistics();
    // SAFETY: `write` demands memory for the totals: this function's `# Safety`.
    unsafe {
        total.write(LightStatistics { allocated: now.allocated_max as u64, operations: now.operations as u64 });
    }
}

/// Tells what an address is.
///
/// # Safety
///
/// `info` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapledger_pointer_info(address: *const c_void, info: *mut PointerInfo) {
    let found = pointer_info(address.cast());
    let answer = PointerInfo {
        // The numbers are the same.
        kind: found.kind as u32,
        reserved: 0,
        address: found.start as u64,
        bytes: found.size as u64,
        arena: found.arena,
    };
    // SAFETY: `write` demands memory for the answer: this function's `# Safety`.
    unsafe { info.write(answer) };
}

/// Says if small blocks are at random places, and draws new random numbers for them.
#[unsafe(no_mangle)]
pub extern "C" fn heapledger_reset_randomisation(is_on: bool) {
    reset_randomisation(is_on);
}
