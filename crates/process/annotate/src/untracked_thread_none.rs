//! Threads of Heapledger on platforms where nothing is observed: threads of the standard library.

use std::io;
use std::thread::{Builder, JoinHandle};

use crate::untracked;

/// A thread of Heapledger. If it is dropped, the thread is detached.
#[derive(Debug)]
pub struct Thread(JoinHandle<()>);

/// Runs a function in a new thread.
///
/// # Errors
///
/// An error if no thread can be made.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
    Builder::new().name(name.to_owned()).spawn(untracked(run)).map(Thread)
}

/// Runs a function in a new thread with a stack of this size in bytes.
///
/// # Errors
///
/// An error if no thread can be made.
pub fn spawn_with_stack(name: &str, bytes: usize, run: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
    Builder::new().name(name.to_owned()).stack_size(bytes).spawn(untracked(run)).map(Thread)
}

fn untracked(run: impl FnOnce() + Send + 'static) -> impl FnOnce() + Send + 'static {
    move || {
        untracked::begin_for_thread();
        run();
    }
}

impl Thread {
    /// Waits until the thread has ended.
    pub fn join(self) {
        // A panic has been printed.
        let _ = self.0.join();
    }
}
