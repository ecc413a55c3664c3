//! A thread of Heapledger's, where nothing is observed: one of the standard library's.

use std::io;
use std::thread::{Builder, JoinHandle};

use crate::untracked;

/// A thread of Heapledger's. Dropped, it is left to itself.
#[derive(Debug)]
pub struct Thread(JoinHandle<()>);

/// Runs this in a thread.
///
/// # Errors
///
/// When no thread is to be had.
pub fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
    Builder::new().name(name.to_owned()).spawn(untracked(run)).map(Thread)
}

/// The same with a stack of so many bytes.
///
/// # Errors
///
/// When no thread is to be had.
pub fn thread_with_stack(name: &str, bytes: usize, run: impl FnOnce() + Send + 'static) -> io::Result<Thread> {
    Builder::new().name(name.to_owned()).stack_size(bytes).spawn(untracked(run)).map(Thread)
}

fn untracked(run: impl FnOnce() + Send + 'static) -> impl FnOnce() + Send + 'static {
    move || {
        untracked::for_good();
        run();
    }
}

impl Thread {
    /// Waits until it has ended.
    pub fn join(self) {
        // A panic has been printed.
        let _ = self.0.join();
    }
}
