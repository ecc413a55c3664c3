//! The dump of this process.

use std::fmt;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use heapledger_core::sys::monotonic_nanoseconds;
use heapledger_profile_formats::chrome::{Guid, Kind, Level, ProcessDump};
use heapledger_reporters::internal::untracked;
use heapledger_reporters::{ReportOptions, internal};

use crate::provider::DumpArgs;
use crate::registry::{self, Entry};
use crate::{kernel, malloc, profiling, reports};

/// A provider, or a process, that is not in a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpFailure {
    /// The name of the provider, or `pid N`.
    pub name: String,
    /// The reason.
    pub reason: String,
    /// True if the provider is not asked any more.
    pub is_disabled: bool,
}

impl fmt::Display for DumpFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} is not in the dump: {}", self.name, self.reason)?;
        out.write_str(if self.is_disabled { "; it is not asked any more" } else { "" })
    }
}

/// The time limits of a dump.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) provider_deadline: Duration,
    pub(crate) deadline: Duration,
}

/// Asks all providers of the process, its reporters and the kernel.
pub(crate) fn dump(args: &DumpArgs, limits: Limits) -> (ProcessDump, Vec<DumpFailure>) {
    let end = Instant::now() + limits.deadline;
    // Collects the reports before other threads wait for this dump, since a collection may wait for
    // dumps.
    let collected = if args.level > Level::Background {
        let Limits { provider_deadline: reporter_deadline, deadline } = limits;
        internal::reports_for_dump(&ReportOptions { reporter_deadline, deadline, ..ReportOptions::default() })
    } else {
        Vec::new()
    };
    let _guard = internal::DUMP_LOCK.acquire();
    let mut dump = begin(args.level);
    let mut failures = Vec::new();
    let live = untracked::scope(|| malloc::dump(args.level, &mut dump)).unwrap_or_else(|reason| {
        failures.push(DumpFailure { name: "the heap of malloc".to_owned(), reason, is_disabled: false });
        None
    });
    for entry in registry::entries() {
        entry.notify_profiling(profiling::is_heap_profiling());
        if entry.is_for(args.level) {
            failures.extend(ask(&entry, args, &mut dump, limits.provider_deadline, end));
        }
    }
    reports::add(&collected, &mut dump);
    dump.totals = kernel::totals();
    if args.level == Level::Detailed {
        dump.regions = kernel::regions();
    }
    if let Some(live) = live {
        untracked::scope(|| live.add_heaps(end, &mut dump));
    }
    (dump, failures)
}

/// Asks the providers alone.
pub(crate) fn of_providers(level: Level) -> ProcessDump {
    let _guard = internal::DUMP_LOCK.acquire();
    let mut dump = begin(level);
    let args = DumpArgs::new(level, Kind::Summary, Guid::default());
    let each = ReportOptions::default().reporter_deadline / 2;
    let end = Instant::now() + each;
    for entry in registry::entries() {
        let _ = ask(&entry, &args, &mut dump, each, end);
    }
    dump
}

fn begin(level: Level) -> ProcessDump {
    ProcessDump::new(process::id(), internal::program(), monotonic_nanoseconds() / 1000, level)
}

/// Asks a provider, in its thread. Its answer is in the dump as a whole, or not at all.
fn ask(
    entry: &Arc<Entry>,
    args: &DumpArgs,
    dump: &mut ProcessDump,
    deadline: Duration,
    end: Instant,
) -> Option<DumpFailure> {
    if entry.is_disabled() {
        return None;
    }
    let deadline = deadline.min(end.saturating_duration_since(Instant::now()));
    let fail = |reason: String, is_disabled| Some(DumpFailure { name: entry.name.clone(), reason, is_disabled });
    if deadline.is_zero() {
        return fail("the time for the dump was over before it was asked".to_owned(), false);
    }
    let (sender, answer) = mpsc::channel();
    let is_late = Arc::new(AtomicBool::new(false));
    let task = {
        let (entry, args, is_late, mut part) =
            (Arc::clone(entry), *args, Arc::clone(&is_late), dump.part(entry.names(args.level)));
        move || {
            if !is_late.load(Ordering::Acquire) {
                let outcome = entry.call(&args, &mut part);
                // If the caller does not wait any more, the answer is dropped.
                let _ = sender.send(outcome.map(|()| part));
            }
        }
    };
    entry.post(Box::new(task));
    let outcome = match answer.recv_timeout(deadline) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => {
            is_late.store(true, Ordering::Release);
            entry.abandon();
            Err(format!("it had not answered after {:.1} s", deadline.as_secs_f64()))
        }
        Err(RecvTimeoutError::Disconnected) => Err("its thread has ended".to_owned()),
    };
    let is_disabled = entry.count_outcome(outcome.is_err());
    match outcome {
        Ok(part) => {
            dump.add(part);
            None
        }
        Err(reason) => fail(reason, is_disabled),
    }
}
