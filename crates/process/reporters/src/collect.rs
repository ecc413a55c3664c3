//! Collections of reports: all reporters are asked, and none may hold up the collection.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use std::{mem, process};

use heapledger_annotate::{untracked, untracked_thread};
use heapledger_core::{Bytes, bridge};
use heapledger_measure::Meter;
use heapledger_report_format::{Kind, MAIN_PROCESS, Report, Reports, Unit};

use crate::abi::flag;
use crate::failure::failed;
use crate::fork::{self, COLLECTION_LOCK, ForkLockGuard};
use crate::kept_names::keep_name;
use crate::loaded_objects::{self, Reporter};
use crate::path::RenderedPath;
use crate::report_options::ReportOptions;
use crate::slot::Slot;
use crate::{builtin, children};

/// The size of the stack for reporters, which may follow long chains: that of a main thread.
const STACK: usize = 8 << 20;

thread_local! {
    static IS_REPORTING: Cell<bool> = const { Cell::new(false) };
}

/// Collects reports of this moment: first the built-in ones, then those of all reporters of this
/// process, in whatever loaded objects. Other threads go on meanwhile.
///
/// Reporters are called one after the other in a thread made for them, in which signals are
/// blocked. A reporter that panics, or takes longer than it may, gets a report
/// `heapledger-failed/…` that says so; its reports until then count, and the others are called. A
/// reporter that never returns keeps its thread, and its library, for good, and is not called
/// again.
///
/// If two collections run at a time, the second waits for the first. Within a reporter the result
/// is empty.
///
/// Reports that cannot be shown, such as a count below `explicit/` or a unit that differs from the
/// rest of a tree, are left out and reported as failed, too.
pub fn collect(options: &ReportOptions) -> Reports {
    untracked::scope(|| reports_now(options))
}

fn reports_now(options: &ReportOptions) -> Reports {
    let Some(_guard) = lock_collection() else { return Reports::default() };
    // First: it is the least disturbed so.
    let mut reports = builtin::reports(options);
    // They collect while we do.
    let children = options.children.then(|| children::ask(options));
    let own = own_process();
    reports.append(&mut of_reporters(options, 0).0);
    for report in &mut reports {
        if report.process.is_empty() {
            report.process = Arc::clone(&own);
        }
    }
    for mut report in children.into_iter().flat_map(children::PendingAnswers::reports) {
        if report.process.is_empty() {
            report.process = Arc::clone(&own);
        }
        reports.push(report);
    }
    let mut reports = Reports { reports, has_usable_size: Meter::has_usable_size() };
    // They would make all of it unreadable.
    for (report, reason) in reports.take_invalid() {
        let reason = format!("what was reported cannot be shown: {reason}");
        reports.reports.push(Report { process: report.process, ..failed(&report.path, &reason, options.anonymous) });
    }
    reports
}

/// Collects reports for a memory dump, from reporters of this process only; no built-in ones. Empty
/// within a reporter.
pub(crate) fn for_dump(options: &ReportOptions) -> Vec<Report> {
    untracked::scope(|| {
        let Some(_guard) = lock_collection() else { return Vec::new() };
        of_reporters(options, flag::DUMP).0
    })
}

/// Has all reporters mark what they measure, if the options say so. `None` within a reporter.
pub(crate) fn mark(options: &ReportOptions) -> Option<Marked> {
    let guard = lock_collection()?;
    let (reports, claims) = of_reporters(options, 0);
    Some(Marked { claims, _reports: reports, _guard: guard })
}

/// Reporters have marked what they measure, and nobody else asks them before this is dropped.
pub(crate) struct Marked {
    /// In the order in which they were asked.
    pub(crate) claims: Vec<Claim>,
    _reports: Vec<Report>,
    _guard: ForkLockGuard,
}

/// The amount of heap that a reporter says it holds.
pub(crate) struct Claim {
    /// The name under which the reporter marks blocks.
    pub(crate) reporter: String,
    /// The bytes in blocks of the allocator.
    pub(crate) heap: Bytes,
}

impl Claim {
    fn of(reporter: &Reporter, reports: &[Report], is_anonymous: bool) -> Claim {
        let is_heap = |report: &&Report| report.kind == Kind::Heap && report.unit == Unit::Bytes;
        let amounts = reports.iter().filter(is_heap).map(|report| u64::try_from(report.amount).unwrap_or(0));
        let heap = Bytes(amounts.fold(0, u64::saturating_add));
        Claim { reporter: RenderedPath::new(&reporter.path, is_anonymous).text, heap }
    }
}

/// Waits until nobody else collects. `None` within a reporter.
fn lock_collection() -> Option<ForkLockGuard> {
    if IS_REPORTING.get() {
        return None;
    }
    fork::install_handlers();
    Some(COLLECTION_LOCK.acquire())
}

/// As viewers show it: the one that begins so comes first.
fn own_process() -> Arc<str> {
    format!("{MAIN_PROCESS} ({}, pid {})", program(), process::id()).into()
}

/// Returns the name of the program's file.
pub fn program() -> String {
    let name = std::env::current_exe().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    name.unwrap_or_else(|| "?".to_owned())
}

struct ReporterCall {
    reporter: Reporter,
    slot: Arc<Slot>,
}

/// The reporters that have not been asked yet.
type Queue = Arc<Mutex<VecDeque<Arc<ReporterCall>>>>;

/// Asks all reporters; returns their reports, and the heap that each of them says it holds.
fn of_reporters(options: &ReportOptions, purpose: u32) -> (Vec<Report>, Vec<Claim>) {
    let wanted = if options.anonymous { flag::ANONYMOUS } else { 0 } | if options.mark { flag::MARK } else { 0 };
    let flags = wanted | purpose;
    let end = Instant::now() + options.deadline;
    let late = |began: Option<Instant>| began.map_or(end, |began| end.min(began + options.reporter_deadline));
    let ask = |reporter| Arc::new(ReporterCall { reporter, slot: Arc::default() });
    // In this thread: see `reporters`.
    let all: Vec<Arc<ReporterCall>> = loaded_objects::reporters().into_iter().map(ask).collect();
    if options.mark {
        // The list of names is reported itself, and is not to grow meanwhile.
        for call in &all {
            keep_name(&RenderedPath::new(&call.reporter.path, options.anonymous).text);
        }
        // Else what was reported in an earlier collection would seem to be reported twice.
        notify_ledger(bridge::BridgeRef::clear_marks);
    }
    let queue: Queue = Arc::new(Mutex::new(all.iter().cloned().collect()));
    let mut is_stuck = false;
    let mut worker = Worker::start(&queue, flags);
    for call in &all {
        if !call.slot.wait_returned(late) {
            is_stuck = true;
            call.reporter.keep_loaded();
            worker.abandon();
            if Instant::now() >= end {
                queue.lock().unwrap_or_else(PoisonError::into_inner).clear();
            }
            worker = Worker::start(&queue, flags);
        }
    }
    let (mut reports, mut claims) = (Vec::new(), Vec::new());
    for call in &all {
        let is_late = !call.slot.wait_answered(late);
        is_stuck |= is_late;
        let mut outcome = call.slot.close();
        claims.push(Claim::of(&call.reporter, &outcome.reports, options.anonymous));
        reports.append(&mut outcome.reports);
        let lateness = || match outcome.took {
            Some(took) => format!("it had not answered after {:.1} s", took.as_secs_f64()),
            None => "the time for the collection was over before it was asked".to_owned(),
        };
        if let Some(reason) = outcome.failure.or_else(|| is_late.then(lateness)) {
            reports.push(failed(&call.reporter.path, &reason, options.anonymous));
        }
    }
    worker.end();
    if options.mark {
        notify_ledger(bridge::BridgeRef::marks_complete);
    }
    if is_stuck {
        // It still has functions of ours, and somebody may call them.
        mem::forget(loaded_objects::pin_own());
    }
    (reports, claims)
}

/// Notifies the ledger that keeps marks, if there is one.
fn notify_ledger(what: impl FnOnce(bridge::BridgeRef) -> Option<extern "C" fn()>) {
    if let Some(notify) = bridge::find().and_then(what) {
        notify();
    }
}

/// The thread in which reporters are called.
struct Worker {
    is_abandoned: Arc<AtomicBool>,
    thread: Option<untracked_thread::Thread>,
}

impl Worker {
    /// Calls those in the queue. Where there can be no thread, before it returns, and for as long
    /// as they take.
    fn start(queue: &Queue, flags: u32) -> Worker {
        let is_abandoned = Arc::new(AtomicBool::new(false));
        let next = |queue: &Queue| queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let run = {
            let (queue, is_abandoned) = (Arc::clone(queue), Arc::clone(&is_abandoned));
            move || {
                IS_REPORTING.set(true);
                while !is_abandoned.load(Ordering::Acquire)
                    && let Some(call) = next(&queue)
                {
                    call.slot.begin();
                    let sink = call.slot.sink(flags);
                    // SAFETY: `Reporter::run` requires a sink that is held until it returns.
                    // `call` lives until the reporter returns, and holds the slot that made the
                    // sink.
                    untracked::callback(|| unsafe { call.reporter.run(&sink) });
                    call.slot.end();
                }
                IS_REPORTING.set(false);
            }
        };
        if queue.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return Worker { is_abandoned, thread: None };
        }
        let thread = untracked_thread::spawn_with_stack("heapledger", STACK, run.clone());
        if thread.is_err() {
            run();
        }
        Worker { is_abandoned, thread: thread.ok() }
    }

    /// Leaves it to itself: it calls nobody any more once its reporter returns, if it does.
    fn abandon(&mut self) {
        self.is_abandoned.store(true, Ordering::Release);
        self.thread = None;
    }

    fn end(self) {
        if let Some(thread) = self.thread {
            // It catches what reporters throw.
            thread.join();
        }
    }
}
