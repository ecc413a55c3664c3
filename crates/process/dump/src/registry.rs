//! The providers of this program.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use heapledger_annotate::exclusive_call::{BUSY, ExclusiveCall};
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
    exclusive_call: ExclusiveCall,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of failures in a row.
    failures: u32,
    /// The state of heap profiling that the provider was last told.
    is_profiling: bool,
}

impl Entry {
    pub(crate) fn new(name: String, provider: Box<dyn Provider>, options: ProviderOptions) -> Arc<Entry> {
        let (provider, exclusive_call, state) = (Mutex::new(provider), ExclusiveCall::new(), Mutex::default());
        Arc::new(Entry { name, options, provider, exclusive_call, state })
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
        self.once(|provider| provider.dump(args, dump).map_err(|reason| reason.to_string()))?
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
        });
    }

    /// Calls the provider, unless it is being called. Panics are failures.
    fn once<R>(&self, call: impl FnOnce(&mut dyn Provider) -> R) -> Result<R, String> {
        let mut provider = match self.provider.try_lock() {
            Ok(provider) => provider,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(BUSY.to_owned()),
        };
        self.exclusive_call.call(|| call(&mut **provider))
    }

    /// Waits until the provider is not being called. In the provider itself it does not wait.
    pub(crate) fn wait(&self) {
        self.exclusive_call.wait();
    }
}
