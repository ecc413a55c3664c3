//! The reports of one reporter in one collection.

use std::ffi::c_void;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use heapledger_annotate::untracked;
use heapledger_report_format::{Kind, Report, Unit};

use crate::abi::{RawReport, Sink, Text, VERSION, flag};
use crate::path::RenderedPath;

/// Takes the reports of one reporter until it is closed.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    reports: Vec<Report>,
    failure: Option<String>,
    began: Option<Instant>,
    has_returned: bool,
    /// Answers that are still to come.
    pending: usize,
    is_closed: bool,
    /// Private data is left out.
    is_anonymous: bool,
}

/// The result of asking the reporter.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) reports: Vec<Report>,
    pub(crate) failure: Option<String>,
    /// How long ago it was asked, if it was.
    pub(crate) took: Option<Duration>,
}

impl Slot {
    /// Where the reporter is to report. Valid for as long as the slot is held.
    pub(crate) fn sink(self: &Arc<Slot>, flags: u32) -> Sink {
        self.lock().is_anonymous = flags & flag::ANONYMOUS != 0;
        let size = size_of::<Sink>() as u32;
        Sink { size, version: VERSION, flags, context: Arc::as_ptr(self).cast(), report, fail, retain, release }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reporter is about to be called.
    pub(crate) fn begin(&self) {
        self.lock().began = Some(Instant::now());
        self.changed.notify_all();
    }

    pub(crate) fn end(&self) {
        self.lock().has_returned = true;
        self.changed.notify_all();
    }

    /// Waits until the reporter has returned; not longer than until it is late. Whether it has.
    pub(crate) fn wait_returned(&self, late: impl Fn(Option<Instant>) -> Instant) -> bool {
        self.wait(late, |state| state.has_returned)
    }

    /// The same for all its answers.
    pub(crate) fn wait_answered(&self, late: impl Fn(Option<Instant>) -> Instant) -> bool {
        self.wait(late, |state| state.has_returned && state.pending == 0)
    }

    fn wait(&self, late: impl Fn(Option<Instant>) -> Instant, is_done: impl Fn(&State) -> bool) -> bool {
        let mut state = self.lock();
        loop {
            if is_done(&state) {
                return true;
            }
            let left = late(state.began).saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Closes the slot: later reports are dropped.
    pub(crate) fn close(&self) -> Outcome {
        let mut state = self.lock();
        state.is_closed = true;
        let took = state.began.map(|began| began.elapsed());
        Outcome { reports: mem::take(&mut state.reports), failure: state.failure.take(), took }
    }
}

/// The slot behind a sink's context.
///
/// # Safety
///
/// [`Slot::sink`] made the context, and the slot is *held* ([`Sink`]) for as long as the result is
/// used.
unsafe fn slot<'a>(context: *const c_void) -> &'a Slot {
    // SAFETY: the dereference requires a live `Slot` that is only shared. By this function's
    // `# Safety` `context` is the address of one in an `Arc`, which is held for as long as the
    // result is used.
    unsafe { &*context.cast::<Slot>() }
}

/// # Safety
///
/// [`Slot::sink`] made the context, and the slot is *held* ([`Sink`]). The report, with its texts,
/// stays as it is during the call.
unsafe extern "C" fn report(context: *const c_void, report: *const RawReport) {
    // SAFETY: the report is live, and its texts stay, during the call, as `to_string` requires;
    // `slot` requires a slot that is held. Both by this function's `# Safety`.
    untracked::scope(|| unsafe {
        let raw = &*report;
        let mut state = slot(context).lock();
        let written = |text: Text| RenderedPath::new(text.to_string(), state.is_anonymous);
        let (path, stable, description) = if raw.stable_path.is_null() {
            let path = written(raw.path);
            (path.text, path.stable, written(raw.description).text)
        } else {
            let stable = raw.stable_path.to_string();
            (raw.path.to_string(), Some(stable).filter(|stable| !stable.is_empty()), raw.description.to_string())
        };
        let report = Report {
            process: "".into(),
            path: if path.is_empty() { "(no path)".into() } else { path.into() },
            stable_path: stable.map(Into::into),
            kind: Kind::from_number(raw.kind.into()).unwrap_or_default(),
            unit: Unit::from_number(raw.unit.into()).unwrap_or_default(),
            amount: raw.amount,
            description: description.into(),
        };
        if !state.is_closed {
            state.reports.push(report);
        }
    });
}

/// # Safety
///
/// [`Slot::sink`] made the context, and the slot is *held* ([`Sink`]). The reason stays as it is
/// during the call.
unsafe extern "C" fn fail(context: *const c_void, reason: Text) {
    untracked::scope(|| {
        // SAFETY: `slot` requires a slot that is held, and `to_string` a text that stays during the
        // call; this function's `# Safety` says both.
        let (slot, reason) = unsafe { (slot(context), reason.to_string()) };
        slot.lock().failure.get_or_insert(reason);
    });
}

/// # Safety
///
/// [`Slot::sink`] made the context, and the slot is *held* ([`Sink`]).
unsafe extern "C" fn retain(context: *const c_void) {
    // SAFETY: `increment_strong_count` requires the address that `Arc::as_ptr` has returned, of an
    // `Arc` that is alive, and `slot` one that is held. By this function's `# Safety` that is so.
    unsafe {
        Arc::increment_strong_count(context.cast::<Slot>());
        slot(context).lock().pending += 1;
    }
}

/// # Safety
///
/// [`Slot::sink`] made the context, and this is called once for a call of [`retain`] with it.
unsafe extern "C" fn release(context: *const c_void) {
    // SAFETY: `Arc::from_raw` requires an address in an `Arc` and a count that nobody else drops.
    // By this function's `# Safety` this call gives back one that `retain` has added.
    let slot = unsafe { Arc::from_raw(context.cast::<Slot>()) };
    slot.lock().pending -= 1;
    slot.changed.notify_all();
}
