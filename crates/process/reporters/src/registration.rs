//! The registration of reporters while the program runs.

use std::fmt;
use std::sync::{Arc, Weak};

use heapledger_annotate::untracked;

use crate::collector::{Collector, Pending};
use crate::fork;
use crate::registry::{self, Callback, DynamicReporter, ReportItself};

/// Registers a reporter: a function that is called when reports are collected. It reports below the
/// path, such as `explicit/cache`, and the path is its name.
///
/// It is called in a thread of Heapledger's, once per collection, never twice at a time. Where it
/// would wait for what the collecting thread holds, it is given up on when its time is over
/// ([`ReportOptions`](crate::ReportOptions)).
///
/// ```
/// # use heapledger_reporters as reports;
/// use reports::{Collector, ReportOptions};
/// use std::sync::{Arc, Mutex};
///
/// let names = Arc::new(Mutex::new(vec!["a".to_owned()]));
/// let reported = Arc::clone(&names);
/// let registration = reports::register("name-count", move |collector: &mut Collector| {
///     collector.count("", reported.lock().unwrap().len() as u64, "The names that are known.");
/// });
/// let found = || reports::collect(&ReportOptions::default()).reports.iter().any(|report| &*report.path == "name-count");
/// assert!(found());
/// drop(registration);
/// assert!(!found());
/// ```
pub fn register(
    path: impl fmt::Display,
    report: impl Fn(&mut Collector) + Send + Sync + 'static,
) -> ReporterRegistration {
    add(&path, || Callback::Function(Box::new(report)))
}

/// Registers a value that reports itself, and keeps it alive until the registration is dropped.
pub fn register_strong<T: ReportItself + 'static>(path: impl fmt::Display, value: Arc<T>) -> ReporterRegistration {
    add(&path, || Callback::Function(Box::new(move |collector| value.report(collector))))
}

/// Registers a value that reports itself for as long as it lives. The registration neither keeps
/// the value alive nor has to be dropped with it. During a collection the value is kept alive.
pub fn register_weak<T: ReportItself + 'static>(path: impl fmt::Display, value: &Arc<T>) -> ReporterRegistration {
    add(&path, || Callback::Weak(Arc::downgrade(value) as Weak<dyn ReportItself>))
}

/// Registers a reporter that may answer later, from another thread or task: it is given what to
/// answer with. That it has answered is said by dropping it. All asynchronous reporters of a
/// collection are waited for together.
///
/// ```
/// # use heapledger_reporters as reports;
/// use reports::ReportOptions;
///
/// let _registration = reports::register_async("worker", |pending: reports::Pending| {
///     std::thread::spawn(move || pending.collect(|collector| collector.count("jobs", 7, "Jobs that wait.")));
/// });
/// let reports = reports::collect(&ReportOptions::default());
/// assert!(reports.reports.iter().any(|report| &*report.path == "worker/jobs" && report.amount == 7));
/// ```
pub fn register_async(
    path: impl fmt::Display,
    report: impl Fn(Pending) + Send + Sync + 'static,
) -> ReporterRegistration {
    add(&path, || Callback::Async(Box::new(report)))
}

/// A reporter that is registered until this is dropped. A collection that is running may still call
/// it afterwards: see [`ReporterRegistration::unregister`].
#[must_use = "the reporter is registered until this is dropped; `keep` keeps it for good"]
pub struct ReporterRegistration(Option<Arc<DynamicReporter>>);

impl ReporterRegistration {
    /// Leaves the reporter registered for as long as the program, or the library, is there.
    pub fn keep(mut self) {
        self.0 = None;
    }

    /// Unregisters the reporter, and waits while it is being called, so that its data may be freed
    /// afterwards. Called from the reporter itself, it does not wait.
    pub fn unregister(mut self) {
        if let Some(reporter) = self.0.take() {
            let _untracked = untracked::enter();
            registry::remove(&reporter);
            reporter.wait();
            drop(reporter);
        }
    }
}

impl Drop for ReporterRegistration {
    fn drop(&mut self) {
        if let Some(reporter) = self.0.take() {
            let _untracked = untracked::enter();
            registry::remove(&reporter);
            drop(reporter);
        }
    }
}

impl fmt::Debug for ReporterRegistration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("ReporterRegistration").field(&self.0.as_ref().map(|reporter| &reporter.path)).finish()
    }
}

fn add(path: &dyn fmt::Display, report: impl FnOnce() -> Callback) -> ReporterRegistration {
    untracked::scope(|| {
        fork::install_handlers();
        ReporterRegistration(Some(registry::add(path.to_string(), report())))
    })
}
