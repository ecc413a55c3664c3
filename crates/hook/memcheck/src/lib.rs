//! Misuse of the allocator: blocks that are freed twice, by the wrong function or with the wrong
//! size, pointers that are not blocks, writes around a block, and writes to a block that was freed.
//!
//! Two hooks of the [hook table](heapledger_core::hooks), which [`start`] installs: a replacement,
//! which makes each block longer on both sides and writes [a canary](CANARY) there, and an
//! observer, which keeps the live blocks in a register and the ones that were freed last in a
//! table, each with its stacks. The register says whether a pointer is a block.
//!
//! With a [quarantine](set_quarantine), the replacement keeps freed blocks from the allocator for a
//! while, filled with a byte, so that writes to them are found.
//!
//! The program sees the results that it would see without the checks, with these exceptions: a
//! second free of a block is not passed on, since the allocator would end the program or go wrong,
//! and a reallocation of a freed block returns a new one.
//!
//! - [`report`]: the findings.
//! - [`operator_new`], [`operator_delete`]: for code that sees C++'s operators, which the hook
//!   table does not.
#![no_std]

#[cfg(test)]
extern crate std;

pub mod report;

mod arch;
mod call;
mod canary;
mod fault;
mod freed;
mod observe;
mod quarantine;
mod register;
mod replace;
mod stamp;
mod thread;

use core::ffi::c_int;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};

use heapledger_core::hooks::{self, Hooks};
use heapledger_core::lock::Lock;
use heapledger_core::{StackId, ThreadId};
use heapledger_inprocess::capture;
use heapledger_inprocess::control::StartError;
use heapledger_ledger::LiveBlock;

pub use call::Call;
pub use canary::{BEHIND_MAX as CANARY_MAX, FILL, LENGTH as CANARY, set_canary};
pub use fault::{REGISTERS, inspect_fault};
pub use freed::FREED_MAX;
pub use observe::{has_seen_blocks, missed};
pub use quarantine::set_quarantine;
pub use thread::{distrust_operators, operator_delete, operator_new};

use freed::FREED;
use observe::{OBSERVER, Overwritten};
use register::REGISTER;
use replace::REPLACEMENT;
use report::Report;
use stamp::{Stamp, guarded};

/// The reason why the checks did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChecksError {
    /// The checks have been started already.
    Running,
    /// The system gives no memory.
    OutOfMemory,
    /// The hook table refused the hooks.
    Hooks(hooks::HookError),
    /// The system or the processor is not x86-64 Linux.
    Unsupported,
}

impl fmt::Display for ChecksError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChecksError::Running => out.write_str("the checks were not started: they run already"),
            ChecksError::OutOfMemory => out.write_str("the checks were not started: the system gives no memory"),
            ChecksError::Hooks(error) => write!(out, "the checks were not started: {error}"),
            ChecksError::Unsupported => {
                out.write_str("the checks were not started: there are some on x86-64 Linux only")
            }
        }
    }
}

impl core::error::Error for ChecksError {}

static CONTROL: Lock = Lock::new();
static IS_RUNNING: AtomicBool = AtomicBool::new(false);
static WATCHES_FORKS: AtomicBool = AtomicBool::new(false);

/// Starts the checks in the hook table of this loaded object, for the rest of the process's life.
/// Blocks that were allocated before are not checked, and frees of unknown pointers are not
/// reported: they may be such blocks.
///
/// Every block of the allocator has to come and go through the hook table. After a free that goes
/// unseen, the memory behind the block would be read when it is gone.
///
/// # Errors
///
/// See [`ChecksError`].
pub fn start() -> Result<(), ChecksError> {
    observe::begin_late();
    // SAFETY: the tables are static; their functions keep the contracts of `Replacement` and
    // `Observer`.
    start_with(|| unsafe {
        hooks::install_replacement(&raw const REPLACEMENT)?;
        hooks::install_observer(&raw const OBSERVER)
    })
}

/// Starts the checks in the hook table of another loaded object, before the first block has been
/// allocated.
///
/// # Safety
///
/// `table` is a table that Heapledger has handed out: complete, and never changed.
///
/// # Errors
///
/// See [`ChecksError`].
pub unsafe fn start_in(table: *const Hooks) -> Result<(), ChecksError> {
    let done = |number: c_int| match number {
        0 => Ok(()),
        number => Err(u8::try_from(number)
            .ok()
            .and_then(hooks::HookError::from_number)
            .unwrap_or(hooks::HookError::Malformed)),
    };
    // SAFETY: by this function's `# Safety`, `table` is a complete table that never changes. Its
    // two functions require what `install_replacement` and `install_observer` do: the tables passed
    // are static, and their functions keep the contracts of `Replacement` and `Observer`.
    start_with(|| unsafe {
        done(((*table).install_replacement)(&raw const REPLACEMENT))?;
        done(((*table).install_observer)(&raw const OBSERVER))
    })
}

fn start_with(install: impl FnOnce() -> Result<(), hooks::HookError>) -> Result<(), ChecksError> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err(ChecksError::Unsupported);
    }
    let _guard = CONTROL.lock();
    if IS_RUNNING.load(Ordering::Relaxed) {
        return Err(ChecksError::Running);
    }
    match capture::prepare() {
        Ok(()) => {}
        Err(StartError::Hooks(error)) => return Err(ChecksError::Hooks(error)),
        Err(_) => return Err(ChecksError::OutOfMemory),
    }
    if !FREED.prepare() || !quarantine::prepare() {
        return Err(ChecksError::OutOfMemory);
    }
    // Register the handlers once.
    if !WATCHES_FORKS.swap(true, Ordering::Relaxed) {
        capture::watch_forks(before_fork, after_fork, after_fork);
    }
    install().map_err(ChecksError::Hooks)?;
    IS_RUNNING.store(true, Ordering::Release);
    Ok(())
}

/// True if the checks run.
pub fn is_running() -> bool {
    IS_RUNNING.load(Ordering::Acquire)
}

/// The way in which memory is read that may be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Read directly: live blocks are there.
    Direct,
    /// Ask the kernel first about each page: the heap may be broken.
    Probed,
}

/// Inspects the canaries of every live block, and every block in quarantine. Takes time in
/// proportion to their number, and to the bytes in quarantine. Returns false if not all were
/// inspected: in a signal handler that interrupted a hook, and after calls that were [missed].
pub fn inspect(mode: ReadMode) -> bool {
    let mut readable = PageProbe { page: 0 };
    let inspected = heapledger_inprocess::query(|| {
        for block in REGISTER.blocks() {
            // The block stays until the lock of its shard is released: a free, or what takes it out
            // of quarantine, has to take it out of the register first.
            let found = REGISTER.with_block(block.key, |block| {
                let guarded = guarded(&block)?;
                let front = canary::LENGTH.min(guarded.front.bytes());
                let length = front + guarded.usable + canary::behind();
                let start = guarded.address - front;
                let is_quarantined = Stamp::of(&block).is_quarantined();
                let is_there = |readable: &mut PageProbe| match is_quarantined {
                    true => readable.is(start as u64, length as u64),
                    false => {
                        readable.is(start as u64, front as u64)
                            && readable.is((guarded.address + guarded.usable) as u64, canary::behind() as u64)
                    }
                };
                if mode == ReadMode::Probed && !is_there(&mut readable) {
                    return None;
                }
                if is_quarantined {
                    // SAFETY: both require the contract of guarded blocks, and a canary in front.
                    // Blocks in quarantine have one, and the block stays, as said above.
                    let changed = unsafe {
                        if guarded.is_being_filled() {
                            return None;
                        }
                        guarded.changed_since_filled()
                    };
                    return Some((block, Err(changed?)));
                }
                // SAFETY: `inspect` requires a live block, and it stays live, as said above.
                Some((block, Ok(unsafe { Overwritten::inspect(&block) })))
            });
            match found.flatten() {
                Some((block, Ok(overwritten))) => note_live(&block, overwritten),
                Some((block, Err(changed))) => quarantine::report_write(&block, changed),
                None => {}
            }
        }
    });
    if inspected.is_none() {
        observe::miss();
    }
    missed() == 0 && !report::is_stopped()
}

/// Reports the changed canaries of a live block.
fn note_live(block: &LiveBlock, overwritten: Overwritten) {
    for (kind, found) in overwritten.kinds(block.size.0) {
        report::note(Report {
            kind,
            address: block.key.0,
            size: block.size.0,
            allocated: Stamp::of(block).allocated_by(),
            allocated_at: block.stack,
            freed: None,
            freed_at: StackId::ROOT,
            before: None,
            thread: ThreadId(0),
            found,
        });
    }
}

/// Reports nothing from now on: blocks may come and go unseen.
pub fn stop() {
    report::stop();
}

/// Asks the kernel whether memory can be read, once for neighbours on a page.
struct PageProbe {
    /// The last page that was found readable.
    page: u64,
}

impl PageProbe {
    fn is(&mut self, address: u64, length: u64) -> bool {
        const PAGE: u64 = 4096;
        (address & !(PAGE - 1)..address + length).step_by(PAGE as usize).all(|page| {
            let is_readable = page == self.page || heapledger_core::sys::is_readable(page as usize);
            if is_readable {
                self.page = page;
            }
            is_readable
        })
    }
}

extern "C" fn before_fork() {
    // A lock of the register is held while that of the freed blocks is taken.
    REGISTER.before_fork();
    FREED.hold();
    quarantine::hold();
    report::hold();
}

extern "C" fn after_fork() {
    // SAFETY: this thread, or the one that it is a copy of, called `before_fork`.
    unsafe {
        report::release();
        quarantine::release();
        FREED.release();
        REGISTER.after_fork();
    }
}
