//! Calls of a function of the program, such as a reporter or a provider, by one thread at a time.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use crate::untracked;

/// The reason for which a function is not called while it is being called.
pub const BUSY: &str = "it has not returned from an earlier call";

/// Ensures that a function of the program is called by one thread at a time.
#[derive(Debug, Default)]
pub struct ExclusiveCall {
    /// The thread that calls the function, and its process: a forked child has a copy of this, but
    /// not the thread.
    caller: Mutex<Option<(ThreadId, u32)>>,
    returned: Condvar,
}

impl ExclusiveCall {
    /// Returns the state of a function that is not being called.
    pub const fn new() -> ExclusiveCall {
        ExclusiveCall { caller: Mutex::new(None), returned: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(ThreadId, u32)>> {
        self.caller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the function as a [`callback`](untracked::callback), within an untracked scope.
    ///
    /// # Errors
    ///
    /// The reason if the function is being called already ([`BUSY`]), or panics.
    pub fn call<R>(&self, function: impl FnOnce() -> R) -> Result<R, String> {
        {
            let mut caller = self.lock();
            if caller.is_some_and(|(_, process)| process == process::id()) {
                return Err(BUSY.to_owned());
            }
            *caller = Some((thread::current().id(), process::id()));
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| untracked::callback(function)));
        *self.lock() = None;
        self.returned.notify_all();
        outcome.map_err(|panic| {
            let reason = message(&*panic);
            // The payload of the panic may itself panic when it is dropped.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
            reason
        })
    }

    /// Waits until the function is not being called. In the function itself it does not wait.
    pub fn wait(&self) {
        let own = (thread::current().id(), process::id());
        let mut caller = self.lock();
        while caller.is_some_and(|(thread, process)| thread != own.0 && process == own.1) {
            caller = self.returned.wait(caller).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.map_or_else(|| "it panicked".to_owned(), |text| format!("it panicked: {text}"))
}
