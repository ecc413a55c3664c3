//! The common ring: for events of threads that cannot use a ring of their own.

use core::sync::atomic::Ordering;

use heapledger_core::sample::Rate;
use heapledger_core::{Api, StackId, arch, sandbox, sys};
use heapledger_wire::event::{Extended, ReallocOutcome};
use heapledger_wire::publish::WriteError;
use heapledger_wire::session::mode;

use crate::accept::apply_mode;
use crate::emit::write_extended;
use crate::process::{Process, Wait};
use crate::{block, session};

#[cold]
pub(crate) fn write_allocation_to_common_ring(
    api: Api,
    address: u64,
    size: u64,
    alignment: u64,
    count: u64,
    usable: u64,
) {
    let (stack, rate) = (StackId::ROOT, Rate::EXACT);
    write_to_common_ring(&Extended::Alloc { api, address, size, stack, alignment, count, usable, rate });
}

/// Writes an event of a thread that cannot use a ring of its own to the common ring, without its
/// stack.
#[cold]
#[inline(never)]
pub(crate) fn write_to_common_ring(event: &Extended<'_>) {
    let Some(process) = Process::get() else { return };
    let Some(_visit) = process.visit() else { return };
    let block = block::state();
    if block.as_ref().is_some_and(|block| block.is_untracked) {
        return;
    }
    let is_nested = block.is_some_and(|block| block.is_attached);
    // In a sandbox the kernel cannot be asked which thread this is; the C library may know.
    if sandbox::is_entered() && sys::thread_id() == 0 {
        return count_lost(process, is_nested);
    }
    // A signal handler may map memory while its own thread holds the lock.
    let wait = match event {
        _ if is_nested => Wait::Not,
        Extended::Mapping { .. } => Wait::Milliseconds(20),
        _ => Wait::Ever,
    };
    let written = process.with_common(wait, |producer| {
        let mut words = [0_u64; 16];
        let Some(event) = apply_mode(producer, *event)? else { return Ok(false) };
        producer.begin();
        // Under the lock and after `begin`: a stamp taken before could be behind the collector by
        // now.
        let ticks = arch::ticks_after_loads();
        let behalf = Extended::OnBehalf { thread: sys::thread_id() };
        let written = write_extended(producer, ticks, &behalf, &mut words)
            .and_then(|()| write_extended(producer, ticks, &event, &mut words));
        producer.end();
        written.map(|()| lacks_stack(&event))
    });
    match written {
        Some(Ok(false)) => {}
        Some(Ok(true)) => count_missing_stack(process),
        Some(Err(WriteError::Disconnected)) => session::turn_off(),
        Some(Err(WriteError::NoSpace)) => count_lost(process, is_nested),
        None => count_lost(process, is_nested),
    }
}

/// True if the event of a thread without a ring would have a stack if the thread had one.
fn lacks_stack(event: &Extended<'_>) -> bool {
    use ReallocOutcome::Freed;
    let has_stack = match event {
        Extended::Alloc { .. } | Extended::Failed { .. } => true,
        Extended::ReallocEnd { outcome, .. } => *outcome != Freed,
        _ => false,
    };
    has_stack && session::page().mode() & mode::NO_STACKS == 0
}

/// Counts a stamp from a thread that cannot use a ring of its own: without its text it would say
/// nothing.
#[cold]
pub(crate) fn count_lost_stamp() {
    let is_nested = block::state().is_some_and(|block| block.is_attached);
    if let Some(process) = Process::get()
        && let Some(_visit) = process.visit()
    {
        count_lost(process, is_nested);
    }
}

#[cold]
fn count_lost(process: &Process, is_nested: bool) {
    if let Some(counters) = process.counters() {
        let counter = if is_nested { &counters.lost_nested } else { &counters.lost_no_ring };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[cold]
fn count_missing_stack(process: &Process) {
    if let Some(counters) = process.counters() {
        counters.stacks_missing.fetch_add(1, Ordering::Relaxed);
    }
}
