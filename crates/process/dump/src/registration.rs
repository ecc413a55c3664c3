//! The registration of providers.

use std::fmt;
use std::sync::Arc;

use heapledger_reporters::internal::untracked;

use crate::profiling;
use crate::provider::{Provider, ProviderOptions};
use crate::registry::{self, Entry};

/// Registers a provider: from now on it is asked by every dump except those in the background, in
/// the thread `MemoryInfra`.
pub fn register(name: impl Into<String>, provider: impl Provider + 'static) -> ProviderRegistration {
    register_with(name, provider, ProviderOptions::default())
}

/// Registers a provider with options: a thread of its own, dumps in the background.
pub fn register_with(
    name: impl Into<String>,
    provider: impl Provider + 'static,
    options: ProviderOptions,
) -> ProviderRegistration {
    untracked::scope(|| {
        let entry = registry::add(Entry::new(name.into(), Box::new(provider), options));
        // Profiling may have been turned on before.
        entry.notify_profiling(profiling::is_heap_profiling());
        ProviderRegistration(Some(entry))
    })
}

/// A provider that is registered until this is dropped. A dump that is being made may still call it
/// afterwards: see [`ProviderRegistration::unregister`].
#[must_use = "the provider is registered until this is dropped; `keep` keeps it for good"]
pub struct ProviderRegistration(Option<Arc<Entry>>);

impl ProviderRegistration {
    /// Leaves the provider registered for as long as the program runs.
    pub fn keep(mut self) {
        self.0 = None;
    }

    /// Unregisters the provider, and waits while it is being called, so that its data may be freed
    /// afterwards. Called from the provider itself, it does not wait.
    pub fn unregister(mut self) {
        if let Some(entry) = self.0.take() {
            let _untracked = untracked::enter();
            registry::remove(&entry);
            entry.wait();
            drop(entry);
        }
    }

    /// True if the provider has failed so often that it is not asked any more, until a
    /// [`TraceSession`](crate::TraceSession) begins.
    pub fn is_disabled(&self) -> bool {
        self.0.as_ref().is_some_and(|entry| entry.is_disabled())
    }
}

impl Drop for ProviderRegistration {
    fn drop(&mut self) {
        if let Some(entry) = self.0.take() {
            let _untracked = untracked::enter();
            registry::remove(&entry);
            drop(entry);
        }
    }
}

impl fmt::Debug for ProviderRegistration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("ProviderRegistration").field(&self.0.as_ref().map(|entry| &entry.name)).finish()
    }
}
