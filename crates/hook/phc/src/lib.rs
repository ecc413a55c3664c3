//! The probabilistic heap checker (PHC): a few allocations are sampled, and any wrong access to
//! these blocks is caught where it happens.
//!
//! A replacement in the [hook table](heapledger_core::hooks), which [`start`] installs. A sampled
//! block gets pages of its own between inaccessible pages, ends at the end of its pages, and when
//! it is freed its pages become inaccessible and are kept out of reuse. An access past the block,
//! or after the free, is a fault, which [a handler](install_handlers) reports. A free of a wrong
//! address is found at the call. All other blocks come from the program's own allocator, and cost
//! one decrement and one comparison; nothing with an allocator that counts
//! [at its refills](heapledger_core::block_sampler).
//!
//! - `countdown`: when a block is sampled. `slots`, `region`: where it is.
//! - [`lookup`](lookup()): what is at an address.
//! - [`PhcReport`], [`listen`]: what was found.
//!
//! The semantics are those of Mozilla's PHC (`memory/build/PHC.cpp`), with these differences: the
//! usable size of a block is the size that was asked for, blocks may be larger than a page, and the
//! rest of a block's pages is checked when the block is freed.
#![no_std]

#[cfg(test)]
extern crate std;

mod adaptive;
mod arch;
mod canary;
mod countdown;
mod fault;
mod lookup;
mod misuse;
mod options;
mod record;
mod region;
mod replace;
mod report;
mod signals;
mod sites;
mod slots;
mod stack;

use core::ffi::c_int;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

use heapledger_core::block_sampler::{self, BlockSampler};
use heapledger_core::hooks::{self, Functions, Hooks, dispatch, dispatch_path};
use heapledger_core::lock::Lock;
use heapledger_core::sys;
use heapledger_inprocess::capture;

pub use heapledger_inprocess::capture::{ContextSource, set_context_source};

pub use countdown::{PhcState, disable_thread, enable_thread, set_state, state};
pub use lookup::{PhcBlock, PhcLookup, PhcPageKind, frames, lookup};
pub use options::{PhcOptions, PhcPlacement};
pub use region::{PAGE, RESERVE};
pub use report::{Access, FRAMES_MAX, PhcError, PhcReport, ReportListener, listen, reports};
pub use signals::{SignalAction, handles, install_handlers, is_owner, remove_handlers, set_program_action};
pub use sites::{FUNCTIONS_MAX, NAMES_BYTES_MAX, PhcSites, choose};
pub use slots::{PhcEvent, PhcStats, set_bytes_max, stats};

use replace::{NEXT, REPLACEMENT, SAMPLER};

/// The reason why the checker did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PhcStartError {
    /// It has been started already.
    Running,
    /// The machine has less memory than [`PhcOptions::memory_min`].
    SmallMachine,
    /// The system gives no memory or no addresses.
    OutOfMemory,
    /// The hook table refused the hook.
    Hooks(hooks::HookError),
    /// The system or the processor is not x86-64 Linux.
    Unsupported,
}

impl fmt::Display for PhcStartError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the heap checker was not started: ")?;
        match self {
            PhcStartError::Running => out.write_str("it runs already"),
            PhcStartError::SmallMachine => out.write_str("the machine has less memory than the options ask for"),
            PhcStartError::OutOfMemory => out.write_str("the system gives no memory"),
            PhcStartError::Hooks(error) => write!(out, "{error}"),
            PhcStartError::Unsupported => out.write_str("there is one on x86-64 Linux only"),
        }
    }
}

impl core::error::Error for PhcStartError {}

static CONTROL: Lock = Lock::new();
static IS_RUNNING: AtomicBool = AtomicBool::new(false);
static WATCHES_FORKS: AtomicBool = AtomicBool::new(false);

/// Starts the checker in the hook table of this loaded object, for the rest of the process's life:
/// blocks that are allocated from now on are sampled. If the program's allocator counts at its
/// refills, the checker is its sampler instead. The handlers of faults are installed apart, by
/// [`install_handlers`].
///
/// # Errors
///
/// See [`PhcStartError`].
pub fn start(options: &PhcOptions) -> Result<(), PhcStartError> {
    stack::skip_own_library();
    if block_sampler::is_supported() {
        return start_with(options, true, || {
            NEXT.store(dispatch::underlying_table().cast_mut(), Ordering::Release);
            // SAFETY: `set` demands functions that do as `BlockSampler` says: those of `SAMPLER`
            // do, with slots that nobody else has.
            let is_set = unsafe { block_sampler::set(&SAMPLER) };
            if is_set { Ok(()) } else { Err(hooks::HookError::Full) }
        });
    }
    start_with(options, false, || {
        // If another replacement counts, this one is asked for each block.
        let _ = dispatch_path::set_counted(&REPLACEMENT, arch::word_distance(), slots::base(), RESERVE);
        // SAFETY: the table is static; its functions keep the contract of `Replacement`.
        unsafe { hooks::install_replacement(&raw const REPLACEMENT) }
    })
}

/// Starts the checker in the hook table of another loaded object. The frames of that object are
/// left out of stacks.
///
/// # Safety
///
/// `table` is a table that Heapledger has handed out: complete, and never changed.
///
/// # Errors
///
/// See [`PhcStartError`].
pub unsafe fn start_in(table: *const Hooks, options: &PhcOptions) -> Result<(), PhcStartError> {
    let done = |number: c_int| match number {
        0 => Ok(()),
        number => Err(u8::try_from(number)
            .ok()
            .and_then(hooks::HookError::from_number)
            .unwrap_or(hooks::HookError::Malformed)),
    };
    start_with(options, false, || {
        stack::skip_frames_of([table as u64, 0]);
        // SAFETY: by this function's `# Safety`, `table` is a complete table that never changes.
        // Its functions require what `install_replacement` does: the table passed is static, and
        // its functions keep the contract of `Replacement`. `hooks_entry` does not read an entry
        // that an older table, which is shorter, does not have. The word is this object's.
        unsafe {
            if let Some(count_calls) = heapledger_core::hooks_entry!(table, count_calls) {
                count_calls(&raw const REPLACEMENT, arch::word_distance(), slots::base(), RESERVE);
            }
            done(((*table).install_replacement)(&raw const REPLACEMENT))
        }
    })
}

/// Sets an allocator's sampler. Returns 0 if it had none.
pub type SetSampler = unsafe extern "C" fn(*const BlockSampler) -> c_int;

/// Starts the checker as the sampler of another loaded object's allocator. The frames of that
/// object, and of the one with the hook table, are left out of stacks.
///
/// # Safety
///
/// `set` is the function of that allocator, and `underlying` the table of the program's own
/// allocator in `table`, which Heapledger has handed out: complete, and never changed.
///
/// # Errors
///
/// See [`PhcStartError`]; [`hooks::HookError::Malformed`] if the allocator is not the program's.
pub unsafe fn start_below(
    set: SetSampler,
    underlying: *const Functions,
    table: *const Hooks,
    options: &PhcOptions,
) -> Result<(), PhcStartError> {
    // SAFETY: the table is complete by this function's `# Safety`.
    let malloc = unsafe { (*underlying).malloc }.map_or(0, |malloc| malloc as usize as u64);
    if !stack::are_in_one_object(malloc, set as usize as u64) {
        return Err(PhcStartError::Hooks(hooks::HookError::Malformed));
    }
    start_with(options, true, || {
        stack::skip_frames_of([table as u64, malloc]);
        NEXT.store(underlying.cast_mut(), Ordering::Release);
        // SAFETY: `set` demands a sampler that is never unloaded and keeps its type's contract, as
        // `SAMPLER` does.
        if unsafe { set(&raw const SAMPLER) } == 0 { Ok(()) } else { Err(hooks::HookError::Full) }
    })
}

fn start_with(
    options: &PhcOptions,
    is_sampler: bool,
    install: impl FnOnce() -> Result<(), hooks::HookError>,
) -> Result<(), PhcStartError> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err(PhcStartError::Unsupported);
    }
    let _guard = CONTROL.lock();
    if IS_RUNNING.load(Ordering::Relaxed) {
        return Err(PhcStartError::Running);
    }
    if memory_total().is_some_and(|bytes| bytes < options.memory_min) {
        return Err(PhcStartError::SmallMachine);
    }
    capture::prepare().map_err(|_| PhcStartError::OutOfMemory)?;
    if !slots::reserve(options, is_sampler) {
        return Err(PhcStartError::OutOfMemory);
    }
    fault::prepare();
    record::prepare();
    // Once: a start that fails below may be tried again, and the handlers take locks.
    if !WATCHES_FORKS.swap(true, Ordering::Relaxed) {
        capture::watch_forks(before_fork, after_fork, after_fork_in_child);
    }
    report::set_prints(options.prints);
    adaptive::set(options.is_adaptive);
    countdown::set_rejects(options.is_adaptive || sites::is_any());
    if is_sampler {
        countdown::set_counts_at_refills();
    }
    countdown::set_delays(options);
    install().map_err(PhcStartError::Hooks)?;
    IS_RUNNING.store(true, Ordering::Release);
    set_state(PhcState::Enabled);
    Ok(())
}

/// True if the checker has been started.
pub fn is_running() -> bool {
    IS_RUNNING.load(Ordering::Acquire)
}

/// Returns the bytes of memory of the machine, as the first line of `/proc/meminfo` says.
fn memory_total() -> Option<u64> {
    let mut bytes = [0_u8; 64];
    // SAFETY: the path is a static C string.
    let length = unsafe { sys::read_at(c"/proc/meminfo".as_ptr().cast(), 0, &mut bytes) }?;
    let line = bytes.get(..length)?.strip_prefix(b"MemTotal:")?;
    let digits = line.iter().skip_while(|byte| **byte == b' ').take_while(|byte| byte.is_ascii_digit());
    let kilobytes = digits.fold(0_u64, |number, byte| number.wrapping_mul(10).wrapping_add(u64::from(byte - b'0')));
    kilobytes.checked_mul(1024)
}

extern "C" fn before_fork() {
    sys::without_signals(|| {
        signals::hold();
        sites::hold();
        slots::hold();
        slots::set_forking(true);
    });
}

extern "C" fn after_fork() {
    sys::without_signals(|| {
        slots::set_forking(false);
        // SAFETY: this thread, or the one that it is a copy of, called `before_fork`.
        unsafe {
            slots::release();
            sites::release();
            signals::release();
        }
    });
}

extern "C" fn after_fork_in_child() {
    after_fork();
    signals::set_owner();
    record::clear();
    slots::forget_sampled();
    countdown::reseed();
}
