//! The providers of this program.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, ThreadId};

use heapledger_profile_formats::chrome::{Level, ProcessDump};
use heapledger_reporters::internal::{self, untracked};

use crate::call_queue::{Task, abandon_memory_infra, in_memory_infra};
use crate::provider::{DumpArgs, Provider, ProviderOptions};

/// The number of failures in a row after which a provider is not asked any more.
const FAILURES_MAX: u32 = 3;

/// The providers, in the order of registration.
static ENTRIES: Mutex<Vec<Arc<Entry>>> = Mutex::new(Vec::new());

/// Calls a function with the list. Forks are blocked meanwhile.
fn with<R>(change: impl FnOnce(&mut Vec<Arc<Entry>>) -> R) -> R {
    let _guard = internal::lock_dumps();
    change(&mut ENTRIES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Adds a provider to the list.
pub(crate) fn add(entry: Arc<Entry>) -> Arc<Entry> {
    with(|entries| entries.push(Arc::clone(&entry)));
    entry
}

/// Removes a provider from the list.
pub(crate) fn remove(entry: &Arc<Entry>) {
    let _untracked = untracked::enter();
    let removed: Vec<_> = with(|entries| entries.extract_if(.., |other| Arc::ptr_eq(other, entry)).collect());
    // Outside the lock: this may be the last reference, and the provider's own `drop` may do
    // anything.
    drop(removed);
}

/// Returns all providers.
pub(crate) fn entries() -> Vec<Arc<Entry>> {
    with(|entries| entries.clone())
}

/// Has all providers asked again, whatever failures they had.
pub(crate) fn reset_failures() {
    entries().iter().for_each(|entry| entry.lock().failures = 0);
}

/// A registered provider.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) options: ProviderOptions,
    provider: Mutex<Box<dyn Provider>>,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of failures in a row.
    failures: u32,
    /// The thread that calls the provider, and its process: a forked child has a copy of this, but
    /// not the thread.
    caller: Option<(ThreadId, u32)>,
    /// The state of heap profiling that the provider was last told.
    is_profiling: bool,
}

impl Entry {
    pub(crate) fn new(name: String, provider: Box<dyn Provider>, options: ProviderOptions) -> Arc<Entry> {
        let (state, returned) = (Mutex::default(), Condvar::new());
        Arc::new(Entry { name, options, provider: Mutex::new(provider), state, returned })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_disabled(&self) -> bool {
        self.lock().failures >= FAILURES_MAX
    }

    /// True if dumps of this level ask the provider.
    pub(crate) fn is_for(&self, level: Level) -> bool {
        level > Level::Background || !self.options.background.is_empty()
    }

    /// Returns the names that the provider may use at this level; `None` for any names.
    pub(crate) fn names(&self, level: Level) -> Option<&[String]> {
        (level == Level::Background).then_some(&*self.options.background)
    }

    /// Runs a task in the provider's thread.
    pub(crate) fn post(&self, task: Task) {
        match &self.options.on {
            Some(queue) => queue.post(task),
            None => in_memory_infra(task),
        }
    }

    /// Gives up a provider that does not answer, with the thread that it blocks.
    pub(crate) fn abandon(&self) {
        if self.options.on.is_none() {
            abandon_memory_infra();
        }
    }

    /// Counts the outcome of a call. True if the provider is not to be asked any more.
    pub(crate) fn count_outcome(&self, has_failed: bool) -> bool {
        let mut state = self.lock();
        state.failures = if has_failed { state.failures + 1 } else { 0 };
        state.failures >= FAILURES_MAX
    }

    /// Calls the provider, in this thread.
    pub(crate) fn call(&self, args: &DumpArgs, dump: &mut ProcessDump) -> Result<(), String> {
        self.once(|provider| provider.dump(args, dump).map_err(|reason| reason.to_string()))
            .unwrap_or_else(|| Err("it has not returned from an earlier call".to_owned()))
    }

    /// Tells the provider whether heaps are profiled, unless it knows. If it is being called, the
    /// next dump tells it.
    pub(crate) fn notify_profiling(&self, is_profiling: bool) {
        if self.lock().is_profiling == is_profiling {
            return;
        }
        let _ = self.once(|provider| {
            // Another thread may have told it meanwhile.
            if std::mem::replace(&mut self.lock().is_profiling, is_profiling) != is_profiling {
                provider.heap_profiling_enabled(is_profiling);
            }
            Ok(())
        });
    }

    /// Calls the provider. `None` if it is being called already. Panics are failures.
    fn once(&self, call: impl FnOnce(&mut dyn Provider) -> Result<(), String>) -> Option<Result<(), String>> {
        let mut provider = match self.provider.try_lock() {
            Ok(provider) => provider,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        self.lock().caller = Some((thread::current().id(), process::id()));
        let outcome = catch_unwind(AssertUnwindSafe(|| untracked::callback(|| call(&mut **provider))));
        self.lock().caller = None;
        self.returned.notify_all();
        Some(outcome.unwrap_or_else(|panic| {
            let reason = message(&*panic);
            // The payload of the panic may itself panic when it is dropped.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
            Err(reason)
        }))
    }

    /// Waits until the provider is not being called. In the provider itself it does not wait.
    pub(crate) fn wait(&self) {
        let own = (thread::current().id(), process::id());
        let mut state = self.lock();
        while state.caller.is_some_and(|(thread, process)| thread != own.0 && process == own.1) {
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.map_or_else(|| "it panicked".to_owned(), |text| format!("it panicked: {text}"))
}
